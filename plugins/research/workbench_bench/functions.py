"""Worlds of functions: an agent that may call Python functions, and a proposer that writes them, both simulated.

Each of eight topics needs its own function, which reads the label from a question. The simulated agent calls the first
function for the topic of its question, or for any topic, and mostly believes the result. The functions are real Python
and run in the sandbox. The best set has one correct function for each topic.
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
#: The probability of a right label, by the result of the called function.
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
#: An agent's result from a function of each kind. Lying and endless functions fail their own test.
WORTH = {
    "right": RIGHT,
    "wrong": MISLED,
    "memorised": FAILED,
    "slow": NO_ANSWER,
    "meddling": UNCLEAR,
    "lying": RIGHT,
    "endless": FAILED,
}
#: Probabilities of the kinds that the proposer writes after a failure; without evidence, half as many are right.
SHARES = {"right": 0.5, "wrong": 0.15, "memorised": 0.1, "slow": 0.1, "meddling": 0.05, "lying": 0.08, "endless": 0.02}
BLIND = {**SHARES, "right": 0.25, "wrong": 0.4, "lying": 0.0, "endless": 0.0, "memorised": 0.2, "slow": 0.1}

NODES = {"sort": {"agent": f"text -> label: Literal{list(LABELS)}", "instructions": "Label it.", "max_steps": STEPS}}


def make_function(topic: int, kind: str) -> dict[str, Any]:
    """A function in the form of a workflow file, with its own test."""
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


#: (topic, kind) by source, to recognise a winner's functions. The function for any topic has topic -1. A lying function
#: is right except about its own test.
_KNOWN = {
    make_function(t, kind)["source"]: (-1 if kind == "meddling" else t, kind)
    for t in range(TOPICS)
    for kind in reversed(WORTH)
}


def draw_kind(shares: Mapping[str, float], rng: random.Random) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]


def make_sets(count: int) -> list[list[dict[str, Any]]]:
    """Sets that a proposer might write without evidence: a function for every other topic, a quarter of them right."""
    rng, made = random.Random("sets of functions"), list[list[dict[str, Any]]]()
    for _ in range(count):
        functions = [make_function(t, draw_kind(BLIND, rng)) for t in range(TOPICS) if rng.random() < 0.5]
        made.append(list({f["name"]: f for f in functions}.values()))
    return [[], *made]


def score_functions(functions: Sequence[Mapping[str, Any]]) -> float | None:
    """The accuracy of an agent with these functions; None if one is unknown to this world."""
    found = [_KNOWN.get(f["source"]) for f in functions]
    if None in found:
        return None
    scores = []
    for topic in range(TOPICS):
        kinds = [kind for place in found if place for of, kind in [place] if of in (topic, -1)]
        scores.append(WORTH[kinds[0]] if kinds else NOTHING_CALLED)
    return sum(scores) / TOPICS


def score_workflow(workflow: Workflow) -> float | None:
    """The accuracy of a workflow that is the starting agent with functions; None for any other workflow."""

    node = workflow.nodes.get("sort", {})
    same = {"kind", "signature", "instructions", "max_steps", "functions", "demos"}
    if (
        set(workflow.enabled_nodes) != {"sort"}
        or node["kind"] != "agent"
        or set(node) - same
        or node["max_steps"] != STEPS
    ):
        return None
    return score_functions(node.get("functions", []))


def speak(request: Request) -> str | None:
    """The agent's call of a function; None if it answers."""
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


def compute_skill(request: Request) -> float:
    """The probability of a right label, given the called function and its result."""
    last = str(request.messages[-1]["content"])
    if last.startswith("error: "):
        return FAILED
    if not last.startswith("result: "):
        return NOTHING_CALLED
    said = last.removeprefix("result: ")
    asked = re.search(r" ([abcd])-thing", find_question(request))
    return UNCLEAR if said not in tuple(LABELS) else RIGHT if asked and said == asked.group(1) else MISLED


def find_question(request: Request) -> str:
    """The question of a conversation; after a function call, it is not the last message."""
    texts = [str(m["content"]) for m in request.messages if m["role"] == "user"]
    return next((t for t in reversed(texts) if not t.startswith(("result: ", "error: "))), "")


def propose(text: str, rng: random.Random) -> str:
    """An edit in the form that `forge` requests. For a topic with a failure and no call, it adds a function; a function
    that gave a wrong result to a failed row is revised. Otherwise it terminates."""
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
    kind = draw_kind(SHARES, rng)
    made = make_function(topic, kind)
    if kind == "meddling" and (action == "revise" or made["name"] in there):
        made = make_function(topic, "wrong")
    return json.dumps({"action": action, **made})
