"""Code for sandboxes with its required outcomes, the same in all of them."""

from __future__ import annotations

from workbench.runtime import SandboxResult

ORDINARY = """
import collections, datetime, decimal, json, math, random, re, statistics, string
from dataclasses import dataclass

@dataclass
class Point:
    x: float

def f(text):
    words = collections.Counter(re.findall(r"[a-z]+", text.lower()))
    return {
        "top": words.most_common(1)[0], "root": math.sqrt(2), "day": str(datetime.date(2026, 1, 2)),
        "mean": statistics.mean([1, 2]), "point": Point(1.5).x, "sum": str(decimal.Decimal("0.1") * 3),
        "draw": random.random(), "hash": hash("x") % 7,
    }
"""


#: Outcomes of a call of f, equal in every sandbox: source, kind, part of the message.
ENDS = [
    ("def f(): return {'a': [1, 2.5, None, 'ü']}", "ok", ""),
    ("def f(): return 1 / 0", "error", "ZeroDivisionError"),
    ("def f(:", "error", "SyntaxError"),
    ("def f(): return float('nan')", "bad_result", "JSON"),
    ("def f(): return 'x' * 2_000_000", "bad_result", "more than"),
    ("def f(): return f()", "error", "RecursionError"),
    ("def f():\n    import sys\n    sys.exit()", "error", "SystemExit"),
    ("def f():\n    import threading\n    threading.Thread(target=print).start()", "forbidden", "thread"),
]


def check_ordinary(one: SandboxResult, two: SandboxResult) -> None:
    """Two calls of ORDINARY with the same text, in which "the" is the most frequent word."""
    assert one.ok, one.message
    assert one.value["top"] == ["the", 2] and one.value["sum"] == "0.3" and one.value["point"] == 1.5
    assert one.value == two.value, "the same call gives the same result"
