"""mcts: the rules that it is made of, and planted worlds of structure in which it needs fewer evaluations than
random."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from tests.helpers.planted import evaluations
from tests.helpers.scripted import Script, make_workflow

from workbench.kit.edits import Edit, edit_classes
from workbench.kit.proposer import read_objects
from workbench.kit.tree_search import softmix
from workbench.lm import Request
from workbench.proof import Report
from workbench.run import Options, optimize
from workbench.spec import DomainSpec
from workbench.store import Store
from workbench.task import Space
from workbench_bench import topology
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS
from workbench_mcts.design import Design, Genome, covering_array
from workbench_mcts.features import Features, features
from workbench_mcts.search import Convergence
from workbench_mcts.surrogate import GaussianProcess, Label, Surrogate, Trees, Uninformed

PLACES = {name: list(words) for name, words in topology._PLACES.items()}


# The rules


def test_the_golden_vector_of_aflow() -> None:
    """From a public log of AFlow (issue 22): alpha 0.2, lambda 0.3, and our defaults are these."""
    from workbench_mcts.optimizer import MCTS

    made = MCTS()
    assert softmix([0.69760, 0.12431], mix=made.mix, alpha=made.alpha) == pytest.approx([0.84999, 0.15001], abs=1e-5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 5), st.floats(-3, 3))
@settings(max_examples=60, deadline=None)
def test_soft_mixed_probabilities(scores: list[float], mix: float, alpha: float, shift: float) -> None:
    found = softmix(scores, mix=mix, alpha=alpha)
    assert math.fsum(found) == pytest.approx(1) and min(found) >= mix / len(scores) - 1e-12
    assert found == pytest.approx(softmix([s + shift for s in scores], mix=mix, alpha=alpha), abs=1e-6)
    assert [found[i] for i in sorted(range(len(scores)), key=lambda i: scores[i])] == sorted(found)


@given(st.lists(st.integers(1, 5), min_size=0, max_size=6), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_covering_array_covers_all_pairs(sizes: list[int], seed: int) -> None:
    options = {f"n{i}": [f"v{k}" for k in range(size)] for i, size in enumerate(sizes)}
    rows = list(covering_array(options, random.Random(seed)))
    several = {n: v for n, v in options.items() if len(v) > 1}
    for one, two in itertools.combinations(several, 2):
        seen = {(row[one], row[two]) for row in rows}
        assert seen == set(itertools.product(options[one], options[two]))
    if len(several) > 1:
        sizes = sorted((len(v) for v in several.values()), reverse=True)
        assert len(rows) <= 3 * sizes[0] * sizes[1], "far fewer than all combinations"
        assert rows == list(covering_array(options, random.Random(seed)))


def rounds_until(scores: Sequence[Sequence[float]], patience: int, top: int = 3, z: float = 0.0) -> int | None:
    """The round in which the convergence fires, counted from 1."""
    ended, seen = Convergence(patience, top, z), list[tuple[float, int]]()
    for number, new in enumerate(scores, 1):
        seen += [(s, 40) for s in new]
        if ended.tell(seen):
            return number
    return None


def test_convergence_fires_when_the_best_stay_the_same() -> None:
    flat = [[0.1]] * 30
    rising = [[0.1 + i / 50] for i in range(30)]
    assert rounds_until([[0.5, 0.6, 0.7], *flat], patience=5) == 6
    assert rounds_until(rising, patience=5) is None
    # A new third best is a change of the mean of three; a new fourth best is none.
    late = [[0.5, 0.6, 0.7], [0.1], [0.1], [0.55], *flat]
    assert rounds_until(late, patience=5) == 9
    assert rounds_until([[0.5, 0.6, 0.7], [0.1], [0.1], [0.4], *flat], patience=5) == 6
    # Within two standard errors a small rise is none.
    slow = [[0.5 + i / 1000] for i in range(30)]
    assert rounds_until(slow, patience=5) is None and rounds_until(slow, patience=5, z=2.0) == 6


@given(st.integers(1, 6), st.integers(1, 5), st.floats(0, 100))
@settings(max_examples=30, deadline=None)
def test_convergence_never_fires_before_four_rounds(patience: int, top: int, z: float) -> None:
    found = rounds_until([[0.5]] * 20, patience, top, z)
    assert found == max(patience + 1, 4)


# Surrogates


def labels(seed: int, count: int, rows: int = 40) -> list[Label]:
    """Drawn structures of a planted world with the noise of a mean of `rows` answers."""
    rng = random.Random(f"labels:{seed}")
    found = []
    for structure in rng.sample(topology.structures(), count):
        p = topology.worth(structure, seed)
        found.append(Label(Features(dict(structure), {}), sum(rng.random() < p for _ in range(rows)) / rows, rows))
    return found


@pytest.mark.parametrize("kind", ["gp", "trees"])
def test_thirty_labels_rank_all_256_structures(kind: str) -> None:
    """Rank correlation with the planted table, over several worlds."""
    found = []
    for seed in range(10 if kind == "gp" else 4):
        model: Surrogate = GaussianProcess() if kind == "gp" else Trees(random.Random(seed))
        model.fit(labels(seed, 30))
        means, spreads = model.predict([Features(s, {}) for s in topology.structures()])
        assert (spreads >= 0).all()
        found.append(spearmanr(means, [topology.worth(s, seed) for s in topology.structures()]).statistic)
    assert sum(found) / len(found) > 0.65 and min(found) > 0.5, found


def test_a_gaussian_process_is_surer_where_it_has_looked() -> None:
    known = labels(1, 40, rows=1000)
    model = GaussianProcess()
    model.fit(known)
    there = model.predict([label.features for label in known])[1].mean()
    seen = {tuple(label.features.labels.values()) for label in known}
    others = [Features(s, {}) for s in topology.structures() if tuple(s.values()) not in seen]
    assert there < 0.5 * model.predict(others)[1].mean()


def test_a_gaussian_process_learns_from_numbers_where_there_are_no_labels() -> None:
    model = GaussianProcess()
    model.fit([Label(Features({}, {"nodes": float(n)}), 0.2 + 0.1 * n, 400) for n in (1, 2, 4, 6)])
    means, _ = model.predict([Features({}, {"nodes": 1.0}), Features({}, {"nodes": 5.0})])
    assert means[1] > means[0] + 0.2


def test_a_random_surrogate_is_a_uniform_choice() -> None:
    """Chi-squared over which of ten proposals comes first."""
    from scipy.stats import chisquare

    model, counts = Uninformed(random.Random(3)), [0] * 10
    for _ in range(2000):
        means, _ = model.predict([Features({}, {})] * 10)
        counts[int(means.argmax())] += 1
    assert chisquare(counts).pvalue > 0.001


# Candidates


def design(rng_seed: int = 0, nodes: dict[str, Any] | None = None, **search: Any) -> Design:
    domains = {k.replace("__", "."): DomainSpec.model_validate(v) for k, v in search.items()}
    start = make_workflow(nodes or {"n": {"predict": "q -> a"}, "m": {"predict": "a -> b"}}, Path("."))
    return Design(Space(domains) if domains else None, start, random.Random(rng_seed))


def edit(name: str, **arguments: Any) -> Edit:
    return edit_classes()[name](**arguments)


def test_candidates_that_do_the_same_have_one_key() -> None:
    made = design(nodes__n__samples={"int": [1, 3]})
    start = made.start
    wrapped = edit("ensemble", node="nodes.n")
    there_and_back = made.made(Genome({}, (wrapped, edit("unwrap", node="nodes.n"))))
    twice = made.made(Genome({"nodes.n.samples": 1}, ()))
    # The temperature that the ensemble brought is still there: that is another workflow at samples > 1 alone.
    assert twice.key == made.root.key and twice.workflow.hash != start.hash, "samples: 1 is the default, written out"
    assert there_and_back.key != made.root.key
    named = [edit("insert", node="nodes.m", field=f, instructions="Plan.") for f in ("plan", "plan")]
    one, two = (made.made(Genome({"nodes.n.samples": 2}, (e,))) for e in named)
    assert one.key == two.key != made.root.key


def test_mutations_change_one_thing_each() -> None:
    made = design(
        nodes__n__samples={"int": [1, 3]},
        nodes__n__reasoning={"choice": [True, False]},
        nodes__n__decoding__temperature={"float": [0.0, 1.0]},
    )
    genome = Genome(made.root.genome.picks, (edit("refine", node="nodes.n"),))
    found = [g for g, _ in made.mutations(genome)]
    assert len(found) == 2 + 1 + 1 + 1
    for other in found:
        changed = [n for n in {*genome.picks, *other.picks} if other.picks.get(n) != genome.picks.get(n)]
        assert len(changed) + (other.edits != genome.edits) == 1


def test_choices_that_other_choices_open_are_known() -> None:
    made = design(
        nodes__n={"any_of": {"team": {"ensemble": {"predict": "q -> a"}}}},
        nodes__n__samples={"choice": [2, 3], "when": {"nodes.n": "team"}},
    )
    assert list(made.options) == ["nodes.n", "nodes.n.samples"] and list(made.root.genome.picks) == ["nodes.n"]


def test_the_root_describes_the_start_also_outside_the_space() -> None:
    """The start has samples and a temperature that are in no domain: they stay until they are picked."""
    nodes = {"n": {"predict": "q -> a", "samples": 9, "decoding": {"temperature": 1.5}}, "m": {"predict": "a -> b"}}
    for seed in range(5):
        made = design(
            seed,
            nodes,
            nodes__n__samples={"int": [1, 3]},
            nodes__n__reasoning={"choice": [True, False]},
            nodes__n__decoding__temperature={"float": [0.0, 1.0]},
        )
        assert made.root.genome.picks == {"nodes.n.reasoning": False} and made.root.workflow is made.start
        assert made.made(made.root.genome).key == made.root.key
        step = made.made(Genome(made.root.genome.picks, (edit("refine", node="nodes.m"),))).workflow
        assert (step.get("nodes.n.samples"), step.get("nodes.n.decoding.temperature")) == (9, 1.5)
        steps = [made.made(genome) for genome, _ in made.mutations(made.root.genome)]
        assert sorted(c.workflow.get("nodes.n.samples") for c in steps) == [1, 2, 3, 9, 9]
        assert sum(0 <= c.workflow.get("nodes.n.decoding.temperature") <= 1 for c in steps) == 1
        drawn = next(c for c in steps if c.workflow.get("nodes.n.decoding.temperature") <= 1)
        again = [made.made(g).workflow for g, note in made.mutations(drawn.genome) if note.startswith("drew")]
        assert [0 <= w.get("nodes.n.decoding.temperature") <= 1 for w in again] == [True]


def test_features_tell_structures_apart() -> None:
    made = design(nodes__n={"any_of": {"team": {"ensemble": {"predict": "q -> a"}, "samples": 5}}})
    team = made.made(Genome({"nodes.n": "team"}))
    here, there = features(made.root), features(team)
    assert here.labels == {"nodes.n": "as_written"} and there.labels == {"nodes.n": "team"}
    assert (here.numbers["calls"], there.numbers["calls"]) == (2, 6) and there.numbers["kind Ensemble"] == 1


def test_objects_are_found_in_any_words() -> None:
    said = 'I would {think}: {"edit": "refine", "node": "nodes.n"} or ```json\n{"pick": "x", "value": {"a": [1]}}\n``` {"cut": '  # noqa: E501
    assert list(read_objects('{"a": 1' + "0" * 5000 + '} {"b": NaN} {"c": 1}')) == [{"c": 1}]
    assert list(read_objects(said)) == [{"edit": "refine", "node": "nodes.n"}, {"pick": "x", "value": {"a": [1]}}]


# Runs: a planted problem in which a step before the answer and reasons pay. No model: a function answers.

LABELS = ("a", "b", "c", "d")
ASKED = "You improve the structure"


def answers(request: Request) -> str:
    """A label, right by chance: 30%, 30 points more with a plan in the question, 20 more where reasons are asked
    for."""
    system, question = (str(request.messages[i]["content"]) for i in (0, -1))
    if "plan" in system.split("\n")[0]:
        return "think first"
    skill = 0.3 + 0.3 * ("plan: think first" in question) + 0.2 * ("reasoning:" in system + question)
    right = LABELS.index(question.split("-thing")[0][-1])
    draw = random.Random(hashlib.sha256(request.key("planted").encode()).digest())
    label = LABELS[right if draw.random() < skill else (right + draw.randrange(1, 4)) % 4]
    return f"reasoning: so\nlabel: {label}" if "reasoning:" in system + question else label


def solve(
    folder: Path,
    parameters: dict[str, Any],
    *,
    calls: int = 4000,
    seed: int = 0,
    said: Sequence[str] = (),
    val: int = 40,
    **spec: Any,
) -> tuple[Report, Script]:
    """said: what the proposer answers, one after the other; the last one again and again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 12), ("val", val), ("test", 40)):
        rows = [{"text": f"{name}{seed} {i}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "planted",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
                "metric": "exact_match(label)",
                "nodes": {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Label it."}},
                "optimize": [{"mcts": parameters}],
                "budget": {"calls": calls},
                "seed": seed,
                **spec,
            }
        )
    )
    replies = iter(said)
    last = [""]

    def say(request: Request) -> str:
        if ASKED in str(request.messages[0]["content"]):
            last[0] = next(replies, last[0])
            return last[0]
        return answers(request)

    script = Script(say)
    report = optimize(file, database=folder / "run.db", pool=script, options=Options(out=str(folder / "out.yaml")))
    assert report.status in ("finished", "budget"), report.error
    return report, script


def told(folder: Path) -> dict[str, Any]:
    """What the search reported of itself."""
    store = Store(folder / "run.db")
    try:
        return json.loads(list(store.rows("select data from events where kind = 'mcts'"))[-1]["data"])
    finally:
        store.close()


def asked(script: Script) -> list[str]:
    return [t for r in script.requests if ASKED in (t := str(r.messages[0]["content"]))]


def test_edits_alone_find_the_structure_that_pays(tmp_path: Path) -> None:
    """No language model proposes, and there is no design space: edits by operators, ranked by the surrogate."""
    cheap = {"rounds": 16, "edits": ["insert", "remove", "reason", "refine", "rewire"], "patience": 16}
    for seed in range(2):
        report, script = solve(tmp_path / str(seed), cheap, seed=seed)
        plan = "plan" in report.winner.get("nodes.sort.signature", "") or "plan" in str(report.winner.nodes)
        assert plan and report.gain_shown and not asked(script), seed
        found = told(tmp_path / str(seed))
        assert found["evaluated"] <= 16 and found["ranked"] > found["evaluated"] and 0.5 < found["saved"] < 1
        rows = evaluations(tmp_path / str(seed))
        assert len({r["candidate"] for r in rows}) == len(rows) == 1 + found["evaluated"]


def test_broken_proposals_cost_no_evaluation_and_become_experience(tmp_path: Path) -> None:
    """Of eight answers four are no workflow; each round asks twice at most before operators have to do."""
    insert = '{"edit": "insert", "node": "nodes.sort", "field": "plan", "instructions": "Write a plan."}'
    said = [
        "no JSON here",
        '{"edit": "remove", "node": "nodes.sort"}',
        '{"edit": "insrt", "node": "nodes.sort"}',
        f"Well: {insert}",
        insert,
        '{"pick": "nodes.x", "value": 3}',
        '{"edit": "rewire", "node": "nodes.sort", "field": "label"}',
        '{"edit": "reason", "node": "nodes.sort"}',
    ]
    report, script = solve(tmp_path, {"rounds": 4, "proposals": "lm", "surrogate": "none", "sample": 1}, said=said)
    texts, rows, found = asked(script), evaluations(tmp_path), told(tmp_path)
    assert len(texts) == 8 and found["broken"] >= 4
    assert len(rows) == 1 + found["evaluated"] == 5, "four rounds, four sound candidates"
    assert "refused: no node gives 'label' any more" not in texts[1] and "Tried" not in texts[0]
    assert any("nodes.sort: 0." in t or "-> 0." in t for t in texts[4:]), "what came of an edit is told"
    assert any("refused" in t for t in texts)
    assert all("test0" not in t and "val0" not in t for t in texts), "the proposer sees rows of train alone"
    assert "plan" in str(report.winner.nodes)


def test_a_proposer_brings_in_nothing_that_is_not_on_the_menu(tmp_path: Path) -> None:
    """To load a verifier is to run its module: what a model names is refused before that."""
    tmp_path.joinpath("evil.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef check(label): return 1.0\n"
    )
    evil = '{"edit": "verify", "node": "nodes.sort", "verifier": "python:evil.py:check"}'
    said = [evil, '{"edit": ["insert"], "node": ["nodes.sort"]}', '{"edit": "reason", "node": "nodes.sort"}']
    settings = {"rounds": 2, "proposals": "lm", "surrogate": "none", "sample": 1, "tools": ["python:math.sqrt"]}
    _, script = solve(tmp_path, settings, said=said)
    assert not tmp_path.joinpath("ran").exists() and told(tmp_path)["evaluated"] == 2
    texts = asked(script)
    assert any("refused: verify: python:evil.py:check is not among the verifiers" in t for t in texts[1:])
    assert all("Tools that edits may bring in, no others: python:math.sqrt" in t for t in texts)


def test_it_ends_when_the_best_stay_the_same(tmp_path: Path) -> None:
    """Nothing here changes an answer's chance but by luck; the run ends before its rounds are over."""
    solve(
        tmp_path,
        {"rounds": 200, "patience": 4, "edits": ["insert", "rewire", "split", "merge", "remove", "refine"]},
        calls=20000,
        val=16,
    )
    assert told(tmp_path)["ended"] in ("converged", "exhausted") and told(tmp_path)["evaluated"] < 100


def test_wrong_parameters_are_told(tmp_path: Path) -> None:
    from workbench.errors import SpecError

    with pytest.raises((SpecError, AssertionError), match="there is no edit 'insrt'"):
        solve(tmp_path, {"edits": ["insrt"]})


# Planted worlds of structure


def test_as_many_of_the_nearest_demos_as_allowed_come_first() -> None:
    """One candidate after the start is enough where the nearest examples are all that helps."""
    found = [run_world(WORLDS["retrieval"], {"mcts": {"initial": 1, "rounds": 1}}, calls=400, seed=s) for s in range(3)]
    assert min(r.accuracy for r in found) >= 0.85


SMALL = {"rounds": 20, "initial": 10, "race": False, "edits": []}


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"policy": "uct"}, {"surrogate": "trees"}, {"surrogate": "none"}], ids=str)
def test_every_policy_and_surrogate_gets_better_than_the_start(change: dict[str, Any]) -> None:
    found = run_world(WORLDS["topology"], {"mcts": {**SMALL, **change}}, calls=9000, seed=1)
    start = {name: words[0] for name, words in topology._PLACES.items()}
    assert found.error is None and found.accuracy > topology.worth(start, 1) + 0.05


@pytest.mark.slow
def test_where_nothing_pays_nothing_is_claimed() -> None:
    results = [run_world(WORLDS["null_topology"], {"mcts": SMALL}, calls=6000, seed=s) for s in range(6)]
    assert sum(r.claimed for r in results) <= 1 and {r.accuracy for r in results} == {0.5}, results


@pytest.mark.slow
def test_fewer_evaluations_than_random_search() -> None:
    """Until the incumbent has 95% of the best accuracy, the sum over six worlds. Twenty: the plugin's README."""
    path = Path(__file__).parents[3] / "contrib" / "bench" / "optimizers" / "topology.py"
    spec = importlib.util.spec_from_file_location("topology_bench", path)
    assert spec and spec.loader
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    most = 80
    found = {n: [bench.one(n, s, 40, most)["reached"] or most for s in range(6)] for n in ("random", "mcts")}
    assert sum(found["mcts"]) < 0.8 * sum(found["random"]), found


@pytest.mark.parametrize(("edits", "only"), [({}, True), ({"edits": ["ensemble"]}, False)])
def test_what_search_names_is_all_that_is_changed(edits: dict[str, Any], only: bool, tmp_path: Path) -> None:
    """Unless edits are named, too."""
    from tests.helpers.planted import candidates, plant

    address = "nodes.sort.instructions"
    plant(
        tmp_path,
        lambda r: 0.5,
        {"mcts": {"rounds": 6, "initial": 2, **edits}},
        calls=700,
        search={address: ["Plain.", "One.", "Two.", "Three."]},
    )
    changed = {name for values in candidates(tmp_path) for name in values}
    assert address in changed and (changed == {address}) is only
