"""Expected cost of calls before they are made: tokens, dollars and minutes of an example, for the workflow as written
and for the most expensive one that `search:` can make of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from workbench.errors import SpecError, WorkbenchError
from workbench.lm import LM, estimate_tokens, make_lm
from workbench.run.rehearsal import Prompt, Rehearsal, rehearse
from workbench.runtime import call_tokens, max_tokens
from workbench.spec import BudgetSpec, LMSpec
from workbench.store import ReadOnlyStore, Usual, read_usual_calls
from workbench.task import Task, default_space, labelled_demos, resolve_picks, variants
from workbench.workflow import NodeKind, Workflow, called_lms, node_at

#: Real tokens of a prompt lie between these multiples of what `estimate_prompt` counts.
MIN_TOKENS, MAX_TOKENS = 0.5, 2.0
#: Tokens that describe the form of the answer in a prompt that is not known, and tokens of a tool's result in bounds.
FORM, RESULT = 40, 2000


@dataclass(frozen=True)
class Cost:
    """The cost of a part of a run. output_tokens and usd: None if unknown. max_usd: without retries. Dollars are None
    if a price is unknown, minutes if the time of a call is, and max_input_tokens if the prompts are."""

    calls: int = 0
    input_tokens: float = 0.0
    output_tokens: float | None = 0.0
    max_output_tokens: float = 0.0
    usd: float | None = 0.0
    max_usd: float | None = 0.0
    minutes: float | None = 0.0
    min_input_tokens: float = 0.0
    max_input_tokens: float | None = 0.0

    def __add__(self, other: Cost) -> Cost:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        sums: list[Any] = [None if None in pair else sum(pair) for pair in both]
        return Cost(*sums)

    def times(self, n: float) -> Cost:
        scaled: dict[str, Any] = {k: None if v is None else v * n for k, v in vars(self).items()}
        return Cost(**{**scaled, "calls": round(self.calls * n)})

    def rows(self, n: float, used: float = 1.0) -> Cost:
        """Return the cost of n examples that take a share `used` of their most calls. Bounds stay those of all."""
        bounds = {k: v for k, v in vars(self.times(n)).items() if k.startswith(("least_", "most_"))}
        return replace(self.times(n * used), **bounds)

    def within(self, budget: BudgetSpec) -> Cost:
        """Return the cost, limited by the ceilings of a budget."""
        share = 1.0 if budget.calls is None or not self.calls else min(1.0, budget.calls / self.calls)
        most = {"usd": budget.usd, "max_usd": budget.usd, "minutes": budget.minutes}
        cut: Any = {k: v if v is None else min(v, most.get(k) or math.inf) for k, v in vars(self.times(share)).items()}
        return Cost(**{**cut, "max_input_tokens": self.max_input_tokens})

    @property
    def tokens(self) -> float:
        """Return tokens in and out: expected output if known, else its maximum."""
        return self.input_tokens + (self.max_output_tokens if self.output_tokens is None else self.output_tokens)

    @property
    def likely_usd(self) -> float | None:
        return self.max_usd if self.usd is None else self.usd

    @property
    def input_bounds(self) -> str:
        most = "more" if self.max_input_tokens is None else f"{self.max_input_tokens:.0f}"
        return f"{self.min_input_tokens:.0f} to {most}"

    def as_dict(self) -> dict[str, Any]:
        digits = {"usd": 6, "max_usd": 6, "minutes": 5}
        return {k: v if v is None else round(v, digits.get(k)) for k, v in vars(self).items()}

    def __str__(self) -> str:
        out = f"at most {self.max_output_tokens:.0f}" if self.output_tokens is None else f"{self.output_tokens:.0f}"
        text = f"{self.calls} calls, about {self.input_tokens:.0f} tokens in ({self.input_bounds}) and {out} out"
        if self.max_usd is not None:
            most = f"up to about {format_usd(self.max_usd)}"
            text += f", {most}" if self.usd is None else f", about {format_usd(self.usd)} ({most})"
        return text if self.minutes is None else f"{text}, about {self.minutes:.1f} minutes"


def format_usd(amount: float) -> str:
    return "$0" if not amount else f"${amount:.2g}" if amount < 1e-4 else f"${amount:.{2 if amount >= 1 else 4}f}"


@dataclass(frozen=True)
class Model:
    """A language model with everything known about it without a call."""

    spec: LMSpec
    lm: LM | None
    usual: Usual | None = None

    def seconds(self, given: float | None) -> float | None:
        return given if given is not None else self.usual.seconds if self.usual is not None else None

    def usd(self, prompt: float, completion: float) -> float | None:
        """Return the US dollars for a number of tokens; None if unknown. A price that is only assumed to be 0 is
        unknown: a server on this machine may forward calls to a paid service."""
        known = self.lm is not None and not getattr(self.lm, "assumed_free", False)
        return self.lm.price(math.ceil(prompt), math.ceil(completion)) if known and self.lm else None


class Models(dict[str, Model]):
    """Everything known of each language model, by its settings as JSON.

    database: of earlier runs. usual: assumed for a model without earlier calls.
    """

    def __init__(self, database: str | Path | None = None, usual: Usual | None = None):
        super().__init__()
        self.database, self.usual = database, usual

    def __missing__(self, key: str) -> Model:
        spec, lm, usual = LMSpec.model_validate_json(key), None, None
        with suppress(WorkbenchError):  # a model that cannot be made has no price; a damaged or older database no calls
            lm = make_lm(spec)
            if self.database is not None:
                with closing(ReadOnlyStore(self.database)) as store:
                    usual = read_usual_calls(store, lm.identity)
        return self.setdefault(key, Model(spec, lm, usual or self.usual))

    def of(self, specs: Iterable[LMSpec]) -> list[Model]:
        return [self[spec.model_dump_json()] for spec in specs]


def row_cost(task: Task, models: Models, seen: Rehearsal, seconds_per_call: float | None = None) -> Cost:
    """Estimate the cost of an example. A node that may call several models counts with the most expensive and slowest.

    The most tokens in: a prompt has as many answers of other nodes as in the rehearsal and, unless all calls were
    seen, those of all earlier turns of its node. seen: the prompts of the workflow, or of one like it.
    """
    whole, every = Cost(), models.of(called_lms(task.workflow, task.spec.lm)) or models.of([task.spec.lm])
    answers = [call_tokens(node, model.spec) for node in task.workflow.walk() for model in every]
    longest = max(answers, default=0) + RESULT * seen.acts
    for name, node in task.workflow.enabled_nodes.items():
        if not (calls := node.max_calls):
            continue
        asked = models.of(called_lms(task.workflow, task.spec.lm, node)) or models.of([task.spec.lm])
        prompts = seen.prompts.get(name) or [Prompt(_text_tokens(task, name))]
        prompt = sum(p.tokens * p.weight for p in prompts) / sum(p.weight for p in prompts)
        most = max(call_tokens(inner, model.spec) for inner in node.walk() for model in asked)
        out = largest([min(most, model.usual.completion_tokens) if model.usual else None for model in asked])
        usd, max_usd = (n if n is None else largest([model.usd(prompt, n) for model in asked]) for n in (out, most))
        seconds = largest([model.seconds(seconds_per_call) for model in asked])
        at_once = min(model.spec.concurrency or getattr(model.lm, "concurrency", math.inf) for model in asked)
        minutes = None if seconds is None else seconds / 60 / max(1, min(at_once, task.spec.concurrency))
        part = len(prompts) < calls * seen.rows
        earlier = max(p.answers for p in prompts) + part * (max(p.turns for p in prompts) - 1) / 2
        bound = calls * (MAX_TOKENS * max(p.tokens for p in prompts) + earlier * longest)
        whole += replace(
            Cost(1, prompt, out, most, usd, max_usd, minutes).times(calls),
            min_input_tokens=MIN_TOKENS * min_calls(node) * min(p.tokens for p in prompts),
            max_input_tokens=bound if name in seen.prompts else None,
        )
    return whole


def candidate_cost(task: Task, row: Cost, seen: Rehearsal, models: Models) -> tuple[Cost, float | None]:
    """Return the cost of an example for a candidate, and the most dollars of a call of a role. None: unknown.

    Each choice of `search:` costs the mean of its options. The most is that of the most expensive workflow, on the
    longest row. Text that a proposer writes is not counted, nor, in dollars, that of an earlier node. row: the cost of
    the workflow as written. models: its own.
    """
    search, usd = task.spec.search, row.usd
    models = Models(models.database, next((model.usual for model in models.values() if model.usual), None))
    options = {address: [usd] for address, domain in search.items() if domain.any_of}
    for address, changed in variants(search, task.workflow):
        options.setdefault(address, []).append(row_cost(replace(task, workflow=changed), models, seen).usd)
    for each in options.values():
        known = [other for other in each if other is not None]
        usd = None if usd is None or row.usd is None or None in each else usd + fmean(known) - row.usd
    dearest = replace(task, workflow=_dearest_workflow(task, models))
    seen = rehearse(dearest, dearest.workflow, longest=True)
    most = row_cost(dearest, models, seen)
    prompts = (prompt.tokens for each in seen.prompts.values() for prompt in each)
    prompt = max(prompts, default=most.input_tokens / max(1, most.calls))
    bound = largest([most.max_input_tokens, row.max_input_tokens])
    roles = models.of(task.spec.roles.values())
    role_usd = largest([model.usd(prompt, max_tokens(model.spec, None)) for model in roles] or [0.0])
    return replace(row, usd=usd, max_usd=most.max_usd, min_input_tokens=0.0, max_input_tokens=bound), role_usd


def _dearest_workflow(task: Task, models: Models) -> Workflow:
    """Return the workflow with the dearest option of each domain of `search:`, and the longest demos."""
    workflow, none = task.workflow, Rehearsal(task.workflow)

    def cost(changed: Workflow) -> tuple[float, float]:
        found = row_cost(replace(task, workflow=changed), models, none)
        return math.inf if found.max_usd is None else found.max_usd, found.input_tokens + found.max_output_tokens

    for address, domain in (task.spec.search or default_space(workflow)).items():
        options = [workflow]
        changes: list[Any] = [{address: value} for value in (*(domain.choice or ()), *(domain.int_ or ())[1:])]
        with suppress(KeyError, SpecError):  # the address of an alternative that is not in this workflow
            if domain.demos:
                demos = labelled_demos(node_at(workflow, address), task.dataset.train)
                changes.append({address: sorted(demos, key=lambda demo: len(str(demo)))[-domain.demos :]})
            changes += [resolve_picks(workflow, {address: name}, task.spec.search) for name in domain.any_of or {}]
        for change in changes:
            with suppress(KeyError, SpecError):
                options.append(workflow.patched(change))
        workflow = max(options, key=cost)
    return workflow


def largest(values: Sequence[float | None]) -> float | None:
    """Return the largest value; None if any is unknown."""
    return None if None in values else max(value for value in values if value is not None)


def min_calls(node: NodeKind) -> int:
    """Return the fewest calls of a node on one example, as far as its settings show."""
    return min(map(min_calls, node.children().values()), default=1) if node.max_calls else 0


def _text_tokens(task: Task, name: str) -> int:
    """Estimate the prompt of a node that no rehearsal has seen, from its settings and the inputs of some rows."""
    rows = task.dataset.val[:20]
    texts = [estimate_tokens(({"content": str(row[n])},)) for row in rows for n in task.inputs if n in row]
    return len(json.dumps(task.workflow.nodes[name], default=str)) // 3 + FORM + sum(texts) // max(1, len(rows))
