"""A file that names no optimizer gets those that fit it, is told which and why, and what is not searched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.planted import PlantedLM, plant

from workbench.cli import cli
from workbench.run import Options, estimate, optimize, prepare, resume
from workbench.spec import defaults
from workbench.store import Store

PROPOSER = {"proposer": {"model": "openai/writer", "api_base": "http://127.0.0.1:9/v1"}}
SEARCH = {"nodes.sort.instructions": ["One.", "Two."]}
CODE = {"sort": {"code": "text -> label", "source": "def f(text):\n    return 'a'"}}


def unnamed(folder: Path, **spec: Any) -> Path:
    """A file of the planted problem that names no optimizer."""
    plant(folder, lambda r: 0.3, {"random": {"trials": 1}}, calls=300, rows=(20, 20, 40))
    file = folder / "workflow.yaml"
    written = {**json.loads(file.read_text()), **spec}
    del written["optimize"]
    file.write_text(json.dumps(written))
    return file


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({}, ["families"]),
        ({"objectives": ["score", "tokens"]}, ["bootstrap"]),
        ({"search": SEARCH}, ["optuna"]),
        ({"roles": PROPOSER}, ["textgrad", "evolve"]),
        ({"roles": PROPOSER, "search": SEARCH}, ["textgrad", "evolve"]),
        ({"roles": PROPOSER, "search": SEARCH, "objectives": ["score", "tokens"]}, ["textgrad", "optuna"]),
        ({"roles": {"judge": PROPOSER["proposer"]}}, ["families"]),
        ({"roles": PROPOSER, "nodes": CODE}, ["bootstrap"]),
    ],
)
def test_the_default_is_chosen_by_what_the_file_has(spec: Mapping[str, Any], chosen: list[str], tmp_path: Path) -> None:
    file = unnamed(tmp_path, **spec)
    assert [name for name, _ in prepare(file)[3]] == chosen


def test_an_optimizer_that_is_not_loaded_is_not_chosen() -> None:
    steps = [["texts"], ["mixed", "search"]]
    assert list(defaults.choose_optimizers(steps, {"random", "bootstrap"})) == ["random"]
    assert list(defaults.choose_optimizers(steps, {"rewrite", "optuna"})) == ["rewrite", "optuna"]
    assert list(defaults.choose_optimizers([["search"]], {"bootstrap"})) == ["bootstrap"]
    assert list(defaults.choose_optimizers([], {"bootstrap", "optuna"})) == ["bootstrap"]


def test_validate_estimate_and_the_run_say_what_was_chosen_and_why(tmp_path: Path) -> None:
    file = unnamed(tmp_path, search=SEARCH)
    why = "The file names no optimizer. Chosen: optuna, since the file has a `search:`."
    told = CliRunner().invoke(cli, ["validate", str(file)], catch_exceptions=False).output
    assert why in " ".join(told.split()) and "Optimizers: optuna" in told
    _, _, task, optimizers = prepare(file)
    assert why in estimate(task, optimizers)["lines"]
    told = " ".join(estimate(task)["lines"])
    assert "names no optimizer" not in told and "is not searched" not in told, "it was given none"
    heard: list[str] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told":
            heard.append(data["message"])

    options = Options(out=str(tmp_path / "o.yaml"))
    optimize(file, database=tmp_path / "d.db", pool=PlantedLM(lambda r: 0.3), options=options, listener=listen)
    assert why in heard
    named = CliRunner().invoke(cli, ["validate", str(file), "--set", "optimize=random"], catch_exceptions=False).output
    assert "names no optimizer" not in named


def test_a_search_that_no_optimizer_reads_is_warned_of_wherever_the_file_is_used(tmp_path: Path) -> None:
    file, sets = unnamed(tmp_path, search=SEARCH), [("optimize", ["bootstrap"])]
    warning = "`search:` is not searched: bootstrap does not read it."
    told = CliRunner().invoke(cli, ["validate", str(file), "--set", "optimize=bootstrap"], catch_exceptions=False)
    assert warning in " ".join(told.output.split())
    _, _, task, optimizers = prepare(file, sets)
    assert any(warning in line for line in estimate(task, optimizers)["lines"])
    options, started = Options(sets, out=str(tmp_path / "o.yaml")), list[str]()

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "run_started":
            started.extend(data["warnings"])

    database = tmp_path / "d.db"
    report = optimize(file, database=database, pool=PlantedLM(lambda r: 0.3), options=options, listener=listen)
    assert any(warning in line for line in started) and any(warning in line for line in report.warnings)
    for searched in ("optuna", "random", "evolve", "mcts", {"fgo": {"optimizer": "random"}}):
        _, _, task, optimizers = prepare(file, [("optimize", ["bootstrap", searched])])
        assert not any("not searched" in line for line in estimate(task, optimizers)["lines"]), searched
    _, _, task, optimizers = prepare(file, [("optimize", ["fgo"])])
    assert any("not searched: fgo" in line for line in estimate(task, optimizers)["lines"])


@pytest.mark.parametrize("chosen", ["optuna", "bootstrap"])
def test_a_resumed_run_goes_on_with_what_was_chosen_when_it_began(chosen: str, tmp_path: Path) -> None:
    """Also where other plugins would choose another one today."""
    file, database = unnamed(tmp_path, search=SEARCH), tmp_path / "d.db"
    optimize(file, database=database, pool=PlantedLM(lambda r: 0.3), options=Options(out=str(tmp_path / "o.yaml")))
    store = Store(database)
    (row,) = store.rows("select options from runs")
    assert json.loads(row["options"])["chosen"] == ["optuna"]
    store.execute("update runs set options = ?", json.dumps({**json.loads(row["options"]), "chosen": [chosen]}))
    store.close()
    heard: list[str] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told" and data["optimizer"] == "default":
            heard.append(data["message"])

    resume("last", database=database, pool=PlantedLM(lambda r: 0.3), listener=listen)
    assert len(heard) == 1 and chosen in heard[0]
    assert ("when the run began" in heard[0]) is (chosen == "bootstrap")
