"""The seeds of new rows: rows of a file, trajectories of agents, or train rows that a run failed.

Sources: WebRL (arXiv 2411.02337), new tasks from failed ones; Agent0 (arXiv 2511.16043), tasks solved about half of the
time teach most; Learn-by-interact (arXiv 2501.10893), tasks from trajectories. Of a run only rows of train are taken,
and none whose inputs are in val or test as well.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import SpecError, StoreError
from workbench.run import prepare_stored
from workbench.spec import read_outside
from workbench.store import Store
from workbench.task import Example, Task, normalised_inputs, read_rows
from workbench_kit.logs import Log, RunLogs, load_logs, step_text
from workbench_kit.searching import frontier_weight
from workbench_synthesize.settings import Pipeline

#: Weight of a failed row that was never solved, beside 1 for one that is solved half of the time.
MIN_WEIGHT = 0.1


@dataclass
class Seed:
    """A row that new ones start from. asked: how often it was."""

    id: str
    fields: Mapping[str, Any]
    weight: float = 1.0
    asked: int = field(default=0, compare=False)


class Seeds:
    """Deals seeds by their weights. The order depends only on the random seed, so a replay deals the same."""

    def __init__(self, seeds: Sequence[Seed], beside: int, seed: int):
        self.all, self._beside, self._seed = [*seeds], beside, seed
        random.Random(f"synthesis {seed}").shuffle(self.all)

    def deal(self) -> tuple[Seed, Example, int]:
        """The seed furthest behind its share, as a row with a name of its own, and how often it was dealt before."""
        one = min(self.all, key=lambda s: (s.asked + 1) / s.weight)
        turn, one.asked = one.asked, one.asked + 1
        fields = dict(one.fields)
        if self._beside:
            others = [other.fields for other in self.all if other is not one]
            rng = random.Random(f"{self._seed} {one.id} {turn}")
            fields["beside"] = rng.sample(others, min(self._beside, len(others)))
        return one, Example(f"{one.id}.{turn}", fields), turn


def load_seeds(pipeline: Pipeline, database: str) -> list[Seed]:
    """The seeds that a file names. database: where runs are. Raises SpecError, also for none, and StoreError."""
    asked = pipeline.own.synthesize
    if asked.run is not None:
        found = _seeds_of_run(asked.run, asked.as_, database)
    elif asked.as_ == "trajectories":
        read_outside(str(asked.from_), pipeline.base)
        found = [_of_log(log) for log in load_logs(pipeline.base / str(asked.from_))]
    else:
        rows = read_rows(str(asked.from_), pipeline.base, {})
        ids = [str(row.get("id", n)) for n, row in enumerate(rows)]
        named = len({*ids}) == len(ids)
        found = [Seed(ids[n] if named else str(n), row) for n, row in enumerate(rows)]
    if not found:
        raise SpecError("there is no row to start from", path=("synthesize",))
    return found


def _seeds_of_run(name: str, kind: str, database: str) -> list[Seed]:
    with Store(database, create=False) as store:
        row = store.find_run(name)
        task = prepare_stored(row)
        if row["data_hash"] is not None and task.data_hash != row["data_hash"]:
            raise StoreError(f"the data of run {row['run']} have changed since, so its scores do not fit; run it again")
        train = {example.id: example for example in _train_alone(task)}
        if kind == "trajectories":
            logs = RunLogs(store, name, "train")
            known = dict.fromkeys(str(one["example"]) for one in logs.scored() if one["example"] in train)
            return [_of_log(log) for log in logs.logs([*known])] if known else []
        return _failed(row["run"], train, train_scores(store, row["id"]))


def train_scores(store: Store, run_id: int) -> dict[str, list[float]]:
    """Return all scores of each train row of a run, by row id, over all candidates and replicas. Infrastructure
    failures are left out, because they say nothing about the workflow."""
    rows = store.rows(
        "select r.example, r.score from results r join evaluations e on e.id = r.evaluation_id where e.run_id = ? "
        "and e.split = 'train' and r.score is not null order by e.id, r.position",
        run_id,
    )
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["example"], []).append(row["score"])
    return found


def _train_alone(task: Task) -> list[Example]:
    """The train rows whose inputs do not occur in val or test. A row shared by splits is never shown."""
    held = {normalised_inputs(e, task.inputs) for part in (task.dataset.val, task.dataset.test.open()) for e in part}
    return [e for e in task.dataset.train if normalised_inputs(e, task.inputs) not in held]


def _failed(run: str, train: Mapping[str, Example], scores: Mapping[str, Sequence[float]]) -> list[Seed]:
    """The rows that were not always solved, those solved half of the time with the weight 1."""
    if not scores:
        hint = "Run workbench eval FILE --split train, and name the run that it prints."
        raise SpecError(f"run {run} has stored no scores of train rows", hint=hint)
    tried = {name: scores[name] for name in train if name in scores}
    failed = {name: given for name, given in tried.items() if min(given) < 1}
    if not failed:
        raise SpecError(
            f"run {run} failed none of the {len(tried)} train rows that it tried and that are not in val or test",
            hint="There are no rows to imitate.",
        )
    return [
        Seed(
            name,
            {key: value for key, value in train[name].fields.items() if key != "id"},
            MIN_WEIGHT + (1 - MIN_WEIGHT) * frontier_weight(sum(given), len(given)),
        )
        for name, given in failed.items()
    ]


def _of_log(log: Log) -> Seed:
    """A trajectory without the right answer."""
    steps = [f"{step.agent}: {step_text(step)}" for step in log.steps]
    known = {"score": log.row.score} if log.row and log.row.score is not None else {}
    return Seed(log.id, {"question": log.question, "steps": steps, "outcome": log.outcome, **known})
