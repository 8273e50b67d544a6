"""Objects of an agent that writes code: inputs put into its session as variables, and outputs taken from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from workbench.errors import NodeError, SpecError
from workbench.runtime import Context
from workbench.workflow import Signature
from workbench_kit.acting import Tool, is_session, session_of
from workbench_kit.prompting import plain_adapter as plain
from workbench_tools.agent_config import AgentConfig

#: Added to the description of the tool that runs code.
FUNCTIONS_TOO = "The other tools are functions in it; an error of one is a ToolError."


def find_session(config: AgentConfig, signature: Signature, tools: Mapping[str, Tool]) -> Tool | None:
    """Return the tool that runs the agent's code, with the other tools in its description.

    Raises SpecError for settings that it does not allow.
    """
    found = next((tool for tool in tools.values() if is_session(tool)), None)
    for key, fields in (("given", signature.inputs), ("kept", signature.outputs)):
        names: Sequence[str] = getattr(config, key)
        if names and found is None:
            raise SpecError(f"`{key}` names variables of code", hint="Add tools: [sandbox:session].", path=(key,))
        for number, name in enumerate(names):
            if name not in [field.name for field in fields]:
                side = "input" if key == "given" else "output"
                raise SpecError(
                    f"'{name}' is no {side} of the agent", hint="Add it to the signature.", path=(key, number)
                )
            if name in tools:
                raise SpecError(f"a tool is named '{name}' too", hint="Rename one of them.", path=(key, number))
    if found is not None and config.actions > 1:
        raise SpecError(
            "of several `actions` at a step each would change the variables of the code",
            hint="Remove `actions` or the tool sandbox:session.",
            path=("actions",),
        )
    if found is None or len(tools) == 1:
        return found
    return found.described(f"{found.description} {FUNCTIONS_TOO}")


def without_kept(signature: Signature, kept: Collection[str]) -> Signature:
    """Return the signature with the outputs that the model writes itself."""
    return replace(signature, outputs=tuple(field for field in signature.outputs if field.name not in kept))


def describe_given(value: Any) -> str:
    """Return the text that a prompt shows in place of an object: its type and size."""
    size = f" of {len(value)}" if isinstance(value, Sequence | Mapping) else ""
    return f"(a variable in Python: {type(value).__name__}{size})"


def ask_for_kept(kept: Sequence[str]) -> str:
    """Return the part of a system prompt about outputs that are variables."""
    return f"\nBefore you answer, put these into Python variables of the same name: {', '.join(kept)}" if kept else ""


async def read_kept(ctx: Context, tool: Tool | None, signature: Signature, kept: Sequence[str]) -> dict[str, Any]:
    """Return the outputs that are variables. Raise NodeError("tool") with the fault of one of them."""
    from pydantic import TypeAdapter, ValidationError

    values = await session_of(ctx, tool).values(ctx, kept) if tool and kept else {}
    for field in signature.outputs:
        if field.name not in values:
            continue
        kind: Any = Literal[field.values] if field.values else field.type
        if kind is str:
            values[field.name] = plain.as_text(values[field.name])
            continue
        try:
            values[field.name] = TypeAdapter(kind).validate_python(values[field.name])
        except ValidationError as error:
            raise NodeError("tool", f"the variable {field.name}: {str(error)[:300]}") from None
    return values
