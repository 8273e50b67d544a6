"""Rows that a workflow writes from seeds, filtered: budget, journal, and each rejection counted by its reason.

Sources: self-instruct (arXiv 2212.10560), generation, filter and deduplication; APIGen (arXiv 2406.18518), checks from
cheap to dear.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.base.files import file_digest, write_whole
from workbench.base.hashing import digest
from workbench.errors import BudgetSpent, FailureKind, LMError, NodeError, ServerDead, WorkbenchError
from workbench.lm import LMPool
from workbench.runtime import FIRST_DRAW, Draw, Run
from workbench.spec import Source, apply_overrides, code_files, read_source
from workbench.store import Store, dumps
from workbench.study import Evaluator
from workbench.task import Example, Metric
from workbench.workflow import Trace, Workflow
from workbench_kit.acting import FieldCondition
from workbench_kit.answers import load_loose
from workbench_synthesize.distinct import Duplicates
from workbench_synthesize.seeds import Seed, Seeds, load_seeds
from workbench_synthesize.settings import Pipeline, check_fields, load_pipeline

#: Requests without an answer, before the first row, that end a synthesis: the server cannot be reached.
HOPELESS = 8
Row = dict[str, Any]


@dataclass
class Found:
    """The result of a synthesis. requests: seeds that were dealt. rejected: counts by reason, with the first example.

    status: finished; budget; unanswered: no server answers; exhausted: a pass over the seeds brought nothing new.
    """

    status: str = "finished"
    rows: list[Row] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    requests: int = 0
    spent: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        counts = {"status": self.status, "rows": len(self.rows), "requests": self.requests}
        return {**counts, "rejected": dict(self.rejected), "examples": self.examples, "spent": self.spent}

    def reject(self, reason: str, why: Any) -> None:
        self.rejected[reason] += 1
        self.examples.setdefault(reason, str(why)[:300])


class Refused(Exception):
    """A row is not kept. reason: a kind of failure, `duplicate`, `explode`, or the check that it did not pass."""

    def __init__(self, reason: str, why: Any):
        self.reason, self.why = reason, why
        super().__init__(f"{reason}: {why}")


def synthesize(
    path: Path | Source,
    *,
    database: str = "workbench.db",
    changes: Mapping[str, Any] | None = None,
    pool: LMPool | None = None,
    out: Path | None = None,
    on_progress: Callable[[Found], None] | None = None,
) -> Found:
    """Write rows, until there are enough, or the budget ends, or nothing new comes.

    The same file on the same database continues a synthesis that was killed: the journal answers paid calls.

    Args:
        path: the file, or one that was read before.
        database: path of the run database.
        changes: settings by address, e.g. {"synthesize.rows": 10, "budget.calls": 100}.
        pool: language models in place of those of the plugins, for tests.
        out: file for the rows, written before the synthesis counts as done.
        on_progress: called after each round of requests with the result so far.

    Raises:
        SpecError: the file, its seeds or the run are wrong.
        StoreError: the database cannot be used.
    """
    source = read_source(path)
    pipeline = load_pipeline(apply_overrides(source, [*(changes or {}).items()]))
    with pipeline.source.locating():
        seeds = load_seeds(pipeline, database)
        check_fields(pipeline, {name for seed in seeds for name in seed.fields})
    code = [file_digest(file) for file in code_files(pipeline.source.value, pipeline.base)]
    settings = {
        "file": str(Path(source.file).resolve()),
        "changes": dict(changes or {}),
        "seeds": digest([[seed.id, seed.fields, seed.weight] for seed in seeds]),
        "code": digest(code),
    }
    with Store(database) as store:
        named = {"name": pipeline.spec.name, "spec": source.text, "options": dumps(settings)}
        stored = {**named, "seed": pipeline.spec.seed}
        run = Run.found(store, ["synthesizing"], pipeline.spec, stored, pool=pool, reuse=False)

        async def main() -> Found:
            async with run:
                found = await _Course(pipeline, seeds, run, on_progress).go()
                if out is not None and found.rows:  # an empty result must not replace an earlier file
                    write_rows(found.rows, out)
                run.record.end(f"synthesized ({found.status})")
                return found

        return run_in_loop(main())


class _Course:
    """A synthesis. Seeds are dealt in rounds and read in order, so that a replay keeps the same rows."""

    def __init__(
        self,
        pipeline: Pipeline,
        seeds: Sequence[Seed],
        run: Run,
        on_progress: Callable[[Found], None] | None,
    ):
        self.own, self.spec, self.pipeline, self.run = pipeline.own, pipeline.spec, pipeline, run
        self.ledger, self.runtime = run.ledger, run.runtime
        self.on_progress = on_progress or (lambda found: None)
        self.evaluator = Evaluator(self.runtime, lambda example, prediction, trace: 1.0, self.spec.concurrency)
        self.evaluator.named = {k: v for k, v in pipeline.checks.items() if not isinstance(v, FieldCondition)}
        self.seeds, self.found = Seeds(seeds, self.own.synthesize.beside, self.spec.seed), Found()
        self.duplicates, self.slots = Duplicates(self.own.distinct), asyncio.Semaphore(self.spec.concurrency)
        self.hidden = {*self.own.explode, "beside", "id", "source"}
        self.keys, self.fresh = set[str](), True  # of calls; whether the pass brought a call or a row
        for seed in seeds:  # a copy of a row that there is teaches nothing new
            self.duplicates.keep(seed.fields, set(pipeline.written))

    async def go(self) -> Found:
        try:
            while dealt := [self.seeds.deal() for _ in range(self._wanted())]:
                self.found.requests += len(dealt)
                await self._round(dealt)
                self.run.record.save_seconds(self.ledger.seconds)
                self.on_progress(self.found)
        except BudgetSpent:
            self.found.status = "budget"
            try:
                self.ledger.bill.check_answered()
            except ServerDead as dead:
                self.found.status = "unanswered"
                self.found.reject("unanswered", dead)
        self.found.spent = self.ledger.summary()
        return self.found

    def _wanted(self) -> int:
        """The number of seeds of a round; 0 at the end."""
        found, rows, count = self.found, self.own.synthesize.rows, len(self.seeds.all)
        if not found.rows and found.rejected["unanswered"] >= HOPELESS:
            found.status = "unanswered"
            return 0
        left = count - found.requests % count
        if rows is None:
            return min(self.spec.concurrency, left) if found.requests < count else 0
        if found.requests and left == count:  # a pass has ended
            if not self.fresh:
                found.status = "exhausted"
                return 0
            self.fresh = False
        return min(self.spec.concurrency, left, max(0, rows - len(found.rows)))

    async def _round(self, dealt: Sequence[tuple[Seed, Example, int]]) -> None:
        """Run the nodes on seeds, explode, and keep what passes. What was paid is read before an error is raised."""
        outcomes = await asyncio.gather(
            *(self._run(self.pipeline.nodes, row, Draw(turn)) for _, row, turn in dealt), return_exceptions=True
        )
        drafts = list[tuple[Example, Seed, int, Trace]]()
        for (seed, row, turn), outcome in zip(dealt, outcomes, strict=True):
            for number, draft in enumerate(self._explode(row, outcome)):
                if self.duplicates.find(draft) is not None or self.duplicates.repeats(draft):
                    self.found.reject("duplicate", self._shown(draft))
                else:
                    assert not isinstance(outcome, BaseException)
                    drafts.append((Example(f"{row.id}.{number}", draft), seed, turn, outcome.trace))
        checked = await asyncio.gather(
            *(self._check(draft, trace) for draft, _, _, trace in drafts), return_exceptions=True
        )
        for (_, seed, turn, _), row in zip(drafts, checked, strict=True):
            if isinstance(row, Refused):
                self.found.reject(row.reason, row.why)
            elif not isinstance(row, BaseException) and not self._is_enough:
                self._keep(row, seed, turn)
        errors = [e for e in (*outcomes, *checked) if isinstance(e, BaseException) and not isinstance(e, Refused)]
        if errors:
            raise next((e for e in errors if not isinstance(e, BudgetSpent)), errors[0])

    @property
    def _is_enough(self) -> bool:
        rows = self.own.synthesize.rows
        return rows is not None and len(self.found.rows) >= rows

    async def _run(self, workflow: Workflow, row: Example, draw: Draw) -> Any:
        """Run a workflow on a row. Raises Refused where it fails."""
        async with self.slots:
            outcome = await self.evaluator.run_unscored(workflow, row, draw)
        keys = {call.key for call in outcome.trace.calls}
        self.fresh = self.fresh or not keys <= self.keys
        self.keys |= keys
        if outcome.failure is not None:
            lost = FailureKind(outcome.failure).infrastructure
            self.fresh = self.fresh or lost
            raise Refused("unanswered" if lost else str(outcome.failure), outcome.message)
        return outcome

    def _explode(self, row: Example, outcome: Any) -> list[Row]:
        """The rows that lists make, or the only one; of objects, only those that have all the fields."""
        if isinstance(outcome, Refused):
            self.found.reject(outcome.reason, outcome.why)
        if isinstance(outcome, BaseException):
            return []
        whole = {**row.fields, **outcome.prediction}
        lists = [(names, _as_list(whole.get(name))) for name, names in self.own.explode.items()]
        if not lists:
            return [whole]
        if len({len(items) for _, items in lists}) > 1:
            counts = ", ".join(str(len(items)) for _, items in lists)
            self.found.reject("explode", f"the lists are of different lengths: {counts}")
            return []
        found: list[Row] = []
        for items in zip(*(items for _, items in lists), strict=True):
            new: Row = {}
            for (names, _), item in zip(lists, items, strict=True):
                new |= {names: item} if isinstance(names, str) else item if isinstance(item, Mapping) else {}
            if missing := [name for name in self.own.exploded if name not in new]:
                self.found.reject("explode", f"'{missing[0]}' is missing in {dumps(items)}")
            else:
                found.append({**whole, **{name: new[name] for name in self.own.exploded}})
        return found

    async def _check(self, draft: Example, trace: Trace) -> Row:
        """A row with what `each` writes. Raises Refused for one that does not pass."""
        row = dict(draft.fields)
        if self.pipeline.each is not None:
            outcome = await self._run(self.pipeline.each, draft, FIRST_DRAW)
            row, trace = row | outcome.prediction, outcome.trace
        for name, check in self.pipeline.checks.items():
            if not await self._passes(name, check, Example(draft.id, row), trace):
                raise Refused(f"keep: {name}", self._shown(row))
        return row

    async def _passes(self, name: str, check: FieldCondition | Metric, row: Example, trace: Trace) -> bool:
        try:
            if isinstance(check, FieldCondition):
                return check.holds(row.fields)
            said = {key: value for key, value in row.fields.items() if key not in self.hidden}
            async with self.slots:
                return (await self.evaluator.score(row, said, trace, name)).value >= 1.0
        except (NodeError, LMError) as error:
            raise Refused("unanswered" if error.kind.infrastructure else f"keep: {name}", error) from None
        except WorkbenchError:
            raise
        except Exception as error:
            raise Refused(f"keep: {name}", f"{type(error).__name__}: {error}") from None

    def _shown(self, row: Row) -> str:
        return dumps({name: row[name] for name in self.pipeline.written if name in row})

    def _keep(self, row: Row, seed: Seed, turn: int) -> None:
        if self.duplicates.find(row) is not None:  # of the same round, or by what `each` wrote
            return self.found.reject("duplicate", self._shown(row))
        self.duplicates.keep(row)
        self.fresh = True
        fields = self.own.synthesize.fields or [name for name in row if name not in self.hidden]
        made = {name: row[name] for name in fields if name in row}
        source = {"made_by": self.runtime.lm_spec("task").model, "seed": seed.id, "turn": turn}
        name = f"{self.spec.name}-{digest(made)[:12]}"
        return self.found.rows.append({**made, "id": name, "source": {**source, "checks": [*self.pipeline.checks]}})


def _as_list(value: Any) -> list[Any]:
    """A list, also one in the text of a model; nothing else has items."""
    if isinstance(value, str):
        value = load_loose(value)
    return value if isinstance(value, list) else []


def write_rows(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Write all rows or none."""
    write_whole(out, "".join(dumps(row) + "\n" for row in rows))
