"""What is taken to a server or a cluster: `workbench export --format vllm` and `--format verl`."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.grpo_runs import needs_torch, write

from workbench.errors import SpecError
from workbench.run import prepare
from workbench_training.export import exporters as export
from workbench_training.export.exporters import verl, vllm

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


def loaded(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The file that verl loads, and what it registers, with a stand-in for verl's registry."""
    text = (folder / "workbench_verl.py").read_text()
    text = text.replace("from verl.trainer.ppo.core_algos import register_adv_est", "")
    registered: dict[str, Any] = {}

    def register_adv_est(name: str) -> Any:
        return lambda function: registered.setdefault(name, function)

    space: dict[str, Any] = {"register_adv_est": register_adv_est}
    exec(text, space)
    return space, registered


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


def test_rows_settings_and_reward_of_verl(tmp_path: Path) -> None:
    needs_torch()
    parquet = pytest.importorskip("pyarrow.parquet")
    from workbench_nano.model import Nano

    schedule = {"steps": 7, "tasks": 4, "rollouts": 3, "dynamic_sampling": 0}
    task = task_of(tmp_path, {"algorithm": "dapo", "schedule": schedule, "lora": {"rank": 4}, "beta": 0.01})
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
    space, registered = loaded(tmp_path / "out")
    told: dict[str, Any] = {"ground_truth": first["reward_model"]["ground_truth"], "extra_info": first["extra_info"]}
    assert space["compute_score"]("workbench", SAID, **told) == 1.0
    assert space["compute_score"]("workbench", SAID.replace("billing", "x"), **told) == 0.0
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


def test_each_part_of_a_reward_is_compared_with_its_own_field(tmp_path: Path) -> None:
    needs_torch()
    parquet = pytest.importorskip("pyarrow.parquet")
    parts = [{"kind": "tool_n1", "target": "calls"}, {"kind": "exact_match", "target": "text", "weight": 0.5}]
    task = task_of(tmp_path, {"rewards": parts})
    verl(task.workflow, tmp_path / "out", task=task)
    row = parquet.read_table(tmp_path / "out/train.parquet").to_pylist()[0]
    assert json.loads(row["reward_model"]["ground_truth"]) == CALLS
    told: dict[str, Any] = {"ground_truth": row["reward_model"]["ground_truth"], "extra_info": row["extra_info"]}
    score = loaded(tmp_path / "out")[0]["compute_score"]
    assert score("workbench", SAID, **told) == 1.0
    assert score("workbench", task.dataset.train[0]["text"], **told) == 0.5
    assert score("workbench", json.dumps(CALLS), **told) == 0.0


def test_answers_are_as_long_as_the_node_allows(tmp_path: Path) -> None:
    needs_torch()
    pytest.importorskip("pyarrow")
    parts = {"rewards": [{"kind": "exact_match", "target": "text"}]}
    for name, settings, tokens in (("a", {}, 512), ("b", {"decoding": {"max_tokens": 16}}, 16)):
        task = task_of(tmp_path / name, parts, nodes={"route": {"predict": "text -> call", **settings}})
        verl(task.workflow, tmp_path / name / "out", task=task)
        tree = yaml.safe_load((tmp_path / name / "out/verl.yaml").read_text())
        assert tree["data"]["max_response_length"] == loaded(tmp_path / name / "out")[0]["LONGEST"] == tokens


def test_guards_are_part_of_what_a_cluster_computes(tmp_path: Path) -> None:
    """Empty and repetitive answers in the score, cut ones in the advantages, where their length is known."""
    needs_torch()
    pytest.importorskip("pyarrow")
    import torch

    parts = [
        {"kind": "tool_n1", "target": "calls", "weight": -1.0}
    ]  # so that no answer may earn more than a guarded one
    truths = {"ground_truth": "", "extra_info": {"truths": {"calls": json.dumps(CALLS)}}}
    again = f"{SAID} {'one two three four ' * 9}"
    rewards = torch.zeros(6, 8)
    rewards[:, 0] = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, -1.0])
    mask = torch.ones(6, 8)
    mask[[0, 1, 3, 4], 7:] = 0.0  # the third and the last take all eight tokens
    given: dict[str, Any] = {"token_level_rewards": rewards, "response_mask": mask, "index": [*"aaabbb"]}
    zeroed, advantages = (
        {"zero": [1, 0, 0, 1, 0, -1], "keep": [1, 0, 1, 1, 0, -1], "mask": [1, 0, None, 1, 0, None]},
        {},
    )
    names = {"zero": ["truncated"], "keep": [], "mask": ["mask_truncated"]}
    for truncated, earned in zeroed.items():
        folder = tmp_path / truncated
        guards = [*names[truncated], "repeated"]
        task = task_of(
            folder,
            {"rewards": parts, "guards": guards},
            lm={"model": "bundled/nano", "max_tokens": 8},
        )
        verl(task.workflow, folder / "out", task=task)
        space, registered = loaded(folder / "out")
        assert space["compute_score"]("workbench", SAID, **truths) == -1.0
        assert space["compute_score"]("workbench", again, **truths) == -1.0  # a guard lifts no penalty
        space["REWARDS"][0]["weight"] = 1.0
        assert space["compute_score"]("workbench", SAID, **truths) == 1.0
        assert space["compute_score"]("workbench", again, **truths) == 0.0
        found = advantages[truncated] = registered["workbench"](**given)[0][:, 0].tolist()
        for group in (range(3), range(3, 6)):
            some = [value for i in group if (value := earned[i]) is not None]
            mean, spread = statistics.mean(some), statistics.stdev(some) + 1e-6
            wanted = [0.0 if (value := earned[i]) is None else (value - mean) / spread for i in group]
            assert [found[i] for i in group] == pytest.approx(wanted), truncated
    assert advantages["zero"] != advantages["keep"] != advantages["mask"]


@pytest.mark.parametrize("algorithm", ["grpo", "dapo", "cispo"])
def test_exported_clips_mean_in_verl_what_they_mean_here(algorithm: str) -> None:
    """verl's plain and cispo losses at b178a3c, written out: the same values and gradients with the exported bounds,
    for ratios far outside of all of them."""
    needs_torch()
    import torch

    from workbench_training.export.exporters import verl_settings
    from workbench_training.grpo import GRPO
    from workbench_training.loss import policy_loss

    settings = GRPO.model_validate({"algorithm": algorithm, "schedule": {"dynamic_sampling": 0}})
    made = settings.resolve_objective()
    actor = verl_settings(settings, made, "w", Path("."), 64, 64, "x")["actor_rollout_ref"]["actor"]
    ratio = torch.tensor([[0.01, 0.5, 0.9, 1.0, 1.1, 1.4, 2.5, 4.0, 8.0, 50.0]]).repeat(2, 1)
    old, advantage, mask = torch.full((2, 10), -1.0), torch.tensor([1.0, -0.5]), torch.ones(2, 10)

    def theirs(logp: torch.Tensor) -> torch.Tensor:
        r, a = torch.exp(logp - old), advantage[:, None]
        clipped = r.clamp(1 - actor["clip_ratio_low"], 1 + actor["clip_ratio_high"])
        if actor["policy_loss"]["loss_mode"] == "cispo":
            return (-clipped.detach() * a * logp).mean()
        plain = torch.maximum(-a * r, -a * clipped)
        return torch.where(a < 0, torch.min(-a * actor.get("clip_ratio_c", 3.0), plain), plain).mean()

    found = []
    for loss in (theirs, lambda logp: policy_loss(logp, advantage, mask, made, old=old)[0]):
        logp = (old + ratio.log()).requires_grad_()
        value = loss(logp)
        value.backward()
        found.append((value.detach(), logp.grad))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-5) and torch.allclose(found[0][1], found[1][1], atol=1e-5)
    assert found[0][1].abs().max() > 1e-3


@pytest.mark.parametrize(
    ("grpo", "settings", "message"),
    [
        ({"algorithm": "dapo"}, {}, "no place for dynamic_sampling"),  # the algorithm's own
        ({"schedule": {"dynamic_sampling": 2}}, {}, "no place for dynamic_sampling"),
        ({"schedule": {"on_alarm": "rollback"}}, {}, "no place for `on_alarm: rollback`"),
        ({"guards": ["duplicates"]}, {}, "has no place for the guard against duplicates"),
        (
            {"rewards": [{"kind": "metric"}]},
            {"metric": "exact_match(call, target=calls)"},
            "lists several right values",
        ),
        (
            {"rewards": [{"kind": "metric"}]},
            {
                "metric": "exact_match(call, target=text)",
                "nodes": {"route": {"predict": "text -> call", "reasoning": True}},
            },
            "verl the whole answer, in which more stands",
        ),
        ({"algorithm": "trpa"}, {}, "no loss for the algorithm trpa"),
        ({"algorithm": "gigpo"}, {}, "no loss for the algorithm gigpo"),
        ({"algorithm": "ppo"}, {}, "no loss for the algorithm ppo"),
        ({"rewards": [{"kind": "metric"}]}, {"metric": "f1(call, target=text)"}, "has no place for the metric f1"),
        (
            {},
            {"nodes": {"a": {"predict": "text -> hint"}, "b": {"predict": "hint -> call"}}},
            "must be a single predict node",
        ),
        ({}, {"lm": "openai/x"}, "the weights of openai/x are not here"),
    ],
)
def test_what_cannot_be_exported_is_said(tmp_path: Path, grpo: Any, settings: Any, message: str) -> None:
    needs_torch()
    pytest.importorskip("pyarrow")
    task = task_of(tmp_path, grpo, **settings)
    with pytest.raises(SpecError, match=message):
        verl(task.workflow, tmp_path / "out", task=task)
    assert not (tmp_path / "out").exists(), "nothing is left of what was refused"


@pytest.mark.parametrize(("package", "extra"), [("transformers", "grpo"), ("pyarrow", "parquet")])
def test_friction_33_an_export_without_its_extra_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    if package == "pyarrow":
        pytest.importorskip("transformers")
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(export, "_TOKENIZERS", {})
    task = task_of(tmp_path)
    with pytest.raises(SpecError, match=f"needs {package}.*{extra}"):
        verl(task.workflow, tmp_path / "out", task=task)
