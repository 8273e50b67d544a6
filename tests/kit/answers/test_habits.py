"""Habits of models that no user has reported yet: one answer each, with the value that a careful reader takes from it.

Each was written down before it was read. A refusal is right where a reader could not be certain, either.
"""

from __future__ import annotations

from typing import Any

import pytest

from workbench.errors import NodeError
from workbench.kit.answers import parse
from workbench.lm import split_thoughts
from workbench.workflow import parse_signature

CASE, LETTERS = "t -> label: Literal['billing', 'technical']", "q -> answer: Literal['A', 'B', 'C', 'D']"
SENTIMENT = "t -> label: Literal['positive', 'negative', 'neutral']"
TRUTH, FLOAT, INT, TAGS = "t -> a: bool", "t -> answer: float", "t -> answer: int", "t -> tags: list[str]"
PERSON, PEOPLE = "t -> o: {name: str, age: Optional[int]}", "t -> people: list[{name: str, age: Optional[int]}]"
NUMBERS, COUNTS, TWO = "t -> n: list[int]", "t -> d: dict[str, int]", "t -> answer, sure: float"
ANNA, BOB = {"name": "Anna", "age": 3}, {"name": "Bob", "age": None}

#: Signature, answer, value of the last output; None: refused.
READ: list[tuple[str, str, Any]] = [
    # a value behind its label, and more below it
    (INT, "answer: 42\n\nExplanation: 12 boxes of 3 hold 36, and 6 more make 42; in 1999 there were 7.", 42),
    (CASE, "label: technical\nreason: not about billing, although billing is mentioned", "technical"),
    (FLOAT, "**Answer:** 3.75 km\n\n*Note:* 1 mile is 1.609 km.", 3.75),
    (INT, "Answer: 1,250 (= 5 × 250)", 1250),
    (INT, "Final answer: \\( \\boxed{1{,}250} \\)", 1250),
    (FLOAT, "The probability is \\(\\frac{3}{8}\\).", 0.375),
    (FLOAT, "$$x = -2.5$$", -2.5),
    (INT, "So the result is $\\boxed{-17}$.", -17),
    (FLOAT, "≈ 2.718", 2.718),
    (FLOAT, "about 20 °C", 20.0),
    (FLOAT, "Der Preis beträgt 1.299,90 Euro.", 1299.9),
    (INT, "Il y a 12 000 habitants.", 12000),
    (INT, "合計は1,234円です。", 1234),
    (INT, "Ответ: 15", 15),
    (INT, "Step 1: 2 + 3 = 5\nStep 2: 5 × 4 = 20\n\n**20**", 20),
    (INT, "I counted three of them.", None),
    # choices
    (CASE, "| label | technical |", "technical"),
    (CASE, "<think>\nbilling or technical...\n</think>\n\n**Label:** *technical*", "technical"),
    (CASE, "Category → technical", "technical"),
    (CASE, "`technical`", "technical"),
    (CASE, "This doesn't look like billing to me; I'd call it technical.", "technical"),
    (CASE, "At first glance it is billing, but on a closer look it is technical.", None),
    (CASE, "Neither: it is spam.", None),
    (LETTERS, "(B)", "B"),
    (LETTERS, "**B)** 42", "B"),
    (LETTERS, "The correct option is: C) Rome", "C"),
    (LETTERS, "Die richtige Antwort ist B.", "B"),
    (LETTERS, "La bonne réponse est la D.", "D"),
    (LETTERS, "Option A is wrong, option B is right.", "B"),
    (SENTIMENT, "Sentiment: Negative 😞", "negative"),
    (SENTIMENT, "Neither positive nor negative, so neutral.", "neutral"),
    (SENTIMENT, "The text isn't negative at all. It's positive.", "positive"),
    (TRUTH, "**True**", True),
    (TRUTH, "Yes — the contract allows it.", True),
    (TRUTH, "Answer: No. The statement is not supported.", False),
    (TRUTH, "false, since 7 is prime", False),
    (TRUTH, "Non, ce n'est pas vrai.", False),
    # lists, objects and several outputs
    (TAGS, "Tags:\n* red\n* green", ["red", "green"]),
    (TAGS, "red, green and blue", ["red", "green", "blue"]),
    (TAGS, "1) red\n2) green", ["red", "green"]),
    (TAGS, "red, green, and blue.", ["red", "green", "blue"]),
    (TAGS, "```json\n[\n  \"red\", // first\n  'green',\n]\n```", ["red", "green"]),
    (TAGS, '{"tags": "red, green"}', ["red", "green"]),
    (TAGS, "- **red**: a colour\n- **green**: another", ["**red**: a colour", "**green**: another"]),
    (NUMBERS, "[1, 2, 3] (sorted)", [1, 2, 3]),
    (NUMBERS, '["1", "2"]', [1, 2]),
    (NUMBERS, "1\n2\n3", [1, 2, 3]),
    (COUNTS, "a: 1\nb: 2", {"a": 1, "b": 2}),
    (COUNTS, "- a: 1\n- b: 2", {"a": 1, "b": 2}),
    (COUNTS, '{"a": "1,000", "b": 2}', {"a": 1000, "b": 2}),
    (PERSON, '<think>{\'name\': \'x\'}</think>Here you go:\n```json\n{"name": "Anna", "age": "3 years"}\n```', ANNA),
    (PERSON, "**Name:** Anna\n**Age:** 3", ANNA),
    (PERSON, "| name | age |\n|---|---|\n| Anna | 3 |", ANNA),
    (PEOPLE, "{'name': 'Anna', 'age': 3}\n{'name': 'Bob', 'age': None}", [ANNA, BOB]),
    (PEOPLE, '{"people": [{"name": "Anna", "age": 3}, {"name": "Bob", "age": null}]}', [ANNA, BOB]),
    (PEOPLE, "| name | age |\n|---|---|\n| Anna | 3 |\n| Bob | |", [ANNA, BOB]),
    (PEOPLE, '[{"name": "Anna", "age": 3,}, {"name": "Bob"}]', [ANNA, {"name": "Bob"}]),
    (TWO, "answer: Paris\nsure: 90%", 90.0),  # as everywhere: only the metric reads percent, where it is told to
    (TWO, "| answer | sure |\n|---|---|\n| Paris | 0.9 |", 0.9),
    (TWO, "{'answer': 'Paris', 'sure': 0.9,}", 0.9),
    (TWO, "<answer>Paris</answer>\n<sure>0.9</sure>", 0.9),
    ("t -> answer: float | None", "N/A", None),
    # a second list
    (INT, "42\n\nExplanation: so the total is 36 plus 6.", 42),
    (INT, "12\nWait, the answer is 14.", 14),
    (INT, "12\n\nWait, the answer is 14.", 14),
    (INT, "12\n\nActually I counted wrong. The total is 14", 14),
    (INT, "First I get 10.\n\nThen I add 5.\n\nFinal: 15", 15),
    (FLOAT, "x ≈ 3.14 (rounded to 2 decimals)", 3.14),
    (FLOAT, "$1.5 billion", 1.5e9),
    (FLOAT, "-12.5%", -12.5),
    (FLOAT, "−4", -4.0),
    (INT, "١٢", 12),
    (INT, "**Answer:** 5 apples\n\n**Check:** 2 + 3 = 5", 5),
    (INT, "The answer isn't 12; it's 15.", 15),
    (INT, "Between 3 and 5, so 4.", 4),
    (INT, "Antwort: 7 Äpfel", 7),
    (INT, "x = 4 or x = -4", None),
    (INT, "Unknown", None),
    (CASE, "Class: **technical** (confidence: 95%)", "technical"),
    (CASE, "1. technical", "technical"),
    (CASE, 'I would label this ticket as "technical".', "technical"),
    (CASE, "Label = technical", "technical"),
    (CASE, "technical (not billing)", "technical"),
    (CASE, "Technical issue", "technical"),
    (CASE, "分类：technical", "technical"),
    (CASE, "El ticket es técnico: technical, no billing.", "technical"),
    (CASE, "I cannot decide between billing and technical.", None),
    (CASE, "It's not technical, it's not billing.", None),
    (LETTERS, "Answer: **C**", "C"),
    (LETTERS, "C", "C"),
    (LETTERS, "Let's see. A: no. B: no. C: yes. D: no.", None),
    (LETTERS, "Therefore, the answer is (D) 42.", "D"),
    (LETTERS, "I'm going with option B because A contradicts it.", "B"),
    (LETTERS, "答案：B", "B"),
    (LETTERS, "[[A]]", "A"),
    (LETTERS, "A is not correct. B is not correct. Thus C.", "C"),
    (LETTERS, "The answer is A. Actually, no: the answer is B.", "B"),
    (TRUTH, "Not true", None),
    (TRUTH, "The claim is false.", False),
    (TRUTH, "✅ Yes", True),
    (TRUTH, "it is correct, yes", True),
    (TRUTH, "不是", False),
    (TAGS, "red", ["red"]),
    (TAGS, "The tags are: red, green", ["red", "green"]),
    (TAGS, "• red\n• green", ["red", "green"]),
    (TAGS, '<think>red?</think>["red"]', ["red"]),
    (TAGS, "red; green; blue", ["red", "green", "blue"]),
    (TAGS, "- red\n  - dark red\n- green", ["red", "dark red", "green"]),
    (TAGS, "There are no tags.", []),
    ("t -> tags: list[Literal['a', 'b']]", "- a\n- b", ["a", "b"]),
    ("t -> tags: list[Literal['a', 'b']]", "a and b", ["a", "b"]),
    ("t -> n: list[float]", "| n |\n|---|\n| 1.5 |\n| 2 |", [1.5, 2.0]),
    (PERSON, "Name: Anna, Age: 3", {"name": "Anna", "age": 3}),
    (PERSON, 'name="Anna"\nage=unknown', {"name": "Anna", "age": None}),
    (PERSON, '{"name": "Anna", "age": 3', {"name": "Anna", "age": 3}),
    ("t -> o: {name: str, ok: bool}", '{"name": "Anna", "ok": "yes"}', {"name": "Anna", "ok": True}),
    (
        "t -> d: dict[str, float]",
        "| item | price |\n|---|---|\n| tea | 3.5 |\n| milk | 1,5 |",
        {"tea": 3.5, "milk": 1.5},
    ),
    ("t -> answer, label: Literal['a', 'b']", "It rained.\n\nlabel: b", "b"),
    ("t -> reason, label: Literal['a', 'b']", "**Reason**: not a\n\n**Label**: b", "b"),
    ("t -> reason, n: int", "reason: two and two\nn: 4 (four)", 4),
    ("q -> answer", "<answer>Paris</answer>", "Paris"),
    ("q -> answer", "Answer: Paris", "Paris"),
    ("q -> answer", "**Answer:**\n\nParis", "Paris"),
    ("q -> answer", "```\nParis\n```", "```\nParis\n```"),
    (INT, "either 4 or 5", None),
    (INT, "5 + 3 (= 8)", 8),
]


@pytest.mark.parametrize(("signature", "answer", "value"), READ, ids=[f"sibling-{r[1][:50]}" for r in READ])
def test_a_habit_is_read_as_a_careful_reader_does(signature: str, answer: str, value: Any) -> None:
    fields, said = parse_signature(signature), split_thoughts(answer)[1]
    if value is None and "None" not in signature:
        with pytest.raises(NodeError) as caught:
            parse(fields, said)
        assert caught.value.kind == "unparsed"
    else:
        found = parse(fields, said)[0][fields.outputs[-1].name]
        assert (found, type(found)) == (value, type(value))
