"""A workflow file of 12 rows in each split, and a scripted model that answers every second row rightly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script

from workbench.lm import Request

WriteFile = Callable[..., Path]


def echo(request: Request) -> str:
    """The word of the row: right where the label is that word, which is so for even rows."""
    return "label: " + re.findall(r"w\d+", str(request.messages[-1]["content"]))[-1]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_file(folder: Path | None = None, **changes: Any) -> Path:
        folder = folder or tmp_path
        folder.mkdir(exist_ok=True)
        rows = [{"word": f"w{i}", "label": f"w{i}" if i % 2 == 0 else "other"} for i in range(36)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec = {
            "name": "echo",
            "data": {"file": "rows.jsonl", "split": {"train": 12, "val": 12, "test": 12}},
            "metric": "exact_match(label)",
            "lm": {"model": "openai/scripted", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
            "nodes": {"say": {"predict": "word -> label"}},
            "optimize": ["random"],
            "budget": {"calls": 500},
            **changes,
        }
        path = folder / "workflow.yaml"
        path.write_text(json.dumps(spec, indent=1))
        return path

    return write_file


@pytest.fixture
def script() -> Script:
    return Script(echo)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The same for commands: every model is this one."""
    lm = Script(echo)
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: lm)
    return lm
