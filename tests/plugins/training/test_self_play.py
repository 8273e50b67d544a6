"""Self-play: what proposals earn, which of them are learned, a proposer that learns to write them, and whole runs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.helpers.forking import start_python
from tests.helpers.grpo_runs import assert_equal_candidates, kill_after, needs_torch, run
from tests.helpers.sqlite import connect

from workbench import SpecError
from workbench.task import Example
from workbench.workflow import CallRecord, ExampleRun, Span, Trace
from workbench_training.papers.self_play import proposals
from workbench_training.papers.self_play.optimizer import SelfPlay
from workbench_training.papers.self_play.proposals import Proposal, choose_rows, name_task, reward_proposals
from workbench_training.papers.self_play.settings import Proposer

pytestmark = pytest.mark.filterwarnings("ignore")


def proposer(**settings: Any) -> Proposer:
    return Proposer.model_validate(settings)


@pytest.fixture
def free_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposals that are alike earn as much as others."""
    monkeypatch.setattr(proposals, "REPETITION", 0.0)


@pytest.fixture
def tiny_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch.setattr)


def make_tiny(put: Callable[[Any, str, Any], None]) -> None:
    """Short proposals, of which those are learned that can be read: a random model agrees with itself on none."""
    from workbench_training.papers.self_play import turns

    for module in (proposals, turns):
        put(module, "BAND", (0.0, 1.0))
    put(turns, "EXAMPLES", 1)
    put(turns, "MAX_TOKENS", 8)


def proposal(text: str, answers: str, tools: tuple[int, ...] = ()) -> Proposal:
    return Proposal({"text": text}, [a if a != "-" else None for a in answers], [*tools])


@pytest.mark.parametrize(
    ("answers", "agreement", "earned"),
    [
        ("aaaa", 1.0, 0.0),
        ("aabb", 0.5, 1.0),
        ("aaab", 0.75, 0.5),
        ("abcd", 0.25, 0.5),
        ("a---", 0.25, 0.5),
        ("----", 0.0, 0.0),
    ],
)
@pytest.mark.usefixtures("free_repeats")
def test_a_proposal_earns_most_where_half_of_the_answers_agree(answers: str, agreement: float, earned: float) -> None:
    found = proposal("one two three", answers)
    assert found.agreement == agreement
    assert reward_proposals([found], frozenset(), proposer()) == [pytest.approx(earned)]


@pytest.mark.usefixtures("free_repeats")
def test_tools_add_to_what_a_proposal_earns_up_to_a_bound() -> None:
    found = [
        proposal("a b c", "aabb", (0, 0, 0, 0)),
        proposal("d e f", "aabb", (2, 2, 2, 2)),
        proposal("g h i", "aabb", (9, 4, 4, 4)),
    ]
    assert reward_proposals(found, frozenset(), proposer(tools=0.5)) == [1.0, 1.25, 1.5]


def test_proposals_that_are_alike_share_a_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the red fox runs home", "the red fox runs away", "a blue car stands still", ""]
    found = [proposal(text, "ab") for text in texts[:3]] + [Proposal({})]
    assert reward_proposals(found, frozenset(), proposer()) == [0.5, 0.5, 0.75, 0.0]
    monkeypatch.setattr(proposals, "REPETITION", 0.0)
    assert reward_proposals(found, frozenset(), proposer()) == [1.0, 1.0, 1.0, 0.0]
    monkeypatch.setattr(proposals, "REPETITION", 9.0)
    assert reward_proposals(found, frozenset(), proposer()) == [0.0, 0.0, 0.0, 0.0], "never below 0"


@pytest.mark.usefixtures("free_repeats")
def test_a_row_that_is_known_earns_nothing() -> None:
    known, copy = frozenset({name_task({"text": " One  two\n"})}), proposal("one two", "ab")
    assert reward_proposals([copy], known, proposer()) == [0.0]
    assert choose_rows([copy], known) == []
    assert name_task({"n": 5}) == name_task({"n": "5"}) != name_task({"n": "6"})


def test_the_solver_learns_new_proposals_within_the_band_with_the_most_frequent_answer() -> None:
    found = [proposal("sure", "aaaaa"), proposal("fair", "bBb -"), proposal("fair", "abbb-"), proposal("lost", "abcde")]
    chosen = choose_rows([*found, Proposal({})], frozenset())
    assert [(row.fields["text"], row.label) for row in chosen] == [("fair", "b")]


def test_equal_answers_in_other_words_agree() -> None:
    assert Proposal({"q": "x"}, ["Two  cats", "two cats", ["two cats"]]).agreement == pytest.approx(2 / 3)
    assert Proposal({"q": "x"}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}]).agreement == 1.0


class ScriptedSolver:
    """A simulated solver: to a task of these letters it says one thing or another in equal parts, to all others always
    the same."""

    def __init__(self, hard: str):
        self.hard, self.asked = hard, Counter[str]()

    async def __call__(self, task: Example, replica: int) -> ExampleRun:
        self.asked[task["text"]] += 1
        said = "ab"[replica % 2] if task["text"] in self.hard else "a"
        return ExampleRun({"label": said}, Trace(task.id))


def train_proposer(folder: Path, seed: int, hard: str, **settings: Any) -> list[float]:
    """A tiny model writes tasks of one letter. Returns what its proposals earned in each step."""
    from tests.helpers.tiny_lm import save

    from workbench.lm import Request
    from workbench_training.learner import Learner
    from workbench_training.model.policy import Policy
    from workbench_training.papers.self_play.proposal_source import ProposalSource
    from workbench_training.presets import make_objective
    from workbench_training.serving.policy_lm import LocalEngine
    from workbench_training.settings import Learning, TrainingSchedule
    from workbench_training.trainer import Trainer

    base = folder / f"base{seed}"
    save(base, seed) if not base.exists() else None
    policy = Policy(str(base), device="cpu", seed=seed)
    engine = LocalEngine(policy.generator)

    async def write(prompt: Example, replica: int, step: int) -> ExampleRun:
        request = Request(({"role": "user", "content": "x"},), 1.0, 1, replica=replica + 1000 * seed)
        response = await engine.complete(request)
        call = CallRecord(request.messages, response, "task", "m", False, 0.0)
        return ExampleRun({"text": response.text}, Trace(prompt.id, [Span("n", "N", {}, calls=[call])]))

    p = proposer(samples=4, **settings)
    source = ProposalSource(write, ScriptedSolver(hard), p, fields=["text"], output="label")
    learner = Learner(policy, make_objective("grpo"), Learning.model_validate({"rate": 3e-3}))
    schedule = TrainingSchedule.model_validate({"steps": 50, "tasks": 1, "rollouts": 32, "save_every": 1000})
    trainer = Trainer(
        learner,
        source,
        [Example("p", {})],
        schedule,
        folder / f"c{seed}",
        weights=folder / "w",
        seed=seed,
        at=engine.at,
    )

    async def both() -> list[float]:
        try:
            await trainer.train()
        finally:
            await engine.aclose()
        return [figures["reward"] for figures in trainer.history]

    found = asyncio.run(both())
    assert not (folder / "w").exists(), "a proposer is no candidate"
    assert source.agreements
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("free_repeats")
def test_a_proposer_learns_to_write_what_the_solver_is_unsure_of(tmp_path: Path, seed: int) -> None:
    """Two of fifty letters are hard. A random proposer earns 0.04; where nothing is hard (the control), all earn 0."""
    needs_torch()
    earned = train_proposer(tmp_path, seed, "km")
    assert sum(earned[:3]) / 3 < 0.2 and sum(earned[-5:]) / 5 > 0.8, earned
    if seed == 0:
        assert max(train_proposer(tmp_path / "control", seed, "")) == 0.0


DATA = Path(__file__).parents[3] / "workflows" / "data" / "tickets.jsonl"
TINY = {
    "steps": 2,
    "tasks": 2,
    "rollouts": 4,
    "samples": 4,
    "pool": 10,
}
COURSE = {"steps": 2, "tasks": 2, "rollouts": 4, "evaluate_every": 2, "save_every": 1, "keep": 0}
NODES = {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 60}}}


def settings(**more: Any) -> dict[str, Any]:
    return {
        "turns": 2,
        "schedule": {**COURSE},
        "device": "cpu",
        "learning": {"rate": 1e-3},
        "guards": ["repeated"],
        "rewards": [{"kind": "length", "tokens": 60}],
        "own_rows": False,
        "proposer": {**TINY, **more.pop("proposer", {})},
        **more,
    }


def base(folder: Path) -> str:
    from tests.helpers.tiny_lm import save

    return f"hf:{save(folder / 'base', 0, positions=1024) if not (folder / 'base').exists() else folder / 'base'}"


@pytest.mark.usefixtures("tiny_proposals")
def test_both_are_trained_and_the_solver_learns_written_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_torch()
    from workbench_training.trainer import Trainer

    trained: list[tuple[str, list[Example], bool]] = []
    real = Trainer.train

    async def watched(self: Trainer) -> None:
        before = self.learners[""].policy.digest()
        await real(self)
        changed = self.learners[""].policy.digest() != before
        trained.append(("-".join(self.folder.name.rsplit("-", 2)[1:]), list(self.tasks), changed))

    monkeypatch.setattr(Trainer, "train", watched)
    heard: list[Any] = []
    report = run(
        tmp_path,
        lm=base(tmp_path),
        nodes=NODES,
        optimizers=[{"self_play": settings()}],
        rows=(8, 3, 3),
        heard=heard,
        budget={"calls": 4000},
    )
    assert report.status == "finished"
    assert [name for name, _, _ in trained] == ["proposer-1", "solver-1", "proposer-2", "solver-2"]
    train = {row["text"] for row in (json.loads(line) for line in DATA.read_text().splitlines())}
    for _, rows, _ in trained[1::2]:
        assert rows and all(set(row) == {"text", "label"} and row["text"] not in train for row in rows)
    assert any(changed for _, _, changed in trained[::2]) and any(changed for _, _, changed in trained[1::2])
    told = [message for message, _ in heard]
    assert any(m.startswith("turn 1: of 10 proposals") for m in told)
    versions = models(tmp_path)
    assert {"0", "1", "2", "3"} <= {v for k, v in versions if not k.endswith("proposer")}, "steps count on over turns"


def models(folder: Path) -> set[tuple[str, str]]:
    """(policy, version) of all calls."""
    with connect(folder / "run.db") as db:
        found = {row[0] for row in db.execute("select distinct lm from calls") if str(row[0]).startswith("policy:")}
    return {tuple(name.removeprefix("policy:").rsplit("@", 1)) for name in found}  # type: ignore[misc]


@pytest.mark.long
@pytest.mark.usefixtures("tiny_proposals")
def test_killed_in_either_half_and_resumed_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    needs_torch()
    optimizers = [{"self_play": settings()}]
    more: dict[str, Any] = {"nodes": NODES, "optimizers": optimizers, "rows": (8, 3, 3), "budget": {"calls": 4000}}
    lm = base(tmp_path)
    whole = run(tmp_path / "whole", lm=lm, **more)
    assert whole.status == "finished"
    code = (
        "import sys; sys.path.insert(0, {root!r}); import torch; torch.set_num_threads(1)\n"
        "from pathlib import Path; from tests.helpers.grpo_runs import run\n"
        "from tests.plugins.training.test_self_play import make_tiny; make_tiny(setattr)\n"
        "run(Path({folder!r}), again={again}, lm={lm!r}, **{more!r})"
    )
    killed, again = tmp_path / "killed", False
    total = whole.as_dict()["spent"]["calls"]
    for calls in (total // 5, total // 2, total * 3 // 4):
        text = code.format(root=str(Path(__file__).parents[3]), folder=str(killed), again=again, lm=lm, more=more)
        kill_after(calls, start_python(text), killed, seconds=100)
        again = True
    report = run(killed, again=True)
    assert_equal_candidates(killed, tmp_path / "whole")
    assert report.as_dict()["spent"]["calls"] == total


def test_what_cannot_be_played_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="remove `stages`"):
        SelfPlay.model_validate({"stages": [{"start": 0}]})
    with pytest.raises(ValidationError, match="the proposer has 15 in all its turns"):
        SelfPlay.model_validate({"algorithm": "archer"})
    with pytest.raises(ValidationError, match="and there are 20"):
        SelfPlay.model_validate(
            {"algorithm": "archer", "turns": 2, "schedule": {"steps": 10}, "proposer": {"steps": 0}}
        )
    with pytest.raises(ValidationError, match="remove `sleep`"):
        SelfPlay.model_validate({"server": {"sleep": True}, "lora": {}})
    with pytest.raises(SpecError, match="rows that the proposer writes have no field 'gold'"):
        gold = {"self_play": {"device": "cpu", "rewards": [{"kind": "exact_match", "target": "gold"}]}}
        rows = [{"text": str(i), "label": "a", "gold": "b"} for i in range(14)]
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        data = {"file": str(tmp_path / "rows.jsonl")}
        run(tmp_path, nodes=NODES, optimizers=[gold], rows=(8, 3, 3), data=data, budget={"calls": 9000})
    with pytest.raises(SpecError, match="takes votes on one output, and the workflow has 2"):
        two = {"sort": {"predict": "text -> label, why"}}
        run(tmp_path, nodes=two, optimizers=[{"self_play": {"device": "cpu"}}], rows=(8, 3, 3), budget={"calls": 9000})


@pytest.mark.usefixtures("tiny_proposals")
def test_a_run_never_needs_more_calls_than_it_announces(tmp_path: Path) -> None:
    """Each call of the tiny run is one of those that `max_calls` counts."""
    needs_torch()
    made = SelfPlay.model_validate(settings())
    report = run(tmp_path, lm=base(tmp_path), nodes=NODES, optimizers=[{"self_play": settings()}], rows=(8, 3, 3))
    from workbench.spec import load_spec
    from workbench.task import load_task

    task = load_task(*load_spec(tmp_path / "workflow.yaml"), tmp_path)
    most = made.max_calls(task.workflow, task.dataset.train, task.dataset.val)
    baseline_and_proof = 3 + 2 * 3
    assert 0 < report.as_dict()["spent"]["calls"] <= most + baseline_and_proof
