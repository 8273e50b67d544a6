"""Runs of `mcts` on planted structures, where it needs fewer evaluations than random search."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import evaluations
from tests.helpers.scripted import Script

from workbench.lm import Request
from workbench.proof import Report
from workbench.run import Options, optimize
from workbench.store import Store
from workbench_bench import topology
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS
from workbench_kit.answers import read_objects
from workbench_mcts import search


def test_objects_are_found_in_any_words() -> None:
    said = 'I would {think}: {"edit": "refine", "node": "nodes.n"} or ```json\n{"pick": "x", "value": {"a": [1]}}\n``` {"cut": '  # noqa: E501
    assert list(read_objects('{"a": 1' + "0" * 5000 + '} {"b": NaN} {"c": 1}')) == [{"c": 1}]
    assert list(read_objects(said)) == [{"edit": "refine", "node": "nodes.n"}, {"pick": "x", "value": {"a": [1]}}]


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


@pytest.mark.slow
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


def test_broken_proposals_cost_no_evaluation_and_become_experience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(search, "SAMPLE", 1)
    report, script = solve(tmp_path, {"rounds": 4, "proposals": "lm", "surrogate": "none"}, said=said, seed=1)
    texts, rows, found = asked(script), evaluations(tmp_path), told(tmp_path)
    assert len(texts) == 8 and found["broken"] >= 4
    assert len(rows) == 1 + found["evaluated"] == 5, "four rounds, four sound candidates"
    assert "refused: no node gives 'label' any more" not in texts[1] and "Tried" not in texts[0]
    assert any("nodes.sort: 0." in t or "-> 0." in t for t in texts[4:]), "what came of an edit is told"
    assert any("refused" in t for t in texts)
    assert all("test0" not in t and "val0" not in t for t in texts), "the proposer sees rows of train alone"
    assert "plan" in str(report.winner.nodes)


def test_a_proposer_brings_in_nothing_that_is_not_on_the_menu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To load a verifier is to run its module: what a model names is refused before that."""
    tmp_path.joinpath("evil.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef check(label): return 1.0\n"
    )
    evil = '{"edit": "verify", "node": "nodes.sort", "verifier": "python:evil.py:check"}'
    said = [evil, '{"edit": ["insert"], "node": ["nodes.sort"]}', '{"edit": "reason", "node": "nodes.sort"}']
    monkeypatch.setattr(search, "SAMPLE", 1)
    settings = {"rounds": 2, "proposals": "lm", "surrogate": "none", "tools": ["python:math.sqrt"]}
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


def test_as_many_of_the_nearest_demos_as_allowed_come_first() -> None:
    """One candidate after the start is enough where the nearest examples are all that helps."""
    found = [run_world(WORLDS["retrieval"], {"mcts": {"initial": 1, "rounds": 1}}, calls=400, seed=s) for s in range(3)]
    assert min(r.accuracy for r in found) >= 0.85


SMALL = {"rounds": 20, "initial": 10, "race": False, "edits": []}


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"policy": "uct"}, {"surrogate": "none"}], ids=str)
def test_every_policy_and_surrogate_gets_better_than_the_start(change: dict[str, Any]) -> None:
    found = run_world(WORLDS["topology"], {"mcts": {**SMALL, **change}}, calls=9000, seed=1)
    start = {name: words[0] for name, words in topology._PLACES.items()}
    assert found.error is None and found.accuracy > topology.score_structure(start, 1) + 0.05


@pytest.mark.long
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
