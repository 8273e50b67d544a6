"""The reader of code in fences."""

from __future__ import annotations

import re
import textwrap

#: A block, up to a line that begins with as many marks, or to the end; or a fence within a line.
_FENCE = re.compile(
    r"(?ms)(?<![`~])"
    r"(?P<marks>```++|~~~++)[\w+.-]*[ \t]*\n(?P<block>.*?)(?:^[ \t]*(?P=marks)|\Z)|```(?P<line>[^`\n]+)```"
)


def find_code(text: str) -> list[str]:
    """Extract the contents of the fences of a text, in order; the last one may be cut."""
    found = [one["block"] if one["line"] is None else one["line"] for one in _FENCE.finditer(text)]
    return [textwrap.dedent(body).strip("\n") for body in found if body.strip()]
