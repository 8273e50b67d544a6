"""Pages whose texts attack, and databases that change or are damaged under them."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from tests.helpers.stored_runs import restore_of_a_stranger
from tests.plugins.view.test_pages import BASE, links, rows_of, text_of

from workbench.errors import StoreError
from workbench.run import candidates
from workbench.store import ReadOnlyStore, Store, add_run
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import Site

from .conftest import HOSTILE, improve

# Hostile texts


def test_texts_are_shown_and_never_obeyed(client: TestClient, runs: dict[str, Any]) -> None:
    run, pages = runs["hostile"], list[str]()
    for place in (f"/runs/{run}/rows", f"/runs/{run}/data", f"/runs/{run}/calls", f"/runs/{run}"):
        pages.append(client.get(place).text)
    for row in rows_of(client, run):
        pages.append(client.get(f"/runs/{run}/row", params={"row": row}).text)
        call = re.search(r'href="([^"]+/call\?key=\w+)"', pages[-1])
        assert call is not None or "surrogates not allowed" in pages[-1], "which no model was sent"
        pages += [client.get(call[1]).text] if call is not None else []
    for page in pages:
        assert "<script>alert" not in page and "<img src=x" not in page and '" onmouseover' not in page
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page)
    together = "".join(pages)
    for sign in ("&lt;script&gt;alert(1)", "\\x1b[31mred", "\\u202eesrever", "a\\x00b", "&#34; onmouseover=alert(3)"):
        assert sign in together, sign
    assert "\\ud800 alone" in together


def test_a_long_text_is_cut_with_a_link_to_the_whole(client: TestClient, runs: dict[str, Any]) -> None:
    run = runs["hostile"]
    long = next(row for row, text in zip(rows_of(client, run), HOSTILE.values(), strict=True) if len(text) > 10_000)
    page = client.get(f"/runs/{run}/row", params={"row": long})
    assert len(page.text) < 50_000 and "all 1,000,0" in page.text
    whole = next(link for link in links(page) if "whole=1" in link)
    assert "x" * 1_000_000 in client.get(whole).text
    assert len(client.get(f"/runs/{run}/rows").text) < 50_000 > len(client.get(f"/runs/{run}/data").text)


def test_no_page_of_a_run_runs_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = restore_of_a_stranger(tmp_path)
    monkeypatch.chdir(tmp_path)
    with Store(database) as store:
        (row,) = store.list_runs(("optimize",))
        tried = [found["hash"] for found in candidates(store, row["id"])]
    seen = TestClient(make_app(Site(database), Access()), base_url=BASE)
    pages = ["/", *(f"/runs/{row['run']}{page}" for page in ("", "/live", "/rows", "/calls", "/data", "/report.html"))]
    pages += [f"/runs/{row['run']}/candidates/{hash_}?against={tried[0]}" for hash_ in tried]
    pages += [f"/runs/{row['run']}/pictures/{name}.svg" for name in ("before", "after")]
    for page in pages:
        assert seen.get(page).status_code == 200, page
    assert not (tmp_path / "RAN").exists()


@pytest.mark.parametrize("wrong", ["%ed%a0%80", "%00", "<script>", "%ff", "'", '" onerror="', "%25", "=", "x" * 3000])
def test_what_is_asked_for_is_shown_as_text(client: TestClient, runs: dict[str, Any], wrong: str) -> None:
    run = runs["optimize"]
    asked = wrong if "%" in wrong else quote(wrong)
    for place in (
        *(f"/?text={asked}&kind={asked}&status={asked}&tag={asked}&page={asked}", f"/compare?a={asked}&b={asked}"),
        *(
            f"/runs/{run}/rows?candidate={asked}",
            f"/runs/{run}/rows?split={asked}&text={asked}&node={asked}&failure={asked}",
        ),
        *(
            f"/runs/{run}/row?row={asked}",
            f"/runs/{run}/call?key={asked}",
            f"/runs/{run}/calls?role={asked}&after={asked}",
        ),
        *(f"/runs/{run}/data?kind={asked}&text={asked}&split={asked}", f"/plugins?text={asked}"),
    ):
        answer = client.get(f"{BASE}{place}")
        assert answer.status_code in (200, 404), place
        assert "<script>" not in answer.text and '" onerror="' not in answer.text


def test_a_key_in_the_environment_is_on_no_page(
    client: TestClient, runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    run = runs["optimize"]
    places = ["/", f"/runs/{run}", f"/runs/{run}/rows", f"/runs/{run}/calls", "/plugins", f"/runs/{run}/report.json"]
    for place in places:
        answer = client.get(place)
        assert "canary" not in answer.text and "canary" not in str(answer.headers)


# The database


def test_what_is_written_meanwhile_is_seen(tmp_path: Path) -> None:
    def add(name: str) -> None:
        store = Store(tmp_path / "run.db")
        add_run(store, run=name, name=name, status="finished", spec="", options="{}", file="x", kind="optimize")
        store.close()

    add("first")
    site = Site(tmp_path / "run.db")
    client = TestClient(make_app(site, Access()), base_url=BASE)
    assert "first" in text_of(client.get("/"))
    add("second")
    assert "second" in text_of(client.get("/"))
    writer = Store(tmp_path / "run.db")
    add_run(writer, run="third", name="third", status="finished", spec="", options="{}", file="x", kind="optimize")
    assert "third" in text_of(client.get("/"))
    writer.close()
    add("fourth")
    assert "fourth" in text_of(client.get("/"))
    site.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_database_ends_in_a_page(runs: dict[str, Any], tmp_path: Path, seed: int) -> None:
    """Whatever the bytes are: a page, or a page that says what is wrong."""
    rng, content = random.Random(seed), bytearray(Path(runs["database"]).read_bytes())
    for place in rng.sample(range(100, len(content)), len(content) // 20_000):
        content[place] = rng.randrange(256)
    (tmp_path / "run.db").write_bytes(content)
    try:
        ReadOnlyStore(tmp_path / "run.db", check=False).close()
    except StoreError:
        return
    lines: list[str] = []
    site = Site(runs["database"], log=lines.append)
    site.close()
    site.database = tmp_path / "run.db"  # as if it were damaged while it is shown
    client = TestClient(make_app(site, Access()), base_url=BASE)
    run = runs["optimize"]
    for place in ("/", f"/runs/{run}", f"/runs/{run}/rows", f"/runs/{run}/calls", f"/runs/{run}/data"):
        answer = client.get(place)
        assert answer.status_code in (200, 404, 500, 503) and "</html>" in answer.text
    site.close()
    assert not lines, "what is damaged is an error of ours, with its place"


def test_a_damaged_report_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    run = improve(tmp_path, tmp_path / "run.db")
    store = Store(tmp_path / "run.db")
    store.execute("update runs set report = '{}' where run = ?", run)
    store.close()
    site = Site(tmp_path / "run.db")
    answer = TestClient(make_app(site, Access()), base_url=BASE).get(f"/runs/{run}")
    assert answer.status_code == 500 and "damaged" in answer.text
    site.close()
