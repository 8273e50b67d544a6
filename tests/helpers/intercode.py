"""Helpers for tests of the gallery's state machine for SQL: its node, tool and rows, and a policy that plays it."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.scripted import Script, make_workflow, run_rows
from workbench.lm import Request
from workbench.spec import load_spec
from workbench.workflow import ExampleRun

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "workflows"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"tested_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sql = load(FOLDER / "intercode_sql.py")


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


ROWS = read_rows(FOLDER / "data/intercode_sql/questions.jsonl")
BOOKS = [row for row in ROWS if row["db"] == "library"]
NODE = load_spec(FOLDER / "intercode_sql.yaml")[0].nodes["solve"]
WORDS = {name: state["instructions"].strip() for name, state in NODE["states"].items()}


def state_of(request: Request) -> str:
    return next(name for name, words in WORDS.items() if words in request.messages[0]["content"])


def said_before(request: Request) -> list[str]:
    return [m["content"] for m in request.messages if m["role"] == "assistant"]


def play(
    node: dict[str, Any], rows: list[dict[str, Any]], policy: Callable[[Request, dict[str, Any]], str], folder: Path
) -> list[ExampleRun]:
    """A policy that finds the row of its request by the question in it."""
    found = []
    for start in range(0, len(rows), 90):  # the budget of a journal is 1000 calls
        part = rows[start : start + 90]
        asked = {f"question: {r['question']}\ntables: {shown(r['tables'])}": r for r in part}
        script = Script(lambda request, asked=asked: policy(request, asked[request.messages[1]["content"]]))
        found += run_rows(
            make_workflow({"n": node}, FOLDER), part, script, folder / f"{len(found)}-{time.monotonic_ns()}.db"
        )
    return found


def shown(tables: Any) -> str:
    return tables if isinstance(tables, str) else json.dumps(tables, ensure_ascii=False)


def scores(rows: list[dict[str, Any]], outcomes: list[ExampleRun]) -> list[float]:
    return [
        sql.score(row, o.prediction)[0] if o.failure is None else 0.0 for row, o in zip(rows, outcomes, strict=True)
    ]


def ideal(request: Request, row: dict[str, Any]) -> str:
    """A policy that knows the gold query."""
    table = next(iter(row["tables"]))
    return {"observe": f"DESCRIBE {table}", "select": row["gold_sql"], "verify": "submit", "error": row["gold_sql"]}[
        state_of(request)
    ]
