"""One process at a time works on a run."""

from __future__ import annotations

import os
from contextlib import suppress

from workbench.errors import StoreError
from workbench.store.database import Store


class RunLock:
    """Keeps a second process off a run. The system releases it when the process dies, however it dies."""

    def __init__(self, store: Store, run: str):
        self.path = store.path.with_name(f"{store.path.name}-{run}.lock")
        self.run = run

    def __enter__(self) -> RunLock:
        import fcntl

        while True:
            self._file = open(self.path, "a+")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.seek(0)
                holder = self._file.read().strip() or "another process"
                self._file.close()
                raise StoreError(f"run {self.run} is in use by {holder}; wait for it, or stop it first") from None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                    break
            self._file.close()  # its holder removed it between our opening and our locking
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {os.uname().nodename}")
        self._file.flush()
        return self

    def __exit__(self, *exc: object) -> None:
        self.path.unlink(missing_ok=True)
        self._file.close()

    def held(self) -> bool:
        """Whether a process has the lock now."""
        import fcntl

        try:
            with open(self.path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False
