"""What a run says where it begins, and where it cannot go on."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.planted import plant

from workbench.cli import cli
from workbench.errors import LMError, SpecError
from workbench.run import Options, optimize
from workbench.spec import apply_overrides, load_yaml
from workbench.store import Store
from workbench_testing.simulated import SimulatedLM, SimulatedPool, write_task


def test_a_run_without_a_candidate_says_so(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=48)
    assert any("no candidate was made" in line for line in report.lines())
    assert "but nothing was tried: a candidate takes 24 calls more than are left" in report.headline()[0]
    report, _ = plant(tmp_path / "two", lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    assert not any("no candidate was made" in line for line in report.lines())
    assert report.as_dict()["untried"] is None and report.headline()[0].endswith(": finished")


@pytest.mark.parametrize("answer", [None, "", "I'm sorry, but I can't help with that.", "x" * 5000])
def test_a_proposer_that_fails_is_told(answer: str | None, tmp_path: Path) -> None:
    """The roles of other language models have no rows of data that would show their failures."""
    from workbench.lm import Request, Response

    class Silent:
        identity, concurrency = "silent", 4

        async def complete(self, request: Request) -> Response:
            if answer is None:
                raise LMError("too_long", "the prompt is too long")
            return Response(answer, "stop", 5, 5, 0.0)

        def price(self, prompt_tokens: int, completion_tokens: int) -> float:
            return 0.0

        async def aclose(self) -> None:
            pass

    from tests.helpers.planted import PlantedLM

    from workbench.run import optimize

    plant(tmp_path, lambda r: 0.3, {"rewrite": {"rounds": 1}}, calls=400, roles={"proposer": "templates/instructions"})
    pool = PlantedLM(lambda r: 0.3)
    pool.get = lambda spec: Silent() if "templates" in spec.model else pool  # type: ignore[method-assign]
    report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=pool,
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    why = "none of the proposer's 2 answers came to a candidate on val: what they propose lost on a few rows "
    why += "first, is what there is already, or could not be read"
    if answer is None:
        assert "2 of 2 calls of the proposer failed (too_long): the prompt is too long" in report.warnings
        why = "the proposer did not answer: all 2 of its calls failed (too_long)"
    elif len(answer) < 100:
        kind = "refused" if answer else "empty"
        assert f"2 of 2 calls of the proposer failed ({kind}): it said: {answer!r}" in report.warnings
        why = f"the proposer did not answer: all 2 of its calls failed ({kind})"
    assert report.as_dict()["untried"] == why and report.status == "finished"
    assert report.headline()[0] == f"workbench run {report.run}: finished, but nothing was tried: {why}"


def test_a_flag_reaches_an_optimizer_that_is_named_without_parameters() -> None:
    source = load_yaml("optimize: [random, evolve]\n", "w.yaml")
    value = apply_overrides(source, [("optimize.1.evolve.trials", 3)]).value
    assert value["optimize"] == ["random", {"evolve": {"trials": 3}}]


def test_a_model_that_refuses_every_request_ends_the_run(tmp_path: Path) -> None:
    """A mistyped name of a provider reaches LiteLLM, which knows no such model."""
    from tests.helpers.planted import PlantedLM

    from workbench.lm import Request, Response
    from workbench.run import optimize

    class Refusing(PlantedLM):
        async def complete(self, request: Request) -> Response:
            self.requests += 1
            raise LMError("bad_request", "no provider 'bundeld'")

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    pool = Refusing(lambda r: 0.3)
    report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=pool,
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.status == "failed" and "no provider 'bundeld'" in (report.error or "")
    assert pool.requests <= 24, "the rows of val and no more"


def test_a_budget_that_is_too_small_for_the_proof_is_told_at_the_start(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    done = CliRunner().invoke(cli, ["estimate", str(tmp_path / "workflow.yaml"), "--set", "budget.calls=50"])
    said = " ".join(done.output.split())
    assert "Warning: the budget of 50 calls cannot pay for the proof" in said and "at least 104 calls" in said


def test_a_budget_that_may_be_too_small_for_the_proof_is_told_at_the_start(tmp_path: Path) -> None:
    """A reflecting node may stop after its first call, or take more of them."""
    nodes = {"sort": {"reflect": {"predict": "text -> label"}, "rounds": 1}}
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=2000, nodes=nodes)
    done = CliRunner().invoke(cli, ["estimate", str(tmp_path / "workflow.yaml"), "--set", "budget.calls=150"])
    said = " ".join(done.output.split())
    assert "Warning: the budget of 150 calls may be too small" in said and "Raise budget.calls" in said


@pytest.mark.parametrize("out", ["folder", "test.jsonl/x.yaml"])
def test_a_result_that_could_not_be_written_is_refused_before_anything_is_paid(out: str, tmp_path: Path) -> None:
    from workbench.run import optimize

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError, match="--out"):
        optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", options=Options(out=str(tmp_path / out)))
    assert not (tmp_path / "two.db").exists()
    done = CliRunner().invoke(
        cli, ["export", "--db", str(tmp_path / "run.db"), "--out", str(tmp_path / "new" / "x.yaml")]
    )
    assert done.exit_code == 0 and (tmp_path / "new" / "x.yaml").is_file()


def test_a_place_that_went_away_while_it_ran_loses_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workbench.run.result_files.write_whole", full)
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, proof={"when_unchanged": "test"})
    assert report.status == "finished" and report.workflow is None and report.proof is not None
    assert any("No space left" in w and "workbench export" in w for w in report.warnings)


def test_u9_a_result_of_another_workflow_or_one_that_was_edited_is_not_replaced(tmp_path: Path) -> None:
    def optimized(name: str, overwrite: bool = False) -> bool:
        spec = apply_overrides(load_yaml(path.read_text(), str(path)), [("name", name)])
        try:
            optimize(
                spec,
                database=tmp_path / "run.db",
                optimizers=[],
                pool=SimulatedPool(SimulatedLM()),
                options=Options(out=str(out), overwrite=overwrite, allow_unproved=True),
            )
        except SpecError as error:
            assert f"--out {out}: that file exists" in str(error) and "--overwrite" in str(error)
            return False
        return True

    path, out = write_task(tmp_path, budget={"calls": 200}, rows=(4, 4, 4)), tmp_path / "out.yaml"
    assert optimized("one"), "there is none yet"
    assert optimized("one"), "its own, from before"
    assert not optimized("two")
    out.write_text(out.read_text() + "# mine\n")
    assert not optimized("one")
    assert optimized("two", overwrite=True)


@pytest.mark.fault("signals")
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ((), "^resume the run with: workbench resume [0-9a-f]{8} --db .*run.db$"),
        (("the plugin x was made",), "^the plugin x was made$"),
    ],
)
def test_a_signal_before_the_run_catches_it_says_how_to_resume(
    named: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is there already, and nothing was sent. named: who was interrupted, if a guard of plugins knows."""

    def interrupt(*args: object, **more: object) -> None:
        raise KeyboardInterrupt(*named)

    monkeypatch.setattr("workbench.run.start.Session", interrupt)
    with pytest.raises(KeyboardInterrupt, match=said):
        plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)


@pytest.mark.fault("signals")
@pytest.mark.parametrize("moment", ["start", "__init__"])
def test_a_signal_while_the_row_is_written_loses_nothing(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the row was written, while the thread that syncs the file is made or is started."""

    def interrupt(thread: threading.Thread, *args: Any, **more: Any) -> None:
        if "workbench-sync" in (more.get("name"), getattr(thread, "_name", None)):
            raise KeyboardInterrupt
        usual(thread, *args, **more)

    usual = getattr(threading.Thread, moment)
    monkeypatch.setattr(threading.Thread, moment, interrupt)
    with pytest.raises(KeyboardInterrupt, match="resume the run with: workbench resume"):
        plant(tmp_path, lambda r: 0.3, {"random": {"trials": 2}}, calls=400)
    monkeypatch.undo()
    with closing(Store(tmp_path / "run.db")) as store:
        assert len(store.list_runs()) == 1
