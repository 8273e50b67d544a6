"""Comments from files: rows of runs, logs, texts, and what is said of wrong lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script

from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request
from workbench.store import Store
from workbench_feedback.comments import Comments, read_comments
from workbench_kit.logs import LogStep, stored_logs

WORKFLOW = {
    "name": "own",
    "lm": {"model": "openai/scripted", "attempts": 1},
    "data": {"train": "train.jsonl", "val": "val.jsonl", "test": "test.jsonl"},
    "metric": "exact_match(answer)",
    "nodes": {"plan": {"predict": "question -> idea"}, "answer": {"predict": "question, idea -> answer"}},
}


def write(folder: Path, *lines: Any) -> Path:
    path = folder / "c.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def read(folder: Path, *lines: Any) -> Comments:
    return read_comments(write(folder, *lines), str(folder / "w.db"))


def work(request: Request) -> str:
    said = str(request.messages[-1]["content"])
    return "answer: forty" if "thought" in said else "idea: a thought"


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """A run on val, and one on test."""
    for split in ("train", "val", "test"):
        rows = [{"id": f"r{n}", "question": f"{split} {n}?", "answer": f"secret {n}"} for n in range(6)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "w.yaml").write_text(json.dumps(WORKFLOW))
    for split in ("test", "val"):
        options = EvalOptions(split=split)
        evaluate(tmp_path / "w.yaml", options=options, database=str(tmp_path / "w.db"), pool=Script(work))
    return tmp_path


def ids(folder: Path) -> list[str]:
    store = Store(folder / "w.db")
    found = [r["example"] for r in store.rows("select example from results order by example")]
    store.close()
    return found


def test_a_comment_on_a_row_has_the_steps_of_its_nodes_and_no_label_in_them(evaluated: Path) -> None:
    row = next(i for i in ids(evaluated) if i.startswith("val:"))
    found = read(evaluated, {"run": "last", "row": row, "comment": "too short"})
    (log,) = found.traces
    said = [(step.agent, step.content) for step in log.steps]
    assert said == [
        ("plan", "idea: a thought"),
        ("answer", "answer: forty"),
    ]
    assert "val" in log.question and log.outcome and "secret" not in f"{log.question}{log.outcome}{log.steps}"
    assert found.runs == ("last",) and found.comments[0].place == "c.jsonl:1"


def test_the_end_of_a_rows_id_names_it_too(evaluated: Path) -> None:
    row = next(i for i in ids(evaluated) if i.startswith("val:"))
    short = {"run": "last", "row": row.removeprefix("val:"), "comment": "x"}
    assert read(evaluated, short).traces == read(evaluated, {**short, "row": row}).traces


def test_two_comments_on_one_trace_share_it(evaluated: Path) -> None:
    one, two = [i for i in ids(evaluated) if i.startswith("val:")][:2]
    lines = [{"run": "last", "row": row, "comment": f"number {n}"} for n, row in enumerate([one, two, one])]
    found = read(evaluated, *lines)
    assert [c.trace for c in found.comments] == [0, 1, 0] and len(found.traces) == 2


def test_test_rows_are_sealed(evaluated: Path) -> None:
    store = Store(evaluated / "w.db")
    first = store.row("select run from runs order by id")
    store.close()
    assert first is not None
    row = next(i for i in ids(evaluated) if i.startswith("test:"))
    assert read(evaluated, {"run": first["run"], "row": row, "comment": "x"}).traces[0].sealed


def test_logs_of_other_systems_are_read_from_the_folder(tmp_path: Path) -> None:
    log = {"question": "How many?", "ground_truth": "7", "history": [{"name": "A", "content": "six"}]}
    (tmp_path / "one.json").write_text(json.dumps(log))
    (tmp_path / "two.jsonl").write_text("\n".join(json.dumps({**log, "question": q}) for q in ("first", "second")))
    found = read(
        tmp_path,
        {"log": "one.json", "comment": "wrong"},
        {"log": "two.jsonl", "trace": 1, "comment": "wrong, too"},
        {"log": "two.jsonl", "trace": "two.jsonl#0", "comment": "and this"},
    )
    assert [t.question for t in found.traces] == ["How many?", "second", "first"]
    assert found.traces[0].steps == (LogStep("A", "six"),)


def test_a_text_is_a_step_a_line_and_a_list_names_agents(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {"trace": "look it up\n\nanswer 7\n", "comment": "good"},
        {"trace": ["one", {"agent": "Writer", "content": "two\nlines"}], "comment": "bad"},
    )
    assert found.traces[0].steps == (LogStep("agent", "look it up"), LogStep("agent", "answer 7"))
    assert found.traces[1].steps == (LogStep("agent", "one"), LogStep("Writer", "two\nlines"))


GOOD = {"trace": "x", "comment": "y"}


def test_a_wrong_line_is_named_with_its_number(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (lines, line, said) in enumerate(
        [
            ([GOOD, "{not json"], 2, "not JSON"),
            ([GOOD, "", "[1]"], 3, "not a JSON object"),
            ([{"trace": "x"}], 1, "no text 'comment'"),
            ([{"trace": "x", "comment": " "}], 1, "no text 'comment'"),
            ([{"comment": "y"}], 1, "names no trace"),
            ([{"trace": " ", "comment": "y"}], 1, "'trace' is empty"),
            ([{"trace": [1], "comment": "y"}], 1, "a step of 'trace' is not a text"),
            ([{"run": "last", "comment": "y"}], 1, "no 'row'"),
            ([{"run": ["last"], "row": "1", "comment": "y"}], 1, "'run' is not a name"),
            ([GOOD, {"log": "gone.json", "comment": "y"}], 2, "there is no file"),
            ([{"log": "../gone.json", "comment": "y"}], 1, "lies outside"),
            ([{"trace": "x", "comment": "y", "row": "1"}], 1, "'row' is not known beside 'trace'"),
            ([{"trace": "x", "coment": "y"}], 1, "'coment' is not known.*(?s:.)*Did you mean 'comment'"),
            ([{"log": "a\0b.json", "comment": "y"}], 1, "'log' is not a name"),
            ([{"log": "a.json", "trace": True, "comment": "y"}], 1, "'trace' is not a name"),
        ]
    ):
        with subtests.test(lines=lines):
            folder = tmp_path / str(number)
            folder.mkdir()
            with pytest.raises(SpecError, match=said) as raised:
                read(folder, *lines)
            assert (raised.value.file, raised.value.line) == (str(folder / "c.jsonl"), line)
            assert raised.value.hint


def test_a_log_that_is_no_log_is_named_at_the_line_of_the_comment(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text('{"history": []}')
    with pytest.raises(SpecError, match="'history' is empty") as raised:
        read(tmp_path, GOOD, {"log": "odd.json", "comment": "y"})
    assert raised.value.line == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"run": "nobody", "row": "val:r1"}, "nobody"),
        ({"run": "last", "row": "r99"}, "no row 'r99'"),
        ({"run": "last", "row": "r1", "split": "train"}, "no steps of train rows"),
    ],
)
def test_an_unknown_run_or_row_is_named_at_its_line(evaluated: Path, line: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said) as raised:
        read(evaluated, GOOD, {**line, "comment": "y"})
    assert raised.value.line == 2


def test_an_empty_file_and_none_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="contains no comments"):
        read(tmp_path, "", "  ")
    with pytest.raises(SpecError, match="there is no file"):
        read_comments(tmp_path / "gone.jsonl")
    (tmp_path / "c.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read"):
        read_comments(tmp_path / "c.bin")


def test_a_run_is_read_once_however_many_rows_are_commented_on(
    evaluated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by: list[str] = []
    whole = stored_logs.read_rows

    def counted(store: Any, row: Any, report: Any) -> Any:
        read_by.append(row["run"])
        return whole(store, row, report)

    monkeypatch.setattr(stored_logs, "read_rows", counted)
    rows = [i for i in ids(evaluated) if i.startswith("val:")]
    found = read(evaluated, *({"run": "last", "row": row, "comment": "x"} for row in rows * 2))
    assert len(found.traces) == len(rows) > 1 and len(read_by) == 1
