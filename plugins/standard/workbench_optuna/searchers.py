"""Several runs that search one Optuna study: trials, budget and proof among them, as one of them sees it.

Each run has its own database and journal. The trials lie in Optuna's storage, with the score of each row, so that a
winner that another run evaluated is known here; the budget lies in an account beside them (`account`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from workbench import Evaluation, Study, Workflow
from workbench.errors import SpecError, StoreError
from workbench.study import AskedTrial, Joining, Result, Searcher, unanswered_error
from workbench.workflow import Patch
from workbench_optuna.account import BASELINE, Account, Amounts
from workbench_optuna.account_log import AccountLog, open_storage

#: Seconds between two signs of life.
BEAT = 10.0
#: Seconds of silence after which a searcher counts as dead.
LEASE = 60.0
#: Seconds between two looks at what others do.
POLL = 1.0
#: Pauses before an operation is tried again, in seconds.
PAUSES = (1.0, 4.0, 16.0)
#: A searcher counts this part of a pass over val as spent before it sends the calls.
CHUNK = 1 / 8

OWNER, CANDIDATE, ROWS, REPEATS = (f"workbench:{name}" for name in ("searcher", "candidate", "rows", "repeats"))
#: What is kept of a row.
_KEPT = ("score", "failure", "calls", "tokens", "usd", "seconds", "queued")


class SharedStudy:
    """A study that several runs search (`workbench.study.Searchers`).

    study: this run's, with the start of the search. trials: Optuna's study, without a sampler. tried: what was
    evaluated by any of them, by hash, as far as it was seen.
    """

    def __init__(self, study: Study, joining: Joining, trials: Any, log: AccountLog, most: int):
        self.study, self.run, self.trials, self.most = study, joining.run, trials, most
        self.tried: dict[str, Evaluation] = {}
        self.account = Account()
        self._joining, self._log = joining, log
        self._turn, self._beats, self._gone = asyncio.Lock(), None, False
        self._held: Amounts = {}
        self._heard: dict[str, tuple[int, float]] = {}  # operations of each member, and since when it has so many
        self._seen: set[int] = set()  # numbers of trials that need no second look
        self._ownerless: dict[int, float] = {}  # running trials without an owner, and since when

    # The budget

    def limit(self, what: str) -> float:
        return self.account.members[self.run].mark.get(what, 0.0)

    def available(self, what: str) -> float:
        return self.account.members[self.run].share.get(what, 0.0) + max(0.0, self.account.free(what))

    def hold(self, held: Mapping[str, float]) -> None:
        self._held = {what: amount for what, amount in held.items() if what in self.account.budget}

    async def draw(self, needed: Mapping[str, float]) -> bool:
        more = {what: n * CHUNK for what, n in self._pass_over_val(self.study.workflow).items()}
        return await self._do("draw", used=dict(needed), more=more, held=self._held) == ""

    def _used(self) -> Amounts:
        ledger = self.study.ledger
        return {w: max(getattr(ledger.spent, w), getattr(ledger.sent, w)) for w in self.account.budget}

    def _pass_over_val(self, workflow: Workflow) -> Amounts:
        """Bound what one pass takes: calls by the worst case, tokens and dollars as the start took them."""
        study, n = self.study, len(self.study.val)
        start = study.known(study.workflow)
        taken = start.objectives if start is not None else {}
        found = {w: n * taken.get(w, 0.0) for w in self.account.budget}
        return {w: study.worst_calls(workflow, study.val) if w == "calls" else amount for w, amount in found.items()}

    # Coming and going

    async def join(self) -> None:
        """Come in. Raises SpecError if the study is another one, and StoreError."""
        ledger = self.study.ledger
        ledger.open()
        budget = ledger.budget.model_dump(exclude_none=True, exclude={"minutes"})
        self.account = replace(self.account, budget=budget)
        before, there = await asyncio.to_thread(self._log.read), len(self.trials.get_trials(deepcopy=False))
        name = self.trials.study_name
        if there and not before.members:
            raise SpecError(
                f"the study '{name}' holds {there} trials that no searcher of workbench made",
                hint="Name another study, or another storage.",
                path=("study",),
            )
        if len(before.done) > 1 and not there:
            raise StoreError(f"the trials of the study '{name}' are gone, and its account is not: name another study")
        answer = await self._do(
            "join", host=os.uname().nodename, parts=dict(self._joining.parts), budget=budget, used=self._used()
        )
        if answer:
            raise SpecError(
                f"the study '{name}' was begun by a file with {answer.replace('other ', 'another ', 1)}",
                hint="Start all its searchers from one file, with one budget; or name another study.",
                path=("study",),
            )
        self._beats = asyncio.create_task(self._beat())

    async def leave(self) -> None:
        try:
            if self._beats is not None:
                self._beats.cancel()
                with suppress(asyncio.CancelledError):
                    await self._beats
            with suppress(StoreError):  # silence says the same, later
                await self._do("leave", used=self._used())
        finally:
            self._gone = True
            self._log.close()

    async def _beat(self) -> None:
        while not self._gone:
            await asyncio.sleep(BEAT)
            with suppress(StoreError):  # what needs the storage will say so
                if not self._gone:
                    await self._do("beat")
                    await self._expire_silent()

    async def _do(self, do: str, **given: Any) -> str:
        """Carry out an operation on the account, and see the account after it."""
        from sqlalchemy.exc import SQLAlchemyError

        operation = {"do": do, "by": self.run, **given}
        async with self._turn:
            for pause in (*PAUSES, None):
                try:
                    self.account, answer = await asyncio.to_thread(self._log.apply, operation)
                    break
                except (OSError, SQLAlchemyError) as error:
                    if pause is None:
                        said = str(error).splitlines()[0]
                        raise StoreError(f"the account of the study cannot be reached: {said}") from None
                    await asyncio.sleep(pause)
        for run, member in self.account.members.items():
            if self._heard.get(run, (-1, 0.0))[0] != member.operations:
                self._heard[run] = member.operations, time.monotonic()
        return answer

    def _others(self) -> list[str]:
        """The other runs that search."""
        return [run for run, member in self.account.members.items() if member.searching and run != self.run]

    async def _expire_silent(self) -> None:
        for run in self._others():
            operations, since = self._heard[run]
            if time.monotonic() - since > LEASE:
                if await self._do("expire", member=run, operations=operations) == "":
                    number = self.account.members[run].number
                    self.study.log(f"searcher {number} is silent: what it did not spend of its share went back")

    def summary(self) -> dict[str, Any]:
        me, used = self.account.members[self.run], self._used()
        spent = {w: n - me.mark.get(w, 0.0) + used[w] for w, n in self.account.spent().items()}
        return {"study": self.trials.study_name, "number": me.number, "of": len(self.account.members), "spent": spent}

    def settings(self, sampler: str) -> dict[str, Any]:
        """Settings of `workbench.study.Searcher` for this study. The first searcher draws as one without others would,
        until it is resumed; the rest draw other candidates. QMC hands out one sequence to all of them."""
        number, own = self.account.members[self.run].number, len(self.own_trials())
        salt = f"{number}:{own}" if (number > 1 or own) and sampler != "qmc" else ""
        first = number == 1 and not self.trials.get_trials(deepcopy=False)
        return {"study": self.trials, "salt": salt, "starts": first}

    # The start and the end

    async def evaluate_baseline(self, workflow: Workflow) -> Evaluation:
        self.study = replace(self.study, workflow=workflow)
        while True:
            answer, mine = await self.begin(workflow, BASELINE), self.account.begun.get(BASELINE) == self.run
            if answer != "known" or mine:  # resumed: the journal answers
                found = await self.study.evaluate(workflow)
                if unanswered_error(found) is None:
                    self.trials.set_user_attr(ROWS, {workflow.hash: _pack(found)})
                    await self.finish(BASELINE)
                return found
            if BASELINE in self.account.done:
                if (rows := self.trials.user_attrs[ROWS].get(workflow.hash)) is None:
                    raise self._differs("its start")
                found = self._unpack(workflow, rows, complete=True)
                await self._take(found)
                return found
            await asyncio.sleep(POLL)
            await self._do("beat")
            await self._expire_silent()

    async def hear_others(self) -> bool:
        """Wait until each of the others was heard of, or counts as dead. True if one is gone since, and left something
        of its share, or its candidate."""
        began = {run: self.account.members[run].operations for run in self._others()}
        while any(self.account.members[run].operations == began.get(run) for run in self._others()):
            await asyncio.sleep(POLL)
            await self._do("beat")
            await self._expire_silent()
        return not began.keys() <= {*self._others()}

    async def elect(self) -> str | None:
        await self.finish()
        await self.hear_others()  # whoever was heard of will see this run go
        answer = await self._do("elect")
        await self.catch_up()
        if answer == "":
            return None
        self._gone = True
        if answer == "others":
            return (
                f"searchers still at work: {len(self._others())}, and the last of them makes it; if all of them are "
                f"killed, `workbench resume {self.run}` makes it"
            )
        prover = self.account.members[answer]
        return f"searcher {prover.number} makes it (run {answer} on {prover.host})"

    # Candidates

    @property
    def over(self) -> bool:
        """Return True if the proof is begun: nothing that is found now can count."""
        return self.account.prover is not None

    async def begin(self, workflow: Workflow, name: str = "") -> str:
        """Take a share for a candidate. Returns "", or why it is not evaluated: known, trials, budget or proof."""
        need, candidate = self._pass_over_val(workflow), name or workflow.hash
        return await self._do("begin", candidate=candidate, trials=self.most, need=need, held=self._held)

    async def finish(self, candidate: str = "") -> None:
        """Give back the rest of a share. candidate: the one that was evaluated, by its hash."""
        await self._do("finish", used=self._used(), candidate=candidate, evaluated=candidate != "")

    def sign(self, asked: AskedTrial) -> None:
        """Say whose trial this is, and of which candidate."""
        asked.trial.set_user_attr(OWNER, self.run)
        asked.trial.set_user_attr(CANDIDATE, asked.workflow.hash)

    def asked_before(self, searcher: Searcher, trial: Any) -> AskedTrial:
        """The candidate of a trial that an earlier process of this run began."""
        import optuna

        asked = searcher.candidate(optuna.trial.Trial(searcher.study, trial._trial_id))
        asked.reported = len(trial.intermediate_values)
        return asked

    def publish(self, asked: AskedTrial, evaluation: Evaluation) -> None:
        """Add the scores of a candidate's rows to its trial, before the trial is told."""
        asked.trial.set_user_attr(ROWS, _pack(evaluation))
        self._seen.add(asked.number)

    def own_trials(self) -> list[Any]:
        """The trials of this run, in earlier processes and in this one."""
        return [t for t in self.trials.get_trials(deepcopy=False) if t.user_attrs.get(OWNER) == self.run]

    async def repeat_own(self) -> list[Any]:
        """Evaluate again what earlier processes of this run did, which its journal answers. Returns the trials that
        they began and did not end."""
        begun: list[Any] = []
        for trial in self.own_trials():
            if trial.state.name == "RUNNING" and CANDIDATE in trial.user_attrs:
                begun.append(trial)
            elif _is_evaluated(trial):
                n, stopped = len(trial.user_attrs[ROWS]), trial.state.name == "PRUNED"
                race = (lambda scores, n=n: len(scores) >= n) if stopped else False
                found = await self.study.evaluate(self._rebuild(trial), race=race)
                self.tried[found.workflow.hash] = found
            self._seen.add(trial.number)
        return begun

    async def catch_up(self) -> None:
        """See what the others have evaluated, and queue again what the dead among them have begun."""
        for trial in self.trials.get_trials(deepcopy=False):
            if trial.number in self._seen or trial.state.name == "WAITING":
                continue
            if trial.state.name == "RUNNING":
                await self._look_after(trial)
                continue
            self._seen.add(trial.number)
            if _is_evaluated(trial) and trial.user_attrs[CANDIDATE] not in self.tried:
                workflow = self._rebuild(trial)
                found = self._unpack(workflow, trial.user_attrs[ROWS], trial.state.name == "COMPLETE")
                self.tried[workflow.hash] = found
                if found.complete:
                    await self._take(found)

    async def _take(self, evaluation: Evaluation) -> None:
        self.study.progress.propose(evaluation.workflow, self.study.name)
        await self.study.record(evaluation)

    async def _look_after(self, trial: Any) -> None:
        """Fail a running trial whose searcher is gone, and queue its candidate again, once."""
        import optuna

        owner, state = trial.user_attrs.get(OWNER), optuna.trial.TrialState
        if owner == self.run or owner in self._others():
            return
        if owner is None:  # it is asked for just now, or its searcher died before it signed
            since = self._ownerless.setdefault(trial.number, time.monotonic())
            if time.monotonic() - since < LEASE:
                return
        else:
            await self._do("beat")  # who came lately is not known yet
            if owner in self._others():
                return
        try:
            self.trials.tell(trial.number, state=state.FAIL)
        except (ValueError, optuna.exceptions.UpdateFinishedTrialError):  # another searcher has done it
            return
        if owner is not None and REPEATS not in trial.user_attrs:
            again = {"params": trial.params, "distributions": trial.distributions}
            self.trials.add_trial(
                optuna.trial.create_trial(state=state.WAITING, user_attrs={REPEATS: trial.number}, **again)
            )

    def _rebuild(self, trial: Any) -> Workflow:
        """The candidate of a trial, from its parameters."""
        import optuna

        start, wanted = self.study.workflow, trial.user_attrs[CANDIDATE]
        try:
            values = self.study.space().suggest(optuna.trial.FixedTrial(trial.params, trial.number), start)
            made = start.patched(Patch(values, note=f"trial {trial.number}"))
        except ValueError:
            made = None
        if made is None or made.hash != wanted:
            raise self._differs(f"trial {trial.number}")
        return made

    def _differs(self, what: str) -> StoreError:
        return StoreError(
            f"{what} is another candidate here than in the study '{self.trials.study_name}': its searcher has another "
            "version of workbench or of a plugin"
        )

    def _unpack(self, workflow: Workflow, rows: list[list[Any]], complete: bool) -> Evaluation:
        pairs = zip(self.study.val, rows, strict=False)
        results = tuple(Result(example, **dict(zip(_KEPT, row, strict=True))) for example, row in pairs)
        return Evaluation(workflow, "val", results, complete)


async def join_study(
    study: Study, joining: Joining, storage: str, name: str, directions: list[str], most: int
) -> SharedStudy:
    """Join the searchers of a study, which the first of them creates.

    storage: as the file has it. most: candidates in all.

    Raises SpecError if it is another study, and StoreError if the storage cannot be used.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    opened, log = await asyncio.to_thread(open_storage, storage, study.workflow.base, name)
    trials = optuna.create_study(storage=opened, study_name=name, load_if_exists=True, directions=cast(Any, directions))
    shared = SharedStudy(study, joining, trials, log, most)
    try:
        await shared.join()
    except BaseException:
        log.close()
        raise
    return shared


def _is_evaluated(trial: Any) -> bool:
    """Return True if a trial has a candidate's scores, and was told of them."""
    return trial.state.name in ("COMPLETE", "PRUNED") and ROWS in trial.user_attrs


def _pack(evaluation: Evaluation) -> list[list[Any]]:
    """The rows of an evaluation as JSON values: scores and costs, no texts."""
    return [[getattr(result, name) for name in _KEPT] for result in evaluation.results]
