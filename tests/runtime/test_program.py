"""The runtime: what a node does wrong is its example's failure, the rest goes on, and traces have what was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.journal import FakeLM, journal, reply, run, turns
from tests.helpers.scripted import Script, make_workflow

from workbench.errors import BudgetSpent, LMError, NodeError, PluginError, ServerDead, SpecError, StoreError
from workbench.ledger import Ledger
from workbench.lm import LMPool, Request, Response, split_model
from workbench.plugins import plugins
from workbench.runtime import Context, Draw, Program, Runtime, make_request
from workbench.spec import BudgetSpec, LMSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, NodeConfig, NodeKind, Trace


class PlantedConfig(NodeConfig):
    does: str
    reads: list[str] = []
    writes: list[str] = []


#: What planted nodes do, by name: (inputs, context) -> outputs.
DOES: dict[str, Callable[[Any, Context], Any]] = {}


class Planted(NodeKind):
    Config = PlantedConfig
    primary = "does"
    inputs = property(lambda self: tuple(self.config.reads))  # type: ignore[assignment]
    outputs = property(lambda self: tuple(self.config.writes))  # type: ignore[assignment]
    max_calls = 1

    async def run(self, inputs: Any, ctx: Context) -> Any:
        return await DOES[self.config.does](inputs, ctx)


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(plugins()._tables["node_kinds"], "planted", (Planted, "test"))
    yield
    DOES.clear()


class OneLM(LMPool):
    def __init__(self, lm: FakeLM):
        super().__init__()
        self.lm = lm

    def get(self, spec: LMSpec) -> Any:
        return self.lm


def program(folder: Path, ledger: Ledger, nodes: dict[str, Any], lm: FakeLM | None = None, **settings: Any) -> Program:
    spec = lm_spec({"model": "openai/fake", **settings})
    return Program(make_workflow(nodes, folder), Runtime(ledger, spec, {}, OneLM(lm or FakeLM())))


def outcome(
    folder: Path, nodes: dict[str, Any], row: dict[str, Any] | None = None, lm: FakeLM | None = None, **settings: Any
) -> ExampleRun:
    async def course() -> ExampleRun:
        with journal(folder / "run.db", calls=100) as ledger:
            return await program(folder, ledger, nodes, lm, **settings).run(Example("1", row or {"x": 1}))

    return run(course)


def raising(error: BaseException) -> Callable[[Any, Context], Any]:
    async def does(inputs: Any, ctx: Context) -> Any:
        raise error

    return does


def giving(value: Any, wait: int = 0) -> Callable[[Any, Context], Any]:
    async def does(inputs: Any, ctx: Context) -> Any:
        await turns(wait)
        return value

    return does


# What a node does wrong


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ValueError("bad input"), "code", "node 'n': ValueError: bad input"),
        (NodeError("unparsed", "no label"), "unparsed", "node 'n': no label"),
        (NodeError("tool", "inner", node="n.deep"), "tool", "node 'n.deep': inner"),
        (LMError("too_long", "9000 tokens"), "too_long", "node 'n': 9000 tokens"),
        (TimeoutError("slow"), "code", "node 'n': TimeoutError: slow"),
        (SystemExit(3), "code", "node 'n': SystemExit: 3"),
        (asyncio.CancelledError("a stream inside was closed"), "code", "node 'n': CancelledError: a stream"),
        (RecursionError("deep"), "code", "RecursionError"),
        (PluginError("wrong"), "code", "PluginError: wrong"),
    ],
)
def test_what_a_node_raises_is_a_failure_of_its_example(
    error: BaseException, kind: str, words: str, tmp_path: Path
) -> None:
    DOES["raise"] = raising(error)
    found = outcome(tmp_path, {"n": {"planted": "raise"}})
    assert found.failure == kind and words in (found.message or "")
    assert found.trace.spans[0].error is not None and found.trace.spans[0].error.startswith(kind)


@pytest.mark.parametrize("value", [None, ["a"], "text", 3])
def test_what_is_no_mapping_is_a_failure_too(value: Any, tmp_path: Path) -> None:
    DOES["give"] = giving(value)
    found = outcome(tmp_path, {"n": {"planted": "give", "writes": ["y"]}})
    assert found.failure == "code" and type(value).__name__ in (found.message or "")


@pytest.mark.parametrize(
    "error",
    [BudgetSpent("calls", 1, 2), StoreError("full"), ServerDead("gone"), LMError("auth", "401"), SpecError("no price")],
)
def test_what_concerns_the_whole_run_is_no_failure_of_an_example(error: Exception, tmp_path: Path) -> None:
    DOES["raise"] = raising(error)
    with pytest.raises(type(error)):
        outcome(tmp_path, {"n": {"planted": "raise", "optional": True}})


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    DOES["give"] = giving({})
    found = outcome(tmp_path, {"n": {"planted": "give", "reads": ["question"]}}, {"text": "a", "label": "b"})
    assert found.failure == "data" and "no field 'question'; it has: text, label" in (found.message or "")
    later = {"a": {"planted": "give", "writes": ["y"]}, "b": {"planted": "give", "reads": ["y"]}}
    assert outcome(tmp_path, later).failure == "data", "a node that leaves an output out"


# Graphs


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
        "data",
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

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=100) as ledger:
            task = asyncio.create_task(program(tmp_path, ledger, nodes, lm).run(Example("1", {})))
            while lm.open < (1 if chain else 2):
                await turns(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lm.open == 0 and len(lm.requests) == (1 if chain else 2)

    run(course)  # which fails if a task is left


# Traces


def test_a_trace_is_a_rollout_where_the_provider_gives_tokens(tmp_path: Path) -> None:
    tokens = {"prompt_ids": (1, 2), "token_ids": (7, 8), "logprobs": (-0.5, -0.25)}
    lm = FakeLM(lambda request: reply("a", **(tokens if request.logprobs else {})))

    async def speak(inputs: Any, ctx: Context) -> Any:
        ctx.span.agent, ctx.span.turn = "seller", 3
        await ctx.complete([{"role": "user", "content": "one"}], logprobs=True)
        await ctx.complete([{"role": "user", "content": "two"}])
        ctx.note(fallback=True)
        return {"y": "a"}

    async def plain(inputs: Any, ctx: Context) -> Any:
        await ctx.complete([{"role": "user", "content": "three"}], logprobs=True)
        ctx.step("by the door", 0.5)
        await ctx.complete([{"role": "user", "content": "four"}], logprobs=True, role="judge")  # nobody's to learn
        return {}

    DOES["speak"], DOES["plain"] = speak, plain
    nodes = {"s": {"planted": "speak", "writes": ["y"]}, "p": {"planted": "plain", "reads": ["y"]}}
    for _ in range(2):  # the second time from the journal
        found = outcome(tmp_path, nodes, lm=lm)
        common = {**tokens, "text": "a"}
        assert found.trace.rollout == [
            {"agent": "seller", "turn": 3, **common, "state": None, "earned": None},
            {"agent": "p", "turn": 0, **common, "state": "by the door", "earned": 0.5},
        ]
        assert [(c.role, c.messages[0]["content"], c.lm) for c in found.trace.calls] == [
            ("task", "one", "openai/fake"),
            ("task", "two", "openai/fake"),
            ("task", "three", "openai/fake"),
            ("judge", "four", "openai/fake"),
        ]
        span = found.trace.spans[0].as_dict()
        assert (span["agent"], span["turn"], span["notes"]) == ("seller", 3, {"fallback": True})
        assert [c["text"] for c in span["calls"]] == ["a", "a"] and "error" not in span
    assert len(lm.requests) == 4


def test_a_slow_model_ends_at_the_deadline(tmp_path: Path) -> None:
    async def never(request: Any) -> Any:
        await asyncio.sleep(3600)

    async def ask(inputs: Any, ctx: Context) -> Any:
        return {"y": (await ctx.complete([{"role": "user", "content": "x"}])).text}

    DOES["ask"] = ask
    lm = FakeLM(never)
    found = outcome(tmp_path, {"n": {"planted": "ask", "writes": ["y"]}}, lm=lm, timeout=0.05, attempts=2)
    assert found.failure == "timeout" and "0.05 s" in (found.message or "") and len(lm.requests) == 2


def test_replicas_and_children_draw_fresh_samples_only_where_there_is_chance(tmp_path: Path) -> None:
    drawn: list[int] = []
    lm = FakeLM(lambda request: drawn.append(request.replica) or reply())

    async def ask(inputs: Any, ctx: Context) -> Any:
        hot = float(inputs["x"])
        for replica in (0, 1):
            await ctx.complete([{"role": "user", "content": "x"}], temperature=hot, replica=replica)
        return {}

    DOES["ask"] = ask

    async def course() -> None:
        with journal(tmp_path / "run.db", calls=100) as ledger:
            made = program(tmp_path, ledger, {"n": {"planted": "ask", "reads": ["x"]}}, lm)
            for hot in (0.0, 1.0):
                for replica in (0, 1, 0):
                    await made.run(Example("1", {"x": hot}), Draw(replica))

    run(course)
    assert drawn == [0, 0, 1, 1000, 1001]


def test_effects_are_told_apart_by_their_place(tmp_path: Path) -> None:
    made: list[str] = []

    async def work(inputs: Any, ctx: Context) -> Any:
        async def effect() -> int:
            made.append(ctx.node)
            return len(made)

        return {"y": [await ctx.effect("tool", "same", effect) for _ in range(2)]}

    DOES["work"] = work
    nodes = {"n": {"planted": "work", "writes": ["y"]}}
    assert outcome(tmp_path, nodes).prediction["y"] == [1, 2]
    assert outcome(tmp_path, nodes).prediction["y"] == [1, 2], "replayed"
    nodes["n"]["reads"] = ["x"]
    assert outcome(tmp_path, nodes).prediction["y"] == [3, 4], "another workflow"


# Models


def test_one_model_for_equal_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LMSpec] = []
    monkeypatch.setitem(plugins()._tables["lms"], "planted", (lambda rest, spec: made.append(spec) or FakeLM(), "test"))

    async def course() -> None:
        pool = LMPool()
        one = pool.get(lm_spec("planted/a"))
        assert pool.get(lm_spec({"model": "planted/a", "temperature": 0.5, "max_tokens": 9, "timeout": 1.0})) is one
        assert pool.get(LMSpec.model_validate({"model": "planted/a"})) is one
        assert pool.get(lm_spec("planted/b")) is not one
        assert pool.get(lm_spec({"model": "planted/a", "extra": {"x": 1}})) is not one
        again = lm_spec({"model": "planted/a", "max_tokens": 3})
        assert pool.get(again) is one
        await pool.release(lm_spec("planted/a"))
        await pool.release(lm_spec("planted/never-made"))
        assert pool.get(again) is not one and pool.get(again) is pool.get(lm_spec("planted/a"))  # made anew
        await pool.aclose()
        assert pool._made == {}

    run(course)
    assert [s.model for s in made] == ["planted/a", "planted/b", "planted/a", "planted/a"]
    assert split_model("planted:a/b") == ("planted", "a/b") and split_model("planted/a:b") == ("planted", "a:b")
    assert split_model("someone/else") == ("*", "someone/else")
    monkeypatch.delitem(plugins()._tables["lms"], "*")
    with pytest.raises(PluginError, match="no LM provider serves 'someone/else'; known prefixes: .*planted"):
        split_model("someone/else")


def test_settings_of_a_request_come_from_the_caller_then_from_the_model() -> None:
    spec = lm_spec({"model": "openai/x", "temperature": 0.7, "max_tokens": 99})
    request = make_request(spec, [{"role": "user", "content": "x"}], 3, {"max_tokens": 5, "top_p": None})
    assert (request.temperature, request.max_tokens, request.top_p, request.replica) == (0.7, 5, 1.0, 3)
    cold = make_request(spec, [{"role": "user", "content": "x"}], 3, {"temperature": 0.0})
    assert (cold.temperature, cold.replica) == (0.0, 0)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_trace_does_not_tell_who_was_faster(slow: int, tmp_path: Path) -> None:
    """Three samples, each checked when it is there: what a proposer is shown of them must be the same in a replay."""

    class Slow(Script):
        async def complete(self, request: Request) -> Response:
            checks = "good" in str(request.messages)
            if not checks and request.replica == slow * 1000:
                await asyncio.sleep(0.05)
            return Response("no" if checks else f"answer {request.replica // 1000}", "stop", 5, 1, 0.0)

    lm = {"model": "openai/scripted", "attempts": 1, "temperature": 1.0}
    node = {
        "reflect": {"predict": "text -> label", "lm": lm},
        "samples": 3,
        "rounds": 0,
        "verifier": {"predict": "label -> good: bool", "lm": lm},
    }

    async def course() -> Trace:
        store = Store(tmp_path / "run.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
        program = Program(make_workflow({"r": node}, tmp_path), Runtime(ledger, lm_spec(lm), {}, Slow(lambda r: "")))
        outcome = await program.run(Example("1", {"text": "q"}))
        ledger.close()
        store.close()
        return outcome.trace

    trace = asyncio.run(course())
    checked = [span.inputs["label"] for span in trace.spans if span.node.endswith("verifier")]
    assert checked == ["answer 0", "answer 1", "answer 2"]
