"""Readers that need an extra: parquet files and Hugging Face datasets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from workbench.distribution import pip_install
from workbench.errors import SpecError
from workbench_readers.common import Row, check_file, known_options, some_rows

_HF_OPTIONS = ("split", "config", "revision")


def read_parquet(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A parquet file (extra `[parquet]`); option `columns` reads only some of them."""
    known_options(options, ("columns",), location)
    check_file(location)
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise _extra("parquet", location) from None
    columns = options.get("columns")
    if columns is not None and not isinstance(columns, list):
        raise SpecError(f"columns must be a list, not {columns!r}", file=location, hint="Write [text, label].")
    try:
        # ParquetFile, not read_table: the latter needs pyarrow.dataset and guesses partitions from folder names.
        with parquet.ParquetFile(location) as file:
            for name in columns or ():
                if name not in file.schema_arrow.names:
                    raise SpecError(
                        f"there is no column '{name}'",
                        file=location,
                        hint=f"Columns: {', '.join(file.schema_arrow.names)}.",
                    )
            rows = file.read(columns=columns).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SpecError(f"cannot read this as parquet: {error}", file=location, hint="Check the file.") from None
    return _checked(rows, location)


def read_hf(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A Hugging Face dataset (extra `[datasets]`): `hf:FOLDER` saved with save_to_disk, or `hf:owner/name`.

    Options: split (default train), config, revision; also as `hf:owner/name?split=test&config=main`. Code from a hub
    is never run.
    """
    place, _, query = location.partition("?")
    options = {**dict(parse_qsl(query)), **options}
    known_options(options, _HF_OPTIONS, place)
    try:
        import datasets
    except ImportError:
        raise _extra("datasets", place) from None
    split = str(options.get("split", "train"))
    try:
        if Path(place).is_dir():
            found: Any = datasets.load_from_disk(place)
            if isinstance(found, datasets.DatasetDict):
                if split not in found:
                    raise SpecError(
                        f"the dataset has no split '{split}'", file=place, hint=f"Splits: {', '.join(map(str, found))}."
                    )
                found = found[split]
        else:
            found = datasets.load_dataset(place, options.get("config"), split=split, revision=options.get("revision"))
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(
            f"cannot load the dataset '{place}': {type(error).__name__}: {error}",
            hint="Give a folder made by save_to_disk, or owner/name of a dataset on the hub.",
        ) from error
    return _checked([dict(row) for row in found], place)


def _checked(rows: list[Row], location: str) -> list[Row]:
    for number, row in enumerate(rows, 1):
        for name, value in row.items():
            if not _all_finite(value):
                raise SpecError(
                    f"the column '{name}' of row {number} is not a finite number",
                    file=location,
                    line=number,
                    column=1,
                    hint="Replace it by null, or leave the row out.",
                )
    return some_rows(rows, location)


def _all_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    return all(map(_all_finite, value)) if isinstance(value, list) else True


def _extra(name: str, location: str) -> SpecError:
    return SpecError(f"reading {location} needs an extra", hint=f"Run: {pip_install(name)}")
