"""A DSPy module that was optimized here goes back to DSPy: `Class().load("program.json")` (new-user 5)."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import dspy
import pytest
from tests.helpers.exported import Answers, ask_program, loaded
from tests.helpers.scripted import Script, make_workflow, run_rows
from tests.plugins.dspy.test_export import spec_of
from tests.plugins.dspy.test_node import Planted, say, write_sorting

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.run import Options, export_candidate, optimize
from workbench.store import Store
from workbench_dspy.export import export

MODULE = """
import dspy


class Solver(dspy.Module):
    signature = "question -> answer"

    def __init__(self, hint="none"):
        super().__init__()
        self.think = dspy.ChainOfThought("question -> topic")
        self.answer = dspy.Predict("question, topic -> answer")
        self.hint = hint

    def forward(self, question):
        return self.answer(question=question, topic=self.think(question=question).topic)
"""
LEARNED = {
    "think": {
        "instructions": "Name the topic.\nBriefly.",
        "demos": [{"question": "q0", "reasoning": "r", "topic": "t"}],
    },
    "answer": {"instructions": "Answer it."},
}
NODE = {"dspy": "python:solver.py:Solver", "arguments": {"hint": "h"}, "predictors": LEARNED}
ROW = {"question": "what?"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "solver.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "solver", raising=False)
    return tmp_path


def requests_here(nodes: dict[str, Any], folder: Path) -> list[Request]:
    script = Script(say)
    (outcome,) = run_rows(make_workflow(nodes, folder), [ROW], script, folder / "run.db")
    assert outcome.failure is None, outcome.message
    return script.requests


@pytest.mark.parametrize("name", ["program.json", "out/sorter.state.json"])
def test_new_user_5_the_users_own_class_loads_what_was_learned_here(name: str, folder: Path) -> None:
    out = folder / name
    export(make_workflow({"sorter": NODE}, folder), out if out.parent == folder else out.parent, spec=spec_of())
    module, answers = import_module("solver").Solver(), Answers(say)
    module.load(out)
    assert module.think.predict.signature.instructions == "Name the topic.\nBriefly."
    assert [dict(demo) for demo in module.think.predict.demos] == LEARNED["think"]["demos"]
    with dspy.context(lm=answers.lm(), adapter=dspy.ChatAdapter(), disable_history=True):
        assert dict(module(**ROW).items())["answer"] == "what? about topic of what?"
    assert [r.messages for r in answers.requests] == [r.messages for r in requests_here({"sorter": NODE}, folder)]


@pytest.mark.parametrize("adapter", ["chat", "json", "xml", "plain"])
def test_new_user_5_a_module_among_other_nodes_becomes_a_part_of_the_program(adapter: str, folder: Path) -> None:
    def answer(request: Request) -> str:
        text = "\n".join(str(m["content"]) for m in request.messages)
        known = {"reasoning": "r", "topic": "money", "answer": "a", "label": "yes"}
        values = {name: value for name, value in known.items() if name in text}
        if "JSON object" in text:
            return json.dumps(values)
        form = (
            "[[ ## {0} ## ]]\n{1}"
            if "[[ ##" in text
            else "<{0}>{1}</{0}>"
            if "<topic>" in text or "<answer>" in text
            else "{0}: {1}"
        )
        return "\n\n".join(form.format(name, value) for name, value in values.items())

    nodes = {
        "program": {**NODE, "adapter": adapter},
        "judge": {"predict": "answer -> label: Literal['yes', 'no']", "instructions": "Is it right?"},
    }
    here, there = Script(answer), Answers(answer)
    (outcome,) = run_rows(make_workflow(nodes, folder), [ROW], here, folder / "run.db")
    export(make_workflow(nodes, folder), folder / "out", spec=spec_of())
    with loaded(folder / "out") as program:
        prediction, failure = ask_program(program, ROW, there)
        assert (prediction, failure) == (dict(outcome.prediction), ""), outcome.message
    assert [r.messages for r in there.requests] == [r.messages for r in here.requests]
    state = import_module("solver").Solver()
    state.load(folder / "out" / "program.state.json")
    assert state.answer.signature.instructions == "Answer it."


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"a": {"predict": "question -> answer"}}, "a file contains one DSPy module"),
        ({"a": NODE, "b": {"predict": "answer -> label"}}, "a file contains one DSPy module"),
        ({"a": {**NODE, "lm": "openai/x"}}, "the setting 'lm'"),
    ],
    ids=["no_module", "more_nodes", "own_model"],
)
def test_what_no_file_can_hold_is_said_and_nothing_is_written(nodes: Any, words: str, folder: Path) -> None:
    out = folder / ("out" if "lm" in nodes["a"] else "program.json")
    with pytest.raises(SpecError, match=words):
        export(make_workflow(nodes, folder), out, spec=spec_of())
    assert not out.exists()


def test_a_file_of_the_users_is_not_replaced(folder: Path) -> None:
    (folder / "program.json").write_text("mine")
    with pytest.raises(SpecError, match="nothing is overwritten"):
        export(make_workflow({"a": NODE}, folder), folder / "program.json", spec=spec_of())
    assert (folder / "program.json").read_text() == "mine"


@pytest.mark.slow
def test_new_user_5_the_winner_of_a_run_is_loaded_by_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write_sorting(tmp_path, {"random": {"trials": 4}}), tmp_path / "program.json"
    report = optimize(
        path, database=tmp_path / "run.db", pool=Planted(), options=Options(out=str(tmp_path / "best.yaml"))
    )
    store = Store(tmp_path / "run.db")
    with pytest.raises(SpecError) as refused:
        export_candidate(store, "last", None, "dspy", out)
    assert "--run-code" in (refused.value.hint or "") and not out.exists()
    assert export_candidate(store, "last", None, "dspy", out, run_code=True) is None
    store.close()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sorter", raising=False)
    module = import_module("sorter").Sorter()
    module.load(out)
    assert module.sort.signature.instructions == "Sort it carefully.", report.changes


@pytest.mark.slow
def test_what_no_flag_can_help_is_said_before_one_is_asked_for(tmp_path: Path) -> None:
    """A module of the user's, and a node that DSPy has not: the second is said first."""
    path = write_sorting(tmp_path, {"random": {"trials": 1}})
    tree = json.loads(path.read_text())
    tree["nodes"]["more"] = {"code": "label -> twice", "source": "def twice(label):\n    return label"}
    path.write_text(json.dumps(tree))
    optimize(path, database=tmp_path / "run.db", pool=Planted(), options=Options(out=str(tmp_path / "best.yaml")))
    store = Store(tmp_path / "run.db")
    with pytest.raises(SpecError, match="cannot be exported to DSPy") as refused:
        export_candidate(store, "last", None, "dspy", tmp_path / "out")
    store.close()
    assert "--run-code" not in str(refused.value.hint)
