"""Trees of rollouts: calls that are shared, what answers are worth, and pairs in the middle of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.helpers.grpo_runs import candidates, needs_torch, run
from tests.helpers.scripted import Say, Script, make_workflow
from tests.helpers.sqlite import connect

from workbench.base.concurrency import run_in_loop
from workbench.ledger import Ledger
from workbench.lm import Request
from workbench.runtime import Draw, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.study import Evaluator
from workbench.task import Example
from workbench_training.dpo import DPO
from workbench_training.rollouts.rollout_trees import RolloutTree, average_answers
from workbench_training.rollouts.token_rows import RolloutRows, Row, hash_prompt
from workbench_training.sft import SFT


def tree_of(branches: int, depth: int, margin: float = 0.3) -> RolloutTree:
    return RolloutTree(branches=branches, depth=depth, margin=margin)


def test_runs_with_the_same_first_branches_share_their_draws() -> None:
    tree = tree_of(3, 2)
    assert tree.leaves == 9
    assert [tree.draws(leaf) for leaf in (0, 2, 3, 8)] == [[0, 0], [0, 2], [1, 3], [2, 8]]
    assert tree.calls([1, 1]) == 3 + 9 and tree.calls([1, 1, 1]) == 3 + 9 + 9
    assert tree.calls([2, 1]) == 3 + 9 + 9  # the second call of the first node stands beside that of the second node
    with pytest.raises(ValidationError, match="5 branches at depth 4 are 625 runs of each row, more than 256"):
        tree_of(5, 4)


def answer(request: Request) -> str:
    """An answer that tells which draw it is."""
    return f"answer: {len(request.messages)}.{request.replica // 1000}"


def leaves(folder: Path, nodes: dict[str, Any], tree: RolloutTree, say: Say = answer) -> tuple[list[list[str]], Script]:
    """What each leaf's run was answered, call by call, and the requests that were sent."""
    script = Script(say)

    async def schedule() -> list[list[str]]:
        store = Store(folder / "run.db")
        store.execute("insert into runs (run, status, started, spec, options) values ('r', '', '', '', '')")
        spec = lm_spec({"model": "openai/scripted", "temperature": 1.0, "attempts": 1})
        runtime = Runtime(Ledger(store, 1, BudgetSpec.model_validate({})), spec, {}, script)
        evaluator = Evaluator(runtime, lambda example, prediction, trace: 1.0, 8)
        workflow, rows, found = make_workflow(nodes, folder), [Example("r", {"q": "?"})], []
        for leaf in range(tree.leaves):
            evaluation = await evaluator.evaluate(workflow, rows, draw=Draw(leaf, tuple(tree.draws(leaf))), traces=True)
            trace = evaluation.results[0].trace
            assert trace is not None and evaluation.results[0].failure is None, evaluation.results[0].message
            found.append([call.response.text for call in trace.calls])
        await runtime.aclose()
        store.close()
        return found

    return run_in_loop(schedule()), script


def test_shared_calls_are_made_once(tmp_path: Path) -> None:
    nodes = {"think": {"predict": "q -> thought"}, "solve": {"predict": "q, thought -> answer"}}
    found, script = leaves(tmp_path, nodes, tree_of(3, 2))
    assert len(script.requests) == 3 + 9
    firsts = [first for first, _ in found]
    assert firsts == [f for f in firsts[::3] for _ in range(3)] and len(set(firsts)) == 3
    assert len({tuple(path) for path in found}) == 9


def test_places_are_those_of_running_not_of_the_file(tmp_path: Path) -> None:
    nodes = {"solve": {"predict": "q, thought -> answer"}, "think": {"predict": "q -> thought"}}
    found, script = leaves(tmp_path, nodes, tree_of(3, 2))
    assert len(script.requests) == 3 + 9 and len({tuple(path) for path in found}) == 9


def test_turns_of_an_agent_are_places_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def half(n: int) -> int:\n    'Half of n.'\n    return n // 2\n")
    nodes = {"solve": {"agent": "q -> answer", "tools": ["python:tools.half"]}}

    def say(request: Request) -> str:
        first = request.messages[-1]["role"] == "user" and "?" in request.messages[-1]["content"]
        return 'call: {"tool": "half", "arguments": {"n": 8}}' if first else answer(request)

    found, script = leaves(tmp_path, nodes, tree_of(2, 2), say)
    assert [len(path) for path in found] == [2] * 4 and len({second for _, second in found}) == 4
    assert sorted(Counter(len(r.messages) for r in script.requests).values()) == [2, 4]


def row(agent: str, prompt: str, answer: str, reward: float | None, leaf: int = 0) -> Row:
    prompt_ids, ids = tuple(map(ord, prompt)), tuple(map(ord, answer))
    return Row(
        prompt_ids, ids, (1,) * len(ids), (-0.5,) * len(ids), reward, "t", leaf, agent, anchor=hash_prompt(prompt_ids)
    )


#: MALT's case: the first answer decides, the second is good or bad only after a good first one.
LEAVES = [("a", "x", 1.0), ("a", "y", 0.0), ("b", "x", 0.0), ("b", "y", 0.0)]
RUNS = [
    RolloutRows((row("gen", "q", first, reward, leaf), row("ver", f"q{first}", second, reward, leaf)), reward)
    for leaf, (first, second, reward) in enumerate(LEAVES)
]


def told(rollouts: list[RolloutRows]) -> list[tuple[str, str, float | None]]:
    rows = [r for rollout in rollouts for r in rollout.rows]
    return [("".join(map(chr, r.prompt_ids)), "".join(map(chr, r.token_ids)), r.reward) for r in rows]


def test_an_answer_is_worth_what_the_runs_through_it_earned() -> None:
    found = average_answers(RUNS)
    assert sorted(told(found)) == [
        ("q", "a", 0.5),
        ("q", "b", 0.0),
        ("qa", "x", 1.0),
        ("qa", "y", 0.0),
        ("qb", "x", 0.0),
        ("qb", "y", 0.0),
    ]
    assert len({r.rows[0].task for r in found}) == 3, "each state is compared by itself"
    unscored = [
        RolloutRows((row("gen", "q", answer, reward),), reward) for answer, reward in (("a", None), ("b", float("nan")))
    ]
    assert average_answers(unscored) == []


def test_an_answer_is_right_as_often_as_the_runs_through_it() -> None:
    """A penalty moves the reward of an answer, and not the score by which `sft` takes it."""
    dear = [RolloutRows(run.rows, None if run.reward is None else run.reward - 0.4, run.reward) for run in RUNS]
    found = average_answers(dear)
    good = SFT.model_validate({"tree": tree_of(2, 2), "threshold": 1.0}).choose(found)
    assert [(r.score, round(r.reward or 0.0, 2)) for r in good] == [(1.0, 0.6)]


def test_pairs_are_of_one_state_and_far_enough_apart() -> None:
    found = average_answers(RUNS)
    assert told(DPO.model_validate({"tree": tree_of(2, 2)}).choose(found)) == [
        ("q", "a", 0.5),
        ("q", "b", 0.0),
        ("qa", "x", 1.0),
        ("qa", "y", 0.0),
    ]
    assert told(DPO.model_validate({"tree": tree_of(2, 2, 0.6)}).choose(found)) == [("qa", "x", 1.0), ("qa", "y", 0.0)]
    equal = [run.relabel(reward=1.0) for run in RUNS]
    assert DPO.model_validate({"tree": tree_of(2, 2, 0.0)}).choose(average_answers(equal)) == []
    good = SFT.model_validate({"tree": tree_of(2, 2), "threshold": 0.5}).choose(found)
    assert told(good) == [("q", "a", 0.5), ("qa", "x", 1.0)]


@pytest.mark.parametrize("wrong", [{"source": "labels"}, {"source": "teacher"}, {"errors": "mask"}, {"splice": True}])
def test_what_does_not_go_with_a_tree_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"`tree` .* not with `{next(iter(wrong))}`"):
        SFT.model_validate({"tree": {}, **wrong})
    with pytest.raises(ValidationError, match="either `rollouts` or `tree`, which takes 27 runs"):
        DPO.model_validate({"tree": {}, "rollouts": 4})


def test_a_tree_of_a_workflow_is_drawn_and_learned_from(tmp_path: Path) -> None:
    """Two nodes, two branches each: six calls a row, all of them by the policy, and pairs to learn from."""
    needs_torch()
    heard: list[Any] = []
    topics = "Literal['billing', 'technical', 'shipping', 'returns', 'account']"
    nodes = {"guess": {"predict": f"text -> first: {topics}"}, "sort": {"predict": f"text, first -> label: {topics}"}}
    dpo = {"tasks": 8, "epochs": 1, "tree": {"branches": 2, "depth": 2}, "learning": {"rate": 5e-4}, "race": False}
    run(tmp_path, heard=heard, nodes=nodes, optimizers=[{"dpo": dpo}], rows=(8, 8, 8))
    with connect(tmp_path / "run.db") as db:
        drawn = db.execute("select count(*) from calls where lm like 'policy:%'").fetchone()[0]
    assert drawn == 8 * (2 + 4)
    assert next(figures["rows"] for message, figures in heard if message.startswith("round")) >= 2
    assert len(candidates(tmp_path)) == 2
