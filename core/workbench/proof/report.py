"""The report of a run: scores, proof, bill and warnings, as text and as JSON."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, cast

from workbench.base.text import align
from workbench.ledger import describe_lost, describe_reused, describe_usd, per_1000
from workbench.plugins import plugins
from workbench.proof.claim import Claim, find_claim
from workbench.proof.floor import Floor
from workbench.proof.leakage import Leak
from workbench.proof.learning_curves import LearningCurve
from workbench.proof.rerun import Rerun
from workbench.proof.sides import OrderEffect, describe_order
from workbench.runtime import BOUNDARIES
from workbench.store import Candidates, ReadOnlyStore, typed
from workbench.workflow import Workflow

#: Characters to show of a changed value, and of the text before the first difference.
_SHOWN, _CONTEXT = 70, 20


#: Keys of claims in `--json`, each with its value if there is no such claim. Others are under `claims`.
_CLAIMS: dict[str, Any] = {
    "gain": {"diff": 0.0, "ci95": [0.0, 0.0], "p": 1.0, "shown": False},
    "saving": None,
    "judge": None,
    "targets": None,
    "attacks": None,
}

#: Keys of `--json`.
_KEYS = (
    "run status baseline best gain spent budget workflow database candidates failures pareto changes warnings "
    "error sandbox rate_limits untried looks saving objections order judge targets attacks unproved "
    "test_skipped"
).split()


def page_of(run: str, database: str) -> str:
    """Return the report of a stored run as an HTML page, written by the exporter `html`."""
    with ReadOnlyStore(database) as store:
        return plugins().get("exporters", "html")()(store, run, "", None, None, False)


@dataclass
class Report:
    """The result of a run. `--json` prints `as_dict`."""

    run: str
    status: str
    winner: Workflow
    changes: list[tuple[str, Any, Any]]
    baseline: dict[str, Any]
    best: dict[str, Any]
    claims: list[Claim]
    spent: dict[str, Any]
    budget: dict[str, Any]
    database: str
    candidates: int
    failures: dict[str, int] = field(default_factory=dict[str, int])
    pareto: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    warnings: list[str] = field(default_factory=list[str])
    error: str | None = None
    workflow: str | None = None
    test_rows: int = 0
    sandbox: dict[str, str] | None = None  # name and measured level, if code ran in one
    rate_limits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # requests at once
    untried: str | None = None  # reason why the baseline is the only candidate
    earlier_tests: list[str] = field(default_factory=list[str])  # runs that tested changes on these sealed rows before
    leaks: list[Leak] = field(default_factory=list[Leak])
    sealed_rows: int = 0  # test rows in the data; `test_rows` of them were tested
    test_skipped: bool = False  # nothing beat the baseline, so the sealed rows were left unused
    unproved: str | None = None  # file with the best candidate, if `workflow` keeps the baseline
    kept: Workflow | None = None  # the workflow in the file `workflow`
    objections: list[str] = field(default_factory=list[str])  # reasons why nothing is shown, whatever the numbers
    order_effects: list[OrderEffect] = field(default_factory=list[OrderEffect])
    curves: list[LearningCurve] = field(default_factory=list[LearningCurve])  # of the trainings of the run
    floor: Floor | None = None  # score of the sealed rows without a model, if the metric knows it
    old_runs: tuple[int, str] = (1, "")  # runs of the old workflow at the winner's cost, if none were requested
    rerun: Rerun | None = None  # their vote, if the file requests it
    resumable: bool = True  # False: only another file or other user code can fix what ended it
    warned: list[str] = field(default_factory=list[str])  # the warnings that were given when the run started

    @property
    def repeats_rows(self) -> Leak | None:
        """Return the first leak that invalidates the proof: a text of the winner that repeats rows of val or test."""
        return next((leak for leak in self.leaks if leak.breaks_proof), None)

    @property
    def objection(self) -> str | None:
        """Return the reason why the sealed rows show nothing, whatever the numbers; None if there is none."""
        if (leak := self.repeats_rows) is not None:
            return f"{leak.address} of the winner repeats {leak.split} rows, e.g. {leak.handle or leak.example}"
        return self.objections[0] if self.objections else None

    def claim(self, name: str) -> Claim | None:
        """Return the claim with this name, or None."""
        return find_claim(self.claims, name)

    @property
    def proof(self) -> Claim | None:
        """Return the claim of a gain."""
        return self.claim("gain")

    @property
    def saving(self) -> Claim | None:
        """Return the saving, if the winner was picked by cost."""
        return self.claim("saving")

    @property
    def levels(self) -> Claim | None:
        """Return the service levels, if the file has targets."""
        return self.claim("targets")

    @property
    def judge(self) -> Claim | None:
        """Return the gain by the judge alone, if a language model scored. Only `proof` counts."""
        return self.claim("judge")

    def is_shown(self, claim: Claim | None) -> bool:
        """Return True if the sealed rows show a claim, and nothing else in the report forbids it."""
        if claim is None or not claim.shown or self.objection is not None:
            return False
        if claim.kind.uncorrected and self.judge is not None:
            return False
        return not claim.kind.keeps_score or (self.proof is not None and self.proof.loss_left is None)

    @property
    def proved(self) -> bool:
        """Return True if the sealed rows show a claim that proves a winner: a gain, a saving, or all targets met."""
        return any(claim.kind.proves and self.is_shown(claim) for claim in self.claims)

    @property
    def gain_shown(self) -> bool:
        """Return True if the sealed rows show a gain."""
        return self.is_shown(self.proof)

    @property
    def loss_shown(self) -> bool:
        """Return True if the winner is worse than the baseline on the sealed rows, at the level of a gain."""
        return self.proof is not None and self.proof.loss_shown

    def as_dict(self) -> dict[str, Any]:
        found = {claim.name: claim.as_dict(self.is_shown(claim)) for claim in self.claims}
        own = {name: found.pop(name, default) for name, default in _CLAIMS.items()}
        values = {**vars(self), **own, "looks": self.earlier_tests}  # the key of stored reports
        values["changes"] = [list(change) for change in self.changes]
        values["rate_limits"] = {lm: list(sizes) for lm, sizes in self.rate_limits.items()}
        values["order"] = [asdict(effect) for effect in self.order_effects]
        values["test_skipped"] = self.test_skipped and self.status in ("finished", "budget")
        return {
            **{name: values[name] for name in _KEYS},
            **({"claims": found} if found else {}),
            **({"floor": self.floor._asdict()} if self.floor is not None else {}),
            **({"rerun": self.rerun._asdict()} if self.rerun is not None else {}),
            **({"curves": [asdict(curve) for curve in self.curves]} if self.curves else {}),
        }

    def headline(self, *, plain: bool = False) -> list[str]:
        """Return the result in a few lines, which are also the comment at the top of the workflow file. plain: in the
        words of `summary`."""
        untried = f", but nothing was tried: {self.untried}" if self.untried else ""
        ended = "finished at the budget's ceiling" if self.status == "budget" else self.status
        lines = [f"workbench run {self.run}: {ended}{untried}"]
        lines += self._claim_lines(plain)
        if self.proof is None and self.status in ("finished", "budget"):
            why = "the budget left nothing for the sealed test" if self.sealed_rows else "no test rows are left"
            if self.sealed_rows and self.test_skipped:
                why = (
                    "there is no change to test, so the sealed rows were left unused (proof: {when_unchanged: test} "
                    "tests the baseline on them)"
                )
            lines.append(f"The gain is not shown: {why}.")
        if self.sandbox is not None:
            held = "" if self.sandbox["level"] in BOUNDARIES else ", which does not contain hostile code"
            lines.append(f"Code ran in the sandbox {self.sandbox['name']}, level {self.sandbox['level']}{held}.")
        return lines

    def _claim_lines(self, plain: bool) -> list[str]:
        """Return the lines of the claims. An objection is given once, in place of the gain."""
        lines, gain = list[str](), self.proof
        for claim in self.claims:
            why = None
            if claim is gain and (claim.shown or self.objections):
                why = self.objection
            elif claim.kind.keeps_score and claim.shown and self.objection is None and gain is not None:
                why = gain.loss_left
            lines += claim.lines(self.is_shown(claim), why, plain)
            if claim is gain and self.loss_shown:
                which = "was best on val" if self.levels is None else "the targets picked on val"
                lines.append(f"The candidate that {which} is WORSE on sealed data.")
        return lines

    def summary(self) -> list[str]:
        """Return the end of a run for a terminal: verdict, scores, changes, bill, and what to type next. Of the
        warnings it has those that came after the start. Everything is in `lines`."""
        out = [*self.headline(plain=True), *self._score_lines(), *self._change_lines(3, 24)]
        out += [curve.describe() for curve in self.curves]
        out += [f"Warning: {warning}" for warning in self.warnings if warning not in self.warned]
        return [*out, self._bill(), more_line(self.warnings, self.run, self.database), *self._end_lines()]

    def lines(self) -> list[str]:
        """Return the whole report as lines of plain text."""
        out = [*self.headline(), *self._score_lines()]
        if self.baseline["cost"] or self.test_rows:
            out += self._cache_line()
            out += [self.floor.beside(self.best["test"]["score"])] if self.floor is not None else []
            out += [self.rerun.describe()] if self.rerun is not None else self._rerun_hint()
        out += self._change_lines(len(self.changes), _SHOWN)
        out += [curve.describe() for curve in self.curves]
        if len(self.pareto) > 1:
            out.append("Pareto set (val); `diff` and `export --candidate` take the name:")
            for point in self.pareto:
                values = ", ".join(f"{k} {v:.4g}" for k, v in point.items() if k != "workflow")
                picked = "  <- picked" if point["workflow"] == self.winner.hash else ""
                out.append(f"  {point['workflow'][:8]}  {values}{picked}")
        if self.failures:
            out.append("Failed examples in the test: " + ", ".join(f"{k} {n}" for k, n in self.failures.items()))
        out += [f"Order: {describe_order(self.order_effects)}."] if self.order_effects else []
        out += [f"Warning: {warning}" for warning in self.warnings]
        out += [f"Rate limited: {lm}: {before} -> {after} at once" for lm, (before, after) in self.rate_limits.items()]
        return [*out, self._bill(), *self._end_lines()]

    def _score_lines(self) -> list[str]:
        out = [f"Error: {self.error}"] if self.error else []
        return [*out, "", *align(self._table()), ""] if self.baseline["cost"] or self.test_rows else out

    def _change_lines(self, most: int, width: int) -> list[str]:
        """Describe the first changes, with values of a width."""
        if not self.changes:
            done = self.status in ("finished", "budget")
            return [f"Nothing was changed: {self._why_unchanged()}."] if done else []
        shown = [self._change_line(*change, width) for change in self.changes[:most]]
        if (more := len(self.changes) - most) > 0:
            shown.append(f"  and {more} more: {typed(f'workbench diff {self.run}', self.database)}")
        return ["Changed:", *shown]

    def _change_line(self, address: str, old: Any, new: Any, width: int) -> str:
        """Describe a change by its values, or by the training if it names the folder of trained weights."""
        patch = self.winner.patch if address.endswith(("lm.model", "lm.extra.path")) else None
        if patch and patch.note.startswith("trained ") and any(address.startswith(key) for key in patch.set):
            return f"  {address}: {patch.note}, in {os.path.relpath(str(new).rpartition(':')[2])}"
        return f"  {address}: {' -> '.join(_shown(old, new, width))}"

    def _end_lines(self) -> list[str]:
        """Return what is left to do: the result and the next command, or how to resume."""
        if self.workflow:
            return self._result_lines()
        if not self.resumable:
            return ["Fix it and start a new run: this run keeps the file and the code that it started with."]
        again = typed(f"workbench resume {self.run}", self.database)
        lost = self.status in ("interrupted", "failed")
        return [f"Nothing paid for is lost. Resume it with: {again}"] if lost else []

    def to_pandas(self) -> Any:
        """Return the candidates as a pandas DataFrame: hash, parent, optimizer, note, val (the score), failed rows,
        changes, and the objectives per row. Raises ImportError without pandas."""
        pandas: Any = import_module("pandas")
        with ReadOnlyStore(self.database) as store:
            found = Candidates(store, store.find_run(self.run)["id"]).read_all()
        costs = [json.loads(c.pop("objectives") or "{}") for c in found]
        return pandas.DataFrame(
            {**c, **{name: value for name, value in cost.items() if name != "score"}}
            for c, cost in zip(found, costs, strict=True)
        )

    def to_html(self) -> str:
        """Return the page that `workbench report` writes. Raises PluginError without the plugin that renders it."""
        return page_of(self.run, self.database)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the summary."""
        return f"<pre>{html.escape(chr(10).join(self.summary()))}</pre>"

    def _rerun_hint(self) -> list[str]:
        runs, unit = self.old_runs
        hint = f"For the {unit} that the winner takes a row the old workflow could run {runs} times and vote"
        return [f"{hint}: proof: {{rerun: true}} measures that."] if runs > 1 else []

    def _why_unchanged(self) -> str:
        if self.untried:
            return "no candidate was made"
        if self.levels is not None:
            return "no candidate that is cheaper meets the targets on val"
        if any(point["score"] > (self.baseline["val"] or 0.0) for point in self.pareto):
            return "the candidates that scored better on val cost too much to be picked"
        return "no candidate beat the baseline on val"

    def _result_lines(self) -> list[str]:
        """Return the lines on the result file: its path and content, and how to take an unproved candidate."""
        if self.kept is None or self.kept == self.winner:
            unproved = "" if self.proved or not self.changes else ", which contains the unproved changes"
            return [f"Result: {self.workflow}{unproved}", *self._next_lines()]
        lines = [f"Result: {self.workflow}, which keeps the baseline"]
        if self.unproved:
            take = typed(f"workbench resume {self.run} --keep-unproved", self.database)
            lines.append(f"Best candidate, unproved: {self.unproved}. To take it: {take}")
        return lines

    def _next_lines(self) -> list[str]:
        """Return the command that applies the changes, or else the one that lists the rows won and lost."""
        commands = {node.applied_by for node in self.winner.walk() if node.applied_by} if self.changes else set[str]()
        found = [command.format(self.workflow) for command in sorted(commands)]
        if not found and self.changes and self.test_rows:
            found = [typed(f"workbench compare {self.run} --changed", self.database)]
        return [f"Next: {command}" for command in found]

    def _table(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("per row", "val", "test", "tokens", "$/1,000 rows", "model s", "calls")]
        for name, side in (("baseline", self.baseline), ("winner", self.best)):
            test, cost = side["test"], side["cost"]
            usd = per_1000(None if self.spent.get("unpriced") else cost["usd"]) if "usd" in cost else "-"
            tokens, seconds, calls = (_number(cost.get(k), "{:.4g}") for k in ("tokens", "latency", "calls"))
            scored = f"{_number(test['score'])} (n={test['n']})"
            rows.append((name, _number(side["val"]), scored, tokens, usd, seconds, calls))
        return rows

    def _cache_line(self) -> list[str]:
        """Return a line on the tokens that the server computed, if it caches the beginnings of prompts."""
        costs = [side["cost"] for side in (self.baseline, self.best)]
        if not any("uncached_tokens" in cost for cost in costs):
            return []
        before, after = (cost.get("uncached_tokens", cost.get("tokens", 0.0)) for cost in costs)
        return [f"Without what the server had cached, tokens per example: baseline {before:.4g}, winner {after:.4g}."]

    def _bill(self) -> str:
        spent, most = self.spent, self.budget
        calls = f"{spent['calls']} calls" + (f" of {most['calls']}" if most.get("calls") else "")
        usd = describe_usd(spent) + (f" of ${most['usd']:g}" if most.get("usd") else "")
        text = (
            f"Spent: {calls} ({spent['cached']} more answered from the journal), {spent['prompt_tokens']} tokens in, "
            f"{spent['completion_tokens']} out, {usd}, {spent['seconds']:.1f} s"
            f"{describe_reused(spent)}{describe_lost(spent)}"
        )
        others = {role: s for role, s in spent["by_role"].items() if role != "task"}
        return text + "".join(f"; {role}: {s['calls']} calls" for role, s in others.items())


def more_line(warnings: Sequence[str], run: str, database: str) -> str:
    """Return where a person finds what the end of a run leaves out."""
    count = f"{len(warnings)} warning{'s' * (len(warnings) != 1)} and all figures" if warnings else "All figures"
    return f"{count}: {typed(f'workbench show {run}', database)}"


def _shown(old: Any, new: Any, most: int = _SHOWN) -> list[str]:
    """Return two values, each on a line, cut to where they differ."""
    texts = [_as_line(old), _as_line(new)]
    differ = (place for place, pair in enumerate(zip(*texts, strict=False)) if pair[0] != pair[1])
    same = next(differ, 0) - min(_CONTEXT, most // 3) if max(map(len, texts)) > most else 0
    texts = [f"...{text[same:]}" if same > 0 else text for text in texts]
    return [text if len(text) <= most else f"{text[: most - 3]}..." for text in texts]


def _as_line(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(cast(list[Any], value))} rows" if value else "none"
    return json.dumps(value, ensure_ascii=False) if value is not None else "none"


def _number(value: float | None, form: str = "{:.3f}") -> str:
    return "-" if value is None else form.format(value)
