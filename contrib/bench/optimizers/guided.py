"""What it saves to edit the nodes that decide failures: `guided: true` against the same optimizer without it.

    python contrib/bench/optimizers/guided.py [--seeds 20] [--optimizers evolve rewrite textgrad mcts] [--jobs 2]

A planted world; every model is a formula. A chain of eight nodes adds one at each; one node, which the seed chooses,
adds two on half of the rows until its instructions say "Take care.". The proposer writes that in half of its answers,
for whichever node it is asked; as a stronger model in place of a step it is always right. Counted are the calls until
a candidate has a score of 1 on val, replays and proposals included; a run that never has one counts its whole budget.
`mcts` starts without its initial design, which would try all settings of a space as small as this one.
The ratio is of the sums over seeds, with a 95% bootstrap interval over seeds, which pair the two sides.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

NODES, BUDGET = 8, 4000
CARE, STRONG = "Take care.", "openai/strong"
WAYS = ["Add one.", "Add 1.", "Give the next number.", f"Add one. {CARE}"]


def hash_of(*parts: Any) -> float:
    """A number from 0 to 1 that depends on the parts alone."""
    return random.Random("|".join(map(str, parts))).random()


def answer(text: str, system: str, faulty: int | None) -> str:
    """The answer of a node. faulty: the node that errs, None for the stronger model."""
    row, place, value = (int(x) for x in re.findall(r"row: r(\d+)\nn(\d+): (-?\d+)", text)[-1])
    wrong = place == faulty and CARE not in system and hash_of("row", row) < 0.5
    return f"n{place + 1}: {value + 1 + wrong}"


def propose(text: str, draw: Any) -> str:
    """A rewritten instruction; a gradient where one is asked for."""
    if "<prompt>" in text:
        careful = hash_of("propose", text, draw) < 0.5
        return f"<prompt>Add one. {CARE if careful else f'Way {int(1000 * hash_of(draw, text))}.'}</prompt>"
    return "<step>Be more careful.</step><inputs>The number may be wrong.</inputs>\nThe last number is wrong."


def simulated_pool(faulty: int) -> Any:
    """The two models. Both are simulated: formulas answer."""
    from workbench.lm import LMPool, Response

    class Simulated:
        concurrency = 8

        def __init__(self, strong: bool):
            self.strong, self.identity = strong, f"simulated, {'strong' if strong else 'weak'}"

        async def complete(self, request: Any) -> Any:
            text, first = str(request.messages[-1]["content"]), request.messages[0]
            system = str(first["content"]) if first["role"] == "system" else ""
            if re.search(r"row: r\d+\nn\d+: -?\d+\nn\d+:$", text):
                said = answer(text, system, None if self.strong else faulty)
            else:
                said = propose(system + text, request.replica)
            return Response(said, "stop", len(text) // 4, 5, 0.0)

        def price(self, prompt_tokens: int, completion_tokens: int) -> float:
            return 0.0

        async def aclose(self) -> None:
            pass

    class SimulatedPool(LMPool):
        def __init__(self) -> None:
            super().__init__()
            self.models = {True: Simulated(True), False: Simulated(False)}

        def get(self, spec: Any) -> Any:
            return self.models[spec.model == STRONG]

        async def aclose(self) -> None:
            pass

    return SimulatedPool()


def write_file(folder: Path, optimizer: str, guided: bool, seed: int) -> Path:
    """The workflow file of a run."""
    rows = [{"id": f"r{i}", "row": f"r{i}", "n0": 0, f"n{NODES}": NODES} for i in range(64)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    long: dict[str, dict[str, Any]] = {
        "textgrad": {"steps": 100, "patience": 100},
        "rewrite": {"rounds": 1000, "patience": 1000},
        "mcts": {"initial": 0, "rounds": 1000, "patience": 1000},
    }
    settings: dict[str, Any] = {**long.get(optimizer, {}), "guided": guided}
    names = [f"node{k}" for k in range(NODES)]
    search = {f"nodes.{name}.instructions": WAYS for name in names} if optimizer in ("mcts",) else {}
    spec = {
        "name": "chain",
        "seed": seed,
        "data": {"file": "rows.jsonl", "split": {"train": 24, "val": 24, "test": 16}},
        "metric": f"exact_match(n{NODES})",
        "lm": {"model": "openai/weak", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
        "roles": {"proposer": {"model": STRONG, "api_base": "http://127.0.0.1:9/v1", "attempts": 1}},
        "nodes": {
            name: {"predict": f"row, n{k} -> n{k + 1}: int", "instructions": WAYS[0]} for k, name in enumerate(names)
        },
        **({"search": search} if search else {}),
        "optimize": [{optimizer: settings}],
        "budget": {"calls": BUDGET},
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec))
    return path


def calls_to_best(job: tuple[str, bool, int]) -> int:
    """Calls until val is all right, for (optimizer, guided, seed)."""
    from workbench.errors import Interrupted
    from workbench.run import Options, optimize

    name, guided, seed = job
    spent, reached = 0, None

    def listen(event: str, data: dict[str, Any]) -> None:
        nonlocal spent, reached
        if event == "call_settled":
            spent += data["call"].attempts * (not data["call"].cached)
        elif event == "candidate_evaluated" and reached is None:
            found = data["evaluation"]
            if found.complete and found.score == 1:
                reached = spent
                raise Interrupted("the best is reached")

    with tempfile.TemporaryDirectory() as folder:
        path = write_file(Path(folder), name, guided, seed)
        options = Options(out=Path(folder) / "out.yaml")
        pool = simulated_pool(int(NODES * hash_of("faulty", seed)))
        optimize(path, options=options, database=Path(folder) / "a.db", listener=listen, pool=pool)
    return BUDGET if reached is None else reached


def ratio(guided: Sequence[int], plain: Sequence[int]) -> tuple[float, float, float]:
    """Calls with guidance over those without, and a bootstrap interval."""
    import numpy

    draws = numpy.random.default_rng(0).integers(0, len(plain), (5000, len(plain)))
    sums = numpy.array(guided)[draws].sum(axis=1) / numpy.array(plain)[draws].sum(axis=1)
    low, high = numpy.quantile(sums, [0.025, 0.975])
    return sum(guided) / sum(plain), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--optimizers", nargs="+", default=["evolve", "rewrite", "textgrad", "mcts"])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    print("| optimizer | calls, guided | without | ratio | reached, guided | without |")
    print("| --- | --- | --- | --- | --- | --- |")
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        for name in given.optimizers:
            sides = [list(pool.map(calls_to_best, [(name, g, s) for s in range(given.seeds)])) for g in (True, False)]
            mean = [sum(side) / len(side) for side in sides]
            share, low, high = ratio(*sides)
            hits = [f"{sum(n < BUDGET for n in side)} of {given.seeds}" for side in sides]
            print(
                f"| {name} | {mean[0]:.0f} | {mean[1]:.0f} | {share:.2f} [{low:.2f}, {high:.2f}] | {hits[0]} | "
                f"{hits[1]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
