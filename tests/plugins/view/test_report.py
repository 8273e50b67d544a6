"""`workbench report`: a run as one file."""

from __future__ import annotations

import csv
import io
import itertools
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

pytest.importorskip("jinja2")

from workbench.cli import cli
from workbench.errors import StoreError
from workbench.proof import LearningCurve
from workbench.run import Options, optimize
from workbench.store import Store, add_run, dumps
from workbench.study import make_optimizer
from workbench_attribute.diagnoses import RowFinding
from workbench_testing.simulated import HELPFUL, SimulatedLM, SimulatedPool, write_task
from workbench_view import plots
from workbench_view.exports import write_csv, write_json, write_markdown
from workbench_view.facts import Facts, Point, read_facts
from workbench_view.noise import noise_band
from workbench_view.page import pareto_front, write_page
from workbench_view.text_diff import describe_change, diff_lines, diff_words

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def improve(folder: Path, rows: tuple[int, int, int] = (12, 16, 24), **settings: Any) -> Path:
    """The database of a finished run."""
    path = write_task(folder, budget={"calls": 6 * sum(rows) + 200}, rows=rows)
    spec = json.loads(path.read_text())
    spec["nodes"]["sort"]["instructions"] = f"Sort. {HOSTILE}"
    path.write_text(json.dumps(spec))
    optimize(
        path,
        database=folder / "run.db",
        optimizers=[("checked", make_optimizer({"rewrite": {"rounds": 3}}))],
        pool=SimulatedPool(SimulatedLM(**settings)),
        options=Options(out=str(folder / "out.yaml"), allow_unproved=True),
    )
    return folder / "run.db"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return improve(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def facts(database: Path) -> Iterator[Facts]:
    store = Store(database)
    yield read_facts(store, "last")
    store.close()


def test_the_first_screen_is_the_proof(facts: Facts) -> None:
    page = write_page(facts)
    gain = facts.report["gain"]
    first = re.sub(r"<[^>]+>", " ", page[page.index("<header>") : page.index('id="changes"')])
    assert facts.verdict[0].split(",")[0] in first and ("The gain is" in facts.verdict[0])
    assert f"{gain['diff']:+.3f}" in first and f"{gain['ci95'][0]:+.3f}" in first
    assert facts.difference is not None and facts.noise is not None
    assert f"{len(facts.difference.better)} / {len(facts.difference.worse)}" in first
    assert f"±{facts.noise:.3f}" in first and f"{gain['smallest_gain']:.3f}" in first


def test_it_holds_all_that_it_shows_and_runs_nothing(facts: Facts) -> None:
    page = write_page(facts)
    fetched = re.findall(r'(?:src|href)="([^"#][^"]*)"|url\((?!#)([^)]*)\)|@import', page)
    assert not [found for found in fetched if not str(found).startswith("data:")], fetched
    assert "<script" not in page and "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page, "what is hostile is told, and not run"
    assert "default-src 'none'" in page
    assert write_page(facts) == page


def test_changes_are_those_of_the_report_word_by_word(facts: Facts) -> None:
    assert facts.before is not None and facts.after is not None
    assert facts.changes == facts.before.diff(facts.after), "here none only spells out a default"
    assert HELPFUL in str(facts.changes), "or the task taught nothing"
    assert re.search(rf"<ins>[^<]*{re.escape(HELPFUL.split()[0])}", write_page(facts))


def test_rows_that_changed_sides_come_with_both_traces(facts: Facts) -> None:
    found = facts.difference
    assert found is not None and len(found.better) > 0
    assert {row.example for row in facts.changed} == {*found.better, *found.worse}
    gains = [row.gain for row in facts.changed]
    assert gains == [*sorted(g for g in gains if g < 0), *sorted((g for g in gains if g > 0), reverse=True)]
    for row in facts.changed:
        assert row.before is not None and row.after is not None and row.inputs
        first, second = row.before["spans"][0]["calls"][0], row.after["spans"][0]["calls"][0]
        assert first["messages"] != second["messages"]
        assert first["text"] in write_page(facts)


def test_it_says_where_it_came_from_and_which_node_decided(tmp_path: Path) -> None:
    database = improve(tmp_path, rows=(6, 8, 8))
    store = Store(database)
    row = store.find_run("last")
    told = {"optimizer": "rewrite", "message": "failures are decided by: sort 0.9", "figures": {}}
    sql = "insert into events (run_id, at, kind, data) values (?, '', 'optimizer_told', ?)"
    store.execute(sql, row["id"], json.dumps(told))
    told |= {"optimizer": "optuna", "message": "share of each setting in the spread of 14 scores: lm.model 0.90"}
    store.execute(sql, row["id"], json.dumps(told))
    rows = [vars(RowFinding(str(n), "c", node=node)) for n, node in enumerate(("sort", "sort", None))]
    report = {"kind": "attribute", "lines": [], "examined": [row["run"]], "method": "replay", "rows": rows}
    made = add_run(store, run="dddd", name="a", status="finished", spec="", options="{}", kind="attribute")
    store.execute("update runs set report = ?, kind = 'attribute' where id = ?", dumps(report), made)
    found = read_facts(store, row["run"])
    page = write_page(found)
    store.close()
    assert found.decisive == [
        "rewrite, on train rows: failures are decided by: sort 0.9",
        "optuna, on val rows: share of each setting in the spread of 14 scores: lm.model 0.90",
        "run dddd (replay), failed rows by node: sort 2",
    ]
    assert "Nodes and settings that decide" in page and "sort 2" in page
    assert len(found.machine) == 1 and platform.python_version() in page and f"optuna {optuna.__version__}" in page


def test_traces_have_their_limit(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench_view.facts.MAX_TRACES", 1000)
    store = Store(database)
    found = read_facts(store, "last")
    store.close()
    assert found.changed[0].before is not None and found.changed[-1].before is None
    assert found.changed[-1].inputs and "Its trace is left out" in write_page(found)


def test_the_course_says_what_each_candidate_had_cost(facts: Facts) -> None:
    assert len(facts.points) >= 2 and facts.points[0].candidate == facts.report["baseline"]["workflow"]
    calls = [point.calls for point in facts.points]
    assert calls == sorted(calls) and 16 <= calls[0] < calls[-1] < facts.report["spent"]["calls"]
    assert facts.points[0].score == facts.report["baseline"]["val"]


def test_other_forms_say_the_same(facts: Facts) -> None:
    told = json.loads(write_json(facts))
    assert told["report"]["gain"] == facts.report["gain"] and len(told["changed_rows"]) == len(facts.changed)
    lines = list(csv.DictReader(io.StringIO(write_csv(facts))))
    assert len(lines) == facts.report["gain"]["rows"]
    mean = sum(float(line["difference"]) for line in lines) / len(lines)
    assert mean == pytest.approx(facts.report["gain"]["diff"])
    markdown = write_markdown(facts)
    assert (
        facts.verdict[0] in markdown
        and "```diff" in markdown
        and facts.changed[0].handle.partition(' "')[0] in markdown
    )


def test_markdown_is_short_and_no_text_leaves_its_place(facts: Facts) -> None:
    rows = [replace(facts.changed[0], handle=f"<b>|{n}`") for n in range(100)]
    change = ("nodes.sort.instructions", *(f"Say\n```\n{word}\n```\n" for word in "xy"))
    demos = ("nodes.sort.demos", None, [{"text": "x", "label": "a"}])
    told = write_markdown(replace(facts, changed=rows, report={**facts.report, "changes": [demos, change]}))
    assert told.index("nodes.sort.instructions") < told.index("nodes.sort.demos"), "texts come first: they say most"
    assert told.count("\n| \\<b\\>\\|") == 20 and "and 80 more" in told and "<b>" not in told
    assert told.count("````diff\n") == 1 and told.count("\n````\n") == 1, "a fence in a prompt does not end ours"
    inputs = str(next(iter((facts.changed[0].inputs or {}).values())))
    assert inputs not in write_markdown(facts), "it is pasted where many read it"


def test_a_run_that_has_not_begun_says_so(tmp_path: Path) -> None:
    from workbench.run import branch_run

    store = Store(improve(tmp_path))
    with pytest.raises(StoreError, match="has no report: it has not started"):
        read_facts(store, branch_run(store, "last", "baseline"))
    store.close()


def test_ids_of_rows_are_no_formulas(facts: Facts) -> None:
    assert facts.sides is not None
    side = facts.sides[0]
    ids = ["=HYPERLINK(1)", "\r=1 20", "a\r\n=2", "a;=3", "a\t=4", " =5", "\uff1d6", "\n+7", "@8", "a,b\r-9"]
    rows = {key: replace(row, handle=ids[n % len(ids)]) for n, (key, row) in enumerate(side.rows.items())}
    told = write_csv(replace(facts, sides=(replace(side, rows=rows), facts.sides[1])))
    assert "\r" not in told and told.replace("\n", "").count('"') % 2 == 0, "security 14"
    cells = [line[0] for line in csv.reader(io.StringIO(told, newline=""))][1:]
    assert len(cells) == len(rows) and {c.lstrip("'") for c in cells} == {
        i.replace("\r\n", "\n").replace("\r", "\n") for i in ids
    }
    begun = [cell for cell in cells if cell[:1] != "'"]
    assert {c.strip()[0] for c in begun} == {"a"}, "all others have an apostrophe"
    assert all(f'"{cell}"' in told for cell in begun), "in quotes, wherever cells begin"


@pytest.mark.parametrize("ending", ["md", "json"])
def test_hidden_characters_are_escapes_in_other_forms_too(facts: Facts, ending: str) -> None:
    """security 16: what a terminal obeys, or what turns text around, and markup in a name."""
    hidden, name = "\x1b]52;c;eA==\x07 \u202eabc \u200b", "# <script>x</script> [a](b)"
    change = ("nodes.sort.instructions", "Say x.", f"Say {hidden}")
    stranger = replace(
        facts,
        run={**facts.run, "name": name + hidden},
        verdict=[f"shown {hidden}"],
        report={**facts.report, "changes": [change]},
    )
    told = {"md": write_markdown, "json": write_json}[ending](stranger)
    assert not [c for c in told if not c.isprintable() and c != "\n"]
    assert "\\u202e" in told
    if ending == "md":
        assert "<script>" not in told and "\\[a\\]" in told
    else:
        assert json.loads(told)["run"]["name"] == name + hidden


def test_what_a_resumed_run_repeats_does_not_count_as_spent(database: Path, facts: Facts) -> None:
    store = Store(database)
    row = store.find_run("last")
    told = json.dumps({"candidate": facts.points[0].candidate, "calls": 10**6})
    store.execute("insert into events (run_id, at, kind, data) values (?, '', 'evaluated', ?)", row["id"], told)
    assert read_facts(store, "last").points == facts.points
    store.close()


def test_plots_have_the_colours_of_the_page(facts: Facts) -> None:
    page = write_page(facts)
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) >= 3 and all("var(--" in p and not re.search(r"#[0-9a-f]{3}|nan|inf\b", p) for p in pictures)


def test_u6_the_page_needs_no_package_that_the_readme_does_not_install(
    facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("matplotlib", "starlette", "uvicorn", "pandas", "torch"):
        monkeypatch.setitem(sys.modules, package, None)  # an import of it fails
    assert write_page(facts).count("<svg") >= 3


@given(st.lists(st.tuples(st.integers(0, 10**7), st.floats(-1e6, 1e6)), min_size=1, max_size=8))
def test_plots_stay_in_their_frame_and_the_best_so_far_does_not_fall(found: list[tuple[int, float]]) -> None:
    drawn = plots.draw_progress(
        [Point(str(n), calls, score, {}) for n, (calls, score) in enumerate(sorted(found))], "0"
    )
    wide, high = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', drawn)[0])
    places = [
        (float(x), float(y))
        for line in re.findall('points="([^"]*)"', drawn)
        for x, y in (place.split(",") for place in line.split())
    ]
    assert all(0 <= x <= wide and 0 <= y <= high for x, y in places)
    heights = [float(place.split(",")[1]) for place in re.findall('points="([^"]*)"', drawn)[0].split()]
    assert heights == sorted(heights, reverse=True), "upwards is less"
    assert 2 <= drawn.count("<text") < 40


def boxes(drawn: str, names: set[str]) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of the names in a plot."""
    texts = re.findall(r'<text x="(\S+)" y="(\S+)"[^>]*>([^<]*)</text>', drawn)
    found = [(float(x), float(y), name) for x, y, name in texts if name in names]
    assert {name for *_, name in found} == names
    return [(x, y - 8, x + 4.8 * len(name), y) for x, y, name in found]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=12))
def test_names_in_a_plot_cover_no_other(found: list[tuple[int, int]]) -> None:
    points = [Point(f"{n:08d}", n, score / 3, {"usd": cost / 1e6}) for n, (score, cost) in enumerate(found)]
    names = [point.candidate for point in points]
    drawn = plots.draw_tradeoff(points, "usd", names, names[0], names[1])
    places = boxes(drawn, {"winner", "baseline", *names[2:]})
    assert all(left >= 0 and right <= 460 and top >= 0 for left, top, right, _ in places)
    for (a, b, c, d), (e, f, g, h) in itertools.combinations(places, 2):
        assert c <= e or g <= a or d <= f or h <= b
    assert "dollars per 1,000 rows, on val" in drawn


def test_long_changes_are_folded_in_the_page_to_mail(facts: Facts) -> None:
    demos = [{"text": f"mail {n}", "label": "a"} for n in range(60)]
    changes = [("nodes.sort.demos", None, demos), ("nodes.sort.source", "a", "b")]
    page = write_page(replace(facts, report={**facts.report, "changes": changes}))
    shown = page[page.index('id="changes"') : page.index('id="rows"')]
    folded = re.sub(r"<details>.*?</details>", "", shown, flags=re.S)
    assert re.search(r"<summary>\d+ lines</summary>", shown) and "mail 59" in shown
    assert "mail 59" not in folded and "<h3><code>nodes.sort.demos</code></h3>" in folded


def test_dollars_are_those_of_1000_rows(facts: Facts) -> None:
    side = {**facts.report["best"], "cost": {"tokens": 12.0, "usd": 0.00001014}}
    page = write_page(replace(facts, report={**facts.report, "best": side, "baseline": side}))
    bill = page[page.index('id="bill"') :]
    assert '<th scope="col">dollars per 1,000 rows</th>' in bill and "<td>0.01014</td>" in bill


def test_the_rewards_of_training_steps_are_drawn(facts: Facts) -> None:
    assert not facts.curves and "each training step" not in write_page(facts)
    rising = LearningCurve("grpo", [(1, 0.25), (2, 0.5), (3, 0.75)])
    page = write_page(replace(facts, curves=[rising, LearningCurve("sft", [(1, 0.5)])]))
    assert page.count("The mean reward of the rollouts of each training step") == 2  # label and caption
    two = plots.draw_training([rising, LearningCurve("grpo, 2", [(1, 0.0), (2, 0.0)])])
    assert two.count("<polyline") >= 2 and ">grpo, 2<" in two and "nan" not in two


@pytest.mark.parametrize("ci95", [(0.0, 0.0), (-1.0, 1.0), (1e-9, 2e-9)])
@pytest.mark.parametrize("noise", [None, 0.0, 0.3])
def test_a_proof_is_drawn_whatever_it_found(ci95: tuple[float, float], noise: float | None) -> None:
    drawn = plots.draw_proof(ci95[0], ci95, noise, gain=False)
    assert "nan" not in drawn and (">noise<" in drawn) == (noise is not None)


def report(*words: Any) -> Any:
    return CliRunner().invoke(cli, ["report", *map(str, words)])


def test_the_command_writes_by_the_ending_of_the_file(database: Path, tmp_path: Path) -> None:
    for ending in ("html", "md", "json", "csv"):
        done = report("last", "--db", database, "--out", tmp_path / f"r.{ending}")
        assert done.exit_code == 0 and (tmp_path / f"r.{ending}").stat().st_size > 200, done.output
    done = report("last", "--db", database, "--out", tmp_path / "r.pdf")
    assert done.exit_code == 2 and ".html, .md, .json, .csv" in done.output and not (tmp_path / "r.pdf").exists()


def test_runs_without_a_report_are_refused_by_name(database: Path) -> None:
    store = Store(database)
    with pytest.raises(StoreError, match="run 'nobody' is not in"):
        read_facts(store, "nobody")
    store.close()


def test_a_run_that_proved_nothing_says_so(tmp_path: Path) -> None:
    store = Store(improve(tmp_path, helps=False))
    found = read_facts(store, "last")
    store.close()
    page = write_page(found)
    assert "The gain is not shown" in page[: page.index("<main>")]


def test_importing_the_command_line_loads_neither_plots_nor_templates() -> None:
    code = "import sys, workbench_view.commands; print({'matplotlib', 'jinja2'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Its parts


@pytest.mark.parametrize("differences", [[1, 1, -1, 0, 0, 0], [0.5, -0.25, 1, 1, 0], [1], [1] * 8 + [0] * 20])
def test_the_noise_band_is_that_of_all_flips(differences: list[float]) -> None:
    signs = itertools.product((-1, 1), repeat=sum(d != 0 for d in differences))
    differing = [d for d in differences if d]
    means = [abs(sum(s * d for s, d in zip(flip, differing, strict=True))) / len(differences) for flip in signs]
    found = noise_band(differences)
    assert found is not None
    exact = float(np.quantile(means, 0.95))
    near = sorted(set(means))
    place = min(range(len(near)), key=lambda i: abs(near[i] - exact))
    assert near[max(0, place - 1)] - 1e-9 <= found <= near[min(len(near) - 1, place + 1)] + 1e-9


def test_rows_that_do_not_differ_tell_nothing_of_noise() -> None:
    assert noise_band([0.0, 0.0]) is None and noise_band([]) is None


@given(st.text(alphabet="ab \n.", max_size=40), st.text(alphabet="ab \n.", max_size=40))
def test_both_texts_can_be_read_from_their_difference(old: str, new: str) -> None:
    pieces = diff_words(old, new)
    assert "".join(text for sign, text in pieces if sign != "+") == old
    assert "".join(text for sign, text in pieces if sign != "-") == new


def test_words_that_stay_are_not_marked() -> None:
    assert diff_words("Be short and kind.", "Be brief and kind.") == [
        (" ", "Be "),
        ("-", "short"),
        ("+", "brief"),
        (" ", " and kind."),
    ]
    long = "\n".join(map(str, range(5000)))  # compared line by line
    assert diff_words(long, f"first\n{long}") == [("+", "first\n"), (" ", long)]


def test_a_long_prompt_is_compared_in_a_moment() -> None:
    """Work is counted, not seconds: spaces that are all alike would be paired with each other."""
    words = [f"w{n % 300}" for n in range(1500)]
    edited = ["changed" if n % 20 == 0 else word for n, word in enumerate(words)]
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    pieces = diff_words(" ".join(words), " ".join(edited))
    sys.setprofile(None)
    assert "".join(text for sign, text in pieces if sign != "-") == " ".join(edited)
    assert [text for sign, text in pieces if sign == "+"] == ["changed"] * 75
    assert steps < 2_000_000


def test_code_stands_side_by_side() -> None:
    change = describe_change("nodes.a.source", "def f():\n    return 1", "def f():\n    return 2\n\nf()")
    assert change.kind == "code"
    assert change.lines[:2] == [(" ", "def f():", "def f():"), ("-", "    return 1", "    return 2")]
    assert change.lines[2:] == [("+", "", ""), ("+", "", "f()")]
    assert diff_lines("a", "") == [("-", "a", "")]
    assert describe_change("nodes.a.temperature", None, 0.5).lines == [("+", "", "0.5")]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_the_front_is_what_no_other_beats(found: list[tuple[int, int]]) -> None:
    points = [Point(str(n), n, float(score), {"usd": float(cost)}) for n, (score, cost) in enumerate(found)]
    front = {points[int(name)].score: points[int(name)].cost["usd"] for name in pareto_front(points, "usd")}
    beaten = {
        (p.score, p.cost["usd"])
        for p in points
        for q in points
        if q.score >= p.score and q.cost["usd"] <= p.cost["usd"] and (q.score, q.cost) != (p.score, p.cost)
    }
    assert {*front.items()} == {(p.score, p.cost["usd"]) for p in points} - beaten


@pytest.mark.slow
def test_a_report_of_two_thousand_rows_is_small_and_quick(tmp_path: Path) -> None:
    import time

    store = Store(improve(tmp_path, rows=(12, 40, 2000)))
    begun = time.process_time()
    found = read_facts(store, "last")
    page = write_page(found)
    store.close()
    assert found.report["gain"]["rows"] == 2000 and len(found.changed) > 200
    assert len(page.encode()) < 5_000_000 and time.process_time() - begun < 60
