"""Data of training: rollouts of the study, their tokens as rows, trees of them, and data for `sft` and `dpo`."""
