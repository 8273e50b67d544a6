"""What a run will cost is told before it, and what cannot be kept or proved is refused before anything is paid."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.helpers.lm_faults import ChatServer
from tests.helpers.planted import PlantedLM, plant
from tests.helpers.scripted import Script

import workbench
from workbench.cli import cli
from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.run import Options, estimate, optimize, prepare, resume
from workbench.store import Store, add_run


def task_file(folder: Path, rows: int = 10, **spec: Any) -> Path:
    """A workflow of one call, with as many rows in each split."""
    made = [{"text": f"t{i} word{i}", "label": "ab"[i % 2]} for i in range(3 * rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    written = {
        "name": "t",
        "lm": {"model": "openai/m", "api_base": "http://127.0.0.1:9/v1", "price": {"input": 1000, "output": 2000}},
        "data": {"file": "rows.jsonl", "split": {"train": rows, "val": rows, "test": rows}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 100}}},
        "optimize": [{"random": {"trials": 4}}],
        "budget": {"calls": 1000},
        **spec,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(written))
    return path


def estimated(path: Path, *given: Any) -> dict[str, Any]:
    _, _, task, optimizers = prepare(path)
    return estimate(task, optimizers, *given)


# Estimates


def test_friction_16_dollars_and_tokens_are_told_for_baseline_search_and_proof(tmp_path: Path) -> None:
    found = estimated(task_file(tmp_path, search={"nodes.sort.reasoning": [False]}))
    tokens = found["input_tokens"]
    assert found["baseline"]["calls"] == 10 and found["proof"]["calls"] == 20
    assert found["baseline"]["input_tokens"] == 10 * tokens and found["baseline"]["max_output_tokens"] == 1000
    most = 1e-3 * tokens + 2e-3 * 100
    assert found["baseline"]["max_usd"] == pytest.approx(10 * most)
    assert 20 * most <= found["proof"]["max_usd"] < 20.2 * most, "of the longest row"
    whole = (found["baseline"], found["search"], found["proof"])
    assert found["total"]["max_usd"] == pytest.approx(sum(part["max_usd"] for part in whole), abs=1e-5)
    assert found["baseline"]["usd"] is None is found["baseline"]["output_tokens"], "no earlier run tells it"
    assert f"up to about ${10 * most:.2f}" in found["lines"][1]


@pytest.mark.parametrize(
    ("budget", "line"),
    [
        ({"usd": 50}, "are left for search: about"),
        ({"minutes": 10}, "are left for search: about"),
        ({"tokens": 50_000}, "tokens are left for search: about"),
    ],
)
def test_friction_16_a_budget_without_calls_tells_the_candidates_too(budget: Any, line: str, tmp_path: Path) -> None:
    found = estimated(task_file(tmp_path, budget=budget, optimize=[{"random": {"trials": 10_000}}]), None, 2.0)
    (what, ceiling), row = *budget.items(), found["baseline"]
    each = {
        "usd": row["max_usd"],
        "minutes": row["minutes"],
        "tokens": row["input_tokens"] + row["max_output_tokens"],
    }[what]
    assert found["candidates"] == pytest.approx(ceiling / each - 3, abs=1) and found["candidates"] > 0
    assert any(line in text and f"about {found['candidates']} candidates" in text for text in found["lines"])


def test_friction_16_minutes_come_from_a_flag_or_earlier_runs_or_are_not_known(tmp_path: Path) -> None:
    path, database = task_file(tmp_path, concurrency=5), tmp_path / "run.db"
    unknown = estimated(path, database)
    assert unknown["baseline"]["minutes"] is None
    assert any("Duration unknown" in line and "--seconds-per-call" in line for line in unknown["lines"])
    assert estimated(path, database, 30.0)["baseline"]["minutes"] == pytest.approx(10 * 30 / 5 / 60)
    identity = "m@http://127.0.0.1:9/v1"
    with_calls(database, identity, [(0.5, 0.0, 3), (1.5, 9.0, 5), (60.0, None, 4)])
    known = estimated(path, database)
    assert known["baseline"]["minutes"] == pytest.approx(10 * 1.0 / 5 / 60, abs=1e-3), "of requests, without queueing"
    assert known["baseline"]["output_tokens"] == 40
    expected = 10 * (1e-3 * known["input_tokens"] + 2e-3 * 4)
    assert known["baseline"]["usd"] == pytest.approx(expected) and "by 3 earlier calls" in known["lines"][0]


def with_calls(database: Path, identity: str, calls: list[tuple[float, float | None, int]]) -> None:
    """A run of a model. calls: (seconds, queued, completion tokens)."""
    store = Store(database)
    run_id = add_run(store, run="r", name="n", status="finished", spec="", options="{}")
    for number, (seconds, queued, tokens) in enumerate(calls):
        store.execute(
            "insert into calls (run_id, key, kind, role, lm, request, response, outcome, attempts, prompt_tokens, "
            "completion_tokens, usd, seconds, queued) "
            "values (?, ?, 'lm', 'task', ?, '{}', '{}', 'stop', 1, 9, ?, 0, ?, ?)",
            run_id,
            str(number),
            identity,
            tokens,
            seconds,
            queued,
        )
    store.close()


@pytest.mark.parametrize(
    ("usd", "candidates", "evaluated"),
    [(0.08, 0, False), (0.11, 0, True), (0.4, 15, True)],
    ids=["nu5-none", "nu5-part", "nu5-some"],
)
def test_nu5_an_estimate_leaves_room_for_the_most_of_a_call_as_the_run_does(
    usd: float, candidates: int, evaluated: bool, tmp_path: Path
) -> None:
    """A model that may take many tokens and takes few: under a small ceiling its calls find no room. evaluated: a whole
    candidate beside the baseline, with `nu5-part` as the proof has fewer rows."""
    lm = {"model": "openai/m", "api_base": "http://127.0.0.1:9/v1", "price": {"input": 0, "output": 200}}
    search = {"nodes.sort.instructions": ["Sort.", "Choose."]}
    path = task_file(tmp_path, lm=lm, search=search, budget={"usd": usd}, optimize=["bootstrap"])
    with_calls(tmp_path / "e.db", "m@http://127.0.0.1:9/v1", [(0.5, 0.0, 10)])
    found = estimated(path, tmp_path / "e.db")
    assert found["candidates"] == candidates
    room = f"about {candidates} candidates" if candidates else "less than one candidate takes"
    assert any(room in line for line in found["lines"])
    assert any("the proof is reserved" in line for line in found["lines"]) is (candidates == 0)
    pool = Script(lambda request: Response("a", "stop", 9, 10))
    pool.price = lambda prompt_tokens, completion_tokens: completion_tokens * 200e-6  # type: ignore[method-assign]
    options = Options(out=str(tmp_path / "o.yaml"))
    report = optimize(path, database=tmp_path / "o.db", pool=pool, options=options)
    assert report.status == "budget"
    assert (len(pool.requests) >= 20) is evaluated
    assert (report.as_dict()["untried"] or "").startswith("the budget ended" if usd < 0.1 else "")


def test_an_estimate_without_a_price_says_so(tmp_path: Path) -> None:
    lm = {"model": "openai/m", "api_base": "http://127.0.0.1:9/v1"}
    found = estimated(task_file(tmp_path, lm=lm))
    assert found["total"]["max_usd"] is None
    assert any("Dollars unknown: there is no price for openai/m" in line for line in found["lines"])


def test_an_estimate_stands_beside_a_database_that_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_bytes(b"no database at all")
    assert estimated(task_file(tmp_path), tmp_path / "run.db")["baseline"]["minutes"] is None


def test_estimate_as_json_has_the_same_figures(tmp_path: Path) -> None:
    path = task_file(tmp_path)
    command = ["estimate", str(path), "--db", str(tmp_path / "none.db"), "--seconds-per-call", "3", "--json"]
    done = CliRunner().invoke(cli, command)
    found = json.loads(done.stdout)
    assert found["baseline"] == estimated(path, None, 3.0)["baseline"] and found["baseline"]["minutes"] > 0


# Budgets that cannot be kept, or cannot pay for the proof


@pytest.mark.parametrize("command", ["validate", "optimize", "eval", "run"])
def test_friction_23_a_dollar_ceiling_without_a_price_is_refused(command: str, tmp_path: Path) -> None:
    lm = {"model": "openai/m"}
    with ChatServer() as server:
        path = task_file(tmp_path, lm={**lm, "api_base": server.base}, budget={"usd": 2})
        more = [] if command == "validate" else ["--db", str(tmp_path / "run.db")]
        with pytest.raises(SpecError, match=r"budget\.usd cannot be kept") as caught:
            CliRunner().invoke(cli, [command, str(path), *more], catch_exceptions=False)
        assert server.requests == 0
    assert "lm.price" in (caught.value.hint or "") and "remove budget.usd" in (caught.value.hint or "")
    if command in ("validate", "optimize"):
        assert caught.value.line == 1 and caught.value.file is not None


@pytest.mark.parametrize(
    "spec",
    [
        {"lm": {"model": "openai/m", "api_base": "http://127.0.0.1:9/v1", "price": {"input": 0, "output": 0}}},
        {"lm": "bundled/nano"},
    ],
)
def test_friction_23_a_model_that_is_free_needs_no_price(spec: Any, tmp_path: Path) -> None:
    path = task_file(tmp_path, budget={"usd": 2, "calls": 100}, **spec)
    assert CliRunner().invoke(cli, ["validate", str(path)], catch_exceptions=False).exit_code == 0


@pytest.mark.parametrize(
    ("budget", "least"),
    [({"calls": 29}, "take at least 30 calls"), ({"tokens": 20}, "take at least"), ({"usd": 0.001}, "take at least $")],
)
def test_friction_17_a_budget_that_cannot_pay_for_the_proof_is_refused(budget: Any, least: str, tmp_path: Path) -> None:
    path, database = task_file(tmp_path, budget=budget), tmp_path / "run.db"
    with pytest.raises(SpecError) as caught:
        optimize(path, database=database, pool=(lm := PlantedLM(lambda request: 0.5)))
    assert least in caught.value.message and "--allow-unproved" in (caught.value.hint or "")
    assert (caught.value.path, caught.value.line) == (("budget", *budget), 1)
    assert lm.requests == 0 and not database.exists()
    told = CliRunner().invoke(cli, ["validate", str(path)])
    assert told.exit_code == 0 and "refuses that without --allow-unproved" in " ".join(told.output.split())


def test_friction_17_a_budget_that_just_pays_for_the_proof_is_not_refused(tmp_path: Path) -> None:
    prepared = prepare(task_file(tmp_path, budget={"calls": 30}))[2]
    from workbench.run.cost_estimate import find_impossible_proof

    assert find_impossible_proof(prepared) is None


def unproved(folder: Path, calls: int) -> Report:
    plant(folder, lambda request: 0.3, {"random": {"trials": 1}}, calls=400)
    return optimize(
        folder / "workflow.yaml",
        database=folder / "two.db",
        pool=PlantedLM(lambda request: 0.3),
        options=Options([("budget.calls", calls)], out=str(folder / "o.yaml"), allow_unproved=True),
    )


def test_friction_17_it_begins_on_request_and_a_resume_is_not_asked_again(tmp_path: Path) -> None:
    report = unproved(tmp_path, 30)
    assert report.status == "budget" and not report.proved
    again = resume("last", database=tmp_path / "two.db", pool=PlantedLM(lambda request: 0.3))
    assert again.status == "budget"


def test_friction_17_python_begins_on_request_too(tmp_path: Path) -> None:
    plant(tmp_path, lambda request: 0.3, {"random": {"trials": 1}}, calls=400)
    lm, settings = PlantedLM(lambda request: 0.3), {"budget.calls": 30}
    for allowed in (False, True):
        options = Options(out=str(tmp_path / "o.yaml"), allow_unproved=allowed)
        with nullcontext() if allowed else pytest.raises(SpecError, match="cannot pay for the proof"):
            found = workbench.optimize(
                tmp_path / "workflow.yaml", settings=settings, options=options, database=tmp_path / "a.db", pool=lm
            )
            assert found.status == "budget"


# The sealed test of an unchanged workflow


@pytest.mark.parametrize(("when", "tested"), [(None, 0), ("skip", 0), ("test", 40)])
def test_friction_18_an_unchanged_workflow_is_tested_only_on_request(
    when: str | None, tested: int, tmp_path: Path
) -> None:
    proof = {} if when is None else {"proof": {"when_unchanged": when}}
    report, lm = plant(tmp_path, worse_with_demos, {"random": {"trials": 2}}, calls=400, **proof)
    assert report.status == "finished" and not report.changes and report.test_rows == tested
    assert lm.requests == report.spent["calls"]
    said = " ".join(report.lines())
    assert ("the sealed rows were left unused" in said) is (tested == 0)
    assert report.as_dict()["test_skipped"] is (tested == 0) and not report.gain_shown
    assert (report.as_dict()["baseline"]["test"]["score"] is None) is (tested == 0)
    database = str(tmp_path / "run.db")
    assert CliRunner().invoke(cli, ["show", "last", "--db", database], catch_exceptions=False).exit_code == 0
    assert CliRunner().invoke(cli, ["compare", "last", "--db", database], catch_exceptions=False).exit_code == 0
    again = resume("last", database=tmp_path / "run.db", pool=(lm := PlantedLM(worse_with_demos)))
    assert (again.status, again.test_rows, lm.requests) == ("finished", tested, 0)


def worse_with_demos(request: Request) -> float:
    return 1.0 if len(request.messages) <= 2 else 0.0


# Latency and rate limits, against a server


@pytest.mark.parametrize("at_once", [2, 16])
def test_friction_20_a_server_has_one_latency_whatever_we_send_at_once(at_once: int, tmp_path: Path) -> None:
    with ChatServer(latency=0.05) as server:
        lm = {"model": "openai/m", "api_base": server.base, "concurrency": at_once}
        path = task_file(tmp_path, rows=16, lm=lm)
        found = evaluate(path, options=EvalOptions([], "val"), database=tmp_path / "run.db")
    with Store(tmp_path / "run.db") as store:
        rows = list(store.rows("select seconds, queued from calls"))
    assert len(rows) == 16 and all(row["seconds"] >= 0.05 for row in rows)
    # Seven calls are waited for, however long each takes on a busy machine.
    latency, waited = found.cost["latency"], max(row["queued"] for row in rows)
    assert latency >= 0.05 and (waited > max(0.3, 4 * latency) if at_once == 2 else waited < 4 * latency)


def test_friction_40_run_and_report_say_that_the_server_slowed_it(tmp_path: Path) -> None:
    with ChatServer("429", retry_after="0") as server:
        lm = {"model": "openai/m", "api_base": server.base, "concurrency": 8}
        path = task_file(tmp_path, lm=lm, optimize=[{"random": {"trials": 1}}])
        told = list[tuple[int, int]]()

        def listen(event: str, data: dict[str, Any]) -> None:
            if event == "rate_limited":
                told.append((data["before"], data["after"]))
                server.kind = "ok"

        report = optimize(
            path, database=tmp_path / "run.db", listener=listen, options=Options(out=str(tmp_path / "o.yaml"))
        )
    assert told == [(8, 4)]
    (line,) = (line for line in report.lines() if line.startswith("Rate limited"))
    assert line.endswith(": 8 -> 4 at once") and "m@http://127.0.0.1" in line
    assert list(report.as_dict()["rate_limits"].values()) == [[8, 4]]


# The result file


@pytest.mark.slow
def test_friction_43_the_result_keeps_how_it_was_optimized_and_says_what_is_dropped(tmp_path: Path) -> None:
    settings = {"objectives": ["score", "tokens"], "pick": "knee", "rounds": 1, "timeout": 77.0}
    path = task_file(tmp_path, lm="bundled/nano", cache=False, proof={"when_unchanged": "test"}, **settings)
    path.write_text("# mine\n" + path.read_text())
    done = optimize(path, options=Options(out=str(tmp_path / "sub" / "o.yaml")), database=tmp_path / "run.db")
    text = Path(str(done.workflow)).read_text()
    written, asked = yaml.safe_load(text), yaml.safe_load(path.read_text())
    for key in ("optimize", "cache", "proof", *settings):
        assert written[key] == asked[key], key
    assert "# The comments of the file that it was made from are not kept." in text
    assert [name for name, _ in prepare(tmp_path / "sub" / "o.yaml")[3]] == ["random"]


@pytest.mark.slow
def test_friction_43_a_flag_for_one_run_is_no_setting_of_its_result(tmp_path: Path) -> None:
    path = task_file(tmp_path, lm="bundled/nano", optimize=[{"random": {"trials": 1}}])
    options = Options([("cache", True)], out=str(tmp_path / "o.yaml"))
    optimize(path, options=options, database=tmp_path / "run.db")
    text = (tmp_path / "o.yaml").read_text()
    assert "cache" not in yaml.safe_load(text) and "comments" not in text


@pytest.mark.parametrize(
    ("calls", "room"),
    [
        (39, "less than one candidate takes, so the proof may have fewer rows"),
        (40, "about 1 candidate"),
        (50, "about 2 candidates"),
    ],
)
def test_calls_that_are_left_are_told_in_candidates(calls: int, room: str, tmp_path: Path) -> None:
    found = estimated(task_file(tmp_path, budget={"calls": calls}, optimize=["random"]))
    assert f"Of {calls} calls, {calls - 30} are left for search: {room}." in found["lines"]
