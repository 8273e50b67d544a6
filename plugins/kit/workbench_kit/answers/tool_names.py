"""Names of tools: their own, those that servers accept, and those that models write.

Servers accept letters, digits, `_` and `-`, at most 64 characters (platform.openai.com/docs/api-reference/chat, tools).
Names of MCP tools have dots and slashes, and models write a namespace before a name: `functions.search`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

_LONGEST = 64
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_NAMESPACE = re.compile(r"[.:/]|__")
#: Text after a name: a number, marks of a template, brackets, quotes.
_BEHIND = re.compile(r"(?:\.call|:\d+|<\|.*|\(\)|[\s\"'`*])+\Z", re.DOTALL)


def wire_name(name: str) -> str:
    """Return a name that every server accepts; an accepted one is unchanged."""
    fit = _OTHER.sub("_", name)
    if fit == name and 0 < len(name) <= _LONGEST:
        return name
    if not re.search("[a-zA-Z0-9]", fit) or len(fit) > _LONGEST:
        return _with_hash(fit.strip("_") or "tool", name)
    return fit


def _with_hash(fit: str, name: str) -> str:
    return f"{fit[: _LONGEST - 9]}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Return the server-side name of each tool, by its own name. Tools whose names would collide get a hash."""
    own = [*dict.fromkeys(names)]
    fits = {name: wire_name(name) for name in own}
    seen = [*fits.values()]
    return {n: _with_hash(fit, n) if fit != n and seen.count(fit) > 1 else fit for n, fit in fits.items()}


def known_name(name: str, tools: Collection[str]) -> str | None:
    """Return the tool that a name means, also with a namespace before it (`functions.search`), with marks after it, or
    in its server-side form; None if there is none."""
    if name in tools:
        return name
    plain = _BEHIND.sub("", name.strip().lstrip("\"'`*"))
    forms = [plain, *(plain[found.end() :] for found in _NAMESPACE.finditer(plain))]
    if exact := next((form for form in forms if form in tools), None):
        return exact
    wire = {fit: own for own, fit in wire_names(tools).items()}
    return next((wire[form] for form in forms if form in wire), None)
