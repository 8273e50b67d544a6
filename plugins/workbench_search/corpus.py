"""A corpus of the user's: read once, and indexed once, for all nodes and candidates with the same content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.base.hashing import canonical
from workbench.errors import SpecError, suggest
from workbench.task import read_rows
from workbench_search.bm25 import BM25

#: Suffixes of files that are one document each.
TEXTS = (".txt", ".md")


class Fields(BaseModel):
    """The fields of a corpus that has rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field("id", description="by which documents are opened; rows without it are numbered from 1")
    title: str = Field("title", description="rows may lack it")
    text: str = Field("text", description="the document")


@dataclass(frozen=True)
class Document:
    """A document. id: unique in its corpus."""

    id: str
    title: str
    text: str


class Corpus:
    """Documents in their order, and the index over their titles and texts, which the first search builds."""

    def __init__(self, documents: list[Document], digest: str):
        self.documents, self.digest = documents, digest
        self.by_id = {document.id: document for document in documents}

    @cached_property
    def index(self) -> BM25:
        return BM25(f"{document.title}\n{document.text}" for document in self.documents)

    def search(self, query: str, k: int) -> list[Document]:
        return [self.documents[number] for number in self.index.search(query, k)]


def open_corpus(place: str, base: Path, fields: Fields) -> Corpus:
    """The corpus at a place: a file of rows (JSONL, CSV and others that a reader knows), a text, or a folder of texts.

    What was read before with the same content is not read again. Raises SpecError for a path or rows of no use.
    """
    path = (base / place).resolve()
    if path.is_dir():
        files = _texts(path)
        if not files:
            raise SpecError(f"the folder {path} has no texts ({' or '.join(TEXTS)})", hint="Name a file of rows.")
    else:
        files = [path]
        if not path.is_file():
            near = [p.name for p in path.parent.glob("*") if p.is_file()] if path.parent.is_dir() else []
            raise SpecError(
                f"there is no corpus {path}",
                hint=suggest(path.name, near) if near else "Paths are relative to the workflow file.",
            )
    stamps = tuple((str(file), (seen := file.stat()).st_mtime_ns, seen.st_size) for file in files)
    return _read(str(path), _digest(stamps), canonical(fields.model_dump()))


def _texts(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in TEXTS and file.is_file())


@lru_cache(maxsize=64)
def _digest(stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Of the content of files. stamps: path, time of change and size of each."""
    content = hashlib.sha256()
    for path, _, _ in stamps:
        data = Path(path).read_bytes()
        content.update(f"{Path(path).name} {len(data)}\n".encode())
        content.update(data)
    return content.hexdigest()


@lru_cache(maxsize=8)
def _read(place: str, digest: str, fields: str) -> Corpus:
    path = Path(place)
    if path.is_dir() or path.suffix.lower() in TEXTS:
        files = _texts(path) if path.is_dir() else [path]
        documents = [_whole(file, path) for file in files]
    else:
        documents = list(_rows(read_rows(str(path), path.parent, {}), Fields.model_validate_json(fields), path))
    seen = set[str]()
    for document in documents:
        if document.id in seen:
            raise SpecError(f"two documents of {path} have the id '{document.id}'", hint="Give each an id of its own.")
        seen.add(document.id)
    if not documents:
        raise SpecError(f"the corpus {path} is empty", hint="Write a document a line.")
    return Corpus(documents, digest)


def _whole(file: Path, place: Path) -> Document:
    """A file as one document, under its name within the folder."""
    name = file.name if file == place else file.relative_to(place).as_posix()
    return Document(name, file.stem, file.read_text(encoding="utf-8", errors="replace"))


def _rows(rows: list[dict[str, Any]], fields: Fields, path: Path) -> Iterator[Document]:
    for number, row in enumerate(rows, 1):
        if fields.text not in row:
            raise SpecError(
                f"row {number} of {path} has no field '{fields.text}'",
                hint=f"Write fields: {{text: NAME}}. {suggest(fields.text, list(row))}",
            )
        yield Document(_get(row, fields.id, str(number)), _get(row, fields.title, ""), _get(row, fields.text, ""))


def _get(row: Mapping[str, Any], field: str, default: str) -> str:
    value = row.get(field)
    return default if value is None else str(value)
