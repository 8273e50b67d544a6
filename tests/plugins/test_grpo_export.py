"""What is taken to a server or a cluster: `workbench export --format vllm` and `--format verl`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.plugins.test_grpo import needs_torch, write

from workbench.errors import SpecError
from workbench.run import prepare
from workbench_grpo.export import verl, vllm

CALLS = [{"name": "route", "arguments": {"team": "billing"}}]
SAID = '<think>x</think><tool_call>{"name": "route", "arguments": {"team": "billing"}}</tool_call>'


def task_of(folder: Path, grpo: dict[str, Any] | None = None, **settings: Any) -> Any:
    rows = [{"text": f"ticket {i}", "calls": CALLS} for i in range(12)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    given = {"rewards": [{"kind": "tool_n1", "target": "calls"}], **(grpo or {})}
    spec = {"data": {"file": "rows.jsonl", "split": {"train": 6, "val": 3, "test": 3}},
            "metric": "tool_n1(call, target=calls)", "nodes": {"route": {"predict": "text -> call"}}, **settings}  # fmt: skip
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
    text = (tmp_path / "out/serve.sh").read_text()
    assert f"vllm serve org/base --enable-lora --max-lora-rank 8 --lora-modules tickets={adapter}" in text


def test_rows_settings_and_reward_of_verl(tmp_path: Path) -> None:
    needs_torch()
    parquet = pytest.importorskip("pyarrow.parquet")
    from workbench_nano.model import Nano

    course = {"steps": 7, "tasks": 4, "rollouts": 3}
    task = task_of(tmp_path, {"algorithm": "dapo", "course": course, "lora": {"rank": 4}, "objective": {"beta": 0.01}})
    verl(task.workflow, tmp_path / "out", task=task)
    rows = parquet.read_table(tmp_path / "out/train.parquet").to_pylist()
    assert [r["extra_info"]["task"] for r in rows] == [e.id for e in task.dataset.train]
    first = rows[0]
    assert first["prompt"][-1]["content"] == f"text: {task.dataset.train[0]['text']}\ncall:"
    assert first["extra_info"]["prompt_ids"] == Nano.load().prompt_ids(first["prompt"])  # what rollouts see
    assert json.loads(first["reward_model"]["ground_truth"]) == CALLS
    tree = yaml.safe_load((tmp_path / "out/verl.yaml").read_text())
    actor = tree["actor_rollout_ref"]["actor"]
    assert (actor["clip_ratio_high"], actor["loss_agg_mode"], actor["kl_loss_type"]) == (
        0.28,
        "token-mean",
        "low_var_kl",
    )
    assert actor["use_kl_loss"] and tree["actor_rollout_ref"]["rollout"]["n"] == 3
    assert tree["actor_rollout_ref"]["model"]["lora_rank"] == 4 and tree["trainer"]["total_training_steps"] == 7
    # The file that verl loads, with a stand-in for verl's registry.
    text = (
        (tmp_path / "out/workbench_verl.py")
        .read_text()
        .replace("from verl.trainer.ppo.core_algos import register_adv_est", "")
    )
    registered: dict[str, Any] = {}

    def register_adv_est(name: str) -> Any:
        return lambda function: registered.setdefault(name, function)

    space: dict[str, Any] = {"register_adv_est": register_adv_est}
    exec(text, space)
    assert space["compute_score"]("workbench", SAID, first["reward_model"]["ground_truth"]) == 1.0
    assert (
        space["compute_score"]("workbench", SAID.replace("billing", "x"), first["reward_model"]["ground_truth"]) == 0.0
    )
    import torch

    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    found, returns = registered["workbench"](
        token_level_rewards=rewards, response_mask=mask, index=["a", "a", "b", "b"], config=None
    )
    half = 0.5 / (0.5**0.5 + 1e-6)  # two rewards, 1 and 0: their deviation is sqrt(1/2)
    assert (
        torch.allclose(found, torch.tensor([[half, half], [-half, 0.0], [0.0, 0.0], [0.0, 0.0]])) and returns is found
    )


@pytest.mark.parametrize(
    ("grpo", "settings", "message"),
    [
        ({"algorithm": "trpa"}, {}, "no loss for the algorithm trpa"),
        ({"algorithm": "p3o"}, {}, "no loss for the algorithm p3o"),
        ({"algorithm": "gigpo"}, {}, "no loss for the algorithm gigpo"),
        ({"rewards": [{"kind": "metric"}]}, {"metric": "f1(call, target=text)"}, "cannot be told the metric f1"),
        ({}, {"nodes": {"a": {"predict": "text -> hint"}, "b": {"predict": "hint -> call"}}}, "must be a single predict node"),
        ({}, {"lm": "openai/x"}, "the weights of openai/x are not here"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_said(tmp_path: Path, grpo: Any, settings: Any, message: str) -> None:
    needs_torch()
    pytest.importorskip("pyarrow")
    task = task_of(tmp_path, grpo, **settings)
    with pytest.raises(SpecError, match=message):
        verl(task.workflow, tmp_path / "out", task=task)
    assert not (tmp_path / "out").exists(), "nothing is left of what was refused"
