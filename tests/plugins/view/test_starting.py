"""Runs are started from their pages, if the server allows it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient
from tests.plugins.view.conftest import BASE

from workbench.run import Options, branch_run, optimize, status_of
from workbench.store import Store
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import Site
from workbench_view.server.starting import Starter

WORKFLOW = """
name: letters
lm: bundled/nano
data: {train: ../rows.jsonl, val: ../rows.jsonl, test: ../test.jsonl}
metric: exact_match(label)
nodes: {sort: {predict: "text -> label"}}
optimize: []
budget: {calls: 30}
"""


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A database, and the name of a branch in it that waits to be started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_TRUST", str(tmp_path))
    (tmp_path / "rows.jsonl").write_text('{"text": "where is my parcel", "label": "shipping"}\n')
    words = "apple brick cloud drift ember flint".split()  # no row is like another
    rows = (json.dumps({"text": f"the bill for {word * 9} is wrong", "label": "billing"}) for word in words)
    (tmp_path / "test.jsonl").write_text("\n".join(rows))
    folder = tmp_path / "project"  # its data are outside it, so that it must be trusted
    folder.mkdir()
    (folder / "workflow.yaml").write_text(WORKFLOW)
    database = tmp_path / "run.db"
    first = optimize(folder / "workflow.yaml", database=database, options=Options(allow_unproved=True)).run
    store = Store(database)
    name = branch_run(store, first, "baseline")
    store.close()
    return database, name


def status(database: Path, run: str) -> str:
    store = Store(database)
    try:
        return status_of(store, store.find_run(run))
    finally:
        store.close()


@pytest.fixture
def asked(ready: tuple[Path, str]) -> Iterator[Any]:
    """Sends the form of the run's page: to a server that starts runs, or to one that does not."""
    database, run = ready
    sites: list[Site] = []

    def send(*, allowed: bool = True, button: bool = True, **fields: str) -> Any:
        sites.append(Site(database, start=Starter(database).start if allowed else None))
        client = TestClient(make_app(sites[-1], Access()), base_url=BASE, follow_redirects=False)
        page = client.get(f"/runs/{run}").text
        assert (f'action="/runs/{run}/start"' in page) == button
        token = re.search(r'name="form_token" value="([^"]+)"', page)
        assert token is not None
        return client.post(f"/runs/{run}/start", data={"form_token": token[1], **fields}, headers={"origin": BASE})

    yield send
    for site in sites:
        site.close()


@pytest.mark.slow
def test_a_run_is_started_from_its_page_and_goes_on_by_itself(ready: tuple[Path, str], asked: Any) -> None:
    answer = asked()
    assert answer.status_code == 303 and answer.headers["location"] == f"/runs/{ready[1]}"
    end = time.monotonic() + 60
    while status(*ready) == "running" and time.monotonic() < end:
        time.sleep(0.1)
    assert status(*ready) == "finished"
    again = asked(button=False)
    assert again.status_code == 409 and "is finished" in again.text


def test_a_server_that_was_not_told_to_starts_none(ready: tuple[Path, str], asked: Any) -> None:
    refused = asked(allowed=False, button=False)
    assert refused.status_code == 403 and "view --start" in refused.text and status(*ready) == "ready"


def test_a_form_of_somebody_else_starts_none(ready: tuple[Path, str], asked: Any) -> None:
    assert asked(form_token="other").status_code == 403 and status(*ready) == "ready"


@pytest.mark.slow
def test_a_run_that_cannot_start_says_why(
    ready: tuple[Path, str], asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "other", "label": "shipping"}\n')
    refused = asked()
    assert refused.status_code == 422 and "the data of run" in refused.text and status(*ready) == "ready"
    monkeypatch.setattr("workbench_view.server.starting.find_exact_run", lambda store, run: None)
    assert asked().status_code == 404


@pytest.mark.slow
def test_a_run_whose_file_is_not_trusted_does_not_start(
    ready: tuple[Path, str], asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_TRUST", "")
    refused = asked()
    assert refused.status_code == 422 and "is not trusted yet" in refused.text and status(*ready) == "ready"
