"""What a run lacks is said before its first call is paid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.planted import plant

from workbench import Optimizer, Study, Workflow
from workbench.cli import cli
from workbench.errors import LMError, PluginError, SpecError, WorkbenchError
from workbench.ready import lms_of
from workbench.run import Options, obstacles, optimize, prepare, resume
from workbench.sandbox import SandboxError
from workbench.store import Store


class Picky(Optimizer):
    """Lacks whatever it is told to."""

    error: Any = None

    async def ready(self, study: Study) -> None:
        if self.error:
            raise self.error

    async def optimize(self, study: Study) -> Workflow:
        return study.best


def task_file(folder: Path, **spec: Any) -> Path:
    rows = [{"text": f"t{i}", "label": "ab"[i % 2]} for i in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = {
        "name": "t", "data": {"file": "rows.jsonl", "split": {"train": 10, "val": 10, "test": 10}},
        "metric": "exact_match(label)", "nodes": {"sort": {"predict": "text -> label"}}, "budget": {"calls": 100}, **spec,
    }  # fmt: skip
    path = folder / "w.yaml"
    path.write_text(json.dumps(written))
    return path


def lacking(path: Path) -> list[WorkbenchError]:
    _, _, task, optimizers = prepare(path)
    return obstacles(task, optimizers)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_an_optimizer_that_is_set_wrongly_costs_nothing(tmp_path: Path) -> None:
    _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    paid = lm.requests
    wrong = [("picky", Picky(error=SpecError(f"no {name}", path=(name,)))) for name in ("field", "row")]
    with pytest.raises(SpecError, match="no field") as caught:
        optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=lm, optimizers=wrong)
    assert lm.requests == paid
    assert [e.path for e in (caught.value, *caught.value.more)] == [
        ("optimize", 0, "picky", "field"), ("optimize", 1, "picky", "row"),
    ]  # fmt: skip
    assert caught.value.file is not None and "workflow.yaml" in caught.value.file
    row = Store(tmp_path / "two.db").find_run("last")
    assert row["status"] == "failed" and json.loads(row["report"])["spent"]["calls"] == 0


@pytest.mark.parametrize("error", [PluginError("no package"), SandboxError("no sandbox"), LMError("auth", "no key")])
def test_a_run_that_lacked_something_goes_on_once_it_is_there(error: WorkbenchError, tmp_path: Path) -> None:
    """Whatever is missing, the report says how to go on."""
    _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    lacking = optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=lm,
                       optimizers=[("picky", Picky(error=error)), ("picky", Picky(error=PluginError("nor this")))],
                       options=Options(out=str(tmp_path / "o.yaml")))  # fmt: skip
    assert (lacking.status, lacking.error, lacking.spent["calls"]) == ("failed", f"{error}\nnor this", 0)
    assert lacking.lines()[-1].endswith(f"workbench resume {lacking.run} --db {tmp_path / 'two.db'}")
    report = resume("last", database=tmp_path / "two.db", pool=lm, optimizers=[("picky", Picky())])
    assert report.status == "finished"


def test_a_resumed_run_is_not_asked(tmp_path: Path) -> None:
    """All that it needs may be in its journal."""
    report, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    again = resume("last", database=tmp_path / "run.db", pool=lm,
                   optimizers=[("picky", Picky(error=PluginError("no package")))])  # fmt: skip
    assert again.status == report.status == "finished"


def test_a_missing_key_is_found_before_the_baseline_of_another_model(tmp_path: Path) -> None:
    path = task_file(tmp_path, roles={"proposer": "openai/gpt-4.1"}, optimize=["rewrite"])
    (error,) = lacking(path)
    assert isinstance(error, LMError) and error.kind == "auth" and "OPENAI_API_KEY" in str(error)
    report = optimize(path, database=tmp_path / "run.db", options=Options(out=str(tmp_path / "o.yaml")))
    assert report.status == "failed" and report.spent["calls"] == 0


def test_a_missing_key_is_no_call(tmp_path: Path) -> None:
    """`eval` has no optimizers to ask, and its calls do not count either."""
    path = task_file(tmp_path, lm="openai/gpt-4.1")
    database = tmp_path / "run.db"
    found = CliRunner().invoke(cli, ["eval", str(path), "--db", str(database)])
    assert isinstance(found.exception, LMError)
    assert not list(Store(database).rows("select * from attempts"))


def test_a_ceiling_in_dollars_needs_the_price_of_every_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    path = task_file(tmp_path, roles={"judge": "openai/strange"}, budget={"usd": 1})
    (error,) = lacking(path)
    assert isinstance(error, SpecError) and "price of strange" in str(error)


def test_only_models_that_are_asked_are_looked_at(tmp_path: Path) -> None:
    """The file's own model is not asked where each node has another."""
    for own, models in (({"lm": "bundled/nano"}, {"bundled/nano"}), ({}, {"openai/gpt-4.1"})):
        nodes = {"vote": {"ensemble": {"predict": "text -> label", **own}}}
        _, _, task, _ = prepare(task_file(tmp_path, lm="openai/gpt-4.1", nodes=nodes))
        assert {spec.model for spec in lms_of(task)} == models


def test_validate_warns_of_what_is_lacking_here_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    fgo = {"fgo": {"divide": "type", "by": "label"}}
    path = task_file(tmp_path, roles={"proposer": "openai/gpt-4.1"}, optimize=[fgo])
    found = CliRunner().invoke(cli, ["validate", str(path)])
    assert found.exit_code == 0 and "Warning: it cannot run here: gpt-4.1 needs an API key" in found.output
    fgo["fgo"]["by"] = "kind"
    path = task_file(tmp_path, optimize=[fgo])
    with pytest.raises(SpecError, match="no training row has the field 'kind'") as caught:
        CliRunner().invoke(cli, ["validate", str(path)], catch_exceptions=False)
    assert caught.value.path == ("optimize", 0, "fgo", "by") and caught.value.line == 1
    assert not (tmp_path / "workbench.db").exists()
