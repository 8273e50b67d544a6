"""The optimizer `team`: it keeps the members who count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant

from workbench.lm import Request

#: The expert comes last: where all disagree, the first one's answer counts.
MEMBERS = {
    "fool": "You are a fool.",
    "clown": "You are a clown.",
    "mule": "You are a mule.",
    "expert": "You are the expert.",
}


def skill(request: Request) -> float:
    """The expert is nearly always right; the others mostly wrong."""
    return 0.95 if "You are the expert." in str(request.messages[0]["content"]) else 0.3


def null(request: Request) -> float:
    return 0.5


def _plant(folder: Path, skill: Any, optimizer: Any, seed: int, kind: str) -> Any:
    of = {"predict": "text -> label: Literal['a', 'b', 'c', 'd']"}
    if kind == "ensemble":
        node = {kind: [{**of, "instructions": role} for role in MEMBERS.values()], "samples": 1}
        search = {"nodes.sort.weights": [[mask >> i & 1 for i in range(4)] for mask in range(1, 16)]}
    else:
        node = {kind: of, "members": MEMBERS}
        subsets = [dict(m for i, m in enumerate(MEMBERS.items()) if mask >> i & 1) for mask in range(1, 16)]
        search = {"nodes.sort.members": subsets}
    report, _ = plant(
        folder,
        skill,
        optimizer,
        calls=900 if kind == "ensemble" else 1800,
        seed=seed,
        rows=(24, 24, 40),
        nodes={"sort": node},
        search=search,
    )
    return report


def kept(report: Any) -> float:
    """The winner's true accuracy, roughly: the expert's share among the members left."""
    tree = report.winner.nodes["sort"]
    names = tree.get("members", MEMBERS)
    left = [m for m, weight in zip(names, tree.get("weights") or [1] * len(names), strict=True) if weight]
    return 1 / len(left) if "expert" in left else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ensemble", "selforg"])
def test_the_team_is_cut_down_to_its_expert(kind: str, tmp_path: Path) -> None:
    """Against random search over all subsets, at the same calls."""
    mine = [kept(_plant(tmp_path / f"t{s}", skill, "team", s, kind)) for s in range(3)]
    drawn = [kept(_plant(tmp_path / f"r{s}", skill, "random", s, kind)) for s in range(3)]
    assert sum(mine) >= sum(drawn) and min(mine) > 0, (mine, drawn)  # more than 0: the expert is never sent home


def test_where_all_are_equal_no_gain_is_claimed(tmp_path: Path) -> None:
    claims = [_plant(tmp_path / f"n{s}", null, "team", s, "ensemble").gain_shown for s in range(4)]
    assert sum(claims) == 0
