"""Rules on time: what was called before in the row decides, and only what may be called is offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.spec import PolicySpec


@pytest.mark.parametrize(
    ("rules", "said", "expected"),
    [
        ([{"deny": "send", "before": "check"}], ["send", "check", "send"], ["no", "yes", "yes"]),
        ([{"deny": "send", "before": "check"}], ["breaks", "send"], ["failed", "no"]),
        ([{"deny": "*", "after": "check"}], ["send", "check", "send"], ["yes", "yes", "no"]),
        ([{"allow": "send", "after": "check"}, {"deny": "send"}], ["send", "check", "send"], ["no", "yes", "yes"]),
        ([{"formula": "H(send -> Y(check))"}], ["check", "send", "send"], ["yes", "yes", "no"]),
        ([{"formula": "H(send -> (!close S check))"}], ["check", "close", "send"], ["yes", "yes", "no"]),
    ],
    ids=str,
)
def test_what_was_called_before_decides(
    rules: list[dict[str, Any]], said: list[str], expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "desk.py").write_text(
        "def send(): return 'ok'\ndef check(): return 'ok'\ndef close(): return 'ok'\n"
        "def breaks(): raise ValueError('no')\n"
    )
    names = ["send", "check", "close", "breaks"]
    rules = [{**rule, "before": "breaks"} if said[0] == "breaks" else rule for rule in rules]
    node = {
        "agent": "text -> answer",
        "tools": [f"python:desk.py:{name}" for name in names],
        "max_steps": len(said) + 1,
    }
    workflow = make_workflow({"n": node}, tmp_path)
    turns = iter([f'call: {{"tool": "{name}", "arguments": {{}}}}' for name in said] + ["answer: done"])
    policy = PolicySpec.model_validate({"rules": rules})
    (outcome,) = run_rows(
        workflow, [{"text": "x"}], Script(lambda request: next(turns)), tmp_path / "run.db", policy=policy
    )
    results = [str(told["result"]) for told in outcome.trace.spans[0].notes["tools"]]
    seen = ["yes" if r == "result: ok" else "no" if "not allowed here" in r else "failed" for r in results]
    assert seen == expected, results
    # A resumed run decides the same, from the journal.
    turns = iter(())
    (again,) = run_rows(
        workflow, [{"text": "x"}], Script(lambda request: next(turns)), tmp_path / "run.db", policy=policy
    )
    assert again.trace.spans[0].notes["tools"] == outcome.trace.spans[0].notes["tools"]


def test_another_row_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text("def send(): return 'ok'\ndef check(): return 'ok'\n")
    node = {"agent": "text -> answer", "tools": ["python:desk.py:send", "python:desk.py:check"]}
    workflow = make_workflow({"n": node}, tmp_path)
    policy = PolicySpec.model_validate({"rules": [{"deny": "send", "before": "check"}]})
    plans = {"row 0": ["check", "send"], "row 1": ["send"]}

    def say(request: Any) -> str:
        plan = next(plan for row, plan in plans.items() if row in str(request.messages))
        made = sum(message["role"] == "assistant" for message in request.messages)
        return f'call: {{"tool": "{plan[made]}", "arguments": {{}}}}' if made < len(plan) else "answer: done"

    outcomes = run_rows(workflow, [{"text": row} for row in plans], Script(say), tmp_path / "run.db", policy=policy)
    told = [[call["result"][:10] for call in outcome.trace.spans[0].notes["tools"]] for outcome in outcomes]
    assert told == [["result: ok", "result: ok"], ["error: sen"]]
