"""Starts a run that is ready, or was interrupted, from its page: `workbench resume` in a process of its own.

Off by default: such a process spends money, and runs the code of trusted workflows.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request

from workbench.base.child_process import python_command
from workbench.run import status_of
from workbench.store import ReadOnlyStore, Store, find_exact_run
from workbench_view.server.site import NotFound, Refused, Site, url

#: Statuses of runs that may be started; seconds until one must have begun; maximum characters to show of its error.
STARTABLE = ("ready", "interrupted", "failed", "killed")
PATIENCE, SHOWN = 20.0, 2000


class Starter:
    """Processes of `workbench resume` on one database. They outlive the server."""

    def __init__(self, database: Path):
        self._database, self._lock = database, threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, run: str) -> None:
        """Start a run, and wait until it runs or has ended. Raises Refused, with the reason, if it does neither."""
        with ReadOnlyStore(self._database, check=False) as store:
            with self._lock:
                self._start(store, run)

    def _start(self, store: Store, run: str) -> None:
        self._processes = [one for one in self._processes if one.poll() is None]  # reaps zombies
        before = _read_status(store, run)
        if before not in STARTABLE:
            raise Refused(f"Run {run} is {before}: there is nothing to start.", 409)
        with tempfile.TemporaryFile() as output:
            command = python_command("-m", "workbench", "resume", run, "--db", str(self._database.resolve()))
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            self._processes.append(process)
            end = time.monotonic() + PATIENCE
            while _read_status(store, run) == before and process.poll() is None and time.monotonic() < end:
                time.sleep(0.05)
            if process.poll() not in (None, 0) and _read_status(store, run) == before:
                output.seek(0)
                said = output.read().decode("utf-8", "replace").strip()
                raise Refused(f"Run {run} did not start. {said[-SHOWN:]}", 422)


def _read_status(store: Store, run: str) -> str:
    row = find_exact_run(store, run)
    if row is None:
        raise NotFound(f"There is no run '{run[:80]}' in this database.")
    return status_of(store, row)


def start_run(site: Site, request: Request, form: Mapping[str, str]) -> str:
    """Start the run of a page; returns its address."""
    run = str(request.path_params["run"])
    if site.start is None:
        raise Refused("This server starts no runs. To allow it: workbench view --start")
    site.start(run)
    return url(f"/runs/{run}")
