"""Each link of a page leads to a page, whatever became of the run."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient

from workbench.run import branch_run, candidates
from workbench.store import Store
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import Site

from .conftest import BASE, improve


def broken_links(client: TestClient, start: str, of_a_kind: int = 1) -> list[str]:
    """Links that lead to no page, with the page that has them. of_a_kind: so many pages of one kind are looked at."""
    todo, seen, kinds, found = [(start, "")], {start}, dict[str, int](), list[str]()
    while todo:
        place, parent = todo.pop(0)
        answer = client.get(place)
        if answer.status_code != 200:
            found.append(f"{parent} -> {place}: {answer.status_code}")
            continue
        for link in re.findall(r'href="(/[^"#]*)"', answer.text):
            link = html.unescape(link)
            kind = re.sub(r"(?<=[/=:])[0-9a-f]{16,}(?=[/&@]|$)", "*", link)
            if link in seen or kinds.get(kind, 0) >= of_a_kind:
                continue
            seen.add(link)
            kinds[kind] = kinds.get(kind, 0) + 1
            todo.append((link, place))
    assert len(seen) > 10
    return found


@pytest.mark.slow
def test_no_link_of_a_finished_or_killed_run_leads_nowhere(client: TestClient, runs: dict[str, Any]) -> None:
    for run in (runs["optimize"], runs["killed"], runs["hostile"]):
        assert not broken_links(client, f"/runs/{run}", of_a_kind=3)


@pytest.mark.slow
def test_no_link_of_a_losing_candidate_or_a_branch_leads_nowhere(tmp_path: Path) -> None:
    database = tmp_path / "run.db"
    run, store = improve(tmp_path, database), Store(database)
    row = store.find_run(run)
    tested = {e["candidate"] for e in store.rows("select candidate from evaluations where split = 'test'")}
    loser = next(one["hash"] for one in candidates(store, row["id"]) if one["hash"] not in tested)
    branch = branch_run(store, run, loser)
    site = Site(database)
    client = TestClient(make_app(site, Access()), base_url=BASE, follow_redirects=False)
    page = client.get(f"/runs/{run}/candidates/{loser}")
    assert "Compare with the baseline" in page.text, "on val, as it was not tested"
    assert not broken_links(client, f"/runs/{run}/candidates/{loser}")
    assert not broken_links(client, f"/runs/{branch}")
    assert "Rows</a>" not in client.get(f"/runs/{branch}").text
    site.close()
    store.close()


def test_only_calls_without_a_whole_answer_stand_out(tmp_path: Path) -> None:
    database = tmp_path / "run.db"
    run = improve(tmp_path, database)
    store = Store(database)
    one = store.row("select key from calls where kind = 'lm' order by key limit 1")
    assert one is not None
    store.execute("update calls set outcome = 'length' where key = ?", one["key"])
    store.close()
    site = Site(database)
    page = TestClient(make_app(site, Access()), base_url=BASE).get(f"/runs/{run}/calls").text
    assert re.findall(r'class="wrong">([^<]+)<', page) == ["length"]
    site.close()


def test_no_status_of_a_run_takes_the_style_of_a_part_of_the_page(client: TestClient) -> None:
    """A status is a class of its badge; `budget` was one of the bars, too, which made it a wide box."""
    rules = "\n".join(client.get(f"/assets/{name}.css").text for name in ("style", "view"))
    for status in ("ready", "running", "finished", "budget", "interrupted", "failed", "killed"):
        assert not re.search(rf"(?m)^\s*\.{status}\b", rules), status


def test_events_are_told_in_words(client: TestClient, runs: dict[str, Any]) -> None:
    page = client.get(f"/runs/{runs['killed']}").text
    assert "candidate" in page and "processors" not in page[page.index("Events,") : page.index("Tags")]
