"""The settings of a diagnosis."""

from __future__ import annotations

from pydantic import Field

from workbench.spec import Strict


class Judging(Strict):
    """Settings for judging logs."""

    method: str = Field("all-at-once", description="name of the method")
    votes: int = Field(1, ge=1, le=99, description="how often each log is judged; the most frequent finding counts")
    ground_truth: bool = Field(True, description="show the judge the right answer where it is known")
    seed: int = Field(0, description="of ties, coins, and random baselines")
    window: int = Field(16_000, ge=300, description="tokens of a prompt, roughly; longer logs are shown in parts")
    max_tokens: int = Field(512, ge=16, description="tokens of an answer")

    @property
    def heat(self) -> float:
        """The temperature for a judge without one of its own. Several votes must differ."""
        return 0.7 if self.votes > 1 else 0.0
