"""How many rows a world has, and so what a run in it takes at least."""

ROWS = {"train": 48, "val": 40, "test": 60}
#: Calls of baseline and winner on test.
PROOF = 2 * ROWS["test"]
#: The proof, and the baseline on val.
LEAST_BUDGET = PROOF + ROWS["val"]
