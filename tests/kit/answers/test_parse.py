"""Answers as real models give them, by the numbers of the faults that users reported. Siblings stand beside them."""

from __future__ import annotations

from typing import Any, Literal, get_args

import pytest
from hypothesis import example, given, strategies as st

from workbench.errors import NodeError
from workbench.lm import Response, split_thoughts
from workbench.workflow import Field, parse_signature
from workbench_kit.answers import convert, parse

CASE, AB, ABCD = "t -> label: Literal['billing', 'technical']", "q -> x, label: Literal['a', 'b']", "ABCD"
LETTERS = "q -> answer: Literal['A', 'B', 'C', 'D']"
YES_NO = "q -> answer: Literal['yes', 'no']"
PERSON = "t -> o: {name: str, age: Optional[int]}"

#: Number of the fault, signature, answer, value of the last output; None: refused.
READ: list[tuple[str, str, str, Any]] = [
    ("A1", CASE, "<think>\nIs it billing or technical? Let me see.\n</think>\n\ntechnical", "technical"),
    ("A1", CASE, "<think>billing? no.</think>technical", "technical"),
    ("A1", PERSON, '<think>{"name":"B"}</think>{"name": "A", "age": 3}', {"name": "A", "age": 3}),
    ("A1", CASE, "billing? no, it fails to start.</think>technical", "technical"),
    ("A1", CASE, "<think>billing</think>\n<think>no</think>\ntechnical", "technical"),
    ("A1", CASE, "[THINK]billing[/THINK]technical", "technical"),
    ("A1", CASE, "◁think▷billing◁/think▷technical", "technical"),
    (
        "A1",
        CASE,
        "<|channel|>analysis<|message|>billing?<|end|><|start|>assistant<|channel|>final<|message|>technical<|return|>",
        "technical",
    ),
    ("A1", CASE, "Here is my thought process: billing?\nHere is my response: technical", "technical"),
    ("A1", CASE, "<|START_THINKING|>billing<|END_THINKING|><|START_RESPONSE|>technical<|END_RESPONSE|>", "technical"),
    ("A1", "q -> answer", "Text says `</think>` ends thoughts.", "Text says `</think>` ends thoughts."),
    ("A2", CASE, "\n\ntechnical", "technical"),
    ("L1", LETTERS, "The colour is a shade of red, so the last line is\nANSWER: B", "B"),
    ("L1", LETTERS, "Answer: A\nI must correct this.\nAnswer: B", "B"),
    ("L1", LETTERS, "A customer writes that it broke.", None),
    ("L1", LETTERS, "B. Paris", "B"),
    ("L1", LETTERS, "The answer is B because A is wrong.", "B"),
    ("L1", LETTERS, "Option C is correct.", "C"),
    ("L1", LETTERS, "So \\boxed{\\text{D}}.", "D"),
    ("L1", LETTERS, "<answer>C</answer>", "C"),
    ("L2", AB, "a is tempting but no. label: b", "b"),
    ("L2", AB, "Let me compare a and b. The answer is b.", "b"),
    ("L2", CASE, "billing is wrong; the answer is technical", "technical"),
    ("L2", YES_NO, "There is no doubt: yes", "yes"),
    ("L2", CASE, "It is not billing but technical", "technical"),
    ("L2", CASE, "This is not a billing issue. It is technical.", "technical"),
    ("L2", CASE, "Is it billing or technical? technical", "technical"),
    ("L2", CASE, "Options: billing, technical. I pick technical.", "technical"),
    ("L2", CASE, "technical rather than billing", "technical"),
    ("L2", CASE, "technical\n\nExplanation: it mentions billing as well", "technical"),
    ("L2", CASE, "First I thought of billing.\ntechnical", "technical"),
    ("L2", CASE, "billing\ntechnical", None),
    ("L2", CASE, "It could be billing or technical.", None),
    ("L2", CASE, "billing, technical", None),
    ("L2", CASE, "Not billing.", None),
    ("L2", CASE, "Neither billing nor technical.", None),
    ("L2", "t -> label: Literal['spam', 'not spam']", "This is not spam.", "not spam"),
    ("L2", "t -> label: Literal['positive', 'negative']", "not very positive", None),
    ("L3", "t -> answer: bool", "No, it is not true", False),
    ("L3", "t -> answer: bool", "It is not true", None),
    ("L3", "t -> answer: bool", "No doubt it is true", True),
    ("L3", "t -> answer: bool", "Ja", True),
    ("L3", YES_NO, "No problem with that", None),
    ("L4", "t -> label: Literal['正面', '负面']", "这是负面的评论", "负面"),
    ("L4", "t -> label: Literal['正面', '负面']", "不是正面，是负面", "负面"),
    ("L4", "t -> label: Literal['Äpfel', 'Birnen']", "ÄPFEL", "Äpfel"),
    ("L5", "t -> answer, confidence: float", "**answer:** Paris\n**confidence:** 0.9", 0.9),
    ("L5", "t -> first_name, last_name", "First Name: Ada\nLast Name: Lovelace", "Lovelace"),
    ("L5", "t -> summary, label: Literal['a', 'b']", "## Summary\nIt is so.\n## Label\nb", "b"),
    ("L5", "t -> a: int, b: int", "<a>3</a><b>4</b>", 4),
    ("L6", "t -> answer, confidence: float", '{"answer": "Paris", "confidence": 0.9}', 0.9),
    ("L6", "t -> a: int, b: int", 'Sure!\n```json\n{"A": 3, "b": "4"}\n```\nDone', 4),
    ("L6", "q -> answer", '```json\n{"answer": "Paris"}\n```', "Paris"),
    ("N", "t -> answer: int", "We add 7 apples. The answer is 42, found in 3 steps.", 42),
    ("N", "t -> answer: int", "\\boxed{7} after 3 steps of 2", 7),
    ("N", "t -> answer: int", "The total is 12 (4 boxes of 3).", 12),
    ("N1", "t -> answer: float", "3,5", 3.5),
    ("N1", "t -> answer: float", "0,5", 0.5),
    ("N1", "t -> answer: float", "1.234,56 €", 1234.56),
    ("N1", "t -> answer: float", "1'234.5", 1234.5),
    ("N1", "t -> answer: int", "12,34,567", 1234567),
    ("N2", "t -> answer: int", "Step 1: 3\nStep 2: 4\nanswer: 7 (in 2 steps)", 7),
    ("N2", "t -> answer: int", "42 apples, which took 3 steps.", 42),
    ("N2", "t -> answer: int", "42. It took 3 steps.", 42),
    ("N2", "t -> answer: int", "16 eggs a day. She eats 3 and bakes with 4, so she has 9 left.", 9),
    ("N2", "t -> answer: int", "The total is 3 + 4 = 7 apples", 7),
    ("N2", "t -> answer: int", "So 12.\n#### 1,234", 1234),
    ("N3", "t -> answer: float", "1/2", 0.5),
    ("N3", "t -> answer: float", "\\frac{1}{2}", 0.5),
    ("N3", "t -> answer: float", "1½", 1.5),
    ("N3", "t -> answer: float", "3 × 10⁵", 300000.0),
    ("N3", "t -> answer: float", "3.5 million people", 3500000.0),
    ("S1", "t -> tags: list[str]", "['a', 'b']", ["a", "b"]),
    ("S1", "t -> tags: list[str]", '["a", "b",]', ["a", "b"]),
    ("S1", "t -> d: dict[str, int]", "{'a': 1}", {"a": 1}),
    ("S2", "t -> o: {name: str}", '{"name": "A"}\n\nNote: [1] source', {"name": "A"}),
    ("S2", "t -> o: {name: str}", 'As in [1]: {"name": "A"} (see {2})', {"name": "A"}),
    ("S3", PERSON, '{"o": {"name": "A", "age": 3}}', {"name": "A", "age": 3}),
    ("S3", PERSON, '{"name": "A", "age": "null"}', {"name": "A", "age": None}),
    ("S3", PERSON, '{"name": "A", "age": ""}', {"name": "A", "age": None}),
    ("S3", PERSON, '{"name": "A", "age": "about 1,200"}', {"name": "A", "age": 1200}),
    ("S3", PERSON, "name: A\nage: 3", {"name": "A", "age": 3}),
    ("S4", "t -> a: Optional[int]", "The number is 5", 5),
    ("S4", "t -> a: Optional[int]", "1,234", 1234),
    ("S4", "t -> a: Optional[Literal['a', 'b']]", "The answer is b.", "b"),
    ("S4", "t -> a: list[float]", "- 3,5\n- 1.234,5", [3.5, 1234.5]),
    ("S4", "t -> a: int | str", "seven", "seven"),
    ("S5", "t -> tags: list[str]", "1. New York, NY\n2. Paris, France", ["New York, NY", "Paris, France"]),
    ("S5", "t -> tags: list[str]", "none", []),
]


def test_an_answer_is_read_as_it_is_meant(subtests: pytest.Subtests) -> None:
    for number, signature, answer, value in READ:
        with subtests.test(number=number):
            said, fields = split_thoughts(answer)[1], parse_signature(signature)
            if value is None:
                with pytest.raises(NodeError) as caught:
                    parse(fields, said)
                assert caught.value.kind == "unparsed", number
            else:
                found = parse(fields, said)[0][fields.outputs[-1].name]
                assert (found, type(found)) == (value, type(value)), number


def test_all_outputs_are_read_off_their_labels() -> None:
    fields = parse_signature("t -> answer, confidence: float")
    for answer in ("**answer:** Paris\n**confidence:** 0.9", '{"answer": "Paris", "confidence": 0.9}'):
        assert parse(fields, answer) == ({"answer": "Paris", "confidence": 0.9}, False)


def test_a3_thoughts_that_are_cut_leave_a_cut_answer_and_not_an_empty_one() -> None:
    cut = Response("<think>hm, is it", "length").without_thoughts()
    assert (cut.text, cut.thoughts, cut.finish) == ("", "hm, is it", "length")
    assert Response("<think>hm</think>", "stop").without_thoughts().finish == "empty"
    assert Response("plain").without_thoughts() == Response("plain")


VALUES = Literal["billing", "technical", "yes", "no"]
WORDS = st.sampled_from(
    [*get_args(VALUES), "not", "is", "it", "label", ":", ".", ",", "?", "\n", "or", "1,5", "{", "[", "'"]
)


@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=12).map(" ".join)))
@example("<think>" * 3 + "</think>")
@example("\\boxed{" * 30)
def test_no_answer_is_more_than_refused(text: str) -> None:
    for kind in (VALUES, bool, int, float, list[int], dict[str, int], VALUES | None, str):
        try:
            convert(Field("label", kind, get_args(VALUES) if kind is VALUES else ()), text)
        except NodeError as error:
            assert error.kind == "unparsed"


@given(st.sampled_from(["{}", "It is {}.", "The label is {}.", "I think {}", "{} because of that", "Label: {}"]))
def test_what_an_answer_denies_is_not_its_label(form: str) -> None:
    field = Field("label", VALUES, get_args(VALUES))
    assert convert(field, form.format("technical"))[0] == "technical"
    with pytest.raises(NodeError):
        convert(field, form.format("not technical"))


@pytest.mark.parametrize("kind", ["int", "float", "bool", "Literal['yes', 'no']", "list[int]", "{n: int}"])
def test_a_cut_answer_that_holds_no_value_is_cut(kind: str) -> None:
    with pytest.raises(NodeError) as caught:
        parse(parse_signature(f"t -> a: {kind}"), "Let me think step by step about", cut=True)
    assert caught.value.kind == "cut" and "cut at max_tokens" in str(caught.value)
