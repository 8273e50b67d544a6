"""The router on fresh calls, in the worlds of routes: regret beside the one of `optuna` at the same calls and seeds.

    python contrib/bench/optimizers/routing_world.py [--seeds 20] [--first 0] [--calls 400] [--on kind]

Four simulated models, each good at other kinds of rows (`workbench_bench.routing`); no model is involved. `optuna`
searches a branch on the field `kind`, as in contrib/bench/LOG.md, and learns from val alone; the router decides by the
same field, and learns from train, or from train and val. Its accuracy is that of the planted table. `--on text` makes
it find the kind among other words, of which optuna is spared.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from workbench.workflow import Workflow
from workbench_bench import routing
from workbench_bench.run_world import LABELS, Result, run_world
from workbench_bench.worlds import TOPICS, WORLDS, World

_SIGNATURE = "text -> label: Literal['a', 'b', 'c', 'd']"


def routed(name: str, on: str) -> World:
    """The world with a `route` node over the text in place of the branch."""
    candidates = {
        model.rpartition("-")[2]: {"predict": _SIGNATURE, "instructions": "Label it.", "lm": model}
        for model in routing.MODELS
    }
    node = {"route": candidates, "on": [on]}
    world = WORLDS[name]
    plant = world.seeded

    def seeded(own: World, seed: int) -> World:
        if plant is None:  # nothing helps
            return own
        return replace(plant(own, seed), truth=lambda workflow: score_routes(workflow, seed))

    return replace(world, seeded=seeded, nodes={"sort": node}, search={})


def score_routes(workflow: Workflow, seed: int) -> float:
    """The planted accuracy of a `route` node, over fresh texts."""
    node: Any = workflow.enabled_nodes["sort"]
    draw, scores = random.Random(f"true:{seed}"), []
    for number in range(40):
        for kind in routing.KINDS:
            topic = draw.randrange(TOPICS)
            text = f"{kind} test {number} topic{topic} word{topic}: a {draw.choice(LABELS)}-thing"
            name = node.config.always or node.reference.name
            if node.config.always is None and node.router is not None:
                router, text = node.router, node.text_of({"text": text, "kind": kind})
                name = router.candidates[router.choose(router.scores(text), router.estimated_costs(text))]
            scores.append(routing.make_table(seed)[f"openai/sim-{name.partition('*')[0]}", kind])
    return statistics.fmean(scores)


def one(job: tuple[str, str, int, int, str]) -> Result:
    what, world, calls, seed, on = job
    if what == "optuna":
        return run_world(WORLDS[world], "optuna", calls=calls, seed=seed)
    return run_world(routed(world, on), {"route": {"aim": "score", "learn_from": what}}, calls=calls, seed=seed)


def interval(values: list[float]) -> str:
    mean, half = statistics.fmean(values), 2.09 * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed; what is tuned is tuned on others")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--on", default="kind", choices=["kind", "text"])
    parser.add_argument("--world", default="routing", choices=["routing", "null_routing"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--what", nargs="*", default=["optuna", "train", "train and val"])
    options = parser.parse_args()
    regrets, seeds = dict[str, list[float]](), range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for what in options.what:
            jobs = [(what, options.world, options.calls, seed, options.on) for seed in seeds]
            found = list(pool.map(one, jobs))
            if broken := [r.error or r.untried for r in found if not r.measured]:
                sys.stdout.write(f"{what}: {len(broken)} runs could not be measured: {broken[0]}\n")
            regrets[what] = [r.best - r.accuracy for r in found]
            spent, claimed = statistics.fmean(r.calls for r in found), sum(r.claimed for r in found)
            sys.stdout.write(f"{what}: regret {interval(regrets[what])}, {spent:.0f} calls, {claimed} claimed a gain\n")
            if what != "optuna" and "optuna" in regrets:
                ahead = [a - b for a, b in zip(regrets["optuna"], regrets[what], strict=True)]
                sys.stdout.write(f"  ahead of optuna by {interval(ahead)}\n")


if __name__ == "__main__":
    main()
