"""Server time of each page of `workbench view` on a large database: 1,000 runs, one of them of 50,000 calls.

    python contrib/bench/speed/view.py [--runs 1000] [--calls 50000] [--db FILE]

The large run is a real one of the simulated task, whose model answers by a formula; the others are copies of a real
small one. A page is asked for through the application itself, without a network: once cold, then twice more.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from workbench.run import Options, optimize
from workbench.study import make_optimizer
from workbench.testing.simulated import SimulatedLM, SimulatedPool, write_task

#: Rows of train, val and test for each 1,000 calls.
SHARES = (4, 20, 40)


def make_database(folder: Path, runs: int, calls: int) -> Path:
    """A database of a large run of about this many calls, which is the newest, and copies of a small one."""
    database = folder / "run.db"
    _improve(folder / "small", database, (8, 8, 12), 200)
    _copy_newest(database, runs - 2)
    rows = tuple(share * calls // 1000 for share in SHARES)
    _improve(folder / "large", database, (rows[0], rows[1], rows[2]), calls)
    return database


def _improve(folder: Path, database: Path, rows: tuple[int, int, int], calls: int) -> None:
    optimize(
        write_task(folder, budget={"calls": calls}, rows=rows),
        database=database,
        optimizers=[("random", make_optimizer({"random": {"trials": 1000}}))],
        pool=SimulatedPool(SimulatedLM()),
        options=Options(out=str(folder / "out.yaml"), allow_unproved=True),
    )


def _copy_newest(database: Path, times: int) -> None:
    """Copies of the newest run under names of their own. Their reports lose the checksum, which names the run."""
    with sqlite3.connect(database) as conn:
        (newest,) = conn.execute("select max(id) from runs").fetchone()
        columns = [name for _, name, *_ in conn.execute("pragma table_info(runs)") if name not in ("id", "run")]
        shown = ", ".join("null" if name.endswith("checksum") else name for name in columns)
        for number in range(times):
            made = conn.execute(
                f"insert into runs (run, {', '.join(columns)}) select ?, {shown} from runs where id = ?",
                (f"copy{number:04}", newest),
            ).lastrowid
            for table in ("candidates", "evaluations"):
                names = [
                    n for _, n, *_ in conn.execute(f"pragma table_info({table})") if n not in ("id", "run_id")
                ]
                conn.execute(
                    f"insert into {table} (run_id, {', '.join(names)}) select ?, {', '.join(names)} from {table} "
                    "where run_id = ?",
                    (made, newest),
                )
    conn.close()
