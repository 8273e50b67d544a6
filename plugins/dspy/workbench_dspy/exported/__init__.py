"""The modules of an exported DSPy program. `workbench export --format dspy` copies these files."""
