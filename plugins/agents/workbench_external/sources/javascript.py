"""Texts in JavaScript and TypeScript: strings in all three quotes, and sums and joined lists of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from workbench_external.sources.javascript_tokens import Token, end_of_field, read_tokens
from workbench_external.sources.passages import (
    CannotWrite,
    Field,
    Part,
    Passage,
    compact,
    newline_of,
    only_text,
)
from workbench_external.sources.segments import Layout, Segment, break_words, has_text

_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|.))", re.DOTALL)
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": "", "\r": ""}
#: Tags whose function reads the text unchanged, or without a margin.
_TAGS = {"dedent", "outdent", "endent", "stripIndent", "stripIndents", "oneLine", "prompt", "md", "markdown", "text"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def read_javascript(source: str) -> Iterator[Passage]:
    """Yield the texts of a JavaScript or TypeScript file, JSX included."""
    yield from _Reader(source).read([*read_tokens(source)])


class _Reader:
    def __init__(self, source: str):
        self.source = source
        self.newline = newline_of(source)

    def read(self, tokens: Sequence[Token]) -> Iterator[Passage]:
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if token.text == "[" and (joined := self._join(tokens, at)) is not None:
                passage, at = joined
                yield passage  # its elements are also read, as it may be joined elsewhere
            elif (found := self._sum(tokens, at)) is not None:
                passage, at = found
                if passage is not None:
                    yield passage
            else:
                at += 1

    # Reading

    def _sum(self, tokens: Sequence[Token], at: int) -> tuple[Passage | None, int] | None:
        """Return (a text, the place after it) for a string, or for a sum that begins here and contains one."""
        before = tokens[at - 1] if at else None
        if before is not None and (before.text in (".", "+", "-", "*", "/", "%") or _is_operand_end(before)):
            if tokens[at].kind not in ("string", "template"):
                return None
            if before.kind == "name" and tokens[at].kind == "template":
                return self._tagged(tokens, at), at + 1
        if tokens[at].kind in ("string", "template") and _is_asked(tokens, at):  # `...`.trim()
            return self._single(tokens[at]), at + 1
        segments, place = self._operands(tokens, at)
        if not any(has_text(one.parts) for one in segments[:2]):  # a sum of numbers is not a text
            return None
        if len(segments) == 1:
            return (None if _is_name(tokens, at) else self._single(tokens[at], _is_attribute(tokens, at))), at + 1
        if place < len(tokens) and tokens[place].text in ("*", "/", "%", "-"):
            return None, place
        layout = Layout(self.source, tokens[at].start, tokens[place - 1].end, tuple(segments), " + ", step="  ")
        return self._passage(layout), place

    def _operands(self, tokens: Sequence[Token], at: int) -> tuple[list[Segment], int]:
        """Return (the operands of a sum, or a single one, the place after them)."""
        found, place = list[Segment](), at
        while (operand := self._operand(tokens, place)) is not None:
            found.append(Segment(tokens[place].start, tokens[operand[1] - 1].end, compact(operand[0])))
            place = operand[1]
            if place + 1 >= len(tokens) or tokens[place].text != "+" or tokens[place + 1].text in ("+", "="):
                return found, place
            place += 1
        return found, place - bool(found)

    def _operand(self, tokens: Sequence[Token], at: int) -> tuple[Sequence[Part], int] | None:
        """Return (parts, the place after them) of a string, or of a name with its attributes and calls."""
        if at >= len(tokens):
            return None
        token = tokens[at]
        if token.kind in ("string", "template"):
            return None if _is_asked(tokens, at) else (self._parts(token), at + 1)
        place = at
        while place < len(tokens) and (tokens[place].kind == "name" or tokens[place].text in "([.?!"):
            if tokens[place].text in _CLOSING:
                place = _behind_bracket(tokens, place)
            elif _ends_operand(tokens, at, place):
                break
            else:
                place += 1
        if place == at:
            return None
        return (Field(self.source[token.start : tokens[place - 1].end], "sum"),), place

    def _join(self, tokens: Sequence[Token], at: int) -> tuple[Passage, int] | None:
        """Read a list as the text that its elements are joined to; as lines, if it is joined elsewhere."""
        end, separator = _behind_bracket(tokens, at), "\n"
        dot, name, bracket, mark = [*tokens[end : end + 4], *[tokens[at]] * 4][:4]
        is_joined = (dot.text, name.text, bracket.text, mark.kind) == (".", "join", "(", "string")
        if is_joined:
            separator = str(self._parts(mark)[0] if self._parts(mark) else "")
        segments, place = list[Segment](), at + 1
        while place < end - 1:
            operands, behind = self._operands(tokens, place)
            if not operands or (len(operands) > 1 and not any(has_text(one.parts) for one in operands[:2])):
                return None
            parts = compact(part for one in operands for part in one.parts)
            segments.append(Segment(tokens[place].start, tokens[behind - 1].end, parts))
            place = behind
            if tokens[place].text == ",":
                place += 1
            elif place != end - 1:
                return None
        if sum(has_text(one.parts) for one in segments) < (1 if is_joined else 2):
            return None
        start, stop = tokens[at].start, tokens[end - 1].end
        layout = Layout(self.source, start, stop, tuple(segments), ", ", separator, "  ")
        return self._passage(layout), end if is_joined else at + 1

    def _passage(self, layout: Layout) -> Passage:
        mark, parts = layout.mark, list[Part]()
        for number, one in enumerate(layout.segments):
            parts += [*([mark] if number and mark else []), *one.parts]

        def write(new: Sequence[Part]) -> str:
            # Two numbers would be added, so the first must be a text.
            begins = [isinstance(part, Field) and part.level == "sum" for part in new[:2]]
            if not mark and begins == [True, True]:
                return " + ".join(['""', *self._words(new, 10_000, "")])
            return layout.write(new, self._elements if mark else self._words)

        return Passage(layout.start, layout.end, compact(parts), write)

    def _tagged(self, tokens: Sequence[Token], at: int) -> Passage | None:
        tag, token = tokens[at - 1 : at + 1]
        if [one.text for one in tokens[max(0, at - 3) : at]] == ["String", ".", "raw"]:
            return Passage(tokens[at - 3].start, token.end, self._parts(token, is_raw=True), self._write_template)
        if tag.text in ("return", "case", "typeof", "of", "in", "default", "await", "yield", "else"):
            return self._single(token)
        if tag.text not in _TAGS:

            def refuse(new: Sequence[Part]) -> str:
                raise CannotWrite(f"what the tag {tag.text} makes of a template is not known")

            return Passage(token.start, token.end, self._parts(token), refuse)
        return self._single(token)

    def _single(self, token: Token, is_attribute: bool = False) -> Passage:
        """Return a string as a passage. is_attribute: of JSX, which has no escapes, but values in braces."""
        mark = token.text[0]

        def write(new: Sequence[Part]) -> str:
            text = "" if mark == "`" else only_text(new, "a string")
            if mark == "`" or "\n" in text:
                written = self._write_template(new)
            else:
                written = write_string(text, mark)
            return f"{{{written}}}" if is_attribute and (written[0] == "`" or "\\" in written) else written

        return Passage(token.start, token.end, self._parts(token), write)

    def _parts(self, token: Token, is_raw: bool = False) -> tuple[Part, ...]:
        inside, start = token.text[1:-1], token.start + 1
        if token.kind == "string":
            return compact([_decoded(inside)])
        parts, at, last = list[Part](), start, start
        while at < token.end - 1:
            if self.source[at] == "\\":
                at += 2
            elif self.source.startswith("${", at) and (closed := end_of_field(self.source, at, token.end)) is not None:
                parts += [self._text(last, at, is_raw), Field(self.source[at + 2 : closed - 1], "template")]
                at = last = closed
            else:
                at += 1
        return compact([*parts, self._text(last, token.end - 1, is_raw)])

    def _text(self, start: int, end: int, is_raw: bool) -> str:
        """Return the text of a part of a template literal, with line breaks as \\n."""
        text = re.sub(r"\r\n?", "\n", self.source[start:end])
        return text if is_raw else _decoded(text)

    # Writing

    def _write_template(self, new: Sequence[Part]) -> str:
        return "`" + "".join(f"${{{p.source}}}" if isinstance(p, Field) else self._inside(p) for p in new) + "`"

    def _inside(self, text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace("`", "\\`").replace("${", "\\${")
        return _controls(escaped, but="\n\t").replace("\n", self.newline)

    def _words(self, parts: Sequence[Part], width: int, step: str) -> list[str]:
        """Return texts and fields as operands of a sum, each in one line."""
        found, run = list[str](), list[Part]()
        for part in (*parts, None):
            if part is not None and (isinstance(part, str) or part.level != "sum"):
                run.append(part)
                continue
            found += break_words(run, width, self._write_one)
            run = []
            found += [] if part is None else [part.source]
        return found or ['""']

    def _elements(self, parts: Sequence[Part], width: int, step: str) -> list[str]:
        return [f"{step}  + ".join(self._words(parts, width, step))]

    def _write_one(self, parts: Sequence[Part]) -> str:
        if all(isinstance(part, str) for part in parts):
            return write_string(only_text(parts, "a string"), '"')
        return self._write_template(parts).replace(self.newline, "\\n")


def _is_asked(tokens: Sequence[Token], at: int) -> bool:
    """Return True if a string is followed by an access, such as its length."""
    return at + 1 < len(tokens) and tokens[at + 1].text in (".", "[", "?.")


def _is_name(tokens: Sequence[Token], at: int) -> bool:
    """Return True if a string is the name of a property or a module."""
    before = tokens[at - 1].text if at else ""
    behind = tokens[at + 1].text if at + 1 < len(tokens) else ""
    return before in ("from", "import") or (before in ("{", ",") and behind == ":")


def _is_attribute(tokens: Sequence[Token], at: int) -> bool:
    """Return True if a string is an attribute of JSX: `name="text"` before another name or the end of a tag."""
    if at < 2 or tokens[at - 1].text != "=" or tokens[at - 1].end != tokens[at].start or at + 1 >= len(tokens):
        return False
    behind = tokens[at + 1]
    return tokens[at - 2].kind == "name" and (behind.text in (">", "/") or behind.kind == "name")


def _ends_operand(tokens: Sequence[Token], at: int, place: int) -> bool:
    """Return True if an operand that begins at `at` ends before a place: at a question mark, or another name."""
    token = tokens[place]
    if token.text in ("?", "!"):
        return place + 1 < len(tokens) and tokens[place + 1].text != "."
    return place > at and token.kind == "name" and tokens[place - 1].text != "."


def _is_operand_end(token: Token) -> bool:
    words = ("return", "case", "typeof", "of", "in", "default", "await", "yield", "else", "void", "as", "from")
    return (token.kind == "name" and token.text not in words) or token.text in (")", "]")


def _behind_bracket(tokens: Sequence[Token], at: int) -> int:
    """Return the place after the bracket that closes the one at `at`, or the end."""
    open_ = list[str]()
    for place in range(at, len(tokens)):
        token = tokens[place]
        if token.kind == "mark" and token.text in _CLOSING:
            open_.append(_CLOSING[token.text])
        elif token.kind == "mark" and open_ and token.text == open_[-1]:
            open_.pop()
            if not open_:
                return place + 1
    return len(tokens)


def _decoded(text: str) -> str:
    def char(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        return chr(int(code, 16)) if code and int(code, 16) < 0x110000 else _SIMPLE.get(found[4], found[4] or "")

    decoded = _ESCAPE.sub(char, text)
    # A surrogate pair is one letter.
    return decoded.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def write_string(text: str, mark: str) -> str:
    """Return a string of one line in the given quotes, or in the other ones if that saves escapes."""
    if mark in text and (other := "'" if mark == '"' else '"') not in text:
        mark = other
    escaped = text.replace("\\", "\\\\").replace(mark, "\\" + mark)
    return mark + _controls(escaped, but="") + mark


def _controls(text: str, but: str) -> str:
    """Escape unprintable characters in a text."""
    simple = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        char
        if char in but or (char.isprintable() and char not in "\u2028\u2029")
        else simple.get(char) or (f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\u{{{ord(char):x}}}")
        for char in text
    )
