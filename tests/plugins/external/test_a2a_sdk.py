"""Agents on the real SDK of A2A, which were written without us (`tests/helpers/a2a_sdk_agents.py`).

Marker `worlds`: `.ci/a2a` makes the venv with the SDK and runs these tests; without it they are skipped.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.gallery_tried import tried
from tests.helpers.processes import free_port
from tests.plugins.external.test_a2a import asked, load

from workbench_worlds.interpreter import find_interpreter, venv_place

pytestmark = [pytest.mark.worlds, pytest.mark.timeout(900)]

HELPERS = Path(__file__).parents[2] / "helpers"


@pytest.fixture(scope="module")
def python() -> str:
    lock = HELPERS / "a2a_sdk.txt"
    if not (venv_place(lock) / "ready").exists() and not os.environ.get("WORKBENCH_WORLDS"):
        pytest.skip("no venv with a2a-sdk: run .ci/a2a")
    return find_interpreter(lock.name, HELPERS)


@pytest.fixture(scope="module")
def place(python: str) -> Iterator[str]:
    """The address of the agents."""
    port = free_port()
    with subprocess.Popen([python, str(HELPERS / "a2a_sdk_agents.py"), str(port)]) as server:
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/canceled").close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.mark.parametrize("name", ["adder", "elder"])
def test_both_releases_of_the_protocol_are_spoken(name: str, place: str, tmp_path: Path) -> None:
    with load(tmp_path, "message, context -> reply, context", f"{place}/{name}") as wf:
        first = asked(wf, message="2 and 3", context="")
        assert first["reply"] == "the sum is 5" and first["context"]
        assert asked(wf, message="4 more", context=first["context"])["reply"] == "the sum is 9"
        assert asked(wf, message="4 more", context="")["reply"] == "the sum is 4", "each row has a context of its own"


def test_a_task_works_asks_back_goes_on_and_ends_with_what_it_made(place: str, tmp_path: Path) -> None:
    with load(tmp_path, "message, context -> reply, context", f"{place}/packer") as wf:
        first = asked(wf, message="pack tea", context="")
        assert first["reply"] == "where to?"
        context, task = first["context"].split()
        assert context != task
        second = asked(wf, message="to Rome", context=first["context"])
        assert second == {"reply": "a parcel to Rome", "context": context}
        assert asked(wf, message="a bomb to Rome", context="") == "exit"


def test_a_task_that_takes_too_long_is_canceled(place: str, tmp_path: Path) -> None:
    with load(tmp_path, "message -> reply", f"{place}/packer", timeout=2) as wf:
        before = urllib.request.urlopen(f"{place}/canceled").read()
        assert asked(wf, message="pack slowly to Rome") == "deadline"
        assert int(urllib.request.urlopen(f"{place}/canceled").read()) == int(before) + 1


def test_a_key_is_sent_in_a_header(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOOR_KEY", "open sesame")
    with load(tmp_path, "message -> reply", f"{place}/guard", headers={"Authorization": "Bearer $DOOR_KEY"}) as wf:
        assert asked(wf, message="2 2") == {"reply": "the sum is 4"}
    with load(tmp_path, "message -> reply", f"{place}/guard") as wf:
        assert asked(wf, message="2 2") == "exit"


def test_187_strangers_on_the_sdk_join_by_their_cards(python: str, tmp_path: Path) -> None:
    command = [python, str(HELPERS / "a2a_sdk_agents.py"), "{port}"]
    change = {"nodes.register.command": command, "nodes.talk.nodes.work.of.command": command}
    rows = [({"question": "What do 3 tins of tea cost, sent to Rome?"}, {"answer": "21"})]
    assert tried("internet_of_agents", tmp_path, rows, change).right == [True]
