"""The course of `workbench data induce`: comments to metrics, and what these cover, under a budget.

Source: AutoLibra (Zhu et al., "Agent Metric Induction from Open-Ended Human Feedback", arXiv 2505.02820). Its loop is
kept: ground, cluster, induce, judge, match. The number of metrics is the one with the best balance of coverage and
redundancy (`Agreement.balance`) on traces that the metrics were made of; what is reported is of held-out traces.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from workbench.base.concurrency import gather_all
from workbench.errors import BudgetSpent, SpecError
from workbench.lm import LMPool, Response
from workbench.spec import BudgetSpec, LMSpec
from workbench_feedback.answers import TRIES, Asker, Messages, Unreadable
from workbench_feedback.clustering import Groups, ask_groups, cut_tree, read_groups, sort_groups
from workbench_feedback.comments import Comments
from workbench_feedback.coverage import Agreement, Match, ask_matches, can_match, read_matches, shuffle_traces
from workbench_feedback.grounding import Aspect, Grounded, ask_aspects, read_aspects
from workbench_feedback.inducing import ask_metric, read_metric, rename_twins
from workbench_feedback.judging import Judged, ask_ratings, read_ratings
from workbench_feedback.metrics_file import InducedMetric
from workbench_feedback.settings import Induction
from workbench_kit.logs import AskedRun, Command, Log, open_run

T = TypeVar("T")

#: Statuses of a run of this command, while it goes on and after it.
WORKING, DONE = "inducing", "induced"

#: Answers that are waited for at the same time.
AT_ONCE = 8

#: Makers are billed apart from judges: grounding, clustering and induction are proposals.
MAKER, JUDGE = "proposer", "judge"


@dataclass(frozen=True)
class Trial:
    """Metrics of one grouping, and their agreement with the comments that they were made of."""

    groups: Groups
    metrics: tuple[InducedMetric, ...]
    agreement: Agreement


@dataclass
class InducedSet:
    """The result.

    Args:
        metrics: those of the best trial; empty where the budget did not last.
        trials: one for each number of metrics that was tried.
        held_out: the agreement with comments that no metric was made of; None where there are none.
        shuffled: the same where each held-out trace is given the comments of another one.
        counts: comments, traces, aspects, and what was dropped.
        run, paid: the run in the database, and the requests of this process.
        stopped: the budget that did not last.
    """

    run: str
    paid: dict[str, Any]
    counts: dict[str, int]
    metrics: Sequence[InducedMetric] = ()
    trials: Sequence[Trial] = ()
    held_out: Agreement | None = None
    shuffled: Agreement | None = None
    stopped: str | None = None

    def report(self) -> dict[str, Any]:
        """Describe the making and coverage of the metrics, as in the file."""
        return {
            "run": self.run,
            "counts": self.counts,
            "tried": [{"metrics": len(t.metrics), **_measured(t.agreement)} for t in self.trials],
            "held_out": self.held_out and self.held_out.as_dict(),
            "shuffled": self.shuffled and self.shuffled.as_dict(),
        }


def _measured(agreement: Agreement) -> dict[str, Any]:
    whole = agreement.as_dict()
    return {**{k: whole[k] for k in ("coverage", "redundancy")}, "balance": round(agreement.balance, 4)}


def induce(
    comments: Comments,
    settings: Induction,
    lm: LMSpec,
    *,
    database: str = "workbench.db",
    budget: BudgetSpec,
    pool: LMPool | None = None,
    on_progress: Callable[[str], None] = lambda what: None,
) -> InducedSet:
    """Make metrics of comments.

    The same comments, settings and model on the same database go on where an earlier call stopped: what it paid for
    comes from the journal, and a finished one pays nothing.

    Args:
        comments: with the traces that they are on.
        settings: of the induction.
        lm: the model that makes the metrics and judges by them.
        database: path of the run database.
        budget: ceilings over all calls with the same arguments, earlier ones included.
        pool: language models in place of those of the plugins, for tests.
        on_progress: called with a line after each part.

    Raises:
        SpecError: the settings do not fit together, or nothing could be made of the comments.
        LMError: the model or its server failed; the same command goes on.
        StoreError: the database cannot be used.
    """
    check_numbers(settings)
    command = Command(
        "induce", "induction", WORKING, DONE, settings.model_dump(mode="json"), comments.as_dict(), settings.seed
    )
    with open_run(database, command, lm, budget, pool or LMPool()) as run:
        induction = _Induction(comments, settings, run, on_progress)
        found = run.go(induction.go())
        if found.stopped is None:
            run.end(DONE)
        return found


def check_numbers(settings: Induction) -> None:
    """Raise SpecError if there is no number of metrics to try."""
    if settings.least > settings.most:
        raise SpecError(
            f"the fewest metrics ({settings.least}) are more than the most ({settings.most})",
            hint="Write e.g. --min-metrics 2 --max-metrics 8.",
        )


def hold_out(traces: Iterable[int], share: float, seed: int) -> frozenset[int]:
    """Traces whose comments no metric is made of: a share of them, rounded, at least one and not all; none of fewer
    than two, or by a share of 0."""
    order = sorted(set(traces))
    if len(order) < 2 or not share:
        return frozenset()
    random.Random(f"{seed}:held out").shuffle(order)
    return frozenset(order[: min(len(order) - 1, max(1, round(share * len(order))))])


def max_calls(comments: Comments, settings: Induction) -> int:
    """The most answers that an induction asks for, second attempts included; attempts after errors of a server are
    extra. Raises SpecError if the settings do not fit together."""
    check_numbers(settings)
    commented = {c.trace for c in comments.comments}
    held = len(hold_out(commented, settings.held_out, settings.seed))
    numbers = range(settings.least, settings.most + 1)
    groupings = sum(n > 1 for n in numbers) if settings.clustering == "lm" else 0
    trials = 2 * len(numbers) * min(len(commented) - held, settings.trials)
    return TRIES * (len(comments.comments) + groupings + sum(numbers) + trials + 3 * held)


def choose(trials: Sequence[Trial]) -> Trial:
    """The trial with the best balance; of equal ones, that with the fewest metrics."""
    return max(trials, key=lambda t: (round(t.agreement.balance, 9), -len(t.metrics)))


@dataclass
class _Induction:
    comments: Comments
    settings: Induction
    run: AskedRun
    on_progress: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.asker = Asker(self._send)

    async def _send(self, messages: Messages, *, replica: int, role: str, temperature: float) -> Response:
        async with self.slots:
            response, _ = await self.run.ask(
                messages, replica, role, temperature=temperature, max_tokens=self.settings.max_tokens
            )
        return response

    async def go(self) -> InducedSet:
        counts = {"comments": len(self.comments.comments), "traces": len(self.comments.traces)}
        found = InducedSet(self.run.run, self.run.paid, counts)
        try:
            await self._fill(found)
        except BudgetSpent as error:
            self.run.ledger.bill.check_answered()
            found.stopped = str(error)
        finally:
            self.run.save_seconds()
        counts |= {**self.counts, **{f"unread_{kind}": n for kind, n in sorted(self.asker.unread.items())}}
        return found

    async def _fill(self, found: InducedSet) -> None:
        held = hold_out((c.trace for c in self.comments.comments), self.settings.held_out, self.settings.seed)
        aspects = await self._ground()
        made_of = [a for a in aspects if a.trace not in held]
        self.counts["aspects"], self.counts["aspects_held_out"] = len(aspects), len(aspects) - len(made_of)
        if not made_of:
            raise SpecError(
                f"nothing could be made of {len(self.comments.comments)} comments: "
                + ", ".join(f"{name} {n}" for name, n in sorted((self.counts + self.asker.unread).items()))
                + (f"; {self.asker.why}" if self.asker.why else ""),
                hint="Comments must be about what the traces show. A small model may not find it: name another --lm.",
            )
        self.on_progress(f"{len(aspects)} aspects of {len(self.comments.comments)} comments")
        found.trials = await self._try_all(made_of, sorted({a.trace for a in made_of}))
        best = choose(found.trials)
        if traces := sorted({a.trace for a in aspects if a.trace in held}):
            left = {t: [a for a in aspects if a.trace == t] for t in traces}
            judged = await self._judge(best.metrics, traces)
            found.held_out = await self._match(best.metrics, judged, left)
            if others := shuffle_traces(traces, self.settings.seed):
                found.shuffled = await self._match(best.metrics, judged, {t: left[others[t]] for t in traces})
        found.metrics = best.metrics

    async def _ground(self) -> list[Aspect]:
        async def one(number: int) -> Grounded | None:
            comment = self.comments.comments[number]
            log = self.comments.traces[comment.trace]
            messages = ask_aspects(comment, log, self.settings.window)
            return await self._read(messages, MAKER, lambda text: read_aspects(text, comment, log))

        found = await gather_all((one(n) for n in range(len(self.comments.comments))), BudgetSpent)
        self.counts["dropped_unfounded"] = sum(g.unfounded for g in found if g)
        self.counts["dropped_malformed"] = sum(g.malformed for g in found if g)
        self.counts["comments_unread"] = found.count(None)
        return [aspect for grounded in found if grounded for aspect in grounded.aspects]

    async def _try_all(self, aspects: Sequence[Aspect], traces: Sequence[int]) -> list[Trial]:
        groupings = await self._groupings(aspects)
        groups = sorted({group for grouping in groupings for group in grouping})
        made = dict(zip(groups, await gather_all((self._metric(aspects, g) for g in groups), BudgetSpent), strict=True))
        self.counts["groups_unread"] = sum(metric is None for metric in made.values())
        on = random.Random(f"{self.settings.seed}:trials").sample(traces, min(len(traces), self.settings.trials))
        left = {t: [a for a in aspects if a.trace == t] for t in sorted(on)}
        trials = []
        for grouping in groupings:
            metrics = tuple(rename_twins([metric for g in grouping if (metric := made[g]) is not None]))
            if metrics:
                judged = await self._judge(metrics, sorted(on))
                trials.append(Trial(grouping, metrics, await self._match(metrics, judged, left)))
                self.run.save_seconds()
                self.on_progress(_trial_line(trials[-1]))
        if not trials:
            raise SpecError(
                f"no metric could be made of {len(aspects)} aspects: the model's answers could not be read; "
                + self.asker.why,
                hint="Name another --lm, or group without it: --clustering tfidf.",
            )
        return trials

    async def _groupings(self, aspects: Sequence[Aspect]) -> list[Groups]:
        most = min(self.settings.most, len(aspects))
        numbers = range(min(self.settings.least, most), most + 1)
        if self.settings.clustering == "tfidf":
            return list(dict.fromkeys(cut_tree(aspects, n) for n in numbers))

        async def one(n: int) -> tuple[Groups, int] | None:
            if n == 1:
                return sort_groups([range(len(aspects))]), 0
            messages = ask_groups(aspects, n, self.settings.window)
            return await self._read(messages, MAKER, lambda text: read_groups(text, aspects))

        found = [grouped for grouped in await gather_all(map(one, numbers), BudgetSpent) if grouped]
        self.counts["aspects_left_out_of_groups"] = sum(left for _, left in found)
        return list(dict.fromkeys(groups for groups, _ in found))

    async def _metric(self, aspects: Sequence[Aspect], group: Sequence[int]) -> InducedMetric | None:
        chosen, traces, most = [aspects[i] for i in group], self.comments.traces, self.settings.examples
        messages = ask_metric(chosen, self.settings.window)
        return await self._read(messages, MAKER, lambda text: read_metric(text, chosen, traces, most))

    async def _judge(self, metrics: Sequence[InducedMetric], traces: Sequence[int]) -> dict[int, Judged | None]:
        async def one(log: Log) -> Judged | None:
            messages = ask_ratings(log, metrics, self.settings.window)
            return await self._read(messages, JUDGE, lambda text: read_ratings(text, log, len(metrics)))

        found = await gather_all((one(self.comments.traces[t]) for t in traces), BudgetSpent)
        self.counts["ratings_unfounded"] += sum(judged.unfounded for judged in found if judged)
        self.counts["traces_unread"] += found.count(None)
        return dict(zip(traces, found, strict=True))

    async def _match(
        self, metrics: Sequence[InducedMetric], judged: dict[int, Judged | None], aspects: dict[int, list[Aspect]]
    ) -> Agreement:
        """The agreement of traits with aspects, by trace. Traces whose answers could not be read are left out."""

        async def one(trace: int) -> Match | None:
            answer, said = judged[trace], aspects[trace]
            if answer is None:
                return None
            if not can_match(said, answer.traits):
                return Match(len(said), 0, len(answer.traits), len(answer.traits))
            messages = ask_matches(said, answer.traits, metrics)
            return await self._read(messages, JUDGE, lambda text: read_matches(text, said, answer.traits))

        found = await gather_all(map(one, aspects), BudgetSpent)
        self.counts["matches_unread"] += found.count(None)
        return Agreement(tuple(match for match in found if match))

    async def _read(self, messages: Messages, role: str, read: Callable[[str], T]) -> T | None:
        try:
            return await self.asker.ask(messages, role, read)
        except Unreadable:
            return None


def _trial_line(trial: Trial) -> str:
    said = {k: "-" if v is None else f"{v:.2f}" for k, v in _measured(trial.agreement).items()}
    return f"{len(trial.metrics)} metrics: coverage {said['coverage']}, redundancy {said['redundancy']}"
