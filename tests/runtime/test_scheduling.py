"""In which order nodes run, and which value a field gets from several writers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.journal import FakeLM, journal, run, turns
from tests.helpers.planted_nodes import DOES, giving, outcome, program, raising

from workbench.runtime import Context
from workbench.task import Example


def test_independent_nodes_run_at_the_same_time_and_in_order_where_they_depend(tmp_path: Path) -> None:
    log: list[str] = []

    def logged(name: str, wait: int) -> None:
        async def does(inputs: Any, ctx: Context) -> Any:
            log.append(f"{name}+")
            await turns(wait)
            log.append(f"{name}-")
            return {name: f"{name}({','.join(str(v) for v in inputs.values())})"}

        DOES[name] = does

    for name, wait in (("a", 6), ("b", 2), ("c", 0), ("d", 0)):
        logged(name, wait)
    nodes = {
        "d": {"planted": "d", "reads": ["c", "a"], "writes": ["d"]},
        "a": {"planted": "a", "reads": ["x"], "writes": ["a"]},
        "b": {"planted": "b", "reads": ["x"], "writes": ["b"]},
        "c": {"planted": "c", "reads": ["b"], "writes": ["c"]},
    }
    found = outcome(tmp_path, nodes)
    assert found.prediction["d"] == "d(c(b(1)),a(1))" and found.failure is None
    assert log == ["a+", "b+", "b-", "c+", "c-", "a-", "d+", "d-"]
    assert [s.node for s in found.trace.spans] == ["a", "b", "c", "d"], "spans stand in the order of their beginning"


def test_after_a_failure_what_is_under_way_is_finished_and_what_follows_is_not_begun(tmp_path: Path) -> None:
    DOES["fail"], done = raising(ValueError("first")), []

    async def slow(inputs: Any, ctx: Context) -> Any:
        await turns(5)
        done.append(await ctx.complete([{"role": "user", "content": "paid"}], max_tokens=3))
        return {}

    DOES["slow"], DOES["after"] = slow, giving({})
    nodes = {"f": {"planted": "fail"}, "s": {"planted": "slow"}, "t": {"planted": "after", "needs": ["f", "s"]}}
    found = outcome(tmp_path, nodes)
    assert found.failure == "code" and len(done) == 1
    assert [s.node for s in found.trace.spans] == ["f", "s"] and len(found.trace.calls) == 1


def test_an_optional_node_that_fails_leaves_the_fields_as_they_were(tmp_path: Path) -> None:
    DOES["draft"], DOES["fail"] = giving({"y": "draft"}), raising(ValueError("no"))
    nodes = {
        "n": {"planted": "draft", "writes": ["y"]},
        "polish": {"planted": "fail", "reads": ["y"], "writes": ["y"], "optional": True},
    }
    found = outcome(tmp_path, nodes)
    assert found.failure is None and found.prediction == {"y": "draft"}
    assert found.trace.spans[1].error == "code: ValueError: no"
    del nodes["polish"]["optional"]
    assert outcome(tmp_path, nodes).failure == "code"


async def _writes(inputs: Any, ctx: Context, pause: float, value: str) -> dict[str, Any]:
    await asyncio.sleep(pause)
    return {"y": value}


def two_writers(slow: str, inner: bool, **second: Any) -> dict[str, Any]:
    """`one`, a reader of its field, `two` that writes the same field, another reader; `slow` takes longest."""
    for name in ("one", "two"):
        pause = 0.05 if name == slow else 0.0
        DOES[name] = lambda inputs, ctx, p=pause, n=name: _writes(inputs, ctx, p, n)
    DOES["slowly"] = lambda inputs, ctx: _seen(inputs, "early", 0.02)
    DOES["read"] = lambda inputs, ctx: _seen(inputs, "late", 0.0)
    nodes = {
        "one": {"planted": "one", "reads": ["x"], "writes": ["y"]},
        "early": {"planted": "slowly", "reads": ["y"], "writes": ["early"]},
        "two": {"planted": "two", "reads": ["x"], "writes": ["y"], **second},
        "late": {"planted": "read", "reads": ["y"], "writes": ["late"]},
    }
    return {"all": {"kind": "workflow", "nodes": nodes}} if inner else nodes


async def _seen(inputs: Any, field: str, pause: float) -> dict[str, Any]:
    await asyncio.sleep(pause)
    return {field: inputs["y"]}


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("slow", ["one", "two"])
def test_of_several_writers_the_file_decides_and_not_who_is_faster(slow: str, inner: bool, tmp_path: Path) -> None:
    found = outcome(tmp_path, two_writers(slow, inner))
    assert found.prediction == {"y": "two", "early": "one", "late": "two"}


@pytest.mark.parametrize("inner", [False, True])
def test_who_refines_a_field_has_the_last_word_wherever_it_stands(inner: bool, tmp_path: Path) -> None:
    async def polished(inputs: Any, ctx: Context) -> dict[str, Any]:
        return {"y": f"polished {inputs['y']}"}

    DOES["draft"], DOES["polish"] = (lambda inputs, ctx: _writes(inputs, ctx, 0.0, "draft")), polished
    nodes: dict[str, Any] = {
        "polish": {"planted": "polish", "reads": ["y"], "writes": ["y"], "needs": "draft"},
        "draft": {"planted": "draft", "reads": ["x"], "writes": ["y"]},
    }
    found = outcome(tmp_path, {"all": {"kind": "workflow", "nodes": nodes}} if inner else nodes)
    assert found.prediction == {"y": "polished draft"}


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("slow", ["one", "two"])
def test_what_an_optional_writer_does_not_give_comes_from_the_one_before(
    slow: str, inner: bool, tmp_path: Path
) -> None:
    nodes = two_writers(slow, inner, optional=True)
    DOES["two"] = raising(ValueError("no"))
    assert outcome(tmp_path, nodes).prediction == {"y": "one", "early": "one", "late": "one"}


def test_a_field_whose_only_writer_is_optional_and_failed_is_told(tmp_path: Path) -> None:
    DOES["fail"], DOES["read"] = raising(ValueError("no")), lambda inputs, ctx: _seen(inputs, "late", 0.0)
    nodes = {
        "try": {"planted": "fail", "writes": ["y"], "optional": True},
        "late": {"planted": "read", "reads": ["y"], "writes": ["late"]},
    }
    found = outcome(tmp_path, nodes)
    assert (found.failure, found.message) == (
        "upstream",
        "node 'late': try failed, and the example has no field 'y'; it has: x",
    )
    assert outcome(tmp_path, nodes, {"x": 1, "y": "given"}).prediction == {"late": "given"}


@pytest.mark.parametrize("chain", [True, False])
def test_cancelling_an_example_leaves_nothing_running(chain: bool, tmp_path: Path) -> None:
    async def ask(inputs: Any, ctx: Context) -> Any:
        await ctx.complete([{"role": "user", "content": ctx.node}], max_tokens=3)

    async def never(request: Any) -> Any:
        await asyncio.sleep(3600)

    DOES["ask"], lm = ask, FakeLM(never)
    nodes: dict[str, Any] = {"a": {"planted": "ask"}, "b": {"planted": "ask"}, "c": {"planted": "ask", "needs": "b"}}
    if chain:
        nodes["b"]["needs"] = "a"

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=100) as ledger:
            task = asyncio.create_task(program(tmp_path, ledger, nodes, lm).run(Example("1", {})))
            while lm.open < (1 if chain else 2):
                await turns(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lm.open == 0 and len(lm.requests) == (1 if chain else 2)

    run(main)  # which fails if a task is left
