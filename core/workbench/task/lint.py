"""Warnings of `validate` about a workflow that can run, but probably not as its author intends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

from workbench.errors import suggest
from workbench.task.dataset import Example
from workbench.task.load import Task
from workbench.task.metric import as_score
from workbench.workflow import Field, Signature, learnable_addresses


def lint_task(task: Task) -> list[str]:
    """Warnings of rules that match no tool, fields that nothing reads, optional nodes that are in fact required, and
    rows whose inputs are empty or whose label no answer can match."""
    return [*_idle_rules(task), *_unread(task), *_not_optional(task), *_empty(task), *_out_of_reach(task)]


def _idle_rules(task: Task) -> Iterator[str]:
    """Rules of the policy whose pattern matches no tool of any node."""
    tools = {name for node in task.workflow.walk() for name in node.tool_names()}
    for i, rule in enumerate(task.spec.policy.rules):
        pattern = rule.allow or rule.deny or rule.ask or ""
        if not any(fnmatchcase(tool, pattern) for tool in tools):
            line = task.source.position(("policy", "rules", i))[0]
            forged = (
                " It may be about a function that is forged later."
                if learnable_addresses(task.workflow, "functions")
                else ""
            )
            yield (
                f"line {line}: the rule {{{rule.verdict}: {pattern}}} is about no tool that a node can call. "
                f"{suggest(pattern, tools)}{forged}"
            )


def _unread(task: Task) -> Iterator[str]:
    """Fields that neither a later node nor the metric reads, and that are no output of the workflow. A field before one
    that is read, such as a model's reasoning, serves that one."""
    nodes, graph, last = task.workflow.enabled_nodes, task.workflow.graph, task.workflow.last_writers()
    scored = getattr(task.metric, "field", None)
    tried = " ".join(domain.model_dump_json() for domain in task.spec.search.values())  # signatures that may be tried

    def read(name: str, field: str) -> bool:
        readers = (known.get(field, ()) for reader, known in graph.nodes.data("sources") if reader != name)
        if any(name in sources for sources in readers) or re.search(rf"\b{re.escape(field)}\b", tried):
            return True
        return name in last[field] and (
            not isinstance(scored, str) or field == scored or not any(graph.successors(name))
        )

    for name, node in nodes.items():
        fields = list(dict.fromkeys(node.outputs))
        served = max((i for i, field in enumerate(fields) if read(name, field)), default=-1)
        for field in fields[served + 1 :]:
            why = _overwritten(name, last[field])
            yield f"line {_line(task, name)}: nothing reads '{field}' of node '{name}'{why}."


def _overwritten(name: str, last: list[str]) -> str:
    return "" if name in last else f": '{last[0]}' writes the field again"


def _not_optional(task: Task) -> Iterator[str]:
    """Fields that a required node needs, and that only optional nodes write."""
    trees, data = task.workflow.nodes, task.dataset
    rows = [part[0] for part in (data.train, data.val, data.test.open()) if part]
    for name, known in task.workflow.graph.nodes.data("sources"):
        for field, sources in known.items():
            sure = any(not trees[s].get("optional") for s in sources) or all(field in row for row in rows)
            if sources and not sure and not trees[name].get("optional"):
                yield (
                    f"line {_line(task, sources[0])}: node '{sources[0]}' is optional, but '{name}' cannot run "
                    "without its "
                    f"'{field}': where it fails, the example fails. Make '{name}' optional, too, or neither."
                )


def _rows(task: Task) -> list[Example]:
    data = task.dataset
    return [*data.train, *data.val, *data.test.open()]


def _empty(task: Task) -> Iterator[str]:
    """Inputs and labels that are there and hold nothing."""
    rows = _rows(task)
    for what, name in (*(("input", name) for name in task.inputs), *((("label", task.target),) if task.target else ())):
        found = [row.id for row in rows if name in row and _is_empty(row[name])]
        if found:
            yield f"the {what} '{name}' is empty in {len(found)} of {len(rows)} rows, e.g. {found[0]}"


def _is_empty(value: Any) -> bool:
    return value is None or (
        isinstance(value, str | list | dict) and not (value.strip() if isinstance(value, str) else value)
    )


def _out_of_reach(task: Task) -> Iterator[str]:
    """Labels that no value of a Literal matches, by the metric itself."""
    name, target = getattr(task.metric, "field", None), task.target
    field = _closed_field(task, name) if isinstance(name, str) else None
    if field is None or target is None or getattr(task.metric, "needs_lm", False):
        return
    scores = {}

    def best(row: Example) -> float:
        gold = repr(row[target])
        if gold not in scores:
            with suppress(Exception):  # a metric that wants more than this field says so when it runs
                scores[gold] = max(as_score(task.metric(row, {field.name: v}, None)).value for v in field.allowed)
        return scores.get(gold, 1.0)

    rows = [row for row in _rows(task) if target in row and not _is_empty(row[target])]
    if lost := [row for row in rows if best(row) == 0.0]:
        shown = ", ".join(dict.fromkeys(repr(row[target]) for row in lost[:50]))
        yield (
            f"no answer can be right in {len(lost)} of {len(rows)} rows: their '{target}' is none of the values that "
            f"'{field.name}' may have, e.g. {shown[:120]}"
        )


def _closed_field(task: Task, name: str) -> Field | None:
    """The output field that the metric reads, if its values are listed."""
    for writer in reversed(task.workflow.last_writers().get(name, [])):
        signature = getattr(task.workflow.enabled_nodes.get(writer), "signature", None)
        for field in signature.outputs if isinstance(signature, Signature) else ():
            if field.name == name and field.values:
                return field
    return None


def _line(task: Task, name: str) -> int:
    return task.source.position(("nodes", name))[0]
