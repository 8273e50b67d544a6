"""`workbench agent attribute`: runs and files, what a second call pays, and what is said to who types it wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.helpers.planted_logs import planted, say_rule
from tests.helpers.scripted import Script

from workbench.cli import cli, main
from workbench.errors import LMError, SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request, Response
from workbench.run import Options, optimize
from workbench.spec import lm_spec
from workbench.store import Store
from workbench_attribute import attribute as module
from workbench_attribute.attribute import attribute
from workbench_attribute.settings import Judging
from workbench_kit.logs import Log, load_stored_logs, model_of_run

LM = lm_spec({"model": "openai/scripted", "attempts": 1})


def rule(request: Request) -> str:
    return say_rule([dict(message) for message in request.messages])


def judged(logs: list[Log], folder: Path, script: Script, calls: int | None = None, **settings: Any) -> Any:
    judging = Judging.model_validate(settings)
    return attribute(logs, judging, LM, database=str(folder / "w.db"), calls=calls, pool=script)


@pytest.fixture
def logs() -> list[Log]:
    return [planted(8, fault, seed=fault) for fault in (1, 4, 6)]


# Paying once


@pytest.mark.parametrize("method", ["all-at-once", "step-by-step", "binary", "hybrid"])
def test_the_same_command_again_pays_nothing(method: str, logs: list[Log], tmp_path: Path) -> None:
    first = judged(logs, tmp_path, script := Script(rule), method=method)
    sent = len(script.requests)
    again = judged(logs, tmp_path, Script(lambda request: pytest.fail("paid twice")), method=method)
    assert [d.step for d in first.found] == [1, 4, 6]
    assert again.found == first.found and again.run == first.run
    assert sent == first.paid["calls"] > 0 == again.paid["calls"]


def test_other_arguments_are_another_run_and_a_larger_budget_is_not(logs: list[Log], tmp_path: Path) -> None:
    cut = judged(logs, tmp_path, Script(rule), calls=2, method="binary")
    assert not cut.complete and {d.failure for d in cut.found} == {"budget"}
    whole = judged(logs, tmp_path, script := Script(rule), calls=20, method="binary")
    assert whole.complete and whole.run == cut.run and len(script.requests) == 9 - 2
    assert judged(logs, tmp_path, Script(rule), method="binary", seed=1).run != whole.run
    assert judged(logs[:2], tmp_path, Script(rule), method="binary").run != whole.run


def test_the_hybrid_does_not_pay_for_the_proposals_of_all_at_once(logs: list[Log], tmp_path: Path) -> None:
    judged(logs, tmp_path, Script(rule))
    judged(logs, tmp_path, script := Script(rule), method="hybrid")
    assert script.requests and all("Which agent" not in str(r.messages[-1]["content"]) for r in script.requests)


def test_a_call_that_failed_for_good_is_asked_again(logs: list[Log], tmp_path: Path) -> None:
    def fails(request: Request) -> str:
        if "planted" in str(request) or len(script.requests) == 1:
            raise LMError("server", "down")
        return rule(request)

    first = judged(logs, tmp_path, script := Script(fails))
    assert [d.failure for d in first.found].count("server") == 1
    again = judged(logs, tmp_path, script := Script(rule))
    assert [d.step for d in again.found] == [1, 4, 6] and len(script.requests) == 1


def test_votes_are_drawn_apart_and_kept_apart(logs: list[Log], tmp_path: Path) -> None:
    found = judged(logs[:1], tmp_path, script := Script(rule), votes=3)
    assert [r.replica for r in script.requests] == [0, 1, 2]
    assert {r.temperature for r in script.requests} == {0.7}
    assert (found.found[0].calls, found.found[0].confidence) == (3, 1.0)


def test_the_run_is_of_a_kind_of_its_own_and_is_not_listed(logs: list[Log], tmp_path: Path) -> None:
    found = judged(logs, tmp_path, Script(rule))
    store = Store(tmp_path / "w.db")
    row = store.row("select kind, status from runs where run = ?", found.run)
    assert row is not None and tuple(row) == ("attribute", "attributed")
    assert store.list_runs() == []
    store.close()


def test_a_method_without_a_model_makes_no_database(logs: list[Log], tmp_path: Path) -> None:
    found = attribute(logs, Judging(method="lexical"), database=str(tmp_path / "w.db"))  # pyright: ignore[reportCallIssue]
    assert found.run is None and not (tmp_path / "w.db").exists()


def test_without_a_judge_it_says_how_to_name_one(logs: list[Log], tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="none is named") as raised:
        attribute(logs, Judging.model_validate({}), database=str(tmp_path / "w.db"))
    assert "--lm" in str(raised.value.hint) and "--method random" in str(raised.value.hint)


# Rows of our own runs

WORKFLOW = {
    "name": "own",
    "lm": {"model": "openai/scripted", "attempts": 1},
    "roles": {"proposer": "openai/judge"},
    "data": {"train": "train.jsonl", "val": "val.jsonl", "test": "test.jsonl"},
    "metric": "exact_match(answer)",
    "nodes": {
        "plan": {"predict": "question -> idea"},
        "answer": {"predict": "question, idea -> answer"},
    },
    "optimize": ["random"],
    "search": {"nodes.answer.instructions": ["Answer.", "Reply."]},
    "budget": {"calls": 500},
}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for split in ("train", "val", "test"):
        rows = [{"question": f"{split} question {n}", "answer": f"{split}label{n}"} for n in range(12)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "w.yaml").write_text(json.dumps(WORKFLOW))
    return tmp_path


def work(request: Request) -> str:
    """Right for questions 0 to 9 of each split: the rows 10 and 11 fail."""
    words = str(request.messages[-1]["content"]).split()
    split, number = words[words.index("question") - 1], words[words.index("question") + 1]
    if "think" not in words:
        return f"idea: think of {number}"
    return f"answer: {split}label{number}" if int(number) < 10 else "answer: no idea"


@pytest.fixture
def evaluated(own: Path) -> Path:
    evaluate(own / "w.yaml", options=EvalOptions(), database=str(own / "w.db"), pool=Script(work))
    return own


def stored(folder: Path, run: str = "last", *rows: str, split: str | None = None) -> list[Log]:
    store = Store(folder / "w.db")
    try:
        return load_stored_logs(store, run, rows, split)
    finally:
        store.close()


def test_the_failed_rows_of_an_evaluation_are_logs_with_a_step_for_each_node(evaluated: Path) -> None:
    found = stored(evaluated)
    assert [log.question for log in found] == ["question: val question 10", "question: val question 11"]
    assert [(s.agent, s.node, s.content) for s in found[0].steps] == [
        ("plan", "plan", "idea: think of 10"),
        ("answer", "answer", "answer: no idea"),
    ]
    assert found[0].ground_truth == "answer: vallabel10\nscore 0.0: expected 'vallabel10', got 'no idea'"
    assert "vallabel10" not in found[0].question + found[0].outcome
    assert len(stored(evaluated, "last", found[0].id[:8])) == 1


def test_show_tells_what_a_judge_found_of_rows_and_of_files(evaluated: Path, logs: list[Log]) -> None:
    """The same rows of a second evaluation are judged once, and known of both."""

    def says_plan(request: Request) -> str:
        return "Agent: plan\nStep: 0\nReason: the idea is bad"

    found, names, ids = None, [], []
    for _ in range(2):
        store = Store(evaluated / "w.db")
        names.append(store.find_run("last")["run"])
        store.close()
        read = stored(evaluated)
        settings = {"database": str(evaluated / "w.db"), "examined": names[-1]}
        found = attribute(read, Judging.model_validate({}), LM, pool=Script(says_plan), **settings)
        ids.append([log.row.example for log in read if log.row])
        evaluate(evaluated / "w.yaml", options=EvalOptions(), database=str(evaluated / "w.db"), pool=Script(work))
    assert found is not None and ids[0] == ids[1] and len(set(names)) == 2
    words = ["--db", str(evaluated / "w.db")]
    whole = CliRunner().invoke(cli, ["show", str(found.run), *words]).output
    assert f"method: all-at-once, judged by {LM.model} of run {', '.join(names)}" in whole
    for name in names:
        shown = json.loads(CliRunner().invoke(cli, ["show", name, "--row", ids[0][0], "--json", *words]).output)
        (one,) = shown["row"][0]["diagnoses"]
        assert (one["run"], one["agent"], one["step"], one["evidence"]) == (found.run, "plan", 0, "the idea is bad")
        assert one["node"] == "plan" and one["repaired"] is None and one["calls"] == 1
    of_file = judged(logs, evaluated, Script(rule))
    shown = CliRunner().invoke(cli, ["show", of_file.run, *words]).output
    assert all(f"\n{log.id}  " in shown for log in logs) and " of run " not in shown


def test_sealed_rows_show_neither_label_nor_feedback(own: Path) -> None:
    for split in ("test", "all"):
        evaluate(own / "w.yaml", options=EvalOptions(split=split), database=str(own / "w.db"), pool=Script(work))
        found = stored(own)
        assert len(found) == (2 if split == "test" else 6)
        assert all(log.ground_truth is None and log.sealed for log in found)
        assert "label1" not in json.dumps([log.as_dict() for log in found])


def test_an_error_of_the_metric_is_not_shown_of_a_sealed_row(own: Path) -> None:
    """It may quote the right answer."""
    code = (
        "def score(row, prediction):\n    assert prediction['answer'] == row['answer'], row['answer']\n    return 1.0\n"
    )
    (own / "m.py").write_text(code)
    (own / "w.yaml").write_text(json.dumps({**WORKFLOW, "metric": "python:m.py:score"}))
    found: dict[str, str] = {}
    for split in ("val", "test"):
        evaluate(own / "w.yaml", options=EvalOptions(split=split), database=str(own / "w.db"), pool=Script(work))
        found[split] = json.dumps([log.as_dict() for log in stored(own)])
    assert "failed with metric: metric: " in found["val"] and "failed with metric" in found["test"]
    assert "testlabel1" not in found["test"]


def test_what_a_run_of_optimize_stores_is_named_and_how_to_get_the_rest(own: Path) -> None:
    tree = {**WORKFLOW, "proof": {"when_unchanged": "test"}}
    (own / "w.yaml").write_text(json.dumps(tree))
    optimize(own / "w.yaml", options=Options(out=str(own / "o.yaml")), database=str(own / "w.db"), pool=Script(work))
    with pytest.raises(SpecError, match="stores no steps of val rows") as raised:
        stored(own)
    assert "--split test" in str(raised.value.hint) and "workbench export" in str(raised.value.hint)
    sealed = stored(own, split="test")
    assert [log.question for log in sealed] == ["question: test question 10", "question: test question 11"]
    assert "label1" not in json.dumps([log.as_dict() for log in sealed])


def test_a_run_without_failed_rows_says_so(own: Path) -> None:
    def right(request: Request) -> str:
        return work(request).replace("no idea", "vallabel10")

    rows = (own / "val.jsonl").read_text().splitlines()[:11]
    (own / "val.jsonl").write_text("\n".join(rows) + "\n")
    evaluate(own / "w.yaml", options=EvalOptions(), database=str(own / "w.db"), pool=Script(right))
    with pytest.raises(SpecError, match="failed none of its 11 val rows") as raised:
        stored(own)
    assert "--row" in str(raised.value.hint)
    assert len(stored(own, "last", stored_id(own))) == 1  # a named row is examined though it did not fail


def stored_id(folder: Path) -> str:
    store = Store(folder / "w.db")
    row = store.row("select example from results order by position")
    store.close()
    assert row is not None
    return row["example"]


def test_the_judge_of_a_run_is_its_proposer(evaluated: Path) -> None:
    store = Store(evaluated / "w.db")
    assert model_of_run(store, "last") == lm_spec("openai/judge")
    store.close()


def test_the_answers_of_an_agent_and_the_results_of_its_tools_are_steps_in_their_order(own: Path) -> None:
    (own / "tools.py").write_text("def double(n: int) -> int:\n    return n * 2\n")
    nodes = {"solve": {"agent": "question -> answer", "tools": ["python:tools.py:double"]}}
    tree = {**WORKFLOW, "nodes": nodes, "search": {}, "policy": {"default": "allow"}}
    (own / "w.yaml").write_text(json.dumps(tree))

    def act(request: Request) -> str:
        texts = [str(m["content"]) for m in request.messages]
        results = sum("result:" in text for text in texts[2:])
        calls = [f'<tool_call>{{"name": "double", "arguments": {{"n": {n}}}}}</tool_call>' for n in (3, 6)]
        return (*calls, "answer: 12")[results]

    evaluate(own / "w.yaml", options=EvalOptions(), database=str(own / "w.db"), pool=Script(act))
    log = stored(own)[0]
    assert [(s.role, s.agent) for s in log.steps] == [
        ("answer", "solve"),
        ("result", "solve"),
        ("answer", "solve"),
        ("result", "solve"),
        ("answer", "solve"),
        ("outputs", "solve"),
    ]
    assert [log.steps[n].content for n in (1, 3, 5)] == ["result: 6", "result: 12", "answer: 12"]


# The command


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Script:
    """The judge of the command is a function."""
    script = Script(rule)
    monkeypatch.setattr(module, "LMPool", lambda: script)
    return script


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["agent", "attribute", *arguments])


def write_who_and_when(folder: Path) -> Path:
    """Three planted logs; the true step of the last is 1, and the scripted judge says another."""
    place = folder / "logs"
    place.mkdir()
    for number, fault in enumerate((1, 4, 6)):
        log = planted(12, fault, seed=fault)
        history = [{"name": s.agent, "role": "user", "content": s.content} for s in log.steps]
        value = {"history": history, "question": "Add up.", "ground_truth": "42"}
        gold = {"mistake_agent": log.gold_agent, "mistake_step": str(fault)}
        (place / f"{number}.json").write_text(json.dumps({**value, **gold}))
    return place


def test_a_table_totals_both_scores_and_the_baselines_are_printed(scripted: Script, tmp_path: Path) -> None:
    place = write_who_and_when(tmp_path)
    done = run(str(place), "--lm", "openai/m", "--db", str(tmp_path / "w.db"))
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    row = next(line for line in lines if line.startswith("1.json"))
    assert row.split()[2:] == ["4", "1/1", "1", "$0.0000", "the", "sum", "of", "step", "4"]
    assert "decided" in done.output and "Paid now: 3 calls" in done.output
    assert any("step 1.000" in line and "by the published scorer 1.000" in line for line in lines)
    for name in ("random", "majority", "lexical"):
        assert any(line.strip().startswith(f"{name}: agent") for line in lines)
    again = run(str(place), "--lm", "openai/m", "--db", str(tmp_path / "w.db"))
    assert "Paid now: 0 calls" in again.output


def test_json_holds_what_the_table_does(scripted: Script, tmp_path: Path) -> None:
    done = run(str(write_who_and_when(tmp_path)), "--lm", "openai/m", "--db", str(tmp_path / "w.db"), "--json")
    found = json.loads(done.stdout)
    assert [log["step"] for log in found["logs"]] == [log["gold_step"] for log in found["logs"]] == [1, 4, 6]
    assert found["accuracy"]["step"] == 1.0 and set(found["baselines"]) == {"random", "majority", "lexical"}
    assert found["paid"]["calls"] == 3 and sum(a["logs"] for a in found["agents"]) == 3


def test_a_budget_that_does_not_last_exits_with_1_and_says_how_to_go_on(scripted: Script, tmp_path: Path) -> None:
    place = write_who_and_when(tmp_path)
    done = run(str(place), "--lm", "openai/m", "--db", str(tmp_path / "w.db"), "--budget-calls", "1")
    assert (
        done.exit_code == 1
        and "a higher --budget-calls" in done.output
        and "No diagnosis for 2 logs: budget" in done.output
    )


def test_a_slow_judge_has_time_and_is_asked_one_thing_at_a_time(
    scripted: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench_attribute import attribute as module

    asked = []
    diagnose = module.attribute
    monkeypatch.setattr(
        module, "attribute", lambda logs, settings, lm, **more: asked.append(lm) or diagnose(logs, settings, lm, **more)
    )
    limits = ("--timeout", "900", "--concurrency", "1", "--max-tokens", "900")
    done = run(str(write_who_and_when(tmp_path)), "--lm", "openai/m", "--db", str(tmp_path / "w.db"), *limits)
    assert done.exit_code == 0, done.output
    assert [(lm.timeout, lm.concurrency) for lm in asked] == [(900, 1)]
    assert {request.max_tokens for request in scripted.requests} == {900}


def test_the_rows_of_a_run_are_judged_by_its_proposer(evaluated: Path, scripted: Script) -> None:
    scripted.say = lambda request: "Agent: plan\nStep: 0\nReason: a bad idea"
    done = run("last", "--method", "all-at-once", "--db", str(evaluated / "w.db"))
    assert done.exit_code == 0, done.output
    assert "plan: decided 2 of 2 failures (100%" in done.output and "a bad idea" in done.output
    assert set(scripted.models) == {"openai/judge"}
    asked = [str(request.messages[-1]["content"]) for request in scripted.requests]
    assert all("vallabel" in text for text in asked)
    hidden = run("last", "--lm", "openai/judge", "--db", str(evaluated / "w.db"), "--no-ground-truth")
    assert hidden.exit_code == 0 and "vallabel" not in str(scripted.requests[-1].messages)


def test_a_model_that_only_an_untrusted_run_names_is_not_asked(
    evaluated: Path, scripted: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = {"model": "openai/judge", "api_base": "https://collect.example/v1", "api_key_env": "SECRET"}
    (evaluated / "w.yaml").write_text(json.dumps({**WORKFLOW, "roles": {"proposer": elsewhere}}))
    evaluate(evaluated / "w.yaml", options=EvalOptions(), database=str(evaluated / "w.db"), pool=Script(work))
    monkeypatch.delenv("WORKBENCH_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(evaluated / "config"))
    with pytest.raises(SystemExit) as ended:
        main(["agent", "attribute", "last", "--method", "all-at-once", "--db", str(evaluated / "w.db")])
    assert ended.value.code == 2 and "is not trusted yet" in capsys.readouterr().err
    assert not scripted.requests
    scripted.say = lambda request: "Agent: plan\nStep: 0"
    named = run("last", "--db", str(evaluated / "w.db"), "--lm", "openai/mine")
    assert named.exit_code == 0 and set(scripted.models) == {"openai/mine"}


def test_text_of_a_log_and_of_the_judge_cannot_forge_lines(scripted: Script, tmp_path: Path) -> None:
    scripted.say = lambda request: "Agent: A\x1b[2J\nStep: 0\nReason: one\n\x1b[31mtwo"
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"history": [{"name": "A\x1b[2J", "content": "x"}]}))
    done = run(str(path), "--lm", "openai/m", "--db", str(tmp_path / "w.db"))
    assert done.exit_code == 0 and "\x1b" not in done.output and "one \\x1b[31mtwo" in done.output

    def fail(request: Request) -> str:
        raise LMError("bad_request", "no\nPaid now: 99 calls")

    scripted.say = fail
    failed = run(str(path), "--lm", "openai/m", "--db", str(tmp_path / "v.db"))
    assert "bad_request: no\\nPaid now: 99" in failed.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.json"], "there is no file none.json"),
        (["folder/none"], "there is no file folder/none"),
        (["w.yaml"], "workbench eval w.yaml"),
        (["log.json", "--method", "all_at_once"], "all-at-once"),
        (["log.json", "--format", "phoenix"], "no format 'phoenix'"),
        (["log.json", "--row", "x"], "this is a file of logs"),
        (["log.json", "--api-base", "http://127.0.0.1:1/v1"], "needs --lm"),
        (["log.json", "--method", "lexical", "--votes", "3"], "--votes cannot be combined with --method lexical"),
        (["log.json", "--method", "binary"], "Name it with --lm MODEL"),
        (["last", "--format", "otel", "--lm", "openai/m"], "this is a run of workbench"),
        (["last", "--db", "none.db"], "none.db"),
    ],
)
def test_a_wrong_argument_is_answered_with_what_to_write(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORKBENCH_LM", raising=False)
    (tmp_path / "log.json").write_text(json.dumps({"history": [{"name": "A", "content": "x"}]}))
    (tmp_path / "w.yaml").write_text(json.dumps(WORKFLOW))
    with pytest.raises(SystemExit) as ended:
        main(["agent", "attribute", *arguments])
    assert ended.value.code == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "workbench.db").exists()


def test_a_refused_answer_is_a_failure_in_the_table(scripted: Script, tmp_path: Path) -> None:
    scripted.say = lambda request: Response("no", "refusal", 1, 1, 0.0)
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"history": [{"name": "A", "content": "x"}]}))
    done = run(str(path), "--lm", "openai/m", "--db", str(tmp_path / "w.db"))
    assert done.exit_code == 1 and "refused: the judge refused" in done.output
    assert "No diagnosis for 1 logs: refused" in done.output


def test_an_attribution_has_no_candidate_to_export(logs: list[Log], tmp_path: Path) -> None:
    run = judged(logs, tmp_path, Script(rule)).run
    done = CliRunner().invoke(cli, ["export", run, "--db", str(tmp_path / "w.db")])
    assert f"run {run} (attribute) has no candidates yet" in str(done.exception)


def test_an_attribution_is_found_by_its_tag(logs: list[Log], tmp_path: Path) -> None:
    run, db = judged(logs, tmp_path, Script(rule)).run, str(tmp_path / "w.db")
    assert CliRunner().invoke(cli, ["runs", "tag", run, "why", "--db", db]).exit_code == 0
    assert f"run {run}" in CliRunner().invoke(cli, ["show", "why", "--db", db]).stdout
