"""What was used of a budget, and how calls were paid."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from workbench.errors import LMError, SpecError
from workbench.lm import LM, Response


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
        """Add another one, except for its cached calls."""
        self.calls += part.calls
        self.prompt_tokens += part.prompt_tokens
        self.completion_tokens += part.completion_tokens
        self.usd += part.usd
        self.seconds += part.seconds

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "usd": round(self.usd, 8), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a call: a response, or the error that its last attempt ended with."""

    response: Response | None
    error: LMError | None
    cached: bool
    attempts: int
    usd: float
    seconds: float
    key: str = ""  # under which it is journalled


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The data of the event `call_settled`."""

    key: str
    role: str
    lm: str
    outcome: str
    cached: bool
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    seconds: float


def stored_response(row: Any) -> Response:
    """The answer of a row of `calls` that has one."""
    body = json.loads(row["response"])
    for name in ("tool_calls", "prompt_ids", "token_ids", "logprobs"):
        if name in body:
            body[name] = tuple(body[name])
    return Response(
        prompt_tokens=row["prompt_tokens"], completion_tokens=row["completion_tokens"], usd=row["usd"], **body
    )


def price_of(lm: LM, prompt: int, completion: int, ceiling: float | None) -> float:
    """US dollars for so many tokens; 0 if the price is unknown. Raises SpecError if it is, and there is a ceiling on
    dollars."""
    price = lm.price(prompt, completion)
    if price is None and ceiling is not None:
        raise SpecError(
            f"budget.usd cannot be kept: the price of {lm.identity} is not known",
            hint="Add price: {input: ..., output: ...} (dollars per million tokens) under lm.",
        )
    return price or 0.0
