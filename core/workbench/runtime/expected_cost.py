"""Expected cost of calls before they are made: tokens, dollars and minutes of an example, for the workflow as written
and for the most expensive one that `search:` can make of it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from workbench.errors import StoreError, WorkbenchError
from workbench.lm import LM, estimate_tokens, make_lm
from workbench.runtime.requests import MAX_TOKENS, most_tokens
from workbench.spec import BudgetSpec, LMSpec
from workbench.store import ReadOnlyStore, Usual, read_usual_calls
from workbench.task import Example, Task, default_space, labelled_demo, variants
from workbench.workflow import NodeKind, Workflow, called_lms, node_at

#: Approximate tokens of a prompt that describe the form of the answer and the roles.
FORM = 40


@dataclass(frozen=True)
class Cost:
    """The cost of a part of a run. output_tokens and usd: None if unknown. most_usd: without retries. Dollars are None
    if a price is unknown, minutes if the time of a call is."""

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

    def rows(self, n: float, used: float = 1.0) -> Cost:
        """Return the cost of n examples that take a share `used` of their most calls. Maxima are not reduced."""
        most = self.times(n)
        likely = self.times(n * used)
        return replace(likely, most_output_tokens=most.most_output_tokens, most_usd=most.most_usd)

    def within(self, budget: BudgetSpec) -> Cost:
        """Return the cost, limited by the ceilings of a budget."""
        share = 1.0 if budget.calls is None or not self.calls else min(1.0, budget.calls / self.calls)
        cut = self.times(share)
        most = {what: getattr(budget, what) or math.inf for what in ("usd", "minutes")}
        usd, dearest, minutes = (
            None if value is None else min(value, most[what])
            for value, what in ((cut.usd, "usd"), (cut.most_usd, "usd"), (cut.minutes, "minutes"))
        )
        return replace(cut, usd=usd, most_usd=dearest, minutes=minutes)

    @property
    def tokens(self) -> float:
        """Return tokens in and out: expected output if known, else its maximum."""
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
            most = f"up to about {format_usd(self.most_usd)}"
            parts.append(most if self.usd is None else f"about {format_usd(self.usd)} ({most})")
        if self.minutes is not None:
            parts.append(f"about {self.minutes:.1f} minutes")
        return ", ".join(parts)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def format_usd(amount: float) -> str:
    return "$0" if not amount else f"${amount:.2g}" if amount < 1e-4 else f"${amount:.{2 if amount >= 1 else 4}f}"


def known_price(lm: LM, prompt: int, completion: int) -> float | None:
    """Return the US dollars for a number of tokens; None if unknown. A price that is only assumed to be 0 is unknown: a
    server on this machine may forward calls to a paid service."""
    return None if getattr(lm, "assumed_free", False) else lm.price(prompt, completion)


@dataclass(frozen=True)
class Model:
    """A language model with everything known about it without a call."""

    spec: LMSpec
    lm: LM | None
    usual: Usual | None

    def seconds(self, given: float | None) -> float | None:
        return given if given is not None else self.usual.seconds if self.usual is not None else None

    def usd(self, prompt: float, completion: float) -> float | None:
        return None if self.lm is None else known_price(self.lm, math.ceil(prompt), math.ceil(completion))


def models_of(
    task: Task, database: str | Path | None = None, *, searched: bool = False, roles: bool = False
) -> list[Model]:
    """List the models that the workflow as written calls. searched: also those that `search:` may put in their place.
    roles: also those that propose, judge, teach, or play the user."""
    store: ReadOnlyStore | None = None
    with suppress(StoreError):  # an older file has no such columns; a damaged one is ignored
        store = ReadOnlyStore(database) if database is not None else None
    found = dict[str, Model]()
    try:
        called = [spec for workflow in _workflows(task, searched) for spec in called_lms(workflow, task.spec.lm)]
        for spec in [*called, *(task.spec.roles.values() if roles else ())]:
            key, lm, usual = spec.model_dump_json(), None, None
            if key in found:
                continue
            with suppress(WorkbenchError):  # a model that cannot be made has no price
                lm = make_lm(spec)
            with suppress(StoreError):
                usual = read_usual_calls(store, lm.identity) if store is not None and lm is not None else None
            found[key] = Model(spec, lm, usual)
    finally:
        if store is not None:
            store.close()
    return list(found.values())


def _workflows(task: Task, searched: bool) -> Iterator[Workflow]:
    yield task.workflow
    if searched:
        yield from (changed for _, changed in variants(task.spec.search, task.workflow))


def row_cost(task: Task, models: Sequence[Model], seconds_per_call: float | None) -> Cost:
    """Estimate the cost of an example. A node that may call several models counts with the most expensive and
    slowest."""
    prompt, whole = prompt_tokens(task, task.dataset.val[:20]), Cost()
    by_spec = {model.spec.model_dump_json(): model for model in models}
    for node in task.workflow.enabled_nodes.values():
        asked = [by_spec[spec.model_dump_json()] for spec in called_lms(task.workflow, task.spec.lm, node)]
        calls = node.max_calls
        if not calls or not asked:
            continue
        most = max(call_tokens(inner, model.spec) for inner in node.walk() for model in asked)
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


def searched_row(task: Task, row: Cost, database: str | Path | None) -> Cost:
    """Return the cost of an example for a candidate: each choice of `search:` costs the mean of its options. A model
    without earlier calls is assumed to answer like the file's own. row: that of the workflow as written."""
    models = models_of(task, database, searched=True)
    usual = next((model.usual for model in models if model.usual), None)
    models = [replace(model, usual=model.usual or usual) for model in models]
    options = {address: [row.usd] for address, domain in task.spec.search.items() if domain.any_of}
    for address, changed in variants(task.spec.search, task.workflow):
        options.setdefault(address, []).append(row_cost(replace(task, workflow=changed), models, None).usd)
    found = row.usd
    for several in options.values():
        known = [usd for usd in several if usd is not None]
        mean = fmean(known) if len(known) == len(several) else None
        found = None if found is None or row.usd is None or mean is None else found + mean - row.usd
    return replace(row, usd=found)


def dearest_usd(task: Task) -> float | None:
    """Return the dollars of one example for the most expensive workflow that `search:` can make: with the dearest
    model, all demos, the longest texts, the longest row and the longest answers. None if a price is unknown.

    Text that a node adds to a prompt, or that a proposer or an earlier node writes into it, is not counted.
    """
    workflow, calls = task.workflow, Counter[str]()
    for address, changed in variants(task.spec.search, workflow):
        calls[address] = max(calls[address], changed.max_calls - workflow.max_calls)
    models = models_of(task, searched=True)
    nodes = [node for w in _workflows(task, searched=True) for node in w.walk()]
    out = max((call_tokens(node, model.spec) for node in nodes for model in models), default=MAX_TOKENS)
    for address, domain in task.spec.search.items():
        out = max(out, domain.int_[1] if domain.int_ and address.endswith("max_tokens") else 0)
    prompt = _longest_prompt(task)
    dearest = _largest([model.usd(prompt, out) for model in models] or [0.0])
    return None if dearest is None else dearest * (workflow.max_calls + calls.total())


def dearest_role_usd(task: Task) -> float | None:
    """Return the dollars of a call of the most expensive role (proposer, judge, teacher); 0 without roles; None if a
    price is unknown. Its prompt is taken to be as long as the workflow's longest."""
    prompt, named = _longest_prompt(task), {spec.model_dump_json() for spec in task.spec.roles.values()}
    models = [model for model in models_of(task, roles=True) if model.spec.model_dump_json() in named]
    return _largest([model.usd(prompt, most_tokens(model.spec, None)) for model in models] or [0.0])


def _longest_prompt(task: Task) -> int:
    """Return the input tokens of a call with the longest row and the longest texts and most demos of `search:`."""
    prompt = max(prompt_tokens(task, (row,)) for row in (task.dataset.val or task.dataset.train or (Example("", {}),)))
    for address, domain in (task.spec.search or default_space(task.workflow)).items():
        prompt += max((len(text) // 3 for text in domain.choice or () if isinstance(text, str)), default=0)
        prompt += _demo_tokens(task, address) * (domain.demos or 0)
    return prompt


def dearest_call(
    workflow: Workflow, lm: LMSpec, prompt: int, price: Callable[[LMSpec, int, int], float]
) -> tuple[int, float]:
    """Return the tokens and dollars of a workflow's most expensive call with a prompt of this many tokens and the
    longest answer. lm: the file's model; price: dollars of a model for tokens in and out."""
    calls = [(spec, call_tokens(node, spec)) for node in workflow.walk() for spec in called_lms(workflow, lm, node)]
    tokens = max((prompt + most for _, most in calls), default=0)
    return tokens, max((price(spec, prompt, most) for spec, most in calls), default=0.0)


def _demo_tokens(task: Task, address: str) -> int:
    """Return the tokens of the longest demo that a node can be shown."""
    try:
        node = node_at(task.workflow, address)
    except KeyError:  # an address of an alternative that is not in the workflow as written
        return 0
    demos = (labelled_demo(node, row) for row in task.dataset.train)
    return max((sum(estimate_tokens(({"content": str(v)},)) for v in d.values()) for d in demos if d), default=0)


def _largest(values: Sequence[float | None]) -> float | None:
    """Return the largest value; None if any is unknown."""
    return None if None in values else max(value for value in values if value is not None)


def call_tokens(node: NodeKind, spec: LMSpec) -> int:
    """Return the most output tokens of one call of a node."""
    settings: Any = getattr(node, "settings", None) or {}
    own = settings.get("max_tokens") or getattr(node.config, "max_tokens", None)
    return most_tokens(spec, own)


def prompt_tokens(task: Task, rows: tuple[Example, ...]) -> int:
    """Return the mean input tokens of a call, estimated from the rows' inputs and all texts of the nodes, with demos
    and signatures. Inputs of later nodes are not known yet."""
    system = sum(len(json.dumps(t, default=str, ensure_ascii=False)) // 3 + FORM for t in task.workflow.nodes.values())
    texts = [sum(estimate_tokens(({"content": str(row[n])},)) for n in task.inputs if n in row) for row in rows]
    return system + (sum(texts) // len(texts) if texts else 0)
