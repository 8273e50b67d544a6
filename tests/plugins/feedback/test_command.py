"""`workbench data induce`: what it writes and prints, what it refuses, and what the budget means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.helpers.planted_comments import plant, rules, write_world
from tests.helpers.scripted import Script

from workbench.cli import cli, main
from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench_feedback import induce as induction
from workbench_feedback.metrics_file import read_metrics


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The model of the command is a function."""
    script = rules()
    monkeypatch.setattr(induction, "LMPool", lambda: script)
    monkeypatch.delenv("WORKBENCH_LM", raising=False)
    return script


def run(folder: Path, *arguments: str) -> Result:
    given = ["data", "induce", str(folder / "comments.jsonl"), "--out", str(folder / "metrics.yaml")]
    return CliRunner().invoke(cli, [*given, "--db", str(folder / "w.db"), *arguments])


def test_it_writes_a_file_and_says_what_the_metrics_cover(scripted: Script, tmp_path: Path) -> None:
    write_world(plant(3), tmp_path)
    done = run(tmp_path, "--lm", "openai/m")
    assert done.exit_code == 0, done.output
    assert {metric.name for metric in read_metrics(tmp_path / "metrics.yaml")} == {"stock", "manners", "price"}
    for said in ("coverage    1.00 [", "redundancy  0.", "control     coverage 0.", "aspects dropped: their quote"):
        assert said in done.stdout
    assert "3 metrics: coverage" in done.stderr and "Use it with metric: {induced: metrics.yaml}" in done.stdout
    kept = yaml.safe_load((tmp_path / "metrics.yaml").read_text())["induced"]
    assert kept["lm"] == "openai/m" and kept["held_out"]["coverage"] == 1.0 and kept["settings"]["seed"] == 0
    assert [trial["metrics"] for trial in kept["tried"]] == [2, 3, 4, 5, 6, 7, 8]


def test_the_json_ends_with_one_object(scripted: Script, tmp_path: Path) -> None:
    write_world(plant(3, traces=10), tmp_path)
    done = run(tmp_path, "--lm", "openai/m", "--json", "--max-metrics", "3", "--clustering", "tfidf")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["out"] == str(tmp_path / "metrics.yaml") and found["stopped"] is None
    assert len(found["metrics"]) in (2, 3) and found["paid"]["calls"] == len(scripted.requests)
    assert found["settings"]["clustering"] == "tfidf" and "requests" not in done.stderr


def test_a_budget_that_ends_writes_nothing_exits_with_1_and_goes_on(scripted: Script, tmp_path: Path) -> None:
    write_world(plant(3, traces=10), tmp_path)
    cut = run(tmp_path, "--lm", "openai/m", "--budget-calls", "30")
    assert cut.exit_code == 1 and not (tmp_path / "metrics.yaml").exists()
    assert "The budget ran out" in cut.stderr and "--budget-calls" in cut.stderr
    assert len(scripted.requests) == 30
    whole = run(tmp_path, "--lm", "openai/m")
    assert whole.exit_code == 0 and (tmp_path / "metrics.yaml").exists()
    assert f"Paid now: {len(scripted.requests) - 30} calls" in whole.stdout


def test_a_dry_run_asks_nobody_and_names_no_model(scripted: Script, tmp_path: Path) -> None:
    write_world(plant(3, traces=10), tmp_path)
    done = run(tmp_path, "--dry-run")
    assert done.exit_code == 0 and done.stdout.startswith("20 comments on 10 traces: at most ")
    most = json.loads(run(tmp_path, "--dry-run", "--json").stdout)["calls"]
    assert not scripted.requests and not (tmp_path / "w.db").exists()
    assert run(tmp_path, "--lm", "openai/m").exit_code == 0 and len(scripted.requests) <= most


def test_metrics_that_were_edited_are_not_written_over(scripted: Script, tmp_path: Path) -> None:
    write_world(plant(3, traces=10), tmp_path)
    assert run(tmp_path, "--lm", "openai/m").exit_code == 0
    assert run(tmp_path, "--lm", "openai/m", "--max-metrics", "3").exit_code == 0, "its own file it may replace"
    path, asked = tmp_path / "metrics.yaml", len(scripted.requests)
    for edited in (
        path.read_text().replace("definition: ", "definition: My ", 1),
        "- mine\n",
        "metrics: [{name: a, definition: b}]\n",
    ):
        path.write_text(edited)
        done = run(tmp_path, "--lm", "openai/m", "--max-metrics", "4")
        assert "not written by this command, or edited" in str(done.exception) and path.read_text() == edited
    assert len(scripted.requests) == asked, "it is refused before anything is paid"


def test_dollars_without_a_price_are_refused_by_the_name_of_the_flag(
    scripted: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_world(plant(3, traces=10), tmp_path)
    monkeypatch.setattr(scripted, "price", lambda prompt_tokens, completion_tokens: None)
    done = run(tmp_path, "--lm", "openai/m", "--budget-usd", "1")
    assert "--budget-usd cannot be kept: the price of" in str(done.exception) and not scripted.requests
    assert isinstance(done.exception, SpecError) and "instead of --budget-usd" in str(done.exception.hint)


def test_a_dry_run_refuses_what_the_command_refuses(scripted: Script, tmp_path: Path) -> None:
    write_world(plant(3, traces=10), tmp_path)
    done = run(tmp_path, "--dry-run", "--min-metrics", "5", "--max-metrics", "2")
    assert "the fewest metrics (5) are more than the most (2)" in str(done.exception)


def test_metrics_that_match_any_trace_are_called_so(
    scripted: Script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All traces show the same, and get the same comments."""
    line = {"comment": "I like the stock shelf"}
    lines = [{"trace": [f"begin {n}", "well done: stock shelf"], **line} for n in range(8)]
    (tmp_path / "comments.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = run(tmp_path, "--lm", "openai/m")
    assert done.exit_code == 0 and "do not tell traces apart" in done.stdout


WORKFLOW: dict[str, Any] = {
    "name": "own",
    "lm": {"model": "openai/scripted", "attempts": 1},
    "data": {"train": "rows.jsonl", "val": "rows.jsonl", "test": "more.jsonl"},
    "metric": "exact_match(answer)",
    "nodes": {"answer": {"predict": "question -> answer"}},
}


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    for name, start in (("rows", 0), ("more", 50)):
        rows = [{"id": n + start, "question": f"number {n + start}?", "answer": "no"} for n in range(8)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "w.yaml").write_text(json.dumps(WORKFLOW))
    pool = Script(lambda request: "answer: well done stock shelf")
    for split in ("test", "val"):
        evaluate(tmp_path / "w.yaml", options=EvalOptions(split=split), database=str(tmp_path / "w.db"), pool=pool)
    return tmp_path


def comment_rows(folder: Path, split: str, run: str = "last") -> None:
    from workbench.store import Store

    store = Store(folder / "w.db")
    ids = [r["example"] for r in store.rows("select example from results") if r["example"].startswith(f"{split}:")]
    store.close()
    lines = [{"run": run, "row": i, "comment": "I like the stock shelf"} for i in ids]
    (folder / "comments.jsonl").write_text("\n".join(map(json.dumps, lines)))


def test_comments_on_a_run_are_read_by_the_model_of_its_file(scripted: Script, evaluated: Path) -> None:
    comment_rows(evaluated, "val")
    done = run(evaluated)
    assert done.exit_code == 0, done.output
    assert set(scripted.models) == {"openai/scripted"}
    metric = read_metrics(evaluated / "metrics.yaml")[0]
    assert metric.name == "stock" and metric.good[0].trace and metric.good[0].trace.startswith("last/val:")


def test_comments_on_sealed_rows_are_warned_of(scripted: Script, evaluated: Path) -> None:
    from workbench.store import Store

    store = Store(evaluated / "w.db")
    first = store.row("select run from runs order by id")
    store.close()
    assert first is not None
    comment_rows(evaluated, "test", first["run"])
    assert "cannot be proved on them" in run(evaluated).stderr
    comment_rows(evaluated, "val")
    assert "cannot be proved on them" not in run(evaluated).stderr


def test_a_model_that_only_an_untrusted_run_names_is_not_asked(
    scripted: Script, evaluated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = {"model": "openai/judge", "api_base": "https://collect.example/v1", "api_key_env": "SECRET"}
    (evaluated / "w.yaml").write_text(json.dumps({**WORKFLOW, "roles": {"proposer": elsewhere}}))
    pool = Script(lambda request: "answer: well done stock shelf")
    evaluate(evaluated / "w.yaml", options=EvalOptions(), database=str(evaluated / "w.db"), pool=pool)
    comment_rows(evaluated, "val")
    monkeypatch.delenv("WORKBENCH_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(evaluated / "config"))
    with pytest.raises(SystemExit) as ended:
        main(["data", "induce", str(evaluated / "comments.jsonl"), "--db", str(evaluated / "w.db")])
    assert ended.value.code == 2 and "is not trusted yet" in capsys.readouterr().err
    assert not scripted.requests


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone.jsonl"], "there is no file gone.jsonl"),
        (["empty.jsonl"], "empty.jsonl contains no comments"),
        (["bad.jsonl"], "bad.jsonl:2: not JSON"),
        (["good.jsonl"], "no language model is named"),
        (["good.jsonl", "--api-base", "http://127.0.0.1:1/v1"], "--api-base needs --lm"),
        (["good.jsonl", "--lm", "opnai/m"], "Did you mean 'openai/m'"),
        (["good.jsonl", "--lm", "openai/m", "--min-metrics", "5", "--max-metrics", "2"], "the fewest metrics (5)"),
        (["good.jsonl", "--lm", "openai/m", "--out", "gone.txt/x/y.yaml"], "--out"),
        (["good.jsonl", "--lm", "openai/m", "--held-out", "1"], "--held-out"),
    ],
)
def test_a_wrong_argument_is_answered_with_what_to_write(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORKBENCH_LM", raising=False)
    (tmp_path / "gone.txt").write_text("")
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "good.jsonl").write_text('{"trace": "x", "comment": "y"}\n')
    (tmp_path / "bad.jsonl").write_text('{"trace": "x", "comment": "y"}\n{"trace": "x"\n')
    with pytest.raises(SystemExit) as ended:
        main(["data", "induce", *arguments])
    assert ended.value.code == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "workbench.db").exists()


def test_text_of_comments_and_of_the_model_cannot_forge_lines(scripted: Script, tmp_path: Path) -> None:
    def forge(request: Any) -> str:
        said = rules().say(request)
        if "Make one metric" in str(request.messages):
            return json.dumps({"name": "stock\x1b[2J", "definition": "About stock.\nRun x. Paid now: 0 calls"})
        return said if isinstance(said, str) else said.text

    scripted.say = forge
    write_world(plant(3, traces=8), tmp_path)
    done = run(tmp_path, "--lm", "openai/m")
    assert done.exit_code == 0 and "\x1b" not in done.stdout
    assert sum(line.startswith("Run ") for line in done.stdout.splitlines()) == 1
