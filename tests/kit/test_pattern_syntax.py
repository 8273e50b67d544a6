"""What a pattern can match, by its syntax: never said of one that matches something."""

from __future__ import annotations

import random
import re

import pytest

from workbench_kit.acting import Unmatchable, listed_matches, shortest_match

NOTHING = r"$a  a^  a\A  \Za  a$b|c^d  [^\s\S]  [^\d\D]x  (?!)  a(?!.*)b  (a^)+  (?=$x)y  (?-m:a^)  a(^b)  $\ba".split()
SHORTEST = {
    0: ["", "(a)?(?(1)b|c)"],
    1: r"a*b+  a|$b  a?^b  $\n  $\s  $[^a]  (?m:^a$)  (?<=a)b  (?!a)b  (a^)?b  (?i)x  [\u0416-\u0420]".split(),
    2: ["(ab|c)d", "(?P<n>ab)(?P=n)", "a++b"],
    3: ["abc", "a{3,9}", r"(?m)a\n^b", r"(?m)a$\nb", "(?>ab)c"],
}
PARTS = r"a b ^ $ \n . a* b? [^a] (?:a|b^) (?:$|a) \Z \b (?!a) (?=b) (?m:^)".split()
TEXTS = ["", "a", "b", "ab", "ba", "a\n", "\na", "a\nb", "\n", "aab", "b\n\n"]


def test_a_pattern_that_matches_nothing_is_found(subtests: pytest.Subtests) -> None:
    for pattern in NOTHING:
        with subtests.test(pattern=pattern):
            with pytest.raises(Unmatchable, match=r"\w+"):
                shortest_match(pattern)


@pytest.mark.parametrize("length", SHORTEST)
def test_the_length_of_the_shortest_match(length: int) -> None:
    assert [pattern for pattern in SHORTEST[length] if shortest_match(pattern) != length] == []


def test_no_random_pattern_that_matches_is_said_to_match_nothing() -> None:
    """Against Python itself: each text that a pattern matches is as long as was said, or longer."""
    draw, tried = random.Random(1), 0
    for _ in range(4000):
        pattern = "".join(draw.choice(PARTS) for _ in range(draw.randint(1, 5)))
        lengths = [len(found[0]) for text in TEXTS for found in re.finditer(pattern, text)]
        try:
            least = shortest_match(pattern)
        except Unmatchable:
            assert not lengths, pattern
        else:
            assert all(length >= least for length in lengths), pattern
            tried += bool(lengths)
    assert tried > 1000


def test_the_texts_of_a_list_are_known() -> None:
    assert listed_matches("^(true|fa[lL]se)$") == ["true", "false", "faLse"]
    assert listed_matches(r"\Aab\Z") == ["ab"]
    for other in ("true|false", "^true", "^a*$", "^[^a]$", "^.$", "(?m)^a$", "^(?i:a)$", "^" + "[01]" * 7 + "$"):
        assert listed_matches(other) is None, other
