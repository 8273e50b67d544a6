"""Shared code of plugins, in drawers: `answers` for all that a model says, `prompting`, `acting`, `lms`, `logs`,
`searching`, `labels`, and `dspy_seam`.

A drawer is entered by its face, but `lms` and `dspy_seam` are taken by file: some of their files import torch or DSPy.
No room imports any of them.
"""
