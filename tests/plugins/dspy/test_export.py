"""A workflow exported to DSPy sends the same prompts and gives the same predictions, or is refused by name."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.exported import Answers, as_sent, ask_program, loaded, nano
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_speech import Speaker
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.run import prepare
from workbench.spec import Spec
from workbench.workflow import Workflow
from workbench_dspy.export import export

ROOT = Path(__file__).parents[3]
FILES = sorted(path for path in (ROOT / "workflows").rglob("*.yaml") if path.parent.name not in ("data", "synthesis"))
EXTRAS = {"feedback_markers.yaml": "torch", "grpo.yaml": "torch", "tool_calls.yaml": "torch"}
#: What files have that DSPy has not, and their names.
_REFUSED = {
    "'code'": (
        "adaptive_rag aries arigraph autoflow automl_agent blade cave_agent chain_of_agents dare forge "
        "gen_rewrite graph_of_thoughts iagents plangen se_agent"
    ),
    "'dylan'": "debate dylan",
    "'external'": "internet_of_agents",
    "'first_thought'": "small_agent",
    "'functions'": "gta",
    "'loop'": (
        "amber captain knowledge_cache llm_heuristics long_writer mindsearch omni_search own_examples poact "
        "research_code_agent rl_of_thoughts sibyl two_heads webpilot"
    ),
    "'map'": "gta_steps hm_rag reaper toolshed",
    "'play'": (
        "agent_issues agent_occam agent_s2 agentgym ask_before_acting boxing_gym capo compwob counter diff_history "
        "entity_deduction glee ml_experiments one_day simura stateflow_intercode"
    ),
    "'recall'": "agent_poison astar memory toolchain",
    "'register: lazy'": "ecoact",
    "'route'": "best_route",
    "'sandbox:session'": "codeact",
    "'search'": "graph_team mobile_agent search vidorag",
    "'screens'": "backdoors",
    "'selforg'": "selforg",
    "'states'": "intercode_sql stateflow_bash",
    "'tree'": "codetree master swe_search",
    "'tree_search'": "best_first webnav",
    "__file__": "mag_sql",
    "policy": "formal_specification",
    "the tool": "toolemu",
}
REFUSED = {name: told for told, names in _REFUSED.items() for name in names.split()}
TOOLS = '''
def lookup(order: str, year: int = 2020) -> str:
    """Finds an order."""
    if order == "none":
        raise KeyError(order)
    return f"{order} of {year}"


async def later(text: str) -> list[str]:
    """Answers in its own time."""
    return [text, "later"]
'''


def spec_of(**more: Any) -> Spec:
    raw = {"data": {"file": "x.jsonl", "split": {"train": 1, "val": 1, "test": 1}}, "metric": "exact_match(a)"}
    return Spec.model_validate({"name": "n", "lm": "openai/gpt-4.1-mini", "nodes": {"a": {}}, **raw, **more})


def hashed(request: Request) -> str:
    """An answer that any reading can use, and that depends on the whole prompt."""
    number = int(hashlib.sha256(repr(request.messages).encode()).hexdigest()[:6], 16)
    system = str(request.messages[0]["content"])
    allowed = [line.partition(": one of ")[2].split(", ") for line in system.splitlines() if ": one of " in line]
    return allowed[-1][number % len(allowed[-1])] if allowed else str(number % 5)


def check_equal(
    workflow: Workflow, rows: list[dict[str, Any]], folder: Path, say: Any, spec: Spec | None = None
) -> int:
    """Both sides give the same for every row, and sent the same; returns how many rows were predicted."""
    here, there = Script(say()), Answers(say())
    outcomes = run_rows(workflow, rows, here, folder / "run.db")
    export(workflow, folder / "out", spec=spec or spec_of())
    predicted = 0
    with loaded(folder / "out") as program:
        for row, outcome in zip(rows, outcomes, strict=True):
            prediction, failure = ask_program(program, row, there)
            assert bool(failure) == bool(outcome.failure), (failure, outcome.message)
            if not failure:
                assert prediction == dict(outcome.prediction)
                predicted += 1
    # A request that is sent twice at temperature 0 is one call here, and one to DSPy's cache.
    assert {*map(repr, as_sent(there.requests))} == {*map(repr, as_sent(here.requests))}
    return predicted


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_friction_4_each_file_of_the_gallery_gives_equal_predictions_or_is_refused_by_name(
    path: Path, tmp_path: Path
) -> None:
    if path.name in EXTRAS:
        pytest.importorskip(EXTRAS[path.name])
    spec, _, task = prepare(path)[:3]
    if path.stem in REFUSED:
        with pytest.raises(SpecError, match=REFUSED[path.stem]):
            export(task.workflow, tmp_path / "out", spec=spec)
        assert not (tmp_path / "out").exists()
        return
    case = CASES.get(path.name)
    rows = [dict(row) for row in task.dataset.train[:4]]
    inputs = task.workflow.input_fields
    rows = [{name: row[name] for name in inputs} for row in rows]
    predicted = check_equal(task.workflow, rows, tmp_path, lambda: Speaker(case.table) if case else hashed, spec)
    assert predicted == len(rows)


@pytest.mark.slow
def test_friction_3_the_export_scores_the_same_as_here_row_by_row(tmp_path: Path) -> None:
    count = 50
    spec, _, task = prepare(ROOT / "workflows/quickstart.yaml")[:3]
    demos = [{"text": row["text"], "label": row["label"]} for row in task.dataset.train[:4]]
    workflow = task.workflow.patched({"nodes.sort.demos": demos, "nodes.sort.show_values": False})
    rows = [dict(row) for row in task.dataset.val[:count]]
    assert len(rows) == count

    there = Answers(nano)
    outcomes = run_rows(workflow, rows, here := Script(nano), tmp_path / "run.db")
    export(workflow, tmp_path / "out", spec=spec)
    with loaded(tmp_path / "out") as program:
        found = [ask_program(program, {"text": row["text"]}, there)[0] for row in rows]
    assert found == [dict(outcome.prediction) for outcome in outcomes]
    assert as_sent(there.requests) == as_sent(here.requests)
    right = sum(f["label"] == row["label"] for f, row in zip(found, rows, strict=True) if f)
    assert count / 5 < right < count, "an agreement of random or perfect answers would show little"


PROGRAM = """
import sys


class NoWorkbench:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0].startswith("workbench"):
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, NoWorkbench())
{lines}
import dspy
from dspy import lm15


class Engine:
    def complete(self, request):
        assert request.system.startswith("Sort the support ticket by topic.\\nlabel: one of billing, technical")
        part = lm15.TextPart("label: shipping")
        return lm15.Response(id=None, model="m", message=lm15.Message.assistant([part]), finish_reason="stop",
                             usage=lm15.Usage(input_tokens=1, output_tokens=1))

    def close(self):
        pass


dspy.configure(lm=dspy.LM("test/m", engine=Engine(), cache=False))
print(program(text="where is my parcel").label)
assert not [name for name in sys.modules if name.startswith("workbench")]
"""


@pytest.mark.slow
def test_friction_3_the_two_documented_lines_load_it_without_the_workbench(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/dspy.md").read_text(encoding="utf-8")
    begin = page.index("from program import Program")
    lines = page[begin : page.index('program.load("program.json")')] + 'program.load("program.json")'
    lines = "\n".join(line.strip() for line in lines.splitlines())
    assert len([line for line in lines.splitlines() if line.strip()]) == 3, lines
    spec, _, task = prepare(ROOT / "workflows/quickstart.yaml")[:3]
    export(task.workflow, tmp_path / "out", spec=spec)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(lines=lines)],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "shipping", done.stderr


def test_nothing_of_the_workbench_is_imported_by_an_exported_program(tmp_path: Path) -> None:
    workflow = make_workflow({"sort": {"predict": "text -> label"}}, tmp_path)
    export(workflow, tmp_path / "out", spec=spec_of())
    for path in (tmp_path / "out").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [n for n in names if n.startswith("workbench")], path


def test_friction_4_tools_are_called_with_the_same_arguments_constants_and_faults(tmp_path: Path) -> None:
    (tmp_path / "my-tools.py").write_text(TOOLS, encoding="utf-8")
    nodes = {
        "find": {"tool": "python:my-tools.py:lookup", "constants": {"year": 1999}, "output": "found", "optional": True},
        "wait": {"tool": "python:my-tools.py:later", "arguments": {"text": "order"}, "output": "waited"},
        "say": {
            "agent": "order, waited -> answer, sure: bool",
            "tools": ["python:my-tools.py:lookup"],
            "instructions": "Answer.\n  - with care\n    always",
            "demos": [
                {
                    "order": "z",
                    "waited": ["z"],
                    "answer": "yes",
                    "sure": True,
                    "_exchange": [
                        {"role": "assistant", "content": "call: {}"},
                        {"role": "user", "content": "result: 1"},
                    ],
                }
            ],
            "max_steps": 4,
        },
    }

    def say(request: Request) -> str:
        turns = [m for m in request.messages if m["role"] == "assistant"]
        order = str(request.messages[-1]["content"])
        if "none" in order and len(turns) < 3:
            return 'call: {"tool": "lookup", "arguments": {"order": "none"}}'
        if len(turns) == 2:
            return ['call: {"tool": "lookup", "arguments": {"order": "b"}}', "call: lookup(order=", "nothing"][
                len(order) % 3
            ]
        return "answer: " + order[:20] + "\nsure: yes"

    rows = [{"order": order} for order in ("a", "none", "xx", "yyy", "zzzz")]
    assert check_equal(make_workflow(nodes, tmp_path), rows, tmp_path, lambda: say) == len(rows)


TYPED = '''
import functools
from typing import Literal, Optional

from pydantic import BaseModel


class Item(BaseModel):
    name: str
    qty: int = 1


def plain(function):
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    return call


def add(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


def order(items: list[Item], how: Literal["fast", "slow"] = "slow") -> str:
    """Orders."""
    return f"{how} " + ", ".join(f"{item.qty} {item.name}" for item in items)


def place(a: int, /, b: Optional[int] = None, *parts: int, **more: float) -> str:
    """Places."""
    return repr((a, b, parts, more))


@plain
def hidden(x, y=2):
    """Hides its signature."""
    return f"{x!r} {y!r}"


async def later(when: float) -> float:
    """Waits."""
    return when * 2
'''
#: (tool, arguments as models write them, in the result that the model is told)
CALLS = [
    ("add", {"a": "2", "b": "3"}, "result: 5"),
    ("add", {"a": 2.0}, "result: 3"),
    ("add", {"a": "two"}, "error: add: the argument 'a' is 'two'"),
    ("add", {"a": 1, "c": 2}, "error: add takes no argument 'c'"),
    ("order", {"items": [{"name": "x", "qty": "2"}, {"name": "y"}]}, "result: slow 2 x, 1 y"),
    ("order", {"items": '[{"name": "x"}]', "how": "fast"}, "result: fast 1 x"),
    ("order", {"items": [{"qty": 2}]}, "error: order: the argument 'items[0].name' is missing"),
    ("order", {"items": [], "how": "never"}, "error: order: the argument 'how' is 'never'"),
    ("place", {"a": "1"}, "result: (1, None, (), {})"),
    ("place", {"a": 1, "b": "null", "z": "0.5"}, "result: (1, None, (), {'z': 0.5})"),
    ("hidden", {"x": "1", "y": 3}, "result: '1' 3"),
    ("later", {"when": "1.5"}, "result: 3.0"),
]


@pytest.mark.parametrize(("tool", "arguments", "told"), CALLS, ids=lambda value: str(value)[:40])
def test_arguments_are_converted_in_the_export_as_in_the_workflow(
    tool: str, arguments: dict[str, Any], told: str, tmp_path: Path
) -> None:
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    names = dict.fromkeys(name for name, _, _ in CALLS)
    node = {"agent": "text -> label", "tools": [f"python:typed.py:{name}" for name in names], "max_steps": 3}
    heard: list[str] = []

    def say(request: Request) -> str:
        if not any(m["role"] == "assistant" for m in request.messages):
            return f"call: {json.dumps({'tool': tool, 'arguments': arguments})}"
        heard.append(str(request.messages[-1]["content"]))
        return "label: done"

    assert check_equal(make_workflow({"n": node}, tmp_path), [{"text": "t"}], tmp_path, lambda: say) == 1
    here, there = heard
    assert here == there and told in here


PREDICT: dict[str, Any] = {"predict": "text, note -> label: Literal['a', 'b'], why", "instructions": "Sort."}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"instructions": ""},
        {"instructions": "First.\n    indented\n  less\n"},
        {"reasoning": True},
        {"samples": 3, "decoding": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 77}},
        {"show_values": False, "descriptions": {"text": "the mail", "label": "its kind"}},
        {"retrieve": 2},
        {"adapter": "chat"},
        {"adapter": "json"},
        {"adapter": "xml"},
    ],
    ids=str,
)
def test_each_setting_of_predict_sends_the_same_and_reads_the_same(more: dict[str, Any], tmp_path: Path) -> None:
    demos = [{"text": f"demo {i} mail", "note": "n", "label": "ab"[i % 2], "why": "so"} for i in range(4)]
    workflow = make_workflow({"sort": {**PREDICT, "demos": demos, **more}}, tmp_path)

    def say(request: Request) -> str:
        number = int(hashlib.sha256(repr(request.messages).encode()).hexdigest()[:6], 16) % 4
        return ["a\nwhy: it is", "label: b\nwhy: is\nso", "I think b\nwhy: yes", "reasoning: r\nlabel: a\nwhy: w"][
            number
        ]

    rows = [{"text": f"mail {i}", "note": i} for i in range(8)] + [{"text": "demo 1 mail", "note": "n"}]
    check_equal(workflow, rows, tmp_path, lambda: say)


def test_a_cut_answer_fails_in_the_export_as_it_does_here(tmp_path: Path) -> None:
    from workbench.lm import Response

    workflow = make_workflow({"sort": {"predict": "text -> label"}}, tmp_path)
    assert check_equal(workflow, [{"text": "t"}], tmp_path, lambda: lambda request: Response("half an", "length")) == 0


def test_branches_optional_nodes_refined_fields_and_nested_workflows_flow_as_here(tmp_path: Path) -> None:
    nodes = {
        "kind": {"predict": "text -> kind: Literal['x', 'y', 'z']"},
        "guess": {"predict": "text -> label: Literal['0', '1']", "optional": True},
        "by-kind": {
            "branch": "kind",
            "cases": {"x": {"predict": "text -> label"}, "y": {"predict": "text, kind -> label"}},
            "optional": True,
        },
        "inner": {
            "kind": "workflow",
            "nodes": {
                "second": {"predict": "first -> end", "needs": "first"},
                "first": {
                    "ensemble": [{"predict": "mail -> first"}, {"predict": "label -> first"}],
                    "samples": 2,
                    "weights": [1, 1.5],
                },
            },
            "rename": {"mail": "text"},
        },
        "steps": {"reflect": {"predict": "end -> last"}, "rounds": 2},
    }
    workflow = make_workflow(nodes, tmp_path)
    rows = [{"text": f"text {i}"} for i in range(12)]
    assert check_equal(workflow, rows, tmp_path, lambda: hashed) == len(rows)


def test_the_temperature_and_tokens_of_the_file_are_part_of_the_program(tmp_path: Path) -> None:
    workflow = make_workflow({"sort": {"predict": "text -> label"}}, tmp_path)
    export(workflow, tmp_path / "out", spec=spec_of(lm={"model": "openai/m", "temperature": 0.3, "max_tokens": 99}))
    answers = Answers(lambda request: "yes")
    with loaded(tmp_path / "out") as program:
        ask_program(program, {"text": "t"}, answers)
    assert (answers.requests[0].temperature, answers.requests[0].max_tokens) == (0.3, 99)


def test_the_head_of_the_program_says_how_to_configure_its_model(tmp_path: Path) -> None:
    lm = {"model": "openai/m", "api_base": "http://127.0.0.1:1/v1", "api_key_env": "K", "extra": {"seed": 3}}
    workflow = make_workflow({"sort": {"predict": "text -> label"}}, tmp_path)
    export(workflow, tmp_path / "out", spec=spec_of(lm=lm))
    told = "dspy.LM('openai/m', api_base='http://127.0.0.1:1/v1', api_key=os.environ['K'], seed=3)"
    assert told in (tmp_path / "out/program.py").read_text(encoding="utf-8")


def test_texts_of_a_workflow_cannot_become_code_of_the_program(tmp_path: Path) -> None:
    evil = '"""\nraise SystemExit("ran")\n"""\n\\'
    node = {"predict": "text -> label", "instructions": evil, "descriptions": {"text": evil}, "demos": [{"text": evil}]}
    workflow = make_workflow({"n": node}, tmp_path)
    workflow = Workflow({**workflow.tree, "name": evil}, tmp_path)
    export(workflow, tmp_path / "out", spec=spec_of(lm={"model": "openai/m", "api_base": evil}))
    answers = Answers(lambda request: "yes")
    with loaded(tmp_path / "out") as program:
        assert ask_program(program, {"text": "t"}, answers)[0] == {"label": "yes"}
    assert evil.strip() in str(answers.requests[0].messages[0]["content"])


@pytest.mark.parametrize(
    ("node", "more", "named"),
    [
        ({"predict": "a -> b", "lm": "bundled/nano"}, {}, "the language model bundled/nano"),
        ({"predict": "plan -> plan"}, {}, "the field 'plan'"),
        ({"agent": "a -> b", "native": True}, {}, "the setting 'native'"),
        ({"agent": "a -> b", "tools": ["sandbox:session"]}, {}, "the tool 'sandbox:session'"),
        ({"predict": "a -> b: D", "types": {"D": "python:decimal:Decimal"}}, {}, "the setting 'types'"),
        ({"agent": "a -> b: D", "types": {"D": "python:decimal:Decimal"}}, {}, "the setting 'types'"),
        ({"predict": "a -> b"}, {"policy": {"default": "deny"}}, "a policy of tool calls"),
    ],
)
def test_friction_4_what_cannot_be_exported_is_named_and_nothing_is_written(
    node: dict[str, Any], more: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=named):
        export(make_workflow({"n": node}, tmp_path), tmp_path / "out", spec=spec_of(**more))
    assert not (tmp_path / "out").exists()


def test_dspy_optimizes_an_exported_program_and_its_state_comes_back(tmp_path: Path) -> None:
    import dspy
    from dspy.teleprompt import LabeledFewShot

    workflow = make_workflow({"sort": {"predict": "text -> label"}}, tmp_path)
    export(workflow, tmp_path / "out", spec=spec_of())
    with loaded(tmp_path / "out") as program:
        rows = [dspy.Example(text=f"t{i}", label="l").with_inputs("text") for i in range(3)]
        better = LabeledFewShot(k=2).compile(program, trainset=rows)
        better.save(tmp_path / "out" / "program.json")
    answers = Answers(lambda request: "yes")
    with loaded(tmp_path / "out") as program:
        ask_program(program, {"text": "t"}, answers)
    assert [m["role"] for m in answers.requests[0].messages] == ["system", *["user", "assistant"] * 2, "user"]


def test_an_exported_program_can_be_awaited(tmp_path: Path) -> None:
    import dspy

    workflow = make_workflow({"sort": {"predict": "text -> label"}}, tmp_path)
    export(workflow, tmp_path / "out", spec=spec_of())
    answers = Answers(lambda request: str(request.messages[-1]["content"])[6:])

    async def both(program: Any) -> list[str]:
        with dspy.context(lm=answers.lm()):
            found = await asyncio.gather(program.acall(text="one"), program.acall(text="two"))
        return [one.label for one in found]

    with loaded(tmp_path / "out") as program:
        assert asyncio.run(both(program)) == ["one", "two"]
