"""The number of rows of a world, and the least budget of a run that follows from it."""

ROWS = {"train": 48, "val": 40, "test": 60}
#: Calls of baseline and winner on test.
PROOF = 2 * ROWS["test"]
#: The proof, and the baseline on val.
MIN_BUDGET = PROOF + ROWS["val"]
#: In place of an optimizer: the file names none, and what it has decides.
DEFAULT = "default"
