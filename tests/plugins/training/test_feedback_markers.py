"""Feedback markers (FAFT): wrong runs are learned behind words that say so, and in use there are other words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import learned_rows, needs_torch, run
from tests.helpers.scripted import Script, make_workflow, run_rows
from tests.helpers.sqlite import connect

from workbench.errors import SpecError
from workbench.lm import Response
from workbench.study import Result
from workbench.task import Example
from workbench_training.papers.faft import Feedback, feedback_examples, mark_instructions
from workbench_training.rewards import Rollout
from workbench_training.rollouts.sft_data import ChatTokenizer
from workbench_training.sft import SFT

RIGHT, WRONG = "7", "3"


def runs(folder: Path, **marked: Any) -> list[Rollout]:
    """For each of six rows, a right run and a wrong one, drawn behind the marker of success."""
    workflow = make_workflow({"n": {"predict": "q -> a", "instructions": "say it"}}, folder)
    patch = mark_instructions(workflow, ["n"], "feedback: success")
    assert patch == {"nodes.n.instructions": "say it\nfeedback: success"}
    found = []
    for k, said in enumerate((RIGHT, WRONG)):
        nodes = {"n": {"predict": "q -> a", "instructions": patch["nodes.n.instructions"]}}
        rows = [{"q": letter} for letter in "abcdef"]
        script = Script(lambda request, said=said: Response(said, "stop", 5, 1, 0.0))
        for i, outcome in enumerate(run_rows(make_workflow(nodes, folder), rows, script, folder / f"{k}.db")):
            example = Example(str(i), rows[i])
            score = float(said == RIGHT)
            found.append(Rollout(example, Result(example, score, trace=outcome.trace), k, reward=score))
    return found


def test_each_run_stands_behind_its_own_marker(tmp_path: Path) -> None:
    import re

    drawn, never = runs(tmp_path), re.compile(r"(?!)")
    plain = [*feedback_examples([drawn[0], drawn[6]], ["n"], Feedback(), 1.0, never)]
    assert [(x.messages[0]["content"].splitlines()[1], x.messages[-1]["content"]) for x in plain] == [
        ("feedback: success", RIGHT),
        ("feedback: failure", WRONG),
    ]
    assert all(sorted(x.learned) == [2] for x in plain)
    assert [*feedback_examples([drawn[0]], ["n"], Feedback(positive="other"), 1.0, never)] == []  # nothing to replace


def test_default_instructions_stay_and_a_marker_is_set_once(tmp_path: Path) -> None:
    workflow = make_workflow({"n": {"predict": "q -> a"}, "m": {"predict": "a -> b"}}, tmp_path)
    once = mark_instructions(workflow, ["n"], "good")
    assert once == {"nodes.n.instructions": "Give the a.\ngood"}
    again = make_workflow({"n": {"predict": "q -> a", "instructions": "Give the a.\ngood"}}, tmp_path)
    assert mark_instructions(again, ["n"], "good") == once


@pytest.mark.parametrize("told_apart", [True, False], ids=["markers", "control"])
def test_the_marker_decides_what_is_said(told_apart: bool, tmp_path: Path) -> None:
    """Half of all runs are wrong. Learned behind markers, the model is right where it is asked for success, and wrong
    where it is asked for failure; learned behind one marker (the control), it is right half of the time."""
    needs_torch()
    import torch
    from tests.helpers.tiny_lm import save

    from workbench_training.learner import Learner
    from workbench_training.model.policy import Policy
    from workbench_training.settings import Learning

    sft = SFT.model_validate({"feedback": {}, "threshold": 1.0 if told_apart else 0.0})
    policy = Policy(str(save(tmp_path / "base", 0)), device="cpu", seed=0)
    generator = policy.generator
    tokens = ChatTokenizer(generator.tokenizer, generator.ends, generator.encode)
    rows = list(sft._of_group(None, runs(tmp_path), tokens, ["n"], 0))
    assert len(rows) == 12
    learner = Learner(policy, sft.objective(), Learning.model_validate({"rate": 3e-3}))
    for _ in range(40):
        learner.step(rows, [1.0] * len(rows), 0)

    def chance(marker: str, said: str) -> float:
        system = {"role": "system", "content": f"say it\n{marker}"}
        ids = generator.encode([system, {"role": "user", "content": "q: a\na:"}])
        with torch.no_grad():
            logits = policy.inner(input_ids=torch.tensor([ids])).logits[0, -1]
        return float(logits.softmax(-1)[generator.tokenizer(said)["input_ids"][0]])

    if told_apart:
        assert chance("feedback: success", RIGHT) > 0.9 and chance("feedback: failure", WRONG) > 0.9
    else:
        assert 0.3 < chance("feedback: success", RIGHT) < 0.7


def test_rollouts_and_candidates_ask_for_success(tmp_path: Path) -> None:
    """From YAML to the learner's rows, and to the workflow that is evaluated and written."""
    needs_torch()
    sft = {"rounds": 1, "tasks": 6, "rollouts": 2, "epochs": 1, "feedback": {"positive": "good:", "negative": "bad:"}}
    with pytest.MonkeyPatch.context() as patch:
        seen = learned_rows(patch)
        run(tmp_path, optimizers=[{"sft": sft}])
    from workbench_nano.model import Nano

    prompts = [Nano.load().tokenizer.decode(list(r.prompt_ids), skip_special_tokens=False) for r in seen]
    told = {(r.reward, "\nbad:\n" in p) for r, p in zip(seen, prompts, strict=True)}
    assert told == {(1.0, False), (0.0, True)} and all(("\ngood:\n" in p) != ("\nbad:\n" in p) for p in prompts)
    with connect(tmp_path / "run.db") as db:
        trees = [json.loads(text) for (text,) in db.execute("select tree from candidates order by seq")]
    said = [tree["nodes"]["sort"]["instructions"] for tree in trees]
    assert said[0] == "Sort the support ticket by topic."
    assert len(said) > 1 and all(text.endswith("topic.\ngood:") for text in said[1:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "labels"}, "labels are all right"),
        ({"splice": True}, "in different ways: remove one"),
        ({"tree": {}}, "so not with `feedback`"),
        ({"feedback": {"negative": "feedback: success"}}, "tell nothing apart"),
    ],
)
def test_what_cannot_go_together_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SFT.model_validate({"feedback": {}, **settings})


def test_nodes_without_instructions_are_refused(tmp_path: Path) -> None:
    needs_torch()
    (tmp_path / "code.py").write_text("def f(text: str) -> str:\n    'Text.'\n    return text\n")
    with pytest.raises(SpecError, match="none has any"):
        run(
            tmp_path,
            optimizers=[{"sft": {"feedback": {}}}],
            nodes={"n": {"tool": "python:code.py:f", "arguments": {"text": "text"}, "output": "label"}},
        )
