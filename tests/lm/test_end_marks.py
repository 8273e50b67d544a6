"""Marks that a server leaves at the end of a turn are taken off by their form, and nothing else is."""

from __future__ import annotations

import pytest

from workbench.lm import split_thoughts
from workbench.lm.thoughts import SaidInPieces

MARKS = (
    "<end_of_turn>",
    "</s>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<|eom_id|>",
    "<|endofprompt|>",
    "<|END_OF_TURN_TOKEN|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<end_of_utterance>",
    "<eos>",
    "<eod>",
    "<pad><pad><pad>",
    "[/INST]",
    "[EOS]",
    "[|endofturn|]",
    "<extra_id_1>",
    "<reserved_106>",
    " </s> <|im_end|>\n",
    "<|user|>",
)
CONTENT = (
    "<b>technical</b>",
    "<answer>technical</answer>",
    "was <s>billing</s>",
    "use [INST] and [/INST]",
    "<label>technical</label>",
    "a list [1]",
    "see [INSTALL]",
    "x < y",
    "if a <|b| > c",
    "write `<|im_end|>`",
    "<end>",
    "</html>",
    "vector<int>",
)


def in_pieces(text: str, size: int) -> str:
    reader, said = SaidInPieces((), ""), ""
    for start in range(0, len(text), size):
        said += reader.add(text[start : start + size])[1]
    return said + reader.add("", last=True)[1]


def test_ends_of_turns_are_no_part_of_an_answer(subtests: pytest.Subtests) -> None:
    for mark in MARKS:
        for size in (1, 3, 100):
            with subtests.test(mark, size=size):
                assert split_thoughts(f"technical{mark}") == ("", "technical")
                assert in_pieces(f"technical{mark}", size).rstrip() == "technical"


def test_content_that_looks_like_a_mark_stays(subtests: pytest.Subtests) -> None:
    for text in CONTENT:
        for size in (1, 3, 100):
            with subtests.test(text, size=size):
                assert split_thoughts(text) == ("", text)
                assert in_pieces(text, size) == text


def test_a_mark_within_an_answer_stays() -> None:
    text = "The mark </s> ends a sequence, and <end_of_turn> a turn."
    assert split_thoughts(text) == ("", text)
