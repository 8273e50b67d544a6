"""Defaults for what a file leaves out. No other file of core names a plugin."""

from __future__ import annotations

#: The language model.
LM = "bundled/nano"

#: The optimizer that runs when a file names none.
OPTIMIZER = "bootstrap"

#: A metric for rows with a single label.
METRIC = "exact_match(label)"
