"""Requests are patched as they pass; what matches nothing passes as it is, and is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from workbench.lm import Response
from workbench.workflow import CallRecord, Span
from workbench_external.config import ExternalConfig
from workbench_external.gateway import Ask
from workbench_external.slots.discover import find_slots
from workbench_external.slots.patches import Patched, Patches

SYSTEM = {"in": "system", "match": "You are a guide. Today is {{1}}.", "text": "Guide kindly. ({{1}})"}
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds pages.",
        "parameters": {"type": "object", "properties": {"words": {"type": "string", "description": "To look for."}}},
    },
}


def patch(ask: Ask, inputs: Any = None, **settings: Any) -> Patched:
    config = ExternalConfig.model_validate({"signature": "question -> answer", "command": ["x"], **settings})
    return Patches(config, ("answer",)).apply(ask, inputs or {"question": "How far is Rome?"})


def ask(*messages: tuple[str, Any], tools: Any = ()) -> Ask:
    return Ask("gpt", tuple({"role": role, "content": content} for role, content in messages), tuple(tools))


def said(patched: Patched) -> list[Any]:
    return [message["content"] for message in patched.messages]


def test_a_system_message_is_replaced_with_what_varies_in_it() -> None:
    for role in ("system", "developer"):
        asked = ask((role, "You are a guide. Today is Monday."), ("user", "How far is Rome?"))
        patched = patch(asked, slots={"system": SYSTEM})
        assert said(patched) == ["Guide kindly. (Monday)", "How far is Rome?"]
        assert patched.used == ["system"] and not patched.missed and patched.messages[0]["role"] == role


def test_what_matches_no_slot_passes_and_is_counted() -> None:
    asked = ask(("system", "You are a cook."), ("user", "Hello"))
    patched = patch(asked, slots={"system": SYSTEM, "user": {"in": "user", "match": "Answer: {{question}}"}})
    assert said(patched) == ["You are a cook.", "Hello"]
    assert patched.missed == ["system: You are a cook.", "user: Hello"] and not patched.used


def test_a_message_that_is_the_input_alone_has_no_text_to_match() -> None:
    slots = {"user": {"in": "user", "match": "Summary: {{1}}. Answer: {{question}}"}}
    assert not patch(ask(("user", "How far is Rome?")), slots=slots).missed
    assert patch(ask(("user", "Say it: How far is Rome?")), slots=slots).missed == ["user: Say it: How far is Rome?"]


def test_a_call_site_has_its_own_model_and_decoding() -> None:
    slots = {
        "system": {**SYSTEM, "lm": "openai/small", "temperature": 0.0, "max_tokens": 9},
        "other": {"in": "system", "match": "You are a cook.", "lm": "openai/large"},
    }
    patched = patch(ask(("system", "You are a guide. Today is Monday.")), slots=slots)
    assert (patched.lm, patched.temperature, patched.max_tokens) == ("openai/small", 0.0, 9)
    assert patch(ask(("system", "You are a cook.")), slots=slots).lm == "openai/large"


def test_texts_among_the_parts_of_a_message_are_replaced_and_images_stay() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,xx"}}
    asked = ask(("user", [{"type": "text", "text": "Answer: How far is Rome?"}, image]))
    slot = {"in": "user", "match": "Answer: {{question}}", "text": "{{question}} Think first."}
    assert said(patch(asked, slots={"user": slot})) == [
        [{"type": "text", "text": "How far is Rome? Think first."}, image]
    ]


def test_descriptions_of_tools_and_parameters_are_replaced_where_they_are_as_they_were() -> None:
    slots = {
        "tool": {"in": "tool", "name": "search", "match": "Finds pages.", "text": "Finds pages by words."},
        "words": {"in": "parameter", "name": "search", "parameter": "words", "match": "To look for.", "text": "Nouns."},
        "gone": {"in": "parameter", "name": "search", "parameter": "page", "match": "A number.", "text": "x"},
    }
    patched = patch(ask(("user", "Hi"), tools=[TOOL]), slots=slots)
    function = patched.tools[0]["function"]
    assert function["description"] == "Finds pages by words."
    assert function["parameters"]["properties"] == {"words": {"type": "string", "description": "Nouns."}}
    assert patched.missed == ["gone: None"] and TOOL["function"]["description"] == "Finds pages."
    other = {**TOOL, "function": {**TOOL["function"], "description": "Finds books."}}
    changed = patch(ask(("user", "Hi"), tools=[other]), slots={"tool": slots["tool"]})
    assert changed.tools[0]["function"]["description"] == "Finds books."
    assert changed.missed == ["tool: Finds books."]


def test_descriptions_of_parts_of_a_parameter_are_found_and_replaced() -> None:
    city = {"properties": {"city": {"type": "string", "description": "Where to look."}}}
    schema = {
        "properties": {"place": {**city, "description": "A place."}, "all": {"type": "array", "items": city}},
        "$defs": {"Day": {"properties": {"month": {"description": "A month."}}}},
    }
    tool = {"type": "function", "function": {"name": "go", "description": "Goes.", "parameters": schema}}
    asked = ask(("user", "How far is Rome?"), tools=[tool])
    call = CallRecord((), Response("x"), "task", "m", False, 0.0, tools=(tool,), number=1)
    slots = find_slots([[Span("agent", "External", {}, calls=[call])]], None)
    assert {slot["parameter"]: slot["match"] for slot in slots.values() if slot["in"] == "parameter"} == {
        "place": "A place.",
        "place.city": "Where to look.",
        "all.city": "Where to look.",
        "Day.month": "A month.",
    }
    changed = {name: {**slot, "text": slot["match"].upper()} for name, slot in slots.items()}
    function = patch(asked, slots=changed).tools[0]["function"]
    assert function["parameters"]["properties"]["place"]["properties"]["city"]["description"] == "WHERE TO LOOK."
    assert function["parameters"]["properties"]["all"]["items"]["properties"]["city"]["description"] == "WHERE TO LOOK."
    assert function["parameters"]["$defs"]["Day"]["properties"]["month"]["description"] == "A MONTH."
    assert tool["function"]["description"] == "Goes." and city["properties"]["city"]["description"] == "Where to look."


def test_descriptions_in_the_schema_of_an_answer_are_found_and_replaced() -> None:
    schema = {
        "description": "A sorted ticket.",
        "properties": {"label": {"type": "string", "description": "One of four words."}, "why": {"type": "string"}},
    }
    form = {"type": "json_schema", "json_schema": {"name": "Ticket", "schema": schema, "strict": True}}
    asked = replace(ask(("user", "How far is Rome?")), settings={"response_format": form})
    call = CallRecord((), Response("x"), "task", "m", False, 0.0, response_format=form, number=1)
    slots = find_slots([[Span("agent", "External", {}, calls=[call])]], None)
    assert {name: (slot["name"], slot["parameter"], slot["match"]) for name, slot in slots.items()} == {
        "field_ticket": ("Ticket", "", "A sorted ticket."),
        "field_label": ("Ticket", "label", "One of four words."),
    }
    assert patch(asked, slots=slots).response_format == form
    changed = {name: {**slot, "text": slot["match"].upper()} for name, slot in slots.items()}
    patched = patch(asked, slots=changed)
    sent = patched.response_format["json_schema"]
    assert sent["strict"] and sent["schema"]["description"] == "A SORTED TICKET."
    assert sent["schema"]["properties"]["label"]["description"] == "ONE OF FOUR WORDS." and not patched.missed
    assert schema["description"] == "A sorted ticket.", "what the agent sent is not changed"
    schema["properties"]["label"]["description"] = "Another text."
    assert patch(asked, slots=changed).missed == ["field_label: Another text."]
    plain = replace(asked, settings={"response_format": {"type": "json_object"}})
    assert patch(plain, slots=changed).response_format == {"type": "json_object"}


def test_instructions_are_appended_to_the_first_system_message_or_make_one() -> None:
    asked = ask(("system", "You are a cook."), ("user", "Hi"), ("system", "Be brief."))
    assert said(patch(asked, instructions="Be kind.")) == ["You are a cook.\n\nBe kind.", "Hi", "Be brief."]
    patched = patch(ask(("user", "Hi")), instructions="Be kind.")
    assert [*patched.messages] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]


def test_demos_stand_before_the_message_with_the_inputs_in_its_words() -> None:
    asked = ask(("system", "Guide."), ("user", "Tell me: How far is Rome?"), ("assistant", "..."))
    demos = [{"question": "Is it warm?", "answer": "Yes."}]
    patched = patch(asked, demos=demos)
    assert said(patched) == ["Guide.", "Tell me: Is it warm?", "Yes.", "Tell me: How far is Rome?", "..."]
    missed = patch(ask(("user", "Go on.")), demos=demos)
    assert said(missed) == ["Go on."] and missed.missed == ["demos: no user message contains an input"]


def test_turns_of_the_agents_own_examples_are_replaced() -> None:
    asked = ask(("user", "How far is the moon?"), ("assistant", "Far."), ("user", "How far is Rome?"))
    slot = {"in": "turn", "match": "Far.", "text": "384,400 km."}
    assert said(patch(asked, slots={"turn_1": slot})) == ["How far is the moon?", "384,400 km.", "How far is Rome?"]


def test_short_inputs_are_not_looked_for_in_what_an_agent_says() -> None:
    asked = ask(("user", "Step 1: add 1 to each of the 12 numbers; a=1"))
    demos = [{"a": "7", "answer": "8"}]
    assert patch(asked, {"a": "1"}, demos=demos).missed == ["demos: no user message contains an input"]
    slot = {"in": "user", "match": "Step 1: add 1 to each of the 12 numbers; a={{a}}"}
    patched = patch(asked, {}, demos=demos, slots={"user": slot})
    assert said(patched)[0] == "Step 1: add 1 to each of the 12 numbers; a=7", "by its template, also without a row"


@pytest.mark.parametrize(
    ("message", "new", "sent"),
    [
        (json.dumps({"do": "Sort the post.", "text": "x"}), 'Say "é"\n{a}', r"Say \"\u00e9\"\n{a}"),
        ('{"do":"Sort the post.","text":"x"}', 'Say "é"\n{a}', r"Say \"é\"\n{a}"),
        ('{"do": "Sort the post.", no JSON', 'Say "é"', 'Say "é"'),
        ("Sort the post. [x]", 'Say "é"', 'Say "é"'),
    ],
)
def test_a_part_of_json_is_written_as_a_part_of_json(message: str, new: str, sent: str) -> None:
    """As the program writes it, from a source with the new text."""
    slot = {"in": "user", "part": True, "match": "Sort the post.", "text": new}
    assert said(patch(ask(("user", message)), slots={"x": slot})) == [message.replace("Sort the post.", sent)]
