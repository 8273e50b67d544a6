"""The types of a workflow's inputs and outputs, for checking requests and for openapi.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from workbench.inference import LoadedWorkflow
from workbench.workflow import Image, SignatureNode
from workbench_serve.errors import RequestError

#: Prefixes of an image that a client may send.
_IMAGES = ("data:image/", "https://", "http://")


@dataclass(frozen=True)
class TypedField:
    """A field of the workflow. type: Any if no signature has one."""

    name: str
    type: Any

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.type)

    @property
    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        if self.type is Image:
            return {
                "type": "string",
                "description": "a data URI (data:image/...;base64,...) or an address (https://...)",
            }
        return {} if self.type is Any else self._adapter.json_schema()

    @property
    def is_text(self) -> bool:
        if get_origin(self.type) is Literal:
            return all(isinstance(value, str) for value in get_args(self.type))
        return self.type is str

    def check(self, value: Any) -> None:
        """Raise RequestError (422) for a value of another type."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            raise _wrong(self.name, f"The input '{self.name}' is missing.")
        if self.type is Any or (self.type is str and isinstance(value, str)):
            return
        if self.type is Image:
            if not (
                isinstance(value, str) and value.startswith(_IMAGES)
            ):  # no path: the files here are not the client's
                raise _wrong(self.name, f"The input '{self.name}' must be a data URI of an image, or its address.")
            return
        try:
            self._adapter.validate_json(json.dumps(value), strict=True)  # as JSON, in which objects are dicts
        except ValidationError as error:
            said = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
            raise _wrong(self.name, f"The input '{self.name}' is of another type: {said}.") from None


def _wrong(name: str, message: str) -> RequestError:
    return RequestError(422, "invalid_input", message, field=name)


@dataclass(frozen=True)
class Fields:
    """The inputs and outputs of a workflow."""

    inputs: tuple[TypedField, ...]
    outputs: tuple[TypedField, ...]

    @classmethod
    def of(cls, wf: LoadedWorkflow) -> Fields:
        """Return the fields, typed by the first node that reads an input, and the last that writes an output."""
        read: dict[str, Any] = {}
        written: dict[str, Any] = {}
        for node in wf.workflow.walk():
            if isinstance(node, SignatureNode):
                for field in node.signature.inputs:
                    read.setdefault(field.name, field.type)
                written.update({field.name: field.type for field in node.signature.outputs})
        return cls(
            tuple(TypedField(name, read.get(name, Any)) for name in wf.inputs),
            tuple(TypedField(name, written.get(name, Any)) for name in wf.outputs),
        )

    def check(self, given: Any) -> Mapping[str, Any]:
        """Return the inputs in a request. Raises RequestError that names the field."""
        if not isinstance(given, dict):
            raise RequestError(422, "invalid_input", "Send one JSON object with the inputs of the workflow.")
        names = [field.name for field in self.inputs]
        for field in self.inputs:
            field.check(given.get(field.name))
        for name in given:
            if name not in names:
                raise _wrong(str(name)[:100], f"The workflow reads no such input; it reads: {', '.join(names)}.")
        return given

    def why_no_chat(self) -> str | None:
        """Return why the workflow cannot be used as a chat model; None if it can."""
        if len(self.inputs) == len(self.outputs) == 1 and self.inputs[0].is_text and self.outputs[0].is_text:
            return None
        shown = [", ".join(f.name for f in side) or "nothing" for side in (self.inputs, self.outputs)]
        return (
            "Only a workflow with one input and one output, both text, can be asked as a chat model. "
            f"This one reads {shown[0]} and writes {shown[1]}. Use /predict."
        )
