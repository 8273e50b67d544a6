"""Nano's tokens beside those of Hugging Face's `tokenizers`, which trained them."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from workbench_nano.model import WEIGHTS
from workbench_nano.tokenizer import NanoTokenizer

PIECES = ["<|end|>", "<|user|>", "<|", "\n", "\r\n", "\t", " ", "  ", "\x85", "\xa0", "\u3000", "\u200b"]
PIECES += ["a", "12", "½", "²", "ǅ", "é", "e\u0301", "𝔘", "🙂", "中文", "_", "'s", "\ufffd", "\x00"]


@cache
def both() -> tuple[NanoTokenizer, Any]:
    reference = pytest.importorskip("tokenizers")
    return NanoTokenizer(WEIGHTS), reference.Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))


def texts(count: int, rng: Random) -> list[str]:
    tokenizer, _ = both()
    tokens = [tokenizer.decode([number], skip_special_tokens=False) for number in range(1280)]
    letters = "abcdefghiklmnoprstuwy 0123.,!?\n'\"-()"
    sources: list[list[str] | str] = [PIECES, tokens, letters, [*PIECES, *letters]]
    return ["".join(rng.choices(rng.choice(sources), k=rng.randrange(40))) for _ in range(count)]


def test_texts_have_the_tokens_of_the_reference():
    ours, reference = both()
    assert [t for t in texts(3000, Random(0)) if ours.encode(t) != reference.encode(t).ids] == []


@pytest.mark.parametrize("skip", [True, False])
def test_tokens_have_the_texts_of_the_reference(skip: bool):
    """Drawn tokens too, which may hold halves of a character."""
    ours, reference = both()
    rng = Random(1)
    drawn = [[rng.randrange(1280) for _ in range(rng.randrange(12))] for _ in range(2000)]
    drawn += [ours.encode(t) for t in texts(500, rng)]
    told = {str(ids): (ours.decode(ids, skip_special_tokens=skip), ids) for ids in drawn}
    wrong = [ids for text, ids in told.values() if text != reference.decode(ids, skip_special_tokens=skip)]
    assert wrong == []


def test_a_lone_surrogate_is_read_as_a_question_mark():
    ours, _ = both()
    assert ours.encode("a\ud83d") == ours.encode("a?")
