"""A language model in a workflow file, and the settings to reach it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from workbench.base.hashing import canonical
from workbench.spec.base import Strict

#: A pattern of keys that no variable name matches: many letters and digits in a row.
_LIKE_A_KEY = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16,}")


class TokenPrice(Strict):
    """US dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(None, ge=0, description="of prompt tokens out of the provider's cache, else as input")
    cache_write: float | None = Field(None, ge=0, description="of prompt tokens written to it, else as input")
    cache_write_1h: float | None = Field(None, ge=0, description="of those kept for an hour, else as cache_write")
    cache_write_12h: float | None = Field(None, ge=0, description="of those kept for 12 hours, else as cache_write")


#: A number of tokens as a key, which is a text in JSON.
Tokens = Annotated[int, Field(strict=False, ge=1)]


class TierPrice(TokenPrice):
    """US dollars for a million tokens, by the length of the prompt."""

    above: dict[Tokens, TokenPrice] = Field(
        default_factory=dict[Tokens, TokenPrice],
        description="by a number of tokens: the prices of all tokens of a call whose prompt is longer",
    )


class Price(TierPrice):
    """US dollars for a million tokens, by the length of the prompt and the service tier."""

    tiers: dict[str, TierPrice] = Field(
        default_factory=dict[str, TierPrice],
        description="by service tier, e.g. flex, priority, batch; with any, a tier that is not listed has no known "
        "price, without one all tiers cost the same",
    )


class LMSpec(Strict):
    """A language model and how to reach it. API keys are not in the file: name the variable that holds one."""

    model: str = Field(min_length=1, description="e.g. bundled/nano, openai/gpt-4.1-mini, hf:PATH, llm:NAME")
    api_base: str | None = Field(None, description="address of an OpenAI-compatible server")
    api_key_env: str | None = Field(None, description="environment variable with the key")
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        description="default for nodes that set none; of the role proposer, for all that optimizers ask it",
    )
    max_tokens: int | None = Field(
        None, ge=1, description="default for nodes that set none; of the role proposer, likewise"
    )
    thinks: bool | None = Field(
        None,
        description="whether it thinks before it answers, for which its calls get more tokens; by default read off "
        "`extra` and its name",
    )
    timeout: float = Field(60.0, gt=0, description="total seconds for one attempt, whatever arrives meanwhile")
    attempts: int = Field(
        4, ge=1, le=20, description="attempts for one call, rate limits aside; each request counts against the budget"
    )
    concurrency: int | None = Field(None, ge=1, le=4096, description="maximum number of concurrent requests")
    price: Price | None = Field(None, description="dollars per million tokens, where they are not known")
    extra: dict[str, Any] = Field(default_factory=dict, description="passed to the provider unchanged")
    omit: list[str] = Field(
        default_factory=list,
        description="settings never sent, e.g. [temperature]; `system` puts the instructions into the user's message",
    )
    rename: dict[str, str] = Field(
        default_factory=dict, description="other names for settings, e.g. {max_tokens: max_completion_tokens}"
    )

    @field_validator("api_key_env")
    @classmethod
    def _is_a_name(cls, name: str | None) -> str | None:
        """Check a variable's name. The message does not show the value, which may be the key itself."""
        if name is not None and (not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or _LIKE_A_KEY.search(name)):
            raise ValueError(
                "that is not the name of an environment variable. If it is the key itself, put it into a variable "
                "(export OPENAI_API_KEY=...), and write its name: api_key_env: OPENAI_API_KEY"
            )
        return name

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return _with_model(value)


def _with_model(value: Any) -> Any:
    """Return the settings of a language model, which may be written as its name alone."""
    return {"model": value} if isinstance(value, str) else value


def lm_spec(value: Any) -> LMSpec:
    """Convert a name or a mapping of settings to an LMSpec. Equal settings give the same object."""
    return _lm_spec(canonical(_with_model(value)))


@lru_cache(maxsize=256)
def _lm_spec(text: str) -> LMSpec:
    return LMSpec.model_validate_json(text)
