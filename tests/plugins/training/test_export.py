"""What is taken to a server: `workbench export --format vllm`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.grpo_runs import write

from workbench.errors import SpecError
from workbench.run import prepare
from workbench_training.export import vllm

CALLS = [{"name": "route", "arguments": {"team": "billing"}}]
SAID = '<think>x</think><tool_call>{"name": "route", "arguments": {"team": "billing"}}</tool_call>'


def task_of(folder: Path, grpo: dict[str, Any] | None = None, **settings: Any) -> Any:
    rows = [{"text": f"ticket {i}", "calls": CALLS} for i in range(12)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    given = {"rewards": [{"kind": "tool_n1", "target": "calls"}], **(grpo or {})}
    spec = {
        "data": {"file": "rows.jsonl", "split": {"train": 6, "val": 3, "test": 3}, "label_as_input": True},
        "metric": "tool_n1(call, target=calls)",
        "nodes": {"route": {"predict": "text -> call"}},
        **settings,
    }
    return prepare(write(folder, optimizers=[{"grpo": given}], **spec))[2]


def test_a_model_is_served_by_one_line(tmp_path: Path) -> None:
    task = task_of(tmp_path, lm={"model": "bundled/nano"})
    vllm(task.workflow, tmp_path / "out", task=task)
    line = (tmp_path / "out/serve.sh").read_text().splitlines()[-1]
    assert (
        line.startswith("exec vllm serve ")
        and "workbench_nano/weights" in line
        and "--served-model-name tickets" in line
    )
    assert subprocess.run(["sh", "-n", tmp_path / "out/serve.sh"]).returncode == 0
    assert yaml.safe_load((tmp_path / "out/lm.yaml").read_text())["lm"]["model"] == "openai/tickets"


def test_an_adapter_is_named_with_its_base(tmp_path: Path) -> None:
    adapter = tmp_path / "weights/adapter"
    adapter.mkdir(parents=True)
    (tmp_path / "weights/model.safetensors").write_bytes(b"")
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base", "r": 8}))
    task = task_of(tmp_path, lm=f"hf:{tmp_path / 'weights'}")
    vllm(task.workflow, tmp_path / "out", task=task)
    text = (tmp_path / "out/serve_adapter.sh").read_text()
    assert f"vllm serve org/base --enable-lora --max-lora-rank 8 --lora-modules tickets={adapter}" in text


@pytest.mark.parametrize("rank", ["8\ntouch RAN\n# ", "$(touch RAN)", None, [8], 0])
def test_the_rank_of_a_strangers_adapter_is_a_number(tmp_path: Path, rank: Any) -> None:
    task = adapted(tmp_path, {"base_model_name_or_path": "org/base", "r": rank})
    with pytest.raises(SpecError, match=r"adapter_config\.json must name a base model and a rank"):
        vllm(task.workflow, tmp_path / "out", task=task)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("base", ["b\ntouch RAN\n", "b'; touch RAN; '", "$(touch RAN)", "`touch RAN`", "b # c"])
def test_the_base_of_a_strangers_adapter_is_one_argument(tmp_path: Path, base: str) -> None:
    """With a `vllm` that writes down its arguments, each of them ended by a NUL."""
    task = adapted(tmp_path, {"base_model_name_or_path": base, "r": 8})
    vllm(task.workflow, tmp_path / "out", task=task)
    (tmp_path / "vllm").write_text('#!/bin/sh\nprintf "%s\\0" "$@" > called\n')
    (tmp_path / "vllm").chmod(0o755)
    for script in ("serve.sh", "serve_adapter.sh"):
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(["sh", f"out/{script}"], cwd=tmp_path, env={"PATH": path}, check=True)
    assert (tmp_path / "called").read_text().split("\0")[:5] == ["serve", base, "--enable-lora", "--max-lora-rank", "8"]
    assert not (tmp_path / "RAN").exists()


def adapted(folder: Path, about: dict[str, Any]) -> Any:
    """A task whose model has an adapter beside its weights, with this configuration."""
    (folder / "weights/adapter").mkdir(parents=True)
    (folder / "weights/model.safetensors").write_bytes(b"")
    (folder / "weights/adapter/adapter_config.json").write_text(json.dumps(about))
    return task_of(folder, lm=f"hf:{folder / 'weights'}")


def test_a_model_without_weights_here_cannot_be_exported(tmp_path: Path) -> None:
    task = task_of(tmp_path, lm="openai/x")
    with pytest.raises(SpecError, match="the weights of openai/x are not here"):
        vllm(task.workflow, tmp_path / "out", task=task)
    assert not (tmp_path / "out").exists(), "nothing is left of what was refused"
