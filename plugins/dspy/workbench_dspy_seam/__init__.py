"""The seam to DSPy: all code that depends on its version is in this folder, for 3.4 and for 3.5.

programs.py: adapters, prompts, engines and optimizers. Exported programs contain a copy.
clients.py: its native client of language models.

The contract of 3.5 is that of two guides of DSPy's documentation: "The DSPy LM contract (3.5)"
(docs/docs/community/normalized-lm-api-migration.md) and "Upgrading from DSPy 3.4.1 to 3.5"
(dspy.ai/current/community/upgrading-to-3-5). The job `newest` runs the tests with it.
"""
