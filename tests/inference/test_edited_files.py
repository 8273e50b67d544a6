"""A second load in the same process, as in a notebook, reads the files that nodes name as they are now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench
from workbench.inference import LoadedWorkflow


def load(folder: Path, node: dict[str, object]) -> LoadedWorkflow:
    path = folder / "workflow.yaml"
    data = {"file": "rows.jsonl", "split": {"train": 1, "val": 1, "test": 1}}
    spec = {"name": "n", "lm": "bundled/nano", "data": data, "metric": "exact_match(found)", "nodes": {"look": node}}
    path.write_text(json.dumps({**spec, "optimize": ["random"], "budget": {"calls": 10}}))
    return workbench.load(path)


TOOL = 'def look(query: str) -> str:\n    return "{}"\n'
CORPUS = '{{"id": "a", "text": "where {}"}}\n'
INNER = "nodes:\n  deep: {{code: 'query -> found', source: \"def f(query):\\n    return '{}'\"}}\n"


@pytest.mark.parametrize(
    ("node", "file", "text"),
    [
        ({"tool": "python:tools.py:look", "output": "found"}, "tools.py", TOOL),
        ({"search": "corpus.jsonl", "output": "found"}, "corpus.jsonl", CORPUS),
        ({"workflow": "inner.yaml"}, "inner.yaml", INNER),
    ],
)
def test_an_edited_file_is_read_again(node: dict[str, object], file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"query": "where", "found": "x"}\n' * 3)
    for said in ("east", "west"):
        (tmp_path / file).write_text(text.format(said))
        with load(tmp_path, node) as workflow:
            assert said in str(workflow(query="where").outputs["found"])
