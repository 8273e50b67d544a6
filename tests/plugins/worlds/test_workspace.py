"""The world `workspace` under agents that mean harm, or only do what was not thought of."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from workbench_worlds import driver
from workbench_worlds.worlds.workspace import World

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def begin(seconds: float = 20, **task: Any) -> World:
    world = World(seconds)
    world.reset(task)
    return world


def use(world: World, tool: str, **arguments: Any) -> str:
    return world.step({"tool": tool, "arguments": arguments})


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("read", {"path": "."}, "no file"),
        ("write", {"path": ".", "text": "x"}, "no file"),
        ("write", {"path": "a.py/b", "text": "x"}, "cannot be done"),
        ("write", {"path": "a" * 300, "text": "x"}, "too long"),
        ("write", {"path": "pipe", "text": "x"}, "no file"),
        ("write", {"path": "a\0b", "text": "x"}, "zero byte"),
        ("write", {"path": "s", "text": "\ud800"}, "1 characters"),
        ("write", {"path": "s"}, "needs the text `text`"),
        ("read", {"path": 5}, "needs the text `path`"),
        ("read", {}, "needs the text `path`"),
        ("read", {"path": "up/x"}, "outside"),
        ("run", {"command": "x" * 300_000}, "cannot be run"),
    ],
)
def test_an_impossible_action_is_an_observation(tool: str, arguments: dict[str, Any], said: str) -> None:
    world = begin(files={"a.py": ""})
    os.mkfifo("workspace/pipe")
    os.symlink("/etc", "workspace/up")
    assert said in use(world, tool, **arguments)


def test_what_a_command_leaves_running_ends_with_it() -> None:
    world, begun = begin(), time.monotonic()
    assert use(world, "run", command="(sleep 15; touch late) & echo hi") == "hi\n"
    assert time.monotonic() - begun < 10
    assert use(begin(0.5), "run", command="echo hi; sleep 60") == "hi\n\nIt was stopped after 0.5 s."


def test_commands_have_neither_the_network_nor_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = use(
            begin(), "run", command=f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo in; ls /proc | grep -c '^[0-9]'"
        )
    assert "Connection refused" in said and "in\n" not in said.splitlines(keepends=True)
    assert int(said.split()[-1]) < 10 and "No such file" in use(begin(), "run", command="cat /etc/passwd")


def test_a_world_with_a_clock_says_so_that_a_resumed_row_goes_on() -> None:
    assert driver.Teller(begin()).tell("x")["repeats"] is False


@pytest.mark.parametrize(
    ("check", "score"),
    [
        ("echo 'make: *** [test] Error 1'; exit 2", 0.0),
        ("echo 1; false", 1.0),
        ("echo .5", 0.5),
        ("yes 1 | head -c 50000; echo; echo 0.25", 0.25),
        ("sleep 15 & echo 0.75", 0.75),
        ("echo 7", 1.0),
    ],
)
def test_the_score_is_the_last_line_where_that_is_a_number(check: str, score: float) -> None:
    assert begin(check=check).score() == score


@pytest.mark.parametrize("trap", ["mkdir -p t/h", "touch t", "mkdir t; mkfifo t/h", "ln -s /etc t", "mkdir -m 0 t"])
def test_hidden_files_take_the_place_of_whatever_an_agent_put_there(trap: str) -> None:
    world = begin(hidden={"t/h": "hidden"}, check="grep -q hidden t/h")
    use(world, "run", command=trap)
    assert world.score() == 1.0


def test_large_odd_and_many_files_are_shown_by_their_beginnings() -> None:
    world = begin(files={"a.py": "x"})
    use(world, "run", command="truncate -s 900M big; touch $'\\xff'; seq 3000 | split -l 1 -a 4 - n; ln -s / away")
    assert use(world, "read", path="big").endswith("(943718400 bytes in all)")
    said = use(world, "submit")
    assert "?:\n" in said and "naaaa:\n1\n" in said and "away" not in said and "a.py" not in said
    said.encode()


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"files": ["a"]}, "must be {path: text}"),
        ({"hidden": {"a": 1}}, "must be {path: text}"),
        ({"check": ["true"]}, "must be a shell command"),
        ({"files": {"../a": "x"}}, "outside"),
    ],
)
def test_a_task_of_another_form_is_refused(task: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        begin(**task)


def test_a_bubblewrap_that_may_do_nothing_is_told_and_is_no_score_of_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions'; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))  # whose folder comes first in PATH
    with pytest.raises(ValueError, match="runs no command here: bwrap: No permissions"):
        begin(check="true")


def test_commands_have_our_python_even_where_that_is_below_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        venv.create(folder)
        monkeypatch.setattr("sys.prefix", folder)
        monkeypatch.setattr("sys.executable", f"{folder}/bin/python")
        check = f"test $(python -c 'import sys; print(sys.prefix)') = {folder}"
        assert begin(check=check).score() == 1.0


def test_a_deep_folder_goes_and_many_empty_files_count(tmp_path: Path) -> None:
    deep, here = tmp_path / "deep", os.getcwd()
    deep.mkdir()
    os.chdir(deep)
    for _ in range(1200):  # more than Python's frames, and in all more characters than a path may have
        os.mkdir("aaaa")
        os.chdir("aaaa")
    os.chdir(here)
    assert driver.size_of(str(deep), 10**9) > 10**9
    driver.remove(str(deep))
    assert not deep.exists()
    wide = tmp_path / "wide"
    wide.mkdir()
    for number in range(50):
        (wide / str(number)).touch()
    assert driver.size_of(str(wide), 10**9) == 50 * driver.BLOCK
