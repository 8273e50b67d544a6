"""A run is steered from its page, while it goes on in the same process."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient
from tests.steering.test_steering import level, steered

from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import Site

BASE = "http://localhost:8321"


class Browser:
    """What a reader does on a page: open it, and send one of its forms."""

    def __init__(self, client: TestClient, run: str):
        self.client, self.run, self.page = client, run, ""

    def open(self, path: str = "") -> str:
        answer = self.client.get(f"/runs/{self.run}{path}")
        assert answer.status_code == 200, answer.text
        self.page = answer.text
        return self.page

    def press(self, action: str, **fields: str) -> int:
        token = re.search(r'name="form_token" value="([^"]+)"', self.page)
        assert token is not None
        form = {"form_token": token[1], "action": action, **fields}
        answer = self.client.post(f"/runs/{self.run}/steer", data=form, headers={"origin": BASE})
        self.said = answer.text
        return answer.status_code


@contextmanager
def browsing(database: Path) -> Iterator[Browser]:
    site = Site(database)
    with TestClient(make_app(site, Access()), base_url=BASE) as client:
        name = re.search(r"/runs/([0-9a-f]+)", client.get("/").text)
        assert name is not None
        yield Browser(client, name[1])
    site.close()


def steer_from_page(folder: Path, look: Callable[[Browser, str], None], at: str = "Level 2.") -> tuple[Any, list[Any]]:
    """A run at which somebody looks, in another thread, while a candidate with these instructions is evaluated. look:
    is given the hash of the candidate."""
    errors: list[BaseException] = []

    def watch(text: str, hash_: str) -> None:
        if text != at:
            return

        def look_on() -> None:
            try:
                with browsing(folder / "run.db") as browser:
                    browser.open()
                    look(browser, hash_)
            except BaseException as error:
                errors.append(error)

        other = threading.Thread(target=look_on)
        other.start()
        other.join(30)

    report, _, told = steered(folder, watch)
    if errors:
        raise errors[0]
    return report, told


def test_the_search_is_stopped_from_the_page(tmp_path: Path) -> None:
    def look(browser: Browser, hash_: str) -> None:
        assert "Stop the search" in browser.page and browser.press("stop") == 200
        assert "stop: pending" in browser.open()

    report, told = steer_from_page(tmp_path, look)
    assert (report.status, level(report)) == ("finished", "Level 3.") and told[0]["outcome"] == "done"
    with browsing(tmp_path / "run.db") as browser:
        assert "Stop the search" not in browser.open(), "a run that has ended takes no orders"
        assert browser.press("stop") == 422 and "is not running" in browser.said


def test_a_candidate_is_pinned_dropped_and_written_on_its_page(tmp_path: Path) -> None:
    def look(browser: Browser, hash_: str) -> None:
        page = browser.open(f"/candidates/{hash_}")
        assert "Pin: it stays the best" in page and "Level 2.</textarea>" in page
        assert browser.press("add", candidate=hash_, **{"nodes.sort.instructions": "Level 5. By hand."}) == 200
        assert browser.press("pin", candidate=hash_) == 200

    report, told = steer_from_page(tmp_path, look)
    assert [(one["action"], one["outcome"]) for one in told] == [("add", "done"), ("pin", "done")]
    assert level(report) == "Level 2." and report.candidates == 7


def test_the_budget_is_raised_on_the_page(tmp_path: Path) -> None:
    def look(browser: Browser, hash_: str) -> None:
        assert browser.press("budget", calls="5000", usd="") == 200

    report, _ = steer_from_page(tmp_path, look)
    assert report.budget == {"calls": 5000}


def test_forms_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    def look(browser: Browser, hash_: str) -> None:
        for action, fields in (
            ("fly", {}),
            ("budget", {"calls": "many"}),
            ("budget", {}),
            ("pin", {"candidate": "../etc"}),
            ("add", {"candidate": hash_}),
            ("add", {"candidate": hash_, "nodes.sort.instructions": "Level 2."}),
            ("add", {"candidate": "zz", "nodes.sort.instructions": "x"}),
        ):
            assert browser.press(action, **fields) == 422, action
        token = browser.page
        browser.page = 'name="form_token" value="stolen"'
        assert browser.press("stop") == 403
        browser.page = token

    report, told = steer_from_page(tmp_path, look)
    assert level(report) == "Level 5." and told == []


def test_a_pause_is_shown_until_the_run_goes_on(tmp_path: Path) -> None:
    seen: list[str] = []

    def press(text: str, hash_: str) -> None:
        if text == "Level 2.":
            threading.Thread(target=pause_and_go_on).start()

    def pause_and_go_on() -> None:
        with browsing(tmp_path / "run.db") as browser:
            browser.open()
            browser.press("pause")
            for _ in range(100):
                if "Continue" in browser.open() and "paused" in browser.page and "pause: done" in browser.page:
                    seen.append("paused")
                    break
                time.sleep(0.05)
            browser.press("continue")

    report, _, told = steered(tmp_path, press, seconds=0.008)
    assert seen == ["paused"] and [one["action"] for one in told] == ["pause", "continue"]
    assert level(report) == "Level 5."


def test_the_best_so_far_is_not_a_candidate_that_was_dropped(tmp_path: Path) -> None:
    from workbench.run import candidates
    from workbench.store import Orders, Store

    from .conftest import improve

    name = improve(tmp_path, tmp_path / "run.db")
    store = Store(tmp_path / "run.db")
    row = store.find_run(name)
    scored = [one for one in candidates(store, row["id"]) if one["val"] is not None]
    best, first = max(scored, key=lambda one: one["val"])["hash"], scored[0]["hash"]
    store.execute("update runs set status = 'running', report = null, checksum = null where run = ?", name)
    with browsing(tmp_path / "run.db") as browser:

        def shown_best() -> str:
            return browser.open().partition("Best so far")[2].partition("</a>")[0][-8:]

        assert shown_best() == best[:8]
        Orders(store, row["id"]).add("drop", {"candidate": best}, outcome="done")
        assert shown_best() != best[:8] and "<b>dropped</b>" in browser.page
        assert ">dropped</span>" in browser.open(f"/candidates/{best}")
        Orders(store, row["id"]).add("pin", {"candidate": first}, outcome="refused: why")
        assert ">pinned</span>" not in browser.open(f"/candidates/{first}")
        Orders(store, row["id"]).add("pin", {"candidate": first}, outcome="done")
        assert shown_best() == first[:8]
    store.close()
