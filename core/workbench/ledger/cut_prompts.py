"""Detection of prompts that a server cut silently: its token count does not fit the prompt.

Ollama keeps what fits its context, 2,048 tokens by default, and answers with status 200.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from workbench.errors import LMError
from workbench.lm import Request, Response, estimate_tokens, prompt_text

#: Least tokens per word, and per letter of a script without spaces: hardly any tokenizer merges more than two words or
#: four letters.
_WORDS, _LETTERS = 0.5, 0.25
_SPACELESS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
#: Below these token counts no check is made: so short a prompt is not cut, and so low a count is no context size.
_MIN_PROMPT, _MIN_COUNT = 600, 256
#: Number of earlier prompts to compare, since some servers do not count tokens in their cache.
_EARLIER = 8
#: Relative differences within which counts, and prompt lengths, are the same.
_SAME_COUNT, _SAME_LENGTH = 0.01, 0.03


@dataclass
class _OfModel:
    requests: list[Request] = field(default_factory=list[Request])  # the latest ones
    cut: dict[int, int] = field(default_factory=dict[int, int])  # by a count that is too low: its prompt's length
    told: tuple[int, int] | None = None  # the first such count, and its prompt's approximate tokens


class CutPrompts:
    """The token counts of a run's models."""

    def __init__(self) -> None:
        self._models: dict[str, _OfModel] = {}

    def check(self, lm: str, request: Request, response: Response) -> LMError | None:
        """Return an error if a server gave one count for prompts of different lengths, too low for them."""
        count, about = response.prompt_tokens, estimate_tokens(request.messages)
        if about < _MIN_PROMPT:
            return None
        seen = self._models.setdefault(lm, _OfModel())
        earlier, seen.requests = seen.requests, [*seen.requests[1 - _EARLIER :], request]
        if response.estimated or count < _MIN_COUNT or count * 2 > about:
            return None  # most calls end here
        text = prompt_text(request)
        common = max((_common_length(text, prompt_text(one)) for one in earlier), default=0)
        known = next((n for one, n in seen.cut.items() if abs(one - count) <= _SAME_COUNT * one), None)
        if known is not None and abs(known - len(text)) > _SAME_LENGTH * known:
            return LMError(
                "too_long",
                f"the server counted {count} tokens of a prompt of some {about}, as of others of another length: it "
                "cut them to its context (with Ollama, raise num_ctx)",
            )
        least = _min_tokens(text[common:])
        if known is None and least >= _MIN_PROMPT and count < least:
            seen.cut[count] = len(text)
            seen.told = seen.told or (count, about)
        return None

    def lines(self) -> list[str]:
        """Return a warning for each model that may have cut prompts."""
        return [
            f"{lm}: the server counted {found.told[0]:,} tokens of a prompt of some {found.told[1]:,}: it may have cut "
            "it. Give the model a larger context (with Ollama, num_ctx), or shorten the rows."
            for lm, found in self._models.items()
            if found.told is not None
        ]


def _common_length(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _min_tokens(text: str) -> float:
    return max(_WORDS * len(text.split()), _LETTERS * len(_SPACELESS.findall(text)))
