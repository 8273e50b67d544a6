"""Writing a workflow back as YAML: the result of a run, as short and easy to edit as the user's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from workbench.base.files import write_whole
from workbench.base.text import one_line, visible
from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench.spec import Source, Spec, load_yaml, reads_as_text
from workbench.task.load import Task
from workbench.task.moved import move_tree
from workbench.task.search_space import check_space
from workbench.workflow import Tree, Workflow, node_class, task_lm

#: Sections of a file that count if it is called and not improved.
_CALLED_KEYS = (
    "name",
    "description",
    "lm",
    "roles",
    "policy",
    "nodes",
    "targets",
    "configurations",
    "concurrency",
    "timeout",
)
#: Sections of a result file, in order.
_SECTIONS = (
    *("name", "description", "lm", "roles", "data", "metric", "objectives", "pick", "targets", "policy", "nodes"),
    *("search", "optimize", "rounds", "attacks", "constraints", "proof", "cache", "budget", "concurrency", "timeout"),
    "seed",
)


def called_tree(spec: Spec, raw: Any, workflow: Workflow) -> Tree:
    """Return the content of a file, in the workflow's folder, that is only called: without data, metric, search and
    budget.

    spec, raw: the file that the workflow comes from: with the policies of files that it refers to, and as written.
    """
    whole = file_tree(spec, {**raw, "data": {}, "metric": None}, workflow, workflow.base, ())
    whole |= {"configurations": raw["configurations"]} if raw.get("configurations") else {}
    return {key: whole[key] for key in _CALLED_KEYS if key in whole}


def written_node(tree: Any) -> Any:
    """Return a node in the form that people write: {predict: "...", ...} instead of {"kind": "predict", ...}."""
    if isinstance(tree, list):
        return [written_node(t) for t in tree]
    if not isinstance(tree, Mapping):
        return tree
    if not _is_node(tree):
        return {k: written_node(v) for k, v in tree.items()}
    rest = {k: written_node(v) for k, v in tree.items() if k != "kind"}
    primary = node_class(tree["kind"]).primary
    return {tree["kind"]: rest.pop(primary, None), **rest}


def _is_node(tree: Mapping[str, Any]) -> bool:
    """Return True if a mapping is a node. Rows of data may have a field `kind`, too."""
    kind = tree.get("kind")
    return isinstance(kind, str) and kind in plugins().names("node_kinds") and node_class(kind).primary in ("", *tree)


def workflow_tree(task: Task, workflow: Workflow, folder: Path) -> Tree:
    """Return the content of a complete file for a workflow. folder: the file's future folder, for relative paths."""
    return file_tree(task.spec, written_value(task.source), workflow, folder, _search_of(task, workflow), task.workflow)


def written_value(source: Source) -> dict[str, Any]:
    """Return the content of a file with its flags. `cache` is taken from the file, since a flag for one run is no
    setting of its result."""
    written = load_yaml(source.text, source.file).value
    rest = {key: value for key, value in source.value.items() if key != "cache"}
    return {**rest, "cache": written["cache"]} if "cache" in written else rest


def file_tree(
    spec: Spec,
    raw: Mapping[str, Any],
    workflow: Workflow,
    folder: Path,
    search: Sequence[str],
    baseline: Workflow | None = None,
) -> Tree:
    """Return the content of a complete file from its parts, without running any code.

    Args:
        spec: the file that the workflow comes from, with the policies of files that it refers to.
        raw: its content.
        workflow: the workflow to write.
        folder: the future folder of the file.
        search: the addresses under `search:` that the workflow still has.
        baseline: the original workflow. `optimize:` is kept only if the workflow has the same kinds of nodes: an
            optimizer may find nothing to change in others, and then the file would be refused.
    """
    given: Tree = {**raw, "nodes": {n: written_node(t) for n, t in workflow.nodes.items()}}
    if workflow.tree.get("lm"):
        given["lm"] = task_lm(spec.lm, workflow).model_dump(exclude_unset=True, mode="json")
    if spec.policy.inherited:  # the functions are in this file now, so their rules must be, too
        given["policy"] = spec.policy.model_dump(exclude_unset=True, mode="json")
    if isinstance(raw["data"], str):
        given["data"] = {"file": raw["data"]}
    kept = {"search": {address: raw["search"][address] for address in search}} if search else {}
    left_out = {"search"} if baseline is not None and same_kinds(baseline, workflow) else {"search", "optimize"}
    sections = {key: given[key] for key in _SECTIONS if key in given and key not in left_out}
    moved = move_tree(sections, workflow.base, folder) | kept
    return {key: moved[key] for key in _SECTIONS if moved.get(key) is not None}


def same_kinds(baseline: Workflow, workflow: Workflow) -> bool:
    """Return True if the nodes are of the same kinds, at any depth."""
    return _kinds(baseline.nodes) == _kinds(workflow.nodes)


def _kinds(tree: Any) -> list[str]:
    if isinstance(tree, list):
        return [kind for item in tree for kind in _kinds(item)]
    if not isinstance(tree, Mapping):
        return []
    own = [str(tree["kind"])] if _is_node(tree) else []
    return own + [kind for key in sorted(map(str, tree)) for kind in _kinds(tree.get(key))]


def _search_of(task: Task, workflow: Workflow) -> list[str]:
    """Return the addresses under `search:` that the workflow still has. Edits of the structure may have replaced or
    moved a node, and the file must still be valid."""
    left = dict(task.spec.search)
    while left:
        try:
            check_space(left, workflow, given=tuple(task.dataset.val[0]) if task.dataset.val else ())
            break
        except SpecError as error:
            if left.pop(str(error.path[1]), None) is None:
                raise
    return list(left)


def kept_search(spec: Spec, baseline: Workflow, workflow: Workflow) -> list[str]:
    """Return the addresses under `search:` that a workflow still has, from the trees alone: the nodes on the way are of
    the same kinds as in the baseline."""

    def kinds(of: Workflow, parts: Sequence[str]) -> list[Any]:
        heads = [of.get(".".join(parts[:n]), None) for n in range(2, len(parts) + 1)]
        return [head.get("kind") for head in heads if isinstance(head, Mapping)]

    def kept(address: str) -> bool:
        parts = address.split(".")
        if parts[0] != "nodes":
            return True
        return workflow.get(".".join(parts[:2]), None) is not None and kinds(baseline, parts) == kinds(workflow, parts)

    return [address for address in spec.search if kept(address)]


def write_workflow(task: Task, workflow: Workflow, out: Path) -> None:
    """Write a workflow as a file, completely or not at all."""
    write_whole(out.resolve(), workflow_text(task, workflow, out))


def workflow_text(
    task: Task,
    workflow: Workflow,
    out: Path,
    header: Sequence[str] = (),
    configurations: Sequence[tuple[Workflow, Mapping[str, float]]] = (),
) -> str:
    """Return a workflow as the text of a file.

    Args:
        out: the path of the file, for relative paths.
        header: lines of a comment at the top.
        configurations: the workflow itself and others, with their figures, for the section `configurations`.
    """
    folder = out.resolve().parent
    notes = ["The comments of the file that it was made from are not kept."] if _has_comments(task.source.text) else []
    if "optimize" in task.source.value and not same_kinds(task.workflow, workflow):
        notes.append("Nor is `optimize:`, since the nodes are of other kinds now: name optimizers for them.")
    text = "".join(f"# {one_line(line)}".rstrip() + "\n" for line in (*header, *notes))
    tree = workflow_tree(task, workflow, folder)
    if configurations:
        tree["configurations"] = [_configuration(task, tree, *one, folder) for one in configurations]
    return text + dump_yaml(tree)


#: The figures of a configuration, each with its number of decimals.
_FIGURES = {"score": 4, "usd": 8, "tokens": 1, "latency": 4, "p95_latency": 4}


def _configuration(
    task: Task, written: Tree, workflow: Workflow, figures: Mapping[str, float], folder: Path
) -> dict[str, Any]:
    """Return a configuration for a file: its figures, and the sections that differ from the file's own (written)."""
    own = workflow_tree(task, workflow, folder)
    sections = {key: own[key] for key in ("lm", "nodes") if key in own and own[key] != written.get(key)}
    return {**{name: round(figures[name], digits) for name, digits in _FIGURES.items()}, **sections}


def _has_comments(text: str) -> bool:
    """Return True if a YAML text has comments other than the one that names the schema for editors."""
    lines = (line.strip() for line in text.splitlines())
    return any((line.startswith("#") and "yaml-language-server" not in line) or " #" in line for line in lines)


def dump_yaml(tree: Any) -> str:
    """Return YAML with keys in our order, long texts in blocks, and no aliases. Characters that a terminal or an editor
    would hide, such as bidi controls, are escaped."""
    text = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return visible(text)  # its escapes are inside double quotes (see `_text`)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text and not any(line.endswith(" ") for line in text.split("\n")) else None
    if visible(text) != text:
        style = '"'
    elif not reads_as_text(text):  # the library quotes texts that YAML 1.1 reads differently; we read 1.2
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
