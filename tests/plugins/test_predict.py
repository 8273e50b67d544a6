"""The node `predict`: what is asked, what is read from the answer, and what is a typed failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from tests.scripted import make_workflow, run_node

from workbench import plain
from workbench.errors import LMError, NodeError, SpecError
from workbench.lm import Request, Response
from workbench.nodes import enabled
from workbench.signature import parse_signature

YESNO = {"predict": "text -> label: Literal['yes', 'no']"}


@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        ("question, context -> answer: int", ["question", "context"], [("answer", int)]),
        ("a: list[str] -> b: dict[str, int], c: bool", ["a"], [("b", dict[str, int]), ("c", bool)]),
        ("x -> y: Optional[int], z: float | None", ["x"], [("y", int | None), ("z", float | None)]),
        ("x -> y: Literal['a -> b', \"it's\"]", ["x"], [("y", Literal["a -> b", "it's"])]),
        ("x -> y: typing.Literal[-1, 0, 1]", ["x"], [("y", Literal[-1, 0, 1])]),
        ("x,\n  y -> z", ["x", "y"], [("z", str)]),
        ("-> poem", [], [("poem", str)]),
    ],
)
def test_signatures_are_read_in_dspys_notation(text: str, inputs: list[str], outputs: list[Any]) -> None:
    signature = parse_signature(text)
    assert [f.name for f in signature.inputs] == inputs
    assert [(f.name, f.type) for f in signature.outputs] == outputs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("text", "one '->'"),
        ("a -> b -> c", "one '->'"),
        ("text ->", "at least one output"),
        ("text -> a, a", "an output is named twice"),
        ("text, text -> a", "an input is named twice"),
        ("text -> a: int = 3", "a name and a type"),
        ("text -> *a", "a name and a type"),
        ("text -> a: Foo", "unknown type 'Foo'"),
        ("text -> a: Literal['x' 'y', 'z']", "between 'x' and 'y' a comma is missing"),
        ("text -> a: Literal['x',\n'y'\n'z']", "between 'y' and 'z' a comma is missing"),
        ("text -> a: list[int, str]", "unknown type"),
        ("text -> a: Optional[int, str]", "unknown type"),
        ("text -> a: dict[str]", "unknown type"),
        ("text -> a: None | None", "unknown type"),
        ("text -> a: None", "can only be null"),
        ("text -> a: Literal[x]", "quoted texts or numbers"),
        ("text -> a: Literal[()]", "quoted texts or numbers"),
        ("text -> a: Literal[[1]]", "quoted texts or numbers"),
        ("class -> a", "cannot read"),
        ("a): pass\ndef g(b -> c", "cannot read"),
        ("a): return 1 # -> c", "cannot read"),
        ("text -> a: Literal['b", "cannot read"),
    ],
)
def test_wrong_signatures_are_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_signature(text)
    assert words in caught.value.message
    assert caught.value.hint and "Literal['a', 'b']" in caught.value.hint


def test_plain_prompt_is_exactly_this(tmp_path: Path) -> None:
    node = {
        "predict": "text, n: int -> label: Literal['yes', 'no'], why", "instructions": " Decide. ",
        "descriptions": {"n": "how often it was said"},
        "demos": [{"text": "hm", "n": 2, "label": "no", "why": "doubt"}],
    }  # fmt: skip
    _, script = run_node(node, {"text": "sure", "n": 3}, tmp_path, lambda r: "yes\nwhy: clear")
    assert list(script.requests[0].messages) == [
        {"role": "system", "content": "Decide.\nn: how often it was said\nlabel: one of yes, no"},
        {"role": "user", "content": "text: hm\nn: 2\nlabel:"},
        {"role": "assistant", "content": "no\nwhy: doubt"},
        {"role": "user", "content": "text: sure\nn: 3\nlabel:"},
    ]
    assert script.requests[0].stop == ("\ntext:",)


def test_without_instructions_the_outputs_are_asked_for(tmp_path: Path) -> None:
    _, script = run_node({"predict": "q -> answer"}, {"q": "?"}, tmp_path)
    assert script.requests[0].messages[0]["content"] == "Give the answer."


def test_allowed_values_can_be_kept_from_the_model(tmp_path: Path) -> None:
    _, script = run_node({**YESNO, "show_values": False}, {"text": "x"}, tmp_path)
    assert "one of" not in script.requests[0].messages[0]["content"]


READ = [
    # signature, answer, value, whether it was read out of surrounding text
    ("label: Literal['yes', 'no']", "Label: YES.", "yes", False),
    ("label: Literal['yes', 'no']", "'no'\nbecause of that", "no", False),
    ("label: Literal['yes', 'no']", "I think no, not yes", "no", True),
    ("label: Literal['not_urgent', 'urgent']", "This is not urgent", "not_urgent", True),
    ("grade: Literal['A', 'A+', 'A-']", "A-", "A-", False),
    ("sign: Literal[-1, 0, 1]", "Rating: 1", 1, True),
    ("sign: Literal[-1, 0, 1]", "Rating: -1", -1, True),
    ("sign: Literal[-1, 0, 1]", "\u22121", -1, True),
    ("op: Literal['+', '-', '*', '/']", "*", "*", False),
    ("ok: bool", "True.", True, False),
    ("ok: bool", "no", False, True),
    ("n: int", "1,234", 1234, False),
    ("n: int", "12345678901234567890", 12345678901234567890, False),
    ("n: int", "3 plus 4 is 7.", 7, True),
    ("n: int", "about 10-20", 20, True),
    ("n: int", "\u22125", -5, False),
    ("n: int", "3.0", 3, False),
    ("x: float", ".5", 0.5, False),
    ("x: float", "-.5", -0.5, False),
    ("x: float", "$1,234.50", 1234.5, False),
    ("x: float", "1e-3", 0.001, False),
    ("items: list[str]", '["a", "b"]', ["a", "b"], False),
    ("items: list[int]", "```json\n[1, 2]\n```", [1, 2], True),
    ("items: list[int]", "1, 2", [1, 2], True),
    ("items: list[str]", "- a\n- b", ["a", "b"], True),
    ("items: list", "a, b", ["a", "b"], True),
    ("map: dict[str, int]", 'Here: {"x": 1}', {"x": 1}, True),
    ("maybe: Optional[int]", "5", 5, False),
    ("maybe: Optional[int]", "None", None, False),
    ("free: str", "Free: as it  is", "as it  is", False),
]


@pytest.mark.parametrize(("output", "answer", "value", "loose"), READ)
def test_each_type_is_read(output: str, answer: str, value: Any, loose: bool) -> None:
    values, read = plain.parse(parse_signature(f"text -> {output}"), answer)
    got = values[output.split(":")[0]]
    assert (got, type(got), read) == (value, type(value), loose)


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("label: Literal['yes', 'no']", "maybe"), ("label: Literal['yes', 'no']", "yesterday, nobody"),
        ("bit: Literal[0, 1]", "It is 0.5"), ("n: int", "none"), ("n: int", "3.5"), ("n: int", "1e400"),
        ("x: float", "1e400"), ("x: float", "nan"), ("items: list[int]", "one, two"),
        ("map: dict[str, int]", "x is 1"), ("maybe: Optional[int]", "many"), ("a: int, b", "3"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_type_is_unparsed(output: str, answer: str) -> None:
    with pytest.raises(NodeError) as caught:
        plain.parse(parse_signature(f"text -> {output}"), answer)
    assert caught.value.kind == "unparsed"


@pytest.mark.parametrize("answer", ["first words\nn: 3\nlabel: no", "first words\nlabel: no\nN : 3"])
def test_several_outputs_stand_on_lines_of_their_own_in_any_order(answer: str) -> None:
    signature = parse_signature("text -> free, n: int, label: Literal['yes', 'no']")
    assert plain.parse(signature, answer) == ({"free": "first words", "n": 3, "label": "no"}, False)
    reversed_ = parse_signature("text -> a: int, b: int")
    assert plain.parse(reversed_, "b: 2\na: 1") == ({"a": 1, "b": 2}, False)


@pytest.mark.parametrize(
    ("output", "answer", "value"),
    [
        ("label: Literal['yes', 'no']", "yes", "yes"), ("label: Literal['no', 'no answer']", "no", None),
        ("label: Literal['no', 'no answer']", "no answer", "no answer"), ("n: int", "12", None),
        ("n: int", "12 apples and", 12), ("ok: bool", "true", True), ("free", "some wor", None),
        ("free, n: int", "words\nn: 7 or", 7),
    ],
)  # fmt: skip
def test_a_cut_answer_counts_only_where_its_value_is_surely_whole(output: str, answer: str, value: Any) -> None:
    signature = parse_signature(f"text -> {output}")
    if value is None:
        with pytest.raises(NodeError) as caught:
            plain.parse(signature, answer, cut=True)
        assert caught.value.kind == "cut"
    else:
        assert plain.parse(signature, answer, cut=True)[0][signature.outputs[-1].name] == value


@pytest.mark.parametrize("text", ["yes", "a\nb: c", "ü 漢 {x}", "[1", "-"])
def test_a_rendered_demo_is_read_back(text: str) -> None:
    signature = parse_signature("q -> free, n: int, items: list[str], ok: bool")
    values = {"free": text, "n": -3, "items": ["x", "y, z"], "ok": False}
    assert plain.parse(signature, plain.assistant_text(signature, values)) == (values, False)


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response("I cannot", "refusal"), "refused"), (Response("", "empty"), "empty"), (Response(" \n"), "empty"),
        (Response("maybe"), "unparsed"), (Response("", "length"), "empty"),
    ],
)  # fmt: skip
def test_no_answer_is_a_failure_of_its_own_kind(response: Response, kind: str, tmp_path: Path) -> None:
    outcome, _ = run_node(YESNO, {"text": "x"}, tmp_path, lambda r: response)
    assert outcome.failure == kind and outcome.message and outcome.message.startswith("node 'n': ")


def test_cut_free_text_is_a_failure(tmp_path: Path) -> None:
    outcome, _ = run_node({"predict": "q -> a"}, {"q": "x"}, tmp_path, lambda r: Response("half an ans", "length"))
    assert outcome.failure == "cut"


def test_a_value_read_out_of_text_is_noted_and_can_be_switched_off(tmp_path: Path) -> None:
    outcome, _ = run_node(YESNO, {"text": "x"}, tmp_path, lambda r: "It must be no!")
    assert outcome.prediction == {"label": "no"} and outcome.trace.spans[0].notes == {"fallback": 1}
    strict, _ = run_node({**YESNO, "fallback": False}, {"text": "x"}, tmp_path, lambda r: "It must be no!")
    assert strict.failure == "unparsed"


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
    assert script.requests[0].messages[-1]["content"].endswith("\nreasoning:")
    assert script.requests[0].max_tokens == 512


@pytest.mark.parametrize(
    ("node", "tokens"),
    [
        ({}, 16), ({"adapter": "chat"}, 512), ({"adapter": "json"}, 512), ({"reasoning": True}, 512),
        ({"decoding": {"max_tokens": 3}}, 3), ({"predict": "text -> label"}, 512), ({"predict": "text -> n: int"}, 16),
        ({"predict": f"text -> label: Literal['{'long ' * 20}', 'b']"}, 58),
    ],
)  # fmt: skip
def test_short_typed_answers_get_few_tokens(node: dict[str, Any], tokens: int, tmp_path: Path) -> None:
    workflow = make_workflow({"n": {**YESNO, **node}}, tmp_path)
    assert (enabled(workflow)["n"].settings["max_tokens"] or 512) == tokens  # type: ignore[attr-defined]


def test_a_node_may_have_a_language_model_of_its_own(tmp_path: Path) -> None:
    node = {**YESNO, "lm": {"model": "openai/other", "temperature": 0.5}}
    _, script = run_node(node, {"text": "x"}, tmp_path)
    assert script.models == ["openai/other"] and script.requests[0].temperature == 0.5
    assert run_node(YESNO, {"text": "x"}, tmp_path)[1].models == ["openai/scripted"]


ADAPTERS = {
    "chat": "[[ ## label ## ]]\nno\n\n[[ ## n ## ]]\n3\n\n[[ ## completed ## ]]",
    "json": '{"label": "no", "n": 3}',
    "xml": "<label>no</label>\n<n>3</n>",
}


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_dspys_adapters_show_demos_and_read_their_own_form(adapter: str, tmp_path: Path) -> None:
    node = {
        "predict": "text -> label: Literal['yes', 'no'], n: int", "adapter": adapter, "instructions": "Decide.",
        "demos": [{"text": "seen before", "label": "yes", "n": 1}],
    }  # fmt: skip
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
