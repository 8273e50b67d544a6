"""Recipes of `sft` and `dpo`: what is learned from, and how it is shown, one paper a file."""
