"""`workbench bench`: optimizers side by side in a planted world."""

from __future__ import annotations

import json
from typing import Any

import click


def _split(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


@click.command("bench")
@click.option("--world", "worlds", default="facets,retrieval,deceptive,settings,null", callback=_split, show_default=True,
              help="Worlds, separated by commas.")  # fmt: skip
@click.option("--optimizers", default="random,optuna,bootstrap", callback=_split, show_default=True,
              help="Optimizers by name; the first is what the others are compared with.")  # fmt: skip
@click.option("--budget", "budgets", default="200,400,800", callback=_split, show_default=True,
              help="Calls that a run may spend, the proof's 120 included.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(2, 1000), default=5, show_default=True, help="Runs of each.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON instead.")
def bench_command(worlds: list[str], optimizers: list[str], budgets: list[str], seeds: int, as_json: bool) -> None:
    """Compare optimizers in planted worlds. No language model is involved: a formula answers, so the best is known.

    Regret is the distance of the winner's true accuracy to the best one; less is better. "Against" is the mean
    difference of accuracies to the first optimizer on the same seeds, with its 95% interval.
    """
    from workbench.errors import SpecError, suggest
    from workbench.plugins import plugins
    from workbench_sim.worlds import WORLDS

    for name, known in [
        *((w, list(WORLDS)) for w in worlds),
        *((o, plugins().names("optimizers")) for o in optimizers),
    ]:
        if name not in known:
            raise SpecError(f"there is no '{name}'", hint=suggest(name, known))
    if not worlds or not optimizers or not budgets or not all(b.isdigit() and int(b) > 0 for b in budgets):
        raise SpecError("worlds, optimizers and budgets need at least one each", hint="Write e.g. --budget 200,400.")
    rows = [_row(WORLDS[w], o, int(b), seeds, optimizers[0]) for w in worlds for b in budgets for o in optimizers]
    if as_json:
        return click.echo(json.dumps(rows))
    _table(rows)


_seen: dict[tuple[str, str, int, int], list[Any]] = {}


def _results(world: Any, optimizer: str, calls: int, seeds: int) -> list[Any]:
    """The runs of one line; the first optimizer's are needed by all lines of its world and budget."""
    from workbench_sim.run import run_world

    key = (world.name, optimizer, calls, seeds)
    if key not in _seen:
        _seen[key] = [run_world(world, optimizer, calls=calls, seed=seed) for seed in range(seeds)]
    return _seen[key]


def _row(world: Any, optimizer: str, calls: int, seeds: int, first: str) -> dict[str, Any]:
    from workbench.proof import paired_proof
    from workbench_sim.run import regret

    results = _results(world, optimizer, calls, seeds)
    mean, (low, high) = regret(world, results)
    row: dict[str, Any] = {
        "world": world.name, "optimizer": optimizer, "budget": calls, "seeds": seeds, "regret": mean,
        "ci95": [low, high], "calls": sum(r.calls for r in results) / seeds,
        "gain_claimed": sum(r.claimed for r in results), "errors": sorted({r.error for r in results if r.error}),
    }  # fmt: skip
    if optimizer != first:
        others = _results(world, first, calls, seeds)
        proof = paired_proof([r.accuracy for r in others], [r.accuracy for r in results])
        row["against"] = {"optimizer": first, "diff": proof.diff, "ci95": list(proof.ci95)}
    return row


def _table(rows: list[dict[str, Any]]) -> None:
    from workbench_sim.worlds import WORLDS

    for world in dict.fromkeys(r["world"] for r in rows):
        click.echo(click.style(f"\n{world}: {WORLDS[world].what}", bold=True))
        click.echo(f"{'optimizer':<16} {'budget':>6} {'used':>6}  {'regret':<24} {'claimed':>8}  against the first")
        for row in (r for r in rows if r["world"] == world):
            low, high = row["ci95"]
            bar = "█" * round(20 * row["regret"]) or "·"
            against = row.get("against")
            text = f"{against['diff']:+.3f} [{against['ci95'][0]:+.3f}, {against['ci95'][1]:+.3f}]" if against else ""
            click.echo(f"{row['optimizer']:<16} {row['budget']:>6} {row['calls']:>6.0f}  {row['regret']:.3f} "
                       f"[{low:.3f}, {high:.3f}] {row['gain_claimed']:>5}/{row['seeds']}  {text:<26} {bar}")  # fmt: skip
            for error in row["errors"]:
                click.echo(f"  failed: {error.splitlines()[0]}")
