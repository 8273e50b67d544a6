"""`workbench predict`: rows of a file in, rows with answers out; a killed job pays for no row twice."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.helpers.lm_faults import ChatServer
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import LMError, SpecError
from workbench.inference import predict_file
from workbench.lm import Request, Response


def write(folder: Path, server: ChatServer | None = None, **changes: Any) -> Path:
    lm: Any = {"model": "openai/x", "api_base": server.base} if server else "bundled/nano"
    nodes = {"sort": {"predict": "text -> answer"}}
    (folder / "winner.yaml").write_text(yaml.safe_dump({"lm": lm, "nodes": nodes, **changes}))
    return folder / "winner.yaml"


def invoke(*words: object) -> Result:
    """The command, with a database beside the workflow file, which is its first word."""
    database = Path(str(words[0])).with_name("run.db")
    return CliRunner().invoke(cli, ["predict", *map(str, words), "--db", str(database)])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *([str(i), f"row {i},\nof two lines"] for i in range(30))])
    return tmp_path / "in.csv"


def test_friction_27_rows_come_out_with_their_answers_in_their_order(tmp_path: Path, rows: Path) -> None:
    with ChatServer("ok") as server:
        done = invoke(write(tmp_path, server), rows, "--out", tmp_path / "out.jsonl")
    assert done.exit_code == 0 and "30 rows in" in done.output
    found = lines(tmp_path / "out.jsonl")
    assert [row["id"] for row in found] == [str(i) for i in range(30)]
    assert list(found[0]) == ["id", "text", "answer", "failure"] and found[0]["failure"] is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "out.jsonl", "run.db", "winner.yaml"]


def test_csv_out_has_a_column_for_each_field_and_no_formulas(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "=1+1", "n": -3}\n{"text": "plain", "more": [1, "é"]}\n')
    assert invoke(write(tmp_path), tmp_path / "in.jsonl", "--out", tmp_path / "out.csv").exit_code == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert list(first) == ["text", "n", "more", "answer", "failure"]
    assert first["text"] == "'=1+1" and first["n"] == "-3" and second["more"] == '[1, "é"]' and second["n"] == ""


def test_security_14_no_cell_of_csv_out_begins_a_formula_wherever_a_spreadsheet_begins_it(tmp_path: Path) -> None:
    """Siblings of a carriage return: space and line ends before a formula, signs of full width, semicolons."""
    texts = ["\n=1", " =1", "\uff1d1", "\r=1", "a;=1", "\t|x", "-1"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert invoke(write(tmp_path), tmp_path / "in.jsonl", "--out", tmp_path / "out.csv").exit_code == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == [
            *(f"'{text}" for text in texts[:4]),
            "a;=1",
            "'\t|x",
            "-1",
        ]
    assert '"a;=1"' in (tmp_path / "out.csv").read_text()


def test_friction_27_a_row_that_fails_is_written_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{"other": "b"}\n{"text": null}\n')
    done = invoke(write(tmp_path), tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl", "--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["missing"] == {"data": 2}
    assert [row["failure"] for row in lines(tmp_path / "out.jsonl")] == [None, *["data: the row has no text"] * 2]
    (tmp_path / "in.jsonl").write_text('{"text": null}\n')
    assert invoke(write(tmp_path), tmp_path / "in.jsonl", "--out", tmp_path / "o.jsonl").exit_code == 1, "all failed"


@pytest.mark.parametrize("out", ["/proc/answers.csv", "/proc/none/answers.csv"])
def test_an_output_that_cannot_be_made_is_named(tmp_path: Path, rows: Path, out: str) -> None:
    refused = invoke(write(tmp_path), rows, "--out", out).exception
    assert isinstance(refused, SpecError) and out in str(refused) and "Name a file in a folder of yours" in str(refused)


FULL = """
import resource, sys
from workbench.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
main(["predict", *sys.argv[2:]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [500, 400_000])
def test_a_full_disk_is_told_with_the_file_and_the_same_command_continues(
    tmp_path: Path, rows: Path, room: int
) -> None:
    """500 bytes: not even the record of calls fits. 400,000: it is the rows that do not."""
    rows.write_text("id,text,note\n" + "".join(f"{i},row {i},{'x' * 30_000}\n" for i in range(30)))
    command = [str(write(tmp_path)), str(rows), "--out", str(tmp_path / "out.jsonl")]
    database = ["--db", str(tmp_path / "run.db")]
    full = subprocess.run([sys.executable, "-c", FULL, str(room), *command, *database], capture_output=True, text=True)
    assert full.returncode in (1, 2) and "Traceback" not in full.stderr, full.stderr
    name = "run.db" if room == 500 else "out.jsonl cannot be written: File too large"
    assert f"{tmp_path}/{name}" in full.stderr and "Error: " in full.stderr
    assert not (tmp_path / "out.jsonl").exists()
    assert invoke(*command).exit_code == 0 and len(lines(tmp_path / "out.jsonl")) == 30


def test_a_missing_key_is_told_before_the_first_row(
    tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    lm = {"model": "openai/x", "api_key_env": "NO_SUCH_KEY"}
    refused = invoke(write(tmp_path, lm=lm), rows, "--out", tmp_path / "out.jsonl").exception
    assert isinstance(refused, LMError) and "NO_SUCH_KEY" in str(refused)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "winner.yaml"], "nothing was begun"


def test_rows_without_an_input_are_refused_before_any_is_paid(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,words\n1,a\n")
    refused = str(invoke(write(tmp_path), tmp_path / "in.csv", "--out", tmp_path / "out.csv").exception)
    assert "no row of" in refused and "The rows have id, words" in refused


def test_fields_with_the_name_of_an_output_are_kept_beside_it(tmp_path: Path) -> None:
    """The right answers are often among the rows, and must not stand where a failed row has none."""
    (tmp_path / "in.jsonl").write_text('{"text": "a", "answer": "right", "failure": 1}\n{"answer": "right"}\n')
    done = invoke(write(tmp_path), tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl")
    assert "row_answer, row_failure" in done.output
    first, second = lines(tmp_path / "out.jsonl")
    assert first["row_answer"] == second["row_answer"] == "right" and first["row_failure"] == 1
    assert first["answer"] not in (None, "right") and second["answer"] is None


def test_an_output_that_exists_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"text": "a"}\n')
    assert "exists" in str(invoke(write(tmp_path), rows, "--out", rows).exception)
    assert rows.read_text() == '{"text": "a"}\n'
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    assert "--overwrite" in str(invoke(write(tmp_path), rows, "--out", out).exception) and out.read_text() == "old"
    assert invoke(write(tmp_path), rows, "--out", out, "--overwrite").exit_code == 0 and len(lines(out)) == 1


def test_the_same_job_in_a_second_process_is_refused(tmp_path: Path, rows: Path) -> None:
    path, second = write(tmp_path), list[str]()

    def again(done: int, of: int) -> None:
        if done == 3:
            second.append(str(invoke(path, rows, "--out", tmp_path / "out.jsonl").exception))

    predict_file(path, str(rows), tmp_path / "out.jsonl", progress=again, database=tmp_path / "run.db")
    assert "is in use by" in second[0] and len(lines(tmp_path / "out.jsonl")) == 30


def test_rows_without_an_answer_for_want_of_a_server_are_asked_again(tmp_path: Path, rows: Path) -> None:
    """Also when the first of them ended the job; what was answered is not paid again."""
    asked, down = Counter[str](), True

    class Server(Script):
        async def complete(self, request: Request) -> Response:
            text = str(request.messages[-1]["content"])
            asked[text] += 1
            if down and "row 5," in text:
                raise LMError("connection", "refused")
            return Response("a", "stop", 1, 1, 0.25)

    path, server = write(tmp_path, lm={"model": "openai/x", "attempts": 1}), Server(lambda request: "")
    out = tmp_path / "out.jsonl"
    first = predict_file(path, str(rows), out, pool=server, database=tmp_path / "run.db")
    assert first.unanswered == 1 and [bool(row["failure"]) for row in lines(out)].count(True) == 1
    down = False
    second = predict_file(path, str(rows), out, pool=server, database=tmp_path / "run.db")
    assert (first.tokens, first.usd) == (2 * 29, 0.25 * 29) and (second.tokens, second.usd) == (2, 0.25)
    assert (second.earlier, second.unanswered) == (29, 0) and not any(row["failure"] for row in lines(out))
    assert sorted(asked.values()) == [1] * 29 + [2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv", "out.jsonl", "run.db", "winner.yaml"]


def test_a_killed_job_continues_and_pays_for_no_row_twice(tmp_path: Path, rows: Path) -> None:
    out = tmp_path / "out.jsonl"
    with ChatServer("ok", latency=0.03) as server:
        path = write(tmp_path, server)
        words = [sys.executable, "-m", "workbench", "predict", str(path), str(rows), "--out", str(out)]
        words += ["--db", str(tmp_path / "run.db")]
        for done in (6, 15):
            job = subprocess.Popen([*words, "--concurrency", "3"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while server.requests < done and job.poll() is None:
                time.sleep(0.002)
            job.send_signal(signal.SIGKILL)
            job.wait(30)
        assert not out.exists()
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0 and "by an earlier process" in ended.stdout, ended.stderr
        in_flight = 2 * 3  # of which nobody can know whether they were answered
        assert 30 <= server.requests <= 30 + in_flight
    assert [row["id"] for row in lines(out)] == [str(i) for i in range(30)]


def test_answers_behind_an_unfinished_row_are_kept(tmp_path: Path, rows: Path) -> None:
    """Rows are written in their order; those behind a slow one are answered from the journal."""
    asked = Counter[str]()

    class Server(Script):
        broken = True

        async def complete(self, request: Request) -> Response:
            text = str(request.messages[-1]["content"])
            asked[text] += 1
            while self.broken and "row 0," in text:
                await asyncio.sleep(0.01)
                if len(asked) == 12:  # all rows that are begun before the first is done
                    raise LMError("auth", "rejected")
            return Response("a", "stop", 1, 1, 0.0)

    path, server, out = write(tmp_path), Server(lambda request: ""), tmp_path / "out.csv"
    with pytest.raises(LMError):
        predict_file(path, str(rows), out, concurrency=3, pool=server, database=tmp_path / "run.db")
    server.broken = False
    found = predict_file(path, str(rows), out, concurrency=3, pool=server, database=tmp_path / "run.db")
    assert (found.earlier, found.tokens) == (12 - 1, 2 * (30 - (12 - 1)))
    assert sorted(asked.values()) == [1] * 29 + [2], "the first was asked again, and no other"


def test_tools_run_for_each_row_though_rows_are_equal(tmp_path: Path) -> None:
    code = "seen = []\ndef number(text: str) -> int:\n    seen.append(text)\n    return len(seen)\n"
    (tmp_path / "count.py").write_text(code)
    (tmp_path / "in.jsonl").write_text('{"text": "x"}\n' * 3)
    path = write(tmp_path, nodes={"n": {"tool": "python:count.py:number", "output": "number"}})
    done = invoke(path, tmp_path / "in.jsonl", "--out", tmp_path / "out.jsonl", "--concurrency", "1")
    assert done.exit_code == 0
    assert sorted(row["number"] for row in lines(tmp_path / "out.jsonl")) == [1, 2, 3]


def test_a_job_that_was_stopped_leaves_nothing_in_the_output_of_another(tmp_path: Path, rows: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(done: int, of: int) -> None:
        if done == 5:
            raise Stopped

    out, server = tmp_path / "out.jsonl", Script(lambda request: "first")
    path = write(tmp_path, lm={"model": "openai/x"})
    with pytest.raises(Stopped):
        predict_file(path, str(rows), out, pool=server, progress=stop, database=tmp_path / "run.db")
    assert not out.exists()
    write(tmp_path, lm={"model": "openai/x"}, nodes={"sort": {"predict": "text -> answer", "instructions": "Other."}})
    found = predict_file(path, str(rows), out, pool=Script(lambda request: "second"), database=tmp_path / "run.db")
    assert found.earlier == 0 and {row["answer"] for row in lines(out)} == {"second"}


@pytest.mark.parametrize(
    ("source", "out", "message"),
    [
        ("gone.csv", "out.jsonl", "there is no file"),
        ("in.txt", "out.jsonl", "no reader for"),
        ("in.csv", "out.xlsx", "Write .jsonl or .csv"),
        ("in.csv", "nowhere/out.csv", None),
    ],
)
def test_wrong_files_are_named(
    tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, source: str, out: str, message: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("x")
    done = invoke(write(tmp_path), source, "--out", out)
    assert (done.exit_code == 0) if message is None else message in str(done.exception)


def test_a_strangers_workflow_is_asked_about(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_TRUST", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = write(tmp_path, nodes={"n": {"tool": "python:evil.py:f"}})
    assert "not trusted" in str(invoke(path, rows, "--out", tmp_path / "out.csv").exception)
