"""The configurations of a workflow file, loaded to be called: the file's own, and faster ones for times of load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.inference.loaded import LoadedWorkflow, load
from workbench.lm import LMPool
from workbench.runtime import Consent


def load_configurations(
    wf: LoadedWorkflow,
    path: str | Path,
    *,
    changes: Mapping[str, Any] | None = None,
    sandbox: str | None = None,
    consent: Consent | None = None,
    pool: LMPool | None = None,
) -> list[LoadedWorkflow]:
    """The workflow that was loaded from a file, and the others under `configurations:` in it. Arguments as of `load`.

    Raises:
        SpecError: a configuration cannot be used, or takes or gives other fields than the file's own.
        LMError: the key of a model is missing.
    """
    found = [wf]
    for place, one in enumerate(wf.spec.configurations[1:], start=1):
        lm = None if one.lm is None else one.lm.model_dump(mode="json", exclude_unset=True)
        own = {key: value for key, value in (("lm", lm), ("nodes", one.nodes)) if value is not None}
        try:
            other = load(path, changes={**own, **(changes or {})}, sandbox=sandbox, consent=consent, pool=pool)
        except SpecError as error:
            raise SpecError(f"configurations.{place} of {path}: {error.message}", hint=error.hint) from None
        if other.inputs != wf.inputs or not set(wf.outputs) <= set(other.outputs):
            fields = [f"{', '.join(one.inputs)} -> {', '.join(one.outputs)}" for one in (other, wf)]
            raise SpecError(
                f"configurations.{place} of {path} is {fields[0]}, the file itself {fields[1]}",
                hint="Remove it from the file.",
            )
        found.append(other)
    return found
