"""Reading and checking a workflow file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench.base.type_guards import is_dict
from workbench.spec import defaults
from workbench.spec.attacks import AttackFile, AttackSpec
from workbench.spec.doors import read_outside
from workbench.spec.messages import spec_error
from workbench.spec.models import Spec
from workbench.spec.yaml_source import Source, load_yaml_file

#: Values for required sections that are missing or broken but not used.
STAND_INS: dict[str, Any] = {"data": {"file": "rows.jsonl"}, "metric": defaults.METRIC, "nodes": {"none": {}}}


def load_spec(path: str | Path) -> tuple[Spec, Source]:
    """Read and check a workflow file. Raises SpecError with the line and column of each error."""
    return check_spec(load_yaml_file(Path(path)))


def check_spec(source: Source) -> tuple[Spec, Source]:
    """Check a parsed file against the schema. Raises SpecError."""
    try:
        return Spec.model_validate(source.value), source
    except ValidationError as error:
        raise source.locate(spec_error(error, Spec)) from None


def check_nodes(source: Source) -> Spec:
    """Check a parsed file that is only called, not improved: it needs neither data nor metric, and these sections are
    not read if present. Raises SpecError."""
    value = source.value
    if not is_dict(value):
        return check_spec(source)[0]  # this raises
    unused = {key: STAND_INS[key] for key in ("data", "metric")}
    try:
        return Spec.model_validate({**value, **unused, "search": {}, "optimize": []})
    except ValidationError as error:
        raise source.locate(spec_error(error, Spec)) from None


def read_attacks(given: str | dict[str, AttackSpec], base: Path) -> dict[str, AttackSpec]:
    """Return a workflow file's attacks, or those of the file that it names. Raises SpecError with the location."""
    if not isinstance(given, str):
        return given
    read_outside(given, base)
    source = load_yaml_file(base / given)
    try:
        return AttackFile.model_validate(source.value).attacks
    except ValidationError as error:
        raise source.locate(spec_error(error, AttackFile)) from None
