"""Several runs that search one study on a planted problem: in threads of this process, or in one that is killed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.planted import PlantedLM, Skill, plant
from workbench.proof import Report
from workbench.store import Store

Found = tuple[Report, PlantedLM]


def search_together(folder: Path, n: int, skill: Skill, storage: str, *, calls: int, **more: Any) -> list[Found]:
    """Start n runs at once, each with a folder, a database and a model of its own; and wait for all.

    more: arguments of `plant`, and the settings of the optimizer besides its storage.
    """
    settings = {"trials": 500, "storage": storage, **more.pop("settings", {})}
    more.setdefault("given", {"listener": None})

    def one(place: int) -> Found:
        return plant(folder / f"searcher{place}", skill, {"optuna": settings}, calls=calls, **more)

    with ThreadPoolExecutor(n) as threads:
        return [*threads.map(one, range(n))]


def only_run(folder: Path) -> str:
    store = Store(folder / "run.db", create=False)
    try:
        return store.find_run("last")["run"]
    finally:
        store.close()


#: A run whose model hangs after so many answers, and counts its requests in a file before it answers.
_VICTIM = """
    import asyncio, sys
    from pathlib import Path
    from tests.helpers import planted
    from tests.plugins.optuna.test_optuna import SPACE, skill

    folder, storage, calls, after = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    answer = planted.PlantedLM.complete

    async def slowly(self, request):
        with (folder / "sent").open("a") as sent:
            sent.write("x")
        if self.requests >= after:  # the kill comes here
            (folder / "hangs").touch()
            await asyncio.sleep(600)
        return await answer(self, request)

    planted.PlantedLM.complete = slowly
    settings = {"trials": 500, "storage": storage}
    planted.plant(folder, skill, {"optuna": settings}, calls=calls, search=SPACE, given={"listener": None})
"""


@contextmanager
def doomed(folder: Path, storage: str, *, calls: int, after: int) -> Iterator[Callable[[], int]]:
    """A run in a process of its own, which hangs after so many answers. Gives a function that kills it there (SIGKILL),
    and returns the number of requests that it sent."""
    folder.mkdir(parents=True)
    words = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(_VICTIM)]
    process = subprocess.Popen([*words, str(folder), storage, str(calls), str(after)])

    def kill() -> int:
        while not (folder / "hangs").exists():
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError("it ended before it was killed")
        process.kill()
        process.wait(30)
        return len((folder / "sent").read_text())

    try:
        yield kill
    finally:
        process.kill()
        process.wait(30)
