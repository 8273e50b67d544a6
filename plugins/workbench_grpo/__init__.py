"""Training the weights of a workflow's language model by reinforcement learning."""
