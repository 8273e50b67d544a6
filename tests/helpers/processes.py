"""A port for a server, and a command in two processes of one training, as torchrun starts them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_two(*command: str, **more: Any) -> list[subprocess.Popen[str]]:
    """Start Python with these arguments in two processes. more: `env`, added to the environment."""
    common = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", *command],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**common, "RANK": str(rank), **more.get("env", {})},
        )
        for rank in (0, 1)
    ]


def end(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit code and what it wrote; one that does not end is killed."""
    try:
        out, err = job.communicate(timeout=400)  # processes that make unequal numbers of passes wait for ever
    except subprocess.TimeoutExpired:
        job.kill()
        raise
    return job.returncode, out, err
