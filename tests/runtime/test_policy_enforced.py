"""The rules of `policy:` hold wherever a tool is called: nodes, environments, the sandbox, other files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.policies import LIMITED, policy
from tests.helpers.scripted import Script, make_workflow
from tests.plugins.sandbox.test_sandbox import needs_kernel

from workbench.ledger import Ledger
from workbench.runtime import Consent, Program, Runtime
from workbench.spec import BudgetSpec, PolicySpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow

BANK = '''
def send_money(to: str, amount: int) -> str:
    """Send money."""
    with open(LOG, "a") as file:
        file.write(f"{to} {amount}\\n")
    return "sent"

def balance() -> int:
    """The balance."""
    return 7
'''


async def _run(
    folder: Path,
    rules: dict | PolicySpec,
    say,
    consent: Consent | None = None,
    node: dict | None = None,
    row: dict[str, Any] | None = None,
    workflow: Workflow | None = None,
) -> ExampleRun:
    (folder / "bank.py").write_text(f"LOG = {str(folder / 'log')!r}\n{BANK}")
    agent = {"agent": "question -> answer", "tools": ["python:bank.py:send_money", "python:bank.py:balance"]}
    store = Store(folder / "run.db")
    store.execute(
        "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
    )
    ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
    runtime = Runtime(
        ledger,
        lm_spec("openai/scripted"),
        {},
        Script(say),
        rules if isinstance(rules, PolicySpec) else policy(rules),
        consent,
    )
    try:
        return await Program(workflow or make_workflow({"n": node or agent}, folder), runtime).run(
            Example("0", row or {"question": "pay", "to": "ann", "amount": 5})
        )
    finally:
        await runtime.aclose()
        store.close()


def _pays(amount: int):
    def say(request) -> str:
        last = str(request.messages[-1]["content"])
        if last.startswith(("result", "error")):
            return f"answer: {last}"
        return "call: " + json.dumps({"tool": "send_money", "arguments": {"to": "ann", "amount": amount}})

    return say


def _sent(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines() if (folder / "log").exists() else []


async def _answer(folder: Path, amount: int, consent: Consent | None = None) -> str:
    return str((await _run(folder, LIMITED, _pays(amount), consent)).prediction["answer"])


def test_a_refused_call_is_not_made_and_the_model_is_told_why(tmp_path: Path) -> None:
    for amount, told in [(50, "sent"), (5000, "not allowed"), (500, "nobody is here to ask")]:
        folder = tmp_path / str(amount)
        folder.mkdir()
        assert told in asyncio.run(_answer(folder, amount))
        assert _sent(folder) == (["ann 50"] if amount == 50 else [])


def test_a_person_is_asked_once_and_the_answer_is_kept(tmp_path: Path) -> None:
    asked: list[tuple] = []

    def consent(tool: str, arguments) -> bool:
        asked.append((tool, dict(arguments)))
        return True

    for _ in range(2):  # the second run answers from the journal
        assert "sent" in asyncio.run(_answer(tmp_path, 500, consent))
    assert asked == [("send_money", {"to": "ann", "amount": 500})] and _sent(tmp_path) == ["ann 500"]
    other = tmp_path / "other"
    other.mkdir()
    assert "did not allow" in asyncio.run(_answer(other, 500, lambda tool, arguments: False))
    assert _sent(other) == []


def test_a_tool_node_that_is_refused_fails_its_example(tmp_path: Path) -> None:
    node = {"tool": "python:bank.py:send_money", "output": "done"}
    rules = {"rules": [{"deny": "send_money", "why": "dry run"}]}
    outcome = asyncio.run(_run(tmp_path, rules, _pays(1), node=node))
    assert outcome.failure == "policy" and "dry run" in str(outcome.message) and _sent(tmp_path) == []


def test_a_function_in_the_sandbox_is_held_too(tmp_path: Path) -> None:
    forged = {"name": "send_money", "source": "def send_money(to, amount):\n    return 'sent'"}
    node = {"agent": "question -> answer", "functions": [forged]}
    outcome = asyncio.run(_run(tmp_path, {"rules": [{"deny": "*"}]}, _pays(1), node=node))
    assert "not allowed" in str(outcome.prediction["answer"])


ADDRESS, PAY = "python:bank.py:send_money", {"tool": "send_money", "arguments": {"to": "ann", "amount": 5}}
NODES = {
    "agent": {"agent": "question -> answer", "tools": [ADDRESS]},
    "tool": {"tool": ADDRESS, "output": "done"},
    "states": {
        "states": {
            "pay": {"instructions": "Pay.", "tools": [ADDRESS], "next": ["tell"]},
            "tell": {"instructions": "Tell.", "next": ["end"]},
        },
        "signature": "question -> answer",
        "start": "pay",
    },
}


def _calls_the_tool(kind: str):
    asked: list[str] = []

    def say(request) -> str:
        system = str(request.messages[0]["content"])
        asked.append(system)
        return f"call: {json.dumps(PAY)}" if len(asked) == 1 else "answer: x"

    return say


@pytest.mark.parametrize("kind", NODES)
def test_deny_holds_in_every_kind_of_node_that_calls_tools(kind: str, tmp_path: Path) -> None:
    for rules, sent in [({"default": "deny"}, []), ({}, ["ann 5"])]:
        folder = tmp_path / str(len(sent))
        folder.mkdir()
        outcome = asyncio.run(_run(folder, rules, _calls_the_tool(kind), node=NODES[kind]))
        assert _sent(folder) == sent, outcome.message
        if kind == "tool":  # the others tell their model
            assert outcome.failure == (None if sent else "policy")


# Actions of environments, and rules of other files

WEB = {
    "pages": {
        "home": {"text": "News and a shop.", "links": {"news": "news", "shop": "shop"}},
        "news": {"text": "Old.", "links": {"home": "home"}},
        "shop": {"text": "Here.", "links": {"home": "home"}},
    },
    "start": "home",
    "goal": "shop",
    "question": "Find the shop.",
}
NO_SHOP = {"rules": [{"deny": "web", "when": {"action": {"matches": "(?i).*shop.*"}}, "why": "it costs money"}]}


async def _walk(folder: Path, rules: dict, row: dict[str, Any], say, **settings: Any) -> ExampleRun:
    node = {
        "tree_search": "web",
        "task": {n: n for n in ("pages", "start", "goal")},
        "show": ["question"],
        "max_steps": 1,
        "value": "lm",
        "branching": 2,
        "evaluations": 4,
        "depth": 1,
        **settings,
    }
    return await _run(folder, rules, say, node=node, row=row)


def _clicks(request) -> str:
    """Three of four want the shop."""
    text = str(request.messages[-1]["content"])
    if text.endswith("judgement:"):
        return "success" if "Here." in text.rpartition("observation: ")[2] else "off track"
    return "click news" if request.replica % 4 == 3 else "click shop"


@pytest.mark.parametrize("order", ["greedy", "best_first", "bfs", "mcts"])
def test_a_refused_action_is_not_taken_and_another_one_is(order: str, tmp_path: Path) -> None:
    """Not even tried out: no page that was reached by it is among what was looked at."""
    for name, rules, page in (("free", {}, "Here."), ("held", NO_SHOP, "Old.")):
        (tmp_path / name).mkdir()
        outcome = asyncio.run(_walk(tmp_path / name, rules, WEB, _clicks, order=order, samples=4))
        assert outcome.failure is None and page in outcome.prediction["observation"], outcome
        assert (outcome.prediction["score"] == 1.0) == (name == "free")
        store = Store(tmp_path / name / "run.db")
        kept = [row["response"] or "" for row in store.rows("select response from calls where kind = 'environment'")]
        store.close()
        assert kept and any("Here." in text for text in kept) == (name == "free")


@pytest.mark.parametrize("order", ["greedy", "best_first"])
def test_where_all_actions_are_refused_the_example_fails_as_refused(order: str, tmp_path: Path) -> None:
    outcome = asyncio.run(_walk(tmp_path, {"default": "deny"}, WEB, _clicks, order=order, samples=4))
    assert outcome.failure == "policy" and "web is not allowed here" in str(outcome.message)


def test_an_action_is_asked_about_like_a_call(tmp_path: Path) -> None:
    asked: list[Any] = []

    def consent(tool: str, arguments: Any) -> bool:
        asked.append((tool, dict(arguments)))
        return False

    node = {
        "tree_search": "web",
        "task": {n: n for n in ("pages", "start", "goal")},
        "show": ["question"],
        "max_steps": 1,
        "order": "greedy",
        "samples": 1,
    }
    outcome = asyncio.run(_run(tmp_path, {"default": "ask"}, _clicks, consent, node, WEB))
    assert outcome.failure == "policy" and asked == [("web", {"action": "click shop", "verb": "click"})]


@pytest.mark.parametrize(
    ("action", "verb"),
    [
        ("select 1", "select"),
        ("```sql\nDROP table t;\n```", "drop"),
        ("/* select */ -- x\n delete from t", "delete"),
        (";;\ufeff drop table t", "drop"),
        ("submit", "submit"),
        ("", ""),
        ("/* never ends", ""),
    ],
)
def test_fences_and_comments_do_not_hide_a_statement(action: str, verb: str) -> None:
    from workbench_kit.acting import environment_class

    assert environment_class("sql", Path()).call(action)["verb"] == verb


INNER = {"name": "inner", "data": {"file": "rows.jsonl"}, "metric": "exact_match(answer)"}
TWICE = {
    "name": "twice",
    "source": "def twice(amount):\n    return 2 * amount",
    "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
}
SMALL = {"rules": [{"deny": "twice", "when": {"amount": {"min": 10}}, "why": "too much"}]}


def _wants_twice(amount: int):
    def say(request) -> str:
        last = str(request.messages[-1]["content"])
        if last.startswith(("result", "error")):
            return f"answer: {last}"
        return "call: " + json.dumps({"tool": "twice", "arguments": {"amount": amount}})

    return say


def _file(folder: Path, name: str, nodes: dict[str, Any], **more: Any) -> None:
    (folder / "rows.jsonl").write_text('{"question": "pay", "answer": "b"}\n' * 9)
    head = {**INNER, "lm": {"model": "openai/none", "api_base": "http://127.0.0.1:9/v1"}}
    (folder / name).write_text(json.dumps({**head, "nodes": nodes, **more}))


async def _of_file(folder: Path, name: str, say) -> tuple[str, PolicySpec]:
    """(the answer of the workflow in a file, its policy)."""
    from workbench.run import prepare

    task = prepare(folder / name, [])[2]
    return str(
        (await _run(folder, task.spec.policy, say, workflow=task.workflow)).prediction["answer"]
    ), task.spec.policy


@needs_kernel
@pytest.mark.parametrize(
    ("outer", "amount", "told"),
    [
        ({}, 2, "result: 4"),
        ({}, 50, "too much"),
        ({"default": "allow"}, 50, "too much"),
        ({"rules": [{"allow": "*"}]}, 50, "too much"),
        ({"rules": [{"deny": "*"}]}, 2, "not allowed"),
        ({"rules": [{"ask": "twice"}]}, 2, "nobody is here to ask"),
        ({"rules": [{"ask": "twice"}]}, 50, "too much"),
    ],
)
def test_the_policy_of_a_library_holds_for_its_functions_and_the_own_one_too(
    outer: dict, amount: int, told: str, tmp_path: Path
) -> None:
    library = {"solve": {"agent": "question -> answer", "functions": [TWICE]}}
    _file(tmp_path, "library.yaml", library, policy=SMALL)
    nodes = {"n": {"agent": "question -> answer", "functions": "library.yaml#nodes.solve"}}
    _file(tmp_path, "outer.yaml", nodes, policy=outer)
    answer, found = asyncio.run(_of_file(tmp_path, "outer.yaml", _wants_twice(amount)))
    assert told in answer and found.inherited[0].tools == ["twice"]


@needs_kernel
def test_a_policy_is_handed_on_through_files_and_into_the_result(tmp_path: Path) -> None:
    """Library, a file that uses it, a file that uses that one, and what is exported of it."""
    from workbench.run import prepare
    from workbench.task import write_workflow

    _file(tmp_path, "library.yaml", {"solve": {"agent": "question -> answer", "functions": [TWICE]}}, policy=SMALL)
    for name, before in (("middle.yaml", "library.yaml#nodes.solve"), ("outer.yaml", "middle.yaml")):
        _file(tmp_path, name, {"solve": {"agent": "question -> answer", "functions": [before]}})
    assert "too much" in asyncio.run(_of_file(tmp_path, "outer.yaml", _wants_twice(50)))[0]
    task = prepare(tmp_path / "outer.yaml", [])[2]
    (tmp_path / "library.yaml").unlink()
    write_workflow(task, task.workflow, tmp_path / "whole.yaml")
    assert "too much" in asyncio.run(_of_file(tmp_path, "whole.yaml", _wants_twice(50)))[0]
    other = {"n": {"agent": "question -> answer", "functions": [{**TWICE, "name": "thrice"}]}}
    held = policy({"inherited": [{"tools": ["twice"], "policy": SMALL}]})
    assert held.verdict("thrice", {"amount": 50})[0] == "allow" and other, "other tools are not touched"


@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("direct", [True, False])
def test_the_policy_of_an_inner_workflow_holds_in_it_and_nowhere_else(direct: bool, tmp_path: Path) -> None:
    agent = {"agent": "question -> answer", "functions": [TWICE]}
    nodes = {"solve": agent}
    if not direct:  # the inner file takes the function from a third one, whose rules they are
        _file(tmp_path, "third.yaml", nodes, policy=SMALL)
        nodes = {"solve": {**agent, "functions": "third.yaml"}}
    _file(tmp_path, "inner.yaml", nodes, policy=SMALL if direct else {})
    for amount, told in ((2, "result: 4"), (50, "too much")):
        (folder := tmp_path / str(amount)).mkdir()
        _file(folder, "outer.yaml", {"n": {"workflow": "../inner.yaml"}})
        assert told in asyncio.run(_of_file(folder, "outer.yaml", _wants_twice(amount)))[0]
    (folder := tmp_path / "beside").mkdir()
    _file(folder, "outer.yaml", {"m": {"workflow": "../inner.yaml"}, "n": {**agent, "needs": "m"}})
    assert asyncio.run(_of_file(folder, "outer.yaml", _wants_twice(50)))[0] == "result: 100", (
        "the outer agent's own call"
    )
