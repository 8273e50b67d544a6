"""Weakens, then drops causal statements that the data contradict, regardless of the proposer.

CLIN (Majumder et al., arXiv 2310.10134) has the model weaken what a trial contradicts. Departure: a statement is also
contradicted where the same inputs, shown the same entries, were answered worse with it than without it, because a model
does not reliably notice that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_LINKS = (
    r"(?:does not|do not|did not|don't|doesn't|never|no longer) (?:contributes?|helps?|matters?)"
    r"|(?:is|are) not (?:necessary|needed|required)",
    r"(?:may|might|can) (?:\w+ )?(?:necessary|help|contribute|matter)",
    r"(?:is|are) (?:necessary|needed|required)|helps?|contributes?|matters?",
)
_PREPOSITION = r"(?: (?:for|to|with|in))?"
NOTHING, MAYBE, CERTAIN = range(3)

Key = tuple[str, str]


@dataclass(frozen=True)
class Claim:
    """ "X is necessary for Y" (strength CERTAIN), "X may help with Y" (MAYBE), or "X does not contribute to Y"
    (NOTHING).

    A statement in another form is a MAYBE about nothing: it can only be dropped, not weakened.
    """

    cause: str
    effect: str
    strength: int

    @property
    def key(self) -> Key:
        """Equal for all claims about the same cause and effect."""
        cause, effect = (" ".join(re.findall(r"\w+", part.lower())) for part in (self.cause, self.effect))
        return cause, effect

    def weakened(self) -> str:
        return f"{self.cause} may help with {self.effect}"


def read_claim(statement: str) -> Claim:
    for strength, link in enumerate(_LINKS):
        match = re.fullmatch(rf"(.+?) (?:{link}){_PREPOSITION} (.+?)\.?", statement.strip(), re.IGNORECASE)
        if match and not any(
            re.search(rf"\b(?:{other})\b", part, re.IGNORECASE) for other in _LINKS for part in match.groups()
        ):
            return Claim(match[1], match[2], strength)
    return Claim(statement, "", MAYBE)


@dataclass
class Doubts:
    """The strongest form still allowed for each claim."""

    most: dict[Key, int] = field(default_factory=dict)

    def contradict(self, statement: str) -> None:
        claim = read_claim(statement)
        self.most[claim.key] = min(claim.strength, self.most.get(claim.key, CERTAIN)) - 1

    def settle(self, statements: Sequence[str]) -> list[str]:
        """The allowed form of a list: of two statements on the same cause and effect, the later one, weakened or
        dropped if it is stronger than allowed."""
        latest = {read_claim(statement).key: statement for statement in statements}
        kept = []
        for key, statement in latest.items():
            claim, most = read_claim(statement), self.most.get(key, CERTAIN)
            if claim.strength <= most:
                kept.append(statement)
            elif most == MAYBE:
                kept.append(claim.weakened())
        return kept


def sign_test_p(differences: Sequence[float]) -> float:
    """The p-value of a sign test, one-sided: how likely so few rises among so many changes are, if falls are no
    likelier.

    differences: with the statement less without it, one for an input.
    """
    rises, falls = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    n = rises + falls
    return sum(math.comb(n, k) for k in range(rises + 1)) / 2**n
