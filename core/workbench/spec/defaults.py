"""What holds where a file says nothing. Nowhere else in core is a plugin named."""

from __future__ import annotations

#: The language model, by the name that its provider gives it.
LM = "bundled/nano"

#: The optimizer that runs when a file names none.
OPTIMIZER = "bootstrap"

#: A metric that reads the one label of a row.
METRIC = "exact_match(label)"
