"""Whether every key of an exported verl.yaml is one that verl knows.

    python contrib/bench/training/verl_keys.py DIR/verl.yaml VERL/verl/trainer/config/_generated_ppo_trainer.yaml

The second file is verl's own list of all its settings, in a checkout of volcengine/verl. Exit code 1 if a key is
unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

#: Of hydra, and read with a default where verl's list does not have them.
ELSEWHERE = {"hydra", "defaults"}


def unknown(given: Any, known: Any, place: str = "") -> Iterator[str]:
    """The keys of `given` that `known` does not have."""
    for key, value in given.items():
        name = f"{place}{key}"
        if name in ELSEWHERE:
            continue
        if not isinstance(known, dict) or key not in known:
            yield name
        elif isinstance(value, dict):
            yield from unknown(value, known[key], f"{name}.")


def main() -> None:
    given, known = (yaml.safe_load(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:3])
    found = list(unknown(given, known))
    print("\n".join(f"unknown: {name}" for name in found) or "every key is known")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
