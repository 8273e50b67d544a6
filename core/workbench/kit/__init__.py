"""Shared code of plugins: a shelf, not a machine. Take what you need from its file, e.g. `workbench.kit.acting`.

No room imports it, and its files stand alone (but tools takes mcp and call_parser, and that call_bodies; log_files and
stored_logs read what agent_log holds). All that read what a model says take it from `answers`.
"""
