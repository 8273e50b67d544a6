"""The two sides of a sealed row: their order, what the second one had more of, and whether the change was sent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant

from workbench.lm import Request, Response
from workbench.proof import Report, order_sides
from workbench.proof.sides import Pair, check_sent, describe_order, explained_by_order, find_order_effects
from workbench.run import Options, optimize, resume
from workbench.store import Store
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace, Workflow

SPACE = {"nodes.sort.instructions": ["Plain.", "Better."]}


def test_the_order_is_random_by_row_and_the_same_each_time() -> None:
    rows = [Example(str(i), {}) for i in range(400)]
    orders = [order_sides(3, row, ["a", "b"]) for row in rows]
    assert orders == [order_sides(3, row, ["a", "b"]) for row in rows]
    assert orders != [order_sides(4, row, ["a", "b"]) for row in rows]
    assert 160 < sum(order == ["b", "a"] for order in orders) < 240
    assert {tuple(order_sides(0, row, ["a", "b", "c"])) for row in rows} == {
        (x, y, z) for x in "abc" for y in "abc" for z in "abc" if len({x, y, z}) == 3
    }
    assert order_sides(0, rows[0], ["a", "a"]) == ["a"]


def pairs_of(first: list[float], second: list[float], **costs: list[float]) -> list[Pair]:
    """Pairs in which the sides take turns at being first: on even rows the baseline is."""
    made = []
    for i, (x, y) in enumerate(zip(first, second, strict=True)):
        early, late = ({name: of[k] for name, of in costs.items()} for k in (0, 1))
        one, two = Result(Example(str(i), {}), x, turn=1, **early), Result(Example(str(i), {}), y, turn=2, **late)
        made.append((one, two) if i % 2 == 0 else (two, one))
    return made


def test_an_order_effect_is_found_whichever_side_had_the_second_turn() -> None:
    found = find_order_effects(pairs_of([0.0] * 30 + [1.0] * 10, [1.0] * 40, seconds=[0.030, 0.010]))
    assert [effect.objective for effect in found] == ["score", "latency"]
    assert found[0].diff == pytest.approx(0.75) and (found[0].more, found[0].less, found[0].n) == (30, 0, 40)
    assert found[1].diff == pytest.approx(-0.02)
    line = describe_order(found)
    assert "score +0.75 (more on 30 and less on 0 of 40 rows" in line and "state is carried over" in line
    assert find_order_effects(pairs_of([0.0, 1.0] * 20, [1.0, 0.0] * 20, tokens=[5, 5])) == []
    assert find_order_effects([]) == [] and describe_order([]) == ""
    slower = describe_order(found[1:])
    assert "other load" in slower and "state is" not in slower, "seconds alone say nothing about state"
    assert find_order_effects(pairs_of([1.0] * 40, [1.0] * 40, seconds=[1e-4, 2e-4])) == [], "too small to matter"


def ran(row: int, keys: str, score: float, node: str = "agent") -> Result:
    """A result whose node made the requests with these keys."""
    calls = [CallRecord((), Response("x", "stop", 1, 1, 0.0), "task", "m", False, 0.0, key=key) for key in keys]
    return Result(
        Example(str(row), {}),
        score,
        seconds=0.1 * row + len(keys),
        trace=Trace(str(row), [Span(node, "External", {}, calls=calls)]),
    )


def workflows(tmp_path: Path, changed: dict[str, Any], kind: str = "external") -> tuple[Workflow, Workflow]:
    nodes = {
        "external": {"agent": {"kind": "external", "signature": "text -> label", "command": ["true"]}},
        "predict": {"agent": {"kind": "predict", "signature": "text -> label", "instructions": "Plain."}},
    }
    base = Workflow({"nodes": nodes[kind]}, tmp_path)
    node = nodes[kind]["agent"] | changed
    return base, Workflow({"nodes": {"agent": node}}, tmp_path)


def test_a_change_counts_where_a_request_carried_it(tmp_path: Path) -> None:
    base, winner = workflows(tmp_path, {"instructions": "Other."})
    silent = [(ran(i, "a", 0.0), ran(i, "", 1.0)) for i in range(9)]
    assert check_sent(base, winner, silent)[0] == [False] * 9
    assert "the change was sent in 0 of the 9 test rows" in str(check_sent(base, winner, silent)[1])
    same = [(ran(i, "ab", 0.0), ran(i, "a", 1.0)) for i in range(9)]
    assert check_sent(base, winner, same)[1] is not None, "the baseline's requests do not carry it"
    carried = [(ran(i, "a", 0.0), ran(i, "b", 1.0)) for i in range(9)]
    assert check_sent(base, winner, carried) == ([True] * 9, None)
    assert check_sent(base, winner, [*carried, *silent[:8]])[1] is None, "on most rows that differ it was"
    assert check_sent(base, winner, [*carried[:4], *silent[:5]])[1] is not None
    equal = [(ran(i, "a", 1.0), ran(i, "a", 1.0)) for i in range(9)]
    assert check_sent(base, winner, [*carried[:2], *equal])[1] is None, "rows that a part of it answers stay equal"


def test_what_our_own_nodes_do_otherwise_needs_no_request(tmp_path: Path) -> None:
    """A changed vote, threshold or function acts without one."""
    base, winner = workflows(tmp_path, {"instructions": "Other."}, "predict")
    assert check_sent(base, winner, [(ran(0, "a", 0.0), ran(0, "", 1.0))]) == ([True], None)


class Remembers(PlantedLM):
    """Right about whatever it was asked before, whatever the wording."""

    def __init__(self) -> None:
        super().__init__(lambda r: 1.0 if str(r.messages[-1]["content"]) in self.seen else 0.4)
        self.seen = set[str]()

    async def complete(self, request: Request) -> Response:
        answer = await super().complete(request)
        self.seen.add(str(request.messages[-1]["content"]))
        return answer


def test_what_remembers_shows_no_gain_and_its_effect_is_told(tmp_path: Path) -> None:
    """The baseline ran first on each row: a cache showed +0.6 for a change that does nothing."""
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=900, rows=(20, 24, 80), search=SPACE)
    options, lm = Options(out=str(tmp_path / "o.yaml")), Remembers()
    report = optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=lm, options=options)
    assert report.changes and report.best["val"] == 1.0 and not report.proved
    assert report.order_effects[0].objective == "score" and report.order_effects[0].diff > 0.4
    assert any(line.startswith("Order: the side that ran second on a row had score +0.") for line in report.lines())
    assert report.as_dict()["order"][0]["n"] == 80

    again = resume("last", database=tmp_path / "two.db", pool=Remembers(), options=options)
    assert again.order_effects == report.order_effects, "a resumed run keeps the order"
    store = Store(tmp_path / "two.db")
    turns = [json.loads(row["cost"])["turn"] for row in store.rows("select cost from results r join evaluations e on "
             "e.id = r.evaluation_id where e.split = 'test' and e.candidate = ?", report.winner.hash)]  # fmt: skip
    store.close()
    assert {*turns} == {1, 2} and 20 < turns.count(1) < 60, "it is stored with each row"


NOTEBOOK = """
import json, os, sys, urllib.request
from pathlib import Path
row, notes = json.load(sys.stdin), Path({notes!r})
if row["text"] in (notes.read_text().splitlines() if notes.exists() else []):
    print(row["text"].split("-thing")[0][-1])
    sys.exit()
with notes.open("a") as file:
    file.write(row["text"] + "\\n")
asked = {{"model": "m", "temperature": 0, "messages": [
    {{"role": "system", "content": "Plain."}}, {{"role": "user", "content": "text: " + row["text"]}}]}}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(asked).encode(),
    {{"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}})
with urllib.request.urlopen(request) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
"""


@pytest.mark.slow
def test_an_agent_with_a_notebook_shows_no_gain(tmp_path: Path) -> None:
    """evidence, finding 1: +0.775 was shown for a change that was not sent once."""
    plant(tmp_path, lambda r: 0.4, {"random": {"trials": 1}}, calls=900, rows=(8, 10, 40))
    (tmp_path / "agent.py").write_text(NOTEBOOK.format(notes=str(tmp_path.with_name(f"{tmp_path.name}-notes.txt"))))
    spec = json.loads((tmp_path / "workflow.yaml").read_text())
    spec["nodes"] = {"agent": {"external": "text -> label", "command": [sys.executable, "agent.py"], "calls": 2}}
    spec["search"] = {"nodes.agent.instructions": ["", "Answer well."]}
    (tmp_path / "workflow.yaml").write_text(json.dumps(spec))
    report: Report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=PlantedLM(lambda r: 0.4),
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.changes and not report.proved and report.order_effects
    assert any("the change was sent in" in line for line in report.headline())


def test_what_the_order_explains_is_no_gain() -> None:
    """Eight rows, and by chance the winner ran second on seven of them."""
    made = pairs_of([0.0] * 8, [1.0] * 8)
    lucky = [pair if pair[1].turn == 2 else pair[::-1] for pair in made]
    lucky[0] = lucky[0][::-1]  # type: ignore[assignment]
    effects = find_order_effects(lucky)
    assert effects[0].diff == 1.0 and explained_by_order(effects, "score", lucky) == pytest.approx(6 / 8)
    assert explained_by_order(effects, "tokens", lucky) == 0 == explained_by_order([], "score", lucky)


@pytest.mark.slow
def test_few_rows_and_a_large_effect_show_no_gain_for_any_seed(tmp_path: Path) -> None:
    for seed in range(40):
        folder = tmp_path / str(seed)
        plant(folder, lambda r: 0.5, {"random": {"trials": 1}}, calls=900, rows=(8, 24, 9), search=SPACE, seed=seed)
        options = Options(out=str(folder / "o.yaml"))
        report = optimize(folder / "workflow.yaml", database=folder / "two.db", pool=Remembers(), options=options)
        assert not report.proved, seed
