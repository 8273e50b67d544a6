"""The metric `induced`: its file, its place in a workflow, what it scores, and what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.scripted import Script

from workbench.errors import LMError, SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request
from workbench.run import Options, optimize, prepare
from workbench.store import Store
from workbench.task import workflow_tree
from workbench.workflow import Span, Trace
from workbench_feedback.judging import Judged, Trait
from workbench_feedback.metric import Induced, score_traits, trace_log
from workbench_feedback.metrics_file import InducedMetric, read_metrics, write_metrics
from workbench_testing import check_metric

METRICS = {
    "metrics": [
        {"name": "Says please", "definition": "The answer asks politely.", "good": [{"behaviour": "says please"}]},
        {"name": "Is short", "definition": "The answer has few words.", "bad": [{"behaviour": "goes on"}]},
    ]
}
WORKFLOW: dict[str, Any] = {
    "name": "own",
    "lm": {"model": "openai/scripted", "attempts": 1},
    "data": {"train": "rows.jsonl", "val": "rows.jsonl", "test": "more.jsonl"},
    "metric": ["exact_match(answer)", {"induced": "metrics.yaml"}],
    "nodes": {"answer": {"predict": "question -> answer"}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, start in (("rows", 0), ("more", 100)):
        rows = [{"question": f"number {n + start}?", "answer": "please wait" if n % 2 else "no"} for n in range(6)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "metrics.yaml").write_text(yaml.safe_dump(METRICS))
    return tmp_path


def write(folder: Path, **changes: Any) -> Path:
    (folder / "w.yaml").write_text(json.dumps({**WORKFLOW, **changes}))
    return folder / "w.yaml"


def rate(messages: Sequence[Mapping[str, Any]]) -> str:
    """Polite where a step says please; never long or short."""
    text = str(messages[-1]["content"])
    steps = re.findall(r"^Step (\d+), [^:]*: (.*)$", text, re.MULTILINE)
    found = next(((int(n), said) for n, said in steps if "please" in said), None)
    step, quote, rating = (*found, 1) if found else (0, steps[0][1] if steps else "", -1)
    polite = {"metric": 1, "rating": rating, "step": step, "quote": quote, "reason": "It says so."}
    return json.dumps({"ratings": [polite, {"metric": 2, "rating": 0}]})


def work(request: Request) -> str:
    messages = [dict(message) for message in request.messages]
    if "Rate the log" in str(messages):
        return rate(messages)
    return "answer: please wait" if re.search(r"[13579]\?", str(messages[-1]["content"])) else "answer: no"


def scored(folder: Path, script: Script | None = None) -> Any:
    pool = script or Script(work)
    return evaluate(folder / "w.yaml", options=EvalOptions(), database=str(folder / "w.db"), pool=pool)


# Scores


def trait(metric: int, rating: int) -> Trait:
    return Trait(metric, rating, 3, "the words", "Because.")


def test_good_counts_one_bad_nothing_and_neither_half() -> None:
    metrics = [InducedMetric(name=name, definition=f"what {name} is") for name in "abc"]
    found = score_traits(Judged((trait(0, 1), trait(1, -1))), metrics)
    assert found.value == pytest.approx((1 + 0 + 0.5) / 3)
    assert found.feedback == (
        'a: good (step 3, "the words"). Because.\nb: bad (step 3, "the words"). Because. Wanted: what b is'
    )
    assert score_traits(Judged(()), metrics).feedback is None


def test_it_keeps_the_contract_of_metrics(folder: Path) -> None:
    metric = Induced(str(folder / "metrics.yaml"), only=["Says please"])

    def judge(messages: Sequence[Mapping[str, Any]]) -> str:
        return json.dumps({"ratings": json.loads(rate(messages))["ratings"][:1]})

    check_metric(metric, {"q": "x"}, {"a": "please wait"}, {"a": "wait"}, judge=judge)


def test_the_judge_sees_the_steps_and_what_the_nodes_read_and_no_label() -> None:
    spans = [
        Span("plan", "predict", {"question": "how many?"}, {"idea": "count"}),
        Span("answer", "predict", {"question": "how many?", "idea": "count"}, {"answer": "7"}),
    ]
    log = trace_log(Trace("row", spans), {"idea": "count", "answer": "7"})
    assert [(s.agent, s.content) for s in log.steps] == [("plan", "idea: count"), ("answer", "answer: 7")]
    assert log.question == "question: how many?" and log.outcome == "idea: count\nanswer: 7"
    assert log.ground_truth is None


def test_as_a_further_metric_it_stands_beside_the_score(folder: Path) -> None:
    write(folder)
    report = scored(folder, script := Script(work))
    assert report.score == 1.0
    assert report.as_dict()["scores"]["induced"] == pytest.approx((0.25 + 0.75) / 2)
    judged = [r for r in script.requests if "Rate the log" in str(r.messages)]
    assert len(judged) == 6


def test_alone_it_is_the_score_and_its_feedback_is_stored(folder: Path) -> None:
    write(folder, metric={"induced": {"file": "metrics.yaml", "only": ["Says please"]}})

    def one(request: Request) -> str:
        said = work(request)
        return json.dumps({"ratings": json.loads(said)["ratings"][:1]}) if said.startswith("{") else said

    report = scored(folder, Script(one))
    assert report.score == 0.5
    store = Store(folder / "w.db")
    feedback = {row["feedback"] for row in store.rows("select feedback from results where score = 0")}
    store.close()
    assert len(feedback) == 1 and "Wanted: The answer asks politely." in str(feedback)


def test_a_judge_that_cannot_be_read_fails_the_row_and_is_no_score(folder: Path) -> None:
    write(folder, metric={"induced": "metrics.yaml"})
    script = Script(lambda request: "fine" if "Rate the log" in str(request.messages) else work(request))
    with pytest.raises(LMError, match="none of the 6 rows has a result: .*no ratings by 2 metrics"):
        scored(folder, script)
    store = Store(folder / "w.db")
    failures = [row["failure"] for row in store.rows("select failure from results")]
    store.close()
    assert failures == ["judge"] * 6
    assert sum("Rate the log" in str(r.messages) for r in script.requests) == 12


def test_optimizers_that_learn_from_words_are_given_the_feedback(folder: Path) -> None:
    write(
        folder,
        metric={"induced": "metrics.yaml"},
        optimize=[{"textgrad": {"steps": 1}}],
        budget={"calls": 300},
    )
    script = Script(work)
    optimize(
        folder / "w.yaml",
        options=Options(out=str(folder / "o.yaml"), allow_unproved=True),
        database=str(folder / "w.db"),
        pool=script,
    )
    asked = [str(r.messages) for r in script.requests if "Rate the log" not in str(r.messages)]
    assert any("Wanted: The answer asks politely." in text for text in asked)


# The file


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    made = [InducedMetric.model_validate(m) for m in METRICS["metrics"]]
    write_metrics(tmp_path / "m.yaml", made, {"held_out": None, "counts": {"comments": 3}})
    assert read_metrics(tmp_path / "m.yaml") == made
    assert (tmp_path / "m.yaml").read_text().startswith("# Made by `workbench data induce`.")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("metrics: []\n", 1, "(?s)at least one.*Write metrics: "),
        ("metrics:\n- name: a\n", 2, "definition"),
        ("metrics:\n- name: a\n  definition: b\n  weight: 3\n", 4, "weight"),
        ("metrics:\n- name: a\n  defintion: b\n", 3, "(?s)defintion.*Did you mean 'definition'"),
        ("metrics:\n- {name: a, definition: b}\n- {name: a, definition: c}\n", 3, "two metrics are called 'a'"),
        ("metrics: [\n", 2, "metrics.yaml"),
    ],
)
def test_a_wrong_file_is_named_with_its_line_where_the_workflow_names_it(
    text: str, line: int, said: str, folder: Path
) -> None:
    (folder / "metrics.yaml").write_text(text)
    with pytest.raises(SpecError, match=said) as raised:
        prepare(write(folder))
    assert f"metrics.yaml:{line}" in raised.value.message and raised.value.path[0] == "metric"


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ({"induced": "gone.yaml"}, "there is no file"),
        ({"induced": {}}, "needs 'file'\n  Write e.g. metric: {induced: FILE}."),
        ({"induced": 3}, "'file' is not a path: 3"),
        ({"induced": {"file": "metrics.yaml", "max_tokens": "many"}}, "'max_tokens' is 'many'"),
        ({"induced": {"file": "metrics.yaml", "window": 0}}, "Write a whole number of 300 or more."),
        ({"induced": {"file": "metrics.yaml", "only": ["Says plese"]}}, "Did you mean 'Says please'"),
        ({"induced": {"file": "metrics.yaml", "only": "Says please"}}, "not a list of names"),
        ({"induced": {"file": "metrics.yaml", "weights": 1}}, "weights"),
        ("induced", "reads a file"),
        ("induced('metrics.yaml')", "Write metric: {induced: FILE}"),
    ],
)
def test_a_wrong_metric_is_answered_with_what_to_write(metric: Any, said: str, folder: Path) -> None:
    with pytest.raises(SpecError, match=re.escape(said)):
        prepare(write(folder, metric=metric))


@pytest.mark.parametrize("metric", [{"induced": "metrics.yaml"}, {"induced": {"file": "metrics.yaml"}}])
def test_the_file_is_found_from_another_folder_too(metric: Any, folder: Path) -> None:
    (folder / "deep").mkdir()
    task = prepare(write(folder, metric=metric))[2]
    tree = workflow_tree(task, task.workflow, folder / "deep")
    (folder / "deep" / "w.yaml").write_text(yaml.safe_dump(tree))
    moved = prepare(folder / "deep" / "w.yaml")[2]
    assert isinstance(moved.metric, Induced) and len(moved.metric.metrics) == 2
    assert tree["metric"] in ({"induced": "../metrics.yaml"}, {"induced": {"file": "../metrics.yaml"}})


def test_a_run_is_of_what_the_file_said(folder: Path) -> None:
    path = write(folder)
    before = prepare(path)[2].external_hash
    assert prepare(path)[2].external_hash == before
    (folder / "metrics.yaml").write_text(yaml.safe_dump({"metrics": METRICS["metrics"][:1]}))
    assert prepare(path)[2].external_hash != before
