"""`apply` starts the changed agent and compares what it sends with what was proved (issue 34 point 6;
existing-agents.md finding 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.helpers.external_agents import CLIENT

from workbench.cli import cli
from workbench.workflow import parse_signature
from workbench_external.gateway import Ask
from workbench_external.trial import stand_in_answer

SYSTEM, USER = "You sort the post of an office.", "Name the kind of this: {text} now please"
FORM = ' Answer in this form: {"label": "a"}.'


def agent(system: str = repr(SYSTEM), user: str = "row['text'] + ' ?'", more: str = "") -> str:
    """An agent of one call, whose messages are these expressions."""
    return f"{CLIENT}\n{more}\nsystem = {system}\nuser = {user}\n" + (
        'print(chat([{"role": "system", "content": system}, {"role": "user", "content": user}])["content"])\n'
    )


def system_slot(text: str, match: str = SYSTEM, **more: Any) -> dict[str, Any]:
    return {"in": "system", "match": match, "text": text, **more}


def apply(place: Path, source: str, slots: dict[str, Any], *flags: str, **node: Any) -> Result:
    (place / "src").mkdir(exist_ok=True)
    (place / "src/agent.py").write_text(source)
    shape = {"external": "text -> label: Literal['a', 'b']", "command": ["python", "src/agent.py"], "slots": slots}
    spec = {"name": "t", "lm": "openai/m", "nodes": {"agent": {**shape, **node}}}
    (place / "out.yaml").write_text(json.dumps(spec))
    return CliRunner().invoke(cli, ["agent", "apply", str(place / "out.yaml"), "--to", str(place / "src"), *flags])


def line_of(folder: Path, name: str) -> str:
    lines = (folder / "src/agent.py").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name} = "))


@pytest.mark.parametrize(
    ("system", "more", "wanted"),
    [
        pytest.param(repr(SYSTEM), "", "{", id="sent as it is"),
        pytest.param(f"{SYSTEM!r}.format(text=row['text'])", "", "{{", id="str.format"),
        pytest.param(f"jinja2.Template({SYSTEM!r}).render()", "import jinja2", "{", id="Jinja"),
        pytest.param(f"string.Template({SYSTEM!r}).substitute()", "import string", "{", id="dollar"),
        pytest.param(
            f"Prompt({SYSTEM!r}).fill()",
            "class Prompt(str):\n  def fill(self): return self.format()",
            "{{",
            id="a class",
        ),
    ],
)
def test_3_a_new_text_is_written_in_the_way_in_which_the_agent_reads_it(
    system: str, more: str, wanted: str, tmp_path: Path
) -> None:
    """LangChain's, Haystack's and all other templates: nothing in the file says which it is, and the trial does."""
    text = SYSTEM + FORM
    found = apply(tmp_path, agent(system, more=more), {"system": system_slot(text)}, "--write")
    assert found.exit_code == 0, found.output
    assert f"form: {wanted}" in (tmp_path / "src/agent.py").read_text() and "1 file changed." in found.stderr


def test_security_3_what_no_request_needs_is_not_started_from(tmp_path: Path) -> None:
    """A text that a result names may be a command of the agent: what it would become is not run to find that out."""
    log = tmp_path / "ran"
    more = f"import os\nos.system('echo of the office >> {log}')"
    command = f"echo of the office >> {log}"
    slots = {"system": system_slot(SYSTEM + " Be kind."), "other": system_slot(f"touch {tmp_path}/pwn", match=command)}
    found = apply(tmp_path, agent(more=more), slots, "--write")
    assert "slots.other was not sent on the rows tried" in found.stderr and "1 file changed" in found.stderr
    assert "Be kind" in line_of(tmp_path, "system") and log.exists() and not (tmp_path / "pwn").exists()


def test_3_a_text_that_no_way_writes_is_left_and_shown(tmp_path: Path) -> None:
    """As google-adk fills `{kind}` in an instruction, and has no escape for it."""
    more = "import re\ndef fill(text): return re.sub(r'{+[^{}]*}+', lambda found: 'FILLED', text)"
    found = apply(
        tmp_path, agent(f"fill({SYSTEM!r})", more=more), {"system": system_slot(SYSTEM + " {kind}")}, "--write"
    )
    assert found.exit_code == 1 and "0 files changed." in found.stderr
    assert "cannot be written: the changed agent sends another text" in found.stderr
    assert "-You sort the post of an office. {kind}" in found.stderr and "FILLED" in found.stderr
    assert SYSTEM + "'" in line_of(tmp_path, "system")


def test_3_what_differs_is_left_and_the_rest_is_written(tmp_path: Path) -> None:
    more = "def shout(text): return text.replace('office', 'OFFICE').replace('letters', 'LETTERS')"
    source = agent(f"shout({SYSTEM!r})", repr(USER) + ".format(text=row['text'])", more)
    slots = {
        "system": system_slot("Sort letters.", SYSTEM),
        "user": {
            "in": "user",
            "match": "Name the kind of this: {{text}} now please",
            "text": "Kind of {{text}}?" + FORM,
        },
    }
    found = apply(tmp_path, source, slots, "--write")
    assert found.exit_code == 1, found.output
    assert ".format(text=row" in line_of(tmp_path, "user") and '{{"label": "a"}}' in line_of(tmp_path, "user")
    assert SYSTEM in line_of(tmp_path, "system")


def test_9_a_text_is_not_refused_for_what_another_one_did(tmp_path: Path) -> None:
    """As aider reads a file by a name that it also sends: with another name the file's own text is not sent."""
    more = "place = 'the rules of the office.md'\n"
    more += f"rules = {SYSTEM!r} if place.endswith('.md') else ''"
    source = agent("'Rules in ' + place + ': ' + rules", more=more)
    slots = {
        "system": system_slot("Sort the letters.", SYSTEM, part=True),
        "place": system_slot("the rules of the office.md\nBe kind.", "the rules of the office.md", part=True),
    }
    found = apply(tmp_path, source, slots, "--write")
    assert found.exit_code == 1 and "1 file changed." in found.stderr, found.output
    assert "slots.place is found in agent.py" in found.stderr and "slots.system" not in found.stderr
    assert "Sort the letters." in line_of(tmp_path, "rules") and "Be kind" not in line_of(tmp_path, "place")


def test_9_slots_of_one_place_of_the_source_are_tried_together(tmp_path: Path) -> None:
    """As smolagents tells a tool's description in its system message, too; beside a text that cannot be written."""
    more = "told = 'Look up the words of the office.'\nrules = ' '.join('Answer with one letter.'.split())\n"
    more += "tool = {'type': 'function', 'function': {'name': 'look_up', 'description': told, 'parameters': {}}}"
    source = agent("'Your tools: ' + told + ' ' + rules", more=more)
    source = source.replace('"content": user}])', '"content": user}], tools=[tool])')
    told, rules = "Look up the words of the office.", "Answer with one letter."
    slots = {
        "system": system_slot(f"{told}\nOnce.", told, part=True),
        "system_2": system_slot(f"{rules}\nAlways.", rules, part=True),
        "tool_look_up": {"in": "tool", "name": "look_up", "match": told, "text": f"{told}\nOnce."},
    }
    found = apply(tmp_path, source, slots, "--write")
    assert "slots.system_2 is found in agent.py" in found.stderr and "slots.tool_look_up" not in found.stderr
    assert "slots.system is" not in found.stderr and "1 file changed." in found.stderr, found.output
    assert 'told = """Look up the words of the office.' in (tmp_path / "src/agent.py").read_text()


def test_9_the_stand_in_sees_which_tools_it_called_where_they_are_told_in_words() -> None:
    """smolagents tells of calls and results in messages of the model and of the user."""
    tools = tuple({"type": "function", "function": {"name": name, "parameters": {}}} for name in ("look", "end"))
    asked = [{"role": "user", "content": "Sort: x"}]
    called = []
    for _ in range(3):
        answer = stand_in_answer(Ask("m", tuple(asked), tools), parse_signature("text -> label"))
        called.append(next((call["name"] for call in answer.tool_calls), "answered"))
        asked += [
            {"role": "assistant", "content": f"Calling tools: {json.dumps([dict(one) for one in answer.tool_calls])}"},
            {"role": "user", "content": "Observation: found"},
        ]
    assert called == ["look", "end", "answered"]


def test_3_texts_that_need_different_ways_are_each_written_in_its_own(tmp_path: Path) -> None:
    """A template that ends the agent, beside a text that is none."""
    source = agent(f"{SYSTEM!r}.format()", f"{USER.partition('{')[0]!r} + row['text']")
    match = USER.replace("{text} now please", "{{text}}")
    slots = {
        "system": system_slot(SYSTEM + FORM),
        "user": {"in": "user", "match": match, "text": f"Kind: {FORM} {{{{text}}}}"},
    }
    found = apply(tmp_path, source, slots, "--write")
    assert found.exit_code == 0, found.output
    assert "{{" in line_of(tmp_path, "system") and "{{" not in line_of(tmp_path, "user")


def test_3_a_text_that_stands_for_two_is_refused(tmp_path: Path) -> None:
    """One constant is the system message and a part of another one, which the proof did not change."""
    source = agent("RULE", "'About ' + RULE + row['text']", f"RULE = {SYSTEM!r}")
    found = apply(tmp_path, source, {"system": system_slot("Sort it.")}, "--write")
    assert found.exit_code == 1 and "sends another text" in found.stderr and SYSTEM in line_of(tmp_path, "RULE")


def test_3_a_check_alone_writes_nothing_and_no_model_is_asked(tmp_path: Path) -> None:
    found = apply(tmp_path, agent(), {"system": system_slot(SYSTEM + FORM)}, "--check")
    assert found.exit_code == 0, found.output
    assert "Checked: the changed agent sends 1 text as proved." in found.stderr
    assert "+system = " in found.stdout and SYSTEM + "'" in line_of(tmp_path, "system")


def test_3_the_folder_itself_is_never_where_it_is_tried(tmp_path: Path) -> None:
    more = "import pathlib\npathlib.Path(__file__).with_name('ran').write_text('x')\n"
    found = apply(
        tmp_path,
        agent(more=more),
        {"system": system_slot("Sort it now.")},
        "--write",
        folder="src",
        command=["python", "agent.py"],
    )
    assert found.exit_code == 0 and not (tmp_path / "src/ran").exists()


def test_3_a_text_that_no_request_needed_is_not_proved(tmp_path: Path) -> None:
    source = agent(more="OTHER = 'You write letters to the office.'")
    slots = {"system": system_slot("Sort it."), "system_2": system_slot("Write.", "You write letters to the office.")}
    found = apply(tmp_path, source, slots, "--write")
    assert found.exit_code == 1 and "slots.system_2 was not sent on the rows tried" in found.stderr
    assert "Sort it." in line_of(tmp_path, "system") and "You write" in line_of(tmp_path, "OTHER")


def test_3_tools_are_called_so_that_what_follows_is_sent(tmp_path: Path) -> None:
    """A second agent behind a tool, and the tool's own description."""
    tool = """
import inspect
def hand(words):
    \"\"\"Hands the letter to the writer.

    Args:
        words: What the writer should know.
    \"\"\"
words = {"type": "string", "description": "What the writer should know."}
told = inspect.getdoc(hand).split("Args")[0].strip()
tool = {"name": "hand", "description": told, "parameters": {"properties": {"words": words}}}
tools = [{"type": "function", "function": tool}]
"""
    source = f"""{CLIENT}{tool}
said = [{{"role": "system", "content": {SYSTEM!r}}}, {{"role": "user", "content": row["text"]}}]
answer = chat(said, tools=tools)
if answer.get("tool_calls"):
    said[0] = {{"role": "system", "content": "You write letters to the office."}}
    answer = chat(said)
print(answer["content"])
"""
    slots = {
        "system": system_slot("You write kind letters.", "You write letters to the office."),
        "tool_hand": {
            "in": "tool",
            "name": "hand",
            "match": "Hands the letter to the writer.",
            "text": "Hands it on.\nNow.",
        },
    }
    found = apply(tmp_path, source, slots, "--write")
    assert found.exit_code == 0, found.output
    now = (tmp_path / "src/agent.py").read_text()
    assert "You write kind letters." in now and '"""Hands it on.\n    Now.\n\n    Args:' in now


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"command": None, "url": "http://127.0.0.1:9/ask"}, "is a service that runs already"),
        ({"image": "agents"}, "runs in an image"),
        ({"command": ["python", "-c", "pass"]}, "is not started from"),
    ],
    ids=["service", "image", "elsewhere"],
)
def test_3_an_agent_that_cannot_be_started_is_written_by_the_users_word(
    node: dict[str, Any], told: str, tmp_path: Path
) -> None:
    slots = {"system": system_slot("Sort it.")}
    found = apply(tmp_path, agent(), slots, "--write", **node)
    assert found.exit_code == 1 and told in found.stderr and "--write --unchecked" in found.stderr
    assert SYSTEM in line_of(tmp_path, "system")
    assert apply(tmp_path, agent(), slots, "--write", "--unchecked", **node).exit_code == 0
    assert "Sort it." in line_of(tmp_path, "system")
    braces = apply(tmp_path, agent(), {"system": system_slot("Sort it." + FORM)}, "--write", "--unchecked", **node)
    assert braces.exit_code == 1 and "its { } would be read as fields if it is a template" in braces.stderr


def test_3_an_agent_that_asks_nothing_is_not_proved(tmp_path: Path) -> None:
    found = apply(tmp_path, f"import sys; sys.exit({SYSTEM!r})", {"system": system_slot("Sort it.")}, "--write")
    assert (
        found.exit_code == 1 and "the agent asked no model on a row: the agent ended with exit code 1" in found.stderr
    )


def test_security_5_a_result_that_is_not_trusted_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_TRUST", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = apply(tmp_path, agent(), {"system": system_slot("Sort it.")}, "--write", "--unchecked")
    assert "is not trusted yet" in str(found.exception)
    assert SYSTEM in line_of(tmp_path, "system")


def test_the_stand_in_answers_what_tools_and_schemas_allow() -> None:
    signature = parse_signature("text -> label: Literal['a', 'b'], why")
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["x", "y"]},
            "sure": {"type": "number"},
            "of": {"$ref": "#/$defs/Of"},
            "z": {"type": "null"},
        },
        "required": ["kind", "sure", "of"],
        "$defs": {"Of": {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}},
    }
    tools = tuple({"type": "function", "function": {"name": name, "parameters": schema}} for name in ("one", "two"))
    said = ({"role": "user", "content": "x"},)
    calls = [stand_in_answer(Ask("m", (*said, *({"role": "tool"},) * n), tools), signature) for n in range(3)]
    assert [call["name"] for answer in calls for call in answer.tool_calls] == ["one", "two"]
    assert json.loads(calls[0].tool_calls[0]["arguments"]) == {"kind": "x", "sure": 1.0, "of": {"n": [1]}}
    assert calls[2].text == "a"
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    assert json.loads(stand_in_answer(Ask("m", said, (), {"response_format": form}), signature).text)["of"] == {
        "n": [1]
    }
    plain = stand_in_answer(Ask("m", said, (), {"response_format": {"type": "json_object"}}), signature).text
    assert json.loads(plain) == {"label": "a", "why": "a text"}


@pytest.mark.parametrize(
    "source",
    [
        agent(user="row['text']").replace("}])", "}], logprobs=True, top_logprobs=2)"),
        agent(user="row['text']").replace("}])", '}], tools=[{"type": "custom", "custom": {"name": "patch"}}])'),
        agent(user="row['text']").replace("}])", "}], thought_budget=3)"),
    ],
    ids=["top_logprobs", "a tool that takes a text", "a field that nobody knows"],
)
def test_h8_what_passes_in_a_run_is_no_obstacle_to_a_trial(source: str, tmp_path: Path) -> None:
    """The stand-in refused what the run's gateway passes, so that such agents could not be written."""
    found = apply(tmp_path, source, {"system": system_slot("Sort it.")}, "--write")
    assert found.exit_code == 0, found.output
    assert "Sort it." in line_of(tmp_path, "system")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"instructions": SYSTEM, "input": "hi", "truncation": "auto"}),
        ("responses", {"instructions": SYSTEM, "input": "hi", "tools": [{"type": "web_search"}]}),
        ("messages", {"system": SYSTEM, "max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("messages", {"system": SYSTEM, "max_tokens": 9, "tools": [{"type": "bash_20250124", "name": "bash"}]}),
        ("completions", {"prompt": SYSTEM}),
    ],
    ids=["truncation", "a tool of OpenAI's", "thinking", "a tool of Anthropic's", "completions"],
)
def test_h8_each_api_can_be_tried(path: str, body: dict[str, Any], tmp_path: Path) -> None:
    body = {**body, **({"messages": [{"role": "user", "content": "hi"}]} if path == "messages" else {})}
    name = next(name for name in ("instructions", "system", "prompt") if name in body)
    del body[name]
    asked = CLIENT.replace("/chat/completions", f"/{path}").replace('["choices"][0]["message"]', "")
    asked = asked.replace('"messages": messages, ', "").replace("chat(messages, ", "chat(")
    source = f"{asked}\nsystem = {SYSTEM!r}\nbody = {body!r}\nchat(**{{**body, {name!r}: system}})\nprint('a')\n"
    place = "user" if path == "completions" else "system"
    slots = {"system": {"in": place, "match": SYSTEM, "text": "Sort it."}}
    found = apply(tmp_path, source, slots, "--write")
    assert found.exit_code == 0, found.output
    assert "Sort it." in line_of(tmp_path, "system")
