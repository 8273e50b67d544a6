"""The result of an import: a workflow file, rows, and an account of the parts taken and left out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.base.data_files import read_data
from workbench.base.files import open_whole, write_whole
from workbench.base.type_guards import is_list
from workbench.errors import SpecError
from workbench.run import prepare
from workbench.spec import defaults, load_yaml_file
from workbench.task import dump_yaml, read_rows, reader_of
from workbench_import.dspy_state import read_states

#: Minimum rows: one each for train, val and test.
MIN_ROWS = 3
_MAX_BYTES = 64 << 20
_SUFFIXES = ("csv", "tsv", "json", "jsonl", "ndjson", "xlsx")


@dataclass(frozen=True)
class Wishes:
    """Options of the user. signatures: NAME=SIGNATURE for predictors of DSPy."""

    data: Path | None = None
    metric: str | None = None
    signatures: Sequence[str] = ()
    run_code: bool = False


@dataclass
class Imported:
    """A workflow to write.

    tree: the file without `data`. rows: its data; None if `data` names a file of the user's.
    """

    tree: dict[str, Any]
    rows: list[dict[str, Any]] | None = None
    data: Path | None = None
    taken: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)

    def write(self, out: Path) -> None:
        """Write the folder, and check the file. Raises SpecError, and writes nothing, if the workflow is invalid."""
        if out.exists():
            raise SpecError(f"{out} exists, and nothing is overwritten", hint="Choose another folder with --out.")
        try:
            out.mkdir(parents=True)
        except OSError as error:
            raise SpecError(f"{out} cannot be made: {error.strerror}", hint="Choose another folder.") from None
        try:
            self._write(out)
            prepare(out / "workflow.yaml", code="outlined")
        except BaseException as error:
            shutil.rmtree(out)
            if not isinstance(error, SpecError):
                raise
            hint = " ".join(filter(None, (error.hint, "Nothing was written.")))
            raise SpecError(f"what was read makes no valid workflow: {error.message}", hint=hint) from None

    def _write(self, out: Path) -> None:
        rows = self.rows
        if rows is not None:
            name = "rows.jsonl"
            with open_whole(out / name, errors="backslashreplace") as file:  # JSON may have lone surrogates as escapes
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        else:
            assert self.data is not None
            rows, name = read_table(self.data), os.path.relpath(self.data.resolve(), out.resolve())
        tree = {**self.tree}
        nodes = tree.pop("nodes")
        metric = tree.pop("metric")
        tree.setdefault("lm", defaults.LM)  # a line to edit, if no model could be taken
        head = {key: tree.pop(key) for key in ("name", "lm", "roles") if key in tree}
        data = data_section(name, len(rows))
        if "split" not in data:
            self.guessed.append(
                f"the rows are enough for `eval` only: there are {len(rows)}, and optimize needs at least {MIN_ROWS}"
            )
        text = dump_yaml({**head, "data": data, "metric": metric, "nodes": nodes, **tree})
        write_whole(out / "workflow.yaml", "# Made by `workbench data import`.\n" + text)


def data_section(file: str, rows: int) -> dict[str, Any]:
    """Split the rows: a quarter for train, a quarter for val, the rest for the sealed test. Too few are for `eval`."""
    if not rows:
        raise SpecError("there is no row", hint="Add rows, or name a file of them with --data (for a DSPy program).")
    if rows < MIN_ROWS:
        return {"val": file}
    part = max(1, rows // 4)
    return {"file": file, "split": {"train": part, "val": part, "test": rows - 2 * part}}


def read_table(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV, JSON, JSONL or Excel file. Raises SpecError."""
    if reader_of(path.name) not in _SUFFIXES:
        raise SpecError(f"{path.name} is not a table", hint=f"Known: {', '.join(_SUFFIXES)}.")
    return [dict(row) for row in read_rows(str(path.resolve()), path.parent, {})]


def as_list(value: Any) -> list[Any]:
    """Return a list unchanged; any other value as its only item; no value as an empty list."""
    return list(value) if is_list(value) else [] if value in (None, "") else [value]


def parsed(value: Any) -> Any:
    """Parse the JSON in a text; return any other value unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def read_value(path: Path) -> Any:
    """Return the content of a JSON or YAML file. Raises SpecError."""
    if path.suffix.lower() != ".json":
        return load_yaml_file(path).value
    try:
        return json.loads(read_data(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"{path} cannot be read as JSON: {error}", hint="Correct the file.") from None


def import_path(path: Path, source: str | None, wishes: Wishes) -> Imported:
    """Read another tool's file. source: dspy, promptfoo or inspect; None: by the content. Raises SpecError."""
    if not path.exists():
        raise SpecError(f"there is no {path}", hint="Name a file, or the folder of a DSPy program.")
    kind = source or detect(path)
    names = {"dspy": "dspy_program", "promptfoo": "promptfoo", "inspect": "inspect_dataset"}
    return import_module(f"workbench_import.{names[kind]}").read(path, wishes)


def detect(path: Path) -> str:
    """Find the tool that wrote a file. Raises SpecError if it is unknown."""
    if path.is_dir() or path.suffix == ".pkl":
        if path.is_file() or (path / "program.pkl").is_file() or (path / "program.json").is_file():
            return "dspy"
        if found := next((n for n in ("promptfooconfig.yaml", "promptfooconfig.yml") if (path / n).is_file()), None):
            raise SpecError(f"{path} is a folder", hint=f"Name the file: {path / found}.")
        raise SpecError(f"{path} contains no DSPy program (program.json or program.pkl)", hint="Name a file.")
    if reader_of(path.name) in _SUFFIXES and path.suffix.lower() != ".json":
        return "inspect"
    value = read_value(path)
    if isinstance(value, Mapping) and ("prompts" in value or "providers" in value or "tests" in value):
        return "promptfoo"
    if isinstance(value, Mapping) and read_states(value):
        return "dspy"
    if isinstance(value, list) and value and isinstance(value[0], Mapping) and "input" in value[0]:
        return "inspect"
    told = "a promptfoo configuration, a state of a DSPy program or an Inspect dataset"
    raise SpecError(f"{path.name} is not {told}", hint="Say which it is with --from.")
