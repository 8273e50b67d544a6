"""The workflow file of a stored run, read without loading its code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import StoreError
from workbench.spec import Inherited, Source, Spec, apply_overrides, check_spec, load_yaml
from workbench.store import kind_of, read_options, read_spec
from workbench.task import expand_references


def name_of_stored(row: Any) -> str:
    """Return the name of a stored run's file for questions to the user."""
    return f"the workflow of run {row['run']}"


def content_of_stored(row: Any) -> bytes:
    """Return the file of a stored run with its flags, as shown in questions to the user."""
    stored = read_options(row)
    found = (read_spec(row), row["file"], stored.get("sets"), stored.get("outside"))
    return repr(found).encode("utf-8", "surrogatepass")


def file_of_stored(row: Any) -> str:
    if (file := row["file"]) is None:
        raise StoreError(f"run {row['run']} ({kind_of(row)}) has no workflow file; name a run of optimize or eval")
    return file


@dataclass(frozen=True)
class StoredFile:
    """The workflow file of a stored run as it started. Files that it names are not read."""

    spec: Spec
    source: Source
    base: Path


def read_stored_file(row: Any) -> StoredFile:
    """Read the workflow file of a stored run, with its flags and outer settings, without running any code.

    Raises:
        StoreError: the run has no workflow file.
        SpecError: the file, or one that it refers to, cannot be read.
    """
    _, base, started = read_stored_source(row)
    (spec, source), inherited = check_spec(started), list[Inherited]()
    for raw in spec.nodes.values():
        expand_references(raw, base, (), inherited)
    return StoredFile(spec.model_copy(update={"policy": spec.policy.inherit(inherited)}), source, base)


def read_stored_source(row: Any) -> tuple[Source, Path, Source]:
    """Return the workflow file of a stored run as written, the folder of its paths, and the file with the flags and
    outer settings of the run's start. Raises StoreError and SpecError."""
    stored = read_options(row)
    file = file_of_stored(row)
    source = load_yaml(read_spec(row), file)
    return source, Path(file).parent, apply_overrides(source, stored["sets"], stored["outside"])
