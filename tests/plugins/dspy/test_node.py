"""The node kind `dspy`: a DSPy module of the user's, optimized, paid, journalled and traced as any node."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.cli import cli
from workbench.errors import BudgetSpent, SpecError
from workbench.ledger import Ledger
from workbench.lm import Request, Response
from workbench.run import Options, optimize, resume
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow, learnable_addresses, node_at, node_tree
from workbench_testing import Killed

MODULE = '''
import asyncio
import threading

import dspy


class Solver(dspy.Module):
    signature = "question -> answer"

    def __init__(self, hint: str = "none"):
        super().__init__()
        self.think = dspy.ChainOfThought("question -> topic")
        self.answer = dspy.Predict("question, topic -> answer")
        self.hint, self.seen = hint, []

    def forward(self, question):
        self.seen.append(question)
        topic = self.think(question=question).topic
        if len(self.seen) > 1:
            raise RuntimeError("state of another row")
        return self.answer(question=question, topic=topic)


class Awaited(Solver):
    signature = "question -> answer"

    async def aforward(self, question):
        topics = await asyncio.gather(*(self.think.acall(question=f"{question} {i}") for i in range(2)))
        return await self.answer.acall(question=question, topic=" ".join(t.topic for t in topics))


class Careless(dspy.Module):
    """Catches everything, and asks three times more than it says."""

    signature = "question -> answer"

    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("question -> answer")

    def forward(self, question):
        for _ in range(50):
            try:
                return self.answer(question=question)
            except Exception:
                pass
        return dspy.Prediction(answer="gave up")


class Direct(dspy.Module):
    signature = "question -> answer"

    def forward(self, question):
        return dspy.Prediction(answer=dspy.settings.lm("say " + question)[0])


class Own(dspy.Module):
    """Brings a model of its own, which would not be paid."""

    signature = "question -> answer"

    def __init__(self):
        super().__init__()
        self.answer = dspy.Predict("question -> answer")
        self.answer.lm = dspy.LM("openai/own")

    def forward(self, question):
        return self.answer(question=question)


class Broken(dspy.Module):
    signature = "question -> answer"

    def forward(self, question):
        return dspy.Prediction(other=1)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "solver.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def fields_of(request: Request) -> dict[str, str]:
    """The last message's fields, as DSPy's chat adapter writes them."""
    text, found = str(request.messages[-1]["content"]), dict[str, str]()
    for part in text.split("[[ ## ")[1:]:
        name, _, value = part.partition(" ## ]]\n")
        found.setdefault(name, value.split("\n\n")[0].strip())
    return found


def chat(**fields: str) -> str:
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()) + "\n\n[[ ## completed ## ]]"


def say(request: Request) -> str:
    given = fields_of(request)
    if "topic" in given:
        return chat(answer=f"{given['question']} about {given['topic']}")
    return chat(reasoning="so", topic=f"topic of {given['question']}", answer=f"answer to {given['question']}")


def test_friction_29_a_module_answers_and_its_trace_shows_each_predictor(folder: Path) -> None:
    outcome, script = run_node({"dspy": "python:solver.py:Solver"}, {"question": "q"}, folder, say)
    assert outcome.failure is None and dict(outcome.prediction) == {"answer": "q about topic of q"}, outcome.message
    spans = {span.node: span for span in outcome.trace.spans}
    assert list(spans) == ["n", "n.predictors.think", "n.predictors.answer"]
    assert [len(span.calls) for span in spans.values()] == [0, 1, 1]
    assert dict(spans["n.predictors.answer"].inputs) == {"question": "q", "topic": "topic of q"}
    assert spans["n.predictors.think"].outputs["topic"] == "topic of q"
    assert len(script.requests) == 2


def test_instructions_and_demos_of_each_predictor_are_addresses(folder: Path) -> None:
    workflow = make_workflow({"n": {"dspy": "python:solver.py:Solver"}}, folder)
    assert learnable_addresses(workflow) == {
        "nodes.n.predictors.think.instructions": "text",
        "nodes.n.predictors.think.demos": "demos",
        "nodes.n.predictors.answer.instructions": "text",
        "nodes.n.predictors.answer.demos": "demos",
    }
    demo = {"question": "old", "topic": "t", "answer": "a"}
    changed = workflow.patched(
        {"nodes.n.predictors.answer.instructions": "Be brief.", "nodes.n.predictors.answer.demos": [demo]}
    )
    script = Script(say)
    run_rows(changed, [{"question": "q"}], script, folder / "run.db")
    sent = "\n".join(str(m["content"]) for m in script.requests[1].messages)
    assert "Be brief." in sent and "old" in sent
    assert "Be brief." not in str(script.requests[0].messages)
    child: Any = node_at(changed, "nodes.n.predictors.answer.instructions")
    assert child.config.instructions == "Be brief." and child.inputs == ("question", "topic")


def test_the_address_is_known_without_running_the_module(folder: Path) -> None:
    (folder / "solver.py").write_text(MODULE + "\nraise SystemExit('this file was run')\n", encoding="utf-8")
    workflow = Workflow({"nodes": {"n": node_tree({"dspy": "python:solver.py:Solver"})}}, folder, code="outlined")
    assert workflow.input_fields == ["question"] and workflow.output_fields == ["answer"]
    (node,) = workflow.enabled_nodes.values()
    child: Any = node_at(workflow, "nodes.n.predictors.answer.demos")
    assert [*node.children()] == ["predictors.think", "predictors.answer"]
    assert child.outputs == ("answer",)


def test_validate_runs_no_module(folder: Path) -> None:
    path = write_sorting(folder, {"random": {"trials": 2}})
    (folder / "sorter.py").write_text(SORTER + "\nraise SystemExit('this file was run')\n", encoding="utf-8")
    checked = CliRunner().invoke(cli, ["validate", str(path), "--json"])
    assert checked.exception is None, checked.exception
    found = json.loads(checked.output)
    assert found["ok"] and "nodes.sorter.predictors.sort.demos" in found["learnable"], checked.output


class Crowd(Script):
    """Answers nothing until a number of requests are there, so that rows surely overlap."""

    def __init__(self, rows: int):
        super().__init__(say)
        self.rows, self.arrived, self.concurrency = rows, 0, 32  # type: ignore[misc]

    async def complete(self, request: Request) -> Response:
        self.arrived += 1
        while self.arrived < self.rows:
            await asyncio.sleep(0.001)
        return await super().complete(request)


async def run_at_once(workflow: Workflow, rows: int, database: Path, timeout: float = 60.0) -> list[ExampleRun]:
    store = Store(database)
    store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
    ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
    runtime = Runtime(ledger, lm_spec({"model": "openai/scripted", "attempts": 1}), {}, Crowd(rows), timeout=timeout)
    try:
        program = Program(workflow, runtime)
        return await asyncio.gather(*(program.run(Example(str(i), {"question": f"q{i}"})) for i in range(rows)))
    finally:
        await runtime.aclose()
        store.close()


@pytest.mark.parametrize("name", ["Solver", "Awaited"])
def test_rows_run_at_once_without_mixing(name: str, folder: Path) -> None:
    workflow = make_workflow({"n": {"dspy": f"python:solver.py:{name}"}}, folder)
    for i, outcome in enumerate(asyncio.run(run_at_once(workflow, 6, folder / "run.db"))):
        assert outcome.failure is None, outcome.message
        answer = outcome.prediction["answer"]
        assert answer.startswith(f"q{i} about topic of q{i}"), answer
        asked = {str(span.inputs["question"]).split()[0] for span in outcome.trace.spans}
        assert asked == {f"q{i}"}
        assert len(outcome.trace.spans) == (3 if name == "Solver" else 4)


def test_a_second_run_pays_for_no_journalled_call_again(folder: Path) -> None:
    workflow = make_workflow({"n": {"dspy": "python:solver.py:Solver"}}, folder)
    first, again = Script(say), Script(say)
    rows = [{"question": f"q{i}"} for i in range(3)]
    one = run_rows(workflow, rows, first, folder / "run.db")
    two = run_rows(workflow, rows, again, folder / "run.db")
    assert len(first.requests) == 6 and again.requests == []
    assert [dict(o.prediction) for o in one] == [dict(o.prediction) for o in two]


def test_the_budget_ends_a_module_that_catches_everything(folder: Path) -> None:
    workflow = make_workflow({"n": {"dspy": "python:solver.py:Careless"}}, folder)
    script = Script(lambda request: "nothing that parses")
    with pytest.raises(BudgetSpent):
        run_rows(workflow, [{"question": "q"}], script, folder / "run.db", calls=1)
    assert len(script.requests) == 1


def test_a_module_makes_no_more_calls_than_it_may(folder: Path) -> None:
    node = {"dspy": "python:solver.py:Careless", "calls": 3}
    outcome, script = run_node(node, {"question": "q"}, folder, lambda request: "nothing that parses")
    assert len(script.requests) <= 3
    assert outcome.prediction.get("answer") == "gave up"


@pytest.mark.parametrize(
    ("name", "answer", "kind", "words"),
    [
        ("Solver", Response("", "refusal", 1, 1), "refused", "refused"),
        ("Solver", Response(" ", "stop", 1, 1), "empty", "empty"),
        ("Solver", Response("no field", "stop", 1, 1), "unparsed", "no field"),
        ("Broken", Response("x", "stop", 1, 1), "code", "gave no 'answer'"),
    ],
)
def test_failures_have_their_kinds(name: str, answer: Response, kind: str, words: str, folder: Path) -> None:
    outcome, _ = run_node({"dspy": f"python:solver.py:{name}"}, {"question": "q"}, folder, lambda request: answer)
    assert outcome.failure == kind and words in str(outcome.message), (outcome.failure, outcome.message)


def test_a_module_that_hangs_is_a_failure_of_its_row(folder: Path) -> None:
    (folder / "slow.py").write_text(
        "import time, dspy\n\n\nclass Slow(dspy.Module):\n    signature = 'question -> answer'\n\n"
        "    def forward(self, question):\n        time.sleep(20)\n        open(__file__ + '.late', 'w').close()\n"
        "        return dspy.Prediction(answer='late')\n",
        encoding="utf-8",
    )
    workflow = make_workflow({"n": {"dspy": "python:slow.py:Slow"}}, folder)
    (outcome,) = asyncio.run(run_at_once(workflow, 1, folder / "run.db", timeout=0.3))
    assert outcome.failure == "code" and "no result within 0.3 s" in str(outcome.message)
    assert not (folder / "slow.py.late").exists(), "the run does not wait for its end"


def test_a_direct_call_of_the_configured_model_is_paid(folder: Path) -> None:
    outcome, script = run_node({"dspy": "python:solver.py:Direct"}, {"question": "hi"}, folder, lambda r: "said")
    assert dict(outcome.prediction) == {"answer": "said"} and len(script.requests) == 1
    assert outcome.trace.spans[0].calls[0].response.text == "said"


def test_a_model_that_a_predictor_brings_is_not_asked(folder: Path) -> None:
    outcome, script = run_node({"dspy": "python:solver.py:Own"}, {"question": "q"}, folder, say)
    assert outcome.failure is None and len(script.requests) == 1


def test_settings_of_other_code_in_the_process_stay_as_they_are(folder: Path) -> None:
    import dspy

    before = dspy.settings.lm, dspy.settings.adapter
    run_node({"dspy": "python:solver.py:Solver"}, {"question": "q"}, folder, say)
    assert (dspy.settings.lm, dspy.settings.adapter) == before


def test_the_plain_adapter_sends_the_short_prompt_of_predict(folder: Path) -> None:
    node = {"dspy": "python:solver.py:Careless", "adapter": "plain"}
    outcome, script = run_node(node, {"question": "q"}, folder, lambda request: "answer: a")
    assert dict(outcome.prediction) == {"answer": "a"}
    assert [m["content"] for m in script.requests[0].messages][1:] == ["question: q\nanswer:"]


def test_a_class_of_dspy_itself_is_a_module(folder: Path) -> None:
    node = {"dspy": "python:dspy:ChainOfThought", "arguments": {"signature": "question -> answer"}}
    outcome, _ = run_node(node, {"question": "q"}, folder, say)
    assert dict(outcome.prediction) == {"answer": "answer to q"}
    assert [span.node for span in outcome.trace.spans] == ["n", "n.predictors.predict"]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"dspy": "solver.py:Solver"}, "Write dspy: python:solver.py:Solver"),
        ({"dspy": "python:solver.py:Nobody"}, "no function 'Nobody'"),
        ({"dspy": "python:pathlib:Path", "signature": "a -> b"}, "not a subclass of dspy.Module"),
        ({"dspy": "python:pathlib:Path"}, "signature: "),
        ({"dspy": "python:solver.py:Solver", "arguments": {"wrong": 1}}, "cannot be made: TypeError"),
        ({"dspy": "python:solver.py:Solver", "predictors": {"answr": {}}}, "Did you mean 'answer'"),
    ],
)
def test_what_is_wrong_with_a_module_is_said(node: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises(SpecError) as raised:
        make_workflow({"n": node}, folder)
    assert words in f"{raised.value} {raised.value.hint}"


def test_trust_lists_the_module_as_python_that_the_file_runs(folder: Path) -> None:
    from workbench.cli.trust.needs import collect_needs

    path = folder / "w.yaml"
    path.write_text(json.dumps({"nodes": {"n": {"dspy": "python:solver.py:Solver"}}}), encoding="utf-8")
    powers = collect_needs(path)
    assert powers.lines() == ["runs Python: python:solver.py:Solver"] and "solver.py" in powers.digests


LABELS = ("a", "b", "c", "d")
SORTER = """
import dspy


class Sorter(dspy.Module):
    signature = "text -> label"

    def __init__(self):
        super().__init__()
        self.sort = dspy.Predict("text -> label")

    def forward(self, text):
        return self.sort(text=text)
"""


class Planted(Script):
    """Sorts texts; more often right with the word `carefully` in the instructions, and with each demo."""

    def __init__(self, kill_at: int | None = None):
        super().__init__(self.sort)
        self.kill_at, self.keys = kill_at, list[str]()

    def sort(self, request: Request) -> str:
        self.keys.append(request.key("planted"))
        if self.kill_at is not None and len(self.keys) >= self.kill_at:
            raise Killed
        text = fields_of(request)["text"]
        demos = sum(m["role"] == "assistant" for m in request.messages)
        skill = 0.3 + 0.4 * ("carefully" in str(request.messages[0]["content"])) + 0.08 * min(demos, 5)
        right = next(label for label in LABELS if f" {label}-thing" in text)
        share = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32
        return chat(label=right if share < skill else "none of them")


def write_sorting(folder: Path, optimizer: Any) -> Path:
    (folder / "sorter.py").write_text(SORTER, encoding="utf-8")
    rows = [{"text": f"row {i}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]} for i in range(140)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    spec = {
        "name": "sorting",
        "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
        "data": {"file": "rows.jsonl", "split": {"train": 20, "val": 40, "test": 80}},
        "metric": "exact_match(label)",
        "nodes": {"sorter": {"dspy": "python:sorter.py:Sorter"}},
        "search": {
            "nodes.sorter.predictors.sort.instructions": ["Sort it.", "Sort it carefully."],
            "nodes.sorter.predictors.sort.demos": {"demos": 4},
        },
        "optimize": [optimizer],
        "budget": {"calls": 1200},
        "concurrency": 4,
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("optimizer", "changed"),
    [
        ({"random": {"trials": 6}}, "instructions"),
        pytest.param({"bootstrap": {"max_demos": 5}}, "demos", marks=pytest.mark.slow),
        pytest.param({"dspy_bootstrap": {"candidates": 2}}, "demos", marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_friction_29_an_optimizer_improves_a_module_and_the_gain_is_shown(
    optimizer: Any, changed: str, tmp_path: Path
) -> None:
    lm, out = Planted(), tmp_path / "out.yaml"
    report = optimize(
        write_sorting(tmp_path, optimizer), database=tmp_path / "run.db", pool=lm, options=Options(out=str(out))
    )
    assert report.gain_shown and report.best["test"]["score"] > report.baseline["test"]["score"] + 0.15
    written = yaml.safe_load(out.read_text(encoding="utf-8"))["nodes"]["sorter"]
    assert written["dspy"] == "python:sorter.py:Sorter" and changed in written["predictors"]["sort"]
    assert len(lm.keys) == len(set(lm.keys)), "no request is sent twice"


@pytest.mark.slow
def test_a_killed_run_of_a_module_resumes_without_paying_twice(tmp_path: Path) -> None:
    whole, begun, ended = Planted(), Planted(kill_at=90), Planted()
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    optimizer = {"random": {"trials": 4}}
    path = write_sorting(tmp_path / "whole", optimizer)
    one = optimize(path, database=tmp_path / "whole/run.db", pool=whole, options=Options(out=str(tmp_path / "1.yaml")))
    settings: dict[str, Any] = {"database": tmp_path / "killed/run.db"}
    options = Options(out=str(tmp_path / "2.yaml"))
    with suppress(Killed, BaseExceptionGroup):
        optimize(write_sorting(tmp_path / "killed", optimizer), pool=begun, options=options, **settings)
    two = resume("last", pool=ended, options=options, **settings)
    assert (two.best["workflow"], two.best["test"]) == (one.best["workflow"], one.best["test"])
    assert two.gain_shown and one.gain_shown
    paid_twice = set(begun.keys[:-1]) & set(ended.keys)
    assert len(paid_twice) <= 4, "those in flight at the kill"
    assert len(begun.keys) + len(ended.keys) <= len(whole.keys) + 5
    assert ended.keys and len(ended.keys) < len(whole.keys)
