"""Agents as code: the program node, and a meta agent whose archive only gains what works. No model is behind this."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.run import Options, optimize
from workbench_adas.optimizer import ATTEMPTS, SHOWN, read_agent
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
    report = run(tmp_path, meta, rounds=2)
    assert not source_of(report) and len(meta.asked) == 2 * ATTEMPTS * (
        2 + ATTEMPTS - 1
    )  # lost generations, each asked, reviewed and asked again


@pytest.mark.slow
def test_a_few_parents_are_shown_however_large_the_archive(tmp_path: Path) -> None:
    agents = [GOOD.replace("carefully", f"way{i}") for i in range(12)]
    meta = Meta(*agents)
    run(tmp_path, meta, calls=1500, rounds=12, rows=8)
    shown = [len(re.findall(r"^score: ", asked, re.MULTILINE)) for asked in meta.asked]
    assert max(shown) == SHOWN and len(meta.asked) >= 12
    lengths = [len(asked) for asked, agents in zip(meta.asked, shown, strict=True) if agents == SHOWN]
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


# tools and nodes

LOOK = '''
def look(key: str) -> str:
    """Looks a key up."""
    with open(__file__ + ".log", "a") as log:
        log.write(key + " ")
    return {"a": "red", "b": "blue"}[key]
'''
WITH_TOOLS = """\
def agent(task, inputs):
    found = []
    for key in ("a", "x", "b"):
        try:
            found.append((yield {"tool": "look", "arguments": {"key": key}}))
        except ToolError as error:
            found.append("none")
    loud = {"node": "shout", "inputs": {"text": found[0]}}
    mixed = yield [loud, {"tool": "look", "arguments": {}}, "say " + found[2]]
    return found[1] + mixed[0] + str("error" in mixed[1]) + mixed[2]
"""


def test_a_program_calls_tools_and_nodes_and_a_failure_is_an_exception(tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text(LOOK, encoding="utf-8")
    nodes = {"shout": {"predict": "text -> loud", "instructions": "Shout."}}
    node = program(WITH_TOOLS, tools=["python:shelf.py:look"], nodes=nodes, calls=2)

    def say(request: Request) -> str:
        return "RED" if "Shout." in str(request.messages[0]["content"]) and "red" in last(request) else last(request)

    workflow, script = make_workflow({"n": node}, tmp_path), Script(say)
    first = run_rows(workflow, [{"question": "q"}], script, tmp_path / "run.db")
    assert first[0].prediction.get("answer") == "noneREDTruesay blue", first[0].message
    assert workflow.enabled_nodes["n"].max_calls == 2 == len(script.requests)
    again = run_rows(workflow, [{"question": "q"}], script, tmp_path / "run.db")
    assert again[0].prediction == first[0].prediction and len(script.requests) == 2
    assert (tmp_path / "shelf.py.log").read_text().split() == ["a", "x", "b"]


@pytest.mark.parametrize(
    ("asked", "kind", "told"),
    [
        ("{'tool': 'lok', 'arguments': {'key': 'a'}}", "code", "look"),
        ("{'tool': 'look', 'arguments': 'a'}", "code", "no call of a tool"),
        ("{'tool': 'look', 'args': {'key': 'a'}}", "code", "no call of a tool"),
        ("{'node': 'look', 'inputs': {}}", "code", "no call of a node"),
        ("{'tool': 'look', 'arguments': {'key': 'x'}}", "code", "line 2: ToolError: look: KeyError"),
        ("['a', {'node': 'shout', 'inputs': {'text': 'b'}}]", "steps", "more than 1"),
    ],
)
def test_wrong_calls_of_a_program_fail_its_example(asked: str, kind: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "shelf.py").write_text(LOOK, encoding="utf-8")
    source = f"def agent(task, inputs):\n    x = yield {asked}\n    return 'x'\n"
    nodes = {"shout": {"predict": "text -> loud"}}
    node = program(source, tools=["python:shelf.py:look"], nodes=nodes, calls=1)
    outcome, script = run_node(node, {"question": "q"}, tmp_path, lambda r: "x")
    assert outcome.failure == kind and told in str(outcome.message) and not script.requests


@pytest.mark.slow
def test_the_proposer_is_told_of_the_tools_of_the_agent_that_it_rewrites_and_the_winner_uses_them(
    tmp_path: Path,
) -> None:
    """Only the tool knows the answers."""
    (tmp_path / "shelf.py").write_text('def look(key: str) -> str:\n    """Looks up."""\n    return key[::-1]\n')
    written = """name: t\nthought: t\n```python
def agent(task, inputs):
    return (yield {"tool": "look", "arguments": {"key": inputs["key"]}})
```"""
    asked = list[str]()

    def say(request: Request) -> str:
        system = str(request.messages[0]["content"])
        asked.extend([system] if "You design agents" in system else [])
        return written if "You design agents" in system else "answer: no idea"

    for name, count in (("train", 6), ("val", 12), ("test", 30)):
        rows = [json.dumps({"key": f"{name}{i}", "answer": f"{name}{i}"[::-1]}) for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    file = {
        "name": "w",
        "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "metric": "exact_match(answer)",
        "nodes": {"n": {"agent": "key -> answer", "tools": ["python:shelf.py:look"]}},
        "optimize": [{"adas": {"seeds": False, "rounds": 1, "rows": 4}}],
        "budget": {"calls": 2000},
    }
    (tmp_path / "w.yaml").write_text(json.dumps(file))
    options = Options(out=str(tmp_path / "o.yaml"))
    report = optimize(tmp_path / "w.yaml", database=tmp_path / "run.db", pool=Script(say), options=options)
    assert report.best["val"] == 1.0 > report.baseline["val"], report.error
    assert report.winner.nodes["n"]["tools"] == ["python:shelf.py:look"]
    assert '- look({"key": "string"}): Looks up.' in asked[0]
