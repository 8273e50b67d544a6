"""The size limit for results of all kinds of tools: Python, MCP, environments, code."""

from __future__ import annotations

from typing import Any

from workbench_kit.prompting import split_images

#: Maximum number of characters of a result, which goes into prompts and is stored.
LONGEST_RESULT = 1_000_000


def cut_text(text: str) -> str:
    """Return a text's beginning and end, with a note of the size left out between them."""
    if len(text) <= LONGEST_RESULT:
        return text
    half = (LONGEST_RESULT - 100) // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} of {len(text)} characters are left out here ...]\n{text[-half:]}"


def cut_result(value: Any) -> Any:
    """Return a result unchanged, unless its text is too long: then the cut text, and the images."""
    shown, images = split_images(value)
    if len(shown) <= LONGEST_RESULT:
        return value
    return [cut_text(shown), *images] if images else cut_text(shown)
