"""Runs an optimizer in a world with the real runtime, ledger and proof; only the language model is simulated."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.errors import SpecError, WorkbenchError
from workbench.lm import LMPool, Request, Response
from workbench.run import Options, optimize
from workbench.study import Evaluation
from workbench.workflow import Workflow
from workbench_bench.functions import find_question
from workbench_bench.sizes import DEFAULT, ROWS
from workbench_bench.worlds import PLAIN, TOPICS, WORLDS, World, answer_as_proposer

LABELS = ("a", "b", "c", "d")


class SimulatedLM:
    """Base of both simulated language models: a formula, without a price by default."""

    concurrency = 8

    def __init__(self, world: World, name: str = "", usd: float = 0.0):
        self.world, self.usd, self.identity = world, usd, f"{type(self).__name__} {name}".strip() + ", no model"
        self.source = f"{world.name} {name}".strip()

    def draw(self, request: Request) -> random.Random:
        """A generator seeded by the request, so that the same request always gets the same answer. Limits of short
        answers do not count: else another default of `max_tokens` would change every figure that was measured here."""
        asked = replace(request, max_tokens=16, stop=("\n",)) if request.stop[:1] == ("\n",) else request
        return random.Random(hashlib.sha256(asked.key(self.source).encode()).digest())

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return self.usd

    async def aclose(self) -> None:
        pass


class SimulatedTaskLM(SimulatedLM):
    """Answers correctly if a number made from the request's hash is below the skill; so each candidate's noise is its
    own."""

    async def complete(self, request: Request) -> Response:
        said = self.world.speak(request)
        if said is not None:
            return Response(said, "stop", _tokens(request), 1, self.usd)
        question = str(request.messages[-1]["content"])
        if question.startswith(("result: ", "error: ")):
            question = find_question(request)
        right = next((i for i, c in enumerate(LABELS) if f" {c}-thing" in question), 0)
        draw = self.draw(request)
        if draw.random() >= self.world.skill(request):
            right = (right + draw.randrange(1, len(LABELS))) % len(LABELS)
        return Response(LABELS[right], "stop", _tokens(request), 1, self.usd)


class SimulatedProposerLM(SimulatedLM):
    """Writes instructions and advice with `worlds.answer_as_proposer`."""

    async def complete(self, request: Request) -> Response:
        text = answer_as_proposer(self.world, request, self.draw(request))
        return Response(text, "stop", _tokens(request), len(text) // 4, 0.0)


def _tokens(request: Request) -> int:
    return sum(len(str(m["content"])) for m in request.messages) // 4


class SimulatedPool(LMPool):
    """Serves the simulated language models of a world."""

    def __init__(self, world: World):
        super().__init__()
        self.task, self.proposer = SimulatedTaskLM(world), SimulatedProposerLM(world)
        self.others = {n: SimulatedTaskLM(replace(world, skill=s), n, usd) for n, (s, usd) in world.lms.items()}

    def get(self, spec: Any) -> Any:
        return self.proposer if spec.model.endswith("proposer") else self.others.get(spec.model, self.task)


@dataclass(frozen=True)
class Result:
    """A run: the winner's true accuracy, the calls spent, and whether a gain was claimed.

    proposer: calls, prompt_tokens and largest_prompt of the proposer. best: the highest accuracy in this seed's world.
    untried: why the baseline was the only candidate, if so.
    """

    accuracy: float
    calls: int
    claimed: bool
    error: str | None = None
    proposer: Mapping[str, int] = field(default_factory=dict)
    best: float = 1.0
    untried: str | None = None

    @property
    def measured(self) -> bool:
        """Return True if the run says anything about the optimizer."""
        return self.error is None and self.untried is None


def run_world(world: World, optimizer: Any, *, calls: int, seed: int, rows: Mapping[str, int] = ROWS) -> Result:
    """Run an optimizer in a world. Errors of the run are returned in the result.

    Args:
        world: the world.
        optimizer: as in a workflow file, e.g. "random", {"optuna": {"sampler": "qmc"}} or a list of them; "default":
            the file names none.
        calls: the budget.
        seed: of the run, and of seeded worlds.
        rows: number of rows by split.
    """
    world = world.planted(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = _write(folder, world, optimizer, calls, seed, rows)
        cheap: list[Evaluation] = []
        told: list[str] = []

        def listen(event: str, data: dict[str, Any]) -> None:
            if event == "optimizer_told":
                told.append(data["message"])
            if event == "candidate_evaluated" and world.ceiling is not None:
                found: Evaluation = data["evaluation"]
                if found.split == "val" and found.complete and found.objectives["usd"] <= world.ceiling + 1e-9:
                    cheap.append(found)

        try:
            report = optimize(
                file,
                database=folder / "run.db",
                pool=SimulatedPool(world),
                listener=listen,
                options=Options(out=str(folder / "out.yaml"), allow_unproved=True),
            )
        except WorkbenchError as error:
            return Result(0.0, 0, False, str(error), best=world.best)
        if report.status not in ("finished", "budget"):
            return Result(0.0, report.spent["calls"], False, report.error or report.status, best=world.best)
        paid = report.spent["by_role"].get("proposer", {})
        kept = {name: paid.get(name, 0) for name in ("calls", "prompt_tokens", "largest_prompt")}
        winner = max(cheap, key=lambda e: e.score).workflow if cheap else report.winner
        reached = compute_accuracy(world, winner, seed)
        untried = "; its last event: ".join([report.untried, *told[-1:]]) if report.untried else None
        return Result(reached, report.spent["calls"], report.gain_shown, None, kept, world.best, untried)


def _write(folder: Path, world: World, optimizer: Any, calls: int, seed: int, sizes: Mapping[str, int]) -> Path:
    for split, count in sizes.items():
        draw = random.Random(f"{split}:{seed}")
        rows = []
        for i in range(count):
            label, topic = LABELS[i % len(LABELS)], draw.randrange(TOPICS)
            text = f"{split} {i} topic{topic} word{topic}: a {label}-thing"
            rows.append(world.row({"text": text, "label": label, "topic": topic}, i))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    file = folder / "workflow.yaml"
    spec: dict[str, Any] = {
        "name": world.name,
        "lm": {"model": "openai/simulated", "api_base": "http://127.0.0.1:9/v1"},
        "roles": {"proposer": {"model": "openai/simulated-proposer", "api_base": "http://127.0.0.1:9/v1"}},
        "data": {split: f"{split}.jsonl" for split in sizes},
        "metric": "exact_match(label)",
        "nodes": dict(world.nodes)
        or {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": PLAIN}},
        "search": dict(world.search),
        "optimize": optimizer if isinstance(optimizer, list) else [optimizer],
        "budget": {"calls": calls},
        "seed": seed,
    }
    if optimizer == DEFAULT:
        del spec["optimize"]
    if world.ceiling is not None:
        spec["objectives"] = ["score", "usd"]
    file.write_text(json.dumps(spec), encoding="utf-8")
    return file


def compute_accuracy(world: World, winner: Workflow, seed: int) -> float:
    """The winner's accuracy by the formula, over fresh questions on all topics."""

    known = world.truth(winner)
    if known is not None:
        return known
    nodes: Any = winner.enabled_nodes
    draw = random.Random(f"true:{seed}")
    plain = ({"text": f"new topic{t} word{t}: a {draw.choice(LABELS)}-thing"} for t in range(TOPICS))
    rows = [world.row(fields, t) for t, fields in enumerate(plain)]
    node = nodes.get("sort")
    if not hasattr(node, "_render") or set(node.inputs) - {"text"}:
        return measure_accuracy(world, winner, rows)
    settings = {k: v for k, v in node.settings.items() if v is not None}
    return sum(world.skill(Request(tuple(node._render(row)), **settings)) for row in rows) / len(rows)


def measure_accuracy(world: World, workflow: Workflow, rows: Sequence[Mapping[str, Any]], repeats: int = 32) -> float:
    """The share of right answers of a workflow, measured by running each row many times. For workflows of several
    requests, whose accuracy no formula gives."""
    from workbench.runtime import Program, Run
    from workbench.spec import lm_spec
    from workbench.store import Store, add_run
    from workbench.task import Example

    async def main(store: Store, run_id: int) -> list[bool]:
        right = list[bool]()
        async with Run(store, run_id, "m", lm_spec("openai/simulated"), pool=SimulatedPool(world)) as run:
            program = Program(workflow, run.runtime)
            for number in range(repeats):
                for row in rows:
                    asked = {**row, "text": f"{number} {row['text']}"}
                    found = (await program.run(Example(asked["text"], asked))).prediction.get("label")
                    right.append(f" {found}-thing" in asked["text"])
        return right

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "measured.db")
        run_id = add_run(store, run="m", name="measured", status="running", spec="", options="")
        try:
            return statistics.mean(asyncio.run(main(store, run_id)))
        finally:
            store.close()


#: World, optimizer, calls, seed.
Job = tuple[str, Any, int, int]
Map = Callable[[Callable[[Job], Result], Iterable[Job]], Iterable[Result]]


@contextmanager
def map_in(processes: int) -> Iterator[Map]:
    """`map` in this process, or in several for as long as the context lasts: each imports once what runs need."""
    if processes == 1:
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:  # starts no more than it has jobs
        yield pool.map


def run_many(jobs: Sequence[Job], run_all: Map = map, keep: Path | None = None) -> list[Result]:
    """Run jobs and return their results in order. A run depends only on its job.

    run_all: of `map_in`. keep: a file of JSON lines. Each result is appended to it, and stored ones are not computed
    again.
    """
    known = _kept(keep)
    by_name = {json.dumps(job): job for job in jobs}
    left = [name for name in by_name if name not in known]

    def settle(name: str, result: Result) -> None:
        known[name] = result
        if keep is not None and result.error is None:  # failed and stopped runs are repeated
            with keep.open("a+b") as raw:  # a kill may have left half a line
                raw.seek(max(0, raw.seek(0, 2) - 1))
                cut = raw.read() not in (b"", b"\n")
            with keep.open("a", encoding="utf-8") as file:
                file.write("\n" * cut + json.dumps({"job": name, "result": asdict(result)}) + "\n")

    for name, result in zip(left, run_all(_run_job, [by_name[n] for n in left]), strict=True):
        settle(name, result)
    return [known[json.dumps(job)] for job in jobs]


def _kept(file: Path | None) -> dict[str, Result]:
    """Results by job, without a last line truncated by a kill. Raises SpecError for a file with other content."""
    known: dict[str, Result] = {}
    lines = (
        file.read_text(encoding="utf-8", errors="replace").splitlines() if file is not None and file.exists() else []
    )
    if lines and not lines[0].startswith('{"job": '):
        raise SpecError(
            f"{file} exists and has no results of workbench plugin bench", hint="Name another file with --out."
        )
    for line in lines:
        try:
            row = json.loads(line)
            known[row["job"]] = Result(**row["result"])
        except (ValueError, KeyError, TypeError):
            continue
    return known


def _run_job(job: Job) -> Result:
    world, optimizer, calls, seed = job
    return run_world(WORLDS[world], optimizer, calls=calls, seed=seed)


def compute_mean_and_interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The mean of independent runs with its 95% interval (Student's t); for a single value, the interval is infinite.

    Differences of true accuracies have no bounds so wide, and no losses so rare, as those that a proof must allow for.
    """
    from scipy.stats import t

    mean, n = statistics.mean(values), len(values)
    if n < 2:
        return mean, (-math.inf, math.inf)
    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(values) / n**0.5
    return mean, (mean - half, mean + half)
