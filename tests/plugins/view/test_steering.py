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
            ("pin", {"candidate": hash_}),
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
