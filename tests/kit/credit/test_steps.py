"""Steps of runs with nodes inside nodes, loops of tools, and calls at the same time; and repairs of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.scripted import Script, make_workflow
from tests.kit.credit.planted import new_store, run_async

from workbench.ledger import Ledger
from workbench.lm import Request, Response
from workbench.runtime import Draw, Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.task import Example
from workbench.workflow import Workflow
from workbench_kit.credit import Repair, Repaired, TraceStep, steps_of

ROW = {"row": "r1", "n0": 0}


def run_repaired(
    workflow: Workflow, script: Script, database: Path, pick: Any, fields: Mapping[str, Any] = ROW
) -> tuple[list[TraceStep], Any]:
    """(steps, the run with the repairs that `pick` makes of them)."""

    async def main() -> tuple[list[TraceStep], Any]:
        store = new_store(database)
        ledger = Ledger(store, 1, BudgetSpec.model_validate({}))
        spec = lm_spec({"model": "openai/scripted", "attempts": 1, "temperature": 1.0})
        program = Program(workflow, runtime := Runtime(ledger, spec, {}, script))
        first = await program.run(Example("r1", fields))
        steps = steps_of(first.trace)
        assert first.failure is None, first.message
        again = await program.run(Example("r1", fields), Draw(variation=Repaired(pick(steps))))
        await runtime.aclose()
        store.close()
        return steps, again

    return run_async(main())


def test_a_repair_reaches_one_sample_of_a_vote(tmp_path: Path) -> None:
    """Of three votes two are wrong; with one of these repaired the right answer has the most."""
    votes = {"ensemble": {"predict": "row -> label"}, "samples": 3}
    script = Script(lambda request: "label: " + ("good" if request.replica < 1000 else "bad"))
    workflow = make_workflow({"choose": votes}, tmp_path)

    def second(steps: list[TraceStep]) -> dict[Any, Repair]:
        assert [s.node for s in steps] == ["choose.of"] * 3 and len({s.address for s in steps}) == 3
        assert [s.text for s in steps] == ["label: good", "label: bad", "label: bad"]
        return {steps[1].address: Repair(response=Response("label: good", "stop", 0, 0))}

    steps, again = run_repaired(workflow, script, tmp_path / "a.db", second)
    assert steps[0].top == "choose" and again.prediction["label"] == "good"
    assert len(script.requests) == 3


TOOL = '''
from pathlib import Path

def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    with Path(__file__).with_name("called.txt").open("a") as log:
        log.write(f"{a}+{b} ")
    return a + b
'''


def say(request: Request) -> str | Response:
    """Adds 1 twice, the second time wrongly; then gives the last result."""
    results = [int(str(m["content"]).rpartition(" ")[2]) for m in request.messages if m["role"] == "tool"]
    if len(results) == 2:
        return f"n2: {results[-1]}"
    given = {"a": (results or [0])[-1], "b": 1 + len(results)}
    return Response("", "tool_calls", tool_calls=({"id": "c", "name": "add", "arguments": json.dumps(given)},))


def test_each_call_of_an_agent_is_a_step_and_tools_before_a_repair_are_not_called_again(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOL)
    agent = {"agent": "row, n0 -> n2: int", "tools": ["python:tools.py:add"], "max_steps": 5, "native": True}
    workflow = make_workflow({"count": agent}, tmp_path)

    def second(steps: list[TraceStep]) -> dict[Any, Repair]:
        assert [s.address[1] for s in steps] == [1, 2, 3], steps
        right = {"id": "c", "name": "add", "arguments": '{"a": 1, "b": 1}'}
        return {steps[1].address: Repair(response=Response("", "tool_calls", 0, 0, tool_calls=(right,)))}

    _, again = run_repaired(workflow, Script(say), tmp_path / "a.db", second)
    assert again.prediction["n2"] == 2
    assert (tmp_path / "called.txt").read_text() == "0+1 1+2 1+1 "


def test_steps_are_in_the_order_of_the_nodes_whichever_call_was_faster(tmp_path: Path) -> None:
    """Two nodes that run at the same time, a node inside one, and a node without a model, whose outputs are a step."""
    nodes = {
        "left": {"predict": "row -> x"},
        "right": {"ensemble": {"predict": "row -> y"}, "samples": 2},
        "join": {"code": "x, y -> both", "source": "def run(x, y):\n    return x + y\n"},
    }
    fields = re.compile(r"(\w): ?$")

    def answer(request: Request) -> str:
        return f"{fields.findall(str(request.messages[-1]['content']))[-1]}: {request.replica}"

    workflow = make_workflow(nodes, tmp_path)
    steps, _ = run_repaired(workflow, Script(answer), tmp_path / "a.db", lambda steps: {})
    assert [s.node for s in steps] == ["left", "right.of", "right.of", "join"]
    assert [s.index for s in steps] == [0, 1, 2, 3] and steps[3].outputs == {"both": "00"}
