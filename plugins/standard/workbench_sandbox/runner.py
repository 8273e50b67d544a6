"""Runs one function of untrusted source and reports the outcome, inside any of the sandboxes.

It needs only the standard library: the zygote imports it, and Pyodide receives its text.
"""

from __future__ import annotations

import json
import sys
import traceback
import types

NAME = "<source>"
LONGEST_MESSAGE = 2000


def run(request: dict) -> dict:
    """Return the answer to {"source", "function", "arguments"}: kind, and value, message or line."""
    try:
        module = sys.modules["forged"] = types.ModuleType("forged")  # dataclasses look their module up
        exec(compile(request["source"], NAME, "exec"), module.__dict__)
        function = getattr(module, request["function"], None)
        if not callable(function):
            return {"kind": "error", "message": f"the source defines no function '{request['function']}'"}
        value = function(**request["arguments"])
        try:
            return {"kind": "ok", "value": json.loads(json.dumps(value, allow_nan=False))}
        except (TypeError, ValueError, RecursionError) as error:
            return {"kind": "bad_result", "message": f"the result is not JSON: {error}"[:LONGEST_MESSAGE]}
    except MemoryError:
        return {"kind": "memory", "message": "out of memory"}
    except BaseException as error:  # SystemExit and KeyboardInterrupt are the code's own failures, too
        kind = "forbidden" if isinstance(error, PermissionError) or _no_threads(error) else "error"
        return {"kind": kind, "line": _line(error), "message": _describe(error)[:LONGEST_MESSAGE]}
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            pass


def _describe(error: BaseException) -> str:
    """Return the last line of the traceback. For an error in text that the source parsed, as by `eval`, include the
    text."""
    text = error.text if isinstance(error, SyntaxError) and error.filename != NAME else None
    return f"{type(error).__name__}: {error}" + (f" in {text!r}" if text else "")


def _no_threads(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def _line(error: BaseException) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == NAME:
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == NAME]
    return lines[-1] if lines else None
