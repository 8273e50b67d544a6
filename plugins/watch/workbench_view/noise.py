"""The difference between two identical variants on the same rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Number of random flips. The seed is fixed, so that a report stays the same.
_DRAWS, _SEED = 4000, 20261123


def noise_band(differences: Sequence[float]) -> float | None:
    """Return half the width of the band that contains the mean difference of two identical variants in 95 of 100 cases.

    If the arms were equal, each row's difference would be as likely with the other sign. So the signs are flipped at
    random (Fisher's randomization test for pairs: The Design of Experiments, 1935, section 21), and the band is the 95%
    quantile of the absolute mean.

    Args:
        differences: of the scores of each row.

    None if no row differs, since the scatter is then unknown.
    """
    import numpy as np

    differing = np.asarray([d for d in differences if not math.isclose(d, 0.0)])
    if not len(differing):
        return None
    signs = np.random.default_rng(_SEED).choice((-1.0, 1.0), size=(_DRAWS, len(differing)))
    means = np.abs(signs @ differing) / len(differences)
    return float(np.quantile(means, 0.95))
