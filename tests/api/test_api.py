"""workbench from Python: files, mappings and workflows, in plain code and in a running event loop."""

from __future__ import annotations

import asyncio
import functools
import json
import linecache
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.planted import LABELS, PlantedLM

import workbench
from workbench.cli import cli
from workbench.errors import SpecError
from workbench.run import Options
from workbench.store import Store

ROWS = [{"text": f"row {i} topic{i % 8}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]} for i in range(90)]
NODES = {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Plain."}}
CONTENT: dict[str, Any] = {
    "name": "mapped",
    "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
    "metric": "exact_match(label)",
    "nodes": NODES,
    "search": {"nodes.sort.instructions": ["Better.", "Plain."]},
    "optimize": [{"random": {"trials": 3}}],
    "budget": {"calls": 900},
}


def test_notebooks_complete_names_that_are_not_imported_yet() -> None:
    listed = {name for name in dir(workbench) if not name.startswith("_")}
    assert {"Example", "load", "optimize"} <= listed and all(hasattr(workbench, name) for name in listed)


def model() -> PlantedLM:
    return PlantedLM(lambda r: 0.95 if "Better" in str(r.messages[0]) else 0.2)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_friction_5_optimize_works_inside_a_running_loop_and_leaves_it_running() -> None:
    async def notebook() -> workbench.Report:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.005)

        beside = asyncio.create_task(tick())
        report = await workbench.aoptimize({**CONTENT, "data": ROWS}, pool=model())
        assert ticks > 3, "the loop was not blocked"
        beside.cancel()
        options = Options(out="other.yaml")
        blocking = workbench.optimize({**CONTENT, "data": ROWS}, pool=model(), database="other.db", options=options)
        assert blocking.winner == report.winner
        return report

    report = asyncio.run(notebook())
    assert report.proved and report.changes[0][0] == "nodes.sort.instructions"


def test_a_mapping_is_optimized_as_its_file_is(folder: Path) -> None:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    content = {**CONTENT, "data": {"file": "rows.jsonl", "split": {"train": 30, "val": 30, "test": 30}}}
    (folder / "w.yaml").write_text(json.dumps(content))
    from_file = workbench.optimize("w.yaml", pool=model(), database="file.db")
    options = Options(out="other.yaml")
    from_mapping = workbench.optimize(content, pool=model(), database="mapping.db", options=options)
    assert from_mapping.winner.hash == from_file.winner.hash
    assert from_mapping.proof == from_file.proof and from_mapping.spent["calls"] == from_file.spent["calls"]


def test_rows_of_a_data_frame_are_kept_beside_the_database_and_resumed(folder: Path) -> None:
    import pandas

    frame = pandas.DataFrame(ROWS)
    settings = {"data": {"rows": frame, "split": {"train": 30, "val": 30, "test": 30}}, "budget.calls": 40}
    options = workbench.run.Options(allow_unproved=True)  # type: ignore[attr-defined]
    report = workbench.optimize(
        CONTENT, settings=settings, pool=model(), database=folder / "runs" / "a.db", options=options
    )
    (kept,) = (folder / "runs" / "a-rows").iterdir()
    assert [json.loads(line) for line in kept.read_text().splitlines()] == ROWS
    lm = model()
    done = workbench.resume(
        report.run,
        database=folder / "runs" / "a.db",
        pool=lm,
        options=workbench.run.Options([("budget.calls", 900)]),  # type: ignore[attr-defined]
    )
    assert done.status == "finished" and done.proved


def test_a_workflow_built_in_python_is_evaluated_with_settings() -> None:
    tree = {"nodes": {"sort": {"kind": "predict", "signature": NODES["sort"]["predict"], "instructions": "Better."}}}
    built = workbench.Workflow(tree, Path.cwd())
    settings = {"lm": CONTENT["lm"], "data": ROWS, "metric": "exact_match(label)"}
    report = workbench.evaluate(built, settings=settings, split="all", pool=model())
    assert report.n == 90 and report.score > 0.8
    frame = report.to_pandas()
    assert len(frame) == 90 and frame["score"].mean() == pytest.approx(report.score)
    assert set(frame["prediction.label"]) <= set(LABELS) and set(frame["text"]) == {r["text"] for r in ROWS}


def test_rows_from_python_are_named_by_position() -> None:
    rows = [{**row, "text": " "} if place == 17 else row for place, row in enumerate(ROWS)]
    report = workbench.evaluate({**CONTENT, "data": rows}, split="all", pool=model(), database="a.db")
    with Store("a.db", create=False) as store:
        file = store.find_run(report.run)["spec"]
    assert "file: a-rows/" in file, "no path of this machine"
    shown = CliRunner().invoke(cli, ["show", report.run, "--row", "row 17", "--db", "a.db"]).output
    assert shown.startswith(f"row 17 of all, by {report.workflow[:8]}\n")


def test_u1_a_table_of_results_keeps_the_columns_of_the_rows() -> None:
    names = ("id", "split", "repeat", "score", "failure", "message", "feedback", "row.message", "prediction.label")
    rows = [{**row, **{name: f"{name} {n}" for name in names}} for n, row in enumerate(ROWS[:12])]
    frame = workbench.evaluate({**CONTENT, "data": rows}, split="all", pool=model()).to_pandas()
    assert len(frame) == 12 and set(frame.columns[:3]) == {"id", "split", "repeat"}
    for name in names:
        column = {"message": "row.row.message", "row.message": "row.message"}.get(name, f"row.{name}")
        assert set(frame[column]) == {row[name] for row in rows}, name
    assert frame["score"].between(0, 1).all() and set(frame["prediction.label"]) <= set(LABELS)


def test_a_metric_may_be_a_function_of_a_file_and_no_other(folder: Path) -> None:
    (folder / "own_metric.py").write_text(
        "def score(example, prediction):\n    return prediction['label'] == example['label']\n"
    )
    import importlib.util

    spec = importlib.util.spec_from_file_location("own_metric", folder / "own_metric.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    content = {**CONTENT, "data": ROWS}
    as_text = workbench.evaluate(content, split="all", pool=model())
    as_function = workbench.evaluate({**content, "metric": module.score}, split="all", pool=model())
    assert as_function.score == as_text.score
    for wrong in (lambda example, prediction: 1.0, len):
        with pytest.raises(SpecError, match="is not a function at the top of a file"):
            workbench.evaluate({**content, "metric": wrong}, pool=model())


def run_cell(text: str, cells: dict[str, Any]) -> None:
    """Run a cell as IPython does: its source is in `linecache`, and in no file."""
    name = f"<ipython-input-{len(linecache.cache)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), cells)


CELLS = """
import math as m
from statistics import fmean
WORTH = {"a": 1.0, "b": 0.5}
def worth(label: "str") -> float:
    return WORTH.get(label, 0.25)
value = worth
"""
METRIC = """
@functools.cache
def half():
    return m.sqrt(0.25)
def score(example, prediction, unused=WORTH):
    right = prediction["label"] == example["label"]
    return fmean([value(example["label"]), half()]) if right else 0.0
"""


def test_a_metric_may_be_a_function_of_a_notebook_cell(folder: Path) -> None:
    cells: dict[str, Any] = {"__name__": "__main__", "functools": functools}
    run_cell(CELLS, cells)
    run_cell(METRIC, cells)
    content = {**CONTENT, "data": ROWS, "metric": cells["score"]}
    report = workbench.evaluate(content, split="all", pool=PlantedLM(lambda r: 1.0))
    worth = [{"a": 1.0, "b": 0.5}.get(row["label"], 0.25) for row in ROWS]
    assert report.score == pytest.approx(sum((one + 0.5) / 2 for one in worth) / len(worth))
    (written,) = (folder / "workbench-rows").glob("score_*.py")
    found: dict[str, Any] = {}
    exec(written.read_text(encoding="utf-8"), found)
    assert found["score"]({"label": "b"}, {"label": "b"}) == 0.5 and found["score"].__defaults__ == (
        {"a": 1.0, "b": 0.5},
    )


def test_a_cell_that_uses_what_no_file_can_hold_is_refused(folder: Path) -> None:
    cells: dict[str, Any] = {"__name__": "__main__", "client": object()}
    run_cell("def score(example, prediction):\n    return client.judge(prediction)\n", cells)
    with pytest.raises(SpecError, match="the metric score uses client, which cannot be written") as refused:
        workbench.evaluate({**CONTENT, "data": ROWS, "metric": cells["score"]}, pool=model())
    assert "Make it inside the function" in str(refused.value) and not (folder / "workbench.db").exists()


def test_a_report_is_a_page(folder: Path) -> None:
    report = workbench.evaluate({**CONTENT, "data": ROWS}, split="all", pool=model())
    assert "<!doctype html>" in report.to_html().lower() and f"{report.score:.3f}" in report.to_html()
    found = workbench.optimize({**CONTENT, "data": ROWS}, pool=model())
    assert found.proof is not None and f"{found.proof.diff:+.3f}" in found.to_html()
    assert found.run in found.to_html() and sorted(p.suffix for p in folder.glob("*.html")) == []


def test_a_script_that_is_loaded_for_its_metric_does_not_run_twice(folder: Path) -> None:
    """Without `if __name__ == '__main__'`, the call at its top level would be made and paid once more."""
    (folder / "script.py").write_text(
        f"import workbench\n\n\ndef score(example, prediction):\n    return 1.0\n\n\n"
        f"workbench.evaluate({ ({**CONTENT, 'lm': 'bundled/nano', 'data': ROWS})!r} | {{'metric': score}})\n"
    )
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "calls evaluate when it is loaded" in done.stderr
    assert "if __name__ == '__main__'" in done.stderr and not (folder / "workbench.db").exists()


def test_cancelling_interrupts_the_run_which_is_resumed(folder: Path) -> None:
    class Slow(PlantedLM):
        async def complete(self, request: Any) -> Any:
            await asyncio.sleep(0.02)
            return await super().complete(request)

    async def main() -> None:
        lm = Slow(lambda r: 0.5)
        job = asyncio.create_task(workbench.aevaluate({**CONTENT, "data": ROWS}, split="all", pool=lm))
        while lm.requests < 10:
            await asyncio.sleep(0.01)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job

    asyncio.run(main())
    store = Store("workbench.db")
    row = store.find_run("last")
    store.close()
    assert row["status"] == "interrupted"
    from workbench.evaluation import resume_evaluation

    lm = PlantedLM(lambda r: 0.5)
    assert resume_evaluation("last", pool=lm).n == 90 and lm.requests <= 81


def test_errors_in_a_mapping_name_what_is_wrong() -> None:
    with pytest.raises(SpecError, match="unknown key 'nodez'.*\n.*Did you mean 'nodes'"):
        workbench.optimize({**{k: v for k, v in CONTENT.items() if k != "nodes"}, "nodez": NODES, "data": ROWS})
    with pytest.raises(SpecError, match="data has no rows"):
        workbench.evaluate({**CONTENT, "data": []})


def test_reports_show_themselves_in_a_notebook_without_markup_of_rows() -> None:
    content = {**CONTENT, "name": "<b>bold</b>", "data": ROWS}
    evaluated, optimized = workbench.evaluate(content, pool=model()), workbench.optimize(content, pool=model())
    for shown, score in (
        (evaluated._repr_html_(), evaluated.score),
        (optimized._repr_html_(), optimized.baseline["val"]),
    ):
        assert shown.startswith("<pre>") and "<b>bold" not in shown and f"{score:.3f}" in shown


def test_the_candidates_of_a_run_are_a_data_frame() -> None:
    report = workbench.optimize({**CONTENT, "data": ROWS}, pool=model())
    frame = report.to_pandas()
    assert frame["hash"].iloc[0] == report.baseline["workflow"] and report.winner.hash in set(frame["hash"])
    assert frame.set_index("hash")["val"][report.winner.hash] == frame["val"].max() > frame["val"].iloc[0]
    assert {"parent", "optimizer", "note", "failed", "tokens", "usd", "calls", "latency"} <= set(frame.columns)


def test_listeners_hear_of_an_evaluation() -> None:
    heard: list[str] = []
    workbench.evaluate({**CONTENT, "data": ROWS}, pool=model(), listener=lambda event, data: heard.append(event))
    assert heard[0] == "run_started" and heard.count("row_scored") == 30 == heard.count("call_settled")
