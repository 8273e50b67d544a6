"""Three small runs that are finished, with their databases; each is run once in a process and then copied."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers.sqlite import connect
from workbench.lm import LMPool, Request, Response
from workbench.run import Options, optimize
from workbench.store import SCHEMA_VERSION

LABELS = ("a", "b", "c", "d")


class StoredLM(LMPool):
    """The only member of its own pool. asked: the requests received, in order. dead: no request is allowed."""

    identity, concurrency = "stored, no model", 4

    def __init__(self, dead: bool = False):
        super().__init__()
        self.dead, self.asked = dead, list[Request]()

    def get(self, spec: Any) -> Any:
        return self

    async def complete(self, request: Request) -> Response:
        assert not self.dead, f"paid for a call that the journal should answer: {request.messages[-1]}"
        self.asked.append(request)
        return Response(_answer(request), "stop", sum(len(str(m["content"])) for m in request.messages), 2)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 1e-6 * (prompt_tokens + completion_tokens)

    async def aclose(self) -> None:
        pass


def _answer(request: Request) -> str:
    """Better with demos, with the word `carefully`, and in a vote; a sum is right once the tool was asked."""
    whole, last = " ".join(str(m["content"]) for m in request.messages), str(request.messages[-1]["content"])
    draw = int(request.key("stored")[:6], 16) / 16**6
    if thing := re.findall(r"(\w)-thing", last):
        demos = sum(m["role"] == "assistant" for m in request.messages)
        right = LABELS.index(thing[-1])
        wrong = draw >= 0.4 + 0.3 * ("carefully" in whole) + 0.05 * min(demos, 6)
        return LABELS[(right + wrong) % 4]
    if (told := re.findall(r"add\D*(\d+)\s*$", last)) and "carefully" in whole:
        return f"answer: {told[-1]}"
    numbers = [int(n) for n in re.findall(r"\d+", last)]
    if "call:" not in last and "tool" in whole and draw < 0.8 and len(numbers) > 1:
        return "call: " + json.dumps({"tool": "add", "arguments": {"numbers": numbers}})
    return f"answer: {numbers[-1] if numbers else 0}"


def write(name: str, folder: Path) -> Path:
    """Write the files of a run; returns the workflow file."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 12), ("val", 10), ("test", 12)):
        things = [{"text": f"{part} row {i}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]} for i in range(count)]
        sums = [{"question": f"{part} {i + 1} + {2 * i + 3}", "answer": str(3 * i + 4)} for i in range(count)]
        lines = sums if name == "tools" else things
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "adding.py").write_text(
        "def add(numbers: list[int]) -> int:\n    return sum(numbers)\n", encoding="utf-8"
    )
    spec = {
        "name": name,
        "lm": {"model": "openai/stored", "api_base": "http://127.0.0.1:9/v1", "attempts": 2},
        "data": {part: f"{part}.jsonl" for part in ("train", "val", "test")},
        "seed": 3,
        "concurrency": 4,
        "budget": {"calls": 260},
        **_SPECS[name],
    }
    (folder / "workflow.yaml").write_text(json.dumps(spec, indent=1), encoding="utf-8")
    return folder / "workflow.yaml"


_SORT = f"text -> label: Literal{list(LABELS)}"
_SPECS: dict[str, dict[str, Any]] = {
    "bootstrap": {
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": _SORT, "instructions": "Sort it."}},
        "optimize": [{"bootstrap": {"max_demos": 4, "trials": 6, "samples": 2}}],
    },
    "tools": {
        "metric": "numeric(answer)",
        "nodes": {
            "gather": {"tool": "python:adding.py:add", "constants": {"numbers": [1, 2]}, "output": "three"},
            "solve": {
                "agent": "question -> answer",
                "instructions": "Add with the tool.",
                "max_steps": 3,
                "tools": ["python:adding.py:add"],
            },
        },
        "search": {
            "nodes.solve.instructions": ["Add with the tool.", "Add carefully with the tool."],
            "nodes.solve.max_steps": {"int": [2, 3]},
        },
        "optimize": [{"random": {"trials": 5, "race": False}}],
    },
    "structure": {
        "metric": "exact_match(label)",
        "nodes": {
            "note": {"predict": "text -> note", "instructions": "Note it.", "optional": True},
            "sort": {"predict": f"text, note -> label: Literal{list(LABELS)}", "instructions": "Sort it."},
        },
        "optimize": [
            {"mcts": {"rounds": 4, "initial": 4, "surrogate": "none", "edits": ["ensemble", "remove", "reason"]}},
            {"random": {"trials": 1}},
        ],
        "search": {
            "nodes.note": "optional",
            "nodes.sort.instructions": ["Sort it.", "Sort it carefully."],
            "nodes.sort.demos": {"demos": 4},
        },
        "budget": {"calls": 600},
    },
}


@cache
def _dump(name: str) -> str:
    """The database of a finished run, as SQL with `{folder}` for its folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        options = Options(out=str(folder / "out.yaml"))
        optimize(write(name, folder), database=folder / "run.db", pool=StoredLM(), options=options)
        with closing(connect(folder / "run.db")) as database:
            return "\n".join(database.iterdump()).replace(str(folder), "{folder}")


def restore(name: str, folder: Path) -> Path:
    """Write the files of a run and its database, without checksums, to a folder; returns the database."""
    write(name, folder)
    with closing(connect(folder / "run.db")) as database:
        database.executescript(_dump(name).replace("{folder}", str(folder.resolve())))
        database.execute(f"pragma user_version={SCHEMA_VERSION}")
        database.execute("update runs set checksum = null, spec_checksum = null")  # they cover the folder
        for table in ("candidates", "results", "calls"):  # so that what a test changes is taken for what was written
            database.execute(f"update {table} set checksum = null")
        database.commit()
    return folder / "run.db"


#: Leaves a mark in the current folder when it is imported.
PAYLOAD = "open('RAN', 'w').close()\ndef add(numbers: list[int]) -> int:\n    return sum(numbers)\nscore = add\n"


def restore_of_a_stranger(folder: Path) -> Path:
    """Restore a run whose tools and metric are Python that leaves a mark; returns the database."""
    database = restore("tools", folder)
    (folder / "adding.py").write_text(PAYLOAD)
    change(folder, "update runs set file = 'workflow.yaml'")
    change(folder, "update runs set spec = replace(spec, 'numeric(answer)', 'python:adding.py:score')")
    return database


def craft(path: Path, *statements: str) -> None:
    """Change a database without its checksums, as its maker may."""
    writer = connect(path, isolation_level=None)
    for sql in statements:
        writer.execute(sql)
    writer.execute("pragma wal_checkpoint(truncate)")
    writer.close()


def change(folder: Path, sql: str, *values: Any) -> None:
    """Change the database of a folder by one statement with values."""
    database = connect(folder / "run.db", isolation_level=None)
    database.execute(sql, values)
    database.close()
