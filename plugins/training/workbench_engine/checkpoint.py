"""Checks of a checkpoint in the Hugging Face format, before transformers reads it.

transformers holds `use_safetensors=True` for the files that it looks for, but not for those that an index names: it
hands a `.bin` among them to `torch.load`. And where `config.json` names a kernel as `owner/name`, it downloads it, and
runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.base.type_guards import is_dict, walk
from workbench.errors import SpecError

INDEX = "model.safetensors.index.json"
_LARGEST = 64 * 1024 * 1024  # bytes of a JSON file
_LONGEST_CONFIG = 1024 * 1024
#: Settings that choose code. Those of the whole model and of its parts end alike.
_CHOOSES_CODE = "_implementation"


def check_checkpoint(path: str, revision: str | None = None) -> None:
    """Raise SpecError for a folder or hub id that leads to weights that are not `.safetensors`, or to code.

    Of a hub id, the few JSON files are downloaded that transformers reads as well. An adapter's base is looked up, too.
    """
    adapter = _json(_found(path, "adapter_config.json", revision), _LONGEST_CONFIG)
    base = adapter.get("base_model_name_or_path") if isinstance(adapter, dict) else None
    for place, version in ((path, revision), *(((base, None),) if isinstance(base, str) and base != path else ())):
        indexes = {INDEX}
        for key, value in _settings(_json(_found(place, "config.json", version), _LONGEST_CONFIG)):
            _check_setting(place, key, value)
            if key == "transformers_weights" and str(value).endswith(".index.json"):
                indexes.add(str(value))
        for name in sorted(indexes):
            _check_index(place, name, _json(_found(place, name, version), _LARGEST))


def _check_setting(path: str, key: str, value: Any) -> None:
    if key.endswith(_CHOOSES_CODE) and "/" in str(value):
        raise SpecError(f"'{path}': config.json asks for the code '{str(value)[:100]}' as {key}")
    if key == "transformers_weights" and value is not None and not _is_safe(str(value).removesuffix(".index.json")):
        raise SpecError(f"'{path}': config.json names the weights '{str(value)[:100]}', and only .safetensors are read")


def _check_index(path: str, name: str, index: Any) -> None:
    if index is None:
        return
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict):
        raise SpecError(f"'{path}': {name} has no weight_map")
    for file in dict.fromkeys(map(str, files.values())):
        if not _is_safe(file):
            raise SpecError(f"'{path}': {name} names '{file[:100]}', and only .safetensors beside it are read")


def _is_safe(name: str) -> bool:
    return name.endswith(".safetensors") and not {"/", "\\", "\0"} & set(name) and not name.startswith(".")


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """(key, value) at every depth."""
    for part in filter(is_dict, walk(value)):
        yield from part.items()


def _found(path: str, name: str, revision: str | None) -> Path | None:
    if Path(path).is_dir():
        return Path(path, name)
    from transformers.utils.hub import cached_file

    place = cached_file(path, name, revision=revision or "main", _raise_exceptions_for_missing_entries=False)
    return Path(place) if place else None


def _json(file: Path | None, most: int) -> Any:
    if file is None or not file.is_file():
        return None
    if file.stat().st_size > most:
        raise SpecError(f"'{file}' has more than {most} bytes")
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise SpecError(f"'{file}' is not JSON: {str(error)[:100]}") from None
