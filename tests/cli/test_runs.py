"""Runs are listed with their scores, tagged, removed and pruned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.evaluation.conftest import WriteFile, script, scripted, write
from tests.helpers.planted import PlantedLM, plant
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.run import Options, optimize, resume
from workbench.store import RunLock, Store, add_run

__all__ = ["script", "scripted", "write"]  # fixtures
SPACE = {"nodes.sort.instructions": ["Better.", "Plain.", "Other."]}


def better(request: Any) -> float:
    return 0.9 if "Better" in str(request.messages[0]) else 0.2


def invoke(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--db", str(folder / "run.db")])


def listed(folder: Path, *words: str) -> list[dict[str, Any]]:
    return json.loads(invoke(folder, "runs", "list", *words, "--json").stdout)


def test_friction_9_runs_shows_the_score_of_an_eval_and_last_is_the_last(
    write: WriteFile, scripted: Script, tmp_path: Path
) -> None:
    plant(tmp_path / "p", better, {"random": {"trials": 2}}, calls=900, search=SPACE)
    (tmp_path / "p" / "run.db").rename(tmp_path / "run.db")
    assert invoke(tmp_path, "eval", str(write()), "--split", "test").exit_code == 0
    newest, oldest = listed(tmp_path)
    assert (newest["kind"], oldest["kind"]) == ("eval", "optimize")
    assert newest["score"] is not None and newest["split"] == "test" and newest["n"] == 12
    assert newest["gain"] is None and oldest["gain"]["diff"] > 0
    assert f"test {newest['score']:.3f} [" in invoke(tmp_path, "runs", "list").stdout
    assert newest["run"] in invoke(tmp_path, "show").stdout
    assert [r["run"] for r in listed(tmp_path, "--kind", "optimize")] == [oldest["run"]]
    assert [r["run"] for r in listed(tmp_path, "--name", "ECHO")] == [newest["run"]]
    assert "workflow" not in invoke(tmp_path, "diff").stderr, "the last run that changed something"


def test_friction_53_tags_and_notes_name_runs(write: WriteFile, scripted: Script, tmp_path: Path) -> None:
    for _ in range(2):
        assert invoke(tmp_path, "eval", str(write())).exit_code == 0
    second, first = (row["run"] for row in listed(tmp_path))
    assert invoke(tmp_path, "runs", "tag", first, "base", "main", "--note", "before the change").exit_code == 0
    assert invoke(tmp_path, "runs", "tag", first, "main", "--remove").exit_code == 0
    (row,) = listed(tmp_path, "--tag", "base")
    assert (row["run"], row["tags"], row["note"]) == (first, ["base"], "before the change")
    assert f"  {first}  val" in invoke(tmp_path, "compare", "base", second).stdout
    assert invoke(tmp_path, "runs", "tag", second, "base").exit_code == 0
    assert second in invoke(tmp_path, "show", "base").stdout, "the newest run that has the tag"
    assert invoke(tmp_path, "runs", "tag", first, second[:4]).exit_code == 0
    assert first in invoke(tmp_path, "show", second[:4]).stdout, "a tag comes before the beginning of a name"
    for wrong in (["last"], ["a b"], []):
        assert invoke(tmp_path, "runs", "tag", first, *wrong).exit_code == 2


def test_a_removed_run_is_gone_but_its_looks_at_sealed_rows_count(tmp_path: Path) -> None:
    report, lm = plant(tmp_path, better, {"random": {"trials": 2}}, calls=900, search=SPACE)
    assert invoke(tmp_path, "runs", "rm", report.run).exit_code != 0 and listed(tmp_path), "asked, and nobody says yes"
    assert invoke(tmp_path, "runs", "rm", report.run, "--yes").exit_code == 0
    assert listed(tmp_path) == [] and "is not in" in str(invoke(tmp_path, "show", report.run).exception)
    store = Store(tmp_path / "run.db")
    for table in ("calls", "candidates", "evaluations", "results", "events", "artifacts"):
        assert not list(store.rows(f"select * from {table}")), table
    store.close()
    again = optimize(
        tmp_path / "workflow.yaml", database=tmp_path / "run.db", pool=lm, options=Options(out=str(tmp_path / "o.yaml"))
    )
    assert again.earlier_tests == [report.run] and again.proof is not None and again.proof.alpha == 0.025


def test_a_running_run_is_not_removed(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, better, {"random": {"trials": 1}}, calls=900, search=SPACE)
    store = Store(tmp_path / "run.db")
    store.execute("update runs set status = 'running'")
    with RunLock(store, report.run):
        found = invoke(tmp_path, "runs", "rm", report.run, "--yes")
    store.close()
    assert found.exit_code == 2 and "is running" in found.stderr


def test_frictions_34_and_35_points_and_candidates_have_their_names_and_changes(tmp_path: Path) -> None:
    report, _ = plant(
        tmp_path,
        better,
        {"random": {"trials": 4}},
        calls=900,
        search={"nodes.sort.instructions": ["Plain.", f"Better. {'Longer ' * 40}", "Other."]},
        objectives=["score", "tokens"],
        pick="knee",
    )
    assert len(report.pareto) > 1
    lines = [line for line in report.lines() if line.endswith("<- picked")]
    assert len(lines) == 1 and lines[0].strip().startswith(report.winner.hash[:8])
    named = [point["workflow"][:8] for point in report.pareto]
    assert all(any(line.strip().startswith(name) for line in report.lines()) for name in named)
    shown = invoke(tmp_path, "show").stdout
    assert '[sort.instructions="Better. Longer' in shown, shown


def test_prune_keeps_winner_scores_and_proof(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, better, {"random": {"trials": 3}}, calls=900, search=SPACE)
    before = invoke(tmp_path, "show").stdout
    dry = invoke(tmp_path, "runs", "prune", "--dry-run")
    assert dry.exit_code == 0 and "Would remove" in dry.stdout and invoke(tmp_path, "show").stdout == before
    pruned = invoke(tmp_path, "runs", "prune", "--yes")
    assert pruned.exit_code == 0, pruned.output
    assert invoke(tmp_path, "show").stdout == before, "candidates with their scores, report, bill"
    store = Store(tmp_path / "run.db")
    kept = {
        row["candidate"]
        for row in store.rows("select distinct e.candidate from evaluations e join results r on r.evaluation_id = e.id")
    }
    store.close()
    baseline = report.baseline["workflow"]
    assert kept == {baseline, report.winner.hash}
    assert invoke(tmp_path, "compare", "last").exit_code == 0


def test_prune_leaves_runs_that_can_be_resumed(tmp_path: Path) -> None:
    report, lm = plant(
        tmp_path, better, {"random": {"trials": 3}}, calls=60, search=SPACE, proof={"when_unchanged": "test"}
    )
    assert report.status == "budget"
    before = lm.requests
    assert "no finished runs" in invoke(tmp_path, "runs", "prune", "--yes").stdout
    done = resume(
        report.run,
        database=tmp_path / "run.db",
        pool=(more := PlantedLM(better)),
        options=Options([("budget.calls", 900)], str(tmp_path / "out.yaml")),
    )
    assert done.status == "finished" and before >= 50 and more.requests < 400


def test_friction_54_prune_removes_checkpoints_and_losing_weights(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, better, {"random": {"trials": 1}}, calls=900, search=SPACE)
    home = tmp_path / "run-weights"
    store = Store(tmp_path / "run.db")
    number = store.find_run(report.run)["id"]
    winner = "a" * 16
    store.execute(
        "update candidates set tree = json_set(tree, '$.lm', json(?)), checksum = null where hash = ?",
        json.dumps({"model": "hf:x", "extra": {"path": f"{home}/{winner}"}}),
        report.winner.hash,
    )
    store.close()
    gone = [home / ("b" * 16), home / f"run-{number}-grpo-xyz"]
    stays = [home / winner, home / f"run-{number + 1}-grpo-xyz", home / "notes", tmp_path / ("c" * 16)]
    for folder in (*gone, *stays):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"0" * 1000)
    (home / ("d" * 16)).symlink_to(tmp_path / ("c" * 16))
    claim = home / f"{'b' * 16}.run-{number}-grpo-xyz"
    claim.touch()
    found = invoke(tmp_path, "runs", "prune", "--yes")
    assert found.exit_code == 0, found.output
    assert not any(path.exists() for path in (*gone, claim)) and all(folder.exists() for folder in stays)
    assert "2 checkpoints" in found.output
    assert (home / ("d" * 16)).is_symlink()


@pytest.mark.parametrize(
    "command", [["runs", "list"], ["show"], ["runs", "tag", "last", "a"], ["runs", "rm", "last"], ["runs", "prune"]]
)
def test_without_a_database_each_says_so(tmp_path: Path, command: list[str]) -> None:
    found = invoke(tmp_path, *command)
    assert "there is no run database at" in str(found.exception) and not (tmp_path / "run.db").exists()


def test_a_tag_comes_before_the_beginning_of_a_name(write: WriteFile, scripted: Script, tmp_path: Path) -> None:
    """Otherwise `rm TAG` could remove another run than the one with the tag."""
    for _ in range(2):
        assert invoke(tmp_path, "eval", str(write())).exit_code == 0
    second, first = (row["run"] for row in listed(tmp_path))
    assert invoke(tmp_path, "runs", "tag", first, second[:4]).exit_code == 0
    assert f"removed {first}" in invoke(tmp_path, "runs", "rm", second[:4], "--yes").stdout
    assert [row["run"] for row in listed(tmp_path)] == [second]
    for name in ("%", ""):  # the latter of a variable that is not set
        assert "is not in" in str(invoke(tmp_path, "runs", "rm", name, "--yes").exception)
    assert [row["run"] for row in listed(tmp_path)] == [second]


def test_prune_leaves_weights_alone_while_a_run_trains(tmp_path: Path) -> None:
    """What it has just trained is in no stored workflow yet."""
    plant(tmp_path, better, {"random": {"trials": 1}}, calls=900, search=SPACE)
    fresh = tmp_path / "run-weights" / ("b" * 16)
    fresh.mkdir(parents=True)
    store = Store(tmp_path / "run.db")
    add_run(
        store,
        run="12345678",
        name="n",
        status="running",
        spec="",
        options="{}",
        file="x.yaml",
        kind="optimize",
        host=os.uname().nodename,
    )
    with RunLock(store, "12345678"):
        assert invoke(tmp_path, "runs", "prune", "--yes").exit_code == 0 and fresh.exists()
    store.close()
    assert invoke(tmp_path, "runs", "prune", "--yes").exit_code == 0 and not fresh.exists()


def test_runs_of_one_name_are_told_apart(write: WriteFile, scripted: Script, tmp_path: Path) -> None:
    """By the file, where its name is another, and by the settings; in the list and in JUnit."""
    same = write(name="workflow")
    (other := same.with_name("optimized.yaml")).write_text(same.read_text())
    junit = ["--junit", str(tmp_path / "out.xml"), "--overwrite"]
    suites = list[str]()
    for file, setting in ((same, ()), (other, ()), (other, ("--set", "lm.max_tokens=50"))):
        assert invoke(tmp_path, "eval", str(file), *setting, *junit).exit_code == 0
        suites.append((tmp_path / "out.xml").read_text().split('testsuite name="')[1].split('"')[0])
    wanted = ["", "optimized.yaml", "optimized.yaml, lm.max_tokens=50"]
    assert suites == [f"workflow.val ({apart})" if apart else "workflow.val" for apart in wanted]
    lines = reversed(invoke(tmp_path, "runs", "list").stdout.splitlines())
    assert [line.split(" n=")[1].partition("  ")[2] for line in lines] == wanted
    assert len(invoke(tmp_path, "runs", "list").stdout.splitlines()[-1]) <= 80, "a terminal"
