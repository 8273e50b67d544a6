"""Defaults for what a file leaves out. No other file of core names a plugin."""

from __future__ import annotations

from collections.abc import Collection

#: The language model.
LM = "bundled/nano"

#: The optimizer of runs that a version began which always took the same one.
FORMER_OPTIMIZER = "bootstrap"

#: A metric for rows with a single label.
METRIC = "exact_match(label)"

#: What can be searched in a file that names no optimizer, in the order in which it is: why an optimizer is taken, and
#: those that can do it, the best first. A text that a proposer writes is worth most before anything is fitted to the
#: old one: examples and settings chosen for a poor text may fit no other. The measurements: docs/benchmarks.md.
OPTIMIZERS = {
    "texts": ("the file names a proposer, which rewrites texts after their failures", ("textgrad", "rewrite")),
    "search": ("it has a `search:`", ("optuna", "evolve", "random")),
    "demos": ("labelled rows can be shown as examples", (FORMER_OPTIMIZER,)),
}


def choose_optimizers(possible: Collection[str], known: Collection[str]) -> dict[str, str]:
    """Names of optimizers for a file that names none, in their order, each with the reason.

    possible: keys of `OPTIMIZERS` that apply to the file. known: the optimizers that are installed and loaded.
    """
    found = {key: next((n for n in OPTIMIZERS[key][1] if n in known), None) for key in OPTIMIZERS if key in possible}
    chosen = {name: OPTIMIZERS[key][0] for key, name in found.items() if name is not None}
    return chosen or {FORMER_OPTIMIZER: "nothing else is known to fit"}
