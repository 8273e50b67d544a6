"""What would stop a run here although its file is valid: a key, a price, a package, a sandbox. No model is called to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from workbench.errors import SpecError, WorkbenchError
from workbench.nodes import all_nodes
from workbench.pool import lm_spec
from workbench.runtime import Runtime
from workbench.sandbox import SandboxError
from workbench.spec import LMSpec
from workbench.spend import price_of
from workbench.study import Optimizer, Study
from workbench.task import Task


def lms_of(task: Task) -> Iterator[LMSpec]:
    """The language models that a run will ask: those of the nodes, and of the roles that the file names."""
    for node in all_nodes(task.workflow):
        if "lm" in type(node.config).model_fields:
            own = getattr(node.config, "lm", None)
            yield lm_spec(own) if own else task.spec.lm
        if embedder := getattr(node.config, "embedder", None):
            yield lm_spec(embedder)
    yield from task.spec.roles.values()


def lms_not_ready(lms: Iterable[LMSpec], runtime: Runtime) -> Iterator[WorkbenchError]:
    """What each language model lacks, e.g. its key."""
    for spec in {spec.model_dump_json(): spec for spec in lms}.values():
        try:
            lm = runtime.pool.get(spec)
            if (ready := getattr(lm, "ready", None)) is not None:
                ready()
            price_of(lm, 1, 1, runtime.ledger.budget.usd)
        except WorkbenchError as error:
            yield error


def wrong_in_file(found: Iterable[WorkbenchError]) -> list[SpecError]:
    """Of what stops a run, what its file must be changed for; the rest can be had, and the run be resumed."""
    return [error for error in found if isinstance(error, SpecError) and not isinstance(error, SandboxError)]


async def not_ready(task: Task, studies: Sequence[tuple[Study, Optimizer]]) -> list[WorkbenchError]:
    """What each optimizer lacks; the mistakes in its settings at their place in the file. studies: in the file's order."""
    found: list[WorkbenchError] = []
    for index, (study, optimizer) in enumerate(studies):
        try:
            await optimizer.ready(study)
        except SpecError as error:
            place = ("optimize", index, study.name, *error.path)
            found.append(task.source.error(place, error.message, error.hint) if type(error) is SpecError else error)
        except WorkbenchError as error:
            found.append(error)
    return found
