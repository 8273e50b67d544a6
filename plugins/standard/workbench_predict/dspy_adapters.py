"""DSPy's own adapters (chat, json, xml), imported on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from workbench.errors import NodeError
from workbench.workflow import Signature
from workbench_kit import answers


@lru_cache(maxsize=512)
def dspy_signature(signature: Signature, instructions: str, descriptions: tuple[tuple[str, str], ...] = ()) -> Any:
    """Return our signature as a `dspy.Signature` class."""
    import dspy

    make_signature: Any = dspy.Signature
    described = dict(descriptions)
    fields: dict[str, Any] = {}
    for part, make in ((signature.inputs, dspy.InputField), (signature.outputs, dspy.OutputField)):
        for field in part:
            extra = {"desc": described[field.name]} if field.name in described else {}
            fields[field.name] = (field.type, make(**extra))
    return make_signature(fields, instructions.strip() or None)


@lru_cache(maxsize=8)
def get_adapter(name: str) -> Any:
    from workbench_dspy_seam.programs import ADAPTERS

    return ADAPTERS[name]()


def render(
    config: Any, signature: Signature, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Return the adapter's messages."""
    from workbench_dspy_seam.programs import to_messages

    cls = dspy_signature(signature, config.instructions, tuple(sorted(config.descriptions.items())))
    return to_messages(get_adapter(config.adapter).format(cls, [dict(d) for d in demos], dict(inputs)))


def render_answer(config: Any, signature: Signature, values: Mapping[str, Any]) -> str:
    """Return the assistant message that states these outputs."""
    cls = dspy_signature(signature, config.instructions, tuple(sorted(config.descriptions.items())))
    return get_adapter(config.adapter).format_assistant_message_content(
        cls, {field.name: values[field.name] for field in signature.outputs}
    )


def parse(config: Any, signature: Signature, text: str, cut: bool) -> tuple[dict[str, Any], bool]:
    """Parse an answer with the adapter. Returns the values, and whether the plain parser had to step in."""
    from workbench_dspy_seam.programs import AdapterParseError

    cls = dspy_signature(signature, config.instructions, tuple(sorted(config.descriptions.items())))
    try:
        found = get_adapter(config.adapter).parse(cls, text)
        return {f.name: answers.as_json(f, found[f.name]) for f in signature.outputs}, False
    except (AdapterParseError, ValueError, TypeError):
        if cut and not signature.outputs[-1].closed:
            raise NodeError("cut", f"the answer was cut at max_tokens: {text[:200]!r}") from None
        values, _ = answers.parse(signature, text, cut)
        return values, True
