"""The version of this program, where what a run stores can read it."""

__version__ = "0.1.0"
