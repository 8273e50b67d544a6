"""Agents as code: the program node, and a meta agent whose archive only gains what works. No model is behind this."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench_adas.optimizer import read_agent
from workbench_adas.seeds import SEEDS

TWO_STEPS = """\
def agent(task, inputs):
    first = yield "one: " + inputs["question"]
    second = yield [{"prompt": "two " + first, "temperature": 0.5}, "three " + first]
    return second[0] + second[1]
"""


def program(source: str, signature: str = "question -> answer", **settings: Any) -> dict[str, Any]:
    return {"program": signature, "source": source, **settings}


def last(request: Request) -> str:
    return str(request.messages[-1]["content"])


def test_prompts_go_out_and_answers_come_back(tmp_path: Path) -> None:
    outcome, script = run_node(program(TWO_STEPS), {"question": "q"}, tmp_path, lambda r: f"<{last(r)}>")
    assert outcome.prediction["answer"] == "<two <one: q>><three <one: q>>"
    temperatures = {last(r): r.temperature for r in script.requests}
    assert temperatures == {"one: q": 0.0, "two <one: q>": 0.5, "three <one: q>": 0.0}
    assert make_workflow({"n": program(TWO_STEPS)}, tmp_path).enabled_nodes["n"].max_calls == 8


def test_a_second_run_answers_from_the_journal(tmp_path: Path) -> None:
    workflow, script = make_workflow({"n": program(TWO_STEPS)}, tmp_path), Script(lambda r: "x")
    first = run_rows(workflow, [{"question": "q"}], script, tmp_path / "run.db")
    again = run_rows(workflow, [{"question": "q"}], script, tmp_path / "run.db")
    assert first[0].prediction == again[0].prediction and len(script.requests) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        ("def agent(task, inputs):\n    while True:\n        yield task\n", "steps", "more than 8"),
        ("def agent(task, inputs):\n    yield 'a'\n    return 1 / 0\n", "code", "line 3"),
        ("def agent(task, inputs):\n    while True:\n        pass\n    yield ''\n", "code", "time"),
        ("def agent(task, inputs):\n    yield 7\n", "code", "yields text"),
        ("def agent(task, inputs):\n    while True:\n        yield []\n", "code", "empty list"),
        ("def agent(task, inputs):\n    yield {'prompt': 'a', 'temprature': 1}\n", "code", "temprature"),
        ("def agent(task, inputs):\n    yield {'prompt': 'a', 'temperature': 9}\n", "code", "from 0 to 2"),
        ("def agent(task, inputs):\n    yield task\n", "empty", "nothing"),
        ("def agent(task, inputs):\n    return open('/etc/passwd').read()\n", "code", "line 2"),
        ("def agent(task, inputs):\n    import socket\n    socket.create_connection(('127.0.0.1', 80))\n", "code", ""),
    ],
)
def test_bad_programs_fail_their_example_and_nothing_else(source: str, kind: str, told: str, tmp_path: Path) -> None:
    outcome, script = run_node(program(source, timeout=1.0), {"question": "q"}, tmp_path, lambda r: "x")
    assert outcome.failure == kind and told in str(outcome.message)
    assert len(script.requests) <= 8


@pytest.mark.parametrize(
    ("source", "told"),
    [("def agent(task):\n    return 1\n", "no agent"), ("def f(:\n", "not Python"), ("x = 1\n", "no agent")],
)
def test_what_is_no_program_is_told_when_the_file_is_read(source: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        make_workflow({"n": program(source)}, tmp_path)
    assert told in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
def test_each_seed_answers_within_its_prompts(name: str, tmp_path: Path) -> None:
    node = program(SEEDS[name][1], "question -> label: Literal['yes', 'no']")
    outcome, script = run_node(node, {"question": "q"}, tmp_path, lambda r: "yes")
    assert outcome.prediction["label"] == "yes" and 1 <= len(script.requests) <= 8


@pytest.mark.slow
def test_several_outputs_are_a_dict(tmp_path: Path) -> None:
    source = "def agent(task, inputs):\n    return {'a': 1, 'b': 'no'}\n"
    outcome, _ = run_node(program(source, "question -> a: int, b: bool"), {"question": "q"}, tmp_path)
    assert outcome.prediction == {"a": 1, "b": False}
    wrong = source.replace(", 'b': 'no'", "")
    outcome, _ = run_node(program(wrong, "question -> a: int, b: bool"), {"question": "q"}, tmp_path)
    assert outcome.failure == "code" and "no 'b'" in str(outcome.message)


def test_an_answer_is_read_as_name_thought_and_code() -> None:
    text = "name: Best\nthought: it is\n```python\ndef agent(task, inputs):\n    return 1\n```\nDone."
    assert read_agent(text) == ("Best", "it is", "def agent(task, inputs):\n    return 1\n")
    assert read_agent("def agent(task, inputs): pass")[2].startswith("def agent")


# the optimizer: a planted world in which asking with the word "carefully" is what helps

GOOD = "name: careful\nthought: t\n```python\ndef agent(task, inputs):\n    return (yield 'carefully ' + task)\n```"
BROKEN = "name: broken\nthought: t\n```python\ndef agent(task, inputs):\n    return (yield tsk)\n```"
SILENT = "name: silent\nthought: t\n```python\ndef agent(task, inputs):\n    x = yield task\n    return 'zebra'\n```"


def skill(request: Request) -> float:
    return 0.95 if "carefully" in last(request) else 0.4


class Meta:
    """A scripted meta agent: its answers in turn, the last one ever after; keeps what it was asked."""

    def __init__(self, *answers: str):
        self.answers, self.asked = list(answers), list[str]()

    def __call__(self, request: Request) -> str | None:
        if "You design agents" not in str(request.messages[0]["content"]):
            return None
        self.asked.append(last(request))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def run(folder: Path, meta: Meta, how: Any = skill, seed: int = 0, calls: int = 700, **settings: Any) -> Any:
    """`plant` with a scripted proposer in front of the planted task model."""
    from tests.helpers import planted

    class Both(planted.PlantedLM):
        async def complete(self, request: Request) -> Response:
            said = meta(request)
            if said is None:
                return await super().complete(request)
            self.requests += 1
            return Response(said, "stop", 100, 20, 0.0)

    original = planted.PlantedLM
    planted.PlantedLM = Both  # type: ignore[misc]
    try:
        options = {"seeds": False, "rows": 12, "rounds": 3, **settings}
        return plant(folder, how, {"adas": options}, calls=calls, seed=seed, rows=(24, 24, 40))[0]
    finally:
        planted.PlantedLM = original  # type: ignore[misc]


def source_of(report: Any) -> str:
    return str(report.winner.nodes["sort"].get("source", ""))


@pytest.mark.slow
def test_a_broken_agent_is_repaired_and_the_good_one_wins(tmp_path: Path) -> None:
    meta = Meta(BROKEN, BROKEN, GOOD, GOOD)  # the review finds nothing
    report = run(tmp_path, meta)
    assert "carefully" in source_of(report) and report.gain_shown
    repair = next(asked for asked in meta.asked if "on a task it fails" in asked)
    assert "tsk" in repair


@pytest.mark.slow
def test_an_agent_that_is_always_wrong_does_not_enter_the_archive(tmp_path: Path) -> None:
    """Its repairs fail, too: the generation is lost, and is tried again in its place."""
    meta = Meta(SILENT, SILENT, SILENT, GOOD)
    report = run(tmp_path, meta, rounds=1)
    assert "carefully" in source_of(report)
    assert any("all its answers are wrong" in asked or "it fails" in asked for asked in meta.asked)
    assert not any("zebra" in asked and "Agents so far" in asked for asked in meta.asked)


def test_a_proposer_that_never_writes_code_ends(tmp_path: Path) -> None:
    meta = Meta("I would rather not.")
    report = run(tmp_path, meta, rounds=2, attempts=2)
    assert (
        not source_of(report) and len(meta.asked) == 2 * 2 * 3
    )  # lost generations, each asked, reviewed and asked again


@pytest.mark.slow
def test_a_few_parents_are_shown_however_large_the_archive(tmp_path: Path) -> None:
    agents = [GOOD.replace("carefully", f"way{i}") for i in range(12)]
    meta = Meta(*agents)
    run(tmp_path, meta, calls=1500, rounds=12, show=2, chars=500, rows=8)
    shown = [len(re.findall(r"^score: ", asked, re.MULTILINE)) for asked in meta.asked]
    assert max(shown) == 2 and len(meta.asked) >= 12
    lengths = [len(asked) for asked, agents in zip(meta.asked, shown, strict=True) if agents == 2]
    assert max(lengths) < 1.5 * lengths[0]


@pytest.mark.slow
def test_the_seeds_alone_are_a_search(tmp_path: Path) -> None:
    """Where a second look helps, the seeds that look twice win; no proposer is asked."""

    def second(request: Request) -> float:
        return 0.95 if "Thoughts:" in last(request) else 0.4

    meta = Meta("never")
    report = run(tmp_path, meta, second, calls=2500, seeds=True, rounds=0)
    assert "Thoughts:" in source_of(report) and not meta.asked and report.gain_shown


@pytest.mark.slow
def test_against_random_search_and_where_nothing_helps(tmp_path: Path) -> None:
    """Random search over demos cannot find what only a program does; and equal agents claim nothing."""
    for seed in range(3):
        report = run(tmp_path / f"a{seed}", Meta(GOOD), seed=seed)
        drawn, _ = plant(tmp_path / f"r{seed}", skill, "random", calls=700, seed=seed, rows=(24, 24, 40))
        assert "carefully" in source_of(report) and not drawn.gain_shown
        assert not run(tmp_path / f"n{seed}", Meta(GOOD), lambda request: 0.5, seed=seed).gain_shown
