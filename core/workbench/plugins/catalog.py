"""What the distributions of this repository register, so that an error can name the one that is not installed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from workbench.base.distribution import pip_install

#: Written by docs/generate.py: by kind of thing, or "commands", the names and the folder of their distribution.
CATALOG = Path(__file__).with_name("catalog.json")


@cache
def _read_catalog() -> dict[str, dict[str, str]]:
    return json.loads(CATALOG.read_text(encoding="utf-8"))


def how_to_get(kind: str, name: str) -> str:
    """The sentence on the distribution that has something; "" if none of ours has it.

    kind: one of `KINDS`, or "commands". name: as it is registered; of a command with those of its groups.
    """
    home = _read_catalog().get(kind, {}).get(name)
    return f"It comes with workbench-{home}: {pip_install(home)}." if home else ""
