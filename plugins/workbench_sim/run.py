"""Runs an optimizer in a world, by the real runtime, ledger and proof; only the language model is a formula."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.lm import Request, Response
from workbench.run import Options, optimize
from workbench.runtime import LMPool
from workbench.workflow import Workflow
from workbench_sim.worlds import PLAIN, TOPICS, WORLDS, World, proposer

LABELS = ("a", "b", "c", "d")
ROWS = {"train": 48, "val": 40, "test": 60}


class SimulatedLM:
    """What both simulated language models share: no model, no price."""

    concurrency = 8

    def __init__(self, world: World):
        self.world, self.identity = world, f"{type(self).__name__}, no model"

    def draw(self, request: Request) -> random.Random:
        """Chance that hangs on the request alone, so that the same request always gets the same answer."""
        return random.Random(hashlib.sha256(request.key(self.world.name).encode()).digest())

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


class SimulatedTaskLM(SimulatedLM):
    """An answer is right if a number made of the request's hash lies below the skill, so every candidate has a noise
    of its own."""

    async def complete(self, request: Request) -> Response:
        said = self.world.speak(request)
        if said is not None:
            return Response(said, "stop", _tokens(request), 1, 0.0)
        question = str(request.messages[-1]["content"])
        right = next((i for i, c in enumerate(LABELS) if f" {c}-thing" in question), 0)
        draw = self.draw(request)
        if draw.random() >= self.world.skill(request):
            right = (right + draw.randrange(1, len(LABELS))) % len(LABELS)
        return Response(LABELS[right], "stop", _tokens(request), 1, 0.0)


class SimulatedProposerLM(SimulatedLM):
    """Writes instructions and advice as `worlds.proposer` says."""

    async def complete(self, request: Request) -> Response:
        text = proposer(self.world, request, self.draw(request))
        return Response(text, "stop", _tokens(request), len(text) // 4, 0.0)


def _tokens(request: Request) -> int:
    return sum(len(str(m["content"])) for m in request.messages) // 4


class SimulatedPool(LMPool):
    """Serves the two simulated language models of a world."""

    def __init__(self, world: World):
        super().__init__()
        self.task, self.proposer = SimulatedTaskLM(world), SimulatedProposerLM(world)

    def get(self, spec: Any) -> Any:
        return self.proposer if spec.model.endswith("proposer") else self.task


@dataclass(frozen=True)
class Result:
    """One run: the winner's true accuracy, what it spent, and whether a gain was claimed.

    proposer: calls, prompt_tokens and largest_prompt of the proposer.
    """

    accuracy: float
    calls: int
    claimed: bool
    error: str | None = None
    proposer: Mapping[str, int] = field(default_factory=dict)


def run_world(world: World, optimizer: Any, *, calls: int, seed: int, rows: Mapping[str, int] = ROWS) -> Result:
    """optimizer: as in a workflow file, e.g. "random" or {"optuna": {"sampler": "qmc"}}. rows: how many of each split."""
    world = world.planted(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = _write(folder, world, optimizer, calls, seed, rows)
        try:
            report = optimize(file, database=folder / "run.db", pool=SimulatedPool(world),
                              options=Options(out=str(folder / "out.yaml")))  # fmt: skip
        except WorkbenchError as error:
            return Result(0.0, 0, False, str(error))
        if report.status not in ("finished", "budget"):
            return Result(0.0, report.spent["calls"], False, report.error)
        paid = report.spent["by_role"].get("proposer", {})
        kept = {name: paid.get(name, 0) for name in ("calls", "prompt_tokens", "largest_prompt")}
        return Result(accuracy(world, report.winner, seed), report.spent["calls"], report.gain_shown, None, kept)


def _write(folder: Path, world: World, optimizer: Any, calls: int, seed: int, sizes: Mapping[str, int]) -> Path:
    for split, count in sizes.items():
        draw = random.Random(f"{split}:{seed}")
        rows = []
        for i in range(count):
            label, topic = LABELS[i % len(LABELS)], draw.randrange(TOPICS)
            rows.append({"text": f"{split} {i} topic{topic} word{topic}: a {label}-thing", "label": label,
                         "topic": topic})  # fmt: skip
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    file = folder / "workflow.yaml"
    spec = {
        "name": world.name, "lm": {"model": "openai/simulated", "api_base": "http://127.0.0.1:9/v1"},
        "roles": {"proposer": {"model": "openai/simulated-proposer", "api_base": "http://127.0.0.1:9/v1"}},
        "data": {split: f"{split}.jsonl" for split in sizes}, "metric": "exact_match(label)",
        "nodes": dict(world.nodes) or {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": PLAIN}},
        "search": dict(world.search), "optimize": [optimizer], "budget": {"calls": calls}, "seed": seed,
    }  # fmt: skip
    file.write_text(json.dumps(spec), encoding="utf-8")
    return file


def accuracy(world: World, winner: Workflow, seed: int) -> float:
    """The winner's accuracy by the formula, over fresh questions on all topics."""
    from workbench.nodes import enabled

    known = world.truth(winner)
    if known is not None:
        return known
    nodes: Any = enabled(winner)
    draw = random.Random(f"true:{seed}")
    rows = [{"text": f"new topic{t} word{t}: a {draw.choice(LABELS)}-thing"} for t in range(TOPICS)]
    node = nodes.get("sort")
    if not hasattr(node, "_render") or set(node.inputs) - {"text"}:
        return measured(world, winner, rows)
    settings = {k: v for k, v in node.settings.items() if v is not None}
    return sum(world.skill(Request(tuple(node._render(row)), **settings)) for row in rows) / len(rows)


def measured(world: World, workflow: Workflow, rows: Sequence[Mapping[str, Any]], repeats: int = 32) -> float:
    """The share of right answers of a workflow of several requests, of which no formula tells: each row many times."""
    from workbench.data import Example
    from workbench.ledger import Ledger
    from workbench.runtime import Program, Runtime, lm_spec
    from workbench.spec import BudgetSpec
    from workbench.store import Store

    async def course(store: Store) -> list[bool]:
        runtime = Runtime(
            Ledger(store, 1, BudgetSpec.model_validate({})), lm_spec("openai/simulated"), {}, SimulatedPool(world)
        )
        program, right = Program(workflow, runtime), []
        for number in range(repeats):
            for row in rows:
                asked = {**row, "text": f"{number} {row['text']}"}
                found = (await program.run(Example(asked["text"], asked))).prediction.get("label")
                right.append(f" {found}-thing" in asked["text"])
        return right

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "measured.db")
        store.execute("insert into runs (run, status, started, spec, options) values ('m', 'running', '', '', '')")
        try:
            return statistics.mean(asyncio.run(course(store)))
        finally:
            store.close()


def run_many(jobs: Sequence[tuple[str, Any, int, int]], processes: int = 1) -> list[Result]:
    """(world, optimizer, calls, seed) each, in their order; a run hangs on nothing but these four."""
    if processes == 1:
        return [_run_job(job) for job in jobs]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(min(processes, len(jobs)), mp_context=get_context("spawn")) as pool:
        return list(pool.map(_run_job, jobs))


def _run_job(job: tuple[str, Any, int, int]) -> Result:
    world, optimizer, calls, seed = job
    return run_world(WORLDS[world], optimizer, calls=calls, seed=seed)


def mean_and_interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The mean with its 95% interval (Student's t)."""
    from scipy.stats import t

    mean, n = statistics.mean(values), len(values)
    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(values) / n**0.5
    return mean, (mean - half, mean + half)
