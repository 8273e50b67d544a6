"""The targets of contrib/fuzz run without a fuzzer: on their seeds, on changed seeds, and on what was once found."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).parents[2] / "contrib" / "fuzz"


def load_targets() -> Any:
    spec = importlib.util.spec_from_file_location("fuzz_targets", FUZZ / "targets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


targets = load_targets()
SEEDS = [(name, seed) for name in targets.TARGETS for seed in sorted((FUZZ / "seeds" / name).iterdir())]


def test_a_target_runs_on_its_seeds_without_a_fuzzer(subtests: pytest.Subtests) -> None:
    for name, seed in SEEDS:
        with subtests.test(name=name):
            targets.TARGETS[name](seed.read_bytes())
            assert "atheris" not in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("name", targets.TARGETS)
def test_a_target_runs_on_anything(name: str) -> None:
    rng = random.Random(name)
    seeds = [seed.read_bytes() for target, seed in SEEDS if target == name]
    for _ in range(150):
        data = bytearray(rng.choice(seeds) if rng.random() < 0.8 else rng.randbytes(rng.randrange(60)))
        for _ in range(rng.randrange(6)):
            place = rng.randrange(len(data) + 1)
            data[place : place + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
        targets.TARGETS[name](bytes(data))


def test_every_target_has_seeds_and_a_job() -> None:
    assert {name for name, _ in SEEDS} == set(targets.TARGETS) == {"spec_file", "database", "server_answer"}
    job = (FUZZ.parents[1] / ".github" / "workflows" / "fuzz.yml").read_text()
    assert all(name in job for name in targets.TARGETS)


def test_the_targets_notice() -> None:
    """A target that could not fail would find nothing: with the check taken out, what it guards comes through."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets, "check_spec", lambda source: (None, source))
        with pytest.raises(AssertionError):
            targets.spec_file(b"name: a")
        patch.setattr(targets.wire, "parse_body", lambda *_: {}["choices"])
        with pytest.raises(KeyError):
            targets.server_answer(b"\0{}")
        patch.setattr("workbench.store.read_only.ReadOnlyStore.rows", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            targets.database(b"")
