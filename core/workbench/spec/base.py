"""The base of all models of a workflow file."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Strict(BaseModel):
    """A part of the file. Unknown keys are refused, and no value is coerced, except int to float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


#: Keys of a node that belong to no kind.
NODE_KEYS = ("needs", "optional", "enabled")


def _split_names(value: Any) -> Any:
    """Split `otel, mlflow`, the form used in WORKBENCH_TRACK."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


Track = Annotated[
    list[str],
    BeforeValidator(_split_names),
    Field(
        description="trackers that report the run to another system: otel, mlflow, wandb; short form: one name. "
        "Addresses and keys come from the environment variables of these systems, never from a file"
    ),
]
