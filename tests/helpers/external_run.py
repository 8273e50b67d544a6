"""Runs or resumes a simulated task in this process, which kills itself after a number of requests (0: never).

python external_run.py FOLDER KILL_AT RESUMES
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from workbench.lm import Request, Response
from workbench.run import Options, optimize, resume
from workbench.study import make_optimizer
from workbench_testing.simulated import SimulatedLM, SimulatedPool


class LoggedLM(SimulatedLM):
    """Appends the key of each request to a file, and kills its process at the request after `last`."""

    def __init__(self, log: Path, last: int):
        super().__init__()
        self.log, self.last = log, last

    async def complete(self, request: Request) -> Response:
        if self.last and self.requests >= self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.log.open("a") as log:
            log.write(f"{request.key(self.identity)}\n")
        return await super().complete(request)


def main() -> None:
    folder, kill_at, again = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
    lm = LoggedLM(folder / f"keys_{os.getpid()}.txt", kill_at)
    settings = {
        "database": folder / "run.db",
        "optimizers": [("checked", make_optimizer({"rewrite": {"rounds": 1}}))],
        "pool": SimulatedPool(lm),
        "options": Options(out=str(folder / "out.yaml"), allow_unproved=True),
    }
    if again:
        resume("last", **settings)
    else:
        optimize(folder / "workflow.yaml", **settings)


if __name__ == "__main__":
    main()
