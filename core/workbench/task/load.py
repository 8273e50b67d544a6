"""Makes the task of a workflow file: its workflow, data and metric, each checked against the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from workbench.base.files import file_digest
from workbench.base.hashing import digest
from workbench.errors import SpecError, collect_errors, suggest
from workbench.lm import locate_lms
from workbench.spec import AttackSpec, Code, DataSpec, Inherited, Source, Spec, code_files, is_collecting, read_attacks
from workbench.task.clusters import cluster_rows
from workbench.task.copies import Copies, RowRule, find_rule
from workbench.task.data import check_holes, load_data
from workbench.task.dataset import Dataset, Example, SealedRows
from workbench.task.file_inputs import resolve_files
from workbench.task.handles import list_handles, name_rows
from workbench.task.lm_checks import check_lms, check_node_lms, missing_default
from workbench.task.metric import Metric, graded_field, load_metrics, metric_files
from workbench.task.nothing import read_empty_labels
from workbench.task.reach import out_of_reach, wrong_demos
from workbench.task.rows import data_files
from workbench.task.tokens import normalised_inputs
from workbench.task.workflow_file import load_workflow
from workbench.workflow import Workflow, forget_nodes

#: A split of fewer rows may have a single label by chance.
MIN_ROWS = 10


@dataclass(frozen=True)
class Task:
    """The task to optimize: spec, starting workflow, data, metric, and the fields that the workflow reads."""

    spec: Spec
    source: Source
    workflow: Workflow
    dataset: Dataset
    metric: Metric
    inputs: tuple[str, ...]
    further_metrics: tuple[tuple[str, Metric], ...] = ()  # by name: scores that `eval` shows in addition
    clusters: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # by id of a test row
    attacks: Mapping[str, AttackSpec] = dataclasses.field(default_factory=dict[str, AttackSpec])
    rule: RowRule | None = None  # the rule for equal rows; None: derived from the rows in question

    @property
    def data_hash(self) -> str:
        """Return a hash that changes if any row or its split changes. A run cannot be resumed on other data."""
        return self.dataset.data_hash

    @property
    def data_files(self) -> frozenset[Path]:
        """Return the files and folders with right answers, which no agent may see."""
        base, labels = self.workflow.base, self.spec.proof.labels
        return data_files(self.spec.data, base) | ({(base / labels).resolve()} if labels else frozenset())

    @property
    def target(self) -> str | None:
        """Return the field of a row that the metric compares with, if it names one."""
        target = getattr(self.metric, "target", None)
        return target if isinstance(target, str) else None

    @property
    def label(self) -> str | None:
        """Return the field with the right answer, if known: `target`, or a field named like the one the metric
        reads."""
        field = graded_field(self.spec.metrics[0])
        known = field is not None and field not in self.inputs and any(field in row for row in self.dataset.val[:1])
        return self.target or (field if known else None)

    def cluster_of(self, row: Example) -> str:
        """Return the key of a row's cluster (`workbench.task.clusters`). A cluster counts once in the proof."""
        known = self.clusters.get(row.id) or self._val_clusters.get(row.id) or self._train_clusters.get(row.id)
        return known or digest(normalised_inputs(row, self.inputs) or row.id)

    @cached_property
    def _val_clusters(self) -> Mapping[str, str]:
        return cluster_rows(self.dataset.val, self.spec.data.cluster, self.inputs, self.label, self.rule).of

    @cached_property
    def _train_clusters(self) -> Mapping[str, str]:
        return cluster_rows(self.dataset.train, self.spec.data.cluster, self.inputs, self.label, self.rule).of

    @property
    def external_hash(self) -> str:
        """Return a hash of everything from other files that the workflow's hash does not cover: nodes of sub-workflows,
        policies, the Python files named in the file (`python:...`; not their imports), and the files of metrics."""
        inherited = [one.model_dump(mode="json") for one in self.spec.policy.inherited]
        named = code_files(self.source.value, self.workflow.base)
        code = [file_digest(path) for path in named]
        further = [f for n in self.workflow.walk() if (f := n.external_inputs()) is not None]
        read = [file_digest(path) for path in metric_files(self.spec.metrics, self.workflow.base)]
        attacks = [one.key for one in self.attacks.values()] if isinstance(self.spec.attacks, str) else []
        return digest([inherited, code, *further, *read, *attacks])


def load_task(spec: Spec, source: Source, base: Path, code: Code = "loaded") -> Task:
    """Build everything that a run needs. Raises SpecError with the location in the file.

    code: the state of its user code.
    """
    spec, inherited = locate_lms(spec, base), list[Inherited]()
    with source.locating():
        _, workflow, metrics, dataset = collect_errors(section_loaders(spec, base, inherited, code).values())
        metric = metrics[0][1]
        inputs = tuple(workflow.input_fields)
        collect_errors(
            (
                lambda: _check_fields(workflow, dataset, inputs),
                *(partial(_check_metric_fields, one, workflow, dataset) for _, one in metrics),
                lambda: check_label_unread(workflow, metric, spec.data),
                lambda: _check_cluster(spec.data.cluster, dataset),
            )
        )
        dataset = name_rows(dataset, inputs, spec.data.id)
        dataset = resolve_files(workflow, dataset, spec.data)
        dataset = read_empty_labels(dataset, workflow, [one for _, one in metrics])
        rows = [*dataset.train, *dataset.val, *dataset.test.open()]
        attacks = read_attacks(spec.attacks, base)
    spec = spec.model_copy(update={"policy": spec.policy.inherit(inherited)})
    task = Task(spec, source, workflow, dataset, metric, inputs, tuple(metrics[1:]), attacks=attacks)
    needed = [*inputs, *(name for name in (task.target, spec.data.cluster) if name)]
    targets = [getattr(one, "target", None) for _, one in metrics]
    by = spec.data.split.by if spec.data.split else None
    check_holes(dataset, [name for name in (*needed, *targets, task.label, by) if isinstance(name, str)], spec.data)
    rule = find_rule(rows, inputs, task.label, exact=spec.data.cluster is False)
    dataset = _without_copies(_with_warnings(dataset, inputs, needed), rule)
    clusters = cluster_rows(dataset.test.open(), spec.data.cluster, inputs, task.label, rule)
    dataset = replace(dataset, warnings=(*dataset.warnings, *_one_label(dataset, task.label)))
    lost = out_of_reach(workflow, metric, [*dataset.train, *dataset.val, *dataset.test.open()])
    warnings = (*dataset.warnings, *clusters.warnings([*dataset.train, *dataset.val]), *([lost] if lost else ()))
    warnings = (*warnings, *wrong_demos(workflow, spec.lm))
    dataset = replace(dataset, warnings=warnings)
    if getattr(metric, "needs_lm", False) and spec.proof.labels is None:
        said = "a language model scores, and no labels of people are named (proof: {labels: FILE}): it proves no gain"
        dataset = replace(dataset, warnings=(*dataset.warnings, said))
    return replace(task, dataset=dataset, clusters=clusters.of, rule=rule)


def section_loaders(
    spec: Spec, base: Path, inherited: list[Inherited], code: Code = "loaded"
) -> dict[str, Callable[[], Any]]:
    """Return, by key, a function that loads a single section of the file. Each raises SpecError.

    inherited, code: see `load_workflow`.
    """

    def workflow() -> Workflow:
        if not is_collecting():
            forget_nodes()  # an earlier run of this process, e.g. in a notebook, read older versions of the files
        made = load_workflow(spec, base, (), inherited, code)
        check_node_lms(made, spec.roles)
        return made

    return {
        "lm": lambda: check_lms(None if missing_default(spec.lm) else spec.lm, spec.roles),
        "nodes": workflow,
        "metric": lambda: load_metrics(spec, base, code),
        "data": lambda: load_data(spec, base, code),
    }


def _check_fields(workflow: Workflow, dataset: Dataset, inputs: tuple[str, ...]) -> None:
    """Check that every split has every input in some row. Single rows without it fail when they are run, and
    `_with_warnings` warns of them."""
    for part in (dataset.train, dataset.val, dataset.test.open()):
        if not part:
            continue
        for name in inputs:
            if not any(name in row for row in part):
                reader = next(n for n, node in workflow.enabled_nodes.items() if name in node.inputs)
                raise SpecError(
                    f"node '{reader}' reads '{name}', which no earlier node writes and which is not in the data",
                    hint=suggest(name, part[0]) + " Rename with data: {fields: {" + name + ": ...}}.",
                    path=("nodes", reader),
                )


def _check_metric_fields(metric: Metric, workflow: Workflow, dataset: Dataset) -> None:
    """Check that the fields named by a metric exist."""
    written = {o for node in workflow.enabled_nodes.values() for o in node.outputs}
    field_name, target = getattr(metric, "field", None), getattr(metric, "target", None)
    if isinstance(field_name, str) and written and field_name not in written:
        raise SpecError(
            f"the metric reads the field '{field_name}', which no node writes",
            hint=suggest(field_name, written),
            path=("metric",),
        )
    rows = dataset.val or dataset.test.open() or dataset.train
    for what, name in (("compares with", target), *(("reads", read) for read in getattr(metric, "reads", ()))):
        if isinstance(name, str) and not any(name in row for row in rows):
            raise SpecError(
                f"the metric {what} '{name}', which is not a column of the data",
                hint=suggest(name, rows[0]),
                path=("metric",),
            )


def _check_cluster(field: str | Literal[False] | None, dataset: Dataset) -> None:
    """Check that the cluster field exists: a mistyped one would make each row a cluster, and show false gains."""

    rows = dataset.test.open()
    if field and rows and not any(field in row for row in rows):
        message = f"no test row has the field '{field}'"
        raise SpecError(message, hint=suggest(field, rows[0]), path=("data", "cluster"))


def check_label_unread(workflow: Workflow, metric: Metric, data: DataSpec) -> None:
    """Refuse a workflow that sees the right answer: a node reads the field that the metric compares with from the
    example, always or if an optional node before it fails. Raises SpecError."""
    target = getattr(metric, "target", None)
    if not isinstance(target, str) or data.label_as_input:
        return
    label = data.fields.get(target, target)
    for reader, known in workflow.graph.nodes.data("sources"):
        for field, sources in known.items():
            place = data.fields.get(field, field)
            same = place == label or place.startswith(f"{label}.") or label.startswith(f"{place}.")
            if not same or any(not workflow.nodes[name].get("optional") for name in sources):
                continue
            where = f", where {' and '.join(sources)} failed," if sources else ""
            raise SpecError(
                f"node '{reader}' reads '{field}' from the example{where} and the metric compares with "
                f"'{target}': it would be shown the right answer",
                hint=f"Take {field} out of its inputs. If it is meant to be read, as where a text is to be edited, "
                "write data: {label_as_input: true}.",
                path=("nodes", reader),
            )


def _with_warnings(dataset: Dataset, inputs: tuple[str, ...], needed: Sequence[str]) -> Dataset:
    """Warn of rows shared by train and val, and of rows without a needed field."""
    known = {normalised_inputs(row, inputs) for row in dataset.train}
    shared = [row for row in dataset.val if known and normalised_inputs(row, inputs) in known]
    same = f"{len(shared)} of the {len(dataset.val)} val rows have the same inputs as a train row"
    warnings = [f"{same}: {list_handles(shared)}"] if shared else []
    for name, part in (("train", dataset.train), ("val", dataset.val), ("test", dataset.test.open())):
        for field in dict.fromkeys(needed):
            if missing := [row for row in part if field not in row]:
                many = f"{len(missing)} of the {len(part)} {name} rows have no field '{field}'"
                warnings.append(f"{many}: {list_handles(missing)}")
    return replace(dataset, warnings=(*dataset.warnings, *warnings))


def _one_label(dataset: Dataset, label: str | None) -> Iterator[str]:
    """Warn of splits in which all rows have one label: a constant answer is always right, so a gain shows nothing."""
    for name, part in (("val", dataset.val), ("test", dataset.test.open())):
        values = {repr(row[label]) for row in part if label in row} if label is not None else ()
        if len(values) == 1 and len(part) >= MIN_ROWS:
            yield (
                f"all {len(part)} {name} rows have the {label} {min(values):.60}: a workflow that always says so is "
                "right, and a gain shows nothing else. Add rows with other labels"
            )


def _without_copies(dataset: Dataset, rule: RowRule) -> Dataset:
    """Leave out test rows that are copies of a train or val row, and warn of their number."""
    test = dataset.test.open()
    copies = Copies([*(("train", row) for row in dataset.train), *(("val", row) for row in dataset.val)], rule)
    found = [(row, copies.find(row)) for row in test]
    copied = [(row, copy) for row, copy in found if copy is not None]
    if not copied:
        return dataset
    row, (split, other, _) = copied[0]
    near = sum(is_near for _, (_, _, is_near) in copied)
    kept = f"the {split} row {other.handle.removeprefix('row ')}"
    kind = " (" + (f"{near} of them nearly, " if near else "") + f"e.g. {row.handle} of {kept})"
    warning = (
        f"{len(copied)} of the {len(test)} test rows have the same inputs as a train or val row{kind}: they are left "
        "out of the test" + ("; data: {cluster: false} leaves out exact copies alone" if near else "")
    )
    kept = SealedRows(row for row, copy in found if copy is None)
    return replace(dataset, test=kept, warnings=(warning, *dataset.warnings))
