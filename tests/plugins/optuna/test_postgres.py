"""Runs that search one study on PostgreSQL: Debian's package, started here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, candidates, plant
from tests.helpers.postgres import PASSWORD, Server, find_program, postgres
from tests.helpers.searchers import only_run, search_together
from tests.plugins.optuna.test_optuna import SPACE, skill
from tests.plugins.optuna.test_shared_study import evaluated

from workbench.errors import StoreError
from workbench.run import resume
from workbench_optuna.storage import close_storage, open_storage

pytest.importorskip("psycopg")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_program("initdb") is None, reason="needs a PostgreSQL server: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found:
        yield found


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def trials_of(server: Server, study: str) -> list[Any]:
    import optuna

    storage = open_storage(server.address, Path())
    try:
        (name,) = [name for name in optuna.get_all_study_names(storage) if name.startswith(f"{study} ")]
        return optuna.load_study(study_name=name, storage=storage).get_trials(deepcopy=False)
    finally:
        close_storage(storage)


def test_three_runs_that_start_at_once_on_an_empty_database(server: Server, tmp_path: Path) -> None:
    found = search_together(tmp_path, 3, skill, server.address, calls=300, search=SPACE, settings={"study": "at once"})
    trials = trials_of(server, "at once")
    for report, lm in found:
        # Which run draws what depends on the machine: one that found nothing better has nothing to test.
        assert bool(report.test_rows) == bool(report.changes) and report.spent["calls"] == lm.requests <= 300
        assert evaluated(trials, report.run), "each adds trials"
    assert any(report.changes for report, _ in found)
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in text for text in texts)


def test_one_run_finds_what_it_finds_without(server: Server, tmp_path: Path) -> None:
    common = {"calls": 500, "search": SPACE, "seed": 5}
    plant(tmp_path / "alone", skill, {"optuna": {"trials": 20}}, **common)
    settings = {"trials": 20, "storage": server.address, "study": "alone"}
    plant(tmp_path / "shared", skill, {"optuna": settings}, **common)
    assert candidates(tmp_path / "alone") == candidates(tmp_path / "shared")


@pytest.mark.fault("lost-storage")
def test_a_server_that_stops_ends_a_run_which_goes_on_when_it_is_back(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, sent, stopped = PlantedLM.complete, list[Any](), list[bool]()

    async def stopping(self: PlantedLM, request: Any) -> Any:
        sent.append(request)
        if len(sent) == 100 and not stopped:
            stopped.append(True)
            server.stop()
        return await answer(self, request)

    monkeypatch.setattr(PlantedLM, "complete", stopping)
    settings = {"optuna": {"trials": 12, "storage": server.address, "study": "stops"}}
    try:
        with pytest.raises(StoreError, match="study cannot be") as error:
            plant(tmp_path, skill, settings, calls=600, search=SPACE)
        assert PASSWORD not in str(error.value)
    finally:
        server.start()
    again = resume(only_run(tmp_path), database=tmp_path / "run.db", pool=PlantedLM(skill))
    assert again.status == "finished" and len(sent) <= 600


def test_a_wrong_password_is_named_and_not_shown(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    settings, given = {"optuna": {"storage": server.address}}, {"listener": None}
    report, lm = plant(tmp_path, skill, settings, calls=300, search=SPACE, given=given)
    assert report.status == "failed" and lm.requests == 0
    assert "cannot be used: " in str(report.error) and "password authentication failed" in str(report.error)
    assert "hunter2" not in str(report.error)
