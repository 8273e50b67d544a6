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
