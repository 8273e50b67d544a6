"""Rules over tool calls: what decides, where, and that no patch gets around them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scripted import Script, make_workflow

from workbench.data import Example
from workbench.ledger import Ledger
from workbench.policy import PolicySpec
from workbench.runtime import Consent, Outcome, Program, Runtime, lm_spec
from workbench.spec import BudgetSpec
from workbench.store import Store

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


def policy(text: dict) -> PolicySpec:
    return PolicySpec.model_validate(text)


LIMITED = {
    "default": "deny",
    "rules": [
        {"deny": "send_*", "when": {"to": {"one_of": ["mallory"]}}, "why": "not to mallory"},
        {"allow": "send_*", "when": {"amount": {"max": 100}, "to": {"matches": "[a-z]+"}}},
        {"ask": "send_*", "when": {"amount": {"max": 1000}}},
        {"allow": "read", "when": {"file.path": "/tmp/a"}},
    ],
}


@pytest.mark.parametrize(
    ("tool", "arguments", "verdict"),
    [
        ("send_money", {"to": "ann", "amount": 100}, "allow"),
        ("send_money", {"to": "ann", "amount": 101}, "ask"),
        ("send_money", {"to": "ann", "amount": 1001}, "deny"),
        ("send_money", {"to": "mallory", "amount": 1}, "deny"),
        ("send_money", {"to": "ann; rm", "amount": 1}, "ask"),  # the text as a whole must match
        ("send_money", {"amount": 1}, "ask"),  # an argument that is not there meets no condition
        ("send_money", {"to": "ann", "amount": "1"}, "ask"),  # text is no number: surely none that is allowed
        ("send_money", {"to": "ann", "amount": True}, "ask"),
        ("read", {"file": {"path": "/tmp/a"}}, "allow"),
        ("read", {"file": {"path": "/tmp/b"}}, "deny"),
        ("read", {"file": "/tmp/a"}, "deny"),
        ("Send_money", {"to": "ann", "amount": 1}, "deny"),  # names are told apart by case
    ],
)
def test_the_first_rule_that_counts_decides(tool: str, arguments: dict, verdict: str) -> None:
    assert policy(LIMITED).verdict(tool, arguments)[0] == verdict


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        ({"cmd": {"matches": "rm .*"}}, {"cmd": "rm -rf /\n"}),
        ({"cmd": {"matches": "rm .*"}}, {"cmd": ["rm -rf /"]}),
        ({"amount": {"min": 100}}, {"amount": "500"}),
        ({"amount": {"min": 100}}, {"amount": float("nan")}),
        ({"amount": {"min": 100}}, {"amount": 100}),
        ({"to": "5"}, {"to": 5}),
        ({"to": {"one_of": ["mallory"]}}, {"to": " mallory "}),
        ({"to.name": "mallory"}, {"to.name": "ann", "to": {"name": "mallory"}}),
        ({"text": {"max_length": 3}}, {"text": 7}),
    ],
)
def test_a_denial_is_not_got_round_by_another_type(rule: dict, arguments: dict) -> None:
    assert policy({"rules": [{"deny": "x", "when": rule}]}).verdict("x", arguments)[0] == "deny"


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        ({"amount": {"max": 10}}, {"amount": "1"}),
        ({"amount": {"max": 10}}, {"amount": float("nan")}),
        ({"amount": {"max": 10}}, {"amount": True}),
        ({"to.amount": {"max": 10}}, {"to.amount": 1, "to": {"amount": 1000}}),
        ({"to": 5}, {"to": "5"}),
        ({"to": {"matches": "[a-z]+"}}, {"to": "ann\n"}),
        ({"to": 5}, {}),
    ],
)
def test_a_permission_must_hold_surely(rule: dict, arguments: dict) -> None:
    given = policy({"default": "deny", "rules": [{"allow": "x", "when": rule}]})
    assert given.verdict("x", arguments)[0] == "deny"


@given(st.text(max_size=8), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3))
def test_without_rules_all_is_allowed_and_a_rule_for_everything_hides_what_follows(tool: str, arguments: dict) -> None:
    assert policy({}).verdict(tool, arguments) == ("allow", "")
    assert policy({"rules": [{"deny": "*", "why": "w"}, {"allow": "*"}]}).verdict(tool, arguments) == ("deny", "w")


async def _run(folder: Path, rules: dict, say, consent: Consent | None = None, node: dict | None = None) -> Outcome:
    (folder / "bank.py").write_text(f"LOG = {str(folder / 'log')!r}\n{BANK}")
    agent = {"agent": "question -> answer", "tools": ["python:bank.py:send_money", "python:bank.py:balance"]}
    store = Store(folder / "run.db")
    store.execute(
        "insert or ignore into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')"
    )
    ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
    runtime = Runtime(ledger, lm_spec("openai/scripted"), {}, Script(say), policy(rules), consent)
    try:
        return await Program(make_workflow({"n": node or agent}, folder), runtime).run(
            Example("0", {"question": "pay", "to": "ann", "amount": 5})
        )
    finally:
        await runtime.aclose()
        ledger.close()
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
TEAM = {"tool": "seek_experts", "arguments": {"group": "g", "roles": ["payments"], "task": "pay"}}
NODES = {
    "agent": {"agent": "question -> answer", "tools": [ADDRESS]},
    "tool": {"tool": ADDRESS, "output": "done"},
    "states": {
        "states": {"pay": {"instructions": "Pay.", "tools": [ADDRESS], "next": ["tell"]},
                   "tell": {"instructions": "Tell.", "next": ["end"]}},
        "signature": "question -> answer", "start": "pay",
    },
    "captain": {"captain": "question -> answer", "tools": [ADDRESS], "talk": 1,
                "library": {"payer": {"description": "payments", "tools": ["send_money"]}}},
    "astar": {"astar": "question -> answer", "tools": [ADDRESS], "finish": ["send_money"], "samples": 1},
}  # fmt: skip


def _calls_the_tool(kind: str):
    asked: list[str] = []

    def say(request) -> str:
        system = str(request.messages[0]["content"])
        if kind == "captain" and "Roles are needed" in system:
            return '{"payments": "payer"}'
        if kind == "captain" and "teams of experts" in system:
            return "answer: x" if len(request.messages) > 2 else f"call: {json.dumps(TEAM)}"
        asked.append(system)
        return f"call: {json.dumps(PAY)}" if kind == "astar" or len(asked) == 1 else "answer: x"

    return say


@pytest.mark.parametrize("kind", NODES)
def test_deny_holds_in_every_kind_of_node_that_calls_tools(kind: str, tmp_path: Path) -> None:
    for rules, sent in [({"default": "deny"}, []), ({}, ["ann 5"])]:
        folder = tmp_path / str(len(sent))
        folder.mkdir()
        outcome = asyncio.run(_run(folder, rules, _calls_the_tool(kind), node=NODES[kind]))
        assert _sent(folder) == sent, outcome.message
        if kind in ("tool", "astar"):  # the others tell their model
            assert outcome.failure == (None if sent else "policy")
