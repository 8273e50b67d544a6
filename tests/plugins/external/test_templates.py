"""Templates of texts that vary, and the slots found in the calls of an agent."""

from __future__ import annotations

import time
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from workbench.lm import Response
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace
from workbench_external.slots.discover import find_slots
from workbench_external.slots.template import Template, fill, find_template, mark_inputs
from workbench_kit.prompting import prompt_in_use


@pytest.mark.parametrize(
    ("template", "text", "found"),
    [
        ("Be brief.", "Be brief.", {}),
        ("Be brief.", "Be brief. ", None),
        ("On {{1}} be {{2}}.", "On Monday be brief.", {"1": "Monday", "2": "brief"}),
        ("{{1}} and {{2}}", "a and b and c", {"1": "a", "2": "b and c"}),
        ("Use: {{1}}", "Use: ", {"1": ""}),
        ("ab{{1}}ba", "aba", None),
        ("Be {{1}}.", "Be kind!", None),
        ("({{1}}) [{{2}}]", "[x] (y)", None),
    ],
)
def test_a_template_tells_what_stands_in_its_holes(template: str, text: str, found: dict[str, str] | None) -> None:
    assert Template(template).match(text) == found


WORDS = st.lists(st.sampled_from(["office", "guide", "Monday", "answer", "kind"]), min_size=1, max_size=4)


@given(st.lists(WORDS.map(" ".join), min_size=2, max_size=4))
def test_a_template_found_in_texts_matches_each_and_gives_it_back(values: list[str]) -> None:
    texts = [
        f"You are the clerk of a large firm, {value}; answer all letters politely. End of {value}." for value in values
    ]
    template = find_template(texts)
    assert template is not None
    for text in texts:
        found = template.match(text)
        assert found is not None and fill(template.text, found) == text


def test_long_texts_are_compared_by_their_lines_and_words_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word by word, prompts with long passages take minutes: a search would seem to hang at its begin."""

    def counted(junk: None, one: list[str], other: list[str], autojunk: bool) -> SequenceMatcher[str]:
        assert len(one) * len(other) <= 1_000_000
        return SequenceMatcher(junk, one, other, autojunk)

    monkeypatch.setattr("workbench_external.slots.template.SequenceMatcher", counted)
    rules = [f"{n}. Rule {n} of the office of letters says how kind a clerk is to the {n}th guest." for n in range(300)]
    texts = [
        "\n".join([f"It is {day}.", *rules, f"You answer {name} of the office of letters.", *rules])
        for day, name in (("Monday", "Anna"), ("Friday", "Bob"))
    ]
    template = find_template([f"{text}\n{len(text)}" for text in texts])
    assert template is not None
    shown = template.text.replace("\n".join(rules), "RULES")
    assert shown == "It is {{1}}.\nRULES\nYou answer {{2}} of the office of letters.\nRULES\n{{3}}"
    passages = [" ".join(f"{word}{n}" for n in range(20_000)) for word in ("a", "b")]
    assert find_template([f"You read: {text}" for text in passages]) is None


def test_texts_that_share_little_have_no_template() -> None:
    assert find_template(["You plan a journey by train.", "Write code that sorts a list of numbers."]) is None


def test_inputs_dates_and_ids_are_holes() -> None:
    text = "Row 3f2504e0-4f89-11d3-9a0c-0305e82c3301 of 2026-11-23T21:10:04Z: how far is Rome? How far is Rome?"
    marked = mark_inputs(text, {"question": "how far is Rome?", "n": 3})
    assert marked == "Row {{0}} of {{0}}: {{question}} How far is Rome?"


@pytest.mark.parametrize(
    ("text", "inputs", "marked"),
    [
        (
            "About that question: how far?",
            {"question": "how far?", "kind": "question"},
            "About that {{kind}}: {{question}}",
        ),
        ("Name the category of: cat", {"animal": "cat"}, "Name the category of: {{animal}}"),
        ("\u7ffb\u8bd1hello\u4e3a", {"word": "hello"}, "\u7ffb\u8bd1{{word}}\u4e3a"),
        ("Both: a b, a b", {"one": "a b", "two": "a b"}, "Both: {{one}}, {{one}}"),
        ("So: a b c", {"short": "a b", "long": "a b c"}, "So: {{long}}"),
        pytest.param("So: " + "a b " * 90_000, {"text": "a b " * 90_000, "word": "text"}, "So: {{text}}", id="long"),
    ],
)
def test_inputs_are_marked_as_words_and_once(text: str, inputs: dict[str, object], marked: str) -> None:
    assert mark_inputs(text, inputs) == marked


def test_security_4_a_row_of_empty_lines_is_looked_for_in_time() -> None:
    """An agent that cuts such a row froze the loop: 8 lines took 8 s, and each further one six times as long."""
    row, began = "Start of it\n" + "            \n" * 8 + "the end of the row", time.process_time()
    assert mark_inputs(f"Sort: {row[:-8]}.", {"text": row}) == f"Sort: {row[:-8]}."
    assert time.process_time() - began < 1
    quoted = "> One -\r\n>\r\n> - two  \n# three"
    assert mark_inputs(f"Sort:\n{quoted}\nnow", {"text": "One -\n\n- two\nthree"}) == "Sort:\n> {{text}}\nnow"


def test_what_a_new_text_leaves_out_is_appended() -> None:
    assert (
        fill("Be kind to {{2}}.", {"1": "It is Monday.", "2": "guests", "3": " "})
        == "Be kind to guests.\nIt is Monday."
    )


def test_what_looks_like_a_hole_and_is_none_is_kept() -> None:
    assert fill("Say {{{x}}} and {{x}}.", {}) == "Say {{{x}}} and {{x}}."
    assert Template("Say {{{x}}} to {{1}}.", ["1"]).constants == ["Say {{{x}}} to ", "."]


def call(*messages: tuple[str, str], tools: Any = ()) -> CallRecord:
    said = tuple({"role": role, "content": content} for role, content in messages)
    return CallRecord(said, Response("x"), "task", "m", False, 0.0, tools=tuple(tools), number=1)


def span(question: str, *calls: CallRecord) -> list[Span]:
    return [Span("agent", "External", {"question": question}, calls=list(calls))]


SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds pages.",
        "parameters": {
            "type": "object",
            "properties": {"words": {"type": "string", "description": "What to look for."}},
        },
    },
}


def run_of(question: str, notes: str) -> list[Span]:
    """A planner and a writer, whose prompts begin alike; the writer is shown notes and an example."""
    plan = f"You are part of a team that answers questions. You plan the work. Today is 2026-11-{10 + len(notes)}."
    write = f"You are part of a team that answers questions. You write the final answer from these notes:\n{notes}"
    return span(
        question,
        call(("system", plan), ("user", f"Plan this: {question}"), tools=[SEARCH]),
        call(
            ("system", write), ("user", "How far is the moon?"), ("assistant", "384,400 km, Sir."), ("user", question)
        ),
    )


ROWS = [run_of("How far is Rome from here?", "maps"), run_of("Who wrote the Iliad?", "books and scrolls")]


def test_slots_are_found_by_call_site_example_tool_and_file(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills/SKILL.md").write_text("Look twice at it.")
    (tmp_path / "notes.md").write_text("not for agents")
    for name, blank in (("CLAUDE.md", "\n"), ("AGENTS.md", ""), ("GEMINI.md", "# TODO\n\n---\n")):
        (tmp_path / name).write_text(blank)
    found = find_slots(ROWS, tmp_path)
    assert {name: slot["match"] for name, slot in found.items()} == {
        "system": "You are part of a team that answers questions. You plan the work. Today is {{1}}.",
        "system_2": "You are part of a team that answers questions. You write the final answer from these notes:"
        "\n{{1}}",
        "turn_1": "How far is the moon?",
        "turn_2": "384,400 km, Sir.",
        "tool_search": "Finds pages.",
        "tool_search_words": "What to look for.",
        "file_skills_skill_md": "Look twice at it.",
    }
    assert all(slot["text"] == slot["match"] for slot in found.values())


def test_a_message_of_the_user_that_holds_an_input_is_a_slot_if_it_says_more() -> None:
    rows = [span(q, call(("user", f"Answer in one word, without a reason: {q}"))) for q in ("is it far?", "who is it?")]
    assert find_slots(rows, None)["user"]["match"] == "Answer in one word, without a reason: {{question}}"
    assert find_slots([span("is it far?", call(("user", "is it far?")))], None) == {}


def passages(row: int, of: str) -> str:
    return "\n".join(f"{of} {word}{row} of the {word[::-1]}{row * 7} in {word.upper()}{row}." for word in NOUNS)


NOUNS = ["stone", "river", "lamp", "market", "winter", "engine", "museum", "harbor", "letter", "copper"]
READ = "You are a careful clerk. Answer from the passages below.\n\nPassages:\n"
CHECK = "You check the work of a careful clerk, by these notes:\n"


def rag_row(row: int) -> list[Span]:
    """An agent whose prompts are short beside what it has found for a row."""
    question = f"What is number {row}?"
    read = f"{READ}{passages(row, 'The')}\n\nIf they do not say, answer: unknown."
    check = f"{CHECK}{passages(row, 'A')}\nQuestion: {question}"
    return span(question, call(("system", read), ("user", question)), call(("user", check)))


def test_prompts_with_passages_longer_than_themselves_are_one_for_each_call_site() -> None:
    found = find_slots([rag_row(row) for row in range(4)], None)
    assert {name: slot["match"] for name, slot in found.items()} == {
        "system": READ + "{{1}}\n\nIf they do not say, answer: unknown.",
        "user": CHECK + "{{1}}\nQuestion: {{question}}",
    }
    unseen = rag_row(9)[0].calls[0].messages[0]["content"]
    assert Template(found["system"]["match"]).match(unseen) == {"1": passages(9, "The")}


def test_prompts_that_begin_alike_stay_apart_where_each_is_said_in_several_rows() -> None:
    shared = "You belong to the office that answers letters of customers.\n"
    prompts = [f"{shared}{passages(n, 'Rule:')}" for n in (1, 2)]
    rows = [span("is it far?", call(("system", prompts[row % 2]), ("user", "is it far?"))) for row in range(4)]
    assert [slot["match"] for slot in find_slots(rows, None).values()] == prompts


def test_one_row_shows_no_examples() -> None:
    assert not [name for name in find_slots(ROWS[:1], None) if name.startswith("turn")]


def test_a_text_with_a_hole_and_a_description_of_a_tool_are_found_in_use() -> None:
    example = Example("1", {"question": "q"})
    trace = Trace("1", ROWS[0])
    results = [Result(example, 0.0, trace=trace)]
    for text in ("Today is {{1}}.", "Finds pages.", "You are part of a team that answers questions. You plan the"):
        assert prompt_in_use("nodes.agent.slots.x.text", text, results) == "agent", text
    assert prompt_in_use("nodes.agent.slots.x.text", "Another {{1}}.", results) is None
    assert prompt_in_use("nodes.other.slots.x.text", "Finds pages.", results) is None


def test_a_word_of_a_prompt_that_is_an_input_of_some_row_stays() -> None:
    system = "Label what you read as billing, technical or shipping."
    rows = [span(word, call(("system", system), ("user", word))) for word in ("billing", "shipping", "technical")]
    assert find_slots(rows, None)["system"]["match"] == system


def test_names_of_tools_that_look_alike_are_kept_apart() -> None:
    def tool(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {**SEARCH["function"], "name": name, "description": f"It is {name}."}}

    found = find_slots(
        [span("q", call(("user", "x"), tools=[tool("get-user"), tool("get_user"), tool("search")]))], None
    )
    told = {slot["match"] for slot in found.values() if slot["in"] == "tool"}
    assert told == {"It is get-user.", "It is get_user.", "It is search."}


def test_vectors_are_no_prompts() -> None:
    vectors = call(("user", "Represent this sentence for retrieval: is it far?"))
    vectors.number = 0
    assert find_slots([span("is it far?", vectors)], None) == {}
