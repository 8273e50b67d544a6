"""Processes: their state, a port for a server, and a command in two of one training, as torchrun starts them."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers.forking import Job, start_module, start_python


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_two(*command: str, **more: Any) -> list[Job]:
    """Start Python with these arguments (`-c CODE`, `-m MODULE`) in two processes. more: `env`, for the environment."""
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    start = {"-c": start_python, "-m": start_module}[command[0]]
    return [start(*command[1:], env={**common, "RANK": str(rank), **more.get("env", {})}) for rank in (0, 1)]


def end(job: Job) -> tuple[int, str, str]:
    """Its exit code and what it wrote; one that does not end is killed."""
    try:
        out, err = job.communicate(timeout=400)  # processes that make unequal numbers of passes wait for ever
    except subprocess.TimeoutExpired:
        job.kill()
        raise
    return job.wait(), out, err


def process_fields(pid: int | str) -> list[str] | None:
    """The fields of a process after its name in /proc, from its state on (proc_pid_stat(5)); None if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # also between a listing and this
        return None
