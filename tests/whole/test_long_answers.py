"""A long answer of a model holds the event loop for no more than a moment, whatever it is made of.

While an answer is read nothing else happens: no deadline, no Ctrl-C. Each of these took minutes to hours by a pattern
whose work grew with the square of the length.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import NodeError, SpecError
from workbench.lm import split_thoughts
from workbench.workflow import parse_signature
from workbench_adas.optimizer import read_agent
from workbench_kit import answers
from workbench_kit.answers import json_text, read_grade, read_text
from workbench_kit.prompting import read_prompt
from workbench_memory.prompts import read_insights
from workbench_metrics.structured import parse_json
from workbench_textgrad.prompts import enabled_by, read_gradient, read_tools
from workbench_training.rewards import _blocks

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "speed"))
from readers import READERS as MEASURED, TEXTS, seconds

SIZE = 60_000
#: What an answer repeats. Each is tried alone, after a beginning and before an end.
UNITS = [
    *(
        "[",
        "{",
        "(",
        "]",
        "\n",
        " ",
        "\t",
        " \n",
        "*",
        "_",
        "-",
        "#",
        ">",
        "`",
        "```",
        "```\n",
        "\\",
        '"',
        "'",
        ":",
        ".",
        ",",
    ),
    *(
        "a",
        "1",
        "1,",
        "1.",
        "a ",
        "a\n",
        "name",
        "name:",
        "name\n",
        "step:\n",
        "inputs:\n",
        "enable:\n",
        "score",
        "score:",
    ),
    *("call:", "call: {", "call:\n", "action:", "action: a\n", "<think>", "<prompt>", "<tool_call>", "<parameter=a>"),
    *(
        "<score>",
        "</s><s>",
        "A, ",
        "answer>",
        "; label:",
        "<function=look>",
        "{'",
        '{"',
        "[1,",
        "say:",
        "look(",
        "look[",
        "```python\n",
        "-> ",
        "label:",
        "label:\n",
    ),
]
ENDS = [("", ""), ("x", "!"), ("```json\n", "\n```"), ("\n", "}"), ("call: ", "]"), ("score", "x"), ("42", "/")]
TOOLS = {"look": ["where"], "pay": ["to", "amount"]}


def _field(kind: str) -> Callable[[str], Any]:
    signature = parse_signature(f"text -> label: {kind}")
    return lambda text: answers.parse(signature, text)


READERS: dict[str, Callable[[str], Any]] = {
    **{kind: _field(kind) for kind in ("str", "int", "float", "bool", "list[str]", "dict", "Literal['a', 'b']")},
    "two fields": lambda text: answers.parse(parse_signature("text -> label, other"), text),
    "calls": lambda text: read_text(text, TOOLS, ["label"], False),
    "cut calls": lambda text: read_text(text, TOOLS, ["label"], True),
    "prompt": read_prompt,
    "adas": read_agent,
    "insights": lambda text: read_insights(text, 5),
    "grade": lambda text: read_grade(text, 10),
    "thoughts": split_thoughts,
    "json": parse_json,
    "gradient": lambda text: read_gradient(text, asks_inputs=True),
    "enabled": lambda text: enabled_by(text, ["a"]),
    "tools": lambda text: read_tools(text, [{"name": "look"}]),
    "blocks": _blocks,
    "signature": parse_signature,
}


#: Read most of what is said; the others are tried in the slow tier.
FIRST = ("str", "calls")


@pytest.mark.parametrize("name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.slow) for n in READERS])
@pytest.mark.parametrize(
    "ends", [ENDS[:2], pytest.param(ENDS[2:], marks=pytest.mark.slow)], ids=["bare", "within other marks"]
)
def test_a_long_answer_is_read_in_a_moment(name: str, ends: list[tuple[str, str]]) -> None:
    for unit in UNITS:
        for begin, end in ends:
            text = begin + unit * (SIZE // len(unit)) + end
            begun = time.process_time()
            with suppress(NodeError, SpecError, ValueError):
                READERS[name](text)
            assert time.process_time() - begun < 3, (name, unit, begin, end)


@pytest.mark.parametrize("behind", ["", " ", "*", ") "])
def test_what_stands_behind_a_value_is_read_once(behind: str) -> None:
    """3,000 of them took three minutes: words without a space between were parted in every way."""
    begun = time.process_time()
    for kind in ("int", "float"):
        with suppress(NodeError):
            READERS["two fields"](f"label: b{' ' * SIZE}!")  # by the square, 12 s
            READERS[kind](f"42{behind}{'a' * 700}/")
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.slow) for n in MEASURED])
def test_the_work_of_a_reader_grows_with_the_length(name: str) -> None:
    """33.1: four times the text takes four times the CPU; where work grows with the square, it takes sixteen times."""
    for made, make in TEXTS.items():
        short, long = make(15_000), make(60_000)
        ratios = (seconds(MEASURED[name], long, 1) / (seconds(MEASURED[name], short, 1) + 0.001) for _ in range(4))
        assert any(ratio < 8 for ratio in ratios), made


def test_brackets_that_do_not_end_are_tried_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """33.1: each try reads to the end of the text."""
    tries, read = list[int](), json_text.read_object
    monkeypatch.setattr(json_text, "read_object", lambda text, at, mends: tries.append(at) or read(text, at, mends))
    assert list(json_text.read_values("[" * 40 + "1, " * 100_000 + "no")) == [] and len(tries) < 6
