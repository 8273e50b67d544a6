"""`workbench plugin bench`: optimizers side by side in planted worlds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from workbench.cli import echo_json, say
from workbench_bench.sizes import DEFAULT, MIN_BUDGET, PROOF, ROWS

#: The reference for every optimizer, with the same calls and seeds.
REFERENCE = "random"
#: Enough candidates for any budget: with its default it would end early if candidates share requests.
REFERENCE_RUN = {REFERENCE: {"trials": 200}}


def _split(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))


def _optimizers(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, Any]:
    """Optimizers as in a workflow file, by their names in the table."""
    import yaml

    from workbench.errors import SpecError
    from workbench.study import make_optimizer

    hint = "Write e.g. --optimizers 'optuna,{optuna: {sampler: qmc}}'."
    try:
        entries = yaml.safe_load(f"[{value}]")
    except yaml.YAMLError as error:
        raise SpecError(f"--optimizers: '{value}': {error}", hint=hint) from None
    found: dict[str, Any] = {}
    for entry in entries:
        chain = entry if isinstance(entry, list) else [entry]
        try:
            for step in chain:
                if entry != DEFAULT:
                    make_optimizer(step)
        except (ValueError, TypeError) as error:
            raise SpecError(f"--optimizers: '{entry}': {error}", hint=hint) from None
        found[" + ".join(map(_shown, chain))] = entry
    return found


def _shown(entry: str | Mapping[str, Any]) -> str:
    """An optimizer as it stands in the table."""
    if isinstance(entry, str):
        return entry
    ((name, settings),) = entry.items()
    shown = ", ".join(f"{k}={v}" for k, v in (settings or {}).items())
    return f"{name}({shown})" if shown else name


@click.command("bench")
@click.option(
    "--world",
    "worlds",
    default="facets,retrieval,deceptive,settings,rules,conflict,null,null_rules",
    callback=_split,
    show_default=True,
    help="Comma-separated worlds.",
)
@click.option(
    "--optimizers",
    default="optuna,bootstrap",
    callback=_optimizers,
    show_default=True,
    help="Comma-separated optimizers, optionally with settings or as a chain: "
    "'optuna,{optuna: {sampler: qmc}},[textgrad, optuna]'. `default` is the choice for a file that names none. Random "
    "search is always added as the reference.",
)
@click.option(
    "--budget-calls",
    "budgets",
    default="200,400,800",
    callback=_split,
    show_default=True,
    help=f"Comma-separated maximum numbers of calls per run; proof ({PROOF}) and baseline ({ROWS['val']}) included.",
)
@click.option(
    "--seeds",
    type=click.IntRange(2, 1000),
    default=5,
    show_default=True,
    help="Number of runs per optimizer. Use 60 for published comparisons.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=os.cpu_count() or 1,
    help="Number of parallel processes. [default: cores]",
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Output file for a plot of regret against calls (.svg, .png)."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file for the result of each run. Runs that it already holds are not repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout, one line per world and budget.")
def bench_command(
    worlds: list[str],
    optimizers: dict[str, Any],
    budgets: list[str],
    seeds: int,
    jobs: int,
    plot: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Benchmark optimizers on synthetic tasks without a model.

    A formula answers in place of a model, so the best possible accuracy is known. Regret is that accuracy minus the
    winner's true accuracy. "Against random" is the mean difference in accuracy to random search on the same seeds. Both
    have 95% intervals by Student's t over the seeds.
    """
    from workbench.errors import SpecError, suggest
    from workbench_bench.worlds import WORLDS

    for name in worlds:
        if name not in WORLDS:
            raise SpecError(f"there is no world '{name}'", hint=suggest(name, WORLDS))
    if not worlds or not optimizers or not budgets:
        raise SpecError(
            "name at least one world, one optimizer and one budget", hint="Write e.g. --budget-calls 200,400."
        )
    for budget in budgets:
        if not budget.isdigit():
            raise SpecError(f"'{budget}' is not a number of calls", hint="Write e.g. --budget-calls 200,400.")
        if int(budget) < MIN_BUDGET:
            raise SpecError(
                f"a budget of {budget} calls is too small: proof and baseline alone take {MIN_BUDGET} calls",
                hint="Write e.g. --budget-calls 200,400.",
            )
    if plot is not None:
        from workbench_bench.plot import check_plot

        check_plot(plot)
    runs = {REFERENCE: REFERENCE_RUN, **{name: run for name, run in optimizers.items() if name != REFERENCE}}
    from workbench_bench.run_world import map_in

    with map_in(jobs) as run_all:
        rows = _rows(worlds, [int(b) for b in budgets], runs, seeds, run_all, out, as_json)
    if plot is not None:
        from workbench_bench.plot import draw

        draw(rows, plot)
        say(f"drew {plot}", err=True)


def _rows(
    worlds: Sequence[str],
    budgets: Sequence[int],
    optimizers: Mapping[str, Any],
    seeds: int,
    run_all: Any,
    keep: Path | None,
    as_json: bool,
) -> list[dict[str, Any]]:
    """Run each optimizer in each world with each budget. A group is printed once its world and budget are done.

    run_all: of `map_in`.
    """
    from workbench_bench.run_world import run_many

    rows: list[dict[str, Any]] = []
    for world, budget in itertools.product(worlds, budgets):
        runs = run_many(
            [(world, run, budget, seed) for run in optimizers.values() for seed in range(seeds)], run_all, keep
        )
        found = {name: runs[i * seeds : (i + 1) * seeds] for i, name in enumerate(optimizers)}
        group = [_row(world, name, budget, found[name], found[REFERENCE]) for name in optimizers]
        rows += group
        if as_json:
            echo_json(_object(world, budget, seeds, group))
        else:
            _table(world, group, head=budget == budgets[0])
    return rows


def _row(world: str, optimizer: str, budget: int, runs: Sequence[Any], reference: Sequence[Any]) -> dict[str, Any]:
    from workbench_bench.run_world import compute_mean_and_interval

    measured = [r for r in runs if r.measured]
    score, (low, high) = compute_mean_and_interval([r.accuracy for r in measured or runs])
    regret, (least, most) = compute_mean_and_interval([r.best - r.accuracy for r in measured or runs])
    low, least = max(0.0, low), max(0.0, least)  # with few seeds, Student's t exceeds the possible range
    high, most = min(1.0, high), min(1.0, most)
    row: dict[str, Any] = {
        "world": world,
        "optimizer": optimizer,
        "budget": budget,
        "seeds": len(runs),
        "score": {"mean": score, "ci95": [low, high]},
        "regret": {"mean": regret, "ci95": [least, most]},
        "calls": sum(r.calls for r in runs) / len(runs),
        "claimed_gain_rate": sum(r.claimed for r in runs) / len(runs),
        "errors": sorted({r.error for r in runs if r.error}),
        "measured": len(measured),
        "untried": sorted({r.untried for r in runs if r.untried}),
    }
    if not measured:
        row |= {"score": None, "regret": None}  # figures of the baseline are not the optimizer's
    gains = [b.accuracy - a.accuracy for a, b in zip(reference, runs, strict=True) if a.measured and b.measured]
    if len(gains) > 1 and optimizer != REFERENCE:
        gain, (low, high) = compute_mean_and_interval(gains)
        row["vs_random"] = {"diff": gain, "ci95": [max(-1.0, low), min(1.0, high)]}
    return row


def _object(world: str, budget: int, seeds: int, group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    kept = ("score", "regret", "vs_random", "calls", "claimed_gain_rate", "errors", "measured", "untried")
    results = {row["optimizer"]: {k: row[k] for k in kept if k in row} for row in group}
    return {"world": world, "budget": budget, "seeds": seeds, "results": results}


def _table(world: str, group: Sequence[dict[str, Any]], head: bool) -> None:
    from workbench_bench.worlds import WORLDS

    wide = max(16, *(len(row["optimizer"]) for row in group))
    if head:
        say(f"\n{world}: {WORLDS[world].what}", bold=True)
        say(f"{'optimizer':<{wide}} {'budget':>6} {'used':>6}  {'regret':<23} {'claimed':>8}  against random")
    for row in group:
        say(f"{row['optimizer']:<{wide}} {row['budget']:>6} {row['calls']:>6.0f}  {_figures(row)}")
        for what, reasons in (("failed", row["errors"]), ("nothing was tried", row["untried"])):
            for reason in reasons:
                say(f"  {what}: {reason.splitlines()[0]}")


def _figures(row: dict[str, Any]) -> str:
    regret, against = row["regret"], row.get("vs_random")
    if regret is None:
        return "nothing was measured"
    bar = "█" * round(20 * regret["mean"]) or "·"
    text = f"{against['diff']:+.3f} [{against['ci95'][0]:+.3f}, {against['ci95'][1]:+.3f}]" if against else ""
    interval = f"{regret['mean']:.3f} [{regret['ci95'][0]:.3f}, {regret['ci95'][1]:.3f}]"
    few = f"  ({row['measured']} of {row['seeds']} runs measured)" if row["measured"] < row["seeds"] else ""
    return f"{interval:<23} {row['claimed_gain_rate']:>8.0%}  {text:<25} {bar}{few}"
