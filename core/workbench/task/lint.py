"""Warnings of `validate` about a workflow that can run, but probably not as its author intends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from workbench.errors import suggest
from workbench.task.load import Task
from workbench.workflow import learnable_addresses


def lint_task(task: Task) -> list[str]:
    """Warnings of rules that match no tool, fields that nothing reads, and optional nodes that are in fact required."""
    return [*_idle_rules(task), *_unread(task), *_not_optional(task)]


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


def _line(task: Task, name: str) -> int:
    return task.source.position(("nodes", name))[0]
