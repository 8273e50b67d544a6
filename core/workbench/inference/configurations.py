"""The configurations of a workflow file, loaded to be called: the file's own, and faster ones for high load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from workbench.errors import PluginError, SpecError
from workbench.inference.loaded import LoadedWorkflow, load, read_workflow
from workbench.lm import LMPool
from workbench.spec import Source, Spec
from workbench.task import check_lms, check_node_lms
from workbench.workflow import Workflow


def load_configurations(
    wf: LoadedWorkflow,
    path: str | Path | Source,
    *,
    changes: Mapping[str, Any] | None = None,
    sandbox: str | None = None,
    pool: LMPool | None = None,
) -> list[LoadedWorkflow]:
    """Return the workflow loaded from a file, and the others under `configurations:` in it. Arguments as in `load`.

    Raises:
        SpecError: a configuration cannot be used, or has other inputs or outputs than the file's own.
        LMError: the key of a model is missing.
    """
    found = [wf]
    for place, one in _others(wf.spec):
        with _at(place, path):
            other = load(path, changes={**one, **(changes or {})}, sandbox=sandbox, pool=pool)
            _check_fields(wf.workflow, other.workflow)
        found.append(other)
    return found


def check_configurations(
    path: str | Path | Source, spec: Spec, workflow: Workflow, changes: Sequence[tuple[str, Any]]
) -> None:
    """Raise SpecError if a configuration of a file cannot be used. workflow: the file's own."""
    for place, one in _others(spec):
        with _at(place, path):
            own, _, other = read_workflow(path, [*one.items(), *changes], workflow.code)
            check_lms(own.lm, own.roles)
            check_node_lms(other, own.roles)
            _check_fields(workflow, other)


def _others(spec: Spec) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield position and own sections of each configuration except the first, which is the file's."""
    for place, one in enumerate(spec.configurations[1:], start=1):
        lm = None if one.lm is None else one.lm.model_dump(mode="json", exclude_unset=True)
        yield place, {key: value for key, value in (("lm", lm), ("nodes", one.nodes)) if value is not None}


def _check_fields(own: Workflow, other: Workflow) -> None:
    if own.input_fields != other.input_fields or not set(own.output_fields) <= set(other.output_fields):
        fields = [f"{', '.join(one.input_fields)} -> {', '.join(one.output_fields)}" for one in (other, own)]
        raise SpecError(f"it is {fields[0]}, the file itself {fields[1]}", hint="Remove it from the file.")


@contextmanager
def _at(place: int, path: str | Path | Source) -> Iterator[None]:
    try:
        yield
    except (SpecError, PluginError) as error:
        file = path.file if isinstance(path, Source) else path
        said, hint = (error.message, error.hint) if isinstance(error, SpecError) else (str(error), None)
        raise SpecError(f"{file}: configurations.{place}: {said}", hint=hint) from None
