"""Normalization of an answer before a node reads it."""

from __future__ import annotations

from workbench.errors import NodeError
from workbench.lm import Response


def check_said(response: Response) -> tuple[str, bool]:
    """Return (the text of an answer, whether it was cut).

    Raises NodeError of the kind `refused` for a refusal, and `cut` or `empty` if there is neither text nor calls.
    """
    cut = response.finish == "length"
    if response.finish == "refusal":
        raise NodeError("refused", f"the model refused: {response.text[:200]!r}")
    if cut and not response.text.strip():
        where = "in its thoughts" if response.thoughts else "before its first word"
        raise NodeError("cut", f"the answer was cut {where}; give it more tokens (max_tokens)")
    if not response.text.strip() and not response.tool_calls:
        raise NodeError("empty", "the model gave an empty answer")
    return response.text, cut
