"""The source of claims of runs that a judge scored. Every file is checked with it, so it imports late."""

from __future__ import annotations

from workbench.proof import Claim, ClaimSource, Evidence


class JudgedGain(ClaimSource):
    """The corrected gain of a run that a judge scored, and the claim about the judge."""

    def find(self, tested: Evidence) -> list[Claim]:
        """Correct the gain by human labels."""
        if tested.gain is None or not tested.is_judged:
            return []
        from workbench_kit.labels import prove_by_labels

        return prove_by_labels(tested, tested.gain)
