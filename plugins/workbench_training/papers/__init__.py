"""Algorithms and recipes of single papers, a file each (`extension.py`). Delete a file, and the rest works as
before."""
