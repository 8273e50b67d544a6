"""Shared code of plugins, in packages: `answers` for reading models' answers, `prompting`, `acting`, `lms`, `logs`,
`searching`, `labels`, `files` for settings that name one, and `dspy_seam`.

Import from a package's public API, but `lms` and `dspy_seam` by file: some of their files import torch or DSPy. Core
imports none of them.
"""
