"""Algorithms and recipes of single papers, a file or folder each. Delete one, and the rest works as before: training
asks `extension.papers` what lies here. A folder with an `optimizer.py` is an optimizer of its own, of the folder's
name.
"""
