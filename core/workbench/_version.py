"""The version of this program, where what a run stores can read it."""

from __future__ import annotations

__version__ = "0.1.0"
