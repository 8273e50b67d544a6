"""After a repair the world may be another: a tool that reads what an earlier one wrote is asked again. And: a sibling
with other nodes, a model that is down, and the same order of steps when a run is repeated."""

from __future__ import annotations

import re
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
from workbench_attribute.repairs import label_repairs, sibling_repairs
from workbench_kit.credit import Repair, Repaired, steps_of

TOOLS = """
from pathlib import Path

def put(row: str, v: str) -> str:
    Path(__file__).with_name("kept.txt").write_text(v)
    return "done"

def get(row: str, done: str) -> str:
    return Path(__file__).with_name("kept.txt").read_text()
"""


async def run(workflow: Workflow, script: Script, store: Any, number: int, draws: list[Any], **more: Any) -> list[Any]:
    ledger = Ledger(store, number, BudgetSpec.model_validate({}), **more)
    spec = lm_spec({"model": "openai/scripted", "attempts": 1, "temperature": 1.0})
    program = Program(workflow, runtime := Runtime(ledger, spec, {}, script))
    found: list[Any] = []
    for pick in draws:
        found.append(await program.run(Example("r1", {"row": "r1"}), Draw(variation=Repaired(pick(found)))))
    await runtime.aclose()
    return found


def test_a_tool_that_reads_what_an_earlier_one_wrote_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    nodes = {
        "say": {"predict": "row -> v"},
        "put": {"tool": "python:tools.py:put", "output": "done"},
        "get": {"tool": "python:tools.py:get", "output": "kept"},
    }

    async def main() -> None:
        store = new_store(tmp_path / "a.db")

        def repaired(found: list[Any]) -> dict[Any, Repair]:
            step = steps_of(found[0].trace)[0]
            return {step.address: Repair(response=Response("v: good", "stop", 0, 0))}

        script = Script(lambda request: "v: bad")
        first, again, plain = await run(
            make_workflow(nodes, tmp_path), script, store, 1, [lambda found: {}, repaired, lambda found: {}]
        )
        assert first.prediction["kept"] == "bad" and again.prediction["kept"] == "good"
        assert plain.prediction["kept"] == "bad"  # as it was recorded
        store.close()

    run_async(main())


def test_a_sibling_with_another_node_repairs_the_node_of_the_same_name(tmp_path: Path) -> None:
    field = re.compile(r"(\w): ?$")

    def say(good: bool) -> Any:
        def answer(request: Request) -> str:
            return f"{field.findall(str(request.messages[-1]['content']))[-1]}: {'good' if good else 'bad'}"

        return answer

    base = {"a": {"predict": "row -> x"}, "b": {"predict": "row, x -> y"}}
    more = {"c": {"predict": "row -> z"}, **base}

    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        failed = await run(make_workflow(base, tmp_path), Script(say(False)), store, 1, [lambda found: {}])
        store.execute("insert into runs (id, run, status, started, spec, options) values (2, 's', '', '', '', '')")
        passed = await run(make_workflow(more, tmp_path), Script(say(True)), store, 2, [lambda found: {}])
        steps, others = steps_of(failed[0].trace), steps_of(passed[0].trace)
        assert [s.node for s in others] == ["c", "a", "b"]
        found = sibling_repairs(steps, [others])
        texts = [[r.response.text for r in found[s.index] if r.response] for s in steps]
        assert texts == [["x: good"], ["y: good"]]
        store.close()

    run_async(main())


def test_labels_are_of_the_outputs_type_and_never_the_answer(tmp_path: Path) -> None:
    nodes = {"a": {"predict": "row -> n: int"}, "b": {"predict": "row, n -> m: int"}, "c": {"predict": "row, m -> k"}}
    workflow = make_workflow(nodes, tmp_path)

    async def main() -> Any:
        store = new_store(tmp_path / "a.db")
        script = Script(lambda request: "n: 1\nm: 2\nk: 3")
        found = await run(workflow, script, store, 1, [lambda found: {}])
        store.close()
        return steps_of(found[0].trace)

    steps = run_async(main())
    marked, repairs = label_repairs(workflow, steps, {"row": "r1", "n": "41", "m": "many", "k": "right"})
    assert [s.node for s in marked] == ["a", "b", "c"]
    assert {i: [r.outputs for r in options] for i, options in repairs.items()} == {0: [{"n": 41}]}


def test_the_order_of_steps_is_the_same_when_the_journal_answers(tmp_path: Path) -> None:
    inner = {f"s{k}": {"predict": f"row, x{k} -> x{k + 1}" if k else "row -> x1"} for k in range(3)}
    (tmp_path / "inner.yaml").write_text(f"nodes: {inner!r}\n")
    nodes = {"vote": {"ensemble": {"workflow": "inner.yaml"}, "samples": 3, "field": "x3"}}
    field = re.compile(r"(x\d): ?$")

    def answer(request: Request) -> str:
        return f"{field.findall(str(request.messages[-1]['content']))[-1]}: v{request.replica}"

    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        workflow = make_workflow(nodes, tmp_path)
        first, again = await run(workflow, Script(answer), store, 1, [lambda found: {}, lambda found: {}])
        orders = [[(s.node, s.address) for s in steps_of(one.trace)] for one in (first, again)]
        assert orders[0] == orders[1] and len(orders[0]) == 9
        assert [node.rpartition(".")[2] for node, _ in orders[0]] == ["s0", "s1", "s2"] * 3
        store.close()

    run_async(main())
