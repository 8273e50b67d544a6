"""Which tier a test belongs to. Without a marker it is in the fast tier, which `pytest` runs.

`slow`: many seeds or many processes, the gallery, every block of the docs, DSPy's optimizers. `training`: torch.
`wasm`: the sandbox of Deno and Pyodide. `pytest -m "slow or training or wasm"` runs these, but for those of `long`:
minutes each, mostly many seeds of what has a shorter test beside it. `.ci/long` runs these, the gate does not.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# Several tests share the machine, so no example of hypothesis has a deadline of its own.
settings.register_profile("workbench", deadline=None)
settings.load_profile("workbench")

# Three workers of pytest share two cores: threads of BLAS and torch would wait for each other longer than they compute.
# Subprocesses see it, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The workflows of tests are ours. Subprocesses see it, too; tests of trust unset it.
os.environ["WORKBENCH_TRUST"] = "/"

# The `python` of workflows and agents is the one that runs the tests, also where its environment is not activated: a
# shim of pyenv takes 0.1 s of CPU for each row.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

HERE = Path(__file__).parent

#: Folders and files whose tests all are of one tier.
TIERS = {
    "plugins/training": "training",
    "plugins/hf": "training",
    "kit/test_fixed_batch.py": "training",
    "kit/test_generation.py": "training",
    "plugins/sandbox/test_wasm.py": "wasm",
    "plugins/sandbox/test_wasm_guest.py": "wasm",
}


#: Files with the longest tests. They begin, so that no worker waits at the end while another one is at work on them.
LONG = (
    *("plugins/optuna/test_shared_study.py", "plugins/route/test_router.py", "plugins/training/test_train_real.py"),
    "study/test_targets.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file without a test that `-m` selects is not imported either: in each worker this takes seconds."""
    expression = config.option.markexpr
    place = collection_path.relative_to(HERE).as_posix() if collection_path.is_relative_to(HERE) else ""
    if " or " not in expression:
        excluded = {part.strip() for part in expression.split(" and ")}
        # None leaves the question to pytest; what is named on the command line is asked about, too.
        return True if f"not {TIERS.get(place)}" in excluded else None
    selected = [f"mark.{name.strip()}" for name in expression.split(" or ")]
    if collection_path.suffix != ".py" or re.search(r"\band\b|\bnot\b|\(", expression) or in_a_tier(place):
        return None
    return None if any(mark in read(collection_path) for mark in selected) else True


@cache
def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def in_a_tier(place: str) -> bool:
    return any(place.startswith(start) for start in TIERS)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """What is collected stays: no garbage collection looks through it, now (half of the time) or during the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        for name in {mark.name for mark in item.iter_markers()} & {"slow", "long", *TIERS.values()}:
            if f"mark.{name}" not in read(item.path):
                raise pytest.UsageError(f"{item.nodeid} is `{name}`: write pytest.mark.{name} in its file")
        for start, tier in TIERS.items():
            if place.startswith(start):
                item.add_marker(tier)
    expression = config.option.markexpr
    if expression and "long" not in expression:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=lambda item: item.path.relative_to(HERE).as_posix() not in LONG)
