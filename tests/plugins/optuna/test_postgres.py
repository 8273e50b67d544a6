"""Searchers of one study on PostgreSQL: Debian's package, started here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, candidates, plant
from tests.helpers.postgres import PASSWORD, Server, find_program, postgres
from tests.helpers.searchers import doomed, hurry, search_together
from tests.plugins.optuna.test_optuna import SPACE, skill
from tests.plugins.optuna.test_shared_faults import only_run
from tests.plugins.optuna.test_shared_study import check_together

from workbench.errors import SpecError, StoreError
from workbench.run import resume
from workbench_optuna import searchers
from workbench_optuna.account_log import open_storage
from workbench_optuna.searchers import CANDIDATE, REPEATS, ROWS

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
    hurry(monkeypatch)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def trials_of(server: Server, study: str) -> list[Any]:
    import optuna

    storage, log = open_storage(server.address, Path(), study)
    try:
        return optuna.load_study(study_name=study, storage=storage).get_trials(deepcopy=False)
    finally:
        log.close()


def test_three_searchers_that_start_at_once_on_an_empty_database(server: Server, tmp_path: Path) -> None:
    found = search_together(tmp_path, 3, skill, server.address, calls=900, search=SPACE, settings={"study": "at once"})
    check_together(found, 900)
    evaluated = [t.user_attrs[CANDIDATE] for t in trials_of(server, "at once") if ROWS in t.user_attrs]
    assert len(evaluated) == len({*evaluated}) > 15
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in text for text in texts)


def test_one_searcher_finds_what_it_finds_without(server: Server, tmp_path: Path) -> None:
    common = {"calls": 500, "search": SPACE, "seed": 5}
    plant(tmp_path / "alone", skill, {"optuna": {"trials": 20}}, **common)
    settings = {"trials": 20, "storage": server.address, "study": "alone"}
    plant(tmp_path / "shared", skill, {"optuna": settings}, **common)
    assert candidates(tmp_path / "alone") == candidates(tmp_path / "shared")


@pytest.mark.fault("killed-searcher")
def test_one_of_three_is_killed_on_a_database(server: Server, tmp_path: Path) -> None:
    # More calls than all trials take: else the others may have spent them before the killed one's lease is over.
    with doomed(tmp_path / "killed", server.address, calls=2000, after=90, trials=20) as kill:
        sent = kill()
    (begun,) = [t for t in trials_of(server, "planted") if t.state.name == "RUNNING"]
    settings = {"trials": 20}
    found = search_together(tmp_path, 2, skill, server.address, calls=2000, search=SPACE, settings=settings)
    assert (
        sent + sum(lm.requests for _, lm in found) <= 2000 and sum(report.test_rows == 40 for report, _ in found) == 1
    )
    trials = trials_of(server, "planted")
    (again,) = [t for t in trials if t.user_attrs.get(REPEATS) == begun.number]
    assert trials[begun.number].state.name == "FAIL" and again.state.name in ("COMPLETE", "PRUNED")


@pytest.mark.fault("lost-storage")
def test_a_server_that_stops_ends_a_run_which_goes_on_when_it_is_back(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searchers, "PAUSES", (0.1, 0.1, 0.1))
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
    with pytest.raises((StoreError, SpecError), match="cannot be used: .*password authentication failed") as error:
        plant(tmp_path, skill, {"optuna": {"storage": server.address}}, calls=300, search=SPACE)
    assert "hunter2" not in str(error.value)
