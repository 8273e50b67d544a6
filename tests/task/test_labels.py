"""A workflow that is shown the right answers is refused before anything is paid for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.run import prepare

ANSWER = {"answer": {"predict": "question -> answer"}}
LEAK = {"answer": {"predict": "question, answer -> reply"}}


def workflow_file(folder: Path, nodes: Any, **spec: Any) -> Path:
    rows = [{"question": f"q{i}", "answer": f"a{i}", "gold": {"text": f"a{i}"}} for i in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"file": "rows.jsonl", **spec.pop("data", {})}
    metric = spec.pop("metric", "exact_match(answer)")
    path = folder / "w.yaml"
    path.write_text(
        json.dumps({"data": data, "metric": metric, "nodes": nodes, "optimize": ["random"], **spec}, indent=1)
    )
    return path


@pytest.mark.parametrize(
    ("nodes", "spec", "reader"),
    [
        (LEAK, {"metric": "exact_match(reply, target=answer)"}, "answer"),
        ({"answer": {"predict": "question, answer -> answer"}}, {}, "answer"),
        (
            {"answer": {"predict": "question, gold -> reply"}},
            {"metric": "exact_match(reply, target=gold.text)"},
            "answer",
        ),
        ({"answer": {"predict": "question, hint -> answer"}}, {"data": {"fields": {"hint": "answer"}}}, "answer"),
        (
            {"answer": {"ensemble": {"predict": "question, answer -> reply"}, "samples": 2}},
            {"metric": "exact_match(reply, target=answer)"},
            "answer",
        ),
        (
            {
                "draft": {"predict": "question -> answer", "optional": True},
                "final": {"predict": "question, answer -> answer"},
            },
            {},
            "final",
        ),
    ],
    ids=["another field", "its own field", "dotted", "renamed", "inside", "where an optional node failed"],
)
def test_a_workflow_that_reads_its_label_is_refused(nodes: Any, spec: Any, reader: str, tmp_path: Path) -> None:
    path = workflow_file(tmp_path, nodes, **spec)
    with pytest.raises(SpecError, match="would be shown the right answer") as caught:
        prepare(path)
    error = caught.value
    assert error.path == ("nodes", reader) and "label_as_input: true" in (error.hint or "")
    assert error.line is not None and f'"{reader}"' in path.read_text().splitlines()[error.line - 1]


def test_validate_and_optimize_say_so_and_pay_nothing(tmp_path: Path) -> None:
    path = workflow_file(tmp_path, LEAK, metric="exact_match(reply, target=answer)")
    for command in ("validate", "optimize"):
        found = CliRunner().invoke(
            cli, [command, str(path), "--db", str(tmp_path / "r.db")][: 2 if command == "validate" else 4]
        )
        assert isinstance(found.exception, SpecError)
    assert not (tmp_path / "r.db").exists()


@pytest.mark.parametrize(
    "search",
    [
        {"nodes.answer.signature": ["question -> answer", "question, answer -> answer"]},
        {"nodes.answer": {"any_of": {"sly": {"predict": "question, answer -> answer"}}}},
    ],
)
def test_what_search_may_choose_is_refused_too(search: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="would be shown the right answer") as caught:
        prepare(workflow_file(tmp_path, ANSWER, search=search))
    assert caught.value.path == ("search", *search)


def test_tasks_whose_label_is_an_input_say_so_in_the_file(tmp_path: Path) -> None:
    nodes = {"edit": {"predict": "question, answer -> answer"}}
    _, _, task, _ = prepare(workflow_file(tmp_path, nodes, data={"label_as_input": True}))
    assert task.inputs == ("question", "answer")


@pytest.mark.parametrize(
    "nodes",
    [
        ANSWER,
        {**ANSWER, "check": {"predict": "question, answer -> answer"}},
        {
            "draft": {"predict": "question -> answer"},
            "final": {"predict": "question, answer -> answer", "optional": True},
        },
    ],
)
def test_what_an_earlier_node_writes_is_no_label(nodes: Any, tmp_path: Path) -> None:
    prepare(workflow_file(tmp_path, nodes))
