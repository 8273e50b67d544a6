"""Agents with many tools: registering by name, the nearest ones, and what either saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import make_workflow, run_node

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench_kit.acting import Tool, describe_tool
from workbench_tools.agent import Agent
from workbench_tools.toolset import Shown, ToolIndex, count_prompt_characters, find_crossover


def write_tools(folder: Path, count: int) -> list[str]:
    """Tools `thing0`, `thing1`, ...; each gives its number."""
    lines = []
    for i in range(count):
        what = f"Gives the number of thing {i}, which is {'very ' * 12}useful for questions about thing{i}."
        lines.append(f'def thing{i}(unit: str) -> int:\n    """{what}"""\n    return {i}\n')
    (folder / "things.py").write_text("\n".join(lines))
    return [f"python:things.py:thing{i}" for i in range(count)]


def caller(name: str):
    """A script that calls a tool as soon as it may, registering it first where its description is not shown."""

    def say(request: Request) -> str:
        last, text = str(request.messages[-1]["content"]), str(request.messages)
        if last.startswith("result"):
            return f"answer: {last.removeprefix('result: ')}"
        if f"- {name}(" not in text:
            return "call: " + json.dumps({"tool": "register", "arguments": {"tool": name}})
        return "call: " + json.dumps({"tool": name, "arguments": {"unit": "m"}})

    return say


def agent(folder: Path, count: int, **settings: Any) -> dict[str, Any]:
    return {"agent": "question -> answer", "tools": write_tools(folder, count), **settings}


def made(folder: Path, count: int, **settings: Any) -> Agent:
    node = make_workflow({"n": agent(folder, count, **settings)}, folder).enabled_nodes["n"]
    assert isinstance(node, Agent)
    return node


def sent(requests: list[Request]) -> int:
    return sum(len(str(m["content"])) for r in requests for m in r.messages)


def test_a_lazy_agent_gives_the_same_answer_and_sends_half(tmp_path: Path) -> None:
    row = {"question": "number of thing7?"}
    full, every = run_node(agent(tmp_path, 60), row, tmp_path, caller("thing7"))
    lazy, few = run_node(agent(tmp_path, 60, register="lazy"), row, tmp_path, caller("thing7"))
    assert full.prediction["answer"] == lazy.prediction["answer"] == "7"
    assert len(every.requests) == 2 and len(few.requests) == 3
    assert sent(few.requests) < 0.5 * sent(every.requests)
    assert "- thing7(" not in few.requests[0].messages[0]["content"]


@pytest.mark.parametrize("count", [3, 20, 60])
def test_measured_prompts_are_those_of_the_cost_model(tmp_path: Path, count: int) -> None:
    """System prompts and registrations, which are what the model is about; tools of equal size."""
    (tmp_path / "same").mkdir()
    names = [f"tool{i:02d}" for i in range(count)]
    text = "\n".join(f'def {n}(unit: str) -> int:\n    """Does it."""\n    return 1\n' for n in names)
    (tmp_path / "same.py").write_text(text)
    tools = [f"python:same.py:{n}" for n in names]
    counted = []
    for register in ("all", "lazy"):
        node = {"agent": "question -> answer", "tools": tools, "register": register}
        _, script = run_node(node, {"question": "q"}, tmp_path, caller("tool01"))
        texts = [str(m["content"]) for r in script.requests for m in r.messages]
        counted.append(sum(len(t) for t in texts if t.startswith("registered") or "You can use tools" in t))
    one = make_workflow({"n": {"agent": "question -> answer", "tools": tools}}, tmp_path).enabled_nodes["n"]
    assert isinstance(one, Agent)
    fixed = len(one.system(Shown(one.tools, (), lazy=False)))
    assert tuple(counted) == count_prompt_characters(list(one.tools.values()), fixed)


def test_the_crossover_is_where_the_advice_turns(tmp_path: Path) -> None:
    some = made(tmp_path, 40, register="lazy")
    tools, fixed = list(some.tools.values()), len(some.system(Shown(some.tools, (), lazy=False)))
    count = find_crossover(tools[:1], fixed)
    alike = [tools[0]] * 100
    assert 1 < count < 40
    assert count_prompt_characters(alike[:count], fixed)[1] < count_prompt_characters(alike[:count], fixed)[0]
    assert (
        count_prompt_characters(alike[: count - 1], fixed)[1] >= count_prompt_characters(alike[: count - 1], fixed)[0]
    )
    assert "less" in some.warnings()[0]
    assert "more than showing all" in made(tmp_path, 2, register="lazy").warnings()[0]
    assert made(tmp_path, 2).warnings() == []


def test_what_is_not_registered_is_refused_and_wrong_names_are_mended(tmp_path: Path) -> None:
    steps = iter(
        [
            {"tool": "thing1", "arguments": {"unit": "m"}},
            {"tool": "register", "arguments": {"tool": "thng1"}},
            {"tool": "register", "arguments": {"tool": "thing1"}},
            {"tool": "register", "arguments": {"tool": "thing1"}},
            {"tool": "nothing", "arguments": {}},
            {"tool": "register", "arguments": "thing1"},
            {"tool": ["thing1"], "arguments": {}},
            {"tool": "register", "arguments": {"tool": ["thing1"]}},
        ]
    )
    told: list[str] = []

    def say(request: Request) -> str:
        told.append(str(request.messages[-1]["content"]))
        step = next(steps, None)
        return f"call: {json.dumps(step)}" if step else "answer: done"

    outcome, _ = run_node(agent(tmp_path, 5, register="lazy", max_steps=11), {"question": "q"}, tmp_path, say)
    assert outcome.prediction["answer"] == "done"
    assert "not registered yet" in told[1] and "thing1" in told[2] and told[2].startswith("error")
    assert told[3].startswith("registered. - thing1(") and "registered already" in told[4]
    assert "no tool 'nothing'" in told[5] and told[6].startswith("error")
    assert "no tool ['thing1']" in told[7] and told[8] == "error: name one tool"


def test_the_nearest_tools_are_shown_and_the_others_can_be_registered(tmp_path: Path) -> None:
    question = {"question": "what about thing33?"}
    _, alone = run_node(agent(tmp_path, 50, nearest=3), question, tmp_path, caller("thing33"))
    shown = [line for line in alone.requests[0].messages[0]["content"].splitlines() if line.startswith("- thing")]
    assert len(shown) == 3 and "- thing33(" in shown[0] and len(alone.requests) == 2
    outcome, both = run_node(agent(tmp_path, 50, nearest=3, register="lazy"), question, tmp_path, caller("thing5"))
    assert outcome.prediction["answer"] == "5" and len(both.requests) == 3


def test_queries_that_a_model_writes_find_what_the_task_does_not_name(tmp_path: Path) -> None:
    def say(request: Request) -> str:
        if "search queries" in str(request.messages[0]["content"]):
            return "1. something unheard of\n2. questions about thing33"
        return caller("thing33")(request)

    node = agent(tmp_path, 50, nearest=2, queries=2)
    outcome, script = run_node(node, {"question": "how many?"}, tmp_path, say)
    assert outcome.prediction["answer"] == "33" and len(script.requests) == 3
    assert made(tmp_path, 50, nearest=2, queries=2).max_calls == made(tmp_path, 50).max_calls + 1


def test_questions_that_a_tool_answers_make_it_found() -> None:
    def never(arguments: Any) -> Any:
        raise AssertionError

    tools = [Tool(n, d, {}, never) for n, d in (("WeatherNow", "Forecasts."), ("CarRent", "Vehicles for hire."))]
    assert ToolIndex(tools, {}).nearest(["is a weather report there"], 1) == ["WeatherNow"]
    assert ToolIndex(tools, {}).nearest(["do I need an umbrella"], 1) == ["WeatherNow"]  # a tie: in their order
    asked = {"CarRent": ["should I take an umbrella in the convertible"]}
    assert ToolIndex(tools, asked).nearest(["do I need an umbrella"], 1) == ["CarRent"]


def test_natively_too(tmp_path: Path) -> None:
    offered: list[list[str]] = []

    def say(request: Request) -> Response | str:
        names = [t["function"]["name"] for t in request.tools or ()]
        offered.append(names)
        if str(request.messages[-1]["content"]).startswith("result"):
            return "answer: 4"
        if "thing4" in names:
            call = {"id": "b", "name": "thing4", "arguments": '{"unit": "m"}'}
        else:
            call = {"id": "a", "name": "register", "arguments": '{"tool": "thing4"}'}
        return Response("", "tool_calls", 5, 1, 0.0, tool_calls=(call,))

    outcome, _ = run_node(agent(tmp_path, 6, register="lazy", native=True), {"question": "q"}, tmp_path, say)
    assert outcome.prediction["answer"] == "4"
    assert offered == [["register"], ["thing4", "register"], ["thing4", "register"]]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"queries": 2}, "the number of tools to find"),
        ({"asked": {"thng1": ["?"]}}, "no tool 'thng1'"),
        (
            {"functions": [{"name": "register", "source": "def register(): pass"}], "register": "lazy"},
            "named 'register'",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as raised:
        made(tmp_path, 3, **settings)
    assert told in f"{raised.value} {raised.value.hint}"


def test_a_described_tool_is_one_line() -> None:
    tool = Tool("t", "First.\nSecond.", {"properties": {"a": {"type": "string"}}}, lambda arguments: None)
    assert describe_tool(tool) == '- t({"a": "string"}): First.'
