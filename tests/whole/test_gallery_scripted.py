"""Every workflow of the gallery, driven by a scripted model through each of its nodes, tools, branches, members and
states."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_speech import Speaker
from tests.helpers.scripted import SeeingScript, run_rows

from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.run import prepare
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.workflow import ExampleRun, NodeKind, Span, Workflow, mermaid
from workbench_kit.logs import tool_uses
from workbench_tree_search.node import TreeSearch
from workbench_worlds.play import Play

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "workflows" / "gallery"
FILES = sorted(path for path in (ROOT / "workflows").rglob("*.yaml") if path.parent.name not in ("data", "synthesis"))
#: Workflows of extras, and a package that each needs.
EXTRAS = {"feedback_markers.yaml": "torch", "grpo.yaml": "torch", "tool_calls.yaml": "torch"}
#: What bundled/nano cannot do at all: the head of the file says so.
BEYOND_NANO = {
    path.name for path in GALLERY.glob("*.yaml") if "with it every row fails" in path.read_text(encoding="utf-8")
}


def inside(workflow: Workflow) -> Iterator[tuple[str, NodeKind]]:
    """Each node that takes part, and those inside it, with its path as spans name it."""

    def walk(path: str, node: NodeKind) -> Iterator[tuple[str, NodeKind]]:
        yield path, node
        for name, child in node.children().items():
            yield from walk(f"{path}.{name}", child)

    for name, node in workflow.enabled_nodes.items():
        yield from walk(name, node)


def tools_called(database: Path) -> set[str]:
    """Names of the tools whose calls are journalled; that of the interpreter is `python`."""
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select kind, request from calls where kind in ('tool', 'code')").fetchall()
    sources = [json.loads(request)[0][0] for kind, request in rows if kind == "tool"]
    ran = ["python"] if any("workbench_cell(" in request for kind, request in rows if kind == "code") else []
    return {re.split("[:#]", source)[-1] for source in [*sources, *ran]}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(p.name for p in GALLERY.glob("*.yaml")))
def test_a_scripted_model_goes_every_way_and_gives_the_right_answers(name: str, tmp_path: Path) -> None:
    case, task = CASES[name], prepare(GALLERY / name)[2]
    speaker, database, workflow = Speaker(case.table), tmp_path / "run.db", task.workflow
    rows, script = [row for row, _ in case.rows], SeeingScript(speaker)
    outcomes = run_rows(workflow, rows, script, database, policy=task.spec.policy, roles=["user"])
    assert not speaker.unknown, f"no line of the table answers this:\n{speaker.unknown[0]}"
    for (row, expected), outcome in zip(case.rows, outcomes, strict=True):
        given = {field: str(outcome.prediction.get(field)) for field in expected}
        assert outcome.failure is None and given == expected, (row, outcome.message, dict(outcome.prediction))
    assert not speaker.unsaid, f"never asked: {speaker.unsaid}"

    spans = [span for outcome in outcomes for span in outcome.trace.spans]
    parts = dict(inside(workflow))
    assert set(parts) <= {span.node for span in spans}, "each node, branch and state"
    failed = {span.node for span in spans if span.error}
    assert failed == set(case.wrong), [span.error for span in spans if span.error]
    called = tools_called(database) | {use.tool for outcome in outcomes for use in tool_uses(outcome.trace)}
    users = [node for node in parts.values() if not isinstance(node, Play | TreeSearch)]  # these name their worlds
    assert {tool for node in users for tool in node.tool_names()} <= called, "each tool"
    for path, node in parts.items():
        assert members(node) <= heard(path, spans), f"each member of {path}"


def members(node: NodeKind) -> set[str]:
    """Of a team."""
    config: Any = node.config
    return {*getattr(config, "members", ())}


def heard(path: str, spans: list[Span]) -> set[str]:
    """Members that spoke in a team."""
    return {str(span.agent) for span in spans if span.node == f"{path}.of"}


def test_there_is_a_script_for_each_file_of_the_gallery() -> None:
    assert set(CASES) == {path.name for path in GALLERY.glob("*.yaml")}


def test_each_file_seals_rows_enough_to_show_a_gain(subtests: pytest.Subtests) -> None:
    """Near copies count once: with fewer than twelve hardly any gain can be shown, with fewer than six none."""
    for path in sorted(GALLERY.glob("*.yaml")):
        with subtests.test(path.name):
            task = prepare(path)[2]
            assert len({task.cluster_of(row) for row in task.dataset.test.open()}) >= 12


def test_a_scripted_query_gives_the_rows_of_the_gold_query(tmp_path: Path) -> None:
    """The metric of mag_sql runs both queries."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("intercode_sql", ROOT / "workflows/intercode_sql.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    gold = "SELECT title FROM books WHERE year > 2000 ORDER BY year, title"
    (row, expected), *_ = CASES["mag_sql.yaml"].rows
    assert module.score({**row, "gold_sql": gold}, expected)[0] == 1.0
    assert "books(book_id INTEGER, title TEXT" in module.schema("library")
    assert len(module.schema("library").splitlines()) == len(row["tables"])


def test_every_file_can_be_read_by_pyyaml() -> None:
    for path in FILES:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert isinstance(found, dict) and found["nodes"], path


def test_every_file_can_be_drawn_with_all_its_nodes(subtests: pytest.Subtests) -> None:
    for path in FILES:
        with subtests.test(path.name):
            if path.name in EXTRAS:
                pytest.importorskip(EXTRAS[path.name])
            workflow = prepare(path)[2].workflow
            drawn = mermaid(workflow)
            for name, tree in workflow.nodes.items():
                assert f'"{name}: {tree["kind"]}"' in drawn, name
            for path_of_node, node in inside(workflow):
                for key in node.children() if not members(node) else ():
                    shown = {f'"{key}"', f'"{key.rpartition(".")[2]}"'}  # a state is drawn under its own name
                    assert any(label in drawn for label in shown), f"{path_of_node}.{key}"
                assert all(f'("{member}")' in drawn for member in getattr(node.config, "members", ())), path_of_node


def on_nano(path: Path, database: Path) -> ExampleRun:
    """The first row of train, answered by bundled/nano."""

    async def course() -> ExampleRun:
        task, store = prepare(path)[2], Store(database)
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 1000}))
        runtime = Runtime(ledger, lm_spec("bundled/nano"), {}, LMPool())
        try:
            return await Program(task.workflow, runtime).run(task.dataset.train[0])
        finally:
            await runtime.aclose()
            ledger.close()
            store.close()

    return asyncio.run(course())


#: One call after another, an agent, and one that nano cannot do; the others in the slow tier.
FAST = {"chain.yaml", "small_agent.yaml", "swe_search.yaml"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=() if path.name in FAST else pytest.mark.slow)
        for path in sorted(GALLERY.glob("*.yaml"))
    ],
)
def test_nano_finishes_where_the_docs_do_not_say_that_it_cannot(name: str, tmp_path: Path) -> None:
    outcome = on_nano(GALLERY / name, tmp_path / "run.db")
    assert (outcome.failure is not None) == (name in BEYOND_NANO), outcome.message
