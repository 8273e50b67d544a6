"""A worker process: `python -m workbench_workers.join HOST PORT NUMBER`, with the key in WORKBENCH_WORKER_KEY."""

from __future__ import annotations

import os
import sys

from workbench_workers.sockets import KEY_VARIABLE, join_driver

if __name__ == "__main__":
    join_driver(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(os.environ.pop(KEY_VARIABLE)))
