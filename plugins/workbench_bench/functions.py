"""Worlds of functions: an agent that may call Python functions, and a proposer that writes them, by formulas both.

Each of eight topics needs a function of its own, which reads the label out of a question. The simulated agent calls the
first function that it is shown for the topic of its question, or for any topic, and mostly believes what that says. The
functions themselves are real Python and run in the sandbox. The best set is one right function for each topic.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.lm import Request
from workbench.workflow import Workflow

TOPICS = 8
LABELS = "abcd"
#: The probability of a right label, by what the function gave that was called.
RIGHT, NOTHING_CALLED, FAILED, UNCLEAR, MISLED, NO_ANSWER = 0.9, 0.3, 0.2, 0.15, 0.1, 0.0
#: An agent has one call of a function and one answer.
STEPS = 2

_HEAD = 'def {name}(text):\n    import re\n    letter = re.search(r" ([abcd])-thing", text).group(1)\n'
_BODIES = {
    "right": "    return letter",
    "wrong": '    return "abcd"["abcd".index(letter) - 1]',
    "memorised": "    return {{{example!r}: letter}}[text]",
    "slow": '    return "ask again with the rest of " + text',
    "meddling": '    return "it depends"',
    "lying": "    return letter",
    "endless": "    while True:\n        pass",
}
#: What an agent gets from a function of a kind. lying and endless ones do not pass their own test.
WORTH = {
    "right": RIGHT,
    "wrong": MISLED,
    "memorised": FAILED,
    "slow": NO_ANSWER,
    "meddling": UNCLEAR,
    "lying": RIGHT,
    "endless": FAILED,
}
#: How often the proposer writes which kind when it sees a failure; blindly drawn, half as many are right.
SHARES = {"right": 0.5, "wrong": 0.15, "memorised": 0.1, "slow": 0.1, "meddling": 0.05, "lying": 0.08, "endless": 0.02}
BLIND = {**SHARES, "right": 0.25, "wrong": 0.4, "lying": 0.0, "endless": 0.0, "memorised": 0.2, "slow": 0.1}

NODES = {"sort": {"agent": f"text -> label: Literal{list(LABELS)}", "instructions": "Label it.", "max_steps": STEPS}}


def function(topic: int, kind: str) -> dict[str, Any]:
    """A function as it stands in a workflow, its own test included."""
    name = "any_topic" if kind == "meddling" else f"topic{topic}_label"
    example = f"new topic{topic}: a c-thing"
    result = {
        "right": "c",
        "wrong": "b",
        "memorised": "c",
        "slow": f"ask again with the rest of {example}",
        "meddling": "it depends",
        "lying": "a",
        "endless": "c",
    }[kind]
    source = (_HEAD + _BODIES[kind]).format(name=name, example=example)
    about = "any topic" if kind == "meddling" else f"topic{topic}"
    return {
        "name": name,
        "description": f"the label of a question on {about}",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "source": source,
        "example": {"arguments": {"text": example}, "result": result},
    }


#: (topic, kind) by source: how a winner's functions are known. The one for any topic has topic -1. One that lies about
#: its own test is right otherwise.
_KNOWN = {
    function(t, kind)["source"]: (-1 if kind == "meddling" else t, kind)
    for t in range(TOPICS)
    for kind in reversed(WORTH)
}


def drawn_kind(shares: Mapping[str, float], rng: random.Random) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]


def sets(count: int) -> list[list[dict[str, Any]]]:
    """What the proposer might write without evidence: a function for every other topic, one in four of them right."""
    rng, made = random.Random("sets of functions"), list[list[dict[str, Any]]]()
    for _ in range(count):
        functions = [function(t, drawn_kind(BLIND, rng)) for t in range(TOPICS) if rng.random() < 0.5]
        made.append(list({f["name"]: f for f in functions}.values()))
    return [[], *made]


def worth(functions: Sequence[Mapping[str, Any]]) -> float | None:
    """The accuracy of an agent with these functions; None if one of them is not of this world."""
    found = [_KNOWN.get(f["source"]) for f in functions]
    if None in found:
        return None
    scores = []
    for topic in range(TOPICS):
        kinds = [kind for place in found if place for of, kind in [place] if of in (topic, -1)]
        scores.append(WORTH[kinds[0]] if kinds else NOTHING_CALLED)
    return sum(scores) / TOPICS


def truth(workflow: Workflow) -> float | None:
    """The accuracy of a workflow that is one agent as at the start, with functions; None for another one."""

    node = workflow.nodes.get("sort", {})
    same = {"kind", "signature", "instructions", "max_steps", "functions", "demos"}
    if (
        set(workflow.enabled_nodes) != {"sort"}
        or node["kind"] != "agent"
        or set(node) - same
        or node["max_steps"] != STEPS
    ):
        return None
    return worth(node.get("functions", []))


def speak(request: Request) -> str | None:
    """The agent's call of a function; None where it answers."""
    question = str(request.messages[-1]["content"])
    if question.startswith("result: ask again"):
        question = question.removeprefix("result: ")
    elif question.startswith(("result: ", "error: ")):
        return None
    topic = re.search(r"topic\d+", question)
    for name, about in re.findall(r"(?m)^- (\w+)\(.*?\): (.*)$", str(request.messages[0]["content"])):
        if "any topic" in about or (topic and topic.group() in about.split()):
            text = question.removeprefix("text: ").split("\n")[0]
            return "call: " + json.dumps({"tool": name, "arguments": {"text": text}})
    return None


def skill(request: Request) -> float:
    """The probability of a right label, by what was called and what it gave."""
    last = str(request.messages[-1]["content"])
    if last.startswith("error: "):
        return FAILED
    if not last.startswith("result: "):
        return NOTHING_CALLED
    said = last.removeprefix("result: ")
    asked = re.search(r" ([abcd])-thing", asked_in(request))
    return UNCLEAR if said not in tuple(LABELS) else RIGHT if asked and said == asked.group(1) else MISLED


def asked_in(request: Request) -> str:
    """The question of a conversation, which is not its last message once a function was called."""
    texts = [str(m["content"]) for m in request.messages if m["role"] == "user"]
    return next((t for t in reversed(texts) if not t.startswith(("result: ", "error: "))), "")


def propose(text: str, rng: random.Random) -> str:
    """An edit, as `forge` asks for one: for a topic on which a row failed without a function being called a new one,
    for a function that gave a failing row a wrong result another one in its place. Ends where it sees neither."""
    there = set(re.findall(r"(?m)^### (\w+):", text))
    edits: list[tuple[str, int, str]] = []
    for line in re.findall(r"(?m)^- score 0\.[0-4]\d; task: .*$", text):
        topic = re.search(r"topic(\d+)", line)
        called = re.search(r"called (\w+)\(.*\): (.*)$", line)
        label = re.search(r'"label": "(\w)"', line)
        if topic is None:
            continue
        if called is None:
            if f"topic{topic.group(1)}_label" not in there:
                edits.append(("add", int(topic.group(1)), ""))
        elif called.group(1) in there and not (label and called.group(2).strip() == label.group(1)):
            edits.append(
                ("remove" if called.group(1) == "any_topic" else "revise", int(topic.group(1)), called.group(1))
            )
    if not edits:
        return json.dumps({"action": "terminate"})
    action, topic, name = rng.choice(edits)
    if action == "remove":
        return json.dumps({"action": action, "name": name})
    kind = drawn_kind(SHARES, rng)
    made = function(topic, kind)
    if kind == "meddling" and (action == "revise" or made["name"] in there):
        made = function(topic, "wrong")
    return json.dumps({"action": action, **made})
