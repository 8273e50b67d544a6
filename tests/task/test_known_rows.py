"""The same row in another run: whatever inputs a file names, a row is known by its own text."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.task import Example, describe_rows, match_rows

TEXTS = [
    "the parcel that I ordered two weeks ago has not come and nobody answers my mails",
    "my last invoice shows a charge for a product that I sent back to you in spring",
    "since the update the app closes by itself as soon as I open the settings page",
    "where can I change the address to which you send the next delivery of my plan",
]


def rows(*changes: Any, **more: Any) -> list[Example]:
    """The texts, changed by functions, with further fields."""
    made = []
    for i, text in enumerate(TEXTS):
        for change in changes:
            text = change(text)
        made.append(Example(str(i), {"text": text, "label": "ab"[i % 2], **{k: v(i) for k, v in more.items()}}))
    return made


def matched(now: list[Example], inputs: list[str], before: list[Example], inputs_before: list[str]) -> int:
    """How many of the rows are known from before."""
    described = describe_rows(now, inputs)
    return len({*match_rows(described, describe_rows(before, inputs_before)).values()} & {key for key, _ in described})


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.upper() + "!",
        lambda t: t.replace(" the ", " that ", 1),
        lambda t: f"please {t}",
        lambda t: t[:9] + "\u200b" + t[9:],
        lambda t: t.replace("a", "а", 1),
    ],
)
def test_an_edited_row_is_the_same_row(change: Any) -> None:
    assert matched(rows(change), ["text"], rows(), ["text"]) == 4


def test_another_input_makes_no_other_row() -> None:
    constant, nonce = rows(lang=lambda i: "en"), rows(note=lambda i: f"note number {i * 37} for the record")
    assert matched(constant, ["text", "lang"], rows(), ["text"]) == 4
    assert matched(rows(), ["text"], constant, ["text", "lang"]) == 4
    assert matched(nonce, ["text", "note"], rows(), ["text"]) == 4
    other = rows(note=lambda i: f"quite another remark, the {i}th of them all")
    assert matched(nonce, ["text", "note"], other, ["text", "note"]) == 4
    renamed = [Example(row.id, {"message": row["text"], "label": row["label"]}) for row in rows()]
    assert matched(renamed, ["message"], rows(), ["text"]) == 4


def test_a_row_is_known_by_a_text_that_was_no_input() -> None:
    """A first run reads the summaries of the rows, and a second one their texts."""
    both = rows(summary=lambda i: f"a customer writes about {TEXTS[i].split()[1]} {TEXTS[i].split()[-1]} and more")
    assert matched(both, ["text"], both, ["summary"]) == 4


def test_other_rows_are_other_rows() -> None:
    others = [Example(str(i), {"text": " ".join(reversed(text.split()))}) for i, text in enumerate(TEXTS)]
    assert matched(others, ["text"], rows(), ["text"]) == 0
    passage = "word " * 60
    now = [Example(str(i), {"context": passage, "question": f"which {w} is meant here"}) for i, w in enumerate("abcd")]
    before = [
        Example(str(i), {"context": passage, "question": f"which {w} is meant here"}) for i, w in enumerate("wxyz")
    ]
    assert matched(now, ["context", "question"], before, ["context", "question"]) == 0, "other questions on one passage"
    assert matched(now, ["context", "question"], now, ["context", "question"]) == 4


@pytest.mark.parametrize(
    "wrapped",
    [lambda t: f"Classify this ticket: {t}", lambda t: f"1. {t} Answer with one of the words billing, app or other.",
     lambda t: " ".join(t.split()[:10]), lambda t: f"<p>{t}</p>"],
)  # fmt: skip
def test_a_row_in_a_template_is_the_same_row(wrapped: Any) -> None:
    assert matched(rows(wrapped), ["text"], rows(), ["text"]) == 4
