"""optuna-dashboard reads the searches in a run database, over HTTP on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from workbench.run import Options, optimize
from workbench.store import Store
from workbench.study import make_optimizer
from workbench_testing.simulated import SimulatedLM, SimulatedPool, write_task

pytest.importorskip("optuna_dashboard")
GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "trackers.md"


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """The command of the how-to page, on a free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    (command,) = re.findall(r"^optuna-dashboard .*$", GUIDE.read_text(), re.MULTILINE)
    start = "from optuna_dashboard._cli import main; main()"
    words = [sys.executable, "-c", start, *command.split()[1:], "--port", str(port)]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=os.environ)
    try:
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + 60
        while True:
            try:
                get(f"{url}/api/studies")
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.slow
def test_the_dashboard_shows_the_trials_of_a_run(tmp_path: Path) -> None:
    report = optimize(
        write_task(tmp_path, budget={"calls": 400}, rows=(6, 8, 8)),
        database=tmp_path / "workbench.db",
        optimizers=[("optuna", make_optimizer({"optuna": {"trials": 5}}))],
        pool=SimulatedPool(SimulatedLM()),
        options=Options(out=str(tmp_path / "out.yaml"), allow_unproved=True),
    )
    with dashboard(tmp_path) as url:
        (study,) = get(f"{url}/api/studies")["study_summaries"]
        shown = get(f"{url}/api/studies/{study['study_id']}?after=0")
    assert study["study_name"] == "run 1 optuna"
    trials = [trial for trial in shown["trials"] if trial["state"] == "Complete"]
    values = [trial["values"][0] for trial in trials]
    assert 2 <= len(trials) <= 5 and max(values) == report.best["val"] and report.baseline["val"] in values
    assert {param["name"] for param in trials[0]["params"]} >= {"nodes.sort.instructions"}
    store = Store(tmp_path / "workbench.db", create=False)  # it still opens: the dashboard's tables are none of ours
    store.close()
