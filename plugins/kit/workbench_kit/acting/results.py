"""The bound on results of tools, whatever they are: Python, MCP, environments, code."""

from __future__ import annotations

from typing import Any

from workbench_kit.prompting import split_images

#: Characters of a result. It goes into prompts and is kept.
LONGEST_RESULT = 1_000_000


def cut_text(text: str) -> str:
    """A text with its beginning and its end, and what was left out between them named."""
    if len(text) <= LONGEST_RESULT:
        return text
    half = (LONGEST_RESULT - 100) // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} of {len(text)} characters are left out here ...]\n{text[-half:]}"


def cut_result(value: Any) -> Any:
    """A result as it is, unless its text is too long: then its text, cut, and the images in it."""
    shown, images = split_images(value)
    if len(shown) <= LONGEST_RESULT:
        return value
    return [cut_text(shown), *images] if images else cut_text(shown)
