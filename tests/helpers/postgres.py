"""A PostgreSQL server of Debian's package for a test, on a free port of this machine."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.processes import free_port

#: Its superuser and the password, which the address does not hold.
USER, PASSWORD = "searcher", "no secret: the server ends with the test"


def find_program(name: str) -> str | None:
    """The program of a server; Debian keeps those off PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(places[0]) if places else shutil.which(name)


@dataclass
class Server:
    folder: Path
    port: int
    owner: dict[str, Any]

    @property
    def address(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder}"
        self._control("start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def _control(self, *words: str) -> None:
        command = [str(find_program("pg_ctl")), "-D", str(self.folder / "data"), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self.owner)


@contextmanager
def postgres() -> Iterator[Server]:
    """A running server with an empty database. It refuses to run as root, so root runs it as `postgres`."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-postgres-"))
    owner: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    if owner:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    server = Server(folder, free_port(), owner)
    words = ["-D", str(folder / "data"), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
    try:
        command = [str(find_program("initdb")), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **owner)
        server.start()
        try:
            yield server
        finally:
            subprocess.run(
                [str(find_program("pg_ctl")), "-D", str(folder / "data"), "stop", "-m", "immediate"],
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                **owner,
            )
    finally:
        shutil.rmtree(folder)
