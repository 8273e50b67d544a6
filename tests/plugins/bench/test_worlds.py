"""Planted worlds: the best accuracy is the best, the null world claims nothing, and the command says what is wrong."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.plugins.sandbox.test_sandbox import _kernel_features

from workbench.cli import cli
from workbench.lm import Request
from workbench.workflow import Workflow, node_tree
from workbench_bench import functions, routing, topology
from workbench_bench.run_world import (
    compute_accuracy,
    compute_mean_and_interval,
    map_in,
    measure_accuracy,
    run_many,
    run_world,
)
from workbench_bench.worlds import INSTRUCTIONS, TOPICS, WORDS, WORLDS, answer_as_proposer, read_rules, write_rules

needs_sandbox = pytest.mark.skipif(bool(_kernel_features()), reason=_kernel_features() or "-")


def request(instruction: str, topics: list[int], asked: int = 0, **settings: float) -> Request:
    messages = [{"role": "system", "content": f"{instruction}\nlabel: one of a, b"}]
    for t in topics:
        messages += [{"role": "user", "content": f"text: x topic{t}: a a-thing"}, {"role": "assistant", "content": "a"}]
    return Request((*messages, {"role": "user", "content": f"text: y topic{asked}: a b-thing\nlabel:"}), **settings)


@pytest.mark.parametrize("name", ["facets", "retrieval", "deceptive", "null"])
def test_nothing_is_better_than_the_best(name: str) -> None:
    """All instructions, up to eight examples, of which up to eight are on the topic."""
    world = WORLDS[name]
    found = [
        world.skill(request(instruction, [0] * same + [1] * (count - same)))
        for instruction, count in itertools.product(INSTRUCTIONS, range(9))
        for same in range(count + 1)
    ]
    assert max(found) == pytest.approx(world.best) and min(found) > 0 and max(found) <= 1


def test_the_hills_top_is_the_best_of_the_settings() -> None:
    world = WORLDS["settings"]
    grid = [world.skill(request("x", [], temperature=t / 50, top_p=p / 50)) for t in range(76) for p in range(3, 51)]
    assert max(grid) == pytest.approx(world.best, abs=1e-9)


@pytest.mark.slow
def test_an_optimizer_gets_nearer_with_more_calls() -> None:
    world = WORLDS["facets"]
    few, many = ([run_world(world, "optuna", calls=c, seed=s).accuracy for s in range(4)] for c in (180, 700))
    assert sum(many) / 4 > sum(few) / 4 + 0.1, (few, many)


def test_the_same_seed_gives_the_same_result() -> None:
    assert run_world(WORLDS["deceptive"], "random", calls=250, seed=3) == run_world(
        WORLDS["deceptive"], "random", calls=250, seed=3
    )


def test_the_mean_and_its_interval() -> None:
    mean, (low, high) = compute_mean_and_interval([0.8, 0.6, 0.7])
    assert mean == pytest.approx(0.7) and low == pytest.approx(0.7 - 4.303 * 0.1 / 3**0.5, abs=1e-3) and high > mean


def test_an_interval_of_two_seeds_stays_within_what_there_can_be() -> None:
    from workbench_bench.commands import _row
    from workbench_bench.run_world import Result

    runs = [Result(0.2, 100, False), Result(0.9, 100, False)]
    row = _row("rules", "random", 400, runs, runs)
    assert row["score"]["ci95"] == [0.0, 1.0] and row["regret"]["ci95"] == [0.0, 1.0]


@pytest.mark.slow
def test_several_processes_give_what_one_gives() -> None:
    jobs = [("facets", "random", 200, 0), ("rules", "rewrite", 260, 1)]
    with map_in(2) as run_all:
        assert run_many(jobs, run_all) == run_many(jobs)


@pytest.mark.slow
def test_its_processes_run_all_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes seconds to import what runs need."""
    pools = list[int]()

    class Pool(nullcontext):
        map = staticmethod(map)

        def __init__(self, processes: int, mp_context: Any):
            pools.append(processes)
            super().__init__(self)

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", Pool)
    flags = ["--world", "facets,null", "--optimizers", "random", "--budget-calls", "200", "--seeds", "2", "--jobs", "3"]
    done = CliRunner().invoke(cli, ["plugin", "bench", *flags])
    assert done.exit_code == 0 and "null: nothing helps" in done.stdout and pools == [3], done.output


@pytest.mark.slow
def test_the_command_compares_with_random_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    flags = [
        "--world",
        "retrieval",
        "--optimizers",
        "bootstrap",
        "--budget-calls",
        "185,400",
        "--seeds",
        "2",
        "--json",
        "--jobs",
        "1",
        "--plot",
        str(tmp_path / "plot.svg"),
    ]
    done = CliRunner().invoke(cli, ["plugin", "bench", *flags])
    assert done.exit_code == 0, done.output
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert (first["world"], first["budget"], second["budget"], first["seeds"]) == ("retrieval", 185, 400, 2)
    assert list(second["results"]) == ["random", "bootstrap"] and "vs_random" not in second["results"]["random"]
    found = second["results"]["bootstrap"]
    assert first["results"]["bootstrap"]["measured"] == 2  # a smaller proof pays for its first candidate
    difference = found["score"]["mean"] - second["results"]["random"]["score"]["mean"]
    assert found["vs_random"]["diff"] == pytest.approx(difference) and found["calls"] <= 400
    assert found["regret"]["mean"] == pytest.approx(WORLDS["retrieval"].best - found["score"]["mean"])
    assert (tmp_path / "plot.svg").read_text().count("regret") > 0 or (tmp_path / "plot.svg").stat().st_size > 5000
    assert TOPICS == 8


def test_a_bench_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file has is not run again, a line cut by the kill is."""
    kept, jobs = tmp_path / "kept.jsonl", [("facets", "random", 200, 0), ("facets", "random", 200, 1)]
    whole = run_many(jobs, keep=kept)
    lines = kept.read_text().splitlines()
    kept.write_text(f"{lines[0]}\n{lines[1][:40]}")
    ran: list[Any] = []
    monkeypatch.setattr(
        "workbench_bench.run_world._run_job",
        lambda job: ran.append(job) or run_world(WORLDS[job[0]], job[1], calls=job[2], seed=job[3]),
    )
    assert run_many(jobs, keep=kept) == whole and ran == jobs[1:]
    assert run_many(jobs, keep=kept) == whole and ran == jobs[1:], "and the file has both now"


def ask(text: str, world: str = "rules", draws: int = 200) -> list[str]:
    request = Request(({"role": "user", "content": text},))
    return [answer_as_proposer(WORLDS[world], request, random.Random(i)) for i in range(draws)]


def test_the_proposer_finds_rules_for_failures_that_it_sees_only() -> None:
    seen = '- score 0.00; task: {"text": "x topic3: an a-thing"}\n- score 1.00; task: {"text": "y topic5"}'
    made = [
        read_rules(a) for a in ask(f"<prompt>\nLabel it.\n</prompt>\n{seen}\nAnswer between <prompt> and </prompt>.")
    ]
    assert all(set(m) == {3} for m in made)
    assert 0.6 < sum(m[3] == WORDS[3] for m in made) / len(made) < 0.75, "60%, and one in eight of the rest"


def test_the_proposer_keeps_and_merges_rules_and_loses_few() -> None:
    one, two = write_rules({0: WORDS[0], 1: "use"}), write_rules({1: WORDS[1], 2: WORDS[2]})
    made = [
        read_rules(a)
        for a in ask(f"<prompt>\n{one}\n</prompt> <prompt>\n{two}\n</prompt> between <prompt> and </prompt>")
    ]
    assert 0.9 < sum(0 in m for m in made) / len(made) < 0.99
    assert 0.35 < sum(m.get(1) == WORDS[1] for m in made) / len(made) < 0.65, "of two on one topic any"
    assert all(set(m) <= {0, 1, 2} for m in made)


def test_the_proposer_takes_over_an_advice() -> None:
    text = (
        f"<prompt>\nLabel it.\n</prompt>\nAdvice: {write_rules({4: WORDS[4]})}\nAnswer between <prompt> and </prompt>."
    )
    assert all(read_rules(a) == {4: WORDS[4]} for a in ask(text))


@pytest.mark.slow
def test_optimizers_may_have_parameters(tmp_path: Path) -> None:
    flags = ["--world", "null", "--budget-calls", "200", "--seeds", "2", "--jobs", "1", "--json"]
    optimizers = (
        "random,{optuna: {sampler: random, trials: 3}},optuna: {trials: 3},{fgo: {size: 8, optimizer: {optuna: {}}}}"
    )
    found = CliRunner().invoke(cli, ["plugin", "bench", *flags, "--optimizers", optimizers])
    assert found.exit_code == 0, found.output
    assert list(json.loads(found.stdout)["results"]) == [
        "random",
        "optuna(sampler=random, trials=3)",
        "optuna(trials=3)",
        "fgo(size=8, optimizer={'optuna': {}})",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--world", "facet"], "Did you mean 'facets'?"),
        (["--optimizers", "optna"], "Did you mean 'optuna'?"),
        (["--budget-calls", "many"], "'many' is not a number of calls"),
        (["--budget-calls", "100"], "160 calls"),
        (["--plot", "a.xyz"], "Known: "),
        (["--optimizers", "{optuna: {sampler: x}}"], "sampler: Input should be 'tpe'"),
        (["--optimizers", "{optuna: "], "--optimizers"),
        (["--plot", "/nowhere/a.svg"], "no folder /nowhere"),
        (["--budget-calls", ""], "--budget-calls 200,400"),
    ],
)
def test_wrong_words_are_named(flags: list[str], message: str) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", "from workbench.cli import main; main()", "plugin", "bench", *flags],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and message in done.stderr


def test_the_worlds_of_structure_have_one_best_and_differ_by_seed() -> None:
    tables = [[topology.score_structure(s, seed) for s in topology.list_structures()] for seed in range(5)]
    for found in tables:
        assert len(found) == 256 and max(found) == pytest.approx(WORLDS["topology"].best)
        assert min(found) == pytest.approx(topology.WORST)
        assert 1 <= sum(v >= 0.95 * topology.BEST for v in found) <= 12, "hard to hit by chance"
    assert len({f.index(max(f)) for f in tables}) > 1


@pytest.mark.slow
def test_the_truth_of_a_structure_is_what_the_simulation_shows(tmp_path: Path) -> None:
    """For drawn structures: the table against the share of right answers, by the real runtime."""
    from workbench.spec import DomainSpec
    from workbench.study import RandomTrial
    from workbench.task import Space

    world = WORLDS["topology"].planted(3)
    start = Workflow({"nodes": {n: node_tree(raw) for n, raw in world.nodes.items()}}, tmp_path)
    space = Space({a: DomainSpec.model_validate(d) for a, d in world.search.items()})
    rows, seen = [{"text": f"q topic1 {c}: a {c}-thing"} for c in "abcd"], set()
    for seed in range(6):
        made = start.patched(space.suggest(RandomTrial(random.Random(seed)), start))
        truth = compute_accuracy(world, made, seed)
        seen.add(truth)
        assert measure_accuracy(world, made, rows, repeats=100) == pytest.approx(truth, abs=0.09)
    assert len(seen) > 3 and max(seen) <= world.best
    wrapped = start.patched({"nodes.sort": {"kind": "ensemble", "of": start.nodes["sort"], "samples": 3}})
    assert world.truth(wrapped) is None and 0.1 < compute_accuracy(world, wrapped, 0) < 1.0


@pytest.mark.slow
def test_random_search_finds_better_structures_with_more_calls() -> None:
    few, many = (
        [run_world(WORLDS["topology"], "random", calls=c, seed=s).accuracy for s in range(3)] for c in (900, 4000)
    )
    assert sum(many) > sum(few) and max(many) <= topology.BEST


def start_of(name: str, folder: Path, seed: int = 0) -> tuple[Any, Workflow]:
    world = WORLDS[name].planted(seed)
    tree = {n: node_tree(raw) for n, raw in world.nodes.items()}
    return world, Workflow({"nodes": tree}, folder)


def test_the_best_functions_are_a_right_one_for_each_topic(tmp_path: Path) -> None:
    world, start = start_of("functions", tmp_path)
    best = [functions.make_function(t, "right") for t in range(TOPICS)]
    assert (
        functions.score_functions(best) == pytest.approx(world.best)
        and functions.score_functions([]) == functions.NOTHING_CALLED
    )
    assert world.truth(start.patched({"nodes.sort.functions": best})) == pytest.approx(world.best)
    for kind in functions.WORTH:
        other = [functions.make_function(t, kind) for t in range(TOPICS)]
        here = functions.score_functions([*other, *best])
        assert here == pytest.approx(functions.WORTH[kind]), kind
        assert here == pytest.approx(world.best) or (kind not in ("right", "lying") and here < world.best)
    assert functions.score_functions([*best, functions.make_function(0, "meddling")]) == pytest.approx(world.best), (
        "it is never called"
    )
    assert world.truth(start.patched({"nodes.sort.functions": best, "nodes.sort.max_steps": 3})) is None
    assert functions.score_functions([{**best[0], "source": "def f(text): return 1"}]) is None


@pytest.mark.slow
@needs_sandbox
def test_the_truth_of_functions_is_what_the_simulation_shows(tmp_path: Path) -> None:
    """In the real sandbox, one topic of each kind of function; the share of right answers against the formula."""
    world, start = start_of("functions", tmp_path)
    shown = ["right", "wrong", "memorised", "slow", "right"]
    made = start.patched({"nodes.sort.functions": [functions.make_function(t, kind) for t, kind in enumerate(shown)]})
    rows = [{"text": f"q topic{t} {'abcd'[t % 4]}: a {'abcd'[t % 4]}-thing"} for t in range(TOPICS)]
    assert measure_accuracy(world, made, rows, repeats=24) == pytest.approx(compute_accuracy(world, made, 0), abs=0.09)


@pytest.mark.slow
@needs_sandbox
def test_functions_that_fail_their_own_test_cost_no_call_and_the_rest_helps(tmp_path: Path) -> None:
    made, drawn = (run_world(WORLDS["functions"], o, calls=700, seed=0) for o in ("forge", "random"))
    assert made.error is drawn.error is None and made.best == 0.9 and made.proposer["calls"] > 3
    assert made.accuracy > drawn.accuracy + 0.1, (made, drawn)


def test_the_proposer_of_functions_edits_by_what_it_sees() -> None:
    def edits(functions_now: str, results: str) -> list[dict[str, Any]]:
        text = f'{{"action": "add" | "revise"}}\nThe functions now:\n{functions_now}\n{results}'
        return [json.loads(answer) for answer in ask(text, "functions", 60)]

    row = '- score 0.00; task: {"text": "x topic3 word3: a b-thing", "label": "b", "topic": 3}; answer: {"label": "a"}'
    assert {(e["action"], e["name"]) for e in edits("none", row)} >= {("add", "topic3_label")}
    assert edits("none", row.replace("0.00", "1.00"))[0] == {"action": "terminate"}
    here = "### topic3_label: the label of a question on topic3\ndef topic3_label(text): ..."
    called = row + '; called topic3_label({"text": "x topic3 word3"}): '
    assert {e["action"] for e in edits(here, called + "a")} == {"revise"}, "it misled"
    assert {e["action"] for e in edits(here, called + "b")} == {"terminate"}, "the agent's own slip"
    assert {e["action"] for e in edits(here, row)} == {"terminate"}, "the function is new"
    meddler = edits("### any_topic: x\ndef any_topic(text): ...", row + '; called any_topic({"text": "x"}): it depends')
    assert meddler[0] == {"action": "remove", "name": "any_topic"}


def test_the_best_route_is_the_best_of_all_and_differs_by_seed() -> None:
    """The table of costs against trying all routes of three kinds."""
    for seed in range(4):
        best = routing.find_best_route(seed)
        assert routing.score_route(best, seed) == pytest.approx(WORLDS["routing"].best)
        most, reached = routing.find_ceiling(seed)
        cheap = routing.find_best_route(seed, most)
        assert routing.compute_cost(cheap) <= most + 1e-12 and routing.score_route(cheap, seed) == reached < 0.9
        assert routing.score_route(dict.fromkeys(routing.KINDS, routing.MODELS[0]), seed) <= reached
        draw = random.Random(seed)
        for _ in range(3000):
            drawn = {k: draw.choice(routing.MODELS) if draw.random() < 0.4 else cheap[k] for k in routing.KINDS}
            assert routing.compute_cost(drawn) > most + 1e-12 or routing.score_route(drawn, seed) <= reached + 1e-12
    assert len({tuple(routing.find_best_route(seed).values()) for seed in range(5)}) == 5


def test_the_truth_of_a_route_is_what_the_simulation_shows(tmp_path: Path) -> None:
    world, start = start_of("routing", tmp_path, 3)
    rows: Any = [world.row({"text": f"q topic1: a {'abcd'[i % 4]}-thing"}, i) for i in range(8)]
    assert {row["kind"] for row in rows} == set(routing.KINDS)
    for route in (routing.find_best_route(3), {k: routing.MODELS[i % 4] for i, k in enumerate(routing.KINDS)}):
        made = start.patched({f"nodes.sort.cases.{kind}.lm": model for kind, model in route.items()})
        assert routing.read_route(made) == route and compute_accuracy(world, made, 0) == routing.score_route(route, 3)
        assert measure_accuracy(world, made, rows, repeats=60) == pytest.approx(routing.score_route(route, 3), abs=0.07)
    assert routing.read_route(start.patched({"nodes.sort.cases.law.samples": 3})) is None


@pytest.mark.slow
def test_a_ceiling_holds_and_costs_accuracy(tmp_path: Path) -> None:
    """Without the ceiling the winner of the same seed is dearer; with it the best that can be had is told."""
    optimizer = {"optuna": {"trials": 12}}
    free, tight = (run_world(WORLDS[w], optimizer, calls=400, seed=1) for w in ("routing", "routing_ceiling"))
    assert free.best == 0.9 and tight.best == routing.find_ceiling(1)[1] < 0.9
    assert tight.accuracy <= tight.best + 1e-9 and tight.accuracy > 0.4


def test_what_measured_nothing_is_marked_in_table_json_and_plot(tmp_path: Path) -> None:
    """`grpo` finds no weights in a simulated model: the baseline's figures would pass for its own."""
    pytest.importorskip("matplotlib")
    flags = [
        "plugin",
        "bench",
        "--world",
        "null",
        "--optimizers",
        "grpo",
        "--budget-calls",
        "200",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "kept.jsonl"),
    ]
    table = CliRunner().invoke(cli, [*flags, "--plot", str(tmp_path / "plot.svg")])
    (line,) = [line for line in table.stdout.splitlines() if line.startswith("grpo")]
    assert line.endswith("nothing was measured") and "0." not in line
    assert "; its last event: nothing to train: the weights of openai/simulated are not local." in table.stdout
    results = json.loads(CliRunner().invoke(cli, [*flags, "--json"]).stdout)["results"]
    assert results["grpo"]["measured"] == 0 and results["grpo"]["score"] is results["grpo"]["regret"] is None
    assert "vs_random" not in results["grpo"] and results["random"]["measured"] == 2
    assert "grpo (nothing measured: null 200)" in (tmp_path / "plot.svg").read_text()
    assert "grpo (nothing measured" not in table.stdout


def test_a_row_says_how_many_of_its_runs_measured_anything() -> None:
    from workbench_bench.commands import _figures, _row
    from workbench_bench.run_world import Result

    runs = [Result(0.2, 100, False, untried="why"), Result(0.9, 100, False)]
    row = _row("rules", "optuna", 400, runs, runs)
    assert (row["measured"], row["untried"]) == (1, ["why"]) and "(1 of 2 runs measured)" in _figures(row)
    assert row["score"] == {"mean": 0.9, "ci95": [0.0, 1.0]}, (
        "of what was measured; of a single run no interval is known"
    )
    good, bad = [Result(0.5, 100, False) for _ in range(3)], [Result(0.0, 0, False, "it broke") for _ in range(3)]
    assert "vs_random" not in _row("rules", "optuna", 400, good, bad), "a random search that broke is no reference"
    mixed = _row("rules", "optuna", 400, good, [*good[:2], bad[0]])
    assert mixed["vs_random"]["diff"] == 0.0


def test_the_least_budget_is_what_the_help_and_the_refusal_name() -> None:
    from workbench_bench.sizes import MIN_BUDGET, PROOF, ROWS

    assert (2 * ROWS["test"], 2 * ROWS["test"] + ROWS["val"]) == (PROOF, MIN_BUDGET)
    shown = " ".join(CliRunner().invoke(cli, ["plugin", "bench", "--help"]).output.split())
    assert f"proof ({PROOF}) and baseline ({ROWS['val']}) included" in shown
    at_least = run_world(WORLDS["null"], "random", calls=MIN_BUDGET, seed=0)
    assert at_least.error is None and at_least.calls <= MIN_BUDGET
