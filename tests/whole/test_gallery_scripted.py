"""Every workflow file can be read and drawn, and those of the gallery finish with bundled/nano where they say so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from tests.helpers.gallery_tried import inside, members

from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.run import prepare
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.workflow import ExampleRun, mermaid

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "workflows" / "gallery"
FILES = sorted(path for path in (ROOT / "workflows").rglob("*.yaml") if path.parent.name not in ("data", "synthesis"))
#: Workflows of extras, and a package that each needs.
EXTRAS = {"feedback_markers.yaml": "torch", "grpo.yaml": "torch", "tool_calls.yaml": "torch"}
#: What bundled/nano cannot do at all: the head of the file says so.
BEYOND_NANO = {
    path.name for path in GALLERY.glob("*.yaml") if "with it every row fails" in path.read_text(encoding="utf-8")
}


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

    async def main() -> ExampleRun:
        task, store = prepare(path)[2], Store(database)
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 1000}))
        runtime = Runtime(ledger, lm_spec("bundled/nano"), {}, LMPool())
        try:
            return await Program(task.workflow, runtime).run(task.dataset.train[0])
        finally:
            await runtime.aclose()
            store.close()

    return asyncio.run(main())


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
