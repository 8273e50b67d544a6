"""What was used of a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Spend:
    """What was used: calls (attempts that were sent), tokens, dollars, seconds of waiting for answers."""

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def add(self, part: Spend) -> None:
        """Count another one in, but not what it has from the journal."""
        self.calls += part.calls
        self.prompt_tokens += part.prompt_tokens
        self.completion_tokens += part.completion_tokens
        self.usd += part.usd
        self.seconds += part.seconds

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "usd": round(self.usd, 8), "seconds": round(self.seconds, 3)}
