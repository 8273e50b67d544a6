"""The plain adapter: what a model is asked, and how its answer is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import run_node

from workbench.errors import NodeError
from workbench.workflow import parse_signature
from workbench_kit import answers
from workbench_kit.prompting import plain_adapter as plain


def test_plain_prompt_is_exactly_this(tmp_path: Path) -> None:
    node = {
        "predict": "text, n: int -> label: Literal['yes', 'no'], why",
        "instructions": " Decide. ",
        "descriptions": {"n": "how often it was said"},
        "demos": [{"text": "hm", "n": 2, "label": "no", "why": "doubt"}],
    }
    _, script = run_node(node, {"text": "sure", "n": 3}, tmp_path, lambda r: "yes\nwhy: clear")
    assert list(script.requests[0].messages) == [
        {"role": "system", "content": "Decide.\nn: how often it was said\nlabel: one of yes, no"},
        {"role": "user", "content": "text: hm\nn: 2\nlabel:"},
        {"role": "assistant", "content": "no\nwhy: doubt"},
        {"role": "user", "content": "text: sure\nn: 3\nlabel:"},
    ]
    assert script.requests[0].stop == ("\ntext:",)


def test_reasoning_is_asked_for_in_words_and_demos_show_what_they_have(tmp_path: Path) -> None:
    node = {
        "predict": "text -> reasoning, label: Literal['yes', 'no'], n: int",
        "instructions": "Decide.",
        "demos": [{"text": "hm", "label": "no", "n": 2}, {"text": "ah", "reasoning": "Clear.", "label": "yes", "n": 1}],
    }
    _, script = run_node(node, {"text": "sure"}, tmp_path, lambda r: "It is.\nlabel: yes\nn: 3")
    asked = "Reason step by step. Then write the label and n on last lines, as: label: ...\nn: ..."
    assert list(script.requests[0].messages) == [
        {"role": "system", "content": f"Decide.\nlabel: one of yes, no\n{asked}"},
        {"role": "user", "content": "text: hm"},
        {"role": "assistant", "content": "label: no\nn: 2"},
        {"role": "user", "content": "text: ah"},
        {"role": "assistant", "content": "Clear.\nlabel: yes\nn: 1"},
        {"role": "user", "content": "text: sure"},
    ]


def test_without_instructions_the_outputs_are_asked_for(tmp_path: Path) -> None:
    _, script = run_node({"predict": "q -> answer"}, {"q": "?"}, tmp_path)
    assert script.requests[0].messages[0]["content"] == "Give the answer."


READ = [
    # signature, answer, value, whether it was read out of surrounding text
    ("label: Literal['yes', 'no']", "Label: YES.", "yes", False),
    ("label: Literal['yes', 'no']", "'no'\nbecause of that", "no", False),
    ("label: Literal['yes', 'no']", "I think no, not yes", "no", True),
    ("label: Literal['not_urgent', 'urgent']", "This is not urgent", "not_urgent", True),
    ("grade: Literal['A', 'A+', 'A-']", "A-", "A-", False),
    ("sign: Literal[-1, 0, 1]", "Rating: 1", 1, True),
    ("sign: Literal[-1, 0, 1]", "Rating: -1", -1, True),
    ("sign: Literal[-1, 0, 1]", "\u22121", -1, False),
    ("op: Literal['+', '-', '*', '/']", "*", "*", False),
    ("ok: bool", "True.", True, False),
    ("ok: bool", "no", False, False),
    ("n: int", "1,234", 1234, False),
    ("n: int", "12345678901234567890", 12345678901234567890, False),
    ("n: int", "3 plus 4 is 7.", 7, True),
    ("n: int", "\u22125", -5, False),
    ("n: int", "3.0", 3, False),
    ("x: float", ".5", 0.5, False),
    ("x: float", "-.5", -0.5, False),
    ("x: float", "$1,234.50", 1234.5, False),
    ("x: float", "1e-3", 0.001, False),
    ("items: list[str]", '["a", "b"]', ["a", "b"], False),
    ("items: list[int]", "```json\n[1, 2]\n```", [1, 2], True),
    ("items: list[int]", "1, 2", [1, 2], True),
    ("items: list[str]", "- a\n- b", ["a", "b"], True),
    ("items: list", "a, b", ["a", "b"], True),
    ("map: dict[str, int]", 'Here: {"x": 1}', {"x": 1}, True),
    ("maybe: Optional[int]", "5", 5, False),
    ("maybe: Optional[int]", "None", None, False),
    ("free: str", "Free: as it  is", "as it  is", False),
]


def test_each_type_is_read(subtests: pytest.Subtests) -> None:
    for output, answer, value, loose in READ:
        with subtests.test(output=output):
            values, read = answers.parse(parse_signature(f"text -> {output}"), answer)
            got = values[output.split(":")[0]]
            assert (got, type(got), read) == (value, type(value), loose)


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("label: Literal['yes', 'no']", "maybe"),
        ("label: Literal['yes', 'no']", "yesterday, nobody"),
        ("bit: Literal[0, 1]", "It is 0.5"),
        ("n: int", "none"),
        ("n: int", "3.5"),
        ("n: int", "1e400"),
        ("x: float", "1e400"),
        ("x: float", "nan"),
        ("items: list[int]", "one, two"),
        ("map: dict[str, int]", "x is 1"),
        ("maybe: Optional[int]", "many"),
        ("a: int, b", "3"),
    ],
)
def test_what_is_not_of_the_type_is_unparsed(output: str, answer: str) -> None:
    with pytest.raises(NodeError) as caught:
        answers.parse(parse_signature(f"text -> {output}"), answer)
    assert caught.value.kind == "unparsed"


@pytest.mark.parametrize("answer", ["first words\nn: 3\nlabel: no", "first words\nlabel: no\nN : 3"])
def test_several_outputs_stand_on_lines_of_their_own_in_any_order(answer: str) -> None:
    signature = parse_signature("text -> free, n: int, label: Literal['yes', 'no']")
    assert answers.parse(signature, answer) == ({"free": "first words", "n": 3, "label": "no"}, False)
    reversed_ = parse_signature("text -> a: int, b: int")
    assert answers.parse(reversed_, "b: 2\na: 1") == ({"a": 1, "b": 2}, False)


@pytest.mark.parametrize(
    ("output", "answer", "value"),
    [
        ("label: Literal['yes', 'no']", "yes", "yes"),
        ("label: Literal['no', 'no answer']", "no", None),
        ("label: Literal['no', 'no answer']", "no answer", "no answer"),
        ("n: int", "12", None),
        ("n: int", "12 apples and", 12),
        ("ok: bool", "true", True),
        ("free", "some wor", None),
        ("free, n: int", "words\nn: 7 or", 7),
    ],
)
def test_a_cut_answer_counts_only_where_its_value_is_surely_whole(output: str, answer: str, value: Any) -> None:
    signature = parse_signature(f"text -> {output}")
    if value is None:
        with pytest.raises(NodeError) as caught:
            answers.parse(signature, answer, cut=True)
        assert caught.value.kind == "cut"
    else:
        assert answers.parse(signature, answer, cut=True)[0][signature.outputs[-1].name] == value


@pytest.mark.parametrize("text", ["yes", "a\nb: c", "ü 漢 {x}", "[1", "-"])
def test_a_rendered_demo_is_read_back(text: str) -> None:
    signature = parse_signature("q -> free, n: int, items: list[str], ok: bool")
    values = {"free": text, "n": -3, "items": ["x", "y, z"], "ok": False}
    assert answers.parse(signature, plain.assistant_text(signature, values)) == (values, False)
