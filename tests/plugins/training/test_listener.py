"""Listener-aware pairs (LACIE): what a listener hears, which pairs follow, and what is learned from them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import WORKFLOWS, learned_rows, needs_torch, run
from tests.helpers.sqlite import connect

from workbench.errors import SpecError
from workbench.lm import Response
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace
from workbench_training.dpo import DPO
from workbench_training.papers.lacie import Heard, Listener, hide_answer, listen, pair_heard, pair_preferred
from workbench_training.rewards import Rollout
from workbench_training.rollouts.token_rows import RolloutRows, Row

SURE, UNSURE = "I am sure that it is Rome.", "Maybe it is Rome?"


def answered(text: str, reward: float | None = 1.0, answer: str = "Rome", replica: int = 0) -> Rollout:
    example = Example("r", {"q": "where"})
    call = CallRecord((), Response(text), "task", "openai/x", False, 0.0)
    trace = Trace("r", [Span("n", "predict", {}, calls=[call])])
    result = Result(example, reward, prediction={"answer": answer}, trace=trace)
    return Rollout(example, result, replica, reward=reward)


def settings(**more: Any) -> Listener:
    return Listener.model_validate({"field": "answer", **more})


@pytest.mark.parametrize(
    ("text", "answer", "heard"),
    [
        (SURE, "Rome", "I am sure that it is [hidden]."),
        ("rome, ROME!", "Rome", "[hidden], [hidden]!"),
        ("answer: Rome.", "Rome", ""),  # nothing but the answer
        ("Surely.\nanswer: Rome", "Rome", "Surely.\nanswer: [hidden]"),
        (SURE, "", ""),
    ],
)
def test_the_listener_hears_the_wording_without_the_answer(text: str, answer: str, heard: str) -> None:
    assert hide_answer(answered(text, answer=answer), "answer") == heard


def ask_about(heard: list[str], sure: float = 1.0) -> Any:
    """A listener that accepts what sounds sure, in this share of its draws, and nothing else."""

    async def ask(messages: Any, *, replica: int, **other: Any) -> Response:
        text = str(messages[-1]["content"])
        heard.append(text)
        return Response("Yes." if "sure" in text and replica < 8 * sure else "no")

    return ask


def test_listening_counts_yes_among_the_draws() -> None:
    said: list[str] = []
    found = asyncio.run(
        listen(
            [answered(SURE), answered(UNSURE, 0.0), answered("Rome"), answered(SURE, None)],
            settings(),
            ask_about(said, 0.75),
        )
    )
    assert [None if h is None else (h.right, h.chance) for h in found] == [(True, 0.75), (False, 0.0), None, None]
    assert len(said) == 16 and not any("Rome" in text for text in said)

    async def mumbles(*args: Any, **more: Any) -> Response:
        return Response("hm")

    assert asyncio.run(listen([answered(SURE)], settings(), mumbles)) == [None]


def heard(right: bool, chance: float) -> Heard:
    return Heard(answered(SURE, float(right)), right, chance)


#: Right or wrong, accepted or not; the worth is 1, -0.5, -1 and 1.
TRUE_ACCEPT, FALSE_REJECT, FALSE_ACCEPT, TRUE_REJECT = (
    heard(True, 0.9),
    heard(True, 0.2),
    heard(False, 0.8),
    heard(False, 0.15),
)


@pytest.mark.parametrize(
    ("a", "b", "preferred"),
    [
        (TRUE_ACCEPT, FALSE_REJECT, 0),
        (FALSE_ACCEPT, TRUE_REJECT, 1),  # both wrong: the one that is not believed
        (FALSE_REJECT, TRUE_REJECT, None),  # closer than the margin
        (FALSE_REJECT, FALSE_ACCEPT, 0),  # to mislead is worse than to be doubted
        (TRUE_ACCEPT, TRUE_REJECT, None),  # equally good
        (TRUE_ACCEPT, heard(False, 0.7), 0),
    ],
)
def test_pairs_by_hand(a: Heard, b: Heard, preferred: int | None) -> None:
    others = [[heard(True, 0.5)], [heard(True, 0.5)]]  # so that the median is between the two
    found = pair_heard([[a, b], *others])
    assert found == [[] if preferred is None else [(a, b) if preferred == 0 else (b, a)], [], []]


def test_the_median_of_the_round_is_the_threshold_and_pairs_are_bounded() -> None:
    """A listener that says yes to almost all: 0.8 is then a rejection."""
    keen = [heard(True, 1.0), heard(True, 0.8)]
    assert pair_heard([keen, [heard(True, 0.5)], [heard(True, 0.5)]])[0] == []
    assert pair_heard([keen]) == [[(keen[0], keen[1])]]
    many = [heard(True, 0.9)] * 3 + [heard(True, 0.1)] * 3
    assert [len(group) for group in pair_heard([many, [None]])] == [3, 0]


def run_of(*rows: tuple[tuple[int, ...], tuple[int, ...]]) -> RolloutRows:
    """A rollout from (prompt, answer) of each row."""
    made = [Row(prompt, ids, (1,) * len(ids), (-1.0,) * len(ids), 1.0, "t", agent="n") for prompt, ids in rows]
    return RolloutRows(tuple(made), 1.0)


def test_a_pair_is_a_group_of_its_own_and_holds_all_that_both_runs_said() -> None:
    better = run_of(((5, 6), (7,)), ((5, 7, 6), (8,)))
    made = pair_preferred(better, run_of(((5, 6), (10,))), "t pair 0")
    assert [(r.token_ids, r.task, r.rollout, r.reward) for r in made] == [
        ((7,), "t pair 0", 0, 1.0),
        ((8,), "t pair 0", 0, 1.0),
        ((10,), "t pair 0", 1, 0.0),
    ]
    assert pair_preferred(better, run_of(((4,), (10,))), "t pair 0") == [], "answers to two questions are no pair"


@pytest.mark.parametrize("listens", [True, False], ids=["listener", "control"])
def test_wording_comes_to_tell_right_from_wrong(listens: bool, tmp_path: Path) -> None:
    """Planted: to one prompt the model is right, to another wrong, and sounds sure or unsure of either. With a listener
    it learns to sound sure where it is right and unsure where it is wrong; by rewards alone (the control) the two
    answers to a prompt are equal, and so teach no wording."""
    needs_torch()
    import torch
    from tests.helpers.tiny_lm import make_tokenizer, save

    from workbench_training.learner import Learner
    from workbench_training.model.policy import Policy
    from workbench_training.rollouts.token_rows import collate
    from workbench_training.settings import Learning

    tokenizer = make_tokenizer()
    prompts = {
        right: tuple(tokenizer(f"<u>{text}<end><a>")["input_ids"]) for right, text in ((True, "ab"), (False, "cd"))
    }
    words = {
        sure: tuple(tokenizer(f"{text}<end>")["input_ids"]) for sure, text in ((True, "sure x"), (False, "maybe x"))
    }

    def row_of(right: bool, sure: bool) -> Row:
        ids = words[sure]
        return Row(prompts[right], ids, (1,) * len(ids), (0.0,) * len(ids), float(right), str(right), agent="n")

    dpo = DPO.model_validate({"listener": {"field": "x"}})
    if listens:
        groups = [[Heard(answered(SURE, float(r)), r, 0.9 if s else 0.1) for s in (True, False)] for r in (True, False)]
        rows = []
        for right, group, pairs in zip((True, False), groups, pair_heard(groups), strict=True):
            for n, (a, b) in enumerate(pairs):
                better, worse = (RolloutRows((row_of(right, side is group[0]),), float(right)) for side in (a, b))
                rows += pair_preferred(better, worse, f"{right} {n}")
    else:
        drawn = [
            [RolloutRows((row_of(right, sure),), float(right)) for sure in (True, False)] for right in (True, False)
        ]
        rows = [row for some in drawn for chosen in dpo.choose(some) for row in chosen.rows]
    policy = Policy(str(save(tmp_path / "base", 0)), device="cpu", seed=0)
    learner = Learner(policy, dpo.objective(), Learning.model_validate({"rate": 3e-3}))

    def surer(right: bool) -> float:
        """How much likelier it is to sound sure, than not, in nats."""
        with torch.no_grad():
            batch = collate([row_of(right, True), row_of(right, False)])
            a, b = (policy.log_probabilities(batch)[0] * batch.mask).sum(-1).tolist()
        return a - b

    before = surer(True), surer(False)
    for _ in range(20 if rows else 0):
        learner.step(rows, [1.0] * len(rows), 0)
    if listens:
        assert len(rows) == 4 and surer(True) > before[0] + 2 and surer(False) < before[1] - 2
    else:
        assert rows == [] and (surer(True), surer(False)) == before


def test_the_file_pairs_by_what_the_listener_says(tmp_path: Path) -> None:
    """From YAML to the learner's pairs, and the calls of the listener are counted."""
    needs_torch()
    from tests.helpers.tiny_lm import save_taught

    listener = save_taught(tmp_path / "listener", ["yes", "no"], longest=40)
    dpo = {"tasks": 4, "rollouts": 4, "epochs": 1, "listener": {"field": "answer", "samples": 4}}
    common: dict[str, Any] = {
        "roles": {"judge": f"hf:{listener}"},
        "nodes": {"solve": {"predict": "question -> steps, answer", "decoding": {"max_tokens": 40}}},
        "metric": "numeric(answer)",
        "data": {"file": str(WORKFLOWS / "data/sums.jsonl"), "split": {"train": 6, "val": 4, "test": 4}},
    }
    with pytest.MonkeyPatch.context() as patch:
        seen = learned_rows(patch)
        run(tmp_path / "a", optimizers=[{"dpo": dpo}], **common)
    assert seen and len(seen) % 2 == 0 and all(" pair " in r.task for r in seen)
    names = {r.task for r in seen}
    assert all(sorted(r.reward or 0.0 for r in seen if r.task == name) == [0.0, 1.0] for name in names)
    with connect(tmp_path / "a/run.db") as db:
        (calls,) = db.execute("select count(*) from calls where role = 'judge'").fetchone()
    assert 0 < calls <= 4 * 4 * 4
    with pytest.raises(SpecError, match="needs a model that listens"):
        run(tmp_path / "b", optimizers=[{"dpo": dpo}], **{**common, "roles": {}})
    wrong = {**dpo, "listener": {"field": "answr"}}
    with pytest.raises(SpecError, match="no node writes 'answr'"):
        run(tmp_path / "c", optimizers=[{"dpo": wrong}], **common)


def test_what_cannot_go_together_is_refused() -> None:
    with pytest.raises(ValueError, match="compares single calls"):
        DPO.model_validate({"listener": {"field": "a"}, "tree": {}})
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        DPO.model_validate({"listener": {"field": "a", "samples": 1}})
    assert DPO.model_validate({"listener": {"field": "a", "samples": 3}}).calls_beside == 3
