"""DSPy of 3.4 and of 3.5 behind one seam: the same requests, the same answers, and no version anywhere else."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy import lm15
from tests.helpers.dspy_35 import Prompt, obey_35
from tests.helpers.exported import Answers, as_sent, ask_program, loaded
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows
from tests.plugins.dspy.test_export import spec_of

from workbench.errors import NodeError
from workbench.lm import THOUGHT_TOKENS, Request
from workbench_dspy.export import export
from workbench_dspy.exported.predictor import PlainAdapter, signature
from workbench_dspy_seam import programs

ROOT = Path(__file__).parents[3]
ROW = {"text": "pay & <b>now</b>"}
PREDICT = {"predict": "text -> label: Literal['billing', 'other'], why: str", "instructions": "Sort the ticket."}
MODULE = """
import asyncio
import dspy


class Sorter(dspy.Module):
    signature = "text -> label"

    def __init__(self):
        super().__init__()
        self.think = dspy.ChainOfThought("text -> topic")
        self.sort = dspy.Predict("text, topic -> label")
        self.sort.demos = [dspy.Example(text="old", topic="t", label="other")]

    def forward(self, text):
        return self.sort(text=text, topic=self.think(text=text).topic)


class Awaited(Sorter):
    signature = "text -> label"

    async def aforward(self, text):
        topic = (await self.think.acall(text=text)).topic
        return await self.sort.acall(text=text, topic=topic)


class Looks(dspy.Module):
    signature = "text -> label"

    def __init__(self):
        super().__init__()
        self.sort = dspy.Predict("picture: dspy.Image -> label")

    def forward(self, text):
        return self.sort(picture=dspy.Image(url="https://example.org/a.png"))

"""


@pytest.fixture(autouse=True, params=["3.4", "3.5"])
def contract(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "3.5":
        obey_35(monkeypatch)
    return request.param


def say(request: Request) -> str:
    """An answer in the form that the prompt asks for, with the fields that it names."""
    text = "\n".join(str(m["content"]) for m in request.messages)
    known = {"reasoning": "r", "topic": "money", "label": "billing", "why": "so"}
    values = {name: value for name, value in known.items() if name in text}
    if "JSON object" in text:
        return json.dumps(values)
    if "[[ ##" in text:
        return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in values.items())
    form = "<{0}>{1}</{0}>" if "<label>" in text or "<topic>" in text else "{0}: {1}"
    return "\n".join(form.format(name, value) for name, value in values.items())


@pytest.mark.parametrize("adapter", ["chat", "json", "xml"])
def test_a_prompt_is_read_whichever_form_it_has(adapter: str, tmp_path: Path) -> None:
    demo = {"text": "old", "label": "other", "why": "w"}
    outcome, script = run_node({**PREDICT, "adapter": adapter, "demos": [demo]}, ROW, tmp_path, say)
    assert dict(outcome.prediction) == {"label": "billing", "why": "so"}, outcome.message
    messages = script.requests[0].messages
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert "Sort the ticket." in messages[0]["content"] and "old" in messages[1]["content"]
    assert "pay &" in messages[3]["content"] and not outcome.trace.spans[0].notes


@pytest.mark.parametrize("adapter", ["chat", "json", "xml", "plain"])
@pytest.mark.parametrize("name", ["Sorter", "Awaited"])
def test_a_module_is_asked_in_the_form_of_its_node(name: str, adapter: str, tmp_path: Path) -> None:
    (tmp_path / "sorter.py").write_text(MODULE, encoding="utf-8")
    node = {"dspy": f"python:sorter.py:{name}", "adapter": adapter}
    outcome, script = run_node(node, ROW, tmp_path, say)
    assert dict(outcome.prediction) == {"label": "billing"}, outcome.message
    first, second = ("\n".join(str(m["content"]) for m in r.messages) for r in script.requests)
    marks = {"chat": "with the field `[[ ##", "json": "JSON object", "xml": "<topic>"}
    assert [mark in first for mark in marks.values()] == [adapter == name for name in marks], first
    assert "money" in second and "old" in second


class _Sees(Script):
    reads_images = True


def test_a_picture_of_a_module_arrives(tmp_path: Path) -> None:
    """Its message was an empty one."""
    (tmp_path / "sorter.py").write_text(MODULE, encoding="utf-8")
    script = _Sees(say)
    workflow = make_workflow({"n": {"dspy": "python:sorter.py:Looks"}}, tmp_path)
    (outcome,) = run_rows(workflow, [ROW], script, tmp_path / "run.db")
    assert outcome.failure is None, outcome.message
    content = script.requests[0].messages[-1]["content"]
    assert PICTURE in content


@pytest.mark.parametrize("adapter", ["plain", "chat", "json", "xml"])
def test_an_exported_program_sends_what_the_workflow_sends(adapter: str, tmp_path: Path) -> None:
    demos = [{"text": "old", "label": "other", "why": "w"}]
    workflow = make_workflow({"sort": {**PREDICT, "adapter": adapter, "demos": demos}}, tmp_path)
    here, there = Script(say), Answers(say)
    run_rows(workflow, [ROW], here, tmp_path / "run.db")
    export(workflow, tmp_path / "out", spec=spec_of())
    with loaded(tmp_path / "out") as program:
        assert ask_program(program, ROW, there) == ({"label": "billing", "why": "so"}, "")
        with dspy.context(lm=there.lm(), disable_history=True):
            awaited = asyncio.run(program.acall(**ROW))
    assert dict(awaited.items()) == {"label": "billing", "why": "so"}
    assert as_sent(there.requests) == as_sent(here.requests) * 2


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("openai/qwen3-8b", 512 + THOUGHT_TOKENS), ("openai/gpt-4.1", 512)],
    ids=["nu13-thinks", "nu13-does-not"],
)
def test_nu13_an_exported_program_leaves_room_for_thoughts(model: str, tokens: int, tmp_path: Path) -> None:
    """An answer may begin with thoughts, or with the end of a line, which stops no server."""
    workflow = make_workflow({"sort": {"predict": "text -> label: Literal['billing', 'other']"}}, tmp_path)
    export(workflow, tmp_path / "out", spec=spec_of(lm=model))
    there = Answers(lambda request: "<think>\nother?\n</think>\n\nbilling")
    with loaded(tmp_path / "out") as program:
        assert ask_program(program, {"text": "t"}, there) == ({"label": "billing"}, "")
    (asked,) = there.requests
    assert (asked.max_tokens, asked.stop) == (tokens, ("\ntext:",))


def test_an_exported_adapter_renders_what_its_dspy_calls_a_prompt(contract: str) -> None:
    declared = signature({"text": str}, {"label": str}, "Sort.")
    prompt = PlainAdapter("Sort.").format(declared, [{"text": "old", "label": "other"}], ROW)
    assert isinstance(prompt, Prompt if contract == "3.5" else list)
    messages = programs.to_messages(prompt)
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert programs.to_messages(programs.to_prompt(messages)) == messages


PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "see"}, PICTURE]},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
    {"role": "user", "content": "so?"},
]


def test_calls_pictures_and_results_survive_the_way_there_and_back() -> None:
    prompt = Prompt(*(lambda r: (r.system, r.messages))(programs.make_request({"model": "m", "messages": MESSAGES})))
    assert programs.to_messages(prompt) == MESSAGES


def test_a_part_that_no_chat_has_is_named() -> None:
    heard = lm15.Message.user([lm15.AudioPart(data="AAAA", media_type="audio/wav")])
    with pytest.raises(NodeError, match="a part of type 'audio'"):
        programs.to_messages(Prompt(None, (heard,)))


@pytest.mark.parametrize("wrong", [{"messages": [{"role": "user", "content": "x"}]}, {"temperature": 1.0}])
def test_the_stand_in_refuses_what_3_5_refuses(wrong: dict[str, Any], contract: str) -> None:
    """Else these tests would show nothing."""
    lm = Answers(say).lm()
    request = None if "messages" in wrong else programs.make_request({"model": lm.model, "messages": MESSAGES[:2]})
    if contract == "3.5":
        with pytest.raises(TypeError):
            lm(request, **wrong)
    else:
        assert not isinstance(dspy.ChatAdapter().format(signature({"a": str}, {"b": str}, "x"), [], {"a": "1"}), Prompt)


def test_the_settings_of_clients_are_those_of_the_installed_dspy() -> None:
    from dspy.clients import backend_selection

    assert backend_selection.CLIENT_KEYS == programs.CLIENT_KEYS


#: What a version of DSPy may change.
_INSIDE = re.compile(r"dspy\.(clients|utils|adapters|_vendor|lm15|teleprompt\.gepa|predict\.)")


@pytest.mark.slow
def test_no_other_file_knows_dspys_inside(contract: str) -> None:
    if contract == "3.5":
        return
    found = []
    for path in [p for folder in ("core", "plugins", "contrib") for p in (ROOT / folder).rglob("*.py")]:
        if path.parent.name == "workbench_dspy_seam":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{a.name}" for a in node.names]
            if isinstance(node, ast.Attribute):
                names = [ast.unparse(node)]
            found += [f"{path.name}: {name}" for name in names if _INSIDE.match(name)]
    assert found == []
