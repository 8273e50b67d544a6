"""What a report says of calls that went wrong, and of what was never tried."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.helpers.planted import PlantedLM, plant

from workbench import Optimizer, Study, Workflow
from workbench.errors import Interrupted, LMError
from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.proof.report import _shown
from workbench.run import Options, candidates, optimize, prepare_stored, resume
from workbench.store import Store


class Breaking(PlantedLM):
    """The answer to its first request breaks off."""

    async def complete(self, request: Request) -> Response:
        if not self.requests:
            self.requests += 1
            raise LMError("broken", "half an answer")
        return await super().complete(request)


class Gone(PlantedLM):
    """A server that is not there, until it is."""

    there = False

    async def complete(self, request: Request) -> Response:
        if not self.there:
            raise LMError("connection", "nobody listens")
        return await super().complete(request)


class Stopped(Optimizer):
    """Is interrupted before its first candidate."""

    async def optimize(self, study: Study) -> Workflow:
        raise Interrupted("interrupted")


def test_a_report_says_how_many_candidates_the_replay_has_not_come_to(tmp_path: Path) -> None:
    whole, lm = plant(tmp_path, lambda r: 0.5, {"random": {"trials": 3}}, calls=400)
    assert whole.candidates > 2 and not any("did not come to" in w for w in whole.warnings)
    stopped = resume("last", database=tmp_path / "run.db", pool=lm, optimizers=[("random", Stopped())])
    assert stopped.status == "interrupted"
    said = f"{whole.candidates - 1} earlier candidates are not in this report"
    assert any(warning.startswith(said) for warning in stopped.warnings)
    again = resume("last", database=tmp_path / "run.db", pool=lm)
    assert again.candidates == whole.candidates and not any("did not come to" in w for w in again.warnings)


def test_the_bill_names_what_an_answer_that_broke_off_may_cost(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=Breaking(lambda r: 0.5),
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    tokens, usd = report.spent["maybe_tokens"], report.spent["maybe_usd"]
    assert tokens > 0 and usd > 0
    assert (
        f"; up to {tokens} tokens and ${usd:.4f} more if the server bills calls whose answers did not arrive in full"
        in (report.lines()[-2])
    )


@pytest.mark.parametrize("calls", [5, 19, 60])
def test_a_server_that_never_answers_is_not_taken_for_a_small_budget(calls: int, tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    file, lm = tmp_path / "workflow.yaml", Gone(lambda r: 0.5)
    report = optimize(
        file,
        database=tmp_path / "two.db",
        pool=lm,
        options=Options([("budget.calls", calls)], str(tmp_path / "o.yaml"), allow_unproved=True),
    )
    assert report.status == "failed" and "requests" in (report.error or "") and "nobody listens" in (report.error or "")
    failed = report.spent["failed"]["connection"]
    assert 0 < failed == report.spent["calls"] <= calls
    assert f"; {failed} requests failed (connection {failed}), which count as calls" in report.lines()[-2]
    assert not any(line.startswith("baseline") for line in report.lines()), "nothing was measured"
    assert not (tmp_path / "o.yaml").exists()
    lm.there = True
    again = resume("last", database=tmp_path / "two.db", pool=lm, options=Options([("budget.calls", 800)]))
    assert again.status == "finished", again.error
    assert again.spent["calls"] > failed and not again.failures


def test_a_budget_that_a_resume_raises_stays_raised(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    lm = PlantedLM(lambda r: 0.5)
    options, database = (
        Options([("budget.calls", 19)], str(tmp_path / "o.yaml"), allow_unproved=True),
        tmp_path / "two.db",
    )
    report = optimize(tmp_path / "workflow.yaml", database=database, pool=lm, options=options)
    assert report.status == "budget" and report.spent["calls"] <= 19
    stopped = resume(
        "last", database=database, pool=lm, options=Options([("budget.calls", 400)]), optimizers=[("random", Stopped())]
    )
    assert stopped.status == "interrupted" and stopped.budget["calls"] == 400
    again = resume("last", database=database, pool=lm)
    assert again.status == "finished" and again.budget["calls"] == 400


def test_a_budget_that_ends_amid_answers_is_its_own_end(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=Breaking(lambda r: 0.5),
        options=Options([("budget.calls", 19)], str(tmp_path / "o.yaml"), allow_unproved=True),
    )
    assert report.status == "budget" and report.spent["failed"] == {"broken": 1}


def test_a_model_that_was_not_there_is_asked_again(tmp_path: Path) -> None:
    """Refused as a wrong request (a model that is not pulled yet): not a weak model, and no lasting outcome."""
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400, proof={"when_unchanged": "test"})

    class NotPulled(Gone):
        async def complete(self, request: Request) -> Response:
            if not self.there:
                raise LMError("bad_request", "no such model")
            return await PlantedLM.complete(self, request)

    lm = NotPulled(lambda r: 0.5)
    options = Options(out=str(tmp_path / "o.yaml"))
    report = optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=lm, options=options)
    assert report.status == "failed" and "no such model" in (report.error or "")
    lm.there = True
    again = resume("last", database=tmp_path / "two.db", pool=lm, options=options)
    assert again.status == "finished" and not again.failures and again.best["test"]["score"]
    store = Store(tmp_path / "two.db")
    shown = candidates(store, store.find_run("last")["id"])
    store.close()
    assert shown[0]["val"] == again.baseline["val"] and not shown[0]["failed"], "what was not answered is forgotten"


def test_a_run_is_resumed_as_it_was_started_whatever_the_shell_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 2}}, calls=400, seed=3)
    config = tmp_path / "config.yaml"
    config.write_text("concurrency: 2\n")
    monkeypatch.setenv("WORKBENCH_CONFIG", str(config))
    monkeypatch.setenv("WORKBENCH_BUDGET_CALLS", "300")
    lm, options, database = PlantedLM(lambda r: 0.5), Options(out=str(tmp_path / "o.yaml")), tmp_path / "two.db"
    stopped = optimize(
        tmp_path / "workflow.yaml", database=database, pool=lm, options=options, optimizers=[("random", Stopped())]
    )
    assert stopped.status == "interrupted" and stopped.budget["calls"] == 300
    monkeypatch.setenv("WORKBENCH_BUDGET_CALLS", "20")
    monkeypatch.setenv("WORKBENCH_SEED", "9")
    config.unlink()
    again = resume("last", database=database, pool=lm)
    assert again.status == "finished" and again.budget["calls"] == 300 and again.spent["calls"] > 20
    store = Store(database)
    kept = prepare_stored(store.find_run("last")).spec
    store.close()
    assert (kept.seed, kept.concurrency) == (3, 2)
    more = resume("last", database=database, pool=lm)
    assert more.spent["calls"] == again.spent["calls"]


class Free(PlantedLM):
    """A model on this machine."""

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0


def picked_cheapest(folder: Path, objective: str, before: str, after: str) -> Report:
    """A run whose better candidate is found, and the winner picked for what it costs."""
    search = {"nodes.sort.instructions": [before, after]}
    plant(folder, lambda r: 0.5, {"random": {"trials": 2}}, calls=900, search=search)
    file = folder / "workflow.yaml"
    spec = json.loads(file.read_text()) | {"objectives": ["score", objective], "pick": "cheapest"}
    spec["nodes"]["sort"]["instructions"] = before
    file.write_text(json.dumps(spec))
    lm = Free(lambda r: 0.99 if "Better" in str(r.messages[0]) else 0.3)
    return optimize(file, database=folder / "p.db", pool=lm, options=Options(out=str(folder / "o.yaml")))


def test_a_baseline_that_is_picked_for_its_cost_is_not_said_to_be_the_best(tmp_path: Path) -> None:
    report = picked_cheapest(tmp_path, "tokens", "Plain.", "Better. " * 30)
    assert not report.changes and max(point["score"] for point in report.pareto) > report.baseline["val"]
    said = "Nothing was changed: the candidates that scored better on val cost too much to be picked."
    assert said in report.lines()


def test_a_cost_of_nothing_has_decided_nothing(tmp_path: Path) -> None:
    """With a free model, dollars are 0 on both sides: the score picked the winner."""
    report = picked_cheapest(tmp_path, "usd", "Plain.", "Better.")
    assert report.gain_shown and report.saving is None
    assert not any("picked by score and cost" in line for line in report.lines())


def test_a_long_change_is_shown_where_it_begins() -> None:
    old = f"You sort the mail of a shop. {'Read all of it. ' * 8}"
    before, after = _shown(old, old + "Say one word.")
    assert before.startswith("...") and "Say one word." in after and before != after
    assert _shown("a", "b") == ['"a"', '"b"'] and _shown(None, [{"x": 1}]) == ["none", "1 rows"]


class Caching(PlantedLM):
    """Has the beginning of the baseline's prompts in its cache, and nothing of others."""

    async def complete(self, request: Request) -> Response:
        found = await super().complete(request)
        return replace(found, cached=0 if "Better" in str(request.messages) else found.prompt_tokens - 5)


def test_tokens_that_the_server_had_cached_are_told_apart_also_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = plant(tmp_path / "plain", lambda r: 0.5, {"random": {"trials": 1}}, calls=200)
    assert "uncached_tokens" not in plain.baseline["cost"] and "had cached" not in "".join(plain.lines())
    monkeypatch.setattr("tests.helpers.planted.PlantedLM", Caching)
    space = {"nodes.sort.instructions": ["Plain.", "Better."]}
    better = lambda r: 0.95 if "Better" in str(r.messages) else 0.2  # noqa: E731
    report, lm = plant(tmp_path, better, {"random": {"trials": 3}}, calls=600, search=space)
    before, after = report.baseline["cost"], report.best["cost"]
    assert before["uncached_tokens"] == 6, "five of the prompt, one of the answer"
    assert after["tokens"] > 6 and "uncached_tokens" not in after
    line = f"tokens per example: baseline 6, winner {after['tokens']:.4g}."
    assert f"Without what the server had cached, {line}" in report.lines()
    again = resume("last", database=tmp_path / "run.db", pool=lm)
    assert again.baseline["cost"] == before
