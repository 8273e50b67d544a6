"""The text of a message that is recorded at any level."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workbench_traces.turn import asked_text, said_text

AI: dict[str, Any] = {"content": "In 1.", "type": "ai"}


@pytest.mark.parametrize(
    "recorded",
    [
        {"output": AI},
        {"output": {**AI, "additional_kwargs": {}, "response_metadata": {"model": "m"}, "id": "run-1"}},
        {"output": {"content": [{"type": "text", "text": "In 1."}], "type": "ai"}},
        {"output": {"role": "assistant", "content": "In 1."}},
        {"output": {"content": "In 1."}},
        {"output": {"output": AI}},
        {"outputs": {"answer": AI}},
        {"output": {"messages": [{"content": "When?", "type": "human"}, AI]}},
        {"output": [AI]},
        {"output": json.dumps(AI)},
        {"output": {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": AI}},
        {"response": {"message": {"role": "assistant", "content": "In 1."}}},
        {"generations": [[{"text": "In 1.", "message": {"kwargs": AI, "id": ["x", "AIMessage"]}}]]},
        {"generations": [[{"text": "In 1.", "generation_info": {"finish_reason": "stop"}, "type": "Generation"}]]},
        {"generations": [{"text": "In 1."}], "llm_output": {"model_name": "m"}},
        {"generations": [[{"text": "In 1."}, {"text": "In 2."}]]},
        {"outputs": {"generations": [[{"text": "In 1.", "message": AI}]]}},
        {"output": "In 1."},
        {"answer": "In 1."},
        {"output": [{"type": "text", "text": "In 1."}]},
    ],
)
def test_l7_the_answer_is_the_text_of_the_message(recorded: dict[str, Any]) -> None:
    assert said_text(recorded) == "In 1."


@pytest.mark.parametrize(
    "recorded",
    [
        {"input": {"content": "When?", "type": "human"}},
        {"question": {"content": "When?", "type": "human"}},
        {"inputs": {"input": {"role": "user", "content": "When?"}}},
        {"input": {"messages": [{"role": "user", "content": "When?"}]}},
    ],
)
def test_l7_the_question_is_the_text_of_the_message(recorded: dict[str, Any]) -> None:
    assert asked_text(recorded) == "When?"


@pytest.mark.parametrize("value", [{"label": "a", "score": 2}, [1, 2], {"name": "x", "items": ["y"]}])
def test_an_answer_that_is_json_of_its_own_stays(value: Any) -> None:
    assert json.loads(said_text({"output": value})) == value
