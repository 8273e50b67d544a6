"""Tool calls of checkpoints that run here: what their templates show, what is read, and which tokens are learned."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench_kit.lms.native_calls import (
    check_format,
    check_tools,
    read_native_calls,
    same_said,
    to_message,
    to_template,
)

ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
ASK = ({"role": "user", "content": "1 + 2?"},)


def read(text: str, finish: str = "stop", tools: Any = (ADD,)) -> Response:
    return read_native_calls(Response(text, finish), Request(ASK, tools=tools))


@pytest.mark.parametrize(
    ("text", "around", "calls"),
    [
        ('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', "", [("add", '{"a": 1}')]),
        ('I add.\n<tool_call>{"name": "add", "arguments": {}}</tool_call>', "I add.", [("add", "{}")]),
        (
            '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\n'
            '<tool_call>{"name": "sub", "arguments": {}}</tool_call>',
            "",
            [("add", '{"a": 1}'), ("sub", "{}")],
        ),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}', "", [("add", '{"a": 1}')]),
        ('{"name": "add", "parameters": {"a": 1}}', "", [("add", '{"a": 1}')]),
        ('<|python_tag|>{"name": "add", "parameters": {"a": 1}}', "", [("add", '{"a": 1}')]),
        ('[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]', "", [("add", '{"a": 1}')]),
        (
            '[{"name": "add", "arguments": {}}, {"name": "add", "arguments": {"b": 2}}]',
            "",
            [("add", "{}"), ("add", '{"b": 2}')],
        ),
    ],
)
def test_calls_are_read_in_the_forms_that_templates_teach(text: str, around: str, calls: list[Any]) -> None:
    found = read(text)
    assert (found.text, found.finish) == (around, "tool_calls")
    assert [(call["name"], call["arguments"]) for call in found.tool_calls] == calls
    ids = [call["id"] for call in found.tool_calls]
    assert len(set(ids)) == len(ids) and all(len(i) == 9 and i.isalnum() for i in ids), "as Mistral's templates want"


@pytest.mark.parametrize(
    "text",
    [
        "3",
        '{"name": "Ada", "arguments": {}}',  # an answer, since no tool has this name
        '{"name": "add", "arguments": "1"}',
        '{"answer": 3}',
        "[]",
        "<tool_call>add(1, 2)</tool_call>",
        '<tool_call>{"name": "add", "arguments": {}}</tool_call><tool_call>{</tool_call>',
        "[" * 100_000,
    ],
)
def test_other_answers_stay_as_they_are(text: str) -> None:
    assert read(text) == Response(text, "stop")


def test_without_tools_and_after_a_cut_nothing_is_read() -> None:
    text = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'
    assert read(text, tools=()).tool_calls == () and read(text, "length").tool_calls == ()


def test_templates_see_objects_and_the_identity_of_a_message_ignores_ids() -> None:
    message = to_message(read('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'))
    (shown,) = to_template([message])
    assert shown["tool_calls"][0]["function"] == {"name": "add", "arguments": {"a": 1}}
    other = {**message, "tool_calls": [{**message["tool_calls"][0], "id": "x"}]}
    other["tool_calls"][0]["function"] = {"name": "add", "arguments": '{"a":1}'}
    assert same_said(message) == same_said(other)
    other["tool_calls"][0]["function"] = {"name": "add", "arguments": '{"a":2}'}
    assert same_said(message) != same_said(other)


class Tokenizer:
    def __init__(self, template: str | None):
        self.chat_template = template


def test_a_template_that_shows_no_tools_is_refused() -> None:
    request = Request(ASK, tools=(ADD,))
    check_tools(request, Tokenizer("{% if tools %}{{ tools }}{% endif %}"))
    check_tools(Request(ASK), Tokenizer("{{ messages }}"))
    for template in ("{{ messages }}", None):
        with pytest.raises(LMError, match="native: false"):
            check_tools(request, Tokenizer(template))
    with pytest.raises(LMError, match="no response format"):
        check_format(Request(ASK, response_format={"type": "json_object"}))
