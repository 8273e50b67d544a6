"""The table of docs/reference/gateway.md: what becomes of each field between two APIs."""

from __future__ import annotations

import re
from pathlib import Path

from workbench_external.gateway import TABLE

_NAMES = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages"}
_BLOCK = re.compile(r"(<!-- fields between APIs -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def with_fields(path: Path) -> str:
    """The page with its table as the code has it."""
    return _BLOCK.sub(lambda found: f"{found[1]}{_tables()}{found[2]}", path.read_text(encoding="utf-8"))


def _tables() -> str:
    parts: list[str] = []
    for api, rules in TABLE.items():
        rows = [
            f"| {f'`{place}`' if place else 'the request'} | {_named(rule.carried)} | {_named(rule.dropped) or 'none'} "
            f"| {', '.join(filter(None, (_named(' '.join(rule.refused)), 'all others')))} |"
            for place, rule in rules.items()
        ]
        head = f"| {_NAMES[api]} | carried | dropped | refused |\n| --- | --- | --- | --- |"
        parts.append("\n".join([head, *rows, ""]))
    return "\n".join(parts)


def _named(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split())
