"""`workbench data import` of programs of DSPy."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.import_.imports import imported, refused


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """A DSPy program of two predictors, with demos."""
    import dspy

    class Answerer(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.topic = dspy.Predict("question -> topic")
            self.answer = dspy.ChainOfThought("question, topic -> answer")

    made = Answerer()
    made.topic.signature = made.topic.signature.with_instructions("Name the topic.")
    made.topic.demos = [dspy.Example(question="What is rain?", topic="weather", augmented=True)]
    made.answer.predict.demos = [{"question": "q", "topic": "t", "reasoning": "r", "answer": "a"}]
    made.set_lm(dspy.LM("openai/gpt-4.1-mini", temperature=0.3, max_tokens=99, api_base="http://evil.example/v1"))
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("question,answer\n" + "".join(f"q{i},a{i}\n" for i in range(8)), encoding="utf-8")
    return path


def test_friction_29_a_saved_dspy_program_becomes_a_workflow(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    tree, said = imported(tmp_path / "program.json", tmp_path / "out", "--data", str(rows))
    assert tree["lm"] == "openai/gpt-4.1-mini"
    assert tree["nodes"]["topic"] == {
        "predict": "question -> topic",
        "instructions": "Name the topic.",
        "demos": [{"question": "What is rain?", "topic": "weather"}],
        "adapter": "chat",
        "decoding": {"temperature": 0.3, "max_tokens": 99},
    }
    assert tree["nodes"]["answer"]["predict"] == "question, topic -> reasoning, answer"
    assert tree["nodes"]["answer"]["demos"] == [{"question": "q", "topic": "t", "reasoning": "r", "answer": "a"}]
    assert tree["metric"] == "exact_match(answer)" and tree["data"]["split"] == {"train": 2, "val": 2, "test": 4}
    assert "evil" not in json.dumps(tree) and "Left out: api_base of openai/gpt-4.1-mini" in said
    assert "Left out: forward()" in said and "Guessed: topic: question -> topic" in said


def test_an_imported_program_sends_the_prompts_that_dspy_sends(program: Any, rows: Path, tmp_path: Path) -> None:
    import dspy
    from tests.helpers.exported import Answers, as_sent
    from tests.helpers.scripted import Script, run_rows

    from workbench.lm import Request
    from workbench.run import prepare

    def say(request: Request) -> str:
        names = ("topic", "reasoning", "answer") if "`reasoning`" in str(request.messages) else ("topic",)
        return "\n\n".join(f"[[ ## {name} ## ]]\nsome {name}" for name in names) + "\n\n[[ ## completed ## ]]"

    program.save(tmp_path / "program.json")
    imported(tmp_path / "program.json", tmp_path / "out", "--data", str(rows))
    workflow = prepare(tmp_path / "out/workflow.yaml")[2].workflow
    here, there = Script(say), Answers(say)
    outcome = run_rows(workflow, [{"question": "Why?"}], here, tmp_path / "run.db")[0]
    program.set_lm(there.lm())
    with dspy.context(disable_history=True):
        topic = program.topic(question="Why?", config={"temperature": 0.3, "max_tokens": 99}).topic
        found = program.answer(question="Why?", topic=topic, config={"temperature": 0.3, "max_tokens": 99})
    assert outcome.prediction["answer"] == found.answer == "some answer"
    assert [r["messages"] for r in as_sent(here.requests)] == [r["messages"] for r in as_sent(there.requests)]


@pytest.mark.parametrize("kind", ["Predict", "ChainOfThought"])
@pytest.mark.parametrize("lm", [None, "openai/gpt-4.1-mini"])
def test_new_user_15_a_plain_predictor_is_known_and_the_file_has_a_line_for_the_model(
    kind: str, lm: str | None, rows: Path, tmp_path: Path
) -> None:
    import dspy

    made = getattr(dspy, kind)("question -> answer")
    if lm:
        made.set_lm(dspy.LM(lm))
    made.save(tmp_path / "prog.json")
    tree, said = imported(tmp_path / "prog.json", tmp_path / "out", "--data", str(rows))
    reasoning = "reasoning, " if kind == "ChainOfThought" else ""
    assert tree["nodes"]["answer"]["predict"] == f"question -> {reasoning}answer"
    assert tree["lm"] == lm or (lm is None and tree["lm"] == "bundled/nano" and "Guessed: the language model" in said)


@pytest.mark.parametrize(("version", "adapter"), [("3.4.1", "chat"), ("3.5.0", "xml"), ("4.0", "xml"), ("2.6", "chat")])
def test_the_adapter_is_that_of_the_dspy_that_wrote_the_state(
    version: str, adapter: str, program: Any, rows: Path, tmp_path: Path
) -> None:
    program.save(tmp_path / "program.json")
    state = json.loads((tmp_path / "program.json").read_text())
    state["metadata"]["dependency_versions"]["dspy"] = version
    (tmp_path / "program.json").write_text(json.dumps(state))
    tree, _ = imported(tmp_path / "program.json", tmp_path / "out", "--data", str(rows))
    assert [node["adapter"] for node in tree["nodes"].values()] == [adapter, adapter]


@pytest.mark.parametrize("value", [{"signature": "a -> b"}, {"a": {"signature": "x"}}, {"demos": []}])
def test_what_is_no_state_is_not_taken_for_one(value: Any, rows: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(value))
    assert "is not a promptfoo configuration" in refused(tmp_path / "other.json", tmp_path / "out", "--data", str(rows))


def test_a_signature_that_the_user_gives_replaces_the_guess(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    given = "topic=question -> topic: Literal['weather', 'other']"
    flags = ("--data", str(rows), "--signature", given)
    tree, said = imported(tmp_path / "program.json", tmp_path / "out", *flags)
    assert tree["nodes"]["topic"]["predict"] == given.removeprefix("topic=")
    assert "Guessed: topic" not in said
    flags = ("--data", str(rows), "--signature", "tpic=a -> b")
    assert "--signature names 'tpic'" in refused(tmp_path / "program.json", tmp_path / "other", *flags)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_pickle_is_not_read_without_run_code(as_folder: bool, tmp_path: Path) -> None:
    import pickle

    mark, folder = tmp_path / "boom", tmp_path / "saved"
    folder.mkdir()
    (folder / "program.pkl").write_bytes(pickle.dumps(Bomb(mark)))
    said = refused(folder if as_folder else folder / "program.pkl", tmp_path / "out")
    assert "to read it is to run what its author put in it" in said and "--run-code" in said
    assert not mark.exists()


def test_a_whole_program_with_run_code_tells_types(rows: Path, tmp_path: Path) -> None:
    import dspy

    made = dspy.Predict("question, n: int -> label: Literal['a', 'b'], answer: list[str]")
    made.save(tmp_path / "saved", save_program=True)
    tree, _ = imported(
        tmp_path / "saved",
        tmp_path / "out",
        "--run-code",
        "--data",
        str(_with_n(tmp_path)),
        "--metric",
        "exact_match(answer)",
    )
    node = tree["nodes"]["answer"]
    assert node["predict"] == "question, n: int -> label: Literal['a', 'b'], answer: list[str]"


def _with_n(folder: Path) -> Path:
    path = folder / "n.jsonl"
    lines = [json.dumps({"question": f"q{i}", "n": i, "answer": ["x"]}) for i in range(4)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_program_without_rows_asks_for_them(program: Any, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    assert "--data rows.jsonl" in refused(tmp_path / "program.json", tmp_path / "out")


def test_what_makes_no_workflow_is_told_and_leaves_no_folder(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    said = refused(tmp_path / "program.json", tmp_path / "out", "--data", str(rows), "--metric", "nope(x)")
    assert "unknown metric 'nope'" in said and said.endswith("\n  Nothing was written.")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    (tmp_path / "out").mkdir()
    said = refused(tmp_path / "program.json", tmp_path / "out", "--data", str(rows))
    assert "nothing is overwritten" in said and list((tmp_path / "out").iterdir()) == []
