"""What readers once took for granted too soon: names of grades that are words, faults that pass, tokens that count."""

from __future__ import annotations

import datetime
import time
from decimal import Decimal
from typing import Any, Literal

import pytest

from workbench.errors import NodeError
from workbench.workflow import Field, parse_signature
from workbench_kit.answers import Scale, as_text, convert, parse, read_grade
from workbench_kit.wire import kind_of_error, read_usage, refused_setting


@pytest.mark.parametrize(
    ("text", "best", "share"),
    [
        ("Note: 5 words\nI give it 4/5", 5, 0.8),
        ("Note: 4", 5, 0.8),
        ("Score: 4/5\nScore: 2", 5, 0.4),
        ("4/5 correct. Final: 2/10", 5, 0.2),
        ("8/10 because of 3/4", 10, 0.8),
    ],
)
def test_the_last_grade_counts_and_a_word_is_none(text: str, best: int, share: float) -> None:
    found = read_grade(text, best)
    assert found is not None and found[0] == share


@pytest.mark.parametrize("text", ["Clarity: 3/10, Depth: 8/10", "**Clarity**: 3/10\n**Depth**: 8/10"])
def test_of_several_grades_none_is_the_whole(text: str) -> None:
    assert read_grade(text, 10) is None
    for label in ("Total", "Final mark", "Overall quality", "Gesamtnote", "Note finale ", "总分", "Итог", "Conclusion"):
        for said in (f"{text}\n{label}: 5/10", f"{label}: 5/10\n{text}"):
            whole = read_grade(said, 10)
            assert whole is not None and whole[0] == 0.5, said


def test_a_grade_counts_on_the_scale_that_was_asked_for(subtests: pytest.Subtests) -> None:
    """A share where whole numbers were asked for would be a tenth of what is meant (contact.md J1)."""
    for text, best, share in [
        ("Good.\nscore: 0.9", 10, None),
        ('{"score": 0.95, "reason": "good"}', 10, None),
        ("score: 0,9", 10, None),
        ("score: 1.0", 5, None),
        ('{"score": 0.5}', 5, None),
        ('{"score": 0.5, "max": 5}', 5, 0.1),
        ("score: 1.0/5", 5, 0.2),
        ("score: 0.5%", 100, 0.005),
        ("score: 85", 10, None),
        ("score: 0.9", 1, 0.9),
        ("score: 0.9/1", 10, 0.9),
        ("score: 90%", 10, 0.9),
        ("score: 0", 10, 0.0),
        ("score: 0.0", 10, 0.0),
        ("score: 7.5", 10, 0.75),
        ("score: 3", Scale(1, 5), 0.5),
        ("score: 1", Scale(1, 5), 0.0),
        ("score: 1.0", Scale(1, 5), 0.0),
        ('{"score": 1.0}', Scale(1, 5), 0.0),
        ("score: 2.0", Scale(1, 5), 0.25),
        ("score: 0.9", Scale(1, 5), None),
        ("score: 5/5", Scale(1, 5), 1.0),
        ("score: 0", Scale(1, 5), None),
        ('{"score": 1, "max": 5}', Scale(1, 5), 0.0),
        ('{"score": 3, "max": 5}', Scale(1, 5), 0.5),
        ('{"score": 3, "max": 10}', Scale(1, 5), 0.3),
        ('{"score": 3, "range": [0, 5]}', Scale(1, 5), 0.6),
        ("Score (out of 5): 1", Scale(1, 5), 0.0),
        ("score: 0.5", Scale(0, 1), 0.5),
        ('{"score": 4, "max_score": 5}', 10, 0.8),
        ('{"score": 4, "scale": "1-5"}', 10, 0.75),
        ('{"score": 0.9, "out_of": 1}', 10, 0.9),
        ('{"score": 80, "range": [0, 100]}', 10, 0.8),
        ('{"score": {"value": 8}, "reason": "good"}', 10, 0.8),
        ('{"score": {"value": 4, "max": 5}}', 10, 0.8),
        ("Score (out of 5): 4", 10, 0.8),
        ("Score (0-1): 0.9", 10, 0.9),
        ("score: 4 stars out of 5", 10, 0.8),
        ("score: 87.5%", 10, 0.875),
        ("score: 7.5%", 10, 0.075),
        ('{"points": 8, "total": 10}', 10, 0.8),
        ('{"correct": 3, "total": 5}', 10, 0.6),
        ('{"passed": 3, "failed": 2, "total": 5}', 10, 0.6),
        ('{"score": 3, "total": 5}', 10, 0.6),
        ('{"score": 8, "correct": 4, "total": 5}', 10, 0.8),
        ('{"overall": 7, "correct": 4, "total": 5}', 10, 0.7),
        ('{"correct": true, "total": 7}', 10, 0.7),
        ('{"score": 4, "min": 1, "max": 5}', 10, 0.75),
        ('{"result": {"score": 4}, "max_score": 5}', 10, 0.8),
        ('{"max_score": 100, "result": {"correct": 3, "total": 5}}', 10, 0.6),
        ("On a scale of 1 to 5, score: 4", 10, 0.75),
        ("score: 9e-1", 10, None),
        ("score: 8\u200b", 10, 0.8),
        ('{"clarity": 3, "depth": 4, "total": 7}', 10, 0.7),
    ]:
        with subtests.test(text=text, best=best):
            assert (read_grade(text, best) or (None,))[0] == share


def test_grades_of_criteria_are_none_without_one_of_the_whole(subtests: pytest.Subtests) -> None:
    parts = ['{"clarity": {"score": 3}, "depth": {"score": 8}}', '{"scores": {"a": {"rating": 3}, "b": {"rating": 8}}}']
    parts += [
        '[{"criterion": "clarity", "score": 3}, {"criterion": "depth", "score": 8}]',
        '[{"score": 3}, {"score": 8}]',
        '{"clarity": {"score": {"value": 3}}, "depth": {"score": {"value": 8}}}',
        '- clarity: {"score": 3}\n- depth: {"score": 8}',
        '{"criterion": "clarity", "score": 3}\n{"criterion": "depth", "score": 8}',
        "Clarity score: 3\nDepth score: 8",
        "clarity score: 3, depth score: 8",
        "### Clarity\nscore: 3\n\n### Depth\nscore: 8",
        "1. Clarity\nScore: 3\n2. Depth\nScore: 8",
        "| Clarity | 3/10 |\n| Depth | 8/10 |",
        "<clarity><score>3</score></clarity><depth><score>8</score></depth>",
        "The clarity is 3/10 while depth is 8/10",
        "I give 3/10 for clarity and 8/10 for depth.",
        "Clarity (3/10): fine. Depth (8/10): good.",
        "1. Clarity - 3/10\n2. Depth - 8/10",
        "3/10 (clarity), 8/10 (depth)",
        "score: 3 (clarity)\nscore: 8 (depth)",
        "Score for clarity: 3. Score for depth: 8.",
    ]
    for text in parts:
        with subtests.test(text=text):
            assert read_grade(text, 10) is None
            assert (read_grade(f"{text}\nOverall: 7/10", 10) or (None,))[0] == 0.7
    for text in [
        '{"clarity": {"score": 3}, "overall": {"score": 7}}',
        '{"clarity": {"score": 3}, "overall": 7}',
        '{"clarity": {"value": 3}, "overall": {"value": 7}}',
        '{"score": 7, "criteria": {"clarity": {"score": 3}}}',
        '[{"criterion": "clarity", "score": 3}, {"criterion": "overall", "score": 7}]',
        '{"evaluation": {"score": 7}}',
        '{"clarity": {"score": 7}, "depth": {"score": 7}}',
        'First {"score": 3}, and then {"score": 7}',
        "score: 3\nOn reflection:\nscore: 7",
        "Clarity score: 3\nscore: 7",
        "The clarity score is 3, and the final score is 7.",
    ]:
        with subtests.test(text=text):
            assert (read_grade(text, 10) or (None,))[0] == 0.7


def test_a_grade_that_is_said_twice_is_one() -> None:
    for text in ("Correctness: 9/10, since it is.\nCorrectness: 9/10", "Clarity: 9/10, Depth: 9/10"):
        assert (read_grade(text, 10) or (0.0, ""))[0] == 0.9


def test_many_grades_and_long_words_are_read_in_no_time() -> None:
    begun = time.process_time()
    for text in ("这是一个很长的回答没有空格" * 3000 + " 8/10 " * 20, "a" * 20_000 + " 8/10", " 8/10 " * 5000):
        assert (read_grade(text, 10) or (0.0, ""))[0] == 0.8
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ("logprobs must be an integer", "logprobs true"),
        ("Invalid type for 'logprobs': expected a boolean, but got an integer instead.", None),
        ("Unsupported parameter: 'logprobs' is not supported. Reference number 123.", "logprobs"),
        ("logprobs and top_logprobs (integer) are not supported", "logprobs"),
        ("property 'messages.0.refusal' is unsupported", "additions"),
        ("audio input is not supported by this model", None),
        ("`function_call` is not supported with this model", None),
    ],
)
def test_what_a_refusal_is_about(words: str, setting: str | None) -> None:
    """A form is kept for all later calls of an endpoint: what is about one request must not change it."""
    assert refused_setting(400, {"error": {"message": words}}) == setting


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, "Unsupported parameter: rate_limit", "bad_request"),
        (400, "Rate limit exceeded", "rate_limit"),
        (413, "Request throttled: too large", "too_long"),
        (None, "model not found, try again", "bad_body"),
        (None, "Rate limit", "rate_limit"),
    ],
)
def test_a_fault_that_stays_is_not_tried_again(status: int | None, words: str, kind: str) -> None:
    assert kind_of_error(status, {"error": {"message": words}}) == kind


@pytest.mark.parametrize(
    "more", [{"total_tokens": 115}, {"input_tokens_details": {"cached_tokens": 100}}], ids=["total", "details"]
)
def test_a_cache_that_is_in_the_prompt_is_counted_once(more: dict[str, Any]) -> None:
    told = {"input_tokens": 110, "output_tokens": 5, "cache_read_input_tokens": 100}
    assert read_usage({**told, **more}, True, 10**6).prompt == 110
    assert read_usage(told, True, 10**6).prompt == 210


def test_what_nobody_sees_changes_no_reading() -> None:
    for kind, text, wanted in [
        (Literal["billing", "technical"], "bill\u200bing", "billing"),
        (Literal["billing", "technical"], "The label is \u2068technical\u2069.", "technical"),
        (Literal["\u2764\ufe0f", "no"], "\u2764", "\u2764\ufe0f"),
        (bool, "\ufeffyes", True),
        (int, "1\u200b234", 1234),
        (float, "about \u20663.5\u2069 in all", 3.5),
        (list[Literal["a1", "b1"]], '["a\u00ad1", "b1"]', ["a1", "b1"]),
    ]:
        assert convert(Field("label", kind), text)[0] == wanted, text


@pytest.mark.parametrize("kind", ["int", "float", "int | None"])
def test_an_argument_of_a_call_is_no_number_that_was_answered(kind: str) -> None:
    """As a model of 0.5B gave it with native tools: 24 was scored as its answer to 37 times 24."""
    signature = parse_signature(f"question -> answer: {kind}")
    with pytest.raises(NodeError):
        parse(signature, 'answer: {"name": "multiply", "arguments": {"a": 37, "b": 24}}', False)
    assert parse(signature, 'answer: {"name": "sum", "value": 888}', False)[0] == {"answer": 888}


def test_values_of_tools_and_tables_are_texts() -> None:
    row = {"day": datetime.date(2024, 1, 2), "cost": Decimal("1.50"), "set": {"a"}}
    assert as_text(row) == '{"day": "2024-01-02", "cost": "1.50", "set": "{\'a\'}"}'
