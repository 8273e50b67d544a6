"""The optimum of a small integer program, for optmath.yaml."""

from __future__ import annotations

from typing import Any


def solve(program: dict[str, Any]) -> float:
    """The optimum of {"maximize": {variable: value}, "constraints": [{variable: share, ..., "most": bound}]}.

    Variables are whole and not negative. Raises ValueError if it has no optimum.
    """
    import numpy as np
    from scipy.optimize import milp

    names = sorted({name for part in (program["maximize"], *program["constraints"]) for name in part} - {"most"})
    rows = np.array([[float(part.get(name, 0)) for name in names] for part in program["constraints"]])
    bounds = [float(part["most"]) for part in program["constraints"]]
    values = np.array([float(program["maximize"].get(name, 0)) for name in names])
    found = milp(-values, constraints=(rows, -np.inf, np.array(bounds)), integrality=np.ones(len(names)))
    if not found.success:
        raise ValueError(f"it has no optimum: {found.message}")
    return round(-float(found.fun), 6)
