"""The calls of a row so far, and formulas about them: linear temporal logic of the past, decided at each call.

    H x   x held at every call so far       O x   x held at some call so far
    Y x   x held at the call before         x S y  y held at some call, and x at all since

with `!`, `&`, `|`, `->` and names of tools, in which `*` and `?` stand for any text. Source: Havelund and Rosu,
"Synthesizing Monitors for Safety Properties" (TACAS 2002), section 2, whose one-step recursion this is. Future events
cannot be decided at a call, and are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from workbench.spec import MadeCall


def was_called(pattern: str, earlier: Sequence[MadeCall], surely: bool) -> bool:
    """Return True if a tool was called. surely: count only calls that gave a result, not those that may have."""
    return any(fnmatchcase(c.tool, pattern) and (c.done is True or (not surely and c.done is None)) for c in earlier)


#: Returns whether a formula holds at a step, given the names of the calls up to it.
Holds = Callable[[Sequence[str]], bool]
_TOKEN = re.compile(r"\s*(->|[()!&|]|[\w.*?\[\]-]*[\w*?\]])")
_LONGEST, _DEEPEST = 2000, 50


def parse_formula(text: str) -> Holds:
    """Parse a formula. Raises ValueError with the error in it."""
    if len(text) > _LONGEST:
        raise ValueError(f"a formula has at most {_LONGEST} characters")
    tokens, place = list[str](), 0
    while text[place:].strip():
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"{text[place:].strip()[:20]!r} is no part of a formula, as in H(submit -> O(verify))")
        tokens.append(found[1])
        place = found.end()
    parser = _Parser(tokens)
    whole = parser.implication(0)
    if parser.tokens:
        raise ValueError(f"{parser.tokens[0]!r} stands where the formula should have ended")
    return whole


def names_in(text: str) -> list[str]:
    """Return the patterns of tools in a formula."""
    return [token for token in _TOKEN.findall(text) if token not in ("->", *"()!&|HOYS")]


class _Parser:
    """Recursive descent: -> binds least, then |, &, S, and the unary operators."""

    def __init__(self, tokens: list[str]):
        self.tokens = tokens

    def _take(self, *wanted: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else None

    def implication(self, depth: int) -> Holds:
        if depth > _DEEPEST:
            raise ValueError(f"a formula is nested at most {_DEEPEST} deep")
        left = self._several(depth, "|")
        if self._take("->"):
            right = self.implication(depth + 1)
            return lambda calls: not left(calls) or right(calls)
        return left

    def _several(self, depth: int, mark: str) -> Holds:
        part = (lambda: self._several(depth, "&")) if mark == "|" else lambda: self._since(depth)
        parts = [part()]
        while self._take(mark):
            parts.append(part())
        return parts[0] if len(parts) == 1 else lambda calls: (any if mark == "|" else all)(p(calls) for p in parts)

    def _since(self, depth: int) -> Holds:
        left = self._one(depth)
        while self._take("S"):
            kept, begun = left, self._one(depth)
            left = _since(kept, begun)
        return left

    def _one(self, depth: int) -> Holds:
        if mark := self._take("!", "H", "O", "Y"):
            inner = self._one(depth + 1) if depth < _DEEPEST else self.implication(depth + 1)
            return _UNARY[mark](inner)
        if self._take("("):
            inner = self.implication(depth + 1)
            if not self._take(")"):
                raise ValueError("a parenthesis is not closed")
            return inner
        if not self.tokens or self.tokens[0] in ("->", *")&|S"):
            raise ValueError(f"a tool's name is missing before {self.tokens[0]!r}" if self.tokens else "it breaks off")
        name = self.tokens.pop(0)
        return lambda calls: bool(calls) and fnmatchcase(calls[-1], name)


def _since(kept: Holds, begun: Holds) -> Holds:
    def holds(calls: Sequence[str]) -> bool:
        now = False
        for n in range(1, len(calls) + 1):
            now = begun(calls[:n]) or (now and kept(calls[:n]))
        return now

    return holds


_UNARY: dict[str, Callable[[Holds], Holds]] = {
    "!": lambda inner: lambda calls: not inner(calls),
    "H": lambda inner: lambda calls: all(inner(calls[:n]) for n in range(1, len(calls) + 1)),
    "O": lambda inner: lambda calls: any(inner(calls[:n]) for n in range(1, len(calls) + 1)),
    "Y": lambda inner: lambda calls: len(calls) > 1 and inner(calls[:-1]),
}
