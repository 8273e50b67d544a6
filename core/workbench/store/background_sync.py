"""A thread that syncs a file to disk, so that its writers need not wait."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class BackgroundSync:
    """Calls fsync on a file `delay` seconds after a write and no more often. Safe from any thread and event loop."""

    def __init__(self, path: Path, delay: float):
        self.path, self.delay = path, delay
        self.error: OSError | None = None  # of the last failed fsync: recent writes may not be on disk
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._written = False
        self._thread: threading.Thread | None = None

    def written(self) -> None:
        """Record that the file was just written."""
        with self._lock:
            self._written = True
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._work, name="workbench-sync", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._closing.wait(self.delay)
            with self._lock:
                if not self._written:
                    self._thread = None
                    return
                self._written = False
            self._sync()

    def _sync(self) -> None:
        try:
            handle = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except FileNotFoundError:
            pass  # SQLite has checkpointed the WAL, and synced the database itself
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Wait until all writes are synced. A failure is stored in `error`."""
        self._closing.set()
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()
        elif self._written:  # a KeyboardInterrupt kept the thread from starting
            self._sync()
