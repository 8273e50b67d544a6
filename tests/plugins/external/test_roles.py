"""A proposer is told what a text of an agent is: of which kind, whose, and of which message a part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import make_workflow

from workbench.workflow import TextRole, Workflow, learnable_addresses, text_role
from workbench_kit.prompting import rewrite_request

SLOTS: dict[str, dict[str, Any]] = {
    "tool_look_up": {"in": "tool", "name": "look_up", "match": "Looks up a policy."},
    "topic": {"in": "parameter", "name": "look_up", "parameter": "topic", "match": "What it is about."},
    "desk": {"in": "field", "name": "Answer", "parameter": "desk", "match": "Where it goes to."},
    "answer": {"in": "field", "name": "Answer", "match": "The answer of the clerk."},
    "turn": {"in": "turn", "match": "You took my money twice."},
    "system": {"in": "system", "match": "You are the clerk of a shop.", "part": True, "of": "system"},
    "system_2": {"in": "system", "match": "login: how a customer signs in", "part": True, "of": "system"},
    "system_3": {"in": "system", "match": "Answer in one word.", "part": True, "of": "system"},
    "system_4": {"in": "system", "match": "You check the answers of another clerk. Today is {{1}}."},
    "file": {"in": "file", "name": "CLAUDE.md", "match": "Be brief."},
    "user": {"in": "user", "match": "The letter: {{letter}}"},
}


@pytest.fixture
def agent(tmp_path: Path) -> Workflow:
    slots = {name: {**slot, "text": slot["match"]} for name, slot in SLOTS.items()}
    return make_workflow({"agent": {"external": "letter -> desk", "command": ["true"], "slots": slots}}, tmp_path)


def asked(workflow: Workflow, name: str) -> str:
    return str(rewrite_request(workflow, f"nodes.agent.slots.{name}.text")[0]["content"])


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        ("tool_look_up", "the description of the tool look_up of an agent"),
        ("topic", "the description of the parameter topic of the tool look_up"),
        ("desk", "the description of the field desk in Answer, the form of an agent's answer"),
        ("answer", "the description of Answer, the form of an agent's answer"),
        ("turn", "a message of an example that an agent shows its model, whose answer stays as it is"),
        ("system_2", "a part of the system message of an agent"),
        ("system_4", "the system message of an agent ({{1}} and the like stand for what varies, and must stay)"),
        ("file", "the file CLAUDE.md, which an agent reads"),
        ("user", "the message in which an agent shows its model an input"),
    ],
)
def test_what_a_text_is_is_said(slot: str, said: str, agent: Workflow) -> None:
    request = asked(agent, slot)
    assert request.startswith(f"You write {said}") and "instruction of one step" not in request
    description = SLOTS[slot]["in"] in ("tool", "parameter", "field", "turn")
    assert ("still" in request) == description and ("about as long" in request) == (
        description or "part" in SLOTS[slot]
    )


def test_a_part_stands_among_the_other_parts_of_its_message(agent: Workflow) -> None:
    changed = agent.patched({"nodes.agent.slots.system.text": "You sort the mail."})
    request = asked(changed, "system_2")
    shown = (
        "The parts of the message now:\n<part 1>\nYou sort the mail.\n</part 1>\n<part 2>\n"
        "login: how a customer signs in\n</part 2>\n<part 3>\nAnswer in one word.\n</part 3>"
    )
    assert shown in request, "as it is now, and without the message of somebody else"
    assert "another clerk" not in request
    assert "Write a better part 2" in request


def test_a_part_that_stands_alone_is_asked_for_as_one_text(tmp_path: Path) -> None:
    slots = {"one": {"in": "system", "match": "Sort.", "text": "Sort.", "part": True, "of": "system"}}
    alone = make_workflow({"agent": {"external": "letter -> desk", "command": ["true"], "slots": slots}}, tmp_path)
    assert asked(alone, "one").endswith("between <prompt> and </prompt>.")


def test_long_messages_come_before_short_descriptions(agent: Workflow) -> None:
    order = [address.split(".")[3] for address in learnable_addresses(agent, "text")]
    assert order[:4] == ["system_4", "system_2", "system", "system_3"] and order[4:6] == ["user", "file"]
    assert {*order[6:]} == {"tool_look_up", "topic", "desk", "answer", "turn"}


def test_nodes_of_a_workflow_are_asked_as_before(tmp_path: Path) -> None:
    workflow = make_workflow({"n": {"predict": "text -> label", "instructions": "Sort it."}}, tmp_path)
    address = "nodes.n.instructions"
    plain = rewrite_request(workflow, address)
    assert text_role(workflow, address) == TextRole()
    assert str(plain[0]["content"]).startswith("You write the instruction of one step of a workflow.")
    assert json.dumps(plain).count("The instruction now") == 1
