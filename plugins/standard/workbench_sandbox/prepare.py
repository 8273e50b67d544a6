"""Prepares Pyodide's Python for one call. It is appended to the text of runner.py, in the same namespace.

The modules imported here are part of the memory image with which every guest starts. `close` removes the guest's access
to JavaScript as a first line; the boundary is Deno's permissions.
"""

import importlib
import json
import os
import random
import sys

for _name in (
    "base64",
    "collections",
    "dataclasses",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "typing",
):
    importlib.import_module(_name)


def close() -> None:
    """Remove access to JavaScript, installed packages and the environment."""
    ours = ("js", "pyodide_js", "pyodide", "_pyodide", "_pyodide_core")
    for name in [*ours, *(n for n in sys.modules if n.partition(".")[0] in ours)]:
        sys.modules[name] = None  # type: ignore[assignment]
    sys.meta_path[:] = [
        f for f in sys.meta_path if "pyodide" not in (getattr(f, "__module__", "") + type(f).__module__)
    ]
    sys.path[:] = [p for p in sys.path if p.startswith("/lib") and "site-packages" not in p]
    os.environ.clear()
    os.chdir("/")
    random.seed(0)  # the same call gives the same result
    sys.setrecursionlimit(1000)


def answer(request: str) -> str:
    """Run a JSON request and return the JSON answer."""
    return json.dumps(run(json.loads(request)))  # type: ignore[name-defined]  # noqa: F821
