"""What `sft` learns from besides its own good rollouts: masks and mixtures, token by token."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import candidates, learned_rows, needs_torch, run
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import SpecError
from workbench.lm import Response
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace
from workbench_training.metric import ToolN1
from workbench_training.rewards import Rollout
from workbench_training.rollouts.sft_data import (
    ChatTokenizer,
    SFTExample,
    extract_drawn_rows,
    extract_examples,
    label_examples,
    read_general_chats,
    sample_general,
    splice_examples,
    tokenize_example,
)
from workbench_training.rollouts.token_rows import Row
from workbench_training.sft import SFT

ERRORS = re.compile(r"^error")


@pytest.fixture(scope="module")
def tokens() -> ChatTokenizer:
    """The character tokenizer of the tiny models: `<u>` and `<a>` begin a message, `<end>` ends it."""
    needs_torch()
    from tests.helpers.tiny_lm import make_tokenizer

    made = make_tokenizer()

    def encode(messages: Any) -> list[int]:
        text = made.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return made(text, add_special_tokens=False)["input_ids"]

    return ChatTokenizer(made, {made.eos_token_id}, encode)


def chat(*texts: str) -> list[dict[str, Any]]:
    """Messages, beginning with the user's, in turn."""
    return [{"role": "assistant" if i % 2 else "user", "content": t} for i, t in enumerate(texts)]


def shown(row: Row, tokens: ChatTokenizer) -> list[tuple[str, int]]:
    """(text, mask) of runs of tokens with one mask, the prompt as None."""
    runs: list[tuple[str, int]] = []
    for token, m in zip(row.token_ids, row.mask, strict=True):
        text = tokens.tokenizer.decode([token])
        if runs and runs[-1][1] == m:
            runs[-1] = (runs[-1][0] + text, m)
        else:
            runs.append((text, m))
    return runs


def test_an_answer_is_tokenized_as_the_template_writes_it_after_the_prompt(tokens: ChatTokenizer) -> None:
    (row,) = tokenize_example(SFTExample(chat("ab", "cd"), frozenset({1}), "t"), tokens)
    assert tokens.tokenizer.decode(row.prompt_ids) == "<u>ab<end><a>"
    assert shown(row, tokens) == [("cd<end>", 1)]


def test_o2_an_answer_is_learned_as_written_where_the_template_leaves_thoughts_out(
    tokens: ChatTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tokens.tokenizer.chat_template.replace("['content']", "['content'].split('.')[-1]")
    assert template != tokens.tokenizer.chat_template
    monkeypatch.setattr(tokens.tokenizer, "chat_template", template)
    (row,) = tokenize_example(SFTExample(chat("ab", "b because. cd"), frozenset({1}), "t"), tokens)
    assert shown(row, tokens) == [("b because. cd<end>", 1)]


@pytest.mark.parametrize("missing", [{}, {"content": None}], ids=["missing", "null"])
def test_a_turn_without_a_text_teaches_no_word(missing: dict[str, Any], tokens: ChatTokenizer) -> None:
    """A native call's, as its provider sent it."""
    messages = (*chat("ab"), {"role": "assistant", **missing})
    (row,) = tokenize_example(SFTExample(messages, frozenset({1}), "t"), tokens)
    assert shown(row, tokens) == [("<end>", 1)]


def test_turns_make_one_row_and_unlearned_ones_are_masked(tokens: ChatTokenizer) -> None:
    whole = chat("q", "bad", "error x", "good", "ok", "done")
    (row,) = tokenize_example(SFTExample(whole, frozenset({3, 5}), "t"), tokens)
    assert tokens.tokenizer.decode(row.prompt_ids) == "<u>q<end><a>bad<end><u>error x<end><a>"  # only shown
    assert shown(row, tokens) == [("good<end>", 1), ("<u>ok<end><a>", 0), ("done<end>", 1)]
    (row,) = tokenize_example(SFTExample(whole, frozenset({1, 5}), "t"), tokens)  # an error in the middle
    assert shown(row, tokens) == [("bad<end>", 1), ("<u>error x<end><a>good<end><u>ok<end><a>", 0), ("done<end>", 1)]
    assert tokenize_example(SFTExample(whole, frozenset(), "t"), tokens) == []


def test_a_template_that_rewrites_history_gets_a_row_for_each_turn(tokens: ChatTokenizer) -> None:
    def forgetful(messages: Any) -> list[int]:
        return tokens.encode(messages[-1:])

    apart = ChatTokenizer(tokens.tokenizer, tokens.ends, forgetful)
    rows = tokenize_example(SFTExample(chat("q", "a", "r", "b"), frozenset({1, 3}), "t"), apart)
    assert [tokens.tokenizer.decode(r.prompt_ids) for r in rows] == ["<u>q<end><a>", "<u>r<end><a>"]
    assert [shown(r, apart) for r in rows] == [[("a<end>", 1)], [("b<end>", 1)]]


def test_labels_become_the_answers_of_their_nodes(tmp_path: Path) -> None:
    nodes = {"first": {"predict": "q -> hint"}, "second": {"predict": "q, hint -> label"}}
    workflow = make_workflow(nodes, tmp_path)
    row = Example("r", {"q": "who", "hint": "x", "gold": "me"})
    found = label_examples(workflow, row, {"label": "gold"}, ["first", "second"])
    assert [(x.agent, x.messages[-1]["content"], sorted(x.learned)) for x in found] == [
        ("first", "x", [2]),
        ("second", "me", [2]),
    ]
    assert "hint: x" in found[1].messages[1]["content"]  # the label of the first is what the second reads
    assert [
        x.agent
        for x in label_examples(workflow, Example("r", {"q": "who", "gold": "me"}), {"label": "gold"}, ["second"])
    ] == []


def agent_runs(folder: Path, *answers: list[str]) -> list[Any]:
    """Traces of an agent with the tool `half`, each of which says these answers in turn."""
    (folder / "tools.py").write_text(
        "def half(n: int) -> int:\n    'Half of n.'\n    if n % 2: raise ValueError('odd')\n    return n // 2\n"
    )
    workflow = make_workflow({"solve": {"agent": "q -> answer", "tools": ["python:tools.half"]}}, folder)
    found = []
    for i, said in enumerate(answers):
        left = iter(said)

        def say(request: Any, left: Any = left) -> Response:
            text = next(left)
            prompt = tuple(range(len(str(request.messages))))
            return Response(
                text,
                "stop",
                5,
                len(text),
                0.0,
                prompt_ids=prompt,
                token_ids=tuple(map(ord, text)),
                logprobs=(-0.5,) * len(text),
            )

        found.append(run_rows(workflow, [{"q": "8"}], Script(say), folder / f"{i}.db")[0].trace)
    return found


CALL = 'call: {"tool": "half", "arguments": {"n": %s}}'


def test_errors_are_shown_and_their_mending_is_learned(tmp_path: Path, tokens: ChatTokenizer) -> None:
    (trace,) = agent_runs(tmp_path, [CALL % 7, CALL % 8, "answer: 4"])
    (plain,), (masked,) = extract_examples(trace, ["solve"]), extract_examples(trace, ["solve"], ERRORS)
    assert sorted(plain.learned) == [2, 4, 6] and sorted(masked.learned) == [4, 6]
    assert plain.messages[3]["content"].startswith("error: ") and extract_examples(trace, ["other"]) == []
    learned = list(extract_drawn_rows(trace, ["solve"], ERRORS, task="t"))
    text = "".join(chr(t) for r in learned for t, m in zip(r.token_ids, r.mask, strict=True) if m)
    assert text == CALL % 8 + "answer: 4"  # the very tokens, without those of the wrong call
    assert all(lp == -0.5 for r in learned for lp, m in zip(r.logprobs, r.mask, strict=True) if m)


def test_a_right_way_is_spliced_into_a_wrong_one_at_its_first_error(tmp_path: Path) -> None:
    wrong, right, clean = (
        extract_examples(t, ["solve"])[0]
        for t in agent_runs(
            tmp_path, [CALL % 6, CALL % 7, "answer: 9"], [CALL % 6, CALL % 8, "answer: 4"], ["answer: 1"]
        )
    )
    made = splice_examples(wrong, right, ERRORS, "No. ")
    assert made is not None
    said = [(m["content"], i in made.learned) for i, m in enumerate(made.messages) if m["role"] == "assistant"]
    assert said == [(CALL % 6, True), (CALL % 7, False), ("No. " + CALL % 8, True), ("answer: 4", True)]
    assert made.messages[5]["content"].startswith("error")
    assert splice_examples(clean, right, ERRORS, "") is None  # nothing tells where it went wrong
    assert splice_examples(right, right, ERRORS, "") is None


@pytest.mark.parametrize(("share", "wanted"), [(0.2, 40), (0.5, 10), (1.0, 0)])
def test_a_mixture_keeps_its_ratio(share: float, wanted: int) -> None:
    lessons = read_general_chats([{"messages": chat("a", "b", "c", "d")}] * 3)
    assert [sorted(x.learned) for x in lessons] == [[1, 3]] * 3
    drawn = sample_general(10, share, list(range(3)), random.Random(0))
    assert len(drawn) == wanted and max((drawn.count(i) for i in range(3)), default=0) <= wanted // 3 + 1
    with pytest.raises(ValueError, match="row 1 of the mixture has no `messages`"):
        read_general_chats([{"text": "a"}])


def test_the_metric_is_the_rule_of_the_reward() -> None:
    row = Example("r", {"calls": [{"name": "f", "arguments": {}}]})
    said = '<think>x</think><tool_call>{"name": "f", "arguments": {}}</tool_call>'
    metric = ToolN1("call", "calls")
    assert metric(row, {"call": said}, None).value == 1.0
    assert metric(row, {"call": said.replace("<think>", "")}, None).value == 0.0
    call = said.partition("</think>")[2]
    for response in (Response(said), Response(call, thoughts="x")):  # as their node reads neither
        trace = Trace("r", [Span("n", "predict", {}, calls=[CallRecord((), response, "task", "m", False, 0.0)])])
        assert metric(row, {"call": call}, trace).value == 1.0
        assert metric(row, {"call": "another"}, trace).value == 0.0


# Whole runs


def test_labels_teach_the_form_that_the_workflow_asks_for(tmp_path: Path) -> None:
    """nano never saw `xx LABEL`: worked examples teach it, on the tokens that rollouts would have as their prompts."""
    needs_torch()
    rows = [
        json.loads(line)
        for line in (Path(__file__).parents[3] / "workflows/data/tickets.jsonl").read_text().splitlines()
    ][:40]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({**r, "gold": f"xx {r['label']}"}) + "\n" for r in rows))
    (tmp_path / "metric.py").write_text(
        "def form(example, prediction, trace):\n    return float(prediction['label'].startswith('xx '))\n"
    )
    (tmp_path / "general.jsonl").write_text(json.dumps({"messages": chat("hi", "A")}) + "\n")
    sft = {
        "source": "labels",
        "labels": {"label": "gold"},
        "epochs": 4,
        "evaluate_every": 4,
        "lr_schedule": "linear",
        "learning": {"rate": 2e-3},
        "mixture": "general.jsonl",
    }
    with pytest.MonkeyPatch.context() as patch:
        seen = learned_rows(patch)
        patch.setattr("workbench_training.sft.OWN_SHARE", 0.8)
        run(
            tmp_path,
            optimizers=[{"sft": sft}],
            metric="python:metric.py:form",
            nodes={"sort": {"predict": "text -> label", "decoding": {"max_tokens": 8}}},
            data={"file": "rows.jsonl", "split": {"train": 16, "val": 12, "test": 12}},
        )
    from workbench_nano.model import Nano

    texts = [Nano.load().tokenizer.decode(list(r.token_ids), skip_special_tokens=False) for r in seen]
    assert (
        len(seen) == 4 * (16 + 4)
        and sum("xx" in t for t in texts) == 4 * 16
        and all(t.endswith("<|end|>") for t in texts)
    )
    scores = [score for _, score in candidates(tmp_path)]
    assert scores[0] == 0.0 and len(scores) == 2 and (scores[1] or 0) > 0.5


class Group:
    """Rollouts of one row as `SFT` sees them."""

    def __init__(self, tokens: ChatTokenizer, folder: Path, *runs: tuple[list[str], float]):
        traces = agent_runs(folder, *(said for said, _ in runs))
        self.tokens, self.rollouts = tokens, []
        for k, (trace, (_, reward)) in enumerate(zip(traces, runs, strict=True)):
            example = Example("r", {"q": "8"})
            self.rollouts.append(Rollout(example, Result(example, reward, trace=trace), k, reward=reward))

    def learned(self, **settings: Any) -> list[str]:
        """What `sft` learns of them, with these settings, as text; drawn tokens are characters in `agent_runs`."""
        rows = SFT.model_validate(settings)._of_group(None, self.rollouts, self.tokens, ["solve"], 0)
        found = []
        for row in rows:
            kept = [t for t, m in zip(row.token_ids, row.mask, strict=True) if m]
            drawn = any(row.logprobs)
            found.append("".join(map(chr, kept)) if drawn else self.tokens.tokenizer.decode(kept))
        return found


def test_sft_masks_and_splices_as_it_is_told(tmp_path: Path, tokens: ChatTokenizer) -> None:
    good, bad = [CALL % 7, CALL % 8, "answer: 4"], [CALL % 9, "answer: 5"]
    group = Group(tokens, tmp_path, (good, 1.0), (bad, 0.0))
    assert "".join(group.learned(errors="mask")) == CALL % 8 + "answer: 4"
    everything = "".join(group.learned())
    assert everything == "".join(good)
    both = group.learned(errors="mask", splice=True)
    spliced_part = "".join(both[len(group.learned(errors="mask")) :])
    # The right way from where the two part, which here holds its own error; the wrong one is only shown.
    assert (
        "try another way.\ncall: " in spliced_part
        and '"n": 9' not in spliced_part
        and spliced_part.endswith("answer: 4<end>")
    )
    assert group.learned(threshold=2.0) == []


@pytest.mark.parametrize(
    ("settings", "calls", "mended"),
    [({"errors": "mask"}, False, False), ({"splice": True}, True, True)],
    ids=["errors", "splice"],
)
def test_what_the_file_says_of_errors_reaches_the_trainer(
    settings: dict[str, Any], calls: bool, mended: bool, tmp_path: Path
) -> None:
    """From YAML to the learner's rows. Two runs on a row are given: one that mends its error, and one that does not."""
    needs_torch()
    from workbench_nano.model import Nano
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource

    good, bad = [CALL % 7, CALL % 8, "answer: 4"], [CALL % 9, "answer: 5"]
    traces = agent_runs(tmp_path, good, bad)
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"q": str(n), "answer": str(n // 2)}) + "\n" for n in range(12))
    )

    async def rollouts(self: Any, tasks: Any, schedule: Any, step: int) -> list[list[Rollout]]:
        results = [Result(tasks[0], reward, trace=trace) for trace, reward in zip(traces, (1.0, 0.0), strict=True)]
        return [[Rollout(tasks[0], result, k, reward=result.score) for k, result in enumerate(results)]]

    sft = {"rounds": 1, "tasks": 1, "rollouts": 2, "epochs": 1, **settings}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StudyRolloutSource, "rollouts", rollouts)
        seen = learned_rows(patch)
        run(
            tmp_path,
            optimizers=[{"sft": sft}],
            metric="exact_match(answer)",
            nodes={"solve": {"agent": "q -> answer", "tools": ["python:tools.half"], "max_tokens": 8, "max_steps": 1}},
            data={"file": "rows.jsonl", "split": {"train": 4, "val": 4, "test": 4}},
        )
    drawn = ["".join(chr(t) for t, m in zip(r.token_ids, r.mask, strict=True) if m) for r in seen if any(r.logprobs)]
    assert "".join(drawn) == (CALL % 7 if calls else "") + CALL % 8 + "answer: 4"
    decode = Nano.load().tokenizer.decode
    made = [decode([t for t, m in zip(r.token_ids, r.mask, strict=True) if m]) for r in seen if not any(r.logprobs)]
    assert bool(made) is mended and all("I try another way." in text for text in made[:1])


def test_a_teacher_is_learned_from_where_it_earned_enough(tmp_path: Path) -> None:
    """The teacher is a random model: its runs are masked, scored and learned; without one, that is said."""
    needs_torch()
    from tests.helpers.tiny_lm import save

    base, other = save(tmp_path / "base", 0, positions=512), save(tmp_path / "teacher", 1, positions=512)
    sft = {
        "source": "teacher",
        "rollouts": 1,
        "tasks": 4,
        "rewards": [{"kind": "length", "tokens": 1}],
        "device": "cpu",
        "guards": ["empty"],
        "epochs": 1,
    }
    nodes = {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 6, "temperature": 1.0}}}
    heard: list[Any] = []
    report = run(
        tmp_path / "a",
        heard=heard,
        lm=f"hf:{base}",
        roles={"teacher": f"hf:{other}"},
        nodes=nodes,
        optimizers=[{"sft": sft}],
        rows=(6, 4, 4),
    )
    assert report.status == "finished"
    counts = [figures["rows"] for message, figures in heard if message.startswith("round 1")]
    assert counts and counts[0] > 0 and len(candidates(tmp_path / "a")) == 2
    with pytest.raises(SpecError, match="needs a teacher"):
        run(tmp_path / "b", lm=f"hf:{base}", nodes=nodes, optimizers=[{"sft": sft}], rows=(6, 4, 4))


@pytest.mark.parametrize("thinks", [True, False], ids=["first thought", "control"])
def test_the_teachers_agent_goes_on_from_its_first_thought(thinks: bool, tmp_path: Path) -> None:
    """From YAML to the learner's rows: its own words are learned with what followed, the call without tools is not."""
    needs_torch()
    from tests.helpers.tiny_lm import make_tokenizer, save

    (tmp_path / "tools.py").write_text("def half(n: int) -> int:\n    'Half of n.'\n    return n // 2\n")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"q": str(n), "answer": "1"}) + "\n" for n in range(12)))
    base, other = save(tmp_path / "base", 0, positions=1024), save(tmp_path / "teacher", 1, positions=1024)
    sft = {
        "source": "teacher",
        "first_thought": thinks,
        "rollouts": 1,
        "tasks": 3,
        "epochs": 1,
        "rewards": [{"kind": "length", "tokens": 1}],
        "guards": ["empty"],
    }
    agent = {"agent": "q -> answer", "tools": ["python:tools.half"], "max_tokens": 8, "max_steps": 2, "actions": 3}
    with pytest.MonkeyPatch.context() as patch:
        seen = learned_rows(patch)
        run(
            tmp_path,
            lm=f"hf:{base}",
            roles={"teacher": f"hf:{other}"},
            nodes={"solve": {**agent, "temperature": 1.0}},
            optimizers=[{"sft": {**sft, "device": "cpu"}}],
            metric="exact_match(answer)",
            data={"file": "rows.jsonl", "split": {"train": 4, "val": 4, "test": 4}},
        )
    decode = make_tokenizer().decode
    first = [decode([t for t, m in zip(r.token_ids, r.mask, strict=True) if m]) for r in seen]
    prompts = [decode(r.prompt_ids) for r in seen]
    assert first and len({r.task for r in seen}) == len(
        seen
    )  # one chat a run: neither other actions nor the call before
    assert all(text.startswith("<unk>hought: ") is thinks for text in first)  # its alphabet has no capitals
    assert not any("hink step by step" in text for text in prompts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"first_thought": True}, "give `source: teacher` as well"),
        ({"source": "teacher", "first_thought": True}, "no node that is trained is one"),
        ({"source": "labels", "labels": {"sort": "label"}}, "no node writes 'sort'"),
        ({"source": "labels", "labels": {"label": "worked"}}, "no row of train has a field 'worked'"),
        ({"labels": {"label": "label"}}, "give `source: labels` as well"),
    ],
)
def test_settings_that_do_nothing_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    needs_torch()
    from workbench.errors import SpecError

    with pytest.raises(SpecError, match=re.escape(message)):
        run(tmp_path, optimizers=[{"sft": settings}], roles={"teacher": "bundled/nano"})
