"""Self-play: a proposer writes tasks, a solver learns them, and both are trained in turn."""
