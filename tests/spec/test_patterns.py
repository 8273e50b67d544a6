"""Searches for patterns of files and rows: they end, and find what `re` finds."""

from __future__ import annotations

import random
import re
import time

import pytest

from workbench.spec import Pattern, TooSlow, patterns

PARTS = r"a b ^ $ \n . a* b? [^a] (?:a|b^) (?:$|a) \Z \b (?!a) (?=b) (?m:^)".split()
TEXTS = ["", "a", "b", "ab", "ba", "a\n", "\na", "a\nb", "\n", "aab", "b\n\n"]


#: Each takes `re` seconds to years on a text of its letters.
HARMFUL = {
    "(a+)+b": "a",
    "(a|aa)*b": "a",
    "a?" * 27 + "a" * 27 + "c": "a",
    r".*.*.*.*.*x": "a",
    r"\s*\s*\s*\s*\s*\s*x": " ",
    "(a*)" * 6 + "b": "a",
    "(.)*?" * 5 + "z": "a",
    r"(\w+\s?)*$": "ab ",
    r"(.*?,){25}P": "1,",
    r"^(([a-z])+.)+[A-Z]([a-z])+$": "a",
    r"(?=(a+)+c)x": "a",
    r"((a+)\2?)+b": "a",
}


@pytest.mark.parametrize("method", ["search", "fullmatch", "finditer"])
def test_no_pattern_holds_the_run(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """security 4: nor does one that only the text makes slow."""
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    stopped = []
    for pattern, unit in HARMFUL.items():
        begun = time.process_time()
        try:
            getattr(Pattern(pattern), method)(unit * 4000 + "!")
        except TooSlow as error:
            assert "took more than 0.05 s on a text of" in str(error)
            stopped.append(pattern)
        assert time.process_time() - begun < 5, pattern
    assert stopped


def test_a_pattern_finds_what_re_finds() -> None:
    draw = random.Random(2)
    for _ in range(1000):
        pattern = "".join(draw.choice(PARTS) for _ in range(draw.randint(1, 5)))
        for text in TEXTS:
            for name in ("search", "fullmatch"):
                ours, theirs = getattr(Pattern(pattern), name)(text), getattr(re, name)(pattern, text)
                assert (ours and ours.span()) == (theirs and theirs.span()), (pattern, text)
            assert [m.span() for m in Pattern(pattern).finditer(text)] == [m.span() for m in re.finditer(pattern, text)]


@pytest.mark.parametrize("wrong", ["(", "[", r"\h", "(?<=a*)b", "a{99999999999999999999}", "(" * 5000 + ")" * 5000])
def test_what_is_no_pattern_of_python_is_said(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not a regular expression|is nested too deeply, or counts too far"):
        Pattern(wrong)
