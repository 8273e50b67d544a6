"""A database of runs to look at: of `optimize`, a matrix of evaluations, hostile rows, and one that was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from starlette.testclient import TestClient

from workbench.evaluation import EvalOptions, evaluate, evaluate_matrix, parse_axis
from workbench.run import Options, optimize
from workbench.store import Store, dumps
from workbench.study import make_optimizer
from workbench_testing.simulated import Killed, SimulatedLM, SimulatedPool, write_task
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.site import Site

#: Texts that a terminal or a browser would obey, or that hide.
HOSTILE = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "attribute": "\" onmouseover=alert(3) x='",
    "ansi": "\x1b[31mred\x1b]8;;http://evil.com\x07link\x1b]52;c;YQ==\x07",
    "bidi": "\u202eesrever\u2066",
    "nul": "a\x00b",
    "formula": "=HYPERLINK(1)",
    "long": "x" * 1_000_000,
    "surrogate": "\ud800 alone",
}
BASE = "http://localhost:8321"


def improve(folder: Path, database: Path, *, rows: tuple[int, int, int] = (12, 16, 24), lm: Any = None) -> str:
    """The name of a run of `optimize` on the simulated task."""
    path = write_task(folder, budget={"calls": 6 * sum(rows) + 200}, rows=rows)
    report = optimize(
        path,
        database=database,
        optimizers=[("rewriter", make_optimizer({"rewrite": {"rounds": 3}}))],
        pool=SimulatedPool(lm or SimulatedLM()),
        options=Options(out=str(folder / "out.yaml"), allow_unproved=True),
    )
    return report.run


def evaluate_hostile(folder: Path, database: Path) -> str:
    """The name of an evaluation whose rows have hostile texts."""
    path = write_task(folder, budget={"calls": 200}, rows=(4, 4, 4))
    lines = [{"text": f"{text} a-thing", "label": "a"} for text in HOSTILE.values()]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = evaluate(path, options=EvalOptions(split="test"), database=database, pool=SimulatedPool(SimulatedLM()))
    return report.run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The names of the runs, and the path of their database."""
    folder = tmp_path_factory.mktemp("viewed")
    database = folder / "run.db"
    with suppress(Killed, BaseExceptionGroup):
        improve(folder / "killed", database, lm=SimulatedLM(kill_at=40))
    made: dict[str, Any] = {"database": database, "hostile": evaluate_hostile(folder / "hostile", database)}
    cells = evaluate_matrix(
        write_task(folder / "matrix", budget={"calls": 400}),
        [parse_axis("nodes.sort.instructions=Label it.,Label it carefully."), parse_axis("nodes.sort.samples=1,3")],
        options=EvalOptions(split="val"),
        database=database,
        pool=SimulatedPool(SimulatedLM()),
    )
    made |= {"cells": [cell.run for cell in cells], "optimize": improve(folder / "improve", database)}
    store = Store(database)
    made["killed"] = store.list_runs(("optimize",))[-1]["run"]
    store.execute("update runs set status = 'running', report = null, checksum = null where run = ?", made["killed"])
    row = store.find_run(made["optimize"])
    report = json.loads(row["report"])
    made["winner"], made["baseline"] = report["best"]["workflow"], report["baseline"]["workflow"]
    made["report"] = report
    _attribute(store, made)
    store.close()
    return made


def _attribute(store: Store, made: dict[str, Any]) -> None:
    """Store a diagnosis of one row, as `workbench agent attribute` does."""
    example = store.row(
        "select r.example from results r join evaluations e on e.id = r.evaluation_id where e.candidate = ? and "
        "e.split = 'test' and r.score = 0",
        made["winner"],
    )
    made["diagnosed"] = example["example"] if example else None
    if example is None:
        return
    finding = {
        "row": example["example"],
        "candidate": made["winner"],
        "replica": 0,
        "score": 0.0,
        "node": "sort",
        "agent": "sort",
        "step": 0,
        "steps": 1,
        "confidence": 0.9,
        "repaired": True,
        "reruns": 1,
        "calls": 1,
        "usd": 0.0,
        "evidence": "the label was wrong",
        "failure": "",
    }
    report = {
        "kind": "attribute",
        "run": "found",
        "method": "replay",
        "examined": [made["optimize"]],
        "rows": [finding],
        "lines": [],
    }
    sql = "insert into runs (run, name, status, started, spec, options, report, kind) values (?, ?, ?, ?, ?, ?, ?, ?)"
    store.execute(sql, "found", "x", "finished", "2026-01-01T00:00:00Z", "", "{}", dumps(report), "attribute")


@pytest.fixture(scope="session")
def site(runs: dict[str, Any]) -> Iterator[Site]:
    lines: list[str] = []
    made = Site(runs["database"], log=lines.append)
    yield made
    made.close()
    assert not lines, "a page could not be made"


@pytest.fixture
def client(site: Site) -> TestClient:
    return TestClient(make_app(site, Access()), base_url=BASE, follow_redirects=False)
