"""The optimizer `route`: its contract, a run in a planted world, and what its log holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import SpecError
from workbench.lm import LMPool, Request, Response
from workbench.run import Options, optimize, prepare, resume
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace
from workbench_route import optimizer as route
from workbench_route.gather import Collector, find_sites, probe_patch, wrap_nodes
from workbench_route.optimizer import LearnRoute
from workbench_testing import optimizer_checks
from workbench_testing.simulated import Killed

pytest.importorskip("sklearn")
SIGNATURE = "text -> label: Literal['a', 'b', 'c', 'd']"
ROUTE = {
    "route": {
        "small": {"predict": SIGNATURE, "instructions": "Label it.", "lm": "openai/small"},
        "large": {"predict": SIGNATURE, "instructions": "Label it.", "lm": "openai/large"},
    }
}


@pytest.fixture(scope="module", autouse=True)
def few_buckets() -> Iterator[None]:
    """Rows and words are few, also for what the tests of this file share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "DIMS", 256)
        yield


class PricedLM:
    """Always right, but on `hard` texts with 0.1 (small) or 0.9 (large); ten times as dear if large.

    A blind one is right with 0.7 on all.
    """

    concurrency = 8

    def __init__(self, pool: Pool, name: str):
        self.pool, self.name, self.identity = pool, name, f"priced {name}, no model"

    async def complete(self, request: Request) -> Response:
        self.pool.requests += 1
        if self.pool.kill_at and self.pool.requests >= self.pool.kill_at:
            raise Killed
        text = str(request.messages[-1]["content"])
        right = next((c for c in "abcd" if f" {c}-thing" in text), "a")
        skill = 0.7 if self.pool.blind else 1.0 if "hard" not in text else 0.1 if self.name == "openai/small" else 0.9
        share = int.from_bytes(hashlib.sha256(f"{self.name}{text}".encode()).digest()[:4], "big") / 2**32
        return Response(right if share < skill else "d" if right != "d" else "a", "stop", 20, 1, self.price(20, 1))

    async def embed(self, texts: list[str]) -> tuple[list[list[float]], int]:
        return [[1.0, 0.0] if "hard" in text else [0.0, 1.0] for text in texts], len(texts)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return {"openai/small": 1e-5, "openai/vectors": 1e-7}.get(self.name, 1e-4)

    async def aclose(self) -> None:
        pass


class Pool(LMPool):
    def __init__(self, kill_at: int = 0, blind: bool = False):
        super().__init__()
        self.requests, self.kill_at, self.blind = 0, kill_at, blind

    def get(self, spec: Any) -> Any:
        return PricedLM(self, spec.model)


def write(folder: Path, optimizer: Any, *, calls: int = 600, nodes: Any = None, **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, first, count in (("train", 0, 48), ("val", 100, 32), ("test", 200, 60)):
        kinds = [("hard" if i % 3 == 0 else "plain", "abcd"[i % 4], first + i) for i in range(count)]
        lines = [{"text": f"{kind} {i}: a {label}-thing", "label": label} for kind, label, i in kinds]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    spec = {
        "name": "routed",
        "lm": {"model": "openai/large", "api_base": "http://127.0.0.1:9/v1"},
        "data": {split: f"{split}.jsonl" for split in ("train", "val", "test")},
        "metric": "exact_match(label)",
        "objectives": ["score", "usd"],
        "pick": "cheapest",
        "nodes": nodes or {"sort": ROUTE},
        "optimize": [optimizer],
        "budget": {"calls": calls},
        **more,
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def run(folder: Path, optimizer: Any, pool: Pool | None = None, **settings: Any) -> tuple[Any, list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told":
            told.append(data)

    path = write(folder, optimizer, **settings)
    options = Options(out=str(folder / "out.yaml"), allow_unproved=True, keep_unproved=True)
    report = optimize(path, database=folder / "run.db", pool=pool or Pool(), listener=listen, options=options)
    return report, told


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[dict[str, Any]], Path]:
    folder = tmp_path_factory.mktemp("route")
    return *run(folder, "route"), folder


def test_it_saves_at_the_same_quality(saved: Any) -> None:
    report, _, _ = saved
    node = report.winner.enabled_nodes["sort"]
    assert report.status == "finished" and node.router is not None
    share = small_share(node)
    assert share["plain"] > share["hard"] + 0.5, share
    assert report.saving is not None and report.saving.winner < 0.8 * report.saving.baseline


def test_the_log_names_the_control_and_the_best_single_model(saved: Any) -> None:
    _, told, _ = saved
    said = next(t["message"] for t in told if "shuffled labels" in t["message"])
    assert "best single, large" in said and "random mix" in said and "guarded k-NN" in said


def test_the_winner_is_written_and_read_again(saved: Any) -> None:
    report, _, folder = saved
    again = prepare(folder / "out.yaml")[2].workflow if (folder / "out.yaml").exists() else None
    assert again is not None and again.nodes["sort"]["learned"] == report.winner.nodes["sort"]["learned"]


def test_the_router_itself_costs_no_call(saved: Any) -> None:
    """48 rows of train and 32 of val by two models, and then the test of two workflows."""
    report, _, _ = saved
    assert report.spent["calls"] <= 2 * (48 + 32) + 2 * 60


@pytest.mark.slow
def test_killed_and_resumed_it_learns_the_same(saved: Any, tmp_path: Path) -> None:
    report, _, _ = saved
    with pytest.raises((Killed, BaseExceptionGroup)):
        run(tmp_path, "route", Pool(kill_at=90))
    pool = Pool()
    again = resume("last", database=tmp_path / "run.db", pool=pool)
    assert again.winner == report.winner and pool.requests <= report.spent["calls"] - 80


@pytest.mark.slow
def test_where_the_text_says_nothing_no_gain_is_claimed(tmp_path: Path) -> None:
    """Both models are alike, so that the cheap one alone is the best; no router may look better on the sealed rows."""
    report, _ = run(tmp_path, {"route": {"aim": "score"}}, Pool(blind=True), objectives=["score"], pick="score")
    assert not report.gain_shown


@pytest.mark.slow
def test_steps_of_a_workflow_without_a_route_are_wrapped(tmp_path: Path) -> None:
    nodes = {"sort": {"predict": SIGNATURE, "instructions": "Label it."}}
    report, _ = run(tmp_path, {"route": {"lms": ["openai/small"]}}, nodes=nodes)
    tree = report.winner.nodes["sort"]
    assert tree["kind"] == "route" and set(tree["candidates"]) == {"small", "own"} and tree["learned"]


def test_wrapping_keeps_what_stands_around_a_node_and_leaves_routes_alone(tmp_path: Path) -> None:
    nodes = {
        "draft": {"predict": "text -> draft", "optional": True},
        "sort": {"predict": "text, draft -> label", "needs": "draft", "demos": [{"text": "a", "label": "b"}]},
        "shout": {"code": "label -> loud", "source": "def f(label):\n    return label", "function": "f"},
    }
    workflow = prepare(write(tmp_path, "random", nodes=nodes))[2].workflow
    made = wrap_nodes(workflow, ["openai/small", "other/small"])
    assert made.nodes["draft"]["optional"] is True and made.nodes["sort"]["needs"] == "draft"
    assert set(made.nodes["sort"]["candidates"]) == {"small", "small_", "own"}
    assert made.nodes["sort"]["candidates"]["small"]["demos"] and made.nodes["shout"] == workflow.nodes["shout"]
    assert wrap_nodes(made, ["openai/small"]) == made and wrap_nodes(workflow, []) == workflow
    assert made.enabled_nodes["sort"].outputs == workflow.enabled_nodes["sort"].outputs


OTHER = {
    "route": {
        name: {**node, "predict": "text -> other: Literal['a', 'b', 'c', 'd']"} for name, node in ROUTE["route"].items()
    }
}
BOTH = """
def both(example, prediction):
    return sum(prediction.get(name) == example["label"] for name in ("label", "other")) / 2
"""


def small_share(node: Any) -> dict[str, float]:
    """Of the hard and of the plain texts, the share that goes to the small model."""
    found = {}
    for kind in ("hard", "plain"):
        texts = [f"{kind} {300 + i}: a {'abcd'[i % 4]}-thing" for i in range(40)]
        chosen = [node.router.choose(node.router.scores(t), node.router.estimated_costs(t)) for t in texts]
        found[kind] = sum(node.router.candidates[i] == "small" for i in chosen) / len(chosen)
    return found


@pytest.mark.slow
def test_routes_inside_other_nodes_are_learned_each_at_its_address(tmp_path: Path) -> None:
    """One stands in an ensemble, which runs it twice for each row, and one at the top."""
    (tmp_path / "score.py").write_text(BOTH, encoding="utf-8")
    nodes = {"vote": {"ensemble": OTHER, "samples": 2}, "sort": ROUTE}
    report, told = run(tmp_path, "route", nodes=nodes, calls=1500, metric="python:score.py:both")
    tree, sites = report.winner.nodes, {site.name: site.node for site in find_sites(report.winner)}
    assert tree["vote"]["of"]["learned"] and tree["sort"]["learned"] and list(sites) == ["vote.of", "sort"]
    for node in sites.values():
        share = small_share(node)
        assert share["plain"] > share["hard"] + 0.5, share
    said = [t["message"].partition(":")[0] for t in told if "shuffled labels" in t["message"]]
    assert said == ["vote.of", "sort"]


def sites_of(folder: Path, nodes: Any, optimizer: Any = "random") -> tuple[Any, list[Any]]:
    workflow = prepare(write(folder, optimizer, nodes=nodes))[2].workflow
    return workflow, find_sites(workflow)


def test_a_route_inside_a_candidate_runs_where_that_candidate_is_taken(tmp_path: Path) -> None:
    outer = {"route": {"deep": ROUTE, "large": ROUTE["route"]["large"]}}
    workflow, sites = sites_of(tmp_path, {"sort": outer})
    assert [(site.name, site.around) for site in sites] == [("sort", {}), ("sort.candidates.deep", {"sort": "deep"})]
    probe = workflow.patched(probe_patch(sites, sites[1], "small", 2))
    assert probe.get("nodes.sort.always") == "deep" and probe.get("nodes.sort.first_sample") == 0
    assert probe.get("nodes.sort.candidates.deep.always") == "small"
    assert probe.get("nodes.sort.candidates.deep.first_sample") == 2


def test_the_most_calls_count_how_often_a_node_inside_runs(tmp_path: Path) -> None:
    workflow, _ = sites_of(tmp_path, {"vote": {"ensemble": ROUTE, "samples": 3}})
    rows = [Example(str(i), {}) for i in range(10)]
    most = LearnRoute.model_validate({}).max_calls(workflow, rows, rows)
    assert most == 2 * 3 * (10 + 10) + 3 * 10  # two models on train and val; the routed workflow on val


def test_a_text_that_a_node_reads_several_times_is_one_row_with_the_mean_cost(tmp_path: Path) -> None:
    workflow, (site,) = sites_of(tmp_path, {"vote": {"ensemble": ROUTE, "samples": 2}})
    call = CallRecord((), Response("a", "stop", 20, 4, 0.0), "task", "m", False, 0.25)

    def result(*texts: str) -> Result:
        spans = [Span("vote.of", "Route", {}, {"label": "a"}, order=(0, k, 0)) for k in range(len(texts))]
        inner = [Span("vote.of.candidates.small", "Predict", {}, order=(0, k, 0, 0, 0)) for k in range(len(texts))]
        for number, (span, child, text) in enumerate(zip(spans, inner, texts, strict=True)):
            span.notes["text"] = text
            child.calls += [call] * (number + 1)
        return Result(Example("r1", {}), 0.5, trace=Trace("r1", [*spans, *inner]))

    collector = Collector(None, workflow, [site], site)  # type: ignore[arg-type]
    both = {"small": [result("one", "one")], "large": [result("one", "two")]}
    (row,) = collector.rows({"r1": both}, "calls")
    assert (row.id, row.text) == ("r1", "one"), "what only one candidate leads to is no row"
    assert row.samples["small"][0].cost == 1.5 and row.samples["large"][0].cost == 1.0
    other = {"small": [result("one", "two")], "large": [result("one")]}
    assert [r.text for r in collector.rows({"r1": other}, "calls")] == ["one"]
    same = {"small": [result("one", "two")], "large": [result("one", "two")]}
    assert [(r.id, r.samples["large"][0].score) for r in collector.rows({"r1": same}, "tokens")] == [
        ("r1", 0.5),
        ("r1 1", 0.5),
    ]
    assert collector.rows({"r1": {"small": [result("one")]}}, "calls") == []


@pytest.mark.parametrize(
    ("optimizer", "nodes", "said"),
    [
        ("route", {"sort": {"predict": SIGNATURE}}, "a node of the kind `route`"),
        ({"route": {"aim": "cheap"}}, None, "aim"),
        ({"route": {"rows": 2}}, None, "rows"),
        ({"route": {"lms": [{"modl": "x"}]}}, None, "unknown key 'modl'"),
        ({"route": {"lms": ["bundled/nona"]}}, None, "no bundled model 'nona'"),
    ],
)
def test_what_is_written_wrongly_is_refused_before_a_call(
    optimizer: Any, nodes: Any, said: str, tmp_path: Path
) -> None:
    pool = Pool()
    with pytest.raises(SpecError, match=said):
        run(tmp_path, optimizer, pool, nodes=nodes)
    assert pool.requests == 0


def test_too_small_a_budget_is_said_and_spends_nothing(tmp_path: Path) -> None:
    report, told = run(tmp_path, "route", calls=200)
    assert any("too small" in t["message"] for t in told) and report.status in ("finished", "budget")


@pytest.mark.slow
def test_several_answers_are_drawn_once_each(tmp_path: Path) -> None:
    node = {**ROUTE, "samples": {"small": [1, 2]}}
    node["route"] = {**ROUTE["route"], "small": {**ROUTE["route"]["small"], "decoding": {"temperature": 1.0}}}
    pool = Pool()
    report, _ = run(tmp_path, {"route": {"margin": 0.5}}, pool, nodes={"sort": node}, calls=900)
    assert report.status == "finished" and report.spent["calls"] <= 3 * (48 + 32) + 3 * 60


@pytest.mark.slow
def test_a_vector_of_the_input_is_read_as_well(tmp_path: Path) -> None:
    """The text that decides says nothing here; only its vector does."""
    node = {**ROUTE, "embedder": "openai/vectors"}
    report, _ = run(tmp_path, "route", nodes={"sort": node}, calls=900)
    router = report.winner.enabled_nodes["sort"].router
    assert router is not None and router.vector == 2
    hard, plain = (router.scores("x", vector)[0] for vector in ([1.0, 0.0], [0.0, 1.0]))
    assert plain > hard + 0.02


@pytest.mark.slow
@pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
def test_with_steps_to_wrap_it_keeps_the_contract_of_an_optimizer(check: Any) -> None:
    check(LearnRoute(lms=["openai/other"]))
