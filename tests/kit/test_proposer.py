"""What proposers share: which prompts were in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant
from tests.helpers.scripted import make_workflow, run_node

from workbench import Optimizer, Study, Workflow
from workbench.lm import Request, Response, is_blank, is_refusal
from workbench.run import Options, optimize
from workbench.study import Result
from workbench.task import Example
from workbench_kit.answers import read_objects, read_text
from workbench_kit.prompting import (
    Proposer,
    prompt_in_use,
    read_prompt,
    rewrite_request,
    show_results,
    why_unusable,
)

LONG = "Read the text to its end, and then give the one word that it is about."


def results(node: dict[str, Any], folder: Path, text: str = "some text") -> list[Result]:
    def say(request: Request) -> str:
        return "Mend it." if "Review the answer" in str(request.messages[0]["content"]) else "yes"

    outcome, _ = run_node(node, {"text": text}, folder, say)
    assert outcome.failure is None, outcome.message
    return [Result(Example("0", {"text": text}), 0.0, trace=outcome.trace)]


@pytest.mark.parametrize("prompt", [LONG, f"  {LONG}\nAnd more.", "Answer.", ""])
def test_a_prompt_that_was_shown_is_in_use(prompt: str, tmp_path: Path) -> None:
    found = results({"predict": "text -> answer", "instructions": prompt}, tmp_path)
    assert prompt_in_use("nodes.n.instructions", prompt, found) == "n"
    assert prompt_in_use("nodes.other.instructions", prompt, found) is None


@pytest.mark.parametrize("prompt", [LONG, "Answer.", "text"])
def test_a_short_prompt_is_not_found_within_a_line(prompt: str, tmp_path: Path) -> None:
    node = {"predict": "text -> answer", "instructions": "Answer. In one word."}
    found = results(node, tmp_path, text="No text? Answer. Then go.")
    assert prompt_in_use("nodes.n.instructions", prompt, found) is None


def test_what_improves_an_answer_is_in_use_below_its_node(tmp_path: Path) -> None:
    of = {"predict": "text -> answer", "instructions": "Answer."}
    node = {"reflect": of, "rounds": 1, "improve": "Mend all of it."}
    found = results(node, tmp_path)
    assert prompt_in_use("nodes.n.improve", "Mend all of it.", found) == "n"
    assert prompt_in_use("nodes.n.of.instructions", "Answer.", found) == "n.of"
    node["rounds"] = 0
    assert prompt_in_use("nodes.n.improve", "Mend all of it.", results(node, tmp_path)) is None


def test_an_empty_judge_of_a_vote_is_not_in_use(tmp_path: Path) -> None:
    node = {"ensemble": {"predict": "text -> answer", "instructions": "Answer."}, "samples": 2, "judge": ""}
    assert prompt_in_use("nodes.n.judge", "", results(node, tmp_path)) is None


@pytest.mark.parametrize("named", [True, False])
def test_what_the_file_says_of_the_role_holds_and_cut_answers_are_no_prompts(named: bool, tmp_path: Path) -> None:
    asked: list[tuple[float, int]] = []

    class Cutting(PlantedLM):
        async def complete(self, request: Request) -> Response:
            if "Rewrite" not in str(request.messages):
                return await super().complete(request)
            asked.append((request.temperature, request.max_tokens))
            whole = "cut" not in str(request.messages)
            text = "<prompt>\nSort with care.\n</prompt> and mo" if whole else "<prompt>\nSort with ca"
            return Response(text, "length", 3, 1, 0.0)

    class Asking(Optimizer):
        async def optimize(self, study: Study) -> Workflow:
            found = [
                await Proposer(study).prompt(
                    [{"role": "user", "content": f"Rewrite, {how}."}], study.best, "nodes.sort.instructions"
                )
                for how in ("cut", "whole")
            ]
            assert found == [None, "Sort with care."]
            return study.best

    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    file = tmp_path / "workflow.yaml"
    if named:
        role = {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1", "temperature": 0.1, "max_tokens": 4000}
        file.write_text(json.dumps({**json.loads(file.read_text()), "roles": {"proposer": role}}))
    told: list[str] = []
    report = optimize(
        file,
        database=tmp_path / "two.db",
        pool=Cutting(lambda r: 0.5),
        optimizers=[("asking", Asking())],
        listener=lambda event, data: told.append(data["message"]) if event == "optimizer_told" else None,
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.status == "finished", report.error
    assert asked == [(0.1, 4000)] * 2 if named else [(0.8, 500)] * 2
    assert len(told) == 1 and "roles: {proposer: {max_tokens: ...}}" in told[0]


@pytest.mark.parametrize("value", ["null", '{"role": "system"}', "[1, 2]", "7"])
def test_what_is_no_text_under_a_name_for_a_prompt_is_no_prompt(value: str) -> None:
    assert read_prompt(f'{{"instructions": {value}}}') is None
    assert read_prompt('{"instructions": "Sort with care."}') == "Sort with care."


@pytest.mark.parametrize(
    "form",
    [
        "<new_prompt>{}</new_prompt>",
        "<instructions>\n{}\n</instructions>",
        "### Instruction\n{}",
        "\u201c{}\u201d",
        "Here is the revised prompt:\n\n---\n{}\n---\n\nThis adds clarity.",
        "[[ ## instructions ## ]]\n{}\n[[ ## completed ## ]]",
        "Reasoning: it misses tickets.\n\n**New prompt:** {}",
        '{{"improved_prompt": "{}", "why": "clearer"}}',
    ],
)
def test_what_stands_around_a_prompt_is_none_of_it(form: str) -> None:
    assert read_prompt(form.format("Sort with care.")) == "Sort with care."


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("Here is a better instruction:\n\n```\nSort.\n```\nIt is clearer.", id="O1-fence"),
        pytest.param("<Prompt>Sort.</Prompt>", id="O1-tags"),
        pytest.param('{"prompt": "Sort."}', id="O1-json"),
        pytest.param(Response("<think>\nA short one.\n</think>\n\nSort.", "stop").without_thoughts().text, id="A5"),
    ],
)
def test_a_reported_answer_of_a_proposer_is_its_prompt(answer: str) -> None:
    assert read_prompt(answer) == "Sort."


def test_o4_an_object_with_an_end_of_line_in_a_text_is_read() -> None:
    assert list(read_objects('{"op": "set", "value": "line1\nline2"}')) == [{"op": "set", "value": "line1\nline2"}]


@pytest.mark.parametrize("answer", ['[search(query="x")]', '{"name": "functions.search", "arguments": {"query": "x"}}'])
def test_t8_calls_of_models_without_a_parser_are_calls(answer: str) -> None:
    found = read_text(answer, {"search": ["query", "k"]}, ["answer"])
    assert list(found.calls) == [{"name": "search", "arguments": {"query": "x"}}]


REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I\u2019m sorry, but I can\u2019t assist with that request.",
    "Sorry, I cannot help with this.",
    "I cannot comply with this request.",
    "I can't do that.",
    "As an AI language model, I am unable to generate such an instruction.",
    "I apologize, but I'm not able to provide that.",
    "Unfortunately, I won't be able to help you rewrite this prompt.",
    "I must decline.",
    "I'm unable to assist.",
    "<prompt>I'm sorry, but I can't help with that.</prompt>",
    "**I'm really sorry**, but I cannot fulfill this.",
    "I'm sorry, but I can't help with that. If you have another request, please let me know!",
    "I cannot write this prompt: it violates my guidelines.\n\nIs there something else? I'd be happy to help.",
    "Thank you for asking! I can't do that. I won't help with it.",
    "Lo siento, pero no puedo ayudar con eso.",
    "Es tut mir leid, aber ich kann dabei nicht helfen.",
    "\u62b1\u6b49\uff0c\u6211\u65e0\u6cd5\u534f\u52a9\u3002",
)
PROMPTS = (
    "Sort the ticket by its topic. If it is none, say 'I'm sorry, but I can't help with that.'",
    "I want you to sort tickets by topic.",
    "I can tell billing from technical: do so, too.",
    "You cannot answer with two labels.",
    "Unfortunately, many tickets are vague: pick the likeliest label.",
    "Sorry customers are billing cases. Sort the others by their words.",
    "We do not answer questions about prices; all others get a label.",
    "I don't write code. I classify mails into billing and technical.",
    "I don't write code. If you see a stack trace, choose technical.",
    "As an AI language model, I will not provide explanations, only the label. Choose billing or technical.",
)


def test_a_refusal_is_no_prompt(subtests: pytest.Subtests) -> None:
    for text in REFUSALS:
        with subtests.test(text):
            assert read_prompt(text) is None
    for text in PROMPTS:
        with subtests.test(text):
            assert read_prompt(text) == text


def test_r13_tags_around_nothing_are_nothing_and_around_a_refusal_a_refusal() -> None:
    assert (
        is_blank("<prompt></prompt>") and is_blank("<prompt>\n</prompt>\n") and not is_blank("<prompt>Sort.</prompt>")
    )
    for nothing in ("N/A", "none", "`null`", "{}", "[]", "...", "\u2026", "[REDACTED]", "<prompt>[redacted]</prompt>"):
        assert read_prompt(f"<prompt>{nothing}</prompt>") is None, nothing
    for text in ("Say none if there is none.", "[REDACTED] stands for names."):
        assert read_prompt(f"<prompt>{text}</prompt>") == text
    assert is_refusal("<prompt>I'm sorry, but I can't help with that.</prompt>")
    assert not is_refusal("<prompt>Say so if you can't help with that.</prompt>")


# Proposals that cannot help, as a model of 0.5B made them, and others of their kinds

CARDS = {"predict": "text -> label: Literal['card_linking', 'card_arrival', 'none']", "instructions": "Classify it."}
ROWS = (
    {"text": "What is the process to link the new card?", "label": "card_linking"},
    {"inputs": {"text": "Has it been sent?"}, "labels": {"label": "card_arrival"}},
)


def judge(text: str) -> str | None:
    workflow = make_workflow({"n": CARDS}, Path())
    request = rewrite_request(workflow, "nodes.n.instructions", tried=[("Sort it by topic.", 0.4)])
    return why_unusable(text, workflow.enabled_nodes["n"], ["Classify it.", "Sort it by topic."], request, ROWS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("classify it", "before"),
        ("- SORT it, by topic!", "before"),
        ("What is the process to link the new card?", "row"),
        ("text: what is the process to link the new card\nlabel: card_linking", "row"),
        ('{"text": "Has it been sent?", "label": "card_arrival"}', "row"),
        ('answer: {"label": "card_linking"}', "examples"),
        ("Label: card_arrival.", "row"),
        ("Classify it by topic. </prompt>", "tag"),
        ("Sort by topic. <PROMPT>", "tag"),
        ("Answer with the instruction alone, between", "repeats"),
        ("step: none", "none"),
        (
            'answer: {"label": "card_linking"}; task: {"text": "I want to link it", "label": "card_arrival"}; '
            "answer: {\"label\": \"none\"}; expected 'card_arrival', got 'none'",
            "examples",
        ),
        ('- score 0.00; task: {"text": "Where is my', "examples"),
        ("- label: 2 times card_arrival was taken for card_linking", "examples"),
    ],
)
def test_a_proposal_that_cannot_help_is_refused_for_free(text: str, why: str) -> None:
    assert why in (judge(text) or "")


@pytest.mark.parametrize(
    "text",
    [
        "Classify it by topic.",
        "Label the text. card_linking: about a new card.",
        "Text that asks how to link a card is card_linking.",
        "Better.",
        "Answer: one of card_linking and card_arrival.",
        "If no label fits, say none.",
        'Classify it by topic, e.g. answer: {"label": "card_linking"}',
    ],
)
def test_a_short_proposal_that_may_help_is_not_refused(text: str) -> None:
    assert judge(text) is None


def test_what_was_refused_gives_way_to_what_was_written_before_it() -> None:
    said = '<prompt>Sort by topic.<\\/prompt>\n<prompt>answer: {"label": "card_linking"}</prompt>'
    assert read_prompt(said, judge) == "Sort by topic." and read_prompt("<prompt>classify it</prompt>", judge) is None


def test_a_text_is_told_once_with_its_last_score_and_the_one_in_force_not_at_all() -> None:
    workflow = make_workflow({"n": CARDS}, Path())
    tried = [("Sort it.", 0.4), ("classify it", 0.7), ("sort it", 0.5)]
    content = rewrite_request(workflow, "nodes.n.instructions", tried=tried)[0]["content"]
    assert content.count("- score") == 1 and "- score 0.50: sort it" in content
    assert "say what each label stands for" in content and "own words" not in content


def test_what_is_confused_most_often_is_shown_first() -> None:
    def result(right: str, said: str) -> Result:
        return Result(Example("0", {"text": "t", "label": right}), float(right == said), prediction={"label": said})

    found = [result("a", "b"), result("a", "b"), result("c", "a"), *[result("b", "c")] * 3, *[result("a", "a")] * 5]
    lines = show_results(found, 4000).splitlines()
    assert lines[:2] == ["- label: 3 times b was taken for c", "- label: 2 times a was taken for b"]
    assert lines[2].startswith("- score 0.00") and not any("times c" in line for line in lines)
    assert "times" not in show_results([result("a" * 200, "b")] * 3, 4000), "a text is no label"
