"""The modules that an exported DSPy program is made of. `workbench export --format dspy` copies these files."""
