"""The node `reflect` on planted problems: an answer is a row of o (right) and x (faults), and its true score is
known."""

from __future__ import annotations

import hashlib
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import lower_bound
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.errors import LMError, NodeError, SpecError
from workbench.lm import Request
from workbench.workflow import ExampleRun, learnable_addresses, make_node
from workbench_control_flow.reflect import read_score

CHECKS = """
import hashlib

def share(answer):
    return answer.count("o") / 6, f"fault at {answer.index('x')}" if "x" in answer else "fine"

def chance(text, answer):
    number = int(hashlib.sha256((text + answer).encode()).hexdigest(), 16) % 1000
    return number / 1000, f"fault at {number % 6}"

def trips(answer):
    return {"score": 1 / answer.count("o"), "feedback": ""} if "oooooo" not in answer else 1.0

def nonsense(answer):
    return 7
"""
PREDICT = {"predict": "text -> answer", "instructions": "Write it.", "decoding": {"temperature": 1.0}}


def text_of(request: Request) -> str:
    return "\n".join(str(m["content"]) for m in request.messages)


def last(request: Request) -> str:
    return str(request.messages[-1]["content"])


def is_critic(request: Request) -> bool:
    return "Review the answer" in text_of(request)


def start_with(first: str) -> Any:
    """Answers `first`; an improvement mends the fault that the criticism names, and nothing else."""

    def say(request: Request) -> str:
        if is_critic(request):
            found = last(request).split("The answer:\n")[1].split("\n")[0]
            return f"fault at {found.index('x')}" if "x" in found else "None."
        return mended(last(request)) if "earlier_answer: " in last(request) else first

    return say


def mended(question: str) -> str:
    earlier = question.split("earlier_answer: ")[1].split("\n")[0]
    place = int(question.split("fault at ")[1][0])
    return earlier[:place] + "o" + earlier[place + 1 :]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checks.py").write_text(CHECKS)
    return tmp_path


def reflect(folder: Path, say: Any, text: str = "t", **settings: Any) -> tuple[ExampleRun, Script]:
    return run_node({"reflect": PREDICT, **settings}, {"text": text}, folder, say)


SHARE, CHANCE = "python:checks.py:share", "python:checks.py:chance"


@pytest.mark.parametrize("verifier", [SHARE, None])
@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_faults_fall_by_one_a_round(rounds: int, verifier: str | None, folder: Path) -> None:
    outcome, script = reflect(folder, start_with("xxoxxo"), rounds=rounds, verifier=verifier)
    assert outcome.prediction["answer"].count("x") == 4 - rounds
    assert len(script.requests) == 1 + 2 * rounds


def test_the_verifiers_words_alone_will_do(folder: Path) -> None:
    outcome, script = reflect(folder, start_with("xoooox"), rounds=2, verifier=SHARE, critic="")
    assert outcome.prediction["answer"] == "oooooo" and len(script.requests) == 3


def test_it_ends_when_the_verifier_is_content_and_asks_no_critic(folder: Path) -> None:
    outcome, script = reflect(folder, start_with("oooooo"), rounds=5, verifier=SHARE)
    assert outcome.prediction["answer"] == "oooooo" and len(script.requests) == 1


def test_a_critic_that_finds_nothing_ends_it(folder: Path) -> None:
    outcome, script = reflect(folder, start_with("oooooo"), rounds=5)
    assert outcome.prediction["answer"] == "oooooo" and len(script.requests) == 2


def test_a_critic_that_finds_nothing_ends_it_whatever_the_verifier_says(folder: Path) -> None:
    outcome, script = reflect(folder, lambda r: "None." if is_critic(r) else "oooxxx", rounds=5, verifier=SHARE)
    assert outcome.prediction["answer"] == "oooxxx" and len(script.requests) == 2


def test_of_a_critic_that_says_nothing_the_verifiers_words_are_left(folder: Path) -> None:
    def say(request: Request) -> str:
        return " " if is_critic(request) else start_with("oooxxx")(request)

    outcome, _ = reflect(folder, say, rounds=3, verifier=SHARE)
    assert outcome.prediction["answer"] == "oooooo"


@pytest.mark.parametrize(("kind", "failure"), [("too_long", None), ("bad_request", None), ("server", "server")])
def test_a_critic_that_fails_costs_no_answer_and_a_server_that_fails_leaves_the_example_out(
    kind: str, failure: str | None, folder: Path
) -> None:
    def say(request: Request) -> str:
        if is_critic(request):
            raise LMError(kind, "no critic today")
        return "oooxxx"

    outcome, script = reflect(folder, say, rounds=3, verifier=SHARE)
    assert outcome.failure == failure and len(script.requests) == 2
    if failure is None:
        assert outcome.prediction["answer"] == "oooxxx"
        assert outcome.trace.spans[0].notes["failed"] == ["critic 1: no critic today"]


def test_wrong_credentials_of_the_critic_end_the_run(folder: Path) -> None:
    def say(request: Request) -> str:
        if is_critic(request):
            raise LMError("auth", "no key")
        return "oooxxx"

    with pytest.raises(LMError, match="no key"):
        reflect(folder, say, rounds=3, verifier=SHARE)


def test_a_right_answer_survives_a_critic_that_lies(folder: Path) -> None:
    """The verifier is never quite content, so the critic is asked, and the improvement spoils the answer."""

    def spoils(request: Request) -> str:
        if is_critic(request):
            return "All of it is wrong."
        return "xxxxxx" if "earlier_answer" in last(request) else "ooooox"

    outcome, script = reflect(folder, spoils, rounds=3, verifier=SHARE)
    assert outcome.prediction["answer"] == "ooooox"
    assert outcome.trace.spans[0].notes["scores"] == [pytest.approx(5 / 6), 0.0, 0.0, 0.0]
    assert any("Tried, and no better: xxxxxx" in last(r) for r in script.requests)


def test_an_improvement_that_fails_costs_nothing_but_its_calls(folder: Path) -> None:
    def breaks(request: Request) -> str:
        return "" if "earlier_answer" in last(request) else "wrong" if is_critic(request) else "oooxxx"

    outcome, _ = reflect(folder, breaks, rounds=2, verifier=SHARE)
    assert outcome.failure is None and outcome.prediction["answer"] == "oooxxx"
    assert len(outcome.trace.spans[0].notes["failed"]) == 2


def test_a_verifier_that_trips_gives_nothing_and_one_that_talks_nonsense_is_a_failure(folder: Path) -> None:
    outcome, _ = reflect(
        folder, start_with("xxxxxx"), rounds=1, verifier="python:checks.py:trips", critic="Review the answer"
    )
    assert outcome.prediction["answer"] == "oxxxxx", "a division by zero scored 0, what came then 1"
    outcome, _ = reflect(folder, start_with("xxxxxx"), verifier="python:checks.py:nonsense")
    assert outcome.failure == "verifier" and "not 7" in str(outcome.message)


def test_a_verifier_that_never_runs_is_told(folder: Path) -> None:
    """It would score 0 for every answer and look like a workflow that is always wrong."""
    broken = {"code": "text, answer -> score: float", "source": "def check(text, answer):\n    return 1 / 0"}
    outcome, _ = reflect(folder, start_with("oooooo"), rounds=1, verifier=broken)
    assert outcome.failure == "verifier" and "failed on every answer" in str(outcome.message)


def test_a_language_model_may_judge(folder: Path) -> None:
    def say(request: Request) -> str:
        if "Judge." in text_of(request):
            return str(last(request).split("answer: ")[1].split("\n")[0].count("o") / 6)
        return start_with("xxoooo")(request)

    judge = {"predict": "text, answer -> score: float", "instructions": "Judge."}
    outcome, script = reflect(folder, say, rounds=1, verifier=judge)
    assert outcome.prediction["answer"] == "oxoooo" and len(script.requests) == 5
    workflow = make_workflow({"n": {"reflect": PREDICT, "verifier": judge, "rounds": 1}}, folder)
    node = make_node("n", workflow.nodes["n"], folder, "loaded")
    assert node.max_calls == 5
    assert {"nodes.n.rounds", "nodes.n.critic", "nodes.n.of.instructions", "nodes.n.verifier.instructions"} <= set(
        learnable_addresses(workflow)
    )


def test_what_was_paid_for_is_not_asked_again(folder: Path) -> None:
    workflow = make_workflow({"n": {"reflect": PREDICT, "rounds": 2, "samples": 2, "verifier": CHANCE}}, folder)
    scripts = [Script(start_with("xxxoxx")) for _ in range(2)]
    first, again = (run_rows(workflow, [{"text": "t"}], s, folder / "twice.db")[0] for s in scripts)
    assert scripts[0].requests and not scripts[1].requests and first.prediction == again.prediction
    assert first.trace.spans[0].notes == again.trace.spans[0].notes


def test_an_improvement_is_shown_no_demos(folder: Path) -> None:
    """They have no criticism, and one of them might be the very row with its answer."""
    of = {**PREDICT, "demos": [{"text": "t", "answer": "secret"}, {"text": "u", "answer": "oooooo"}], "retrieve": 2}
    _, script = run_node({"reflect": of, "rounds": 1, "verifier": SHARE}, {"text": "t"}, folder, start_with("xooooo"))
    first, _, improved = script.requests
    assert "oooooo" in text_of(first) and len(improved.messages) == 2
    assert not any("secret" in text_of(r) for r in script.requests)


# Against best of n at equal calls. A draw is right at each of six places by chance.


def drawn(request: Request) -> str:
    draw = random.Random(hashlib.sha256(request.key("planted").encode()).digest())
    return "".join("o" if draw.random() < 0.5 else "x" for _ in range(6))


def player(request: Request) -> str:
    """First answers by chance; an improvement mends the place that is named, and draws the others' luck again in
    part."""
    if "earlier_answer: " not in last(request):
        return drawn(request)
    draw = random.Random(hashlib.sha256(request.key("luck").encode()).digest())
    earlier = last(request).split("earlier_answer: ")[1].split("\n")[0]
    place = int(last(request).split("fault at ")[1][0])
    named = "o" if earlier[place] == "x" else "x"  # who mends what is right breaks it
    answer = earlier[:place] + named + earlier[place + 1 :]
    return answer if draw.random() < 0.9 else drawn(request)


def truth(folder: Path, rows: int, **settings: Any) -> tuple[list[float], int]:
    """True scores, one a row, and the calls for all of them."""
    workflow = make_workflow({"n": {"reflect": PREDICT, "critic": "", **settings}}, folder)
    script = Script(player)
    database = folder / f"{hashlib.sha256(str(settings).encode()).hexdigest()[:8]}.db"
    outcomes = run_rows(workflow, [{"text": f"row {i}"} for i in range(rows)], script, database)
    return [o.prediction["answer"].count("o") / 6 for o in outcomes], len(script.requests)


@pytest.mark.slow
def test_with_a_good_verifier_it_beats_best_of_n_and_with_one_by_chance_it_does_not(folder: Path) -> None:
    rows, n = 120, 4
    good, calls = truth(folder, rows, rounds=n - 1, verifier=SHARE)
    best, best_calls = truth(folder, rows, rounds=0, samples=n, verifier=SHARE)
    assert calls <= best_calls == rows * n
    assert lower_bound([a - b for a, b in zip(good, best, strict=True)]) > 0.03
    blind, _ = truth(folder, rows, rounds=n - 1, verifier=CHANCE)
    blind_best, _ = truth(folder, rows, rounds=0, samples=n, verifier=CHANCE)
    assert lower_bound([a - b for a, b in zip(blind, blind_best, strict=True)]) <= 0, "no better"
    assert abs(statistics.mean(blind) - statistics.mean(blind_best)) < 0.06
    assert abs(statistics.mean(blind) - 0.5) < 0.06, "chance picks no better than chance"


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"of": {"code": "text -> answer", "source": "def f(text): return text"}}, "cannot improve answers of 'code'"),
        ({"of": {"predict": "text, criticism -> answer"}}, "the input 'criticism' is reserved"),
        ({"of": PREDICT, "samples": 3}, "need a verifier"),
        ({"of": PREDICT, "critic": ""}, "a critic, a verifier, or both"),
        ({"of": PREDICT, "verifier": {"predict": "text, label -> score: float"}}, "the verifier reads 'label'"),
        ({"of": PREDICT, "verifier": {"nothing": 1}}, "no node kind is named"),
    ],
)
def test_what_cannot_work_is_said_when_the_file_is_read(settings: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=message):
        make_workflow({"n": {"kind": "reflect", **settings}}, folder)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"score": True}, (1.0, "")),
        ({"score": 0.5, "feedback": "so"}, (0.5, "so")),
        ({"verdict": [0, "no"]}, (0.0, "no")),
        ({"score": {"score": 1, "feedback": "fine"}}, (1.0, "fine")),
    ],
)
def test_scores_are_read(found: dict[str, Any], expected: tuple[float, str]) -> None:
    assert read_score(found) == expected


@pytest.mark.parametrize("found", [{"score": 2}, {"score": "good"}, {}, {"score": None}])
def test_what_is_no_score_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match="a number in"):
        read_score(found)
