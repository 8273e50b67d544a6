"""The optimizer `grpo` in whole runs: a gain that is proved, budgets, kills, chains, and what cannot be trained."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tests.helpers.grpo_runs import SMALL, candidates, learned_rows, needs_torch, run, unused_study, write
from tests.helpers.sqlite import connect

import workbench
from workbench.errors import SpecError
from workbench.run import find_obstacles, prepare
from workbench_training.grpo import GRPO
from workbench_training.presets import PRESETS

# Settings


def test_settings_are_checked_without_torch() -> None:
    code = "import sys; import workbench_training.grpo as o; o.GRPO(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_algorithm_makes_an_objective_and_wrong_ones_are_refused() -> None:
    for name in PRESETS:
        made = GRPO(algorithm=name)
        assert made.resolve_objective().model_dump() and made.resolve_schedule().steps == 100
    assert GRPO(algorithm="dapo").resolve_schedule().dynamic_sampling == 3
    assert (
        GRPO.model_validate({"algorithm": "dapo", "schedule": {"dynamic_sampling": 0}})
        .resolve_schedule()
        .dynamic_sampling
        == 0
    )
    with pytest.raises(ValidationError, match="Did you mean 'dapo'"):
        GRPO(algorithm="dappo")
    for wrong, place in [({"clip_low": 0.1}, "clip_low"), ({"beta": -1}, "beta")]:
        with pytest.raises(ValidationError) as caught:
            GRPO.model_validate(wrong)
        assert caught.value.errors()[0]["loc"] == (place,)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"rewards": [{}, {"kind": "exact_match", "target": "lable"}]}, ("rewards", 1, "target")),
        (
            {"stages": [{"start": 2, "rewards": [{"kind": "tool_n1", "target": "lable"}]}]},
            ("stages", 0, "rewards", 0, "target"),
        ),
        (
            {"policies": {"a": {"address": "lm", "rewards": [{"kind": "exact_match", "target": "lable"}]}}},
            ("policies", "a", "rewards", 0, "target"),
        ),
    ],
)
def test_a_field_that_a_reward_compares_with_and_a_row_lacks_is_found_before_the_first_call(
    tmp_path: Path, settings: Any, place: tuple[Any, ...]
) -> None:
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": settings}]))
    error = find_obstacles(task, optimizers)[0]
    assert isinstance(error, SpecError) and error.path == ("optimize", 0, "grpo", *place)
    assert "'lable', which 16 of the 16 rows of train lack" in error.message and error.hint == "Did you mean 'label'?"
    assert (
        task.dataset.train[0].handle in error.message and "it has: " + ", ".join(task.dataset.train[0]) in error.message
    )


def test_a_label_that_is_no_list_of_calls_is_found_before_the_first_call(tmp_path: Path) -> None:
    settings = {"rewards": [{"kind": "tool_n1", "target": "label"}]}
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": settings}]))
    error = find_obstacles(task, optimizers)[0]
    assert isinstance(error, SpecError) and error.path == ("optimize", 0, "grpo", "rewards", 0, "target")
    assert task.dataset.train[0].handle in error.message and '"arguments"' in (error.hint or "")


def test_a_judge_needs_no_field_and_labels_no_reward(tmp_path: Path) -> None:
    needs_torch()
    for optimizer in (
        {"grpo": {"rewards": [{"kind": "judge", "target": "none"}]}},
        {"sft": {"source": "labels", "rewards": [{"kind": "exact_match", "target": "none"}]}},
    ):
        _, _, task, optimizers = prepare(write(tmp_path, optimizers=[optimizer]))
        assert not find_obstacles(task, optimizers)


def test_a_training_is_named_by_what_changes_it() -> None:
    """The name is that of checkpoints and of the policy in the journal: a new default must not change it."""
    plain = GRPO().identify()
    assert plain["beta"] is None and "fsdp" not in str(plain)
    assert plain["guards"] == ["empty", "truncated", "repeated"]
    assert GRPO.model_validate({"guards": ["empty", "duplicates"]}).identify() != plain
    assert GRPO.model_validate({"learning": {"fsdp": True}}).identify() == plain
    assert GRPO.model_validate({"beta": 0.1}).identify() == {**plain, "beta": 0.1}


def test_a_model_without_weights_here_is_left_alone_and_that_is_said(tmp_path: Path) -> None:
    heard: list[Any] = []
    report = run(tmp_path, heard=heard, lm="bundled/nano", optimizers=[{"grpo": {"address": "nodes.sor.lm"}}])
    assert report.status == "finished" and "nothing to train: there is no LM at 'nodes.sor.lm'" in heard[0][0]


# Runs


def test_friction_54_a_trained_winner_is_moved_with_its_weights(tmp_path: Path) -> None:
    needs_torch()
    home = tmp_path / "home"
    settings = {"schedule": {"steps": 8, "tasks": 8, "rollouts": 8, "evaluate_every": 4}, "learning": {"rate": 1e-3}}
    report = run(home, rows=(60, 40, 40), optimizers=[{"grpo": settings}], budget={"calls": 1500}, keep_unproved=True)
    place = yaml.safe_load((home / "out.yaml").read_text())["lm"]["extra"]["path"]
    assert report.spent["calls"] and place.startswith("./run-weights/"), place
    with workbench.load(home / "out.yaml") as wf:
        before = wf(text="my invoice is wrong").label
    home.rename(tmp_path / "moved")
    with workbench.load(tmp_path / "moved" / "out.yaml") as wf:
        assert wf(text="my invoice is wrong").label == before
        assert wf.spec.lm.extra["path"] == str((tmp_path / "moved" / place).resolve())


def test_a_trained_model_is_proved_on_sealed_rows(tmp_path: Path) -> None:
    """The quickstart's task: 15 points more at least, p < 0.01 (the target of the project), within a budget."""
    needs_torch()
    begun, heard = time.monotonic(), list[Any]()
    settings = {"schedule": {"steps": 24, "tasks": 8, "rollouts": 8, "evaluate_every": 12}, "learning": {"rate": 1e-3}}
    report = run(tmp_path, heard=heard, rows=(60, 60, 150), optimizers=[{"grpo": settings}], budget={"calls": 2500})
    gain = report.as_dict()["gain"]
    assert gain["shown"] and gain["diff"] >= 0.15 and gain["p"] < 0.01, gain
    (changed,) = [line for line in report.summary() if line.startswith("  lm.extra.path: ")]
    folder = os.path.relpath(report.winner.tree["lm"]["extra"]["path"])
    words = rf"trained the weights of bundled/nano \(2\.0 million\) for \d+ steps, in {re.escape(folder)}"
    assert re.fullmatch(words, changed.partition(": ")[2])
    assert report.spent["calls"] <= 2500 and time.monotonic() - begun < 280
    steps = [figures for message, figures in heard if message.startswith("step ")]
    assert len(steps) == 24 and all(
        f["off_policy_gap"] < 1e-3 for f in steps if "off_policy_gap" in f
    )  # drawing and training agree
    # The result file is whole: it scores what the report says, without torch.
    scored = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules['torch'] = None\nfrom workbench.cli import main; main()",
            "eval",
            str(tmp_path / "out.yaml"),
            "--split",
            "val",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
    )
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["score"] == pytest.approx(report.as_dict()["best"]["val"])


def test_a_reward_that_says_nothing_changes_nothing(tmp_path: Path) -> None:
    """The negative control: all rollouts earn the same, so no weight moves and no gain is claimed."""
    needs_torch()
    nothing = {**SMALL, "rewards": [{"kind": "metric", "weight": 0.0}]}
    report = run(tmp_path, optimizers=[{"grpo": nothing}])
    names = {name for name, _ in candidates(tmp_path) if name}
    assert len(names) == 1  # the weights as they were, under one name
    assert not report.gain_shown


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    needs_torch()
    for name in ("a", "b"):
        run(tmp_path / name)
    assert candidates(tmp_path / "a") == candidates(tmp_path / "b") and len(candidates(tmp_path / "a")) == 3


@pytest.mark.parametrize("calls", [1, 20, 60, 90, 130, 200])
def test_no_budget_is_passed_and_what_was_trained_within_it_is_offered(tmp_path: Path, calls: int) -> None:
    needs_torch()
    heard: list[Any] = []
    report = run(tmp_path, heard=heard, budget={"calls": calls}, rows=(16, 12, 8))
    assert report.status in ("finished", "budget") and report.spent["calls"] <= calls
    steps = sum(message.startswith("step ") for message, _ in heard)
    # 12 for the baseline, 8 (16 if the budget allows) for the proof, 16 for a step, 12 for a candidate.
    assert steps >= {1: 0, 20: 0, 60: 0, 90: 1, 130: 2, 200: 4}[calls]
    assert (len(candidates(tmp_path)) > 1) == (steps > 0)


@pytest.mark.parametrize("budget", [{"tokens": 6000}, {"minutes": 0.05}])
def test_tokens_and_minutes_end_training_as_well(tmp_path: Path, budget: dict[str, Any]) -> None:
    needs_torch()
    long = {**SMALL, "schedule": {**SMALL["schedule"], "steps": 500}}
    begun = time.monotonic()
    report = run(tmp_path, optimizers=[{"grpo": long}], budget={"calls": 100_000, **budget}, rows=(16, 8, 8))
    assert report.status in ("finished", "budget") and time.monotonic() - begun < 100
    if "tokens" in budget:
        assert report.spent["prompt_tokens"] + report.spent["completion_tokens"] <= 6000
        assert len(candidates(tmp_path)) > 1


def test_it_follows_and_precedes_other_optimizers(tmp_path: Path) -> None:
    needs_torch()
    chain = [{"bootstrap": {"trials": 2, "self_generated": False}}, {"grpo": SMALL}, {"random": {"trials": 2}}]
    search = {"nodes.sort.instructions": ["Sort the support ticket by topic.", "Sort the request by its main problem."]}
    report = run(tmp_path, optimizers=chain, budget={"calls": 2000}, search=search)
    assert report.status == "finished"
    with connect(tmp_path / "run.db") as db:
        by = [name for (name,) in db.execute("select distinct optimizer from candidates order by seq")]
    assert by == ["baseline", "bootstrap", "grpo", "random"]


def test_rates_of_stages_reach_the_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_torch()
    from workbench_training.learner import Learner

    rates: list[Any] = []
    real = Learner.step

    def watched(self: Learner, rows: Any, values: Any, version: int, rate: Any = None, **more: Any) -> dict[str, float]:
        rates.append((version, rate))
        return real(self, rows, values, version, rate, **more)

    monkeypatch.setattr(Learner, "step", watched)
    stages = [{"start": 1, "rate": 5e-4}, {"start": 3, "rewards": [{"kind": "metric"}]}]
    report = run(tmp_path, optimizers=[{"grpo": {**SMALL, "stages": stages}}])
    assert report.status == "finished" and dict(rates).items() <= {0: None, 1: 5e-4, 2: 5e-4, 3: None}.items()
    assert {1, 2} & dict(rates).keys(), "steps of the first stage learned something"


def test_turns_of_an_agent_become_rows_of_exactly_the_tokens_that_were_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random model rarely answers in the form asked for, so the agent asks again: conversations of several turns,
    and a second node whose rows are its own."""
    needs_torch()
    from tests.helpers.tiny_lm import save

    seen = learned_rows(monkeypatch)
    nodes = {
        "think": {"predict": "text -> hint", "decoding": {"max_tokens": 6, "temperature": 0.0}, "optional": True},
        "solve": {
            "agent": "text -> label: Literal['billing', 'technical']",
            "max_steps": 3,
            "max_tokens": 60,
            "temperature": 0.0,
        },
    }
    base = save(tmp_path / "base", 0, positions=2048)
    settings = {
        **SMALL,
        "schedule": {**SMALL["schedule"], "steps": 2, "tasks": 2},
        "guards": ["empty", "repeated"],
        "rewards": [{"kind": "length", "tokens": 8}],
        "algorithm": "dr_mas",
        "device": "cpu",
    }
    report = run(tmp_path, lm=f"hf:{base}", nodes=nodes, optimizers=[{"grpo": settings}], rows=(8, 4, 4))
    assert report.status == "finished" and {r.agent for r in seen} == {"think", "solve"}
    long = [r for r in seen if 0 in r.mask]
    assert long, "no conversation of several turns went on from its own tokens"
    for r in long:  # after an answer's end token comes the agent's message, masked, and then the next answer
        first = r.mask.index(0)
        cut = first == 60 and r.token_ids[first] == 1  # at max_tokens: the template ends that turn
        assert (r.token_ids[first - 1] == 1 or cut) and r.agent == "solve" and r.mask[-1] == 1
        assert all(logprob == 0.0 for logprob, m in zip(r.logprobs, r.mask, strict=True) if not m)


def test_gigpo_compares_steps_after_the_same_observation_whatever_was_said_before() -> None:
    """Two rollouts come to one observation by different ways; only where credit is given by steps are they one
    state."""
    from types import SimpleNamespace

    from workbench.lm import Response
    from workbench.study import Result
    from workbench.task import Example
    from workbench.workflow import CallRecord, Span, Trace
    from workbench_training.rewards import GUARDS, Rollout
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    task, roles = Example("t", {"text": "go"}), {"": SimpleNamespace(key="k", rewards=None)}

    def rollout(replica: int, way: str) -> Rollout:
        calls, messages = [], [{"role": "user", "content": "go"}]
        for turn, (said, shown) in enumerate([(way, "a door"), ("open", "a room")]):
            response = Response(
                said, prompt_ids=(1,) * (turn + 1) + (ord(way[0]),) * turn, token_ids=(5,), logprobs=(-1.0,)
            )
            calls.append(CallRecord(tuple(messages), response, "task", "policy:k@0", False, 0.0))
            messages = [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": shown}]
        return Rollout(task, Result(task, 0.0, trace=Trace("t", [Span("n", "N", {}, calls=calls)])), replica, 1.0)

    made: dict[bool, list[Any]] = {}
    for observed in (False, True):
        source = StudyRolloutSource(unused_study(), roles, [], GUARDS, merge=False)  # type: ignore[arg-type]
        source.observed = observed
        made[observed] = [row for k, way in enumerate(["left", "right"]) for row in source.rows(rollout(k, way), 0)]
    for observed, rows in made.items():
        (first, second), (other, third) = rows[:2], rows[2:]
        assert first.anchor == other.anchor and first.anchor != second.anchor and second.prompt_ids != third.prompt_ids
        assert (second.anchor == third.anchor) == observed
    assert GRPO(algorithm="gigpo").resolve_objective().step_weight > 0 == GRPO().resolve_objective().step_weight


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_imitation_learns_from_its_own_successes(tmp_path: Path, name: str) -> None:
    """Rollouts of train, the good ones learned from: the same weights for the same seed, and more right on train."""
    needs_torch()
    from workbench.study import Evaluation, Study

    heard: list[Any] = []
    settings = {"tasks": 16, "rollouts": 4, "epochs": 2, "rounds": 2, "learning": {"rate": 5e-4}, "race": False}
    before: list[Evaluation] = []
    real = Study.evaluate

    async def watched(self: Study, workflow: Any, examples: Any = None, **more: Any) -> Evaluation:
        found = await real(self, workflow, examples, **more)
        if examples is not None:
            before.append(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "evaluate", watched)
        run(tmp_path / "a", heard=heard, optimizers=[{name: settings}])
    scores = [e.score for e in before]
    assert len(scores) == 8 and sum(scores[4:]) / 4 > sum(scores[:4]) / 4 + 0.05  # the second round draws better
    assert [figures["rows"] > 0 for message, figures in heard if message.startswith("round")] == [True, True]
    run(tmp_path / "b", optimizers=[{name: settings}])
    assert candidates(tmp_path / "a") == candidates(tmp_path / "b") and len(candidates(tmp_path / "a")) == 5
