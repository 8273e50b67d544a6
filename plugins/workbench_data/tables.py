"""Readers that need an extra: parquet files and Hugging Face datasets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import SpecError

Row = dict[str, Any]


def read_parquet(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A parquet file (extra `[parquet]`); option `columns` reads only some of them."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise _extra("parquet", location) from None
    try:
        table = parquet.read_table(location, columns=options.get("columns"))
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        raise SpecError(f"cannot read this as parquet: {error}", file=location, hint="Check the file.") from None
    return _checked(table.to_pylist(), location)


def read_hf(location: str, options: Mapping[str, Any]) -> list[Row]:
    """A Hugging Face dataset (extra `[datasets]`): `hf:FOLDER` saved with save_to_disk, or `hf:owner/name`.

    Options: split (default train), config, revision. Code from a hub is never run.
    """
    try:
        import datasets
    except ImportError:
        raise _extra("datasets", location) from None
    split = str(options.get("split", "train"))
    try:
        if Path(location).is_dir():
            found: Any = datasets.load_from_disk(location)
            if isinstance(found, datasets.DatasetDict):
                found = found[split]
        else:
            found = datasets.load_dataset(
                location, options.get("config"), split=split, revision=options.get("revision")
            )
    except Exception as error:
        raise SpecError(f"cannot load the dataset '{location}': {type(error).__name__}: {error}",
                        hint="Give a folder made by save_to_disk, or owner/name of a dataset on the hub.") from error  # fmt: skip
    return _checked([dict(row) for row in found], location)


def _checked(rows: list[Row], location: str) -> list[Row]:
    if not rows:
        raise SpecError("there are no rows", file=location, hint="Choose another file or split.")
    for number, row in enumerate(rows, 1):
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise SpecError(f"the column '{name}' of row {number} is {value}", file=location, line=number, column=1,
                                hint="Replace it by null, or leave the row out.")  # fmt: skip
    return rows


def _extra(name: str, location: str) -> SpecError:
    return SpecError(f"reading {location} needs an extra", hint=f"Run: pip install 'agent-workbench[{name}]'")
