"""Defaults for a file's missing settings. No other file of core names a plugin."""

from __future__ import annotations

from collections.abc import Collection, Sequence

#: The language model.
LM = "bundled/nano"

#: The optimizer of runs started by a version that always used the same one.
_FALLBACK = "bootstrap"

#: A metric for rows with a single label.
METRIC = "exact_match(label)"

#: What can be searched in a file that names no optimizer: the reason for an optimizer, and those that can do it, best
#: first. `texts` come before `mixed`: a text that a proposer writes is worth most before examples and settings are
#: fitted to the old one, and `evolve` keeps it while it searches these; one that draws from lists would not. The
#: measurements: docs/benchmarks.md.
OPTIMIZERS = {
    "texts": ("the file names a proposer, which rewrites texts after their failures", ("textgrad", "rewrite")),
    "mixed": ("what the texts leave open is searched together with them", ("evolve",)),
    "search": ("the file has a `search:`", ("optuna", "evolve", "random")),
    "kinds": ("it finds out whether examples, settings, wording or structure pay", ("families",)),
    "demos": ("labelled rows can be shown as examples", (_FALLBACK,)),
}


def choose_optimizers(steps: Sequence[Sequence[str]], known: Collection[str]) -> dict[str, str]:
    """Choose the optimizers for a file that names none, in order. Returns the reason for each, by name.

    steps: what to search, in order, as keys of `OPTIMIZERS`; each step takes the first available one. known: the
    installed and loaded optimizers.
    """
    found = [
        [(name, OPTIMIZERS[key][0]) for key in step for name in OPTIMIZERS[key][1] if name in known] for step in steps
    ]
    return dict(step[0] for step in found if step) or {_FALLBACK: "nothing else is known to fit"}
