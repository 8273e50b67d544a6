"""Commands of child processes."""

from __future__ import annotations

import sys


def python_command(*arguments: str) -> list[str]:
    """Build the command that runs this Python in a child process.

    The current folder is not on the child's path (`-P`): a `json.py` there would be imported in place of Python's own.
    """
    return [sys.executable, "-P", *arguments]
