"""Tool calls as models write them: what is read as a call, what is told to the model, and what is an answer."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings, strategies as st

from workbench.lm import Response
from workbench_kit.acting import read_calls
from workbench_kit.answers import answer_text, correction, read_text

TOOLS = {"lookup": ["key", "shelf"], "now": [], "python": ["code"], "search": ["query"]}
OUTPUTS = ["answer"]
LINE = '{"tool": "lookup", "arguments": {"key": "a"}}'
LOOKUP = {"name": "lookup", "arguments": {"key": "a"}}

CALLS = {
    "the form asked for": f"call: {LINE}",
    "after a thought": f"I need the tool.\ncall: {LINE}",
    "and an answer made up behind it": f"call: {LINE}\nresult: blue\nanswer: blue",
    "on the next line": f"Call:\n{LINE}",
    "over several lines": f"call: {json.dumps(json.loads(LINE), indent=2)}",
    "as Python": 'call: lookup(key="a")',
    "as Python, by position": 'I look.\ncall: lookup("a")',
    "as Python, of a dictionary": '- call: lookup({"key": "a"})',
    "as Python alone": 'lookup(key="a")',
    "words behind it": f"call: {LINE} to find the colour.",
    "within a line": f"I need the tool. call: {LINE}",
    "in a fence": f"```json\n{LINE}\n```",
    "in a fence behind the mark": f"call:\n```json\n{LINE}\n```",
    "in a fence with the mark": f"```\ncall: {LINE}\n```",
    "bare JSON": LINE,
    "bare JSON after a thought": f"I will look it up.\n{LINE}",
    "parameters for arguments": '{"name": "lookup", "parameters": {"key": "a"}}',
    "arguments beside the name": 'call: {"tool": "lookup", "key": "a"}',
    "the name as the key": 'call: {"lookup": {"key": "a"}}',
    "the name before the JSON": 'call: lookup {"key": "a"}',
    "as Hermes and Qwen do": '<tool_call>\n{"name": "lookup", "arguments": {"key": "a"}}\n</tool_call>',
    "as Qwen's coder does": "<tool_call>\n<function=lookup>\n<parameter=key>\na\n</parameter>\n</function>\n</tool_call>",  # noqa: E501
    "as Mistral does": '[TOOL_CALLS][{"name": "lookup", "arguments": {"key": "a"}}]',
    "as Llama does": '<|python_tag|>{"name": "lookup", "parameters": {"key": "a"}}',
    "as Llama does with a function": '<function=lookup>{"key": "a"}</function>',
    "as OpenAI's servers do": '{"tool_calls": [{"function": {"name": "lookup", "arguments": "{\\"key\\": \\"a\\"}"}}]}',
    "as ReAct does": 'Thought: I look.\nAction: lookup\nAction Input: {"key": "a"}',
    "single quotes": "call: {'tool': 'lookup', 'arguments': {'key': 'a'}}",
    "a comma too many": 'call: {"tool": "lookup", "arguments": {"key": "a",}}',
    "a brace too few": 'call: {"tool": "lookup", "arguments": {"key": "a"}',
    "curly quotes": "call: {“tool”: “lookup”, “arguments”: {“key”: “a”}}",
    "in bold and code": f"**call:** `{LINE}`",
    "another mark": f"Tool call: {LINE}",
    "behind hidden thoughts": f"<think>Should I write call: now?</think>\ncall: {LINE.replace(' ', '  ')}",
}


def test_a_call_is_read_as_models_write_it(subtests: pytest.Subtests) -> None:
    for text in CALLS.values():
        with subtests.test(text=text):
            assert list(read_text(text, TOOLS, OUTPUTS).calls) == [LOOKUP]


OTHERS = {
    "no arguments": ("call: now", {"name": "now", "arguments": {}}),
    "no arguments, as null": ('{"tool": "now", "arguments": null}', {"name": "now", "arguments": {}}),
    "no arguments, as ReAct says it": ("Action: now\nAction Input: None", {"name": "now", "arguments": {}}),
    "no arguments, as Python": ("call: now()", {"name": "now", "arguments": {}}),
    "ReAct's brackets": ("Action: search[two words]", {"name": "search", "arguments": {"query": "two words"}}),
    "ReAct's text": (
        "Action: search\nAction Input: two words",
        {"name": "search", "arguments": {"query": "two words"}},
    ),
    "code in a fence": ("```python\nprint(1)\n```", {"name": "python", "arguments": {"code": "print(1)"}}),
    "code of one call": (
        "```python\nprint(lookup('a'))\n```",
        {"name": "python", "arguments": {"code": "print(lookup('a'))"}},
    ),
    "code of one call, as Gemma fences it": (
        "```tool_code\nlookup('a')\n```",
        {"name": "python", "arguments": {"code": "lookup('a')"}},
    ),
    "code of one call in a fence of no language": (
        "```\nprint(lookup('a'))\n```",
        {"name": "python", "arguments": {"code": "print(lookup('a'))"}},
    ),
    "a list in a fence of Python": ("```python\n[1]\n```", {"name": "python", "arguments": {"code": "[1]"}}),
    "code behind its name": (
        "call: python\n```python\nprint(1)\n```",
        {"name": "python", "arguments": {"code": "print(1)"}},
    ),
    "a real line break in a text": (
        'call: {"tool": "python", "arguments": {"code": "a = 1\nprint(a)"}}',
        {"name": "python", "arguments": {"code": "a = 1\nprint(a)"}},
    ),
    "an unknown tool": (
        'call:\n{"tool": "lokup", "arguments": {"key": "a"}}',
        {"name": "lokup", "arguments": {"key": "a"}},
    ),
    "an unknown tool, as Python": ('call: lokup(key="a")', {"name": "lokup", "arguments": {"key": "a"}}),
    "values of all types": (
        "call: lookup(key=-1, shelf=[true, None, {'b': 0.5}])",
        {"name": "lookup", "arguments": {"key": -1, "shelf": [True, None, {"b": 0.5}]}},
    ),
}


@pytest.mark.parametrize(("text", "call"), OTHERS.values(), ids=OTHERS)
def test_names_and_arguments_of_other_calls(text: str, call: dict[str, object]) -> None:
    assert list(read_text(text, TOOLS, OUTPUTS).calls) == [call]


ANSWERS = [
    "answer: 7",
    "7",
    'answer: write call: lookup(key="a")',
    f"answer: write call: {LINE} and wait",
    f"answer: like this:\n```json\n{LINE}\n```",
    f"**answer:** see\n{LINE}",
    "answer: first\nAction: search[x]",
    'answer: {"tool": "lookup", "arguments": {"key": "a"}}',
    "Please call: 555-1234.",
    "call: 555-1234 between 9 and 5",
    "Call: the doctor",
    "call: me(at)home.org",
    "call: search and rescue",
    "Call: lookup the word in a dictionary.",
    "The call: it was lookup.",
    "He said: call: now or never",
    "You can call lookup(key='a') for that.",
    "The function lookup(key) gives a colour.",
    f"A line `call: {LINE}` calls the tool.",
    '{"name": "lookup", "age": 3}',
    '{"name": "Bob", "arguments": {"x": 1}}',
    '{"tool": "hammer", "price": 3}',
    '{"key": "a"}',
    "[1, 2, 3]",
    "```python\nx = 1\n```",
    "```json\n{broken}\n```",
    "Use <tool_call> tags.",
    "Action: run away",
    "call: {see below} and so on",
    'call: {"name": 1} is the record',
    "<think>call: now</think>\nanswer: 3",
    "<think>\ncall: now\nor\nAction: now\n</think>\nIt is 3.",
    'Or call: lookup(key="a") and see what comes.',
    "A recall: the car was sent back.",
]


def test_an_answer_that_mentions_calls_is_an_answer(subtests: pytest.Subtests) -> None:
    for text in ANSWERS:
        with subtests.test(text=text):
            tools = {name: known for name, known in TOOLS.items() if name != "python"}
            reading = read_text(text, tools, OUTPUTS)
            assert not reading.calls and reading.fault is None


def test_an_output_named_call_is_an_answer() -> None:
    assert read_text('call: lookup(key="a")', TOOLS, ["call"]).calls == ()
    assert list(read_text(f"call: {LINE}", TOOLS, ["call"]).calls) == [LOOKUP], "as ever, on one line"


FAULTS = {
    'call: {"tool": "lookup", "arguments": {key: a}}': ("double quotes at its character 34", True),
    "call: {oops}": ("not a JSON object that names a tool", True),
    "call: {}": ("names no tool", True),
    'call:\n{"arguments": {"key": "a"}}': ("names no tool", True),
    "call: lookup(key=a b)": ("the arguments of lookup(...) cannot be read", False),
    "call: lookup key=a": ("not a JSON object", False),
    '<tool_call>{"name": "lookup", "arguments": {"key": a b}}</tool_call>': ("its JSON cannot be read", False),
    '```json\n{"tool": "lookup", "arguments": {"key": "a" b c}}\n```': ("its JSON cannot be read", False),
    "Action: lookup\nAction Input: the key a": ("its arguments are not a JSON object", False),
    "<function=lookup>{key: a}</function>": ("its arguments cannot be read", False),
}


@pytest.mark.parametrize(("text", "fault"), FAULTS.items(), ids=FAULTS)
def test_an_attempt_that_cannot_be_read_is_a_fault(text: str, fault: tuple[str, bool]) -> None:
    reading = read_text(text, TOOLS, OUTPUTS)
    assert not reading.calls and fault[0] in str(reading.fault) and reading.certain is fault[1]


def test_a_correction_says_what_was_wrong_and_the_right_form() -> None:
    reading = read_text("call: lookup key=a", TOOLS, OUTPUTS)
    told = correction(reading, TOOLS)
    assert "its arguments are not a JSON object" in told
    assert 'call: {"tool": "lookup", "arguments": {"key": ..., "shelf": ...}}' in told
    assert 'call: {"tool": NAME, "arguments": {...}}' in correction(read_text("call: {}", TOOLS), TOOLS)


def test_a_readable_call_counts_before_a_broken_one() -> None:
    assert list(read_text(f"call: lookup key=a\nI mean:\n{LINE}", TOOLS, OUTPUTS).calls) == [LOOKUP]


@pytest.mark.parametrize(
    "text",
    ['call: {"tool": "lookup", "arguments": {"key": 12', "Action: search\nAction Input: Lond", "```python\nprint(1"],
)
def test_a_call_that_was_cut_is_never_completed(text: str) -> None:
    assert read_text(text, TOOLS, OUTPUTS).calls, "it is read where nothing was cut"
    reading = read_text(text, TOOLS, OUTPUTS, cut=True)
    assert not reading.calls and "cut off" in str(reading.fault)
    assert list(read_text(f"call:\n{LINE}\nand then", TOOLS, OUTPUTS, cut=True).calls) == [LOOKUP]


def test_a_fault_of_a_call_that_was_cut_is_the_cut() -> None:
    text = "call: {'tool': 'lookup', 'arguments': {'key': 'a"
    assert "JSON cannot be read" in str(read_text(text, TOOLS, OUTPUTS).fault)
    assert "cut off" in str(read_text(text, TOOLS, OUTPUTS, cut=True).fault)


def test_more_arguments_than_there_are_is_a_fault() -> None:
    reading = read_text('call: search("a", "b")', TOOLS, OUTPUTS)
    assert not reading.calls and "arguments of search(...) cannot be read" in str(reading.fault)


def test_without_tools_only_the_form_asked_for_is_read() -> None:
    assert list(read_text(f"call: {LINE}", {}).calls) == [LOOKUP]
    assert list(read_text("call: {oops}", {}).calls) == [{"name": None, "arguments": None}]
    assert read_text(LINE, {}).calls == () and read_text('lookup(key="a")', {}).calls == ()


def test_native_calls_come_first() -> None:
    native = ({"id": "1", "name": "now", "arguments": "{}"},)
    assert read_calls(Response(f"call: {LINE}", tool_calls=native)).calls == [
        {"id": "1", "name": "now", "arguments": {}}
    ]


@pytest.mark.parametrize("text", ["{" * 5000, "call: " + "[" * 100_000, '{"a":' * 5000, "call: lookup(" * 500])
def test_long_nonsense_is_read_quickly_and_is_no_call(text: str) -> None:
    assert not read_text(text, TOOLS, OUTPUTS).calls


FRAGMENTS = [
    "call:",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "(",
    ")",
    "lookup",
    '"tool":',
    '"arguments":',
    ",",
    "\n",
    " ",
    "```",
    "json",
    "python",
    "<tool_call>",
    "<function=lookup>",
    "Action:",
    "Action Input:",
    "answer:",
    "\\",
    "key=",
    "1e999",
    "é",
    "$",
    "<think>",
    "\x00",
    "[TOOL_CALLS]",
    "=",
    ":",
    "-",
    "print(",
]


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join), st.booleans())
def test_whatever_is_written_is_read_or_told_without_an_error(text: str, cut: bool) -> None:
    reading = read_text(text, TOOLS, OUTPUTS, cut)
    assert len(reading.calls) <= 1 and not (reading.calls and reading.fault)
    for call in reading.calls:
        json.dumps(call)
    if reading.fault:
        assert correction(reading, TOOLS).startswith("error: ")
    answer_text(text, OUTPUTS)


SPEECH = {
    "say: Where do you live?": "Where do you live?",
    " Say: where do\nyou live? ": "where do\nyou live?",
    "I do not know the city.\nsay: Where do you live?": "Where do you live?",
    "Thought: I must ask.\n**say:** Where?": "Where?",
    "<think>say: hm</think>\nsay: Where?": "Where?",
    "city: Oslo\nsay: it loud": None,
    "I know.\nsay: hi\ncity: Oslo": None,
    "They say: Oslo": None,
    "say:": None,
}


@pytest.mark.parametrize(("text", "said"), SPEECH.items(), ids=SPEECH)
def test_speech_is_read_after_a_thought_too(text: str, said: str | None) -> None:
    assert answer_text(text, ["city"]) == said
