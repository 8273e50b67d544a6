"""Search spaces over the addresses of parameters, and demos drawn from training rows."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, cast

from workbench.errors import SpecError, collect_errors, suggest
from workbench.spec import DomainSpec
from workbench.task.alternatives import (
    AS_WRITTEN,
    check_slots,
    filled_around,
    is_applicable,
    list_options,
    parent_slots,
    resolve_picks,
    variants,
)
from workbench.task.dataset import Example
from workbench.task.lm_checks import check_lm, check_node_lms
from workbench.task.load import Task, check_label_unread
from workbench.task.reach import is_empty
from workbench.workflow import NodeKind, Workflow, learnable_addresses, node_at, setting_at, task_lm

#: A domain of demos is searched as a number of demos and one of this many seeded draws from train.
DEMO_SETS = 16


class TrialLike(Protocol):
    """The part of an Optuna trial that a space needs."""

    def suggest_float(
        self, name: str, low: float, high: float, *, log: bool = False, step: float | None = None
    ) -> float: ...
    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> int: ...
    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...


def suggest_value(trial: TrialLike, name: str, domain: DomainSpec) -> Any:
    """Suggest a value for a domain of float, int or choice. name: the parameter's name in the trial."""
    if domain.float_:
        low, high = domain.float_
        return trial.suggest_float(name, low, _last(low, high, domain.step), log=domain.log, step=domain.step)
    if domain.int_:
        low, high = domain.int_
        high = int(_last(low, high, domain.step))
        return trial.suggest_int(name, low, high, log=domain.log, step=int(domain.step or 1))
    if domain.choice:
        if _plain(domain.choice):
            return trial.suggest_categorical(name, domain.choice)
        return domain.choice[trial.suggest_categorical(name, list(range(len(domain.choice))))]
    raise AssertionError("a domain of demos sets more than one address")


@dataclass(frozen=True)
class Space:
    """The parameters that may be changed, and their domains; define-by-run if a domain has `when`.

    Args:
        domains: by address.
        train: the rows that demos are drawn from.
        targets: by output field of a node, the row's field with its label, if the names differ.
        seed: for the draws.
    """

    domains: Mapping[str, DomainSpec]
    train: Sequence[Example] = ()
    targets: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    def suggest(self, trial: TrialLike, workflow: Workflow) -> dict[str, Any]:
        """Suggest a value for each address whose condition holds, as a patch's `set`."""
        values: dict[str, Any] = {}
        picks: dict[str, str] = {}
        for address in self.order():
            domain = self.domains[address]
            if any(self._found(a, values, picks, workflow) != wanted for a, wanted in domain.when.items()):
                continue
            if domain.is_slot:
                picks[address] = trial.suggest_categorical(address, list_options(domain))
                continue
            filled = workflow.patched(resolve_picks(workflow, picks, self.domains)) if picks else workflow
            if parent_slots(address, picks) and not is_applicable(filled, address, domain):
                continue  # the chosen option has no such setting
            if domain.demos is not None:
                values |= self._demos(trial, address, domain, filled)
            else:
                values[address] = suggest_value(trial, address, domain)
        return resolve_picks(workflow, picks, self.domains) | values

    def _found(self, address: str, values: Mapping[str, Any], picks: Mapping[str, str], workflow: Workflow) -> Any:
        """Return the value to compare with a condition: the name of a slot's option, or the value at an address."""
        if address in self.domains and self.domains[address].is_slot:
            return picks.get(address)
        return values.get(address, workflow.get(address, None))

    def starts(self, workflow: Workflow) -> list[dict[str, Any]]:
        """Return the parameters of trials before any sampling: the workflow as it is, and the same with the most demos.

        The first is free, since the workflow is scored anyway. Demos usually bring the largest gain, and the nearest
        ones are the safest choice.
        """
        here: dict[str, Any] = {}
        rich: dict[str, Any] = {}
        for address, domain in self.domains.items():
            if domain.demos is not None:
                here[f"{address}#count"] = 0
                rich |= {f"{address}#count": self._most(domain), f"{address}#source": "nearest"}
            elif domain.is_slot:
                here[address] = AS_WRITTEN
            elif (value := setting_at(workflow, address)) is not None and domain.contains(value):
                plain = domain.choice is None or _plain(domain.choice)
                here[address] = value if plain else cast(list[Any], domain.choice).index(value)
        return [here, {**here, **rich}] if rich else [here]

    def order(self) -> list[str]:
        """Return the addresses, slots first, each after its dependencies. Raises SpecError for circular conditions."""
        slots = [a for a, domain in self.domains.items() if domain.is_slot]
        needed = {a: [*domain.when, *parent_slots(a, slots)] for a, domain in self.domains.items()}
        done: list[str] = []
        rest = [*slots, *(a for a in self.domains if a not in slots)]
        while rest:
            ready = [a for a in rest if all(w in done or w not in self.domains for w in needed[a])]
            if not ready:
                raise SpecError(f"the conditions of {', '.join(rest)} depend on each other", path=("search", rest[0]))
            done += ready
            rest = [a for a in rest if a not in ready]
        return done

    def _most(self, domain: DomainSpec) -> int:
        return min(domain.demos or 0, len(self.train))

    def _demos(self, trial: TrialLike, address: str, domain: DomainSpec, workflow: Workflow) -> dict[str, Any]:
        """Select demos: a seeded sample, or the training rows nearest to each input."""
        node = node_at(workflow, address)
        retrieve = address.removesuffix("demos") + "retrieve"
        nearest = domain.nearest and "retrieve" in node.learnable and retrieve not in self.domains
        count = trial.suggest_int(f"{address}#count", 0, self._most(domain))
        source = "drawn"
        if nearest and count:
            source = trial.suggest_categorical(f"{address}#source", ["drawn", "nearest"])
        if source == "nearest":
            rows = labelled_demos(node, self.train, self.targets)
            return {address: rows, retrieve: count} if rows else {}
        demos: list[dict[str, Any]] = []
        if count:
            draw = trial.suggest_categorical(f"{address}#draw", list(range(DEMO_SETS)))
            rng = random.Random(f"demos:{self.seed}:{address}:{draw}")
            demos = draw_demos(node, self.train, count, rng, self.targets)
        if not demos and not workflow.get(address, None):
            return {}  # there were none before
        reset = {retrieve: 0} if nearest and workflow.get(retrieve, 0) else {}
        return {address: demos, **reset}


def _plain(choices: Sequence[Any]) -> bool:
    """Return True if Optuna can store the choices themselves. Otherwise it gets their indexes."""
    return all(isinstance(c, str | int | float | bool | None) for c in choices)


def _last(low: float, high: float, step: float | None) -> float:
    """Return the last of low, low + step, ... that is not above high, in decimal arithmetic."""
    if step is None:
        return high
    first, last, width = (Decimal(str(value)) for value in (low, high, step))
    return float(first + (last - first) // width * width)


#: Most demos of a node if the file names no space to search.
MAX_DEMOS = 8


def default_space(workflow: Workflow) -> dict[str, DomainSpec]:
    """Return the space to search if the file names none: the demos of every node that takes demos."""
    return {
        address: DomainSpec.model_validate({"demos": MAX_DEMOS}) for address in learnable_addresses(workflow, "demos")
    }


def check_space(domains: Mapping[str, DomainSpec], workflow: Workflow, given: Collection[str] = ()) -> None:
    """Check that every address is a setting and accepts the values of its domain. Raises SpecError.

    given: the fields of an example, which alternative nodes may read.
    """
    check_slots(domains, workflow, given)
    collect_errors(partial(_check_domain, domains, address, workflow) for address in domains)
    Space(domains).order()


def fitting_domains(domains: Mapping[str, DomainSpec], workflow: Workflow) -> dict[str, DomainSpec]:
    """Select the domains whose settings a workflow still has. Edits may have replaced or removed nodes."""
    found = dict(domains)
    for address in domains:
        top, _, rest = address.partition(".")
        try:
            if top == "nodes" and rest.partition(".")[0] not in workflow.nodes:
                raise SpecError(f"no node has the address '{address}'")
            _check_domain(domains, address, workflow)
        except SpecError:
            del found[address]
    return {
        a: domain for a, domain in found.items() if all(name in found or name not in domains for name in domain.when)
    }


def _check_domain(domains: Mapping[str, DomainSpec], address: str, workflow: Workflow) -> None:
    domain = domains[address]
    for name, wanted in domain.when.items():
        if name in domains and domains[name].is_slot:
            if wanted not in list_options(domains[name]):
                raise SpecError(
                    f"'{name}' is never '{wanted}'",
                    hint=suggest(str(wanted), list_options(domains[name])),
                    path=("search", address, "when", name),
                )
        else:
            _check_values(domains, address, name, [wanted], workflow)
    if not domain.is_slot:
        probe = domain.float_ or domain.int_ or domain.choice or [[]]
        _check_values(domains, address, address, probe, workflow)


def check_search(task: Task) -> None:
    """Refuse values under `search:` that do not fit the workflow or that nodes may not have: models without a provider,
    roles that the file does not name, and labels as inputs. Raises SpecError."""
    spec, workflow = task.spec, task.workflow

    def check(address: str, changed: Workflow) -> None:
        try:
            check_node_lms(changed, spec.roles)
            check_label_unread(changed, task.metric, spec.data)
            if address.partition(".")[0] == "lm":
                check_lm(task_lm(spec.lm, changed))
        except SpecError as error:
            raise SpecError(error.message, hint=error.hint, path=("search", address)) from error

    with task.source.locating():
        data = task.dataset
        check_space(spec.search, workflow, given=tuple((data.val or data.test.open() or data.train)[0]))
        collect_errors(partial(check, address, changed) for address, changed in variants(spec.search, workflow))


def _check_values(
    domains: Mapping[str, DomainSpec], address: str, name: str, values: Sequence[Any], workflow: Workflow
) -> None:
    """Check that the setting `name` accepts the values in at least one option of the enclosing slot."""
    wrong: SpecError | None = None
    for start in filled_around(name, domains, workflow):
        try:
            parts = name.split(".")
            if parts[0] == "nodes" and (len(parts) < 3 or parts[1] not in workflow.nodes):
                raise KeyError(name)
            if parts[0] not in ("nodes", "lm"):
                raise KeyError(name)
            for value in values:
                start.patched({name: value})
            return
        except KeyError:
            known = sorted(set(learnable_addresses(workflow)))
            wrong = wrong or SpecError(f"no setting has the address '{name}'", hint=suggest(name, known))
        except SpecError as error:
            said = error.message if error.message.startswith(f"{name}: ") else f"{name}: {error.message}"
            wrong = wrong or SpecError(said, hint=error.hint)
    if wrong is not None:
        wrong.path = ("search", address)
        raise wrong


def labelled_demo(node: NodeKind, example: Example, targets: Mapping[str, str] = {}) -> dict[str, Any] | None:
    """Make a demo of a node from a training row; None if an input or output of the node is missing.

    targets: by output, the row's field with its label, if the names differ.
    """
    demo = {}
    for name in (*node.inputs, *node.outputs):
        source = targets.get(name, name) if name in node.outputs else name
        if source not in example:
            return None
        value = example[source]
        demo[name] = value[0] if name in targets and isinstance(value, list) and value else value
    return demo


def labelled_demos(node: NodeKind, train: Sequence[Example], targets: Mapping[str, str] = {}) -> list[dict[str, Any]]:
    """Make the demos of a node from training rows, without those that show a blank input."""
    return without_blanks(node.inputs, [demo for e in train if (demo := labelled_demo(node, e, targets)) is not None])


def without_blanks(inputs: Collection[str], demos: Sequence[Any]) -> list[Any]:
    """Leave out demos in which an input is blank that most others fill."""
    filled = [name for name in inputs if 2 * sum(is_empty(demo.get(name)) for demo in demos) < len(demos)]
    return [demo for demo in demos if not any(is_empty(demo.get(name)) for name in filled)]


def draw_demos(
    node: NodeKind, train: Sequence[Example], count: int, rng: random.Random, targets: Mapping[str, str] = {}
) -> list[dict[str, Any]]:
    """Draw `count` labelled demos, balanced over the values of the last output unless that is free text."""
    if not count:
        return []
    rows = labelled_demos(node, train, targets)
    rng.shuffle(rows)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row[node.outputs[-1]]), []).append(row)
    if len(groups) > len(rows) / 2:
        return rows[:count]  # free text: nothing to balance
    drawn: list[dict[str, Any]] = []
    lanes = list(groups.values())
    rng.shuffle(lanes)
    while len(drawn) < count and any(lanes):
        for lane in lanes:
            if lane and len(drawn) < count:
                drawn.append(lane.pop())
    rng.shuffle(drawn)
    return drawn
