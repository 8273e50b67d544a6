"""Rules on the words of instructions: what they take for a demand, and what they leave alone."""

from __future__ import annotations

import pytest

from workbench.workflow import parse_signature
from workbench_kit.prompting import (
    fewest_tokens,
    find_contradictions,
    find_unknown_tools,
    find_wrong_demos,
    tokens_of_answer,
    tokens_of_call,
)

TOOLS = {
    "search_web": "Searches the web for pages.",
    "get_order": "Looks up an order by id.",
    "shell": "Runs a command.",
}
KNOWN = {"text", "order_id", "query", "label"}


def unknown(text: str, tools: dict[str, str] = TOOLS, outputs: tuple[str, ...] = ("label",)) -> list[str]:
    found = find_unknown_tools(text, tools, ("instructions",), known=KNOWN, outputs=outputs)
    return [defect.message.split("'")[1] for defect in found]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Call the `refund` tool.", ["refund"]),
        ("use tool 'refund'.", ["refund"]),
        ("Use refund_order(order_id) to refund.", ["refund_order"]),
        ("Query the database tool.", ["database"]),
        ("You have access to the `calculator` and `wiki` tools.", ["calculator", "wiki"]),
        ("Tools: `search_web`, `calculator`", ["calculator"]),
        ("Invoke calculator(expression).", ["calculator"]),
        ("First use search_web, then call `summarize`. Then call `summarize` again.", ["summarize"]),
        ("Use translate_text to\n   translate.", ["translate_text"]),
    ],
)
def test_a_tool_that_is_not_there_is_found(text: str, names: list[str]) -> None:
    assert unknown(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "You are a helpful assistant. Use the tools when needed, and the appropriate tool for each sub-task.",
        "Use the search tool to find facts, then answer.",
        "Use the web-search tool, or the order lookup tool.",
        "Use `search_web` for recent events. Call get_order(order_id) first.",
        "Run `ls` and `cat file` in the shell. Use sum(numbers) or print(x) in what you write.",
        "If the tool returns an error, try another tool. Use the tool that fits best.",
        "Never use the `delete` tool, and don't call drop_table().",
        "Call the customer 'Sir'. Use the order_id from the text. Call it with `query`.",
        "Use snake_case for names, e.g. `my_value`. Use utf_8.",
        "Use the browser tool search_web.",
    ],
)
def test_words_that_name_no_tool_are_left_alone(text: str) -> None:
    assert unknown(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Summarise what the `search` function in this code does.",
        "The tool 'hammer' is mentioned: which material is it? Describe the tool called \"Excel\".",
        "Use the scoring tool below: 1 bad, 5 good. Use f(x) = x + 1.",
        "Call it spam if in doubt. Which tool would help? Answer with its name.",
    ],
)
def test_a_node_without_tools_may_be_asked_about_tools(text: str) -> None:
    assert unknown(text, {}) == []
    assert unknown("Use the `search` tool.", {}) == ["search"], "but not to use one"
    assert unknown("Use the `search` tool.", {}, ("plan",)) == [], "unless it writes of what others do"


def test_an_agent_that_writes_python_can_call_what_it_imports() -> None:
    assert unknown("Use the `numpy` tool. Call dot(a, b).", {"python": "Run Python code."}) == []


def contradictions(text: str, signature: str) -> int:
    return len(list(find_contradictions(text, parse_signature(signature), ("instructions",), known=KNOWN)))


CLOSED = "text -> label: Literal['a','b']"


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("Respond only with valid JSON.", CLOSED),
        ("Sort it. Return a single JSON object.", "text -> a, b"),
        ("Answer yes/no.", "text -> n: int"),
        ("Reply 'x', 'y' or 'a'.", CLOSED),
        ("Respond with exactly one word.", "text -> parts: list[str]"),
        ("Answer with a number from 1 to 5.", CLOSED),
        ("Respond in two sentences.", CLOSED),
        ("Put it into the output field `total`.", "text -> label"),
    ],
)
def test_a_demand_against_the_signature_is_found(text: str, signature: str) -> None:
    assert contradictions(text, signature) == 1
    assert contradictions(text.replace(" ", "\n\n  "), signature) == 1, "however it is wrapped"


def test_a_demand_that_the_signature_allows_is_left_alone(subtests: pytest.Subtests) -> None:
    for text, signature in [
        ("Classify the JSON. The input is in JSON format. Return the label.", CLOSED),
        ("Do not answer in JSON. Never respond with yes or no. You must not respond with a number.", CLOSED),
        ("Answer yes/no questions about the text with a or b.", CLOSED),
        ("Answer 'how' or 'why' questions with b.", CLOSED),
        ("Answer with a number if asked for one, else with its name.", CLOSED),
        ('Answer "needs review" or "done".', "text -> label: Literal['needs_review','done']"),
        ("Answer with the number of the team.", "text -> label: Literal['team 1','team 2']"),
        ("Respond with a number.", "text -> label: Literal[1,2,3]"),
        ("Respond with one word per line.", "text -> label: list[str]"),
        ("Return a JSON object with name and age.", "text -> person: {name: str, age: int}"),
        ("Return JSON. Answer in one sentence, with yes or no.", "text -> answer"),
        ("Answer in one sentence.", "text -> reason, label: Literal['a', 'b']"),
        ("Respond with 'true' or 'false'. Answer yes or no.", "text -> ok: bool"),
        ("Write the total into the field 'total'.", "text -> form: dict"),
        ("Write it into the field `query`. Give the answer in the output field `answer`.", "text -> answer"),
    ]:
        with subtests.test(text=text):
            assert contradictions(text, signature) == 0


def test_demos_are_compared_as_answers_are_read() -> None:
    signature = parse_signature("text -> label: Literal['needs review', 'done']")
    demos = [{"text": "a", "label": "Needs_Review"}, {"text": "b"}, {"text": "c", "label": "open"}]
    assert [defect.path for defect in find_wrong_demos(demos, signature)] == [("demos", 2)]


def test_tokens_are_a_lower_bound() -> None:
    assert fewest_tokens("yes") == 1 and fewest_tokens("needs_human-review") == 3 and fewest_tokens("a" * 17) == 3
    assert tokens_of_answer(parse_signature("t -> label: Literal['no', 'needs a person']")) == 3
    assert tokens_of_answer(parse_signature("t -> why, ok: bool")) == 4, "the text, the name, the value"
    assert tokens_of_answer(parse_signature("t -> ok: bool"), labels=True) == 2
    assert tokens_of_answer(parse_signature("t -> p: {name: str, age: int}")) == 4
    assert tokens_of_call("get_order", ["order_id"]) == 9


@pytest.mark.slow
def test_a_long_text_costs_no_more_than_reading_it() -> None:
    """Each of these would take minutes if a rule went over it once for each of its words."""
    for part in ("answer with ", "use the ", "`a`, ", "only ", " ", "call f_1("):
        text = "answer " + part * 20_000
        assert len(unknown(text)) <= 100
        assert contradictions(text, CLOSED) <= 2
