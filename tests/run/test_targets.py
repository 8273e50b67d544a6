"""`targets:` from the file to the result: the pick, its proof on the sealed rows, the configurations for times of load.

The models are simulated (tests/helpers/model_shelf.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.helpers.model_shelf import Shelf, Shelved, write_shelf_task

import workbench
from workbench.cli import cli
from workbench.errors import SpecError
from workbench.inference import load_configurations
from workbench.proof import Report
from workbench.run import Options, estimate, optimize, prepare

MODELS = {
    "large": Shelved(0.97, 0.010, 0.02),
    "small": Shelved(0.60, 0.0005, 0.002),
    "medium": Shelved(0.95, 0.002, 0.02),
    "quick": Shelved(0.95, 0.004, 0.002),
}


def run(folder: Path, shelf: Shelf | None = None, rows: int = 200, **spec: Any) -> tuple[Report, dict[str, Any]]:
    shelf = shelf or Shelf(MODELS)
    out = folder / "optimized.yaml"
    options = Options(out=str(out))
    report = optimize(
        write_shelf_task(folder, shelf, rows, **spec), options=options, database=folder / "a.db", pool=shelf
    )
    return report, yaml.safe_load(out.read_text())


@pytest.mark.slow
def test_the_cheapest_that_meets_the_targets_is_the_result_and_the_sealed_rows_show_it(tmp_path: Path) -> None:
    shelf = Shelf(MODELS)
    report, written = run(tmp_path, shelf, targets={"score": 0.85, "usd": 0.005, "p95_latency": 2.0})
    assert report.levels is not None and report.is_shown(report.levels) and report.proved and not report.gain_shown
    assert [level.verdict for level in report.levels.more["levels"]] == ["met"] * 3
    assert written["lm"]["model"] == "openai/medium"
    assert report.headline()[1] == "The targets are shown to be met on the sealed rows:"
    found = report.as_dict()["targets"]
    assert found["shown"] and found["levels"][0]["target"] == "score" and not found["loss"]["needed"]
    assert {name: n for name, n in shelf.calls.items() if n > 200} == {"large": 400, "medium": 400}, "each side once"


@pytest.mark.slow
def test_configurations_are_faster_and_each_can_be_loaded(tmp_path: Path) -> None:
    _, written = run(tmp_path, targets={"score": 0.85, "usd": 0.005, "p95_latency": 2.0})
    own, quick = written["configurations"]
    assert "lm" not in own and quick["lm"]["model"] == "openai/quick" and "nodes" not in quick
    assert quick["latency"] < own["latency"] and quick["usd"] == 0.004 and own["usd"] == 0.002
    shelf = Shelf(MODELS)
    path = tmp_path / "optimized.yaml"
    with workbench.load(path, pool=shelf) as wf:
        loaded = load_configurations(wf, path, pool=shelf)
        for one in loaded:
            one(text="word 1")
            one.close()
    assert shelf.calls == {"large": 0, "small": 0, "medium": 1, "quick": 1}


def test_without_a_target_of_time_there_are_no_configurations(tmp_path: Path) -> None:
    _, written = run(tmp_path, targets={"score": 0.85, "usd": 0.005})
    assert written["lm"]["model"] == "openai/medium" and "configurations" not in written


def test_a_target_that_the_sealed_rows_leave_open_keeps_the_baseline(tmp_path: Path) -> None:
    """The best is none of the sides but the third: neither cheap nor the baseline."""
    models = {**MODELS, "large": Shelved(0.80, 0.010), "best": Shelved(0.99, 0.02)}
    shelf = Shelf(models)
    report, written = run(tmp_path, shelf, targets={"usd": 0.005}, proof={"margin": 0.045}, rows=60)
    assert (
        report.levels is not None and report.levels.more["loss"] is not None and not report.levels.more["is_baseline"]
    )
    assert not report.levels.more["loss"].loss_bounded and not report.is_shown(report.levels)
    assert shelf.calls["best"] == 120, "the best is tested, too"
    assert report.gain_shown == report.proved and "a loss of 0.045 is not ruled out" in "\n".join(report.lines())
    assert written["lm"]["model"] in ("openai/large", "openai/medium", "openai/quick")


def test_targets_that_nobody_meets_are_named(tmp_path: Path) -> None:
    report, written = run(tmp_path, targets={"score": 0.99, "usd": 0.005}, rows=100)
    assert report.levels is not None and report.levels.more["missed_on_val"] and not report.is_shown(report.levels)
    assert report.headline()[1].startswith("No candidate meets all targets on val; the nearest: score 0.9")
    assert "configurations" not in written


def test_no_change_is_said_to_be_none_that_is_cheaper(tmp_path: Path) -> None:
    report, _ = run(
        tmp_path, Shelf({"large": Shelved(0.97, 0.01), "small": Shelved(0.6, 0.001)}), targets={"score": 0.9}
    )
    assert "Nothing was changed: no candidate that is cheaper meets the targets on val." in report.lines()
    assert report.as_dict()["targets"]["levels"] == [] and not report.is_shown(report.levels)


def test_the_estimate_counts_three_sides(tmp_path: Path) -> None:
    shelf = Shelf(MODELS)

    def proof_calls(**spec: Any) -> int:
        _, _, task, optimizers = prepare(write_shelf_task(tmp_path, shelf, 10, **spec))
        return estimate(task, optimizers)["proof_calls"]

    assert proof_calls() == 20 and proof_calls(targets={"usd": 1.0}) == 30


def test_dollars_without_a_price_are_refused(tmp_path: Path) -> None:
    shelf = Shelf(MODELS)
    path = write_shelf_task(
        tmp_path,
        shelf,
        10,
        targets={"usd": 0.005},
        lm={"model": "openai/none", "api_base": "http://127.0.0.1:9/v1"},
        search={"nodes.sort.reasoning": [True, False]},
    )
    with pytest.raises(SpecError, match=r"w.yaml:.*targets.usd cannot be kept: the price of none@.* is not known"):
        optimize(path, database=tmp_path / "a.db")


@pytest.mark.slow
def test_a_result_with_configurations_can_be_optimized_again(tmp_path: Path) -> None:
    """They are measured anew."""
    targets = {"score": 0.85, "usd": 0.005, "p95_latency": 2.0}
    _, first = run(tmp_path, targets=targets)
    shelf = Shelf(MODELS)
    again = tmp_path / "again.yaml"
    report = optimize(
        tmp_path / "optimized.yaml", options=Options(out=str(again)), database=tmp_path / "b.db", pool=shelf
    )
    assert report.levels is not None and first["configurations"]
    assert [one["usd"] for one in yaml.safe_load(again.read_text())["configurations"]] == [0.002, 0.004]


@pytest.mark.slow
def test_a_bundle_carries_the_configurations(tmp_path: Path) -> None:
    run(tmp_path, targets={"score": 0.85, "usd": 0.005, "p95_latency": 2.0})
    from workbench.inference import bundle_file

    carried = yaml.safe_load(bundle_file(tmp_path / "optimized.yaml", tmp_path / "bundle").read_text())
    assert carried["configurations"][1]["lm"]["model"] == "openai/quick" and carried["targets"]["p95_latency"] == 2.0


@pytest.mark.parametrize("place", ["lm", "nodes"])
def test_what_a_configuration_does_is_asked_about(tmp_path: Path, place: str) -> None:
    from workbench.cli.trust.needs import collect_needs

    changed = {
        "lm": {"model": "openai/x", "api_base": "https://elsewhere.example/v1", "api_key_env": "SECRET"},
        "nodes": {"sort": {"tool": "python:other.py:main"}},
    }[place]
    figures = {"score": 0.5, "latency": 1.0, "p95_latency": 2.0}
    path = write_shelf_task(
        tmp_path, Shelf(MODELS), 10, targets={"latency": 1.0}, configurations=[figures, {**figures, place: changed}]
    )
    assert collect_needs(path, called=True).found


def test_a_pick_that_is_worse_than_the_baseline_is_offered_since_the_targets_may_allow_it(tmp_path: Path) -> None:
    models = {"large": Shelved(0.99, 0.01), "medium": Shelved(0.92, 0.001)}
    report, written = run(tmp_path, Shelf(models), targets={"score": 0.8, "usd": 0.005}, proof={"margin": 0.08})
    assert report.loss_shown and not report.proved and written["lm"]["model"] == "openai/large"
    assert "The candidate that the targets picked on val is WORSE on sealed data." in report.headline()
    assert yaml.safe_load(Path(report.unproved or "").read_text())["lm"]["model"] == "openai/medium"


def test_validate_checks_configurations(tmp_path: Path) -> None:
    figures = {"score": 0.5, "latency": 1.0, "p95_latency": 2.0}
    for nodes, code in (({"sort": {"predict": "text -> label"}}, 0), ({"sort": {"predict": "text -> mood"}}, 1)):
        listed = [figures, {**figures, "nodes": nodes}]
        path = write_shelf_task(tmp_path, Shelf(MODELS), 10, targets={"latency": 1.0}, configurations=listed)
        found = CliRunner().invoke(cli, ["validate", str(path)])
        assert found.exit_code == code, found.output
    assert "w.yaml: configurations.1: it is text -> mood, the file itself text -> label" in str(found.exception)


@pytest.mark.parametrize("place", ["lm", "nodes"])
def test_a_configuration_whose_model_there_is_not_is_refused_by_its_place(tmp_path: Path, place: str) -> None:
    figures, model = {"score": 0.5, "latency": 1.0, "p95_latency": 2.0}, {"model": "bundled/nona"}
    changed = {"lm": model, "nodes": {"sort": {"predict": "text -> label", "lm": model}}}[place]
    listed = [figures, {**figures, place: changed}]
    path = write_shelf_task(tmp_path, Shelf(MODELS), 10, targets={"latency": 1.0}, configurations=listed)
    found = CliRunner().invoke(cli, ["validate", str(path)])
    assert "w.yaml: configurations.1: no bundled model 'nona'" in str(found.exception)
    with (
        workbench.load(path, pool=Shelf(MODELS)) as wf,
        pytest.raises(SpecError, match=r"configurations.1: no bundled model 'nona'"),
    ):
        load_configurations(wf, path)


@pytest.mark.parametrize(("targets", "warns"), [(None, True), ({"usd": 1.0}, True), ({"p95_latency": 3.0}, False)])
def test_configurations_without_a_target_of_time_are_warned_of(
    tmp_path: Path, targets: dict[str, float] | None, warns: bool
) -> None:
    figures = {"score": 0.5, "latency": 1.0, "p95_latency": 2.0}
    path = write_shelf_task(tmp_path, Shelf(MODELS), 10, targets=targets, configurations=[figures, dict(figures)])
    said = CliRunner().invoke(cli, ["validate", str(path)]).output
    assert ("1 of the configurations are never taken" in said) == warns


@pytest.mark.parametrize(
    ("optimizer", "targets"),
    [
        ({"random": {"trials": 16, "race": True}}, {"score": 0.5, "usd": 0.005}),
        ({"optuna": {"trials": 16}}, {"score": 0.5}),
        pytest.param({"random": {"trials": 16, "race": True}}, {"score": 0.5}, marks=pytest.mark.slow),
        pytest.param({"optuna": {"trials": 16}}, {"score": 0.5, "usd": 0.005}, marks=pytest.mark.slow),
    ],
)
def test_what_is_cheap_and_good_enough_is_not_stopped_for_its_score(
    tmp_path: Path, targets: dict[str, float], optimizer: dict[str, Any]
) -> None:
    """`small` is clearly worse than the best, and all that the targets ask for."""
    models = Shelf({name: Shelved(model.accuracy, model.usd) for name, model in MODELS.items()})
    report, written = run(tmp_path, models, targets=targets, optimize=[optimizer])
    assert report.is_shown(report.levels) and written["lm"]["model"] == "openai/small"


@pytest.mark.parametrize(
    ("aim", "accuracies", "lms"),
    [
        ({"targets": {"score": 0.8, "usd": 0.005}}, (0.97, 0.97, 0.95), ["openai/large"]),
        ({"objectives": ["score", "usd"], "pick": "cheapest"}, (0.8, 1.0, 0.82), ["openai/large", "openai/medium"]),
    ],
)
def test_the_proof_of_a_pick_that_takes_many_calls_is_paid_for(
    tmp_path: Path, aim: dict[str, Any], accuracies: tuple[float, ...], lms: list[str]
) -> None:
    """It costs a twentieth of the dollars of the best and five times its calls. The search spends all it may."""
    names, prices = ("large", "medium", "tiny"), (0.010, 0.010, 0.0001)
    models = {name: Shelved(a, usd) for name, a, usd in zip(names, accuracies, prices, strict=True)}
    vote = {"predict": "text -> label", "lm": "openai/tiny", "samples": 5}
    words = [f"Wording {n}." for n in range(8)]
    report, _ = run(
        tmp_path,
        Shelf(models),
        rows=100,
        **aim,
        search={
            "lm": lms,
            "nodes.sort": {"any_of": {"vote": vote}},
            "nodes.sort.instructions": words,
        },
        optimize=[{"random": {"trials": 100}}],
        budget={"calls": 1500},
    )
    assert report.best["cost"]["calls"] == 5
    assert report.test_rows == 100 and (report.is_shown(report.levels) or "targets" not in aim)


@pytest.mark.parametrize(
    ("objectives", "pick", "refused"),
    [
        (["score", "p95_latency"], "cheapest", True),
        (["score", "p95_latency", "usd"], "cheapest", True),
        (["score", "usd", "p95_latency"], "cheapest", False),
        (["p95_latency", "score"], "knee", True),
        (["score", "p95_latency"], "score", False),
    ],
)
def test_a_pick_by_what_no_row_has_is_refused(tmp_path: Path, objectives: list[str], pick: str, refused: bool) -> None:
    """A saving of the 95th percentile cannot be paired row by row, so that the result would always be the baseline."""
    path = write_shelf_task(tmp_path, Shelf(MODELS), 10, objectives=objectives, pick=pick)
    found = CliRunner().invoke(cli, ["validate", str(path)])
    assert ("could never be proved: no row has one" in str(found.exception)) == refused, found.output
