"""A run is branched from a candidate's page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient
from tests.plugins.view.conftest import BASE, improve

from workbench.store import Orders, Store, read_options
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import Site


def test_a_candidate_s_page_adds_a_run_that_begins_there(tmp_path: Path) -> None:
    database = tmp_path / "run.db"
    first, store = improve(tmp_path, database), Store(database)
    site = Site(database)
    client = TestClient(make_app(site, Access()), base_url=BASE, follow_redirects=False)
    candidate = re.findall(rf"/runs/{first}/candidates/([0-9a-f]+)", client.get(f"/runs/{first}").text)[-1]
    page = client.get(f"/runs/{first}/candidates/{candidate}").text
    token = re.search(r'name="form_token" value="([^"]+)"', page)
    assert token is not None and f"workbench branch {first} {candidate[:12]}" in page

    def send(**fields: str) -> Any:
        form = {"form_token": token[1], "candidate": candidate, **fields}
        return client.post(f"/runs/{first}/branch", data=form, headers={"origin": BASE})

    refused = send(calls="many")
    assert refused.status_code == 422 and f'href="/runs/{first}">Back to run' in refused.text
    assert send(candidate="0" * 16).status_code == 422
    assert send(form_token="x").status_code == 403
    assert len(store.list_runs()) == 1, "what is refused adds nothing"
    added = send(calls="77")
    assert added.status_code == 303
    name = added.headers["location"].rpartition("/")[2]
    stored = read_options(store.find_run(name))
    assert stored["branched_from"] == {"run": first, "candidate": candidate}
    assert stored["sets"] == [("budget.calls", 77)]
    page = client.get(added.headers["location"]).text
    assert f"workbench resume {name}" in page and f'href="/runs/{first}/candidates/{candidate}"' in page
    assert f'href="/runs/{name}"' in client.get(f"/runs/{first}/candidates/{candidate}").text, "and back"
    assert name in client.get("/?status=ready").text and first not in client.get("/?status=ready").text
    assert [one["kind"] for one in Orders(store, store.find_run(first)["id"]).read_all()] == ["branch"]
    store.close()
    site.close()
