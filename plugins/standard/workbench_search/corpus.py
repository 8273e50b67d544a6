"""A corpus: documents of a row or of files, read and indexed once for all nodes with the same content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.base.hashing import canonical
from workbench.errors import NodeError, SpecError, suggest
from workbench.spec import read_outside
from workbench.task import read_rows
from workbench_kit.searching import WordIndex

#: Suffixes of files that are one document each.
TEXTS = (".txt", ".md")
#: Prefix of a corpus in a field of the row.
FIELD = "field:"
#: Maximum number of a row's documents that are searched by vectors; the budget counts their requests.
MAX_OF_ROW = 640


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
    """Documents in order, and the index over their titles and texts, which the first search builds."""

    def __init__(self, documents: list[Document], digest: str):
        self.documents, self.digest = documents, digest
        self.by_id = {document.id: document for document in documents}

        self._cut: dict[int, Corpus] = {}

    @cached_property
    def texts(self) -> list[str]:
        """Return the documents as texts to be searched."""
        return [f"{document.title}\n{document.text}".strip() for document in self.documents]

    @cached_property
    def index(self) -> WordIndex:
        return WordIndex(self.texts)

    def cut(self, chars: int) -> Corpus:
        """Return the corpus in pieces of limited length: the second piece of a document has the id ID#2, as its page
        does."""
        if chars not in self._cut:
            pieces = [piece for document in self.documents for piece in _pieces(document, chars)]
            self._cut[chars] = Corpus(pieces, self.digest)
        return self._cut[chars]


def open_corpus(place: str, base: Path, fields: Fields) -> Corpus:
    """Open the corpus at a place: a file of rows (JSONL, CSV and others with a reader), a text, or a folder of texts.

    Files with unchanged content are not read again. Raises SpecError for an invalid path or invalid rows.
    """
    if not read_outside(place, base):
        return Corpus([], "")
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


def read_field(value: Any, field: str, fields: Fields) -> Corpus:
    """Read the corpus in a field of a row: a text, a list, or a mapping of lists, one for each field of the documents.

    An item of a list is a text, a mapping with the fields of a document, or a title and its text. A text may be a list
    of sentences. Raises NodeError for anything else.
    """
    if isinstance(value, Mapping):
        columns = {name: list(values) for name, values in value.items() if isinstance(values, list | tuple)}
        if len({len(values) for values in columns.values()}) != 1:
            raise NodeError(
                "data", f"'{field}' is a mapping, and no lists of one length: {', '.join(value)}", field=field
            )
        value = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        raise NodeError("data", f"'{field}' is no list of documents: {value!r:.80}", field=field)
    items = [_item(item, number, field, fields) for number, item in enumerate(value, 1)]
    seen: dict[str, int] = {}
    for number, document in enumerate(items):
        if seen.setdefault(document.id, number) != number:
            raise NodeError("data", f"two documents of '{field}' have the id '{document.id}'", field=field)
    return Corpus(items, "")


def _item(item: Any, number: int, field: str, fields: Fields) -> Document:
    if isinstance(item, str):
        return Document(str(number), "", item)
    if isinstance(item, Mapping) and fields.text in item:
        title, id_ = _get(item, fields.title, ""), _get(item, fields.id, str(number))
        return Document(id_, title, _joined(item[fields.text]))
    if isinstance(item, list | tuple) and len(item) == 2:
        return Document(str(number), str(item[0]), _joined(item[1]))
    shown = f"document {number} of '{field}' has no field '{fields.text}'"
    raise NodeError("data", f"{shown}, and is no text and no pair of title and text: {item!r:.80}", field=field)


def _joined(text: Any) -> str:
    if isinstance(text, Sequence) and not isinstance(text, str):
        return " ".join(str(sentence).strip() for sentence in text)
    return "" if text is None else str(text)


def split_pages(text: str, chars: int) -> list[str]:
    """Split a text into pages of limited length, between words if possible. An empty text is one page."""
    pages: list[str] = []
    rest = text.strip()
    while len(rest) > chars:
        end = rest.rfind(" ", chars // 2, chars + 1)
        end = chars if end < 0 else end
        pages.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*pages, rest]


def _pieces(document: Document, chars: int) -> Iterable[Document]:
    pages = split_pages(document.text, chars)
    for number, page in enumerate(pages, 1):
        yield Document(document.id if len(pages) == 1 else f"{document.id}#{number}", document.title, page)


def _texts(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in TEXTS and file.is_file())


@lru_cache(maxsize=64)
def _digest(stamps: tuple[tuple[str, int, int], ...]) -> str:
    """Hash the contents of files. stamps: path, modification time and size of each."""
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
    """Return a file as one document, under its name within the folder."""
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
