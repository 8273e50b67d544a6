"""The settings of an induction."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from workbench.spec import Strict


class Induction(Strict):
    """Settings for inducing metrics."""

    clustering: Literal["lm", "tfidf"] = Field(
        "lm", description="who groups aspects: the model, or similarity of words without a call"
    )
    least: int = Field(2, ge=1, le=99, description="the fewest metrics that are tried")
    most: int = Field(8, ge=1, le=99, description="the most metrics that are tried")
    held_out: float = Field(0.3, ge=0, lt=1, description="share of the traces held out from making metrics")
    trials: int = Field(20, ge=1, description="maximum number of traces per trial")
    examples: int = Field(3, ge=1, le=20, description="maximum number of good and of bad examples per metric")
    seed: int = Field(0, description="of the held-out traces, of the trials, and of the shuffled comments")
    window: int = Field(16_000, ge=300, description="tokens of a prompt, roughly; longer steps are cut")
    max_tokens: int = Field(3000, ge=64, description="tokens of an answer")
