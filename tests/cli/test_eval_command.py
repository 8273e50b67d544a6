"""`workbench eval` and `compare` on the command line: matrix, gates for continuous integration, and output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.evaluation.conftest import WriteFile, echo, script, scripted, write
from tests.helpers.scripted import Script

from workbench.cli import cli, main
from workbench.errors import LMError
from workbench.evaluation import parse_axis
from workbench.lm import Request, Response

__all__ = ["script", "scripted", "write"]  # fixtures


def invoke(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--db", str(folder / "a.db")])


def last_json(found: Result) -> Any:
    return json.loads(found.stdout.splitlines()[-1])


def test_friction_10_a_matrix_has_a_cell_for_each_combination_and_compares_with_the_first(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(request: Request) -> str:
        word = echo(request)
        known = "Know." in str(request.messages[0]["content"])
        return "label: other" if known and int(word[len("label: w") :]) % 2 else word

    lm = Script(say)
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: lm)
    (tmp_path / "known.txt").write_text("Know.\n")
    axes = ["--matrix", f"nodes.say.instructions=Guess.,@{tmp_path / 'known.txt'}", "--matrix", "lm.max_tokens=50,60"]
    done = invoke(tmp_path, "eval", str(write()), "--split", "all", *axes, "--json")
    assert done.exit_code == 0, done.output
    found = last_json(done)
    assert [c["score"] for c in found["cells"]] == [0.5, 0.5, 1.0, 1.0]
    assert [d["shown"] for d in found["compared"]] == ["", "gain", "gain"]
    assert "nodes.say.instructions=Guess., lm.max_tokens=60" in [c["label"] for c in found["cells"]]
    assert len(invoke(tmp_path, "runs", "list", "--json").stdout.splitlines()) == 1
    assert len(last_json(invoke(tmp_path, "runs", "list", "--json"))) == 4
    told = invoke(tmp_path, "eval", str(write()), "--split", "all", *axes)
    assert "3 against 1: +0.500" in told.stdout and "by Holm's method for 3 comparisons): better" in told.stdout


@pytest.mark.parametrize(
    ("data", "words", "told"),
    [
        ({}, (), True),
        ({}, ("--split", "val"), False),
        ({"split": {"train": 2, "val": 4, "test": 6}}, (), False),
    ],
)
def test_u13_a_third_of_a_file_is_not_scored_silently(
    data: Any, words: tuple[str, ...], told: bool, write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    path = write()
    tree = json.loads(path.read_text())
    tree["data"] = {"file": tree["data"]["file"], **data}
    path.write_text(json.dumps(tree))
    done = invoke(tmp_path, "eval", str(path), *words)
    assert done.exit_code == 0 and ("rows (val); --split all scores all of them" in done.output) == told


def test_the_budget_is_that_of_the_whole_matrix(write: WriteFile, scripted: Script, tmp_path: Path) -> None:
    axes = ["--matrix", "lm.max_tokens=50,60,70", "--budget-calls", "30"]
    done = invoke(tmp_path, "eval", str(write()), *axes, "--json")
    cells = last_json(done)["cells"]
    assert [(c["n"], c["status"]) for c in cells] == [(12, "finished"), (12, "finished"), (6, "budget")]
    assert done.exit_code == 1 and len(scripted.requests) == 30


@pytest.mark.parametrize(("what", "few", "many"), [("calls", "5", "99"), ("tokens", "560", "99999")])
def test_new_user_20_the_line_to_resume_an_eval_raises_the_ceiling_that_ended_it(
    what: str, few: str, many: str, write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    told = invoke(tmp_path, "eval", str(write(budget={"minutes": 9})), f"--budget-{what}", few).stdout
    (line,) = re.findall(rf"\(N: more {what} than now\) with: workbench (resume .*)", told)
    assert f" --budget-{what} N --db " in line and 0 < len(scripted.requests) < 12
    done = CliRunner().invoke(cli, line.replace("N", many).split())
    assert done.exit_code == 0 and "on 12 rows" in done.stdout and len(scripted.requests) == 12


def test_a_cell_sends_nothing_where_those_before_it_used_the_budget_up(
    write: WriteFile, scripted: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the ceiling stands: on the command line, in the file or in the environment."""
    path, axes = write(budget={"calls": 12}), ["--matrix", "lm.max_tokens=50,60"]
    done = invoke(tmp_path, "eval", str(path), *axes, "--json")
    assert [(c["n"], c["status"]) for c in last_json(done)["cells"]] == [(12, "finished"), (0, "budget")]
    assert done.exit_code == 1 and len(scripted.requests) == 12
    monkeypatch.setenv("WORKBENCH_BUDGET_CALLS", "14")
    done = invoke(tmp_path, "eval", str(path), *axes, "--json")
    assert [c["n"] for c in last_json(done)["cells"]] == [12, 2] and len(scripted.requests) == 26


def test_lm_alone_changes_the_model_and_keeps_its_server(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def made(spec: Any) -> Script:
        asked.append((spec.model, spec.api_base))
        return Script(echo)

    monkeypatch.setattr("workbench.lm.pool.make_lm", made)
    assert invoke(tmp_path, "eval", str(write()), "--matrix", "lm=openai/a,openai/b").exit_code == 0
    assert {a for a in asked if a[0] != "openai/scripted"} == {
        (f"openai/{name}", "http://127.0.0.1:9/v1") for name in "ab"
    }


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1,2.5,true", [1, 2.5, True]),
        ("a='x, y',z", ["x, y", "z"]),
        ("a=[1,2],{b: 3}", [[1, 2], {"b": 3}]),
        ("a=openai/x", ["openai/x"]),
    ],
)
def test_the_values_of_an_axis_follow_yaml(text: str, values: list[Any]) -> None:
    assert [value for _, value in parse_axis(text).values] == values


@pytest.mark.parametrize("text", ["lm", "=a", "lm="])
def test_an_axis_without_a_value_is_refused(write: WriteFile, tmp_path: Path, text: str) -> None:
    found = invoke(tmp_path, "eval", str(write()), "--matrix", text)
    assert "is not an axis" in str(found.exception) and not (tmp_path / "a.db").exists()


def test_an_axis_with_a_value_twice_or_without_its_file_is_refused(write: WriteFile, tmp_path: Path) -> None:
    twice = invoke(tmp_path, "eval", str(write()), "--matrix", "lm.max_tokens=50,60,50")
    assert "has the value '50' twice" in str(twice.exception) and not (tmp_path / "a.db").exists()
    nothing = invoke(tmp_path, "eval", str(write()), "--matrix", "nodes.say.instructions=@no.txt,b")
    assert "the file no.txt cannot be read: No such file or directory\n" in str(nothing.exception)


@pytest.mark.parametrize(("bar", "code"), [("0.5", 0), ("0.9", 100)])
def test_friction_25_min_score_decides_the_exit_code(
    write: WriteFile, scripted: Script, tmp_path: Path, bar: str, code: int
) -> None:
    assert invoke(tmp_path, "eval", str(write()), "--split", "all", "--min-score", bar).exit_code == code


def test_friction_25_not_worse_than_compares_row_by_row(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: set[int] = set()

    def say(request: Request) -> str:
        return "label: lost" if int(echo(request)[len("label: w") :]) in wrong else echo(request)

    lm = Script(say)
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: lm)
    words = ["eval", str(write()), "--split", "all"]
    assert invoke(tmp_path, *words).exit_code == 0
    assert invoke(tmp_path, "runs", "tag", "last", "main").exit_code == 0
    same = invoke(tmp_path, *words, "--not-worse-than", "main", "--margin", "0.2", "--json")
    assert same.exit_code == 0 and last_json(same)["not_worse"] is True
    wrong.update(range(0, 20, 2))
    table, gates = tmp_path / "t.md", ("--not-worse-than", "main", "--margin", "0.2", "--min-score", "0.99")
    worse = invoke(tmp_path, *words, *gates, "--markdown", str(table))
    assert worse.exit_code == 100 and "is NOT ruled out" in worse.stdout
    against, below = table.read_text().split("\n\n")[1:]
    assert against.startswith("Against main (0.500): -0.278 ") and against.endswith("the margin is NOT ruled out.")
    assert below.startswith("The score 0.") and below.endswith(" is below --min-score 0.99.\n")
    asked = len(lm.requests)
    missing = invoke(tmp_path, *words, "--not-worse-than", "nothing")
    assert "run 'nothing' is not in" in str(missing.exception) and len(lm.requests) == asked, "before anything is paid"


def test_a_gate_names_the_rows_that_the_earlier_run_has_no_result_of(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = {0, 1}

    def say(request: Request) -> str:
        if int(echo(request)[len("label: w") :]) in down:
            raise LMError("server", "down")
        return echo(request)

    lm = Script(say)
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: lm)
    words = ["eval", str(write()), "--split", "all"]
    assert "2 rows have no result" in invoke(tmp_path, *words).stdout
    down.clear()
    gated = invoke(tmp_path, *words, "--not-worse-than", "last", "--margin", "0.9")
    assert gated.exit_code == 0 and "which count at their worst: 2." in gated.stdout
    again = invoke(tmp_path, *words, "--not-worse-than", "last", "--margin", "0.9")
    assert again.exit_code == 0 and "at their worst" not in again.stdout


def test_a_resumed_evaluation_keeps_its_gate(write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its bar, though `last` is another run by then."""
    down, wrong = set[int](), set[int]()

    def say(request: Request) -> str:
        number = int(echo(request)[len("label: w") :])
        if number in down:
            raise LMError("server", "down")
        return "label: lost" if number in wrong else echo(request)

    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: Script(say))
    words = ["eval", str(write()), "--split", "all"]
    assert invoke(tmp_path, *words).exit_code == 0
    down.add(0)
    wrong.update(range(1, 30))
    for gate, told in ((["--min-score", "0.9"], "below --min-score"), (["--not-worse-than", "last"], "NOT ruled out")):
        cut = invoke(tmp_path, *words, *gate)
        assert cut.exit_code == 1 and "was not held against a gate" in cut.stderr
        down.clear()
        resumed = invoke(tmp_path, "resume", "last")
        assert resumed.exit_code == 100 and told in resumed.output, resumed.output
        down.add(0)
    down.update(range(36))
    assert invoke(tmp_path, *words).exit_code == 1
    bar = invoke(tmp_path, *words, "--not-worse-than", "last")
    assert "has no row with a result, so nothing can be compared with it" in str(bar.exception)


def test_friction_25_junit_and_markdown_hold_the_rows_and_the_table(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = Script(
        lambda request: echo(request) + ("\x00\x1b|<b>" if "w1" in str(request.messages[-1]["content"]) else "")
    )
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: lm)
    junit, table = tmp_path / "ci" / "junit.xml", tmp_path / "table.md"
    words = ["--split", "all", "--junit", str(junit), "--markdown", str(table)]
    done = invoke(tmp_path, "eval", str(write(name="a|b")), *words, "--json")
    suite, report = ElementTree.parse(junit).getroot(), last_json(done)
    failed = round(36 * (1 - report["score"]))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("36", str(failed), "0")
    assert len(suite.findall("testcase/failure")) == failed
    lines = table.read_text().splitlines()
    assert lines[2].startswith(f"| a\\|b | 36 | {report['score']:.3f} |") and lines[0].count("|") == 9


def test_friction_24_json_has_stdout_for_itself_and_progress_is_on_stderr(
    write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    done = invoke(tmp_path, "eval", str(write()), "--json")
    assert len(done.stdout.splitlines()) == 1 and "evaluating val" in done.stderr
    quiet = invoke(tmp_path, "eval", str(write()), "--json", "-q")
    assert quiet.stderr == ""


def test_friction_24_errors_under_json_are_json(
    write: WriteFile, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write(metric="exact_match(labl)")
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(path), "--json", "--db", str(tmp_path / "a.db")])
    said = capsys.readouterr()
    error = json.loads(said.out)
    assert ended.value.code == 2 and error["ok"] is False and "Did you mean 'label'" in error["error"]["hint"]
    assert error["error"]["line"] and error["error"]["kind"] == "SpecError" and "Error:" in said.err


def test_friction_40_verbose_and_the_log_file_tell_every_call(
    write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    done = invoke(tmp_path, "eval", str(write()), "-v", "--log-file", str(log))
    assert len(re.findall(r"(?m)^call \w{8} task .*: stop, ", done.stderr)) == 12
    lines = log.read_text().splitlines()
    assert len([line for line in lines if " call " in line]) == 12
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", line) for line in lines)


@pytest.mark.slow
def test_friction_42_a_closed_pipe_ends_no_run(write: WriteFile, tmp_path: Path) -> None:
    """As with `2>&1 | head -1`: what is paid for goes on to its end, and is stored."""
    path = write(lm="bundled/nano", nodes={"say": {"predict": "word -> label: Literal['other', 'w2']"}})
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "workbench", "eval", str(path), "-v", "--db", str(tmp_path / "a.db")]
    os.close(reader)
    environment = {**os.environ, "WORKBENCH_TRUST": "/"}
    subprocess.run(command, stdout=writer, stderr=writer, env=environment, timeout=60, check=False)
    os.close(writer)
    (run,) = last_json(invoke(tmp_path, "runs", "list", "--json"))
    assert run["status"] == "finished" and run["n"] == 12


def test_friction_7_a_single_row_shows_prompt_answer_score_feedback_and_cost(
    write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    path = write()
    for index in range(12):
        done = invoke(tmp_path, "run", str(path), "--example", str(index))
        if "score 0.000" in done.stdout:
            break
    assert "user: " in done.stdout and "system: " in done.stdout and "  answer: label: w" in done.stdout
    assert re.search(r"score 0.000: expected 'other', got 'w\d+'\n1 calls, 6 tokens, \$0.000000", done.stdout)
    found = last_json(invoke(tmp_path, "run", str(path), "--example", str(index), "--json"))
    assert found["score"] == 0.0 and found["feedback"].startswith("expected 'other'")
    assert found["spans"][0]["calls"][0]["messages"][-1]["role"] == "user" and found["cost"]["calls"] == 1


def test_nu7_a_single_row_tells_what_its_judge_took(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = Script(lambda request: "fine\nscore: 9" if "score:" in str(request.messages) else "label: w1")
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: lm)
    done = invoke(tmp_path, "run", str(write(metric="judge(label)")))
    assert done.stdout.splitlines()[-1].endswith(" s; 2 calls, $0.000000 with those of the metric")
    alone = invoke(tmp_path, "run", str(write()))
    assert alone.stdout.splitlines()[-1].endswith(" s"), "none"


def test_a_field_that_is_given_twice_is_refused(write: WriteFile, scripted: Script, tmp_path: Path) -> None:
    found = invoke(tmp_path, "run", str(write()), "--input", "word=w1", "--input", "word=w2")
    assert found.exit_code == 2 and "given twice" in found.stderr and not scripted.requests


def test_friction_36_show_has_one_row_one_role_and_nothing_else(
    write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    assert invoke(tmp_path, "eval", str(write())).exit_code == 0
    failures = last_json(invoke(tmp_path, "show", "--failures", "--json"))["failures"]
    row = failures[0]
    one = invoke(tmp_path, "show", "last", "--row", row["example"])
    assert row["fields"]["word"] in one.stdout and one.stdout.count("row ") == 1 and "finished" not in one.stdout
    other = invoke(tmp_path, "show", "last", "--row", "nothing")
    assert "has no row 'nothing'" in str(other.exception)
    assert invoke(tmp_path, "show", "last", "--row", row["example"][:12]).stdout == one.stdout, "a prefix is enough"
    task = invoke(tmp_path, "show", "last", "--role", "task")
    assert task.stdout.count("call ") == 12
    none = invoke(tmp_path, "show", "last", "--role", "proposer")
    assert none.exit_code == 2 and "it has: task" in none.stderr


def test_friction_21_labels_out_of_reach_and_empty_fields_are_warned_of(write: WriteFile, tmp_path: Path) -> None:
    path = write(nodes={"say": {"predict": "word -> label: Literal['W2', 'w4']"}})
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    rows[0]["word"] = " "
    rows[3]["label"] = ""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    warnings = last_json(CliRunner().invoke(cli, ["validate", str(path), "--json"]))["warnings"]
    assert "the input 'word' is empty in 1 of 36 rows" in "\n".join(warnings)
    assert "the label 'label' is empty in 1 of 36 rows" in "\n".join(warnings)
    (found,) = [w for w in warnings if "no answer can be right" in w]
    assert "in 35 of 36 rows" in found and "in rows.jsonl:" in found and "{one_of: [w4]}" in found, (
        "all but w4: to exact_match, W2 is another label than w2"
    )
    fits = write(nodes={"say": {"predict": "word -> label"}})
    (down,) = last_json(CliRunner().invoke(cli, ["validate", str(fits), "--json"]))["warnings"]
    assert "Connection refused" in down, "nothing serves its model"


def test_nu6_labels_that_no_answer_can_match_are_told_before_the_first_call(
    write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    path = write(nodes={"say": {"predict": "word -> label: Literal['yes', 'no']"}})
    done = invoke(tmp_path, "eval", str(path))
    begun, told = done.stderr.splitlines()[:2]
    assert begun.endswith("evaluating val") and told.startswith("warning: no answer can be right in 36 of 36 rows")
    assert "no answer can be right" not in done.stdout and scripted.requests, "once is enough"
    assert "\n1 warning and all figures: workbench show " in done.stdout


def test_junit_is_xml_whatever_the_name_of_the_workflow(write: WriteFile, scripted: Script, tmp_path: Path) -> None:
    path = write(name="a\x01<b>")
    assert invoke(tmp_path, "eval", str(path), "--junit", str(tmp_path / "out.xml")).exit_code == 0
    assert ElementTree.parse(tmp_path / "out.xml").getroot().get("name") == "a?<b>.val (workflow.yaml)"


def test_a_run_that_did_not_finish_is_an_error_in_junit_and_markdown(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server never answered, of which the run is named, too."""
    down = {"now": False}

    class Server(Script):
        async def complete(self, request: Request) -> Response:
            if down["now"]:
                raise LMError("connection", "refused")
            return await super().complete(request)

    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: Server(echo))
    junit, table = tmp_path / "junit.xml", tmp_path / "table.md"
    words = ["--junit", str(junit), "--markdown", str(table), "--overwrite"]
    for down["now"], more, of, status in [(False, ["--budget-calls", "5"], 5, "budget"), (True, [], 12, "failed")]:
        done = invoke(tmp_path, "eval", str(write()), *words, *more)
        assert done.exit_code == 1 and "resume" in done.stdout, done.output
        suite = ElementTree.parse(junit).getroot()
        last = suite.findall("testcase")[-1]
        assert (suite.get("tests"), suite.get("errors")) == (str(of + 1), "1" if status == "budget" else "13")
        assert last.get("name") == f"run {done.stdout.split()[2].rstrip(':')}"
        assert [error.get("type") for error in last] == [status]
        assert "did not finish" in table.read_text()
    assert (
        "no score; 12 rows have no result (connection 12)" in done.stdout and "| 0 of 12 | - | - |" in table.read_text()
    )
