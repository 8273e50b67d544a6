"""Tables out of what `workbench plugin bench --json` prints: a row for each optimizer, a column for each world.

    workbench plugin bench --world rules,facets --budget-calls 400,800 --seeds 20 --json | python planted_table.py

The first row is the regret of random search; in the others stand differences to its accuracy, in bold where their 95%
interval lies above zero.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

REFERENCE = "random"


def show_regret(result: Mapping[str, Any]) -> str:
    if result["regret"] is None:
        return ""
    low, high = result["regret"]["ci95"]
    return f"{result['regret']['mean']:.3f} [{low:.3f}, {high:.3f}]"


def show_gain(result: Mapping[str, Any]) -> str:
    if "vs_random" not in result:
        return ""
    low, high = result["vs_random"]["ci95"]
    text = f"{result['vs_random']['diff']:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"**{text}**" if low > 0 else text


def main() -> None:
    found = [json.loads(line) for line in sys.stdin if line.startswith("{")]
    for budget in sorted({one["budget"] for one in found}, reverse=True):
        columns = [one for one in found if one["budget"] == budget]
        print(f"With {budget} calls:\n")
        print("| optimizer | " + " | ".join(f"`{one['world']}`" for one in columns) + " |")
        print("| --- " * (len(columns) + 1) + "|")
        cells = [show_regret(one["results"][REFERENCE]) for one in columns]
        print(f"| regret of `{REFERENCE}` | " + " | ".join(cells) + " |")
        for name in columns[0]["results"]:
            if name != REFERENCE:
                print(f"| `{name}` | " + " | ".join(show_gain(one["results"][name]) for one in columns) + " |")
        claims = ", ".join(
            f"{name} {one['results'][name]['claimed_gain_rate']:.0%} in {one['world']}"
            for one in columns
            if one["world"].startswith("null")
            for name in one["results"]
        )
        print(f"\nClaimed gains where there is none: {claims}\n" if claims else "")


if __name__ == "__main__":
    main()
