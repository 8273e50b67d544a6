"""`tree` and `tree_search` wait once for all draws of a state. What they find does not depend on who answers first."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_rows
from tests.helpers.webs import lured, make

from workbench.errors import BudgetSpent, LMError
from workbench.lm import Request, Response
from workbench.store import Store

LETTERS = (
    "def add(plan: str, letter: str) -> str:\n    return plan + letter\n"
    "def price(share: float) -> float:\n    return 1 - share\n"
)
ASTAR = {
    "kind": "tree",
    "nodes": {
        "letter": {"predict": "plan -> letter: Literal['a', 'b', 'c', '.']", "decoding": {"temperature": 1.0}},
        "plan": {"tool": "python:letters.py:add", "output": "plan"},
    },
    "carry": {"plan": "-"},
    "judge": {"tool": "python:letters.py:price", "output": "cost"},
    "order": "astar",
    "cost": "cost",
    "share": "share",
    "until": "letter == '.'",
    "branching": 6,
    "evaluations": 90,
}
TREE = {
    "tree_search": "web",
    "task": {"pages": "pages", "start": "start", "goal": "goal"},
    "show": ["question"],
    "samples": 4,
    "branching": 2,
    "max_steps": 3,
    "depth": 3,
    "evaluations": 6,
}


def planner(request: Request) -> str:
    """One of three letters, so that draws differ; the plan ends after two."""
    plan = str(request.messages[-1]["content"]).partition("plan: ")[2].split("\n")[0]
    return "." if len(plan) > 2 else "abc"[request.replica // 1000 % 3]


def walker(request: Request) -> str:
    text = str(request.messages[-1]["content"])
    return ("on track", "off track")[request.replica % 2] if text.endswith("judgement:") else lured(request)


class Slow(Script):
    """Answers late, the later draws first if `backwards`; counts how often it stood idle before a request."""

    def __init__(self, say: Any, *, size: int = 8, backwards: bool = False):
        super().__init__(say)
        self.concurrency, self.backwards = size, backwards
        self.flying = self.waits = 0

    async def complete(self, request: Request) -> Response:
        self.waits += not self.flying
        self.flying += 1
        late = 9 - request.replica % 10 if self.backwards else request.replica % 10
        await asyncio.sleep(0.002 + 0.0005 * late)
        self.flying -= 1
        return await super().complete(request)


CASES = {"tree": (ASTAR, planner, {"question": "x"}), "tree_search": (TREE, walker, make(0))}
#: Of the keys in the journal; those of tree_search as it wrote them at commit 80e7844, one draw after the other.
KEYS = {"tree": "931dff03ca1044a7", "tree_search": "34e0157864cef9bd"}


def run(name: str, folder: Path, **how: Any) -> tuple[Any, Slow, str]:
    """The outcome, the model, and a digest of the journal's keys."""
    node, say, row = CASES[name]
    (folder / "letters.py").write_text(LETTERS)
    script, database = Slow(say, **how), folder / f"{len(list(folder.glob('*.db')))}.db"
    (outcome,) = run_rows(make_workflow({"n": node}, folder), [row], script, database)
    store = Store(database)
    keys = sorted(r["key"] for r in store.rows("select key from calls where kind = 'lm'"))
    store.close()
    return outcome, script, hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", CASES)
def test_all_draws_of_a_state_are_waited_for_once(name: str, tmp_path: Path) -> None:
    _, alone, _ = run(name, tmp_path, size=1)
    _, script, _ = run(name, tmp_path)
    asked = {json.dumps([dict(m) for m in r.messages]) for r in script.requests}
    assert len(script.requests) == alone.waits, "one at a time each is a wait of its own"
    assert script.waits == len(asked) <= len(script.requests) / 3, "one wait for each prompt"


@pytest.mark.parametrize("name", CASES)
def test_results_and_keys_do_not_depend_on_who_answers_first(name: str, tmp_path: Path) -> None:
    found = [run(name, tmp_path, **how) for how in ({"size": 1}, {}, {"backwards": True}, {"size": 3})]
    first = found[0][0]
    assert first.failure is None, first.message
    for outcome, _, keys in found:
        assert (outcome.prediction, outcome.failure) == (first.prediction, None)
        assert outcome.trace.spans[0].notes == first.trace.spans[0].notes
        assert [c.response.text for c in outcome.trace.calls] == [c.response.text for c in first.trace.calls]
        assert keys == KEYS[name]


@pytest.mark.parametrize("name", CASES)
def test_a_failed_draw_fails_the_example_when_all_have_ended(name: str, tmp_path: Path) -> None:
    node, say, row = CASES[name]

    def broken(request: Request) -> str:
        number = request.replica // 1000 % 10 if name == "tree" else request.replica % 10  # a run of the body has 1000
        if number in (1, 2):
            raise LMError(("server", "bad_request")[number - 1], f"planted {number}")
        return say(request)

    (tmp_path / "letters.py").write_text(LETTERS)
    for backwards in (False, True):
        script = Slow(broken, backwards=backwards)
        (outcome,) = run_rows(make_workflow({"n": node}, tmp_path), [row], script, tmp_path / f"{backwards}.db")
        assert (outcome.failure, script.flying) == ("server", 0) and "planted 1" in (outcome.message or "")


@pytest.mark.parametrize("name", CASES)
def test_the_end_of_the_budget_is_told_before_a_failed_draw(name: str, tmp_path: Path) -> None:
    """Else the example would count as failed, and what the rest of the run sees would hang on the draws' order."""
    node, _, row = CASES[name]

    def broken(request: Request) -> str:
        raise LMError("bad_request", "planted")

    (tmp_path / "letters.py").write_text(LETTERS)
    with pytest.raises(BudgetSpent):
        run_rows(make_workflow({"n": node}, tmp_path), [row], Slow(broken), tmp_path / "run.db", calls=3)
