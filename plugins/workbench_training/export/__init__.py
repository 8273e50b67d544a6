"""The way out: adapters for a vLLM server, and a recipe for verl."""
