"""Space on disk is counted before the first rollout is paid for."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.grpo_runs import SMALL, calls_in, needs_torch, run
from tests.helpers.sqlite import connect

from workbench.errors import SpecError
from workbench_training.dpo import DPO
from workbench_training.grpo import GRPO
from workbench_training.objective import Critic
from workbench_training.papers.self_play.optimizer import SelfPlay
from workbench_training.sft import SFT
from workbench_training.state.checkpoints import claim_weights
from workbench_training.state.disk_space import GIB, Written, describe_space

PPO = GRPO.model_validate({"algorithm": "ppo"}).resolved_critic

#: The parameters of a model of 1.5 billion weights in float32, as training holds them.
LARGE: Any = SimpleNamespace(numel=lambda: 1_500_000_000, element_size=lambda: 4)


def policy(*, lora: bool = False) -> Any:
    small = SimpleNamespace(numel=lambda: 10_000_000, element_size=lambda: 4)
    inner = SimpleNamespace(parameters=lambda: [LARGE])
    return SimpleNamespace(lora=lora or None, trained={"w": small if lora else LARGE}, inner=inner)


@pytest.mark.parametrize(
    ("optimizer", "keeps_all", "written"),
    [
        (GRPO(), False, Written(3, 4, 3)),
        (GRPO.model_validate({"beta": 0.1, "schedule": {"on_alarm": "rollback"}}), False, Written(3, 4, 5)),
        (GRPO.model_validate({"schedule": {"steps": 20}}), False, Written(2, 2, 3)),
        (GRPO.model_validate({"schedule": {"steps": 5}}), False, Written(1, 1, 3)),
        (GRPO.model_validate({"schedule": {"keep": 0}}), False, Written(3, 10, 3)),
        (GRPO(), True, Written(3, 10, 3)),
        (SFT.model_validate({"rounds": 3}), False, Written(3, 4, 3)),
        (DPO(), False, Written(2, 2, 4)),
        (GRPO.model_validate({"algorithm": "ppo"}), False, Written(3, 4, 3, PPO)),
        (SelfPlay.model_validate({"turns": 2}), False, Written(9, 4, 3)),
    ],
)
def test_what_is_written_is_counted(optimizer: Any, keeps_all: bool, written: Written) -> None:
    assert optimizer.count_written(keeps_all=keeps_all) == written


def test_a_training_that_the_disk_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5 billion weights: three checkpoints of 16.8 GiB and four candidates of 5.6 GiB."""
    place = tmp_path / "not/yet/there"

    def free(gib: float) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=int(gib * GIB)))

    free(70)
    with pytest.raises(SpecError, match=r"72\.64 GiB on disk at the peak \(3 checkpoints of 16\.76, 4 cand") as caught:
        describe_space(Written(3, 4, 3), [policy()], place)
    assert f"and 70.00 are free at {tmp_path}" in str(caught.value) and "`lora: {}`" in (caught.value.hint or "")
    free(80)
    assert describe_space(Written(3, 4, 3), [policy()], place).startswith("training writes up to 72.64 GiB")
    with pytest.raises(SpecError, match="11.18 on their way to the server"):
        describe_space(Written(3, 4, 3), [policy()], place, sent=True)
    with pytest.raises(SpecError, match="145.29 GiB"):
        describe_space(Written(3, 4, 3), [policy(), policy()], place)
    assert "up to 22.84 GiB" in describe_space(Written(3, 4, 3), [policy(lora=True)], place)
    free(1000)
    assert describe_space(Written(3, 4, 3), [policy()], place) == "", "little of what is free"


def test_what_a_killed_training_wrote_is_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    record, candidate, other = (tmp_path / name for name in ("run-1-grpo-a", "0123456789abcdef", "fedcba9876543210"))
    for folder in (record / "step-1", candidate, other):
        folder.mkdir(parents=True)
        with (folder / "model.safetensors").open("wb") as file:
            file.truncate(6_000_000_000)
    with pytest.raises(SpecError, match="11.18 GiB on disk .* and 5.59 are free"):
        describe_space(Written(0, 2), [policy()], record)
    claim_weights(candidate, f"{record.name}-proposer-1")
    claim_weights(candidate, record.name)
    claim_weights(other, "run-2-grpo-b")
    assert "up to 11.18 GiB" in describe_space(Written(0, 2), [policy()], record)


@pytest.mark.parametrize(("kind", "copies"), [("token", 3), ("turn", 4)])
def test_a_critic_is_in_each_checkpoint(
    kind: str, copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a ValueLearner writes, to the weight: with a model of its own, and with heads on the policy's."""
    needs_torch()
    from tests.helpers.tiny_lm import save

    from workbench_training.critic.value_model import ValueModel
    from workbench_training.model.memory_count import count_critic_checkpoint
    from workbench_training.model.policy import Policy
    from workbench_training.objective import critic_kinds

    save(tmp_path / "model", 0, positions=64)
    trained = Policy(str(tmp_path / "model"), device="cpu")
    for model in (None, str(tmp_path / "model")):
        critic = Critic.model_validate({"of": kind, "model": model})
        made = ValueModel(trained, critic_kinds()[kind].heads, critic.widths, model)
        wanted = copies * sum(4 * p.numel() for p in made.trained.values())
        assert count_critic_checkpoint(critic, trained.inner.config) == wanted
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
        with pytest.raises(SpecError, match=f"1 checkpoints of {wanted / GIB:.2f}"):
            describe_space(Written(1, 0, 0, critic), [trained], tmp_path / "run")


def test_no_rollout_is_paid_for_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_torch()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    with pytest.raises(SpecError, match="training writes more than the disk has"):
        run(tmp_path, optimizers=[{"grpo": SMALL}], rows=(8, 4, 4))
    assert calls_in(tmp_path) == 0
    with connect(tmp_path / "run.db") as db:
        assert db.execute("select count(*) from calls").fetchone()[0] == 4, "the baseline is kept"
