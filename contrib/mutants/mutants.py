"""The mutants: each breaks one line, and names the tests that should notice.

`old` occurs exactly once in its file. A mutant must change what the program does: one that cannot is taken out of the
list, and named in the README instead.
"""

from __future__ import annotations

from areas.allowed import ALLOWED, BODIES, CALLS
from areas.answers import ANSWERS
from areas.attribution import ATTRIBUTION
from areas.called import CALLED
from areas.checked import CHECKED
from areas.corrected import SAMPLING
from areas.critics import CRITICS
from areas.diagnosed import DIAGNOSED
from areas.evaluated import EVALUATED
from areas.external import EXTERNAL
from areas.failed import FAILED
from areas.gateways import GATEWAYS
from areas.induced import INDUCED
from areas.labelled import LABELLED
from areas.levels import LEVELS
from areas.mutant import Mutant
from areas.paid import PAID
from areas.proof import PROOF
from areas.ranks import RANKS
from areas.recipes import RECIPES
from areas.rollouts import ROLLOUTS
from areas.routes import ROUTES
from areas.rows import ROWS
from areas.search import SEARCH
from areas.searched import SEARCHED
from areas.self_play import SELF_PLAY
from areas.serving import SERVING
from areas.shown import SHOWN
from areas.steered import STEERED
from areas.tables import TABLES
from areas.tracked import TRACKED
from areas.training import TRAINING
from areas.trust import TRUST
from areas.viewed import VIEWED
from areas.workflows import WORKFLOWS

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: list[Mutant] = [
    *PAID,
    *FAILED,
    *PROOF,
    *ROWS,
    *SEARCH,
    *SEARCHED,
    *ALLOWED,
    *CALLS,
    *ANSWERS,
    *BODIES,
    *WORKFLOWS,
    *SERVING,
    *ROLLOUTS,
    *RANKS,
    *TRAINING,
    *SELF_PLAY,
    *RECIPES,
    *SAMPLING,
    *CRITICS,
    *TRACKED,
    *TRUST,
    *CALLED,
    *EXTERNAL,
    *CHECKED,
    *EVALUATED,
    *ATTRIBUTION,
    *SHOWN,
    *ROUTES,
    *DIAGNOSED,
    *INDUCED,
    *LEVELS,
    *GATEWAYS,
    *VIEWED,
    *STEERED,
    *LABELLED,
    *TABLES,
]
