"""Published designs whose agents write code: right as they are, and wrong without their mechanism.

As in test_gallery_rows, the numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_code import orders, table_of
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_speech import call
from tests.helpers.gallery_tried import Tried, searched, tried
from tests.helpers.scripted import Script, run_rows


def test_11_codeact_calls_a_tool_for_five_keys_in_one_step_of_two(tmp_path: Path) -> None:
    whole = tried("codeact", tmp_path)
    assert whole.right == [True, True] and len(whole.script.requests) == 4
    (row, _), *_ = CASES["codeact.yaml"].rows
    fruits = row["question"].partition(": ")[2].rstrip("?").split(", ")
    called = [made["arguments"].get("fruit") for made in whole.notes("solve")[0]["tools"]]
    assert called == [*fruits, None], "each once, then the code itself"

    calls = [call("price", fruit=fruit) for fruit in fruits]
    alone = whole.workflow.patched({"nodes.solve.tools": ["python:tools.py:price"]})
    for steps, failure in ((2, "steps"), (6, None)):
        said = iter([*calls, "answer: 27"])
        script = Script(lambda request, said=said: next(said))
        (run,) = run_rows(alone.patched({"nodes.solve.max_steps": steps}), [row], script, tmp_path / f"{steps}.db")
        assert run.failure == failure


@pytest.mark.slow
def test_16_cave_agent_narrows_ten_thousand_rows_that_stand_in_no_prompt(tmp_path: Path) -> None:
    few, many = orders(500), orders(10_000)
    whole = tried("cave_agent", tmp_path, rows=few + many)
    assert whole.right == [True, True]
    chosen, table = whole.outcomes[1].prediction["chosen"], table_of(10_000, many[0][0]["seed"])
    assert len(chosen) > 60 and all(row in table for row in chosen), "the answer is the object, whole"
    assert max(map(characters, whole.script.requests)) < 2_000
    assert tried("cave_agent", tmp_path, {"nodes.narrow.given": []}, few).right == [False]
    assert tried("cave_agent", tmp_path, {"nodes.narrow.kept": []}, few).right == [False]


@pytest.mark.slow
def test_26_poact_offers_each_phase_its_tools_and_keeps_variables_over_phases(tmp_path: Path) -> None:
    whole = tried("poact", tmp_path)
    assert whole.right == [True, True] and [notes["rounds"] for notes in whole.notes("work")] == [4, 4]
    reserve, pay = (f"nodes.work.nodes.step.cases.{name}.tools" for name in ("reserve", "pay"))
    tools = ["sandbox:session#booking", *(f"python:tools.py:{name}" for name in ("quote", "reserve", "pay"))]
    trapped = tried("poact", tmp_path, {reserve: tools, pay: tools})
    assert trapped.right == [False, False], "it pays before anything is reserved"
    assert coding(whole) < coding(trapped)
    assert tried("poact", tmp_path, {pay: ["sandbox:session", "python:tools.py:pay"]}).right == [False, False]
    fixed = {"nodes.work.nodes.control.instructions": "Go on.", "nodes.work.nodes.usual.source": GOES_ON}
    assert tried("poact", tmp_path, fixed).right == [False, False], "nothing switches the policy"


GOES_ON = "def usual(course): return 'plan'"


def characters(request: Any) -> int:
    return sum(len(str(message["content"])) for message in request.messages)


def coding(one: Tried) -> float:
    """Characters of the system prompts of steps that write code, in the mean."""
    told = [str(request.messages[0]["content"]) for request in one.script.requests]
    sizes = [len(text) for text in told if "```python" in text]
    return sum(sizes) / len(sizes)


@pytest.mark.slow
def test_188_automl_agent_builds_only_what_three_verifications_leave(tmp_path: Path) -> None:
    whole = tried("automl_agent", tmp_path)
    assert whole.right == [True] * 3
    assert [notes["rounds"] for notes in whole.notes("build")] == [2, 2, 1], "the mean is right for the third alone"
    assert [notes["rounds"] for notes in whole.notes("request")] == [2, 2, 2]
    assert tried("automl_agent", tmp_path, {"nodes.request.rounds": 1}).right == [False] * 3
    asked_nothing = {"nodes.left.source": "def left(plans, works): return plans"}
    assert tried("automl_agent", tmp_path, asked_nothing).right == [False] * 3
    blind = {"nodes.judge.nodes.verify.signature": "columns, plan, model -> works: bool"}
    assert tried("automl_agent", tmp_path, blind).right == [False] * 3, "no specialist says what a plan needs"
    verify = {
        "kind": "code",
        "code": "value, constant, slope -> verified: bool, answer: float",
        "source": "def verify(value, constant, slope): return {'verified': True, 'answer': constant + slope * value}",
    }
    unverified = {"nodes.build.nodes.verify": verify}
    assert tried("automl_agent", tmp_path, unverified).right == [False, False, True]


#: A setting of each file that its search changes, and a value with which it is wrong.
POOR: dict[str, tuple[str, Any]] = {
    "codeact": ("nodes.solve.max_steps", 1),
    "cave_agent": ("nodes.narrow.max_steps", 2),
    "poact": ("nodes.work.rounds", 2),
    "automl_agent": ("nodes.build.rounds", 1),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "codeact" else pytest.mark.slow) for n in POOR])
def test_the_search_of_each_file_finds_what_makes_it_right(name: str, tmp_path: Path) -> None:
    address, poor = POOR[name]
    report = searched(name, address, poor, tmp_path)
    assert report.baseline["val"] < 1.0 == report.best["val"] and report.winner.get(address) != poor
