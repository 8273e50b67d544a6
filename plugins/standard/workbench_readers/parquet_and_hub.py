"""Readers that need an extra: parquet files and Hugging Face datasets."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from workbench.base.data_files import MAX_FILE, MAX_ROW, too_large
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench.task import find_shards, join_shards, reader_of
from workbench_readers.arrow_rows import LEAVE_OUT, REFERENCE, ArrowRows
from workbench_readers.common import Row, check_file, fault, import_extra, known_options

_HF_OPTIONS = ("split", "config", "revision", "columns")
#: Files that `save_to_disk` writes next to the rows.
_SAVED = ("state.json", "dataset_dict.json")
#: Number of rows that are read together, and maximum compression ratio of a large column.
_BATCH, _MAX_TIMES = 1024, 200


def read_parquet(location: str, options: Mapping[str, Any]) -> ArrowRows:
    """Read a parquet file (extra `[parquet]`). Option `columns` selects columns."""
    known_options(options, ("columns",), location)
    check_file(location)
    pyarrow, parquet = (import_extra(name, "parquet", location) for name in ("pyarrow", "pyarrow.parquet"))
    broken = (pyarrow.ArrowException, OSError, ValueError, LookupError)
    with _read_error(broken, location), parquet.ParquetFile(location) as file:
        schema, meta = file.schema_arrow, file.metadata
        columns = _chosen(options, schema.names, location)
        _check_chunks(meta, columns, location)
        texts = [c.path for c in map(meta.schema.column, range(len(meta.schema))) if c.physical_type == "BYTE_ARRAY"]
        sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]

    def read(places: Sequence[int] | None) -> Iterator[tuple[int, Any]]:
        # Read texts with their dictionary, so that a frequent text takes memory once.
        with _read_error(broken, location), parquet.ParquetFile(location, read_dictionary=texts) as file:
            begin = 0
            for group, size in enumerate(sizes):
                first = begin
                begin += size
                if places is not None and bisect_left(places, first) == bisect_left(places, begin):
                    continue
                room = max(1, MAX_FILE // (8 * max(1, _values_a_row(meta.row_group(group)))))
                for batch in file.iter_batches(min(_BATCH, room), row_groups=[group], columns=columns):
                    yield first, batch
                    first += len(batch)

    names = columns if columns is not None else schema.names
    return ArrowRows(meta.num_rows, names, read, _features(schema.metadata), location)


@contextmanager
def _read_error(broken: tuple[type[Exception], ...], location: str) -> Generator[None]:
    try:
        yield
    except SpecError:
        raise
    except broken as error:
        raise fault(f"cannot read this as parquet: {error}", location, "Check the file.") from None


def _values_a_row(group: Any) -> int:
    """Count the numbers and texts of a row of a row group, on average."""
    return sum(group.column(index).num_values for index in range(group.num_columns)) // max(1, group.num_rows)


def _check_chunks(meta: Any, columns: Sequence[str] | None, location: str) -> None:
    """Raise SpecError for columns with an implausibly high compression ratio, or too many values per row."""
    for group in range(meta.num_row_groups):
        for index in range(meta.num_columns):
            chunk = meta.row_group(group).column(index)
            name, unpacked = str(chunk.path_in_schema), chunk.total_uncompressed_size
            wanted = columns is None or name.split(".")[0] in columns
            if wanted and unpacked > MAX_FILE and unpacked > _MAX_TIMES * chunk.total_compressed_size:
                hint = "Leave the column out with data: {options: {columns: [...]}}, or write the file again."
                raise too_large(f"the column '{name}', unpacked,", MAX_FILE, location, None, hint)
            if wanted and chunk.num_values * REFERENCE > MAX_ROW * max(1, meta.row_group(group).num_rows):
                raise too_large(f"a row of the column '{name}', read as lists,", MAX_ROW, location, None, LEAVE_OUT)


def read_hf(location: str, options: Mapping[str, Any]) -> Iterable[Row]:
    """Read a Hugging Face dataset (extra `[datasets]`).

    Forms: `hf:FOLDER` saved with save_to_disk, `hf:FOLDER` of files as on a hub, or `hf:owner/name`. Options: split
    (default train), config, revision, columns; also as `hf:owner/name?split=test&columns=text,label`. Code from a hub
    is never run. A number of a ClassLabel becomes its name.
    """
    place, _, query = location.partition("?")
    asked: dict[str, Any] = dict(parse_qsl(query))
    if "columns" in asked:
        asked["columns"] = asked["columns"].split(",")
    options = {**asked, **options}
    known_options(options, _HF_OPTIONS, place)
    split = str(options.get("split", "train"))
    if Path(place).is_dir() and not any((Path(place) / name).is_file() for name in _SAVED):
        return _rows_of_files(place, split, options)
    datasets = import_extra("datasets", "datasets", place)
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
        table = found.with_format("arrow")  # nothing is decoded: no pictures, no sounds
    except SpecError:
        raise
    except Exception as error:
        hint = "Give a folder made by save_to_disk, or owner/name of a dataset on the hub."
        raise SpecError(f"cannot load the dataset '{place}': {type(error).__name__}: {error}", hint=hint) from error

    def read(places: Sequence[int] | None) -> Iterator[tuple[int, Any]]:
        wanted = range(0, len(table), _BATCH) if places is None else sorted({p - p % _BATCH for p in places})
        for first in wanted:
            for batch in table[first : first + _BATCH].to_batches():
                yield first, batch
                first += len(batch)

    return ArrowRows(len(table), table.column_names, read, found.features.to_dict(), place)


def _rows_of_files(place: str, split: str, options: Mapping[str, Any]) -> Iterable[Row]:
    """Yield the rows of files as on a hub: of those whose names begin with the split's, or of all."""
    files = find_shards(Path(place), ".", split)
    read = plugins().get("readers", reader_of(files[0].name))
    kept = {name: value for name, value in options.items() if name == "columns"}
    return join_shards([read(str(file), kept) for file in files], [str(file.relative_to(place)) for file in files])


def _features(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    """Read the column types of a hub's dataset from the metadata of its parquet file."""
    try:
        found = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return found if is_dict(found) else {}


def _chosen(options: Mapping[str, Any], known: Sequence[str], location: str) -> list[str] | None:
    """Return the option `columns`. Raise SpecError for an unknown column."""
    columns = options.get("columns")
    if columns is None:
        return None
    if not is_list(columns):
        raise fault(f"columns must be a list, not {columns!r}", location, "Write [text, label].")
    for name in columns:
        if name not in known:
            raise fault(f"there is no column '{name}'", location, f"Columns: {', '.join(known)}.")
    return list(map(str, columns))
