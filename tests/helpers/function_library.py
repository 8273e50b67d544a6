"""A workflow file with functions to refer to, list, test and serve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOUBLE = {
    "name": "double",
    "description": "twice",
    "source": "def double(x):\n    return 2 * x",
    "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    "example": {"arguments": {"x": 2}, "result": 4},
}
SHOUT = {"name": "shout", "source": "def shout(text):\n    return {'said': text.upper() + '!'}"}
PEEK = {"name": "peek", "source": "def peek():\n    return open('/etc/passwd').read()"}
TOTAL = {
    "code": "numbers: list[int] -> sum: int",
    "source": "def total(numbers):\n    return sum(numbers)",
    "timeout": 2.0,
    "example": {"arguments": {"numbers": [1, 2]}, "result": 3},
}


def write(folder: Path, name: str, nodes: dict[str, Any]) -> Path:
    (folder / "rows.jsonl").write_text('{"question": "a", "numbers": [1], "answer": "b"}\n' * 6)
    (folder / name).write_text(
        json.dumps(
            {
                "name": "w",
                "lm": {"model": "openai/none", "api_base": "http://127.0.0.1:9/v1"},
                "data": {"file": "rows.jsonl"},
                "metric": "exact_match(answer)",
                "nodes": nodes,
            },
            indent=1,
        )
    )
    return folder / name


def write_library(folder: Path) -> Path:
    nodes = {"solve": {"agent": "question -> answer", "functions": [DOUBLE, SHOUT, PEEK]}, "add": TOTAL}
    return write(folder, "library.yaml", nodes)
