"""Readers that need an extra: parquet files and Hugging Face datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench.spec import PATH, Found, Power, Written, declares, existing, read_path
from workbench.task import Rows
from workbench_readers.common import Row, check_file, fault, import_extra, known_options, some_rows
from workbench_readers.values import as_json

_HF_OPTIONS = ("split", "config", "revision", "columns")


@declares(location=PATH)
def read_parquet(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A parquet file (extra `[parquet]`); option `columns` reads only some of them."""
    known_options(options, ("columns",), location)
    check_file(location)
    pyarrow, parquet = (import_extra(name, "parquet", location) for name in ("pyarrow", "pyarrow.parquet"))
    try:
        # ParquetFile, not read_table: the latter needs pyarrow.dataset and guesses partitions from folder names.
        with parquet.ParquetFile(location) as file:
            schema = file.schema_arrow
            table = file.read(columns=_chosen(options, schema.names, location))
        return _rows_of(table, _features(schema.metadata), location)
    except (pyarrow.ArrowException, OSError, ValueError, LookupError) as error:
        raise fault(f"cannot read this as parquet: {error}", location, "Check the file.") from None


def _hub(setting: Written) -> Found:
    """A name on the hub, which is public, has an owner. One without is a format, whose files are looked for here."""
    place = str(setting.value).partition("?")[0]
    if "/" not in place:
        yield Power("reads a path", place, place, setting.at, (), True)
    elif any(existing(place, setting.base)):
        yield read_path(setting, place)


@declares(location=_hub)
def read_hf(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A Hugging Face dataset (extra `[datasets]`): `hf:FOLDER` saved with save_to_disk, or `hf:owner/name`.

    Options: split (default train), config, revision, columns; also as `hf:owner/name?split=test&columns=text,label`.
    Code from a hub is never run. A number of a ClassLabel becomes its name.
    """
    place, _, query = location.partition("?")
    asked: dict[str, Any] = dict(parse_qsl(query))
    if "columns" in asked:
        asked["columns"] = asked["columns"].split(",")
    options = {**asked, **options}
    known_options(options, _HF_OPTIONS, place)
    datasets = import_extra("datasets", "datasets", place)
    split = str(options.get("split", "train"))
    try:
        if Path(place).is_dir():
            found: Any = datasets.load_from_disk(place)
            if isinstance(found, datasets.DatasetDict):
                if split not in found:
                    hint = f"Splits: {', '.join(map(str, found))}."
                    raise fault(f"the dataset has no split '{split}'", place, hint)
                found = found[split]
        else:
            found = datasets.load_dataset(place, options.get("config"), split=split, revision=options.get("revision"))
        if columns := _chosen(options, found.column_names, place):
            found = found.select_columns(columns)
        # As Arrow's table, in which nothing is decoded: no pictures, and no sounds.
        return _rows_of(found.with_format("arrow")[:], found.features.to_dict(), place)
    except SpecError:
        raise
    except Exception as error:
        hint = "Give a folder made by save_to_disk, or owner/name of a dataset on the hub."
        raise SpecError(f"cannot load the dataset '{place}': {type(error).__name__}: {error}", hint=hint) from error


def _rows_of(table: Any, features: Mapping[str, Any], location: str) -> Rows:
    """The rows of a table of Arrow. features: what a hub says of its columns. Raises SpecError."""
    rows, names = Rows(), table.column_names
    if twice := [name for name in names if names.count(name) > 1]:
        raise fault(f"the column '{twice[0]}' occurs twice", location, "Rename one of them.")

    def missing(field: str, value: Any, problem: str) -> None:
        number = len(rows) + 1
        hint = "Replace it by null, or leave the row out."
        rows.add_hole(field, fault(f"the column '{field}' of row {number} {problem}", location, hint, number))

    for cells in zip(*(_cells(column) for column in table.columns), strict=True):
        rows.append(
            {name: as_json(cell, missing, name, features.get(name)) for name, cell in zip(names, cells, strict=True)}
        )
    return some_rows(rows, location)


def _cells(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):  # a time that Python's has no room for: nanoseconds, the year 10000
        return column.cast("string").to_pylist()


def _features(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    """Read the column types of a hub's dataset, from the metadata of a parquet file that was made of it."""
    try:
        found = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return found if is_dict(found) else {}


def _chosen(options: Mapping[str, Any], known: Sequence[str], location: str) -> list[str] | None:
    """The option `columns`. Raises SpecError for one that there is not."""
    columns = options.get("columns")
    if columns is None:
        return None
    if not is_list(columns):
        raise fault(f"columns must be a list, not {columns!r}", location, "Write [text, label].")
    for name in columns:
        if name not in known:
            raise fault(f"there is no column '{name}'", location, f"Columns: {', '.join(known)}.")
    return list(map(str, columns))
