"""What a checkpoint's JSON files may not ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import SpecError
from workbench_engine.checkpoint import INDEX, check_checkpoint


def written(folder: Path, **files: Any) -> str:
    folder.mkdir(exist_ok=True)
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / {"index": INDEX, "other": "o.safetensors.index.json"}.get(name, f"{name}.json")).write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    "name",
    [
        "pytorch_model.bin",
        "model.safetensors.bin",
        "../other/model.safetensors",
        "/etc/model.safetensors",
        "part\\model.safetensors",
        "model.safetensors\0.bin",
        "..safetensors",
        "",
    ],
)
def test_an_index_names_only_safetensors_beside_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="and only .safetensors beside it are read") as caught:
        check_checkpoint(written(tmp_path, index={"weight_map": {"a": "model-1.safetensors", "b": name}}))
    assert "\n" not in str(caught.value)
    check_checkpoint(written(tmp_path, index={"weight_map": {"a": "model-1.safetensors"}}))


@pytest.mark.parametrize(
    "config",
    [
        {"attn_implementation": "org/kernel"},
        {"_attn_implementation": "kernels-community/flash-attn2@main:function"},
        {"text_config": {"attn_implementation": "org/kernel"}},
        {"attn_implementation": {"": "sdpa", "vision_config": "org/kernel"}},
        {"parts": [{"experts_implementation": "org/kernel"}]},
    ],
)
def test_no_setting_chooses_code(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="config.json asks for the code"):
        check_checkpoint(written(tmp_path, config=config))
    check_checkpoint(written(tmp_path, config={"attn_implementation": "sdpa", "_name_or_path": "org/model"}))


def test_other_weights_that_a_configuration_names_are_held_to_the_same(tmp_path: Path) -> None:
    for name in ("adapter_model.bin", "../x.safetensors", "x/o.safetensors.index.json"):
        with pytest.raises(SpecError, match="names the weights"):
            check_checkpoint(written(tmp_path, config={"transformers_weights": name}))
    named = {"transformers_weights": "o.safetensors.index.json"}
    with pytest.raises(SpecError, match="o.safetensors.index.json names 'x.bin'"):
        check_checkpoint(written(tmp_path, config=named, other={"weight_map": {"a": "x.bin"}}))


def test_the_base_of_an_adapter_is_looked_up_too(tmp_path: Path) -> None:
    base = written(tmp_path / "base", index={"weight_map": {"a": "x.bin"}})
    with pytest.raises(SpecError, match="'x.bin'"):
        check_checkpoint(written(tmp_path / "adapter", adapter_config={"base_model_name_or_path": base}))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"weight_map": 3}', "[" * 100_000, "\ud800".encode("utf-8", "replace").decode()]
)
def test_files_that_cannot_be_read_are_one_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match="not JSON|no weight_map"):
        check_checkpoint(written(tmp_path, index=text))
