"""The node `predict`: what is asked, what is read from the answer, and what is a typed failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import run_node

from workbench.errors import LMError
from workbench.lm import Request, Response

YESNO = {"predict": "text -> label: Literal['yes', 'no']"}


def test_allowed_values_can_be_kept_from_the_model(tmp_path: Path) -> None:
    _, script = run_node({**YESNO, "show_values": False}, {"text": "x"}, tmp_path)
    assert "one of" not in script.requests[0].messages[0]["content"]


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response("I cannot", "refusal"), "refused"),
        (Response("", "empty"), "empty"),
        (Response(" \n"), "empty"),
        (Response("maybe"), "unparsed"),
        (Response("", "length"), "cut"),
    ],
)
def test_no_answer_is_a_failure_of_its_own_kind(response: Response, kind: str, tmp_path: Path) -> None:
    outcome, _ = run_node(YESNO, {"text": "x"}, tmp_path, lambda r: response)
    assert outcome.failure == kind and outcome.message and outcome.message.startswith("node 'n': ")


def test_cut_free_text_is_a_failure(tmp_path: Path) -> None:
    outcome, _ = run_node({"predict": "q -> a"}, {"q": "x"}, tmp_path, lambda r: Response("half an ans", "length"))
    assert outcome.failure == "cut"


def test_a_value_read_out_of_text_is_noted(tmp_path: Path) -> None:
    outcome, _ = run_node(YESNO, {"text": "x"}, tmp_path, lambda r: "It must be no!")
    assert outcome.prediction == {"label": "no"} and outcome.trace.spans[0].notes == {"fallback": 1}


def test_samples_are_fresh_draws_and_a_tie_goes_to_the_first(tmp_path: Path) -> None:
    outcome, script = run_node(
        {**YESNO, "samples": 4}, {"text": "x"}, tmp_path, lambda r: ["no", "yes", "yes", "no"][r.replica]
    )
    assert sorted(r.replica for r in script.requests) == [0, 1, 2, 3]
    assert {r.temperature for r in script.requests} == {0.7}
    assert outcome.prediction == {"label": "no"}
    assert outcome.trace.spans[0].notes["votes"] == {'"no"': 2, '"yes"': 2}


def test_samples_at_temperature_zero_are_one_call(tmp_path: Path) -> None:
    node = {**YESNO, "samples": 5, "decoding": {"temperature": 0.0}}
    outcome, script = run_node(node, {"text": "x"}, tmp_path)
    assert outcome.prediction == {"label": "yes"} and len(script.requests) == 1


def test_one_failed_sample_costs_only_its_vote(tmp_path: Path) -> None:
    def say(request: Request) -> str:
        if request.replica == 0:
            raise LMError("server", "down")
        return "no"

    assert run_node({**YESNO, "samples": 3}, {"text": "x"}, tmp_path, say)[0].prediction == {"label": "no"}

    def fail(request: Request) -> str:
        raise LMError("server", "down")

    assert run_node({**YESNO, "samples": 3}, {"text": "x"}, tmp_path, fail)[0].failure == "server"


def shown(script: Any) -> list[str]:
    users = [m["content"] for m in script.requests[0].messages if m["role"] == "user"]
    return [text.split("\n")[0].removeprefix("text: ") for text in users[:-1]]


DEMOS = [{"text": t, "label": "yes"} for t in ("red apple pie", "blue car", "red apple", "green tree", "red apple")]


def test_all_demos_are_shown_except_the_input_with_its_answer(tmp_path: Path) -> None:
    _, script = run_node({**YESNO, "demos": DEMOS}, {"text": "red apple"}, tmp_path)
    assert shown(script) == ["red apple pie", "blue car", "green tree"]


def test_retrieve_shows_so_many_of_the_nearest_even_if_the_input_stands_there_twice(tmp_path: Path) -> None:
    _, script = run_node({**YESNO, "demos": DEMOS, "retrieve": 2}, {"text": "red apple"}, tmp_path)
    assert len(shown(script)) == 2 and shown(script)[-1] == "red apple pie"
    _, script = run_node({**YESNO, "demos": DEMOS, "retrieve": 1}, {"text": "a green leaf"}, tmp_path)
    assert shown(script) == ["green tree"]


def test_demos_of_a_signature_without_inputs_are_shown(tmp_path: Path) -> None:
    _, script = run_node({"predict": "-> poem", "demos": [{"poem": "roses"}]}, {}, tmp_path)
    assert [m["content"] for m in script.requests[0].messages if m["role"] == "assistant"] == ["roses"]


def test_reasoning_is_asked_for_first_and_given_as_a_field(tmp_path: Path) -> None:
    node = {**YESNO, "reasoning": True}
    outcome, script = run_node(node, {"text": "x"}, tmp_path, lambda r: "It is clear.\nlabel: no")
    assert outcome.prediction == {"reasoning": "It is clear.", "label": "no"}
    system, user = (str(m["content"]) for m in script.requests[0].messages)
    assert system.endswith("\nReason step by step. Then write the label on a last line, as: label: ...")
    assert user == "text: x"  # a model that reads `reasoning:` at its end answers at once
    assert script.requests[0].max_tokens == 512


@pytest.mark.parametrize("said", ["label: no", "reasoning:\nlabel: no", "**Label:** no"])
def test_an_answer_without_the_reasoning_that_was_asked_for_counts(said: str, tmp_path: Path) -> None:
    outcome, _ = run_node({**YESNO, "reasoning": True}, {"text": "x"}, tmp_path, lambda r: said)
    assert outcome.prediction == {"reasoning": "", "label": "no"}, outcome.message


def test_a_reasoning_that_is_no_text_is_read_like_any_other_output(tmp_path: Path) -> None:
    node = {"predict": "text -> reasoning: Literal['deductive', 'inductive'], label: Literal['yes', 'no']"}
    said = "label: yes\n(it is deductive)"
    outcome, script = run_node(node, {"text": "x"}, tmp_path, lambda r: said)
    assert outcome.prediction == {"reasoning": "deductive", "label": "yes"}, outcome.message
    assert "step by step" not in str(script.requests[0].messages)


@pytest.mark.parametrize(
    ("node", "lm", "tokens"),
    [
        ({}, {}, 512),
        ({}, {"max_tokens": 100}, 100),
        ({"decoding": {"max_tokens": 3}}, {"max_tokens": 100}, 3),
        ({}, {"model": "openai/o3"}, 512 + 8192),
        ({"decoding": {"max_tokens": 3}}, {"model": "openai/qwen3-4b"}, 3 + 8192),
        ({"decoding": {"max_tokens": 3}}, {"model": "openai/qwen3-4b", "max_tokens": 4000}, 4000),
        ({}, {"extra": {"reasoning_effort": "low"}}, 512 + 8192),
        ({}, {"model": "openai/o3", "extra": {"reasoning_effort": "none"}}, 512),
        ({}, {"model": "openai/x", "extra": {"chat_template_kwargs": {"enable_thinking": False}}}, 512),
    ],
)
def test_a_model_that_thinks_gets_tokens_for_its_thoughts(
    node: dict[str, Any], lm: dict[str, Any], tokens: int, tmp_path: Path
) -> None:
    node = {**YESNO, **node, "lm": {"model": "openai/other", **lm}}
    _, script = run_node(node, {"text": "x"}, tmp_path, lambda r: "yes")
    assert script.requests[0].max_tokens == tokens


def test_a_node_may_have_a_language_model_of_its_own(tmp_path: Path) -> None:
    node = {**YESNO, "lm": {"model": "openai/other", "temperature": 0.5}}
    _, script = run_node(node, {"text": "x"}, tmp_path)
    assert set(script.models) == {"openai/other"} and script.requests[0].temperature == 0.5
    assert set(run_node(YESNO, {"text": "x"}, tmp_path)[1].models) == {"openai/scripted"}


ADAPTERS = {
    "chat": "[[ ## label ## ]]\nno\n\n[[ ## n ## ]]\n3\n\n[[ ## completed ## ]]",
    "json": '{"label": "no", "n": 3}',
    "xml": "<label>no</label>\n<n>3</n>",
}


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_dspys_adapters_show_demos_and_read_their_own_form(adapter: str, tmp_path: Path) -> None:
    node = {
        "predict": "text -> label: Literal['yes', 'no'], n: int",
        "adapter": adapter,
        "instructions": "Decide.",
        "demos": [{"text": "seen before", "label": "yes", "n": 1}],
    }
    outcome, script = run_node(node, {"text": "new"}, tmp_path, lambda r: ADAPTERS[adapter])
    assert outcome.prediction == {"label": "no", "n": 3} and not outcome.trace.spans[0].notes
    texts = [str(m["content"]) for m in script.requests[0].messages]
    assert "Decide." in texts[0] and "seen before" in texts[1] and "new" in texts[-1]
    again, _ = run_node({**node, "demos": []}, {"text": "x"}, tmp_path, lambda r: texts[2])
    assert again.prediction == {"label": "yes", "n": 1}, "a demo as DSPy writes it was not read back"


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_where_dspys_form_is_missed_the_plain_reading_is_noted(adapter: str, tmp_path: Path) -> None:
    node = {**YESNO, "adapter": adapter}
    outcome, _ = run_node(node, {"text": "x"}, tmp_path, lambda r: "no")
    assert outcome.prediction == {"label": "no"} and outcome.trace.spans[0].notes == {"fallback": 1}
    outcome, _ = run_node(node, {"text": "x"}, tmp_path, lambda r: "hm")
    assert outcome.failure == "unparsed"
