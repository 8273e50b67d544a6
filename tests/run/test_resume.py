"""A run is gone on with as it began, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.helpers.planted import plant

from workbench.cli import cli
from workbench.errors import SandboxError, StoreError
from workbench.run import Options, resume
from workbench.runtime import SandboxChoice
from workbench.study import Optimizer, Study
from workbench.workflow import Workflow


def test_a_finished_run_keeps_its_proof(tmp_path: Path) -> None:
    """Resumed with a smaller budget it would lose the proof that it has."""
    report, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    assert report.status == "finished"
    with pytest.raises(StoreError, match="is finished and proved"):
        resume("last", database=tmp_path / "run.db", options=Options([("budget.calls", 60)]), pool=lm)
    again = resume("last", database=tmp_path / "run.db", pool=lm)
    assert again.as_dict()["gain"] == report.as_dict()["gain"]


def test_a_resumed_run_has_the_sandbox_of_its_start_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_SANDBOX", "wasm")
    _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    monkeypatch.delenv("WORKBENCH_SANDBOX")
    opened: list[SandboxChoice] = []

    async def open_none(choice: SandboxChoice) -> None:
        opened.append(choice)
        raise SandboxError("none here")

    class Opens(Optimizer):
        async def optimize(self, study: Study) -> Workflow:
            with pytest.raises(SandboxError, match="none here"):
                await study.open_sandbox()
            return study.best

    monkeypatch.setattr("workbench.runtime.runtime.open_sandbox", open_none)
    for given, taken in (
        (SandboxChoice(), SandboxChoice("wasm")),
        (SandboxChoice("linux"), SandboxChoice("linux")),
        (SandboxChoice(allow_limits_only=True), SandboxChoice("wasm", allow_limits_only=True)),
    ):
        opened.clear()
        options = Options(out=str(tmp_path / "o.yaml"), sandbox=given)
        resume("last", database=tmp_path / "run.db", pool=lm, options=options, optimizers=[("opens", Opens())])
        assert opened == [taken]


HEAD = "name: l\ndata: {file: rows.jsonl, split: {train: 3, val: 3, test: 3}}\nmetric: exact_match(label)\nnodes:\n"
PROGRAM = "  c: {code: 'text -> label', source: \"def f(text):\\n    return 'SOMETHING'\"}\n"


def test_a_run_whose_library_changed_is_not_resumed(tmp_path: Path) -> None:
    library = tmp_path / "library.yaml"
    library.write_text(HEAD + PROGRAM)
    agent = {"agent": "text -> label", "functions": "library.yaml#nodes.c"}
    _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=900, nodes={"sort": agent})
    library.write_text((HEAD + PROGRAM).replace("SOMETHING", "another"))
    with pytest.raises(StoreError, match="refers to has changed"):
        resume("last", database=tmp_path / "run.db", pool=lm)


@pytest.mark.parametrize("changed", ["inner.yaml", "deeper.yaml", "policy", "inner policy"])
def test_a_run_whose_inner_workflow_or_inherited_policy_changed_is_not_resumed(changed: str, tmp_path: Path) -> None:
    """None of them is part of the workflow's hash. A larger budget is no reason to look away."""
    files = {
        "library.yaml": HEAD + PROGRAM,
        "inner.yaml": HEAD
        + "  first: {predict: 'text -> word', instructions: first}\n  deep: {workflow: deeper.yaml}\n",
        "deeper.yaml": HEAD + "  last: {predict: 'text, word -> note', instructions: last}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    nodes = {"all": {"workflow": "inner.yaml"}, "sort": {"agent": "text -> label", "functions": "library.yaml#nodes.c"}}
    report, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=60, nodes=nodes)
    assert report.status == "budget" and resume("last", database=tmp_path / "run.db", pool=lm).status == "budget"
    file = {"policy": "library.yaml", "inner policy": "inner.yaml"}.get(changed, changed)
    ruled, reworded = (
        files[file] + "policy: {default: deny}\n",
        files[file].replace("instructions: ", "instructions: not "),
    )
    (tmp_path / file).write_text(ruled if "policy" in changed else reworded)
    for options in (None, Options([("budget.calls", 5000)])):
        with pytest.raises(StoreError, match="refers to has changed"):
            resume("last", database=tmp_path / "run.db", pool=lm, options=options)


def test_a_killed_run_is_not_running(tmp_path: Path) -> None:
    from workbench.store import RunLock, Store

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    store = Store(tmp_path / "run.db")
    store.execute("update runs set status = 'running'")  # as a kill leaves it: nobody has the lock
    listed = CliRunner().invoke(cli, ["runs", "list", "--db", str(tmp_path / "run.db")]).output
    assert "killed" in listed and "gain" not in listed
    with RunLock(store, store.find_run("last")["run"]):
        assert "running" in CliRunner().invoke(cli, ["runs", "list", "--db", str(tmp_path / "run.db")]).output
    store.close()
    shown = CliRunner().invoke(cli, ["show", "--db", str(tmp_path / "run.db")]).output
    assert "workbench resume" in shown and "It ended once before" in shown


def test_a_python_metric_that_changed_is_no_basis_to_go_on(tmp_path: Path) -> None:
    from workbench.errors import StoreError
    from workbench.run import resume

    (tmp_path / "met.py").write_text(
        "def m(example, prediction):\n    return example['label'] == prediction['label']\n"
    )
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, metric="python:met.py:m")
    (tmp_path / "met.py").write_text("def m(example, prediction):\n    return 0.5\n")
    with pytest.raises(StoreError, match="has changed since it started"):
        resume("last", database=tmp_path / "run.db")
