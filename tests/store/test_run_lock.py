"""One process at a time works on a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import StoreError
from workbench.store import RunLock, Store

HOLD = """
import sys, time
from pathlib import Path
from workbench.store import RunLock, Store
with RunLock(Store(sys.argv[1]), "r"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.fault("several-processes")
def test_a_run_is_held_against_other_processes_until_its_holder_dies(store: Store) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(store.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=rf"run r is in use by process {holder.pid} on \S+; wait for it"):
            RunLock(store, "r").__enter__()
        with RunLock(store, "other"):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with RunLock(store, "r"):
        pass
    assert not list(store.path.parent.glob("*.lock"))


def test_a_folder_that_another_process_has_locked_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """training 7: it may have stopped while it made a database."""
    import fcntl

    monkeypatch.setattr("workbench.store.database.PATIENCE", 0.1)
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=f"another process has locked the folder {tmp_path}"):
            Store(tmp_path / "a.db")
    finally:
        os.close(handle)
    Store(tmp_path / "a.db").close()


def test_a_lock_file_that_its_holder_removes_is_no_lock(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our opening and our locking the holder may end: then we hold a file that nobody else can see."""
    import fcntl

    real, removed = fcntl.flock, []

    def flock(file: Any, how: int) -> None:
        if not removed:
            removed.append(1)
            RunLock(store, "r").path.unlink()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with RunLock(store, "r"), pytest.raises(StoreError, match="in use"):
        RunLock(store, "r").__enter__()
