"""What the pages of `workbench view` show is what the database holds."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from workbench.evaluation import read_rows
from workbench.run import candidates
from workbench.store import ReadOnlyStore, RunRecord, Store, add_run, read_report
from workbench_testing.simulated import HELPFUL, SimulatedLM
from workbench_view.server.access import Access
from workbench_view.server.app import make_app
from workbench_view.server.row import draw_timeline, mark_deciding
from workbench_view.server.site import Site

from .conftest import improve

BASE = "http://localhost:8321"


def text_of(answer: Any) -> str:
    """What a reader sees."""
    assert answer.status_code == 200, answer.text[-500:]
    body = answer.text[answer.text.index("<body>") :]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def links(answer: Any) -> list[str]:
    return [html.unescape(found) for found in re.findall(r'href="([^"#]+)"', answer.text)]


def rows_of(client: TestClient, run: str, **asked: str) -> list[str]:
    """The ids of the rows that the browser of rows lists."""
    answer = client.get(f"/runs/{run}/rows", params=asked)
    assert answer.status_code == 200, answer.text[-500:]
    return [
        parse_qs(urlsplit(html.unescape(link)).query)["row"][0]
        for link in re.findall(r'<td class="main"><a data-row href="([^"]+)">[^<]+</a>', answer.text)
    ]


# Runs


def test_runs_stand_newest_first_with_their_scores(client: TestClient, runs: dict[str, Any]) -> None:
    page = client.get("/")
    shown = re.findall(r'data-row href="/runs/(\w+)"', page.text)
    assert shown == [runs["optimize"], *reversed(runs["cells"]), runs["hostile"], runs["killed"]]
    text, report = text_of(page), runs["report"]
    assert f"{report['best']['test']['score']:.3f} gain {report['gain']['diff']:+.3f}" in text
    assert "nodes.sort.samples=3" in text and "killed" in text


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("kind=eval", {"hostile", "cells"}),
        ("kind=optimize", {"optimize", "killed"}),
        ("status=killed", {"killed"}),
        ("status=running", set[str]()),
        ("text=nothing", set[str]()),
        ("text=SIMUL&kind=optimize", {"optimize", "killed"}),
        ("tag=none", set[str]()),
        ("page=99&kind=optimize", {"optimize", "killed"}),
        ("page=-1&kind=optimize", {"optimize", "killed"}),
    ],
)
def test_runs_are_filtered(client: TestClient, runs: dict[str, Any], query: str, found: set[str]) -> None:
    shown = re.findall(r'data-row href="/runs/(\w+)"', client.get(f"/?{query}").text)
    expected = [run for name in found for run in ([runs[name]] if isinstance(runs[name], str) else runs[name])]
    assert sorted(shown) == sorted(expected)


def test_what_is_filtered_stays_over_the_pages(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db")
    for number in range(120):
        name = "odd" if number % 2 else "even"
        add_run(store, run=f"r{number}", name=name, status="finished", spec="", options="{}", file="x", kind="optimize")
    store.close()
    site = Site(tmp_path / "run.db")
    client = TestClient(make_app(site, Access()), base_url=BASE)
    seen, place = list[str](), "/?text=odd"
    while place:
        page = client.get(place)
        seen += re.findall(r'data-row href="/runs/(\w+)"', page.text)
        found = re.search(r'<a rel="next" href="([^"]+)"', page.text)
        place = html.unescape(found[1]) if found else ""
    site.close()
    assert seen == [f"r{number}" for number in range(119, 0, -2)]


# A run


def test_a_run_that_ended_shows_its_report(client: TestClient, runs: dict[str, Any]) -> None:
    page, report = client.get(f"/runs/{runs['optimize']}"), runs["report"]
    text = text_of(page)
    assert report["lines"][1] in text and HELPFUL in text
    assert f"{report['baseline']['test']['score']:.3f}" in text and f"{report['gain']['smallest_gain']:.3f}" in text
    spent = report["spent"]["by_role"]["task"]
    assert f"task {spent['calls']}" in text and f"${spent['usd'] / spent['calls']:.2g}" in text
    assert "workbench serve" in text and report["workflow"] in text
    for name in re.findall(r"/pictures/(\w+)\.svg", page.text):
        picture = client.get(f"/runs/{runs['optimize']}/pictures/{name}.svg")
        assert picture.status_code == 200 and "<svg" in picture.text and "prefers-color-scheme" in picture.text
    assert {"proof", "progress"} <= {*re.findall(r"/pictures/(\w+)\.svg", page.text)}


def test_rows_that_changed_sides_are_those_of_the_stored_scores(client: TestClient, runs: dict[str, Any]) -> None:
    store = ReadOnlyStore(runs["database"])
    sides = [
        {
            r["example"]: r["score"]
            for r in store.rows(
                "select r.example, r.score from results r join evaluations e on e.id = r.evaluation_id where "
                "e.candidate = ? and e.split = 'test'",
                candidate,
            )
        }
        for candidate in (runs["baseline"], runs["winner"])
    ]
    store.close()
    run, shared = runs["optimize"], sides[0].keys() & sides[1].keys()
    won = {row for row in shared if sides[1][row] > sides[0][row]}
    lost = {row for row in shared if sides[1][row] < sides[0][row]}
    assert won, "or the task taught nothing"
    assert {*rows_of(client, run, side="won", split="test")} == won
    assert {*rows_of(client, run, side="lost", split="test")} == lost
    assert {*rows_of(client, run, side="changed")} == won | lost
    assert f"{len(won)} / {len(lost)}" in text_of(client.get(f"/runs/{run}"))


def test_candidates_have_pages_with_their_diff(client: TestClient, runs: dict[str, Any]) -> None:
    store = ReadOnlyStore(runs["database"])
    found = candidates(store, store.find_run(runs["optimize"])["id"])
    store.close()
    shown = links(client.get(f"/runs/{runs['optimize']}"))
    for one in found:
        place = f"/runs/{runs['optimize']}/candidates/{one['hash']}"
        text = text_of(client.get(place))
        assert place in shown and one["hash"][:8] in text
        assert one["val"] is None or f"{one['val']:.3f}" in text
        for new in one["changes"].values():
            assert not isinstance(new, str) or " ".join(new.split())[:40] in text
    assert client.get(f"/runs/{runs['optimize']}/candidates/{runs['winner'][:8]}").status_code == 404
    against = client.get(f"/runs/{runs['optimize']}/candidates/{runs['winner']}?against=baseline").text
    assert "<ins>" in against


def test_a_run_without_a_report_shows_how_far_it_came(client: TestClient, runs: dict[str, Any]) -> None:
    text = text_of(client.get(f"/runs/{runs['killed']}"))
    assert "killed" in text and f"workbench resume {runs['killed']}" in text and "data-live" not in text
    assert "of 512" in text, "its budget"


def test_a_running_run_is_followed(tmp_path: Path) -> None:
    from workbench.store import Candidates, Evaluations, RunLock

    improve(tmp_path, tmp_path / "run.db")
    store = Store(tmp_path / "run.db")
    row = store.find_run("last")
    store.execute("update runs set status = 'running', report = null, checksum = null where id = ?", row["id"])
    store.execute("update calls set usd = 0.001 where kind = 'lm'")
    site = Site(tmp_path / "run.db")
    client = TestClient(make_app(site, Access()), base_url=BASE)
    place = f"/runs/{row['run']}"
    assert "killed" in text_of(client.get(place)), "nobody holds its lock"
    with RunLock(store, row["run"]):
        assert f'data-live="{place}/live"' in client.get(place).text
        first = client.get(f"{place}/live").text
        assert 'data-status="running"' in first and "<html" not in first
        calls = RunRecord(store, row["id"]).count_calls()
        assert f"${calls / 1000:.2g}" in first
        assert f"{calls} of 512" in first and "events, newest first" in first.lower()
        best = max(c["val"] for c in Candidates(store, row["id"]).read_all() if c["val"] is not None)
        assert f"{best:.3f}" in first
        store.execute("insert into events (run_id, at, kind, data) values (?, '2026-01-01T10:11:12Z', ?, ?)",
                      row["id"], "rate_limited", json.dumps({"lm": "m", "before": 8, "after": 4}))  # fmt: skip
        assert "rate limited: 8 -&gt; 4 at once (m)" in client.get(f"{place}/live").text
    assert Evaluations(store, row["id"]).count_rows() > 0
    assert 'data-status="killed"' in client.get(f"{place}/live").text
    store.close()
    site.close()


def test_a_run_that_failed_says_why(tmp_path: Path) -> None:
    run = improve(tmp_path, tmp_path / "run.db", lm=SimulatedLM(fail=1.0))
    site = Site(tmp_path / "run.db")
    client = TestClient(make_app(site, Access()), base_url=BASE)
    text = text_of(client.get(f"/runs/{run}"))
    assert "simulated server error" in text and f"workbench resume {run}" in text and "failed" in text
    assert "failed" in text_of(client.get("/")) and client.get(f"/runs/{run}/rows").status_code in (200, 404)
    assert client.get(f"/runs/{run}/data").status_code in (200, 404)
    site.close()


def test_an_evaluation_has_a_page(client: TestClient, runs: dict[str, Any]) -> None:
    text = text_of(client.get(f"/runs/{runs['cells'][0]}"))
    assert "val:" in text and "nodes.sort.instructions=Label it." in text and "Per row:" in text


# Rows and traces


def test_a_row_shows_prompts_answers_and_what_they_cost(client: TestClient, runs: dict[str, Any]) -> None:
    run = runs["optimize"]
    example = rows_of(client, run, side="won")[0]
    page = client.get(f"/runs/{run}/row", params={"row": example, "candidate": runs["winner"], "split": "test"})
    text = text_of(page)
    assert HELPFUL in text and "a-thing" in text.replace("b-thing", "a-thing").replace("c-thing", "a-thing").replace(
        "d-thing", "a-thing"
    )
    assert re.search(r"task: \d+ tokens in, 1 out, \$", text) and "the call" in text
    call = next(link for link in links(page) if "/call?" in link)
    assert "tokens in" in text_of(client.get(call)) and HELPFUL in text_of(client.get(call))
    other = next(link for link in links(page) if f"candidate={runs['baseline']}" in link)
    assert HELPFUL not in text_of(client.get(other))
    assert client.get(f"/runs/{run}/row", params={"row": "nobody"}).status_code == 404


def test_the_step_that_decided_stands_out(client: TestClient, runs: dict[str, Any]) -> None:
    if runs["diagnosed"] is None:
        pytest.skip("the winner failed on no row")
    run = runs["optimize"]
    asked = {"row": runs["diagnosed"], "candidate": runs["winner"], "split": "test"}
    page = client.get(f"/runs/{run}/row", params=asked)
    assert '<li class="decided">' in page.text and "the label was wrong" in page.text
    assert rows_of(client, run, decided="sort") == [runs["diagnosed"]]
    other = next(row for row in rows_of(client, run, split="test") if row != runs["diagnosed"])
    assert 'class="decided"' not in client.get(f"/runs/{run}/row", params={**asked, "row": other}).text


def test_a_deciding_step_is_counted_as_attribute_counts() -> None:
    spans = [{"node": "a", "calls": [1, 2]}, {"node": "b", "calls": []}, {"node": "a", "calls": [3]}]
    assert mark_deciding(spans, [{"step": 1, "node": "a"}]) == {0}
    assert mark_deciding(spans, [{"step": 2, "node": "b"}]) == {1}
    assert mark_deciding(spans, [{"step": 3, "node": "a"}]) == {2}
    assert mark_deciding(spans, [{"step": 0, "node": "b"}]) == {1}, "the count leads elsewhere"
    assert mark_deciding(spans, [{"step": None, "node": "a"}]) == set()


def test_steps_fill_the_timeline() -> None:
    drawn = draw_timeline([{"seconds": 1}, {"seconds": 3}])
    assert drawn == {"bars": [{"x": 0.0, "width": 25.0}, {"x": 25.0, "width": 75.0}], "seconds": 4.0}
    assert draw_timeline([])["bars"] == []


def test_rows_are_filtered_by_what_their_traces_hold(client: TestClient, runs: dict[str, Any]) -> None:
    run = runs["optimize"]
    every = rows_of(client, run, split="test")
    assert len(every) == 24 and rows_of(client, run, split="test", node="sort", role="task") == every
    assert rows_of(client, run, split="test", node="nobody") == []
    assert rows_of(client, run, split="test", role="proposer") == []
    assert rows_of(client, run, split="test", text="b-thing") == every[1::4]
    failed = rows_of(client, run, failure="any", split="test")
    assert 0 < len(failed) < 24 and len(rows_of(client, run, split="val")) == 16


def test_the_calls_of_a_run_turn_over(client: TestClient, runs: dict[str, Any]) -> None:
    store = ReadOnlyStore(runs["database"])
    count = RunRecord(store, store.find_run(runs["optimize"])["id"]).count_calls()
    store.close()
    seen, place = list[str](), f"/runs/{runs['optimize']}/calls"
    while place:
        page = client.get(place)
        seen += re.findall(r"/call\?key=(\w+)", page.text)
        found = re.search(r'<a rel="next" href="([^"]+)"', page.text)
        place = html.unescape(found[1]) if found else ""
    assert len(seen) == len({*seen}) == count > 100
    assert "proposer" in text_of(client.get(f"/runs/{runs['optimize']}/calls?role=proposer"))


# Comparisons


def test_two_candidates_are_compared_by_the_paired_test(client: TestClient, runs: dict[str, Any]) -> None:
    from workbench.evaluation import compare_sides, read_side

    run = runs["optimize"]
    page = client.get("/compare", params={"a": f"{run}:baseline", "b": f"{run}:winner"})
    text = text_of(page)
    assert 'class="said"' in page.text, "a row is known by what it asks, not by its id alone"
    store = ReadOnlyStore(runs["database"])
    found = compare_sides([read_side(store, f"{run}:baseline"), read_side(store, f"{run}:winner")])[0]
    store.close()
    assert f"{found.proof.diff:+.3f} [{found.proof.ci95[0]:+.3f}, {found.proof.ci95[1]:+.3f}]" in text
    assert f"{len(found.better)} rows better" in text and HELPFUL in text
    wrong = client.get("/compare", params={"a": run, "b": "nobody"})
    assert wrong.status_code == 404 and "nobody" in wrong.text
    two = text_of(client.get("/compare", params={"a": runs["cells"][0], "b": runs["cells"][3]}))
    assert "rows that both have" in two


def test_a_matrix_has_a_cell_for_each_evaluation(client: TestClient, runs: dict[str, Any]) -> None:
    page = client.get(f"/runs/{runs['cells'][2]}/matrix")
    text = text_of(page)
    assert {f"/runs/{run}" for run in runs["cells"]} <= {*links(page)}
    assert "Matrix of nodes.sort.instructions and nodes.sort.samples" in text and page.text.count('class="best"') >= 1
    assert re.search(r"Label it\. .*Label it carefully\.", text)
    assert client.get(f"/runs/{runs['optimize']}/matrix").status_code == 404


def test_answers_of_a_matrix_stand_side_by_side(client: TestClient, runs: dict[str, Any]) -> None:
    cells = runs["cells"]
    page = client.get(f"/runs/{cells[2]}/matrix")
    (grid,) = [link for link in links(page) if link.startswith("/grid?")]
    assert grid == "/grid?" + "&".join(f"side={run}" for run in cells)
    with ReadOnlyStore(runs["database"]) as store:
        stored = [
            {r["example"]: r for r in read_rows(store, row, read_report(row))} for row in map(store.find_run, cells)
        ]
    for only, key in (("answers", "prediction"), ("scores", "score"), ("all", None)):
        shown = client.get(grid, params={"side": cells, "only": only})
        differ = [row for row in stored[0] if key is None or len({str(one[row][key]) for one in stored}) > 1]
        assert f"{len(differ)} of {len(stored[0])} rows that all columns have" in text_of(shown)
        named = {html.escape(stored[0][row]["handle"], quote=True).replace("&quot;", "&#34;"): row for row in differ}
        found = [named[one] for one in re.findall(r'<tr><td class="main">([^<]+)<', shown.text)]
        assert found == differ[:50] and (only == "all" or 0 < len(differ) < len(stored[0]))
        assert shown.text.count("<td data-sort=") == len(found) * len(cells)
    row = stored[3][found[0]]
    assert row["prediction"]["label"] in text_of(client.get(grid)) and row["failure"] is None
    one = text_of(
        client.get("/grid", params={"side": [runs["optimize"] + ":baseline", runs["optimize"]], "only": "scores"})
    )
    assert "24 rows that all columns have" in one
    assert client.get("/grid", params={"side": [cells[0], "nobody"]}).status_code == 404
    assert client.get("/grid").status_code == 200


# Data, plugins, downloads


def test_copies_of_rows_are_told(tmp_path: Path) -> None:
    from workbench.evaluation import EvalOptions, evaluate
    from workbench_testing.simulated import SimulatedPool, write_task

    path = write_task(tmp_path, budget={"calls": 100}, rows=(4, 4, 6))
    lines = (tmp_path / "test.jsonl").read_text().splitlines()
    (tmp_path / "test.jsonl").write_text(
        "\n".join(
            [*lines, lines[0], lines[0].upper().replace('"TEXT"', '"text"').replace('"LABEL": "A"', '"label": "a"')]
        )
        + "\n"
    )
    run = evaluate(path, options=EvalOptions(split="test"), database=tmp_path / "run.db",
                   pool=SimulatedPool(SimulatedLM())).run  # fmt: skip
    site = Site(tmp_path / "run.db")
    client = TestClient(make_app(site, Access()), base_url=BASE)
    text = text_of(client.get(f"/runs/{run}/data?kind=copies"))
    assert "8 rows of test" in text and "1 groups of equal rows" in text and "test row 0" in text
    assert "test row 1" not in text and "test row 1" in text_of(client.get(f"/runs/{run}/data"))
    assert "3 rows" in text and "No such rows" in text_of(client.get(f"/runs/{run}/data?text=zebra"))
    site.close()


def test_data_shows_the_rows_of_each_split(client: TestClient, runs: dict[str, Any]) -> None:
    text = text_of(client.get(f"/runs/{runs['optimize']}/data"))
    assert "16 rows of val" in text and "24 rows of test" in text and "test row 3: a d-thing" in text
    only = text_of(client.get(f"/runs/{runs['optimize']}/data?split=val"))
    assert "val row 3" in only and "test row 3" not in only


def test_plugins_are_listed(client: TestClient) -> None:
    assert "bootstrap" in text_of(client.get("/plugins")) and "exact_match" in text_of(client.get("/plugins"))
    found = text_of(client.get("/plugins?text=exact_match"))
    assert "exact_match" in found and "textgrad" not in found


def test_the_report_is_downloaded_in_each_form(client: TestClient, runs: dict[str, Any]) -> None:
    for form, part in (
        ("html", "<!doctype html>"),
        ("md", "```diff"),
        ("json", '"report"'),
        ("csv", '"row","baseline"'),
    ):
        answer = client.get(f"/runs/{runs['optimize']}/report.{form}")
        assert answer.status_code == 200 and part in answer.text
        assert answer.headers["content-disposition"] == f'attachment; filename="{runs["optimize"]}.{form}"'
    assert len(list(csv.DictReader(io.StringIO(answer.text)))) == 24
    assert client.get(f"/runs/{runs['cells'][0]}/report.html").status_code == 404
    assert client.get(f"/runs/{runs['killed']}/report.html").status_code == 404


def test_runs_of_one_name_are_told_apart(client: TestClient, runs: dict[str, Any]) -> None:
    """By the settings of a matrix, and by the file where its name is another."""
    page = client.get("/").text
    assert '<span class="said">nodes.sort.instructions=Label it., nodes.sort.samples=1</span>' in page
    assert '<span class="said">workflow.yaml</span>' in page
