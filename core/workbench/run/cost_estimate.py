"""Estimates, before a run: what it takes in calls, tokens, dollars and minutes, the smallest gain that its test can
show, and whether its budget can pay for the proof."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import SpecError, StoreError, WorkbenchError
from workbench.lm import LM, estimate_tokens, make_lm
from workbench.proof import few_rows_warning, smallest_binary_gain
from workbench.run.preflight import lm_warnings
from workbench.spec import LMSpec
from workbench.store import ReadOnlyStore, Usual, read_usual_calls
from workbench.study import Optimizer
from workbench.task import Example, Task
from workbench.workflow import NodeKind, called_lms

#: The output tokens of a call where no setting bounds them (`Request.max_tokens`).
MAX_TOKENS = 512

#: A token stands for at most so many times the bytes that `estimate_tokens`, which is high, takes it for.
LEAST_TOKENS = 0.5


@dataclass(frozen=True)
class Cost:
    """What a part of a run takes. expected: None where nothing tells it; most: without retries; dollars and minutes
    are None where no price and no time of a call are known."""

    calls: int = 0
    input_tokens: float = 0.0
    output_tokens: float | None = 0.0
    most_output_tokens: float = 0.0
    usd: float | None = 0.0
    most_usd: float | None = 0.0
    minutes: float | None = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            _sum(self.output_tokens, other.output_tokens),
            self.most_output_tokens + other.most_output_tokens,
            _sum(self.usd, other.usd),
            _sum(self.most_usd, other.most_usd),
            _sum(self.minutes, other.minutes),
        )

    def times(self, n: float) -> Cost:
        scaled: dict[str, Any] = {k: None if v is None else v * n for k, v in vars(self).items()}
        return Cost(**{**scaled, "calls": round(self.calls * n)})

    @property
    def tokens(self) -> float:
        """Tokens in and out: expected, or at most where nothing tells what is to be expected."""
        return self.input_tokens + (self.most_output_tokens if self.output_tokens is None else self.output_tokens)

    @property
    def likely_usd(self) -> float | None:
        return self.most_usd if self.usd is None else self.usd

    def as_dict(self) -> dict[str, Any]:
        digits = {"usd": 6, "most_usd": 6, "minutes": 5}
        return {k: v if v is None else round(v, digits.get(k)) for k, v in vars(self).items()}

    def __str__(self) -> str:
        out = f"at most {self.most_output_tokens:.0f}" if self.output_tokens is None else f"{self.output_tokens:.0f}"
        parts = [f"{self.calls} calls", f"about {self.input_tokens:.0f} tokens in and {out} out"]
        if self.most_usd is not None:
            most = f"at most {_usd(self.most_usd)}"
            parts.append(most if self.usd is None else f"about {_usd(self.usd)} ({most})")
        if self.minutes is not None:
            parts.append(f"about {self.minutes:.1f} minutes")
        return ", ".join(parts)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _usd(amount: float) -> str:
    return "$0" if not amount else f"${amount:.4f}" if amount < 1 else f"${amount:.2f}"


@dataclass(frozen=True)
class _Model:
    """A language model as far as it is known without asking it."""

    spec: LMSpec
    lm: LM | None
    usual: Usual | None

    def seconds(self, given: float | None) -> float | None:
        return given if given is not None else self.usual.seconds if self.usual is not None else None

    def usd(self, prompt: float, completion: float) -> float | None:
        if self.lm is None or getattr(self.lm, "assumed_free", False):
            return None
        return self.lm.price(math.ceil(prompt), math.ceil(completion))


def estimate(
    task: Task,
    optimizers: Sequence[tuple[str, Optimizer]] = (),
    database: str | Path | None = None,
    seconds_per_call: float | None = None,
) -> dict[str, Any]:
    """What a run will take, and the smallest gain that its test can show.

    Args:
        optimizers: (name, optimizer), as `run.prepare` returns them.
        database: a run database, whose earlier calls of the same models tell output tokens and seconds.
        seconds_per_call: in place of these seconds.

    In the result, `baseline`, `search`, `proof` and `total` have the fields of `Cost`. `most_calls` bounds the whole
    run; it is None if an optimizer does not bound its calls, or the metric calls a model. `candidates`: evaluations on
    val that the budget leaves for the search. `lines`: the estimate as text.
    """
    data, calls = task.dataset, task.workflow.max_calls
    models = _models(task, database)
    row = _row_cost(task, models, seconds_per_call)
    baseline, proof = row.times(len(data.val)), row.times(task.spec.tested_sides * len(data.test))
    search = _bounds(task, optimizers)
    known = sum(most for _, most in search if most is not None)
    bounded = bool(search) and all(most is not None for _, most in search)
    total = baseline.calls + proof.calls + known if bounded else None
    candidates = _candidates(task, baseline, proof, 0 if bounded else known)
    searching = row.times(known / max(1, calls)) if bounded else None
    if candidates is not None and (searching is None or candidates * baseline.calls < searching.calls):
        searching = baseline.times(candidates) + row.times(0 if bounded else known / max(1, calls))
    smallest, shown = _smallest_gain(task)
    parts = {"baseline": baseline, "search": searching, "proof": proof}
    parts["total"] = None if searching is None else baseline + proof + searching
    lines = [
        f"At most {calls} call(s) per example, {_call_text(row, calls, models)}.",
        f"Baseline on val: {baseline}.",
        f"Sealed test of baseline{', best candidate' if task.spec.targets else ''} and winner: {proof}.",
        *_search_lines(task, search, known, total, baseline, proof),
        *([f"In all, search included: {parts['total']}."] if parts["total"] else []),
        *_unknown_lines(row, models, database),
        *(f"Warning: {line}" for line in (*budget_warnings(task), *lm_warnings(task))),
        shown,
        *(line for node in task.workflow.walk() for line in node.warnings()),
    ]
    return {
        "calls_per_example": calls,
        "baseline_calls": baseline.calls,
        "proof_calls": proof.calls,
        "input_tokens": round(row.input_tokens / max(1, calls)),
        **{name: None if part is None else part.as_dict() for name, part in parts.items()},
        "candidates": candidates,
        "optimizer_calls": [{"optimizer": name, "calls": most} for name, most in search],
        "most_calls": total,
        "smallest_gain": smallest,
        "lines": lines,
    }


def _bounds(task: Task, optimizers: Sequence[tuple[str, Optimizer]]) -> list[tuple[str, int | None]]:
    """The most calls of each optimizer in all rounds; None if its settings do not bound them, or the metric's calls
    come on top."""
    data, asks = task.dataset, getattr(task.metric, "needs_lm", False)
    found = [(name, made.most_calls(task.workflow, data.train, data.val)) for name, made in optimizers]
    return [(name, None if most is None or asks else task.spec.rounds * most) for name, most in found]


def _search_lines(
    task: Task, search: Sequence[tuple[str, int | None]], known: int, total: int | None, baseline: Cost, proof: Cost
) -> Iterator[str]:
    rounds, budget = task.spec.rounds, task.spec.budget
    if getattr(task.metric, "needs_lm", False):
        yield "The metric calls a model, too; its calls are extra."
    in_rounds = f" in {rounds} rounds" if rounds > 1 else ""
    yield from (f"{name}: at most {most} calls{in_rounds}." for name, most in search if most is not None)
    if total is not None:
        yield f"Total: at most {total} calls, without retries."
    if budget.calls is not None:
        rest = max(0, budget.calls - baseline.calls - proof.calls)
        if known > rest:
            yield f"Warning: of {budget.calls} calls, {rest} are left for search, which may take {known}."
        elif total is None:
            rest -= known
            count = rest // max(1, baseline.calls)
            yield f"Of {budget.calls} calls, {rest} are left for search: about {count} candidates."
    for what, left, each in _other_ceilings(task, baseline, proof):
        text = {"tokens": f"{left:.0f} tokens", "usd": _usd(left), "minutes": f"{left:.1f} minutes"}[what]
        ceiling = getattr(budget, what)
        whole = {"tokens": f"{ceiling} tokens", "usd": f"${ceiling:g}", "minutes": f"{ceiling:g} minutes"}[what]
        some = f": about {int(left / each)} candidates" if each else ""
        yield f"Of {whole}, about {text} are left for search{some}."


def _other_ceilings(task: Task, baseline: Cost, proof: Cost) -> Iterator[tuple[str, float, float]]:
    """(what, left for search, what a candidate takes) for each ceiling but that of calls whose use is known."""
    used = (("tokens", baseline.tokens, proof.tokens), ("usd", baseline.likely_usd, proof.likely_usd))
    for what, base, test in (*used, ("minutes", baseline.minutes, proof.minutes)):
        ceiling = getattr(task.spec.budget, what)
        if ceiling is not None and base is not None and test is not None:
            yield what, max(0.0, ceiling - base - test), base


def _candidates(task: Task, baseline: Cost, proof: Cost, known: int) -> int | None:
    """How many candidates the ceilings leave for search; None without a ceiling whose use is known."""
    found = [left / each for _, left, each in _other_ceilings(task, baseline, proof) if each]
    if task.spec.budget.calls is not None and baseline.calls:
        rest = max(0, task.spec.budget.calls - baseline.calls - proof.calls - known)
        found.append(rest / baseline.calls)
    return int(min(found)) if found else None


def _call_text(row: Cost, calls: int, models: Sequence[_Model]) -> str:
    each = max(1, calls)
    most = f"at most {row.most_output_tokens / each:.0f} output tokens each"
    text = f"about {row.input_tokens / each:.0f} input tokens and {most}"
    if row.output_tokens is not None and any(model.usual for model in models):
        seen = sum(model.usual.calls for model in models if model.usual)
        text += f" ({row.output_tokens / each:.0f} by {seen} earlier calls)"
    return text


def _unknown_lines(row: Cost, models: Sequence[_Model], database: str | Path | None) -> Iterator[str]:
    """What is not known, and what would tell it."""
    if row.most_usd is None:
        names = ", ".join(sorted({model.spec.model for model in models if model.usd(1, 1) is None}))
        yield (
            f"Dollars are not known: there is no price of {names}; write price: {{input: ..., output: ...}} (dollars "
            "per million tokens) beside its name."
        )
    if row.minutes is None:
        names = ", ".join(sorted({model.spec.model for model in models if model.seconds(None) is None}))
        where = f" in {database}" if database is not None else ""
        yield (
            f"Minutes are not known: no earlier run{where} tells how long a call of {names} takes (--seconds-per-call "
            "tells it)."
        )


def _models(task: Task, database: str | Path | None) -> list[_Model]:
    """The models that the workflow as written calls."""
    store: ReadOnlyStore | None = None
    with suppress(StoreError):  # an older file lacks what is asked; a damaged one tells nothing
        store = ReadOnlyStore(database) if database is not None else None
    found = dict[str, _Model]()
    try:
        for spec in called_lms(task.workflow, task.spec.lm):
            key, lm, usual = spec.model_dump_json(), None, None
            if key in found:
                continue
            with suppress(WorkbenchError):  # what cannot be made has no price
                lm = make_lm(spec)
            with suppress(StoreError):
                usual = read_usual_calls(store, lm.identity) if store is not None and lm is not None else None
            found[key] = _Model(spec, lm, usual)
    finally:
        if store is not None:
            store.close()
    return list(found.values())


def _row_cost(task: Task, models: Sequence[_Model], seconds_per_call: float | None) -> Cost:
    """What one example takes. A node that may ask several models is taken to ask the dearest and slowest."""
    prompt, whole = _prompt_tokens(task, task.dataset.val[:20]), Cost()
    by_spec = {model.spec.model_dump_json(): model for model in models}
    for node in task.workflow.enabled_nodes.values():
        asked = [by_spec[spec.model_dump_json()] for spec in called_lms(task.workflow, task.spec.lm, node)]
        calls = node.max_calls
        if not calls or not asked:
            continue
        most = max(_max_tokens(inner, model.spec) for inner in node.walk() for model in asked)
        usual = [min(most, model.usual.completion_tokens) if model.usual else None for model in asked]
        out = None if None in usual else max(n for n in usual if n is not None)
        likely = None if out is None else [model.usd(prompt, out) for model in asked]
        dearest = [model.usd(prompt, most) for model in asked]
        seconds = [model.seconds(seconds_per_call) for model in asked]
        at_once = min(
            model.spec.concurrency or getattr(model.lm, "concurrency", task.spec.concurrency) for model in asked
        )
        slowest = _largest(seconds)
        one = Cost(
            1,
            prompt,
            out,
            most,
            None if likely is None else _largest(likely),
            _largest(dearest),
            None if slowest is None else slowest / 60 / max(1, min(at_once, task.spec.concurrency)),
        )
        whole += one.times(calls)
    return whole


def _largest(values: Sequence[float | None]) -> float | None:
    """The largest value; None if one is not known."""
    return None if None in values else max(value for value in values if value is not None)


def _max_tokens(node: NodeKind, spec: LMSpec) -> int:
    """The output tokens of one call of a node at most."""
    settings: Any = getattr(node, "settings", None) or {}
    own = settings.get("max_tokens") or getattr(node.config, "max_tokens", None)
    return own or spec.max_tokens or MAX_TOKENS


def _smallest_gain(task: Task) -> tuple[float | None, str]:
    """The smallest gain that the test can show, and the line that says so."""
    test = task.dataset.test
    counted = len({task.cluster_of(row) for row in test.open()})
    smallest = detectable_gain(counted)
    can_show = (
        f"the test can show gains of about {smallest:.2f} or more (80% power; smaller ones if fewer rows change)."
        if smallest is not None
        else "the test can show no gain: use more rows for it."
    )
    clusters = "" if counted == len(test) else f" in {counted} clusters, each of which counts once"
    return smallest, f"With {len(test)} test rows{clusters}, {can_show}"


def detectable_gain(n: int, discordant: float = 0.3) -> float | None:
    """The gain in a 0/1 score that the exact paired test at 5% shows with 80% power.

    discordant: the share of rows whose score changes, at least the gain itself. Returns None if n rows can show none.
    """
    gain = smallest_binary_gain(n, discordant)
    return None if gain is None else round(gain, 4)


def _prompt_tokens(task: Task, rows: tuple[Example, ...]) -> int:
    """Mean input tokens of a call, estimated from the rows' inputs: inputs of later nodes are not known yet."""
    system = sum(len(str(t.get("instructions", ""))) for t in task.workflow.nodes.values()) // 3
    texts = [sum(estimate_tokens(({"content": str(row[n])},)) for n in task.inputs) for row in rows]
    return system + (sum(texts) // len(texts) if texts else 0)


# Whether the budget can pay for the proof


def budget_warnings(task: Task) -> list[str]:
    """A warning if the budget does not cover the worst case of baseline and sealed test, at one judge call per row."""
    calls = task.workflow.max_calls + bool(getattr(task.metric, "needs_lm", False))
    needed = calls * (len(task.dataset.val) + task.spec.tested_sides * len(task.dataset.test))
    sealed = len({task.cluster_of(row) for row in task.dataset.test.open()})
    most, warned = task.spec.budget.calls, few_rows_warning(task.spec.targets, sealed)
    if (lacking := find_unpayable_proof(task)) is not None:
        return [f"{lacking.message}; `workbench optimize` refuses that without --allow-unproved", *warned]
    if most is None or most >= needed:
        return warned
    return [
        *warned,
        f"the budget of {most} calls may be too small: evaluating the baseline and testing it and a winner on all "
        f"sealed rows may take {needed}. Raise budget.calls, or use fewer rows.",
    ]


def find_unpayable_proof(task: Task) -> SpecError | None:
    """The error of a budget that ends before baseline and sealed test could, however little these take; else None.

    The least is one call for each node that calls a model, and one for a row of the winner; of tokens and dollars, the
    inputs alone.
    """
    least = sum(map(_least_calls, task.workflow.enabled_nodes.values()))
    val, test, budget = len(task.dataset.val), len(task.dataset.test), task.spec.budget
    calls = least * (val + test) + min(1, least) * test
    inputs = LEAST_TOKENS * _prompt_tokens(task, task.dataset.val[:20]) * calls
    needed: dict[str, float] = {"calls": calls, "tokens": inputs}
    if budget.usd is not None and calls:
        prices = [model.usd(inputs, 0) for model in _models(task, None)]
        needed["usd"] = 0.0 if None in prices or not prices else min(price for price in prices if price is not None)
    for what, least_needed in needed.items():
        ceiling = getattr(budget, what)
        if ceiling is not None and least_needed > ceiling:
            amounts = [_usd(a) if what == "usd" else f"{a:.0f} {what}" for a in (ceiling, least_needed)]
            return SpecError(
                f"the budget of {amounts[0]} cannot pay for the proof: the baseline on val, and the sealed test of it "
                f"and a winner, take at least {amounts[1]}",
                hint=f"Raise budget.{what}, use fewer rows, or add --allow-unproved to search all the same.",
                path=("budget", what),
            )
    return None


def _least_calls(node: NodeKind) -> int:
    """The fewest calls of a node on one example, as far as that shows from outside."""
    if not node.max_calls:
        return 0
    return min(map(_least_calls, node.children().values()), default=1)
