"""The weights and their passes: log-probabilities, recomputation, splitting, and the memory that they take."""
