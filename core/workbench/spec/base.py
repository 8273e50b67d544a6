"""The base of everything that is read from a workflow file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of the file. Unknown keys are refused, and no value is coerced, except int to float."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


#: Keys of a node that are not its kind's own settings.
NODE_KEYS = ("needs", "optional", "enabled")
