"""The plain adapter: instructions, allowed values, demos and inputs in as few tokens as possible.

system     instructions, then one line `field: one of a, b` for each output with allowed values; where the first output
           is `reasoning`, what to write, since a model that is only shown `reasoning:` answers at once
user       one line `name: value` for each input, then `first_output:`, but not for `reasoning`
assistant  the first output's value, then a line `name: value` for each further output

DSPy's ChatAdapter spends several hundred tokens a call on markers and rules that small models do not follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from workbench.workflow import Signature
from workbench_kit.answers import as_text, object_shape

_TOOLS = """\
{system}
You can use tools. To call one, answer with exactly one line:
call: {{"tool": NAME, "arguments": {{...}}}}
You will then be told its result. {answer}
Tools:
{tools}"""


def system_text(
    signature: Signature, instructions: str, descriptions: Mapping[str, str], show_values: bool, form: bool = False
) -> str:
    """Return the system message. form: describe the form of an answer with reasoning; some callers do this
    themselves."""
    lines = [instructions.strip() or default_instructions(signature)]
    for field in (*signature.inputs, *signature.outputs):
        if descriptions.get(field.name):
            lines.append(f"{field.name}: {descriptions[field.name]}")
    for field in signature.outputs:
        if show_values and field.allowed:
            lines.append(f"{field.name}: one of {', '.join(map(as_text, field.allowed))}")
        elif shape := object_shape(field.type):
            lines.append(f"{field.name}: JSON {shape}")
    if form and signature.reasons_first:
        names = [field.name for field in signature.outputs[1:]]
        where = "a last line" if len(names) == 1 else "last lines"
        said = "\n".join(f"{name}: ..." for name in names)
        lines.append(f"Reason step by step. Then write the {' and '.join(names)} on {where}, as: {said}")
    return "\n".join(lines)


def default_instructions(signature: Signature) -> str:
    outputs = " and ".join(f.name for f in signature.outputs)
    return f"Give the {outputs}." if signature.outputs else ""


def user_text(signature: Signature, values: Mapping[str, Any]) -> str:
    lines = [f"{f.name}: {as_text(values.get(f.name, ''))}" for f in signature.inputs]
    return "\n".join(lines if signature.reasons_first else [*lines, f"{signature.outputs[0].name}:"])


def assistant_text(signature: Signature, values: Mapping[str, Any]) -> str:
    first, *rest = signature.outputs
    # A labelled row has no reasoning, and an empty line would suggest leaving it empty.
    lines = [] if signature.reasons_first and not values.get(first.name) else [as_text(values.get(first.name, ""))]
    return "\n".join([*lines, *(f"{f.name}: {as_text(values[f.name])}" for f in rest if f.name in values)])


def outputs_text(names: Sequence[str], values: Mapping[str, Any]) -> str:
    """Format outputs for a critic: a single one as it is, several after their names."""
    return as_text(values[names[0]]) if len(names) == 1 else "\n".join(f"{n}: {as_text(values[n])}" for n in names)


def with_tools(system: str, outputs: Iterable[str], tools: Iterable[str]) -> str:
    """Return a system text with the callable tools, each described on a line, and the form of a call."""
    return _TOOLS.format(system=system, answer=form_of_answer(outputs), tools="\n".join(tools))


def form_of_answer(outputs: Iterable[str]) -> str:
    """Describe to a model with tools the form of its last answer."""
    form = "\n".join(f"{name}: ..." for name in outputs) or "done"
    return f"When you know the answer, give it in this form:\n{form}"


def messages(
    signature: Signature,
    system: str,
    demos: Sequence[Mapping[str, Any]],
    values: Mapping[str, Any],
    content: Callable[[Signature, Mapping[str, Any]], Any] = user_text,
) -> list[dict[str, Any]]:
    """Return the chat for one example. content: creates that of a user's message."""
    out: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for demo in demos:
        out.append({"role": "user", "content": content(signature, demo)})
        out.append({"role": "assistant", "content": assistant_text(signature, demo)})
    out.append({"role": "user", "content": content(signature, values)})
    return out


def stop_strings(signature: Signature) -> tuple[str, ...]:
    """Return stop strings: the start of the next example, and for one short value the end of its line."""
    following = (f"\n{signature.inputs[0].name}:",) if signature.inputs else ()
    return ("\n", *following) if len(signature.outputs) == 1 and signature.outputs[0].closed else following
