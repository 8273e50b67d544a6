"""One cell of each table on optimizers, calculated again: the cheapest by the gate, the others by `.ci/long`.

A cell that moved means that its table is of older code: run the table's command again.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from tests.helpers.memory_worlds import PREDICT, on_topic, plain_rows

from workbench_bench.commands import REFERENCE_RUN
from workbench_bench.run_world import compute_mean_and_interval, run_many

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "optimizers"))
sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "promises"))

import default_optimizer
import fgo_prompts
import memory_worlds
import topology

ROOT = Path(__file__).parents[2]
BENCHMARKS, MEMORY = "contrib/bench/LOG.md", "plugins/research/workbench_memory/README.md"


def cell(page: str, after: str, row: str, column: str) -> str:
    """A cell of the first table after a text, without emphasis. row: the first cells of its line."""
    lines = (ROOT / page).read_text(encoding="utf-8").partition(after)[2].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| "))
    end = next((i for i, line in enumerate(lines) if i > start and not line.startswith("|")), len(lines))
    head, *body = ([one.strip() for one in line.strip().strip("|").split("|")] for line in lines[start:end])
    (found,) = [cells for cells in body if " | ".join(cells).startswith(row)]
    return found[head.index(column)].replace("**", "")


def figures(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[+-]?\d+\.\d+", text)]


def gain_of(world: str, optimizer: str, calls: int) -> list[float]:
    """The difference to random search over 20 seeds, with its interval, as `workbench plugin bench` prints it."""
    runs = {
        run: run_many([(world, made, calls, seed) for seed in range(20)])
        for run, made in (("reference", REFERENCE_RUN), ("own", optimizer))
    }
    mean, ends = compute_mean_and_interval([b.accuracy - a.accuracy for a, b in zip(*runs.values(), strict=True)])
    return [mean, *ends]


@cache
def regret_of(world: str, optimizer: str, calls: int) -> list[float]:
    mean, ends = compute_mean_and_interval(
        [r.best - r.accuracy for r in run_many([(world, optimizer, calls, seed) for seed in range(20)])]
    )
    return [mean, *ends]


def default_in(world: str) -> list[float]:
    mean, ends = compute_mean_and_interval(default_optimizer.measure([world], range(20))[world]["default"])
    return [mean, *ends]


def structure_by(name: str) -> list[float]:
    return [statistics.mean(topology.one(name, seed, 40, 128)["reached"] or 128 for seed in range(20))]


def accuracy_of_rewrite() -> list[float]:
    return [statistics.mean(fgo_prompts.one(("rewrite, 16 rows", 48, seed)).accuracy for seed in range(10))]


def memory_against_random() -> list[float]:
    both = [
        memory_worlds.accuracies(name, name, plain_rows, on_topic, PREDICT, 104, 20) for name in ("memory", "random")
    ]
    return [statistics.mean(found) for found in both]


CELLS: Mapping[str, tuple[tuple[str, str, str, str], Callable[[], list[float]]]] = {
    "default": ((BENCHMARKS, "#### Without `optimize:`", "`rules`", "regret, default"), lambda: default_in("rules")),
    "optimizers, 400 calls": (
        (BENCHMARKS, "With 400 calls:", "`textgrad`", "`rules`"),
        lambda: gain_of("rules", "textgrad", 400),
    ),
    "optimizers, 800 calls": (
        (BENCHMARKS, "With 800 calls:", "`textgrad`", "`rules`"),
        lambda: gain_of("rules", "textgrad", 800),
    ),
    "routes": (
        (BENCHMARKS, "#### Functions and routes", "`routing` | 400", "regret"),
        lambda: regret_of("routing", "optuna", 400),
    ),
    "router": ((BENCHMARKS, "#### Routing", "400 | `optuna`", "regret"), lambda: regret_of("routing", "optuna", 400)),
    "prompts": (
        (BENCHMARKS, "#### Prompts of the proposer", "48 | rewrite, 16 rows", "accuracy"),
        accuracy_of_rewrite,
    ),
    "memory": ((MEMORY, "## Measured\n", "only examples on the topic help", "result"), memory_against_random),
    "structure": ((BENCHMARKS, "### Structure", "`random`", "mean"), lambda: structure_by("random")),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "memory" else pytest.param(name, marks=pytest.mark.long) for name in CELLS]
)
def test_a_cell_of_each_table_comes_out_again(name: str) -> None:
    place, calculate = CELLS[name]
    told, found = figures(cell(*place)), [*calculate()]
    both = min(len(told), len(found))
    assert both and told[:both] == pytest.approx(found[:both], abs=6e-4 if name != "structure" else 0.06)


def test_every_table_of_benchmarks_follows_a_command_with_its_date_and_commit() -> None:
    """Of those on optimizers; the others name commands and machines in their text."""
    text = (ROOT / BENCHMARKS).read_text(encoding="utf-8")
    part = text.partition("## Optimizers in planted worlds")[2].partition("## A real small model")[0]
    for section in re.split(r"^#{3,4} ", part, flags=re.MULTILINE):
        if "\n| " in section:
            title = section.splitlines()[0] or "the first"
            assert re.search(r"^    (python|workbench) ", section, re.MULTILINE), f"no command: {title}"
            dated = r"\b\d{1,2}\s+[A-Z][a-z]+\s+2026\s+\([0-9a-f]{8}\b"
            assert re.search(dated, section), f"no date and commit: {title}"
