"""Reading and checking a workflow file."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from workbench.spec.messages import spec_error
from workbench.spec.models import Spec
from workbench.spec.yaml_source import Source, load_yaml_file


def load_spec(path: str | Path) -> tuple[Spec, Source]:
    """Read and check a workflow file. Raises SpecError with the line and column of each fault."""
    return check_spec(load_yaml_file(Path(path)))


def check_spec(source: Source) -> tuple[Spec, Source]:
    """Check a parsed file against the schema. Raises SpecError."""
    try:
        return Spec.model_validate(source.value), source
    except ValidationError as error:
        raise source.locate(spec_error(error, Spec)) from None
