"""The base of all that is read from a workflow file."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of the file: unknown keys are refused, values are not coerced beyond int to float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
