"""The same row in another run: whatever inputs a file names, a row is known by its own text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.mails import mails

from workbench.task import Example, describe_rows, match_rows
from workbench.task.copies import Copies, RowRule, find_rule

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


def described(rows: Sequence[Example], rule: RowRule) -> list[tuple[str, dict[str, Any]]]:
    return describe_rows(rows, ["Subject", "Body"], rule)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from("ab")), min_size=9, max_size=40),
    st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_no_sealed_row_that_the_splits_kept_counts_as_seen(kinds: list[tuple[int, int, str]], seed: int) -> None:
    pool = mails(24, seed)
    rows = [
        Example(str(number), {"Subject": pool[a]["Subject"], "Body": pool[2 * b]["Body"], "label": label})
        for number, (a, b, label) in enumerate(kinds)
    ]
    rule = find_rule(rows, ["Subject", "Body"], "label")
    third = len(rows) // 3
    seen, test = rows[:-third], rows[-third:]
    copies = Copies([("val", row) for row in seen], rule)
    kept = [row for row in test if copies.find(row) is None]
    assert match_rows(described(kept, rule), described(seen, rule)) == {}
    left_out = [row for row in test if row not in kept]
    matched = match_rows(described(left_out, rule), described(seen, rule))
    assert {key for key, _ in described(left_out, rule)} == {*matched.values()}, "and what they left out does"
