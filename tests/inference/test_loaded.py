"""A finished workflow as a function: from plain programs, notebooks and servers, without data, metric or budget."""

from __future__ import annotations

import asyncio
import copy
import gc
import itertools
import os
import pickle
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from tests.helpers.lm_faults import ChatServer
from tests.helpers.scripted import Script

import workbench
from workbench.errors import LMError, NodeError, ServerDead, SpecError
from workbench.inference import LoadedWorkflow
from workbench.lm import Request, Response

NODES = {"sort": {"predict": "text -> label: Literal['a', 'b']"}}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "winner.yaml"
    path.write_text(yaml.safe_dump({"lm": "openai/scripted", "nodes": NODES, **changes}))
    return path


def last(request: Request) -> str:
    return str(request.messages[-1]["content"])


def load(folder: Path, say: Callable[[Request], str | Response], **changes: Any) -> LoadedWorkflow:
    return workbench.load(write(folder, **changes), pool=Script(say))


@pytest.fixture
def wf(tmp_path: Path) -> Iterator[LoadedWorkflow]:
    """Answers `a` for texts that begin with an even digit, `b` for odd ones, and nonsense for others."""

    def say(request: Request) -> str:
        text = last(request).split("text: ")[1][:1]
        return "?" if not text.isdigit() else "ab"[int(text) % 2]

    with load(tmp_path, say) as found:
        yield found


def test_friction_1_a_file_without_data_metric_and_budget_is_called(wf: LoadedWorkflow) -> None:
    found = wf(text="2")
    assert found["label"] == found.label == "a" and dict(found) == {"label": "a"} and found.ok
    assert (found.cost.calls, found.cost.tokens) == (1, 6) and found.cost.seconds > 0
    assert found.trace is not None and [span.node for span in found.trace.spans] == ["sort"]
    assert wf.inputs == ("text",) and wf.outputs == ("label",)
    assert repr(found) == "Prediction(label='a')" and repr(wf) == "<workflow workflow: text -> label>"


def test_friction_2_sections_that_are_not_used_are_not_read(tmp_path: Path) -> None:
    """A winner names the rows and the metric that it was optimized with; neither is on the server."""
    sections = {
        "data": {"file": "gone.jsonl"},
        "metric": "python:gone.py:score",
        "search": {"nodes.sort.temperature": {"float": [0.0, 1.0]}},
        "optimize": [{"of_a_plugin_that_is_not_here": {}}],
        "budget": {"calls": 1},
    }
    with load(tmp_path, lambda request: "a", **sections) as wf:
        assert [wf(text="x").label for _ in range(3)] == ["a"] * 3, "the budget of the search does not count"


def test_wrong_inputs_are_named(wf: LoadedWorkflow) -> None:
    with pytest.raises(SpecError, match="the input 'text' is missing"):
        wf()
    with pytest.raises(SpecError, match="reads no input 'txt'"):
        wf(text="1", txt="1")
    with pytest.raises(AttributeError, match="no field 'lable'; it has: label"):
        _ = wf(text="1").lable


def test_a_failure_is_raised_for_one_input_and_a_result_among_rows(wf: LoadedWorkflow) -> None:
    with pytest.raises(workbench.PredictionError, match="unparsed") as error:
        wf(text="x")
    assert error.value.prediction.failure == "unparsed" and error.value.prediction.cost.calls == 1
    found = list(wf.batch([{"text": "1"}, {"text": "x"}, {"other": 1}, {"text": "2", "label": "ignored"}]))
    assert [p.failure for p in found] == [None, "unparsed", "data", None]
    assert [p.get("label") for p in found] == ["b", None, None, "a"]
    assert found[2].message == "the row has no text"


def test_results_come_in_the_order_of_rows_and_no_more_run_at_once(tmp_path: Path) -> None:
    running, most, done = 0, 0, list[int]()

    class Slow(Script):
        async def complete(self, request: Request) -> Response:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.02 if "text: 0" in last(request) else 0.001)
            running -= 1
            return Response("a", "stop", 1, 1, 0.0)

    with workbench.load(write(tmp_path), pool=Slow(lambda request: "")) as wf:
        rows = [{"text": f"{i % 10} {i}"} for i in range(40)]
        found = list(wf.batch(rows, concurrency=5, progress=done.append, trace=True))
    assert most == 5 and done == list(range(1, 41))
    traces = [p.trace.spans[0].inputs["text"] for p in found if p.trace]
    assert traces == [row["text"] for row in rows]


def test_rows_are_read_as_they_are_needed(wf: LoadedWorkflow) -> None:
    read = 0

    def rows() -> Iterator[dict[str, str]]:
        nonlocal read
        while True:
            read += 1
            yield {"text": "1"}

    results = wf.batch(rows(), concurrency=2)
    assert [next(results).label for _ in range(50)] == ["b"] * 50 and read <= 50 + 8
    results.close()  # type: ignore[attr-defined]
    assert wf(text="2").label == "a", "what was begun is cancelled, and the next call works"


def test_a_batch_that_is_left_ends(tmp_path: Path) -> None:
    answered = 0

    class Slow(Script):
        async def complete(self, request: Request) -> Response:
            nonlocal answered
            await asyncio.sleep(0.05)
            answered += 1
            return Response("a", "stop", 1, 1, 0.0)

    with workbench.load(write(tmp_path), pool=Slow(lambda request: "")) as wf:
        results = wf.batch(({"text": str(i)} for i in itertools.count()), concurrency=2)
        next(results)
        results.close()  # type: ignore[attr-defined]
        time.sleep(0.4)
    assert answered <= 4, "two at once; six more were begun"


@pytest.mark.parametrize("is_left", [True, False])
def test_a_workflow_that_is_closed_in_a_batch_opens_nothing_anew(is_left: bool, tmp_path: Path) -> None:
    """A call that was about to begin would open a program that nobody closes, on a journal that is closed. is_left: the
    batch was ended before, and not only by the end of the workflow."""

    class Server(Script):
        """Others of its calls end while its connections are closed."""

        async def complete(self, request: Request) -> Response:
            await asyncio.sleep(0.001)
            return await super().complete(request)

        async def aclose(self) -> None:
            await asyncio.sleep(0.005)

    for _ in range(10):
        wf = workbench.load(write(tmp_path), pool=Server(lambda request: "a"))
        rows = wf.batch([{"text": str(number)} for number in range(64)], concurrency=8)
        next(rows)
        if is_left:
            rows.close()
        wf.close()
        assert wf._open.run is None


def test_friction_5_it_works_inside_a_running_loop_and_from_several(wf: LoadedWorkflow) -> None:
    async def main() -> list[str]:
        one = wf(text="2").label  # a plain call in a notebook's loop
        several = await asyncio.gather(*(wf.acall(text=str(i)) for i in range(4)))

        async def rows() -> AsyncIterator[dict[str, str]]:
            for i in range(3):
                yield {"text": str(i)}

        more = [p.label async for p in wf.abatch(rows())]
        return [one, *(p.label for p in several), *more, *[p.label async for p in wf.abatch([{"text": "1"}])]]

    for _ in range(2):
        assert asyncio.run(main()) == ["a", "a", "b", "a", "b", "a", "b", "a", "b"]


def test_a_data_frame_is_rows(wf: LoadedWorkflow) -> None:
    frame = pandas.DataFrame({"n": [0, 1], "text": ["1", "2"]})
    assert [p.label for p in wf.batch(frame)] == ["b", "a"]


def test_equal_inputs_are_asked_again(tmp_path: Path) -> None:
    """Nothing is cached: who calls a model with a temperature wants a new answer."""
    answers = iter("abab")
    with load(tmp_path, lambda request: next(answers)) as wf:
        assert [wf(text="x").label for _ in range(2)] == ["a", "b"]
        assert sorted(p.label for p in wf.batch([{"text": "x"}] * 2)) == ["a", "b"]


def test_tools_run_for_each_row_though_rows_are_equal(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(
        "seen = []\ndef number(text: str) -> int:\n    seen.append(text)\n    return len(seen)\n"
    )
    nodes = {"n": {"tool": "python:count.py:number", "output": "number"}}
    with load(tmp_path, lambda request: "", nodes=nodes) as wf:
        assert sorted(p.number for p in wf.batch([{"text": "x"}] * 3)) == [1, 2, 3]


def test_a_dead_server_is_told_and_tried_again(tmp_path: Path) -> None:
    alive = False

    def say(request: Request) -> str:
        if not alive:
            raise LMError("connection", "refused")
        return "a"

    with load(tmp_path, say, lm={"model": "openai/scripted", "attempts": 1}) as wf:
        with pytest.raises(ServerDead):
            list(wf.batch([{"text": "x"}] * 40))
        alive = True
        assert wf(text="x").label == "a"


def test_a_rejected_key_ends_a_batch_and_is_tried_again(tmp_path: Path) -> None:
    with ChatServer("ok") as server:
        lm = {"model": "openai/x", "api_base": server.base, "attempts": 1}
        with workbench.load(write(tmp_path, lm=lm, nodes={"n": {"predict": "text -> answer"}})) as wf:
            server.kind = "401"
            with pytest.raises((LMError, NodeError)):
                list(wf.batch([{"text": "x"}] * 5, concurrency=1))
            server.kind = "ok"
            assert wf(text="x").ok


def test_other_settings_are_given_by_address(tmp_path: Path) -> None:
    script = Script(lambda request: "a")
    with workbench.load(write(tmp_path), changes={"lm.model": "openai/other"}, pool=script) as wf:
        assert wf(text="x").ok and set(script.models) == {"openai/other"}
    with pytest.raises(SpecError, match="Did you mean"):
        workbench.load(write(tmp_path), changes={"lm.modell": "x"})


def test_closing_ends_the_thread_and_a_later_call_begins_another(tmp_path: Path) -> None:
    def ours() -> int:
        return sum(thread.name == "workbench-calls" for thread in threading.enumerate())

    before = ours()
    wf = load(tmp_path, lambda request: "a")
    assert ours() == before, "loading starts nothing"
    assert wf(text="x").ok and ours() == before + 1
    wf.close()
    wf.close()
    assert ours() == before
    assert wf(text="x").ok
    wf.close()


def test_a_fork_has_a_loop_of_its_own(wf: LoadedWorkflow) -> None:
    """As under a server that loads the program before it forks its workers."""
    assert wf(text="1").label == "b"
    child = os.fork()
    if child == 0:
        right = wf(text="2").label == "a"
        os._exit(0 if right else 1)
    begun = time.monotonic()
    while time.monotonic() - begun < 20:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise AssertionError("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0 and wf(text="1").label == "b"


def test_predictions_are_copied_and_pickled(wf: LoadedWorkflow) -> None:
    found = wf(text="1")
    for other in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert other.label == "b" and other.cost == found.cost and dict(other) == dict(found)


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_value_that_is_missing_is_not_asked_about(wf: LoadedWorkflow, value: Any) -> None:
    with pytest.raises(SpecError, match="'text' is missing"):
        wf(text=value)
    assert [p.failure for p in wf.batch([{"text": value}, {"text": "1"}])] == ["data", None]


def test_rows_of_another_form_are_named(wf: LoadedWorkflow) -> None:
    with pytest.raises(SpecError, match="not one str"):
        list(wf.batch("abc"))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="not one dict"):
        list(wf.batch({"text": "a"}))  # type: ignore[arg-type]
    assert [p.message for p in wf.batch([3])] == ["a row is a mapping of fields, not int"]  # type: ignore[list-item]
    failed = next(iter(wf.batch([{"text": "x"}])))
    with pytest.raises(AttributeError, match="it failed: unparsed"):
        _ = failed.label


def test_closing_in_the_middle_of_a_batch_says_so(tmp_path: Path) -> None:
    class Slow(Script):
        async def complete(self, request: Request) -> Response:
            await asyncio.sleep(0.02 if "0" in last(request) else 30)
            return Response("a", "stop", 1, 1, 0.0)

    with workbench.load(write(tmp_path), pool=Slow(lambda request: "")) as wf:
        results = wf.batch([{"text": "0"}, {"text": "1"}])
        next(results)
        wf.close()
        with pytest.raises(workbench.WorkbenchError, match="was closed"):
            next(results)


def test_closing_while_asynchronous_calls_run_says_so(tmp_path: Path) -> None:
    class Slow(Script):
        async def complete(self, request: Request) -> Response:
            await asyncio.sleep(30)
            raise AssertionError

    async def main() -> None:
        wf = workbench.load(write(tmp_path), pool=Slow(lambda request: ""))
        rows = wf.abatch([{"text": "0"}])
        jobs = [asyncio.ensure_future(wf.acall(text="x")), asyncio.ensure_future(anext(rows))]
        await asyncio.sleep(0.1)
        await wf.aclose()
        for job in jobs:
            with pytest.raises(workbench.WorkbenchError, match="was closed before the row was done"):
                await job

    asyncio.run(main())


def test_a_cancelled_call_is_cancelled_and_not_told_as_closed(tmp_path: Path) -> None:
    ended = threading.Event()

    class Slow(Script):
        async def complete(self, request: Request) -> Response:
            try:
                await asyncio.sleep(30)
            finally:
                ended.set()
            raise AssertionError

    async def main() -> None:
        async with workbench.load(write(tmp_path), pool=Slow(lambda request: "")) as wf:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await wf.acall(text="x")
            assert await asyncio.to_thread(ended.wait, 5), "the work goes on"

    asyncio.run(main())


@pytest.mark.parametrize("place", ["lm", "node", "role"])
def test_a_missing_key_is_told_when_the_file_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    lm = {"model": "openai/x", "api_key_env": "NO_SUCH_KEY"}
    ours: dict[str, Any] = {"lm": {"lm": lm}, "node": {"nodes": {"n": {"predict": "text -> a", "lm": lm}}}}.get(
        place, {"roles": {"proposer": lm}}
    )
    if place == "role":  # which no node asks
        with workbench.load(write(tmp_path, lm="bundled/nano", **ours)) as wf:
            assert wf.inputs == ("text",)
        return
    with pytest.raises(LMError, match="NO_SUCH_KEY"):
        workbench.load(write(tmp_path, **{"lm": "bundled/nano", **ours}))
    monkeypatch.setenv("NO_SUCH_KEY", "k")
    workbench.load(write(tmp_path, **{"lm": "bundled/nano", **ours})).close()


def test_it_is_a_context_of_asyncio_too(tmp_path: Path) -> None:
    async def main() -> str:
        async with load(tmp_path, lambda request: "a") as wf:
            return (await wf.acall(text="x")).label

    assert asyncio.run(main()) == "a"


def test_a_policy_holds_and_asks(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def pay(text: str) -> str:\n    return 'paid'\n")
    nodes = {"n": {"tool": "python:tools.py:pay", "output": "paid"}}
    policy = {"rules": [{"ask": "pay"}]}
    path = write(tmp_path, nodes=nodes, policy=policy)
    with workbench.load(path) as wf, pytest.raises(workbench.PredictionError, match="policy"):
        wf(text="x")
    with workbench.load(path, consent=lambda tool, arguments: arguments == {"text": "x"}) as wf:
        assert wf(text="x").paid == "paid"


def test_it_answers_as_eval_does(tmp_path: Path) -> None:
    """The score that was proved is that of the workflow that is called."""
    from workbench.evaluation import EvalOptions, evaluate
    from workbench.run import prepare

    quickstart = Path(__file__).parents[2] / "workflows/quickstart.yaml"
    text = quickstart.read_text(encoding="utf-8").replace("data/", f"{quickstart.parent}/data/")
    path = tmp_path / "workflow.yaml"
    path.write_text(text.replace("{train: 60, val: 60, test: 200}", "{train: 10, val: 20, test: 10}"))
    scored = evaluate(path, options=EvalOptions(split="val"), database=tmp_path / "run.db")
    rows = prepare(path)[2].dataset.val
    with workbench.load(path) as wf:
        right = [p.get("label") == row["label"] for row, p in zip(rows, wf.batch(rows), strict=True)]
    assert scored.score == sum(right) / len(rows) and 0.1 < scored.score < 0.9


@pytest.mark.long
@pytest.mark.slow
def test_memory_stays_flat_and_a_row_takes_less_than_a_millisecond_of_ours(tmp_path: Path) -> None:
    class Plain(Script):
        async def complete(self, request: Request) -> Response:  # which keeps no list of requests
            return Response("a", "stop", 5, 1, 0.0)

        def get(self, spec: Any) -> Any:
            return self

    with workbench.load(write(tmp_path), pool=Plain(lambda request: "")) as wf:
        rows = ({"text": f"{i} {'x' * 500}"} for i in range(30_000))
        results = wf.batch(rows, concurrency=16)
        for _ in range(5_000):
            next(results)
        gc.collect()
        tracemalloc.start()
        begun, rows_done = tracemalloc.get_traced_memory()[0], 0
        for _ in range(5_000):
            rows_done += next(results).ok
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - begun
        tracemalloc.stop()
        assert rows_done == 5_000 and grown < 1_000_000, f"{grown / rows_done:.0f} bytes a row"
        begun_cpu = time.process_time()
        rows_done = sum(p.ok for p in results)
        assert rows_done == 20_000 and (time.process_time() - begun_cpu) / rows_done < 0.002
