"""Signatures in DSPy's notation."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from workbench.errors import SpecError
from workbench.workflow import parse_signature


@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        ("question, context -> answer: int", ["question", "context"], [("answer", int)]),
        ("a: list[str] -> b: dict[str, int], c: bool", ["a"], [("b", dict[str, int]), ("c", bool)]),
        ("x -> y: Optional[int], z: float | None", ["x"], [("y", int | None), ("z", float | None)]),
        ("x -> y: Literal['a -> b', \"it's\"]", ["x"], [("y", Literal["a -> b", "it's"])]),
        ("x -> y: typing.Literal[-1, 0, 1]", ["x"], [("y", Literal[-1, 0, 1])]),
        ("x,\n  y -> z", ["x", "y"], [("z", str)]),
        ("-> poem", [], [("poem", str)]),
    ],
)
def test_signatures_are_read_in_dspys_notation(text: str, inputs: list[str], outputs: list[Any]) -> None:
    signature = parse_signature(text)
    assert [f.name for f in signature.inputs] == inputs
    assert [(f.name, f.type) for f in signature.outputs] == outputs


def test_wrong_signatures_are_refused_in_words(subtests: pytest.Subtests) -> None:
    for text, words in [
        ("text", "one '->'"),
        ("a -> b -> c", "one '->'"),
        ("text ->", "at least one output"),
        ("text -> a, a", "an output is named twice"),
        ("text, text -> a", "an input is named twice"),
        ("text -> a: int = 3", "a name and a type"),
        ("text -> *a", "a name and a type"),
        ("text -> a: Foo", "unknown type 'Foo'"),
        ("text -> a: Literal['x' 'y', 'z']", "between 'x' and 'y' a comma is missing"),
        ("text -> a: Literal['x',\n'y'\n'z']", "between 'y' and 'z' a comma is missing"),
        ("text -> a: list[int, str]", "unknown type"),
        ("text -> a: Optional[int, str]", "unknown type"),
        ("text -> a: dict[str]", "unknown type"),
        ("text -> a: None | None", "unknown type"),
        ("text -> a: None", "can only be null"),
        ("text: list[Image] -> a", "'text' has an image in it"),
        ("text: Optional[Image] -> a", "'text' has an image in it"),
        ("text: {a: list[Image]} -> a", "'text' has an image in it"),
        ("text -> a: Literal[x]", "quoted texts or numbers"),
        ("text -> a: Literal[()]", "quoted texts or numbers"),
        ("text -> a: Literal[[1]]", "quoted texts or numbers"),
        ("class -> a", "cannot read"),
        ("a): pass\ndef g(b -> c", "cannot read"),
        ("a): return 1 # -> c", "cannot read"),
        ("text -> a: Literal['b", "cannot read"),
    ]:
        with subtests.test(text=text):
            with pytest.raises(SpecError) as caught:
                parse_signature(text)
            assert words in caught.value.message
            assert caught.value.hint and "Literal['a', 'b']" in caught.value.hint
