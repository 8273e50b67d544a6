"""What readers once took for granted too soon: names of grades that are words, faults that pass, tokens that count."""

from __future__ import annotations

import time
from typing import Any

import pytest

from workbench.kit.answers import read_grade
from workbench.lm import kind_of_error, read_usage, refused_setting


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
