"""`serve` under load: which configuration answers, in a queue that is simulated and in the application itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from tests.helpers.model_shelf import Shelf, Shelved

import workbench
from workbench.errors import SpecError
from workbench.inference import load_configurations
from workbench.spec import ConfigurationSpec, TargetsSpec

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

sys.path.insert(0, str(Path(__file__).parents[3] / "contrib" / "bench" / "promises"))

import service_levels as bench

from workbench_serve.app import App
from workbench_serve.settings import Settings
from workbench_serve.under_load import FEW, SECONDS, Configurations

CHEAP, MIDDLE, FAST = (
    ConfigurationSpec(score=0.9, latency=mean, p95_latency=2 * mean, usd=usd)
    for mean, usd in ((1.0, 0.001), (0.5, 0.002), (0.1, 0.01))
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def chooser(clock: Clock | None = None, slots: int = 4, **targets: float) -> Configurations:
    limits = TargetsSpec(**(targets or {"p95_latency": 3.0}))
    return Configurations(limits, [CHEAP, MIDDLE, FAST], slots, clock or Clock())


def test_the_cheapest_that_ends_in_time_answers() -> None:
    """2 s, 1 s and 0.2 s for 95 of 100 requests, of 3 s."""
    found = chooser()
    assert [found.choose(waited, 0) for waited in (0.0, 1.0, 1.01, 2.0, 2.01, 2.8, 9.0)] == [0, 0, 1, 1, 2, 2, 2]


def test_those_behind_count_before_they_have_waited() -> None:
    """Four at once, a second each: eight waiting wait 2 s, so that a slow one ends after 4; with half a second, 2."""
    found = chooser()
    assert [found.choose(0.0, waiting) for waiting in (0, 4, 5, 16, 17, 112, 500)] == [0, 0, 1, 1, 2, 2, 2]


def test_a_target_of_the_mean_counts_by_the_mean() -> None:
    assert [chooser(latency=3.0).choose(w, 0) for w in (2.0, 2.1, 2.5, 2.6)] == [0, 1, 1, 2]
    assert chooser(latency=3.0, p95_latency=1.5).choose(0.0, 0) == 1


def test_times_are_those_of_now_once_there_are_enough() -> None:
    clock = Clock()
    found = chooser(clock)
    for _ in range(FEW - 1):
        found.record(0, 2.0)
    assert found.choose(0.0, 0) == 0
    found.record(0, 4.0)
    assert found.choose(0.0, 0) == 0, "one in forty may be slow"
    for _ in range(10):
        found.record(0, 12.0)
    assert found.choose(0.0, 0) == 2, "ten in fifty may not; and the others are taken to be four times slower, too"
    clock.now = SECONDS + 1
    assert found.choose(0.0, 0) == 0, "what is long ago is forgotten"


def test_in_a_queue_requests_end_in_time_at_less_than_the_price_of_the_fastest() -> None:
    """Nine arrivals a second are more than eight slots of 1.2 s serve, 24 more than eight of 0.6 s."""
    rng = np.random.default_rng
    calm = bench.serve(3.0, None, rng(2))
    assert calm["first"] > 0.93 and calm["in_time"] > 0.97
    for rate in (9.0, 24.0):
        fixed, fastest, chosen = (bench.serve(rate, place, rng(2)) for place in (0, 2, None))
        assert fixed["in_time"] < 0.1 and fastest["in_time"] > 0.99
        assert chosen["in_time"] > 0.95 and chosen["usd"] < 0.9 * fastest["usd"]


# The application

FIGURES = [
    {"score": 0.9, "usd": 0.001, "latency": 0.2, "p95_latency": 0.22},
    {"score": 0.9, "usd": 0.01, "latency": 0.005, "p95_latency": 0.006, "lm": "openai/quick"},
]


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "w.yaml"
    nodes = {"sort": {"predict": "text -> label"}}
    written = {"lm": "openai/cheap", "nodes": nodes, "targets": {"p95_latency": 0.3}, "configurations": FIGURES}
    path.write_text(yaml.safe_dump({**written, **changes}))
    return path


def burst(folder: Path, requests: int, *, adapt: bool = True) -> tuple[list[dict[str, Any]], dict[str, Any], Shelf]:
    """The answers to so many requests at once, of which two run at once, then that of a chat."""
    shelf, path = Shelf({"cheap": Shelved(1.0, 0.001, 0.2), "quick": Shelved(1.0, 0.01, 0.005)}), write(folder)
    with workbench.load(path, pool=shelf) as wf:
        loaded = load_configurations(wf, path, pool=shelf)

        async def whole() -> tuple[list[dict[str, Any]], dict[str, Any]]:
            app = App(wf, Settings(concurrency=2), lambda line: None, loaded[1:] if adapt else ())
            transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                jobs = [client.post("/predict", json={"text": f"word {i}"}) for i in range(requests)]
                found = [reply.json() for reply in await asyncio.gather(*jobs)]
                asked = {"model": "workflow", "messages": [{"role": "user", "content": "word"}]}
                return found, (await client.post("/v1/chat/completions", json=asked)).json()

        try:
            found, chat = wf.run_in_loop(whole())
        finally:
            for other in loaded[1:]:
                other.close()
    return found, chat, shelf


def test_requests_that_wait_are_answered_by_a_faster_configuration(tmp_path: Path) -> None:
    found, chat, shelf = burst(tmp_path, 12)
    assert {one["outputs"]["label"] for one in found} == {"yes"}
    places = [one["configuration"] for one in found]
    assert places.count(1) >= 8 and places.count(1) == shelf.calls["quick"]
    assert chat["system_fingerprint"] == "configuration-0", "the queue is empty"


def test_requests_that_run_out_of_time_count_as_slow(tmp_path: Path) -> None:
    """The cheap one is much slower than on val, so that the deadline ends each of its requests."""
    figures = [
        {**FIGURES[0], "latency": 0.01, "p95_latency": 0.02},
        {**FIGURES[1], "latency": 1e-4, "p95_latency": 2e-4},
    ]
    shelf = Shelf({"cheap": Shelved(1.0, 0.001, 5.0), "quick": Shelved(1.0, 0.01)})
    path = write(tmp_path, targets={"p95_latency": 0.4}, configurations=figures)
    with workbench.load(path, pool=shelf) as wf:
        loaded = load_configurations(wf, path, pool=shelf)

        async def whole() -> list[int]:
            app = App(wf, Settings(concurrency=FEW, deadline=0.5), lambda line: None, loaded[1:])
            transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                jobs = [client.post("/predict", json={"text": f"word {i}"}) for i in range(FEW)]
                codes = [reply.status_code for reply in await asyncio.gather(*jobs)]
                return [*codes, (await client.post("/predict", json={"text": "word"})).status_code]

        try:
            assert wf.run_in_loop(whole()) == [504] * FEW + [200] and shelf.calls["quick"] == 1
        finally:
            for other in loaded[1:]:
                other.close()


def test_a_request_that_was_cut_early_does_not_count_as_fast() -> None:
    """One that waited long is ended by its deadline soon after it began."""
    found = chooser()
    for _ in range(FEW):
        found.record_cut(0, 0.01)
    assert found.choose(0.0, 0) == 0 and found.choose(2.5, 0) == 2


def test_fixed_is_the_own_configuration_of_the_file(tmp_path: Path) -> None:
    found, chat, shelf = burst(tmp_path, 5, adapt=False)
    assert shelf.calls == {"cheap": 6, "quick": 0}
    assert "configuration" not in found[0] and "system_fingerprint" not in chat


def test_a_configuration_of_other_fields_is_refused_by_its_place(tmp_path: Path) -> None:
    shelf = Shelf({"cheap": Shelved(1.0, 0.001)})
    for nodes, said in (
        ({"sort": {"predict": "question -> label"}}, "it is question -> label, the file itself text -> label"),
        ({"sort": {"predict": "text -> other"}}, "it is text -> other"),
        ({"sort": {"nonsense": "text -> label"}}, "no node kind is named"),
    ):
        path = write(tmp_path, configurations=[FIGURES[0], {**FIGURES[0], "nodes": nodes}])
        with (
            workbench.load(path, pool=shelf) as wf,
            pytest.raises(SpecError, match=rf"(?s)w.yaml: configurations.1: {said}"),
        ):
            load_configurations(wf, path, pool=shelf)
