"""The report of a run: scores, proof, bill and warnings, as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from workbench.hashing import digest
from workbench.ledger import Ledger
from workbench.proof.leakage import Leak, find_leaks
from workbench.proof.reuse import earlier_tests, level_after, looks_warning
from workbench.proof.statistics import Proof, Saving, describe, paired_proof, paired_saving
from workbench.runtime import BOUNDARIES
from workbench.study import Evaluation, Result, pareto_set
from workbench.task import Example, Task, normalised_inputs
from workbench.workflow import Workflow, setting


@dataclass
class Report:
    """What a run found. `as_dict` is what `--json` prints."""

    run: str
    status: str
    winner: Workflow
    changes: list[tuple[str, Any, Any]]
    baseline: dict[str, Any]
    best: dict[str, Any]
    proof: Proof | None
    spent: dict[str, Any]
    budget: dict[str, Any]
    database: str
    candidates: int
    failures: dict[str, int] = field(default_factory=dict)
    pareto: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    error: str | None = None
    workflow: str | None = None
    test_rows: int = 0
    sandbox: dict[str, str] | None = None  # name and measured level, where code ran in one
    untried: str | None = None  # why there was no candidate but the baseline
    looks: list[str] = field(default_factory=list)  # runs that tested changes on the same sealed rows before
    leaks: list[Leak] = field(default_factory=list)
    saving: Saving | None = None  # where the winner was picked for what it costs
    sealed_rows: int = 0  # that there are to test on
    unproved: str | None = None  # file with the best candidate, where `workflow` keeps the baseline
    kept: Workflow | None = None  # in the file `workflow`

    @property
    def repeats_rows(self) -> Leak | None:
        """A text of the winner that repeats rows of val or test: its scores there show nothing."""
        return next((leak for leak in self.leaks if leak.breaks_proof), None)

    @property
    def saving_shown(self) -> bool:
        """The winner was picked for its cost, is cheaper on the sealed rows, and is not shown to be worse."""
        return self.saving is not None and self.saving.shown and not self.loss_shown and self.repeats_rows is None

    @property
    def proved(self) -> bool:
        """The sealed rows show that taking the winner is right."""
        return self.gain_shown or self.saving_shown

    @property
    def loss_shown(self) -> bool:
        """The winner is worse than the baseline on the sealed rows, as surely as a gain would have to be better."""
        return self.proof is not None and self.proof.diff < 0 and self.proof.p < 0.05 and self.proof.ci95[1] < 0

    @property
    def gain_shown(self) -> bool:
        return self.proof is not None and self.proof.shown and self.repeats_rows is None

    def as_dict(self) -> dict[str, Any]:
        proof = self.proof
        gain = {"diff": 0.0, "ci95": [0.0, 0.0], "p": 1.0, "shown": False}
        if proof is not None:
            gain = {
                "diff": proof.diff,
                "ci95": list(proof.ci95),
                "p": proof.p,
                "shown": self.gain_shown,
                "test": proof.test,
                "n": proof.n,
                "rows": proof.n_rows,
                "excluded": proof.n_excluded,
                "one_sided": proof.n_one_sided,
                "alpha": proof.alpha,
                "smallest_gain": proof.smallest_gain,
            }
        saving = None if self.saving is None else {**asdict(self.saving), "shown": self.saving_shown}
        return {
            "run": self.run,
            "status": self.status,
            "baseline": self.baseline,
            "best": self.best,
            "gain": gain,
            "spent": self.spent,
            "budget": self.budget,
            "workflow": self.workflow,
            "database": self.database,
            "candidates": self.candidates,
            "failures": self.failures,
            "pareto": self.pareto,
            "changes": [[a, b, c] for a, b, c in self.changes],
            "warnings": self.warnings,
            "error": self.error,
            "sandbox": self.sandbox,
            "untried": self.untried,
            "looks": self.looks,
            "saving": saving,
            "unproved": self.unproved,
        }

    def headline(self) -> list[str]:
        """The result in a few lines; also the comment on top of the written workflow."""
        untried = f", but nothing was tried: {self.untried}" if self.untried else ""
        lines = [f"workbench run {self.run}: {_STATUS[self.status]}{untried}"]
        if self.proof is not None:
            lines.append(self._verdict(self.proof))
            if self.loss_shown:
                lines.append("The candidate that was best on val is WORSE on sealed data.")
            if self.saving is not None:
                lines.append(self._saving_verdict(self.saving))
        elif self.status in ("finished", "budget"):
            why = (
                "the budget left nothing for the sealed test" if self.sealed_rows else "no test row is left to test on"
            )
            lines.append(f"The gain is not shown: {why}.")
        if self.sandbox is not None:
            held = "" if self.sandbox["level"] in BOUNDARIES else ", which is no boundary against hostile code"
            lines.append(f"Code ran in the sandbox {self.sandbox['name']}, level {self.sandbox['level']}{held}.")
        return lines

    def _verdict(self, proof: Proof) -> str:
        if (leak := self.repeats_rows) is None or not proof.shown:
            return describe(proof)
        where = f"{leak.address} of the winner repeats {leak.split} rows, e.g. {leak.example}"
        return f"The gain is not shown: {where}. Its score ({proof.diff:+.3f}) is not fair."

    def _saving_verdict(self, saving: Saving) -> str:
        shown = "is shown" if self.saving_shown else "is not shown"
        share = saving.diff / saving.baseline_mean if saving.baseline_mean else 0.0
        return (
            f"It was picked for its cost: the saving {shown}, {saving.objective} {saving.baseline_mean:.4g} -> "
            f"{saving.winner_mean:.4g} a row ({share:+.0%}, [{saving.ci95[0]:+.4g}, {saving.ci95[1]:+.4g}], "
            f"p = {saving.p:.2g})."
        )

    def lines(self) -> list[str]:
        """The whole report as plain text."""
        out = self.headline()
        if self.error:
            out.append(f"Error: {self.error}")
        if self.baseline["cost"] or self.test_rows:
            out += ["", *self._score_table(), ""]
        if self.changes:
            out.append("Changed:")
            out += [f"  {address}: {_short(old)} -> {_short(new)}" for address, old, new in self.changes]
        elif self.status in ("finished", "budget"):
            why = "no candidate was made" if self.untried else "no candidate beat the baseline on val"
            out.append(f"Nothing was changed: {why}.")
        if len(self.pareto) > 1:
            out.append("Pareto set (val):")
            out += ["  " + ", ".join(f"{k} {v:.4g}" for k, v in p.items() if k != "workflow") for p in self.pareto]
        if self.failures:
            out.append("Failed examples in the test: " + ", ".join(f"{k} {n}" for k, n in self.failures.items()))
        out += [f"Warning: {warning}" for warning in self.warnings]
        out.append(self._bill())
        if self.workflow:
            out += self._result_lines()
        elif self.status in ("interrupted", "failed"):
            out.append(f"Nothing paid for is lost. Go on with: workbench resume {self.run} --db {self.database}")
        return out

    def _result_lines(self) -> list[str]:
        """Where the result is, what is in it, and how to take what is not proved."""
        details = f"    Details: workbench show {self.run}"
        if self.kept is None or self.kept == self.winner:
            unproved = "" if self.proved or not self.changes else ", which has the unproved changes"
            return [f"Result: {self.workflow}{unproved}{details}"]
        lines = [f"Result: {self.workflow}, which keeps the baseline{details}"]
        if self.unproved:
            lines.append(
                f"The best candidate, unproved: {self.unproved}. To take it: workbench resume {self.run} "
                f"--keep-unproved --db {self.database}"
            )
        return lines

    def _score_table(self) -> list[str]:
        rows: list[tuple[str, ...]] = [("", "val", "test", "tokens", "usd", "seconds", "calls")]
        for name, side in (("baseline", self.baseline), ("winner", self.best)):
            test, cost = side["test"], side["cost"]
            rows.append(
                (
                    name,
                    _number(side["val"]),
                    f"{_number(test['score'])} (n={test['n']})",
                    *(_number(cost.get(k), "{:.4g}") for k in ("tokens", "usd", "latency", "calls")),
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines[0] += "   (costs per example)"
        return lines

    def _bill(self) -> str:
        spent = self.spent
        ceiling = {"calls": self.budget.get("calls"), "usd": self.budget.get("usd")}
        calls = f"{spent['calls']} calls" + (f" of {ceiling['calls']}" if ceiling["calls"] else "")
        usd = f"${spent['usd']:.4f}" + (f" of ${ceiling['usd']:g}" if ceiling["usd"] else "")
        text = (
            f"Spent: {calls} ({spent['cached']} more answered from the journal), {spent['prompt_tokens']} tokens in, "
            f"{spent['completion_tokens']} out, {usd}, {spent['seconds']:.1f} s"
        )
        if spent["unknown"]:
            text += f"; {spent['unknown']} more were sent before a kill, outcome unknown"
        if spent["maybe_tokens"]:
            text += f"; up to {spent['maybe_tokens']} tokens"
            text += f" and ${spent['maybe_usd']:.4f}" if spent["maybe_usd"] else ""
            text += " more if the server bills calls whose answers never came whole"
        if spent["failed"]:
            kinds = ", ".join(f"{kind} {n}" for kind, n in spent["failed"].items())
            text += f"; {sum(spent['failed'].values())} requests failed ({kinds}), which count as calls"
        others = {role: s for role, s in spent["by_role"].items() if role != "task"}
        return text + "".join(f"; {role}: {s['calls']} calls" for role, s in others.items())


_STATUS = {
    "finished": "finished",
    "budget": "finished at the budget's ceiling",
    "interrupted": "interrupted",
    "failed": "failed",
}


def build_report(
    *,
    run: str,
    status: str,
    task: Task,
    winner: Workflow,
    evaluations: Mapping[str, Evaluation],
    pairs: Sequence[tuple[Result, Result]] | None,
    ledger: Ledger,
    database: str,
    candidates: int,
    warnings: Sequence[str],
    error: str | None = None,
) -> Report:
    """Put a report together from what a run found. pairs: (baseline, winner) results of the sealed test rows."""
    pairs = list(pairs or ())
    proof = None
    saving, looks = None, []
    if winner != task.workflow:
        keys = sealed_row_keys(task, [a.example for a, _ in pairs] or task.dataset.test.open())
        looks = earlier_tests(ledger.store, ledger.run_id, winner.hash, task.workflow.hash, keys, task.test_hash)
    if pairs:
        clusters, alpha = [task.cluster_of(a.example) for a, _ in pairs], level_after(looks)
        proof = paired_proof([a.score for a, _ in pairs], [b.score for _, b in pairs], clusters=clusters, alpha=alpha)
        saving = _saving(task, pairs, alpha) if winner != task.workflow else None
    warnings = list(warnings)
    if pairs and len(pairs) < len(task.dataset.test):
        warnings.append(f"the budget allowed only {len(pairs)} of the {len(task.dataset.test)} test rows")
    if looks and proof is not None:
        warnings.append(looks_warning(looks))
    leaks = find_leaks(task, winner)
    warnings += map(str, leaks)
    roles = _asked(ledger)
    warnings += [
        f"{r['failed']} of {r['n']} calls of the {r['role']} failed ({r['kinds']}): {(r['message'] or '')[:200]}"
        for r in roles
        if r["failed"]
    ]
    if lost := [b.unreadable_calls for _, b in pairs if b.unreadable_calls]:
        warnings.append(
            f"in {len(lost)} of the {len(pairs)} test rows the winner's model seemed to call a tool in a form that "
            f"could not be read ({sum(lost)} times): it was told the right form, but its scores may be too low"
        )
    failures = dict(Counter(b.failure for _, b in pairs if b.failure))
    objectives = list(task.spec.objectives)
    front = pareto_set(list(evaluations.values()), objectives) if len(objectives) > 1 else []
    return Report(
        run=run,
        status=status,
        winner=winner,
        changes=_changes(task.workflow, winner),
        baseline=_side(
            evaluations.get(task.workflow.hash), [a for a, _ in pairs], task.workflow, proof and proof.baseline_mean
        ),
        best=_side(evaluations.get(winner.hash), [b for _, b in pairs], winner, proof and proof.winner_mean),
        proof=proof,
        spent=ledger.summary(),
        budget=task.spec.budget.model_dump(exclude_none=True),
        database=database,
        candidates=candidates,
        failures=failures,
        pareto=[{"workflow": e.workflow.hash, **{o: e.objectives[o] for o in objectives}} for e in front],
        warnings=warnings,
        error=error,
        test_rows=len(pairs),
        sandbox=_sandbox(ledger),
        untried=_untried(roles, status) if status in ("finished", "budget") and candidates < 2 else None,
        looks=looks,
        leaks=leaks,
        saving=saving,
        sealed_rows=len(task.dataset.test),
    )


def sealed_row_keys(task: Task, rows: Sequence[Example]) -> list[str]:
    """What sealed rows are remembered by: a hash of their inputs, whatever else stands in them."""
    return [digest(normalised_inputs(row, task.inputs)) for row in rows]


#: The field of a result that holds an objective's cost.
_COSTS = {"usd": "usd", "tokens": "tokens", "calls": "calls", "latency": "seconds"}


def _saving(task: Task, pairs: Sequence[tuple[Result, Result]], alpha: float) -> Saving | None:
    """The proof of the cost that decided the pick, if a cost did."""
    objectives = task.spec.objectives
    if len(objectives) < 2 or task.spec.pick == "score":
        return None
    considered = objectives if task.spec.pick == "cheapest" else objectives[:2]
    cost = next((o for o in considered if o in _COSTS), None)
    counted = [(a, b) for a, b in pairs if a.score is not None and b.score is not None]
    if cost is None or not counted:
        return None
    baseline, winner = ([float(getattr(r, _COSTS[cost])) for r in side] for side in zip(*counted, strict=True))
    return paired_saving(cost, baseline, winner, clusters=[task.cluster_of(a.example) for a, _ in counted], alpha=alpha)


def _changes(before: Workflow, after: Workflow) -> list[tuple[str, Any, Any]]:
    """Settings that differ, less those that only write out what is in force anyway."""

    def in_force(address: str) -> Any:
        try:
            return setting(before, address)
        except KeyError:
            return None

    return [c for c in before.diff(after) if c[1] is not None or c[2] not in ([], in_force(c[0]))]


def _asked(ledger: Ledger) -> list[Any]:
    """The calls of each role but the task, and how many of them got no answer: no row of data tells of these."""
    ledger.store.flush()
    return list(
        ledger.store.rows(
            "select role, count(*) as n, sum(response is null) as failed, group_concat(distinct case when response "
            "is null "
            "then outcome end) as kinds, max(message) as message from calls where run_id = ? and kind = 'lm' "
            "and role != 'task' group by role",
            ledger.run_id,
        )
    )


def _untried(roles: Sequence[Any], status: str) -> str:
    """Why no candidate was made."""
    asked = next((r for r in roles if r["role"] == "proposer"), None)
    if asked is not None and asked["failed"] < asked["n"] and status == "budget":
        return "the budget ended before there was a candidate (workbench estimate)"
    if asked is None:
        return (
            "either the optimizers find nothing here that they can change, or the budget is too small "
            "(workbench estimate)"
        )
    if asked["failed"] == asked["n"]:
        return f"the proposer gave no answer: all {asked['n']} of its calls failed ({asked['kinds']})"
    failed = f", and {asked['failed']} more calls failed ({asked['kinds']})" if asked["failed"] else ""
    return f"none of the proposer's {asked['n'] - asked['failed']} answers could be used{failed}"


def _sandbox(ledger: Ledger) -> dict[str, str] | None:
    ledger.store.flush()
    row = ledger.store.row("select data from events where run_id = ? and kind = 'sandbox' order by id", ledger.run_id)
    return json.loads(row["data"]) if row else None


def _side(val: Evaluation | None, test: list[Result], workflow: Workflow, mean: float | None) -> dict[str, Any]:
    """One side of the comparison. mean: its score as the proof counts it, clusters once."""
    evaluation = Evaluation(workflow, "test", tuple(test), True)
    counted = [r.score for r in test if r.score is not None]
    cost = evaluation.objectives if test else val.objectives if val is not None else {}
    return {
        "workflow": workflow.hash,
        "val": val.score if val is not None else None,
        "test": {"score": mean if counted else None, "n": len(counted)},
        "cost": {k: v for k, v in cost.items() if k != "score"},
    }


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} rows" if value else "none"
    text = json.dumps(value, ensure_ascii=False) if value is not None else "none"
    return text if len(text) <= 70 else text[:67] + "..."


def _number(value: float | None, form: str = "{:.3f}") -> str:
    return "-" if value is None else form.format(value)
