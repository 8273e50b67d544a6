"""bundled/nano: the small language model that comes with the workbench (numpy only)."""
