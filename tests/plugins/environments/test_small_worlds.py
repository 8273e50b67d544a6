"""The rules of `grid`, `web` and `gymnasium`."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.environments import made, play

from workbench.errors import SpecError
from workbench_kit.acting import open_environment


def test_the_door_needs_the_key_and_the_score_is_the_share_of_what_is_done(base: Path) -> None:
    way = ["east", "east", "west", "south", "south", "north", "north", "east", "east", "east", "east"]
    positions = play("grid", base, way)
    assert "The door is shut" in positions[2].observation and "You took the key." in positions[5].observation
    assert [round(p.score, 2) for p in positions] == [0, 0, 0, 0, 0, 0.33, 0.33, 0.33, 0.33, 0.67, 0.67, 1.0]
    assert positions[-1].done and positions[-1].observation == "You reached the goal."
    assert play("grid", base, ["up"] * 3, limit=3)[-1].done
    there, back = play("grid", base, ["south", "north"])[0], play("grid", base, ["south", "north"])[2]
    assert there.same == back.same and there.key != back.key, "the same cell, and not the same number of moves"


def test_a_walk_goes_by_links_and_back(base: Path) -> None:
    positions = play("web", base, ["click shop", "back", "back", "click SHOP", "click cart"])
    assert [p.observation.split(":")[0] for p in positions[:3]] == ["home", "shop", "home"]
    assert positions[3].observation.startswith("There is no page to go back to.")
    assert positions[1].hints == ("click cart", "back") and positions[0].hints == ("click news", "click shop")
    assert positions[-1].done and positions[-1].score == 1.0 and positions[-2].score == 0.0


def test_gymnasium_is_played_again_from_its_seed(base: Path) -> None:
    pytest.importorskip("gymnasium")
    names = ["west", "south", "east", "north"]
    positions = play(
        "gymnasium", base, ["south", "south", "east"], actions_named=names, show="ansi", settings={"is_slippery": False}
    )
    assert positions[0].hints == tuple(names)
    assert [p.observation.split("\n")[0] for p in positions] == ["0", "4", "8", "9"]
    assert "[S]FFF" in positions[0].observation and positions[0].snapshot is None
    with pytest.raises(SpecError, match="gymnasium cannot make 'FrozenLak-v1'"):
        made("gymnasium", base, id="FrozenLak-v1").reset({})


def test_without_gymnasium_the_error_names_the_extra(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "gymnasium":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SpecError, match=r"pip install -e '\./plugins/agents\[gymnasium\]'"):
        open_environment("gymnasium", {}, base).reset({})
