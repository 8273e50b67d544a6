"""Lint of a workflow that can run, but not as its author intends: warnings, and with `--deep` defects.

A warning may be intended; a defect cannot be. Neither takes a call or runs user code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from workbench.errors import Defect, DefectKind, suggest
from workbench.spec import SERVER
from workbench.task.dataset import Example
from workbench.task.handles import list_handles
from workbench.task.load import Task
from workbench.task.reach import is_empty, where_text
from workbench.workflow import NodeKind, Signature, Surroundings, learnable_addresses, written_place

Place = tuple[str | int, ...]


def lint_task(task: Task, *, unread: bool = True) -> list[str]:
    """Warn of rules that match no tool, unread fields, optional nodes that are in fact required, rows with empty inputs
    or with a label that no answer can match, and configurations that are never used.

    unread: warn of unread fields, which are defects, too.
    """
    fields = (f"line {_line(task, name)}: {text}" for name, text in _unread(task)) if unread else ()
    found = [*_idle_rules(task), *fields, *_not_optional(task), *_empty(task)]
    return [*found, *_idle_configurations(task)]


def find_defects(task: Task, filled: Collection[str] = ()) -> list[Defect]:
    """Find defects, i.e. settings that cannot work: those of each node (`NodeKind.defects`), policy conditions that are
    never met, rules that earlier ones always decide, and unread fields.

    A limit or list of tools that `search:` varies is only a starting value, and not a defect.

    Args:
        task: of a file that was loaded without errors.
        filled: kinds of settings that an optimizer fills in if they are empty, e.g. "functions".

    Returns:
        The defects in the order of the file, their paths from its root.
    """
    found = [*_of_nodes(task, filled), *_of_policy(task)]
    hint = "Remove it, disable its node, or let a later node read it."
    found += [
        Defect(DefectKind.UNREAD_OUTPUT, text, hint, ("nodes", name)) for name, text in _unread(task, chosen=True)
    ]
    return sorted(found, key=lambda defect: task.source.position(defect.path))


def _of_nodes(task: Task, filled: Collection[str]) -> Iterator[Defect]:
    nodes = task.workflow.enabled_nodes
    rows = [part[0] for part in (task.dataset.train, task.dataset.val) if part]
    fields = {field for node in nodes.values() for field in (*node.inputs, *node.outputs)}
    names = {*nodes, *fields, *(field for row in rows for field in row)}
    for name, node in nodes.items():
        for path, inner in _inside(node, ("nodes", name)):
            values = _closed_inputs(task, name) if inner is node else {}
            for defect in inner.defects(Surroundings(task.spec.lm, names, values)):
                if not _is_meant(task, defect, path, inner, filled):
                    yield replace(defect, path=tuple(written_place(task.source.value, (*path, *defect.path))))


def _inside(node: NodeKind, path: Place) -> Iterator[tuple[Place, NodeKind]]:
    """Yield a node and those inside it, each with the path of its settings."""
    yield path, node
    for address, child in node.children().items():
        parts = (int(part) if part.isdigit() else part for part in address.split("."))
        yield from _inside(child, (*path, *parts))


def _is_meant(task: Task, defect: Defect, path: Place, node: NodeKind, filled: Collection[str]) -> bool:
    """Return True if a finding is no defect: a starting value of a search, or a value that may fail."""
    if defect.kind == DefectKind.UNHANDLED_VALUE:  # an optional node may fail: then the earlier value stays
        return bool(task.workflow.nodes[str(path[1])].get("optional"))
    if defect.kind not in (DefectKind.NO_TOOLS, DefectKind.FEW_STEPS, DefectKind.FEW_TOKENS):
        return False
    of_tools = [key for key in ("tools", "functions") if key in node.learnable]
    if defect.kind == DefectKind.NO_TOOLS and any(node.learnable[key] in filled for key in of_tools):
        return True
    settings = {".".join(map(str, defect.path)), *of_tools, "register"}
    return any(".".join(map(str, (*path, setting))) in task.spec.search for setting in settings)


def _closed_inputs(task: Task, name: str) -> dict[str, tuple[Any, ...]]:
    """Return, by field, the possible values of fields that a node reads only from nodes whose signatures list them."""
    nodes, trees = task.workflow.enabled_nodes, task.workflow.nodes
    found: dict[str, tuple[Any, ...]] = {}
    for field, sources in task.workflow.graph.nodes[name]["sources"].items():
        sure = sources and not trees[sources[-1]].get("optional")
        listed = [_listed(nodes[source], field) for source in sources]
        tried = {f"nodes.{source}{key}" for source in sources for key in ("", ".signature")} & task.spec.search.keys()
        if sure and all(listed) and not tried:
            found[field] = tuple(dict.fromkeys(value for values in listed for value in values))
    return found


def _listed(node: NodeKind, field: str) -> tuple[Any, ...]:
    signature = getattr(node, "signature", None)
    outputs = signature.outputs if isinstance(signature, Signature) else ()
    return next((f.allowed for f in outputs if f.name == field), ())


def _of_policy(task: Task) -> Iterator[Defect]:
    """Yield policy conditions that are never met, and rules that an earlier one always decides."""
    rules = task.spec.policy.rules
    for i, rule in enumerate(rules):
        path, pattern = ("policy", "rules", i), rule.pattern
        for argument, why in rule.impossible():
            yield Defect(
                DefectKind.IMPOSSIBLE_PATTERN,
                f"the condition on '{argument}' of the rule {{{rule.verdict}: {pattern}}} is never met: {why}",
                "Correct it: no text can meet it.",
                (*path, "when", argument),
            )
        if rule.formula is not None:
            continue
        before = (r.pattern for r in rules[:i] if not (r.when or r.before or r.after or r.formula))
        if taken := next((other for other in before if other in ("*", pattern)), None):
            yield Defect(
                DefectKind.UNREACHABLE,
                f"the rule {{{rule.verdict}: {pattern}}} never decides: a rule for '{taken}' comes before it",
                "The first matching rule decides: move it before that one, or remove it.",
                path,
            )


def _idle_rules(task: Task) -> Iterator[str]:
    """Yield a warning for policy rules whose pattern matches no tool of any node."""
    tools = {name for node in task.workflow.walk() for name in node.tool_names()}
    if any(name.startswith(SERVER) or name == "*" for name in tools):
        return  # it has further tools that are known only at run time
    for i, rule in enumerate(task.spec.policy.rules):
        for pattern in rule.named():
            if any(fnmatchcase(tool, pattern) for tool in tools):
                continue
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


def _unread(task: Task, *, chosen: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (node, text) for each field that is no output of the workflow and that no later node and no metric reads. A
    field before one that is read, such as a model's reasoning, serves that one. A node that another one `needs` may
    exist for its effect, e.g. to store a note.

    chosen: skip outputs that the kind adds to those in the file, unless no output of the node is read.
    """
    nodes, graph, last = task.workflow.enabled_nodes, task.workflow.graph, task.workflow.last_writers()
    scored = getattr(task.metric, "field", None)
    tried = " ".join(domain.model_dump_json() for domain in task.spec.search.values())  # signatures to try

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
        if served < 0 and task.workflow.is_needed(name):
            continue
        named = _named_outputs(node) if chosen and served >= 0 else {*fields}
        for field in fields[served + 1 :]:
            if field not in named:
                continue
            why = "" if name in last[field] else f": '{last[field][0]}' writes the field again"
            yield name, f"nothing reads '{field}' of node '{name}'{why}."


def _named_outputs(node: NodeKind) -> set[str]:
    """Return the outputs that the file itself names in a signature."""
    signature = getattr(node, "signature", None)
    return {field.name for field in signature.outputs} if isinstance(signature, Signature) else set()


def _not_optional(task: Task) -> Iterator[str]:
    """Yield a warning for fields that a required node needs and that only optional nodes write."""
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
    """Yield a warning for inputs and labels that exist but are empty."""
    rows = _rows(task)
    for what, name in (*(("input", name) for name in task.inputs), *((("label", task.target),) if task.target else ())):
        found = [row for row in rows if name in row and is_empty(row[name])]
        if found:
            many = f"the {what} '{name}' is empty in {len(found)} of {len(rows)} rows: {list_handles(found)}"
            yield f"{many}. To leave them out: {where_text(name)}"


def _idle_configurations(task: Task) -> Iterator[str]:
    """Warn of configurations that `serve` never uses: without a target of time it has nothing to choose by."""
    targets, found = task.spec.targets, task.spec.configurations
    if len(found) > 1 and (targets is None or (targets.latency is None and targets.p95_latency is None)):
        yield (
            f"{len(found) - 1} of the configurations are never taken: the file has no target of time. Add e.g. "
            "targets: {p95_latency: 3}, or remove configurations"
        )


def _line(task: Task, name: str) -> int:
    return task.source.position(("nodes", name))[0]
