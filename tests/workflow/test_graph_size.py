"""Large graphs: checking and running them stays near linear, and independent nodes run at once."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from workbench.plugins import plugins

BENCH = Path(__file__).parents[2] / "contrib" / "bench" / "speed" / "large_graph.py"
#: Other tests share the machine: the bounds are several times what an idle one takes.
CHECKED, A_NODE = 1.0, 0.001


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("large_graph", BENCH)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(plugins()._tables["node_kinds"], "nothing", (module.Nothing, "test"))
    return module


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["chain", "wide", "layers"])
def test_a_thousand_nodes_are_checked_and_run_in_time(bench: ModuleType, shape: str) -> None:
    workflow = getattr(bench, shape)(1000)
    checked, ran = bench.measure(workflow)
    assert checked < CHECKED and ran / 1000 < A_NODE, (checked, ran)
    assert workflow.input_fields == ["x"] and workflow.graph.number_of_nodes() == 1000


@pytest.mark.slow
def test_independent_nodes_run_at_once(bench: ModuleType) -> None:
    """A hundred nodes of 50 ms side by side, and one after them."""
    _, ran = bench.measure(bench.wide(101, bench.SLEEP), runs=3)
    assert 2 * bench.SLEEP <= ran < 10 * bench.SLEEP
