"""Server time of each page of `workbench view` on a large database: 1,000 runs, one of them of 50,000 calls.

    python contrib/bench/speed/view.py [--runs 1000] [--calls 50000] [--db FILE]

The large run is a real one of the simulated task, whose model answers by a formula; the others are copies of a real
small one. A page is asked for five times through the application itself, without a network.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from starlette.testclient import TestClient

from workbench.run import Options, optimize
from workbench.store import ReadOnlyStore
from workbench.study import make_optimizer
from workbench_testing.simulated import SimulatedLM, SimulatedPool, write_task
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import Site, load_libraries

#: Milliseconds that a page may take.
LIMIT = 300
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
                names = [n for _, n, *_ in conn.execute(f"pragma table_info({table})") if n not in ("id", "run_id")]
                conn.execute(
                    f"insert into {table} (run_id, {', '.join(names)}) select ?, {', '.join(names)} from {table} "
                    "where run_id = ?",
                    (made, newest),
                )
    conn.close()


def list_pages(database: Path) -> list[str]:
    """An address of each kind of page, of the newest run where there is a choice."""
    store = ReadOnlyStore(database)
    try:
        row = store.find_run("last", kinds=("optimize",))
        report = json.loads(row["report"])
        key = store.row("select key from calls where run_id = ?", row["id"])
        result = store.row(
            "select r.example from results r join evaluations e on e.id = r.evaluation_id where e.run_id = ? and "
            "e.split = 'test'",
            row["id"],
        )
    finally:
        store.close()
    assert key is not None and result is not None
    run, winner, example = f"/runs/{row['run']}", report["best"]["workflow"], quote(result["example"])
    name = row["run"]
    return [
        *("/", "/?text=simulated&page=9", "/plugins", "/compare", f"/compare?a={name}:baseline&b={name}:winner"),
        *(run, f"{run}/live", f"{run}/candidates/{winner}", f"{run}/pictures/proof.svg", f"{run}/pictures/course.svg"),
        *(f"{run}/rows", f"{run}/rows?split=val&failure=any", f"{run}/rows?side=won", f"{run}/rows?text=zebra"),
        *(f"{run}/rows?node=sort&role=task", f"{run}/row?row={example}", f"{run}/data", f"{run}/data?text=zebra"),
        *(f"{run}/calls", f"{run}/calls?role=task", f"{run}/call?key={key['key']}"),
    ]


def time_pages(
    database: Path, times: int = 5, clock: Callable[[], float] = time.perf_counter
) -> Iterator[tuple[str, list[float]]]:
    """Each page with the milliseconds of some answers, the first of which remembers nothing of the page."""
    site = Site(database)
    client = TestClient(make_app(site, Access()), base_url="http://localhost:8321")
    load_libraries()
    for page in list_pages(database):
        found: list[float] = []
        for _ in range(times):
            begun = clock()
            answer = client.get(page)
            found.append((clock() - begun) * 1e3)
            assert answer.status_code == 200, f"{page}: {answer.text}"
        yield page, found
    site.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=50_000)
    parser.add_argument("--db", type=Path, help="a database that is there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = asked.db or make_database(Path(folder), asked.runs, asked.calls)
        slow = 0
        print(f"{'first':>7} {'median':>7}  milliseconds of the server")
        for page, found in time_pages(database):
            slow += statistics.median(found) > LIMIT
            print(f"{found[0]:7.0f} {statistics.median(found):7.0f}  {page}")
    print(f"{slow} pages take more than {LIMIT} ms")


if __name__ == "__main__":
    main()
