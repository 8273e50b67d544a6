"""An evaluation is a run: its rows, answers, scores and prompts are stored, and it is resumed."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.conftest import WriteFile, echo
from tests.helpers.scripted import Script

from workbench.errors import LMError, SpecError, StoreError
from workbench.evaluation import EvalOptions, evaluate, failed_rows, read_rows, resume_evaluation, row_details
from workbench.lm import Request, Response
from workbench.run import resume
from workbench.store import Store, read_report

ROOT = str(Path(__file__).parents[2])  # pytest does not put it on the path


def stored(database: Path, run: str = "last") -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    store = Store(database)
    try:
        row = store.find_run(run)
        report = read_report(row)
        return row, report or {}, read_rows(store, row, report)
    finally:
        store.close()


def test_friction_8_an_eval_keeps_its_rows_with_predictions_scores_and_prompts(
    write: WriteFile, script: Script, tmp_path: Path
) -> None:
    report = evaluate(write(), database=tmp_path / "a.db", pool=script)
    assert (report.n, report.of, report.split, report.status) == (12, 12, "val", "finished")
    row, _, rows = stored(tmp_path / "a.db")
    assert len(rows) == 12 and report.score == statistics.mean(r["score"] for r in rows)
    for one in rows:
        assert one["prediction"] == {"label": one["fields"]["word"]}
        assert one["score"] == (one["fields"]["word"] == one["fields"]["label"])
        assert one["cost"]["calls"] == 1 and one["feedback"] == (
            None if one["score"] else f"expected 'other', got '{one['fields']['word']}'"
        )
    store = Store(tmp_path / "a.db")
    try:
        wrong = failed_rows(store, row, read_report(row))
        assert {r["example"] for r in wrong} == {r["example"] for r in rows if r["score"] == 0}
        (details,) = row_details(store, row, read_report(row), rows[0]["example"])
        (call,) = details["spans"][0]["calls"]
        sent = [r for r in script.requests if rows[0]["fields"]["word"] in str(r.messages[-1]["content"]).split()]
        assert call["messages"] == [dict(m) for m in sent[0].messages], "the prompt as it was sent"
        assert call["text"] == f"label: {rows[0]['fields']['word']}"
    finally:
        store.close()


def test_friction_13_a_budget_that_ends_gives_a_partial_score_and_resume_pays_the_rest(
    write: WriteFile, script: Script, tmp_path: Path
) -> None:
    database = tmp_path / "a.db"
    first = evaluate(write(budget={"calls": 5}, concurrency=2), database=database, pool=script)
    assert first.status == "budget" and 0 < first.n <= 5 and first.of == 12 and not first.complete
    assert len(stored(database)[2]) == first.n
    assert first.lines()[-1].endswith(f"workbench resume {first.run} --budget-calls N --db {database}")
    asked = len(script.requests)
    done = resume_evaluation(first.run, options=EvalOptions([("budget.calls", 100)]), database=database, pool=script)
    assert done.complete and done.n == 12 and done.run == first.run
    assert len(script.requests) == 12 and asked == 5, "no call is paid twice"
    assert done.score == evaluate(write(), database=tmp_path / "b.db", pool=Script(echo)).score


@pytest.mark.slow
def test_a_killed_eval_goes_on_where_it_was(write: WriteFile, tmp_path: Path) -> None:
    """SIGKILL in the middle: what was answered is not asked again, and the score is that of an eval in one piece."""
    path = write(concurrency=1)
    code = f"""
import asyncio, sys
sys.path.insert(0, {ROOT!r})
from tests.evaluation.conftest import echo
from tests.helpers.scripted import Script
from workbench.evaluation import evaluate
class Slow(Script):
    async def complete(self, request):
        print("asked", flush=True)
        await asyncio.sleep(0.1)
        return await super().complete(request)
evaluate({str(path)!r}, database={str(tmp_path / "a.db")!r}, pool=Slow(echo))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    kept = len(stored(tmp_path / "a.db")[2])
    assert 3 <= kept <= 5, "rows are stored as they are scored"
    script = Script(echo)
    done = resume_evaluation("last", database=tmp_path / "a.db", pool=script)
    assert done.complete and done.n == 12 and len(script.requests) <= 12 - kept + 1
    assert any("1 more were in flight at a kill, outcome unknown" in line for line in done.lines()), "security 15"


def test_friction_6_a_metric_that_raises_ends_the_eval_with_its_traceback_and_can_be_corrected(
    write: WriteFile, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "metric.py").write_text("def score(example, prediction):\n    return 1 / 0\n")
    path = write(metric="python:metric.py:score", concurrency=1)
    with pytest.raises(
        SpecError, match=r"(?s)the metric failed on each of the first 5 rows: ZeroDivisionError.*line 2"
    ):
        evaluate(path, database=tmp_path / "a.db", pool=script)
    row, report, _ = stored(tmp_path / "a.db")
    assert row["status"] == "failed" and "ZeroDivisionError" in report["error"]
    (tmp_path / "metric.py").write_text("def score(example, prediction):\n    return 1.0\n")
    asked = len(script.requests)
    done = resume_evaluation("last", database=tmp_path / "a.db", pool=script)
    assert done.score == 1.0 and len(script.requests) == 12 and asked < 12, "only the rest is paid"
    assert any("has changed since" in warning for warning in done.warnings)


def test_a_metric_that_raises_on_each_of_a_few_rows_ends_the_eval_too(
    write: WriteFile, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "metric.py").write_text("def score(example, prediction):\n    return 1 / 0\n")
    (tmp_path / "few.jsonl").write_text('{"word": "w1", "label": "x"}\n{"word": "w2", "label": "x"}\n')
    with pytest.raises(SpecError, match="failed on each of the first 2 rows: ZeroDivisionError"):
        evaluate(
            write(metric="python:metric.py:score", data={"val": "few.jsonl"}), database=tmp_path / "a.db", pool=script
        )


def test_rows_that_changed_are_not_evaluated_under_an_old_run(write: WriteFile, script: Script, tmp_path: Path) -> None:
    first = evaluate(write(budget={"calls": 3}), database=tmp_path / "a.db", pool=script)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"word": "w99", "label": "w99"}\n')
    with pytest.raises(StoreError, match="data of run .* have changed"):
        resume_evaluation(first.run, database=tmp_path / "a.db", pool=script)


def test_an_eval_is_no_run_of_optimize(write: WriteFile, script: Script, tmp_path: Path) -> None:
    evaluate(write(), database=tmp_path / "a.db", pool=script)
    with pytest.raises(StoreError, match=r"\(eval\) cannot be resumed: it is not a run of optimize"):
        resume("last", database=tmp_path / "a.db")


def test_a_score_whose_interval_is_of_another_mean_says_so(write: WriteFile, script: Script, tmp_path: Path) -> None:
    file = write(data={"test": "rows.jsonl"})
    plain = evaluate(file, options=EvalOptions(split="test"), database=tmp_path / "a.db", pool=script)
    assert plain.grouped is None and "interval is of" not in plain.headline()
    (tmp_path / "rows.jsonl").write_text('{"word": "w2", "label": "w2"}\n' * 9 + '{"word": "w1", "label": "other"}\n')
    copies = evaluate(file, options=EvalOptions(split="test"), database=tmp_path / "a.db", pool=script)
    assert (copies.score, copies.grouped) == (0.9, {"n": 2, "score": 0.5})
    assert copies.headline().endswith("on 10 rows; the interval is of 0.500, the mean over 2 clusters of rows")


def test_a_resumed_eval_asks_for_the_rows_again_that_got_no_answer(write: WriteFile, tmp_path: Path) -> None:
    class Server(Script):
        down = True

        async def complete(self, request: Request) -> Response:
            if self.down and "w14" in str(request.messages):
                raise LMError("server", "no room")
            return await super().complete(request)

    script = Server(echo)
    first = evaluate(write(), database=tmp_path / "a.db", pool=script)
    assert (first.n, first.missing, len(script.requests)) == (11, {"server": 1}, 11)
    assert f"Ask again for these with: workbench resume {first.run}" in "\n".join(first.lines())
    script.down = False
    second = resume_evaluation(first.run, database=tmp_path / "a.db", pool=script)
    assert (second.n, second.missing, len(script.requests)) == (12, {}, 12)
    assert "Ask again" not in "\n".join(second.lines())


def test_an_eval_that_nobody_answered_raises_and_asks_again_when_resumed(write: WriteFile, tmp_path: Path) -> None:
    def dead(request: Request) -> str:
        raise LMError("connection", "refused")

    with pytest.raises(LMError, match="none of the 12 rows was answered"):
        evaluate(write(), database=tmp_path / "a.db", pool=Script(dead))
    assert stored(tmp_path / "a.db")[0]["status"] == "failed"
    assert resume_evaluation("last", database=tmp_path / "a.db", pool=Script(echo)).n == 12


def test_several_metrics_are_shown_and_the_first_decides(write: WriteFile, script: Script, tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(
        "def length(example, prediction):\n    return len(prediction['label']) / 10\n\n\n"
        "def picky(example, prediction):\n    if example['label'] == 'other':\n        raise KeyError('other')\n"
        "    return 1.0\n"
    )
    names = ["exact_match(label)", "python:more.py:length", "python:more.py:picky"]
    report = evaluate(write(metric=names), database=tmp_path / "a.db", pool=script)
    _, _, rows = stored(tmp_path / "a.db")
    assert report.score == statistics.mean(r["score"] for r in rows) and list(report.scores) == names[1:]
    assert report.scores[names[1]] == pytest.approx(statistics.mean(len(r["prediction"]["label"]) / 10 for r in rows))
    right = [r for r in rows if r["fields"]["label"] != "other"]
    assert report.scores[names[2]] == 1.0 and all((r["scores"][names[2]] == 1.0) == (r in right) for r in rows)
    assert not report.failures and any("KeyError" in w and names[2] in w for w in report.warnings)


def test_the_first_of_several_metrics_is_that_of_a_single_one(write: WriteFile, tmp_path: Path) -> None:
    alone = evaluate(write(), database=tmp_path / "a.db", pool=Script(echo))
    listed = evaluate(
        write(metric=["exact_match(label)", "exact_match(label)"]), database=tmp_path / "a.db", pool=Script(echo)
    )
    assert listed.score == alone.score and listed.scores == {"exact_match(label) #2": alone.score}


def test_repeats_tell_the_variance_within_a_row_from_that_between_rows(write: WriteFile, tmp_path: Path) -> None:
    """Against the sums of squares by hand: rows that are always right, never right, and right in two of three."""

    def sometimes(request: Request) -> str:
        word = int(echo(request)[len("label: w") :])
        replica = request.replica // 1000
        return f"label: w{word}" if word % 3 == 0 or (word % 3 == 1 and replica < 2) else "label: wrong"

    path = write(
        metric="python:metric.py:score", nodes={"say": {"predict": "word -> label", "decoding": {"temperature": 1.0}}}
    )
    (tmp_path / "metric.py").write_text(
        "def score(example, prediction):\n    return prediction['label'] == example['word']\n"
    )
    script = Script(sometimes)
    report = evaluate(path, options=EvalOptions(repeats=3), database=tmp_path / "a.db", pool=script)
    assert len(script.requests) == 36 and report.repeats == 3 and report.n == 12
    _, _, rows = stored(tmp_path / "a.db")
    by_row = {r["example"]: [s["score"] for s in rows if s["example"] == r["example"]] for r in rows}
    assert len(rows) == 36 and all(len(scores) == 3 for scores in by_row.values())
    within = statistics.mean(statistics.variance(scores) for scores in by_row.values())
    between = statistics.variance([statistics.mean(scores) for scores in by_row.values()]) - within / 3
    assert report.variance is not None and within > 0
    assert report.variance == pytest.approx({"within": within, "between": between})


def test_rows_with_the_same_inputs_are_one_unit_of_the_interval(
    write: WriteFile, script: Script, tmp_path: Path
) -> None:
    lines = [f'{{"word": "w{i}", "label": "w{i // 2 * 2}"}}\n' for i in range(6)]
    (tmp_path / "few.jsonl").write_text("".join(lines))
    (tmp_path / "same.jsonl").write_text("".join(lines * 10))
    few, same = (
        evaluate(write(data={"val": f"{name}.jsonl"}), database=tmp_path / "a.db", pool=script)
        for name in ("few", "same")
    )
    assert (few.n, same.n) == (6, 60) and same.score == few.score == 0.5 and same.ci95 == few.ci95


def test_repeats_that_draw_nothing_anew_are_told(write: WriteFile, script: Script, tmp_path: Path) -> None:
    report = evaluate(write(), options=EvalOptions(repeats=2), database=tmp_path / "a.db", pool=script)
    assert len(script.requests) == 12 and any("temperature 0" in w for w in report.warnings)


@pytest.mark.parametrize(
    ("data", "split", "n"),
    [
        ("rows.jsonl", "all", 36),
        ({"test": "rows.jsonl"}, None, 36),
        ({"val": "rows.jsonl"}, None, 36),
        ({"file": "rows.jsonl", "split": {"train": 12, "val": 12, "test": 12}}, "train", 12),
    ],
)
def test_friction_26_one_file_is_enough_to_evaluate(
    write: WriteFile, script: Script, tmp_path: Path, data: Any, split: str | None, n: int
) -> None:
    report = evaluate(write(data=data), options=EvalOptions(split=split), database=tmp_path / "a.db", pool=script)
    assert report.n == n and not report.warnings


def test_data_of_one_split_are_refused_by_optimize_with_the_line(write: WriteFile, tmp_path: Path) -> None:
    from workbench.run import optimize

    with pytest.raises(SpecError, match=r"workflow.yaml:3:2.*optimize needs rows of val.* none of val"):
        optimize(write(data={"test": "rows.jsonl"}), database=tmp_path / "a.db")
    assert not (tmp_path / "a.db").exists()


def test_a_split_without_rows_names_those_that_have_some(write: WriteFile, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"train has no rows\n.*--split: val"):
        evaluate(write(data={"val": "rows.jsonl"}), options=EvalOptions(split="train"), database=tmp_path / "a.db")


@pytest.mark.slow
def test_ctrl_c_ends_an_eval_with_what_is_there(write: WriteFile, tmp_path: Path) -> None:
    """Friction 12: it says how far it was, and how to go on."""
    path = write()
    server = tmp_path / "run.py"
    server.write_text(
        f"import asyncio, signal, sys\nsys.path.insert(0, {ROOT!r})\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tests.evaluation.conftest import echo\nfrom tests.helpers.scripted import Script\n"
        "class Slow(Script):\n    async def complete(self, request):\n        await asyncio.sleep(0.5)\n"
        "        return await super().complete(request)\n"
        "import workbench.lm.pool\nlm = Slow(echo)\nworkbench.lm.pool.make_lm = lambda spec: lm\n"
        f"from workbench.cli import main\nmain(['eval', {str(path)!r}, '--set', 'concurrency=1', '--db', 'a.db'])\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(server)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60  # of a machine that is busy
    while time.monotonic() < until and process.poll() is None:
        time.sleep(0.1)
        with suppress(StoreError):  # there is no run yet
            if (tmp_path / "a.db").exists() and len(stored(tmp_path / "a.db")[2]) >= 2:
                break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "eval interrupted" in out and "workbench resume" in out
    assert stored(tmp_path / "a.db")[1]["n"] >= 2


def looks(database: Path) -> list[str]:
    """The sealed rows that the database knows to have been looked at."""
    store = Store(database)
    try:
        assert [r["n"] for r in store.rows("select n from sealed_tests")] in ([], [_count(store)])
        return [r["row"] for r in store.rows("select row from sealed_test_rows")]
    finally:
        store.close()


def _count(store: Store) -> int:
    row = store.row("select count(*) as n from sealed_test_rows")
    assert row is not None
    return row["n"]


@pytest.mark.slow
def test_a_look_at_sealed_rows_is_stored_with_each_row_so_that_no_kill_hides_it(
    write: WriteFile, tmp_path: Path
) -> None:
    path = write(concurrency=1)
    code = f"""
import os, sys
sys.path.insert(0, {ROOT!r})
from tests.evaluation.conftest import echo
from tests.helpers.scripted import Script
from workbench.evaluation import EvalOptions, evaluate
asked = []
def dies(request):
    asked.append(request)
    if len(asked) > 6:
        os.kill(os.getpid(), 9)
    return echo(request)
evaluate({str(path)!r}, options=EvalOptions(split="test"), database={str(tmp_path / "a.db")!r}, pool=Script(dies))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    database = tmp_path / "a.db"
    assert len(looks(database)) == len(stored(database)[2]) >= 5
    resume_evaluation("last", database=database, pool=Script(echo))
    assert len(looks(database)) == 12, "one test, of all rows"


@pytest.mark.parametrize(("split", "seen"), [("train", 12), ("val", 12), ("test", 12), ("all", 36)])
def test_each_row_of_any_split_is_looked_at_since_a_later_run_may_have_it_in_its_test(
    split: Any, seen: int, write: WriteFile, script: Script, tmp_path: Path
) -> None:
    report = evaluate(write(), options=EvalOptions(split=split), database=tmp_path / "a.db", pool=script)
    assert report.complete and len(looks(tmp_path / "a.db")) == seen


def test_rows_that_nobody_answered_were_not_looked_at(write: WriteFile, tmp_path: Path) -> None:
    def dead(request: Request) -> str:
        raise LMError("connection", "refused")

    with pytest.raises(LMError):
        evaluate(write(), options=EvalOptions(split="test"), database=tmp_path / "a.db", pool=Script(dead))
    assert looks(tmp_path / "a.db") == []


def test_a_resumed_eval_keeps_no_row_that_other_settings_scored(
    write: WriteFile, script: Script, tmp_path: Path
) -> None:
    database = tmp_path / "a.db"
    first = evaluate(write(concurrency=1), database=database, pool=script)
    changed = [("lm.temperature", 0.5), ("budget.calls", 15)]
    again = resume_evaluation(first.run, options=EvalOptions(changed), database=database, pool=Script(echo))
    assert again.status == "budget" and again.n == 3
    assert len(stored(database)[2]) == 3, "as the report says"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (EvalOptions(split="bogus"), "there is no split 'bogus'"),
        (EvalOptions(repeats=0), "repeats is 0"),
        (EvalOptions(repeats=-1), "repeats is -1"),
    ],
)
def test_options_from_python_are_checked(
    write: WriteFile, script: Script, tmp_path: Path, options: EvalOptions, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        evaluate(write(), options=options, database=tmp_path / "a.db", pool=script)
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [('{"sets": []}', "are damaged: they have no repeats"), ('{"split": "bogus", "repeats": 1}', "there is no split")],
)
def test_damaged_options_end_a_resume_in_a_message(
    write: WriteFile, script: Script, tmp_path: Path, options: str, error: str
) -> None:
    evaluate(write(), database=tmp_path / "a.db", pool=script)
    store = Store(tmp_path / "a.db")
    store.execute("update runs set options = ?", options)
    store.close()
    with pytest.raises((SpecError, StoreError), match=error):
        resume_evaluation("last", database=tmp_path / "a.db", pool=script)
