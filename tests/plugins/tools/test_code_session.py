"""Code that a model writes, as a session: variables stay, tools and nodes are functions, objects go in and come out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows
from tests.helpers.sqlite import connect

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.spec import PolicySpec
from workbench.workflow import ExampleRun

TOOLS = '''
SHELF = {"a": 3, "b": 5, "c": 7}


def look(key: str, times: int = 1) -> int:
    """Looks a key up."""
    with open(__file__ + ".log", "a") as log:
        log.write(key + " ")
    return SHELF[key] * times
'''

CLASS = """
from dataclasses import dataclass

@dataclass
class Point:
    y: int
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shelf.py").write_text(TOOLS, encoding="utf-8")
    return tmp_path


def agent(**settings: Any) -> dict[str, Any]:
    return {"agent": "question -> answer", "tools": ["sandbox:session", "python:shelf.py:look"], **settings}


class Writer:
    """A model that says these things in turn; told: the last message of each request."""

    def __init__(self, *said: str):
        self.said, self.told = list(said), list[str]()

    def __call__(self, request: Request) -> str:
        self.told.append(str(request.messages[-1]["content"]))
        return self.said[len(self.told) - 1]


def code(*lines: str) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"


def ran(folder: Path, writer: Writer, row: dict[str, Any] | None = None, **settings: Any) -> ExampleRun:
    outcome = run_node(agent(**settings), {"question": "q", **(row or {})}, folder, writer)[0]
    assert outcome.failure is None, outcome.message
    return outcome


def called(folder: Path) -> list[str]:
    """The keys that the tool was really called with."""
    log = folder / "shelf.py.log"
    return log.read_text().split() if log.exists() else []


def test_variables_functions_classes_and_imports_stay_from_cell_to_cell(folder: Path) -> None:
    first = code("import math", "def double(x): return 2 * x", "x = 41", CLASS)
    ran(folder, writer := Writer(first, code("double(x) + math.pi // 3 - Point(2).y"), "answer: y"))
    assert writer.told[1:] == ["result: (nothing was printed)", "result: 81.0"]


def test_a_tool_in_a_loop_is_called_once_for_each_key_though_its_cell_runs_again(folder: Path) -> None:
    writer = Writer(
        code("found = {}", "for key in 'abc':", "    found[key] = look(key)", "    print(key)"),
        code("print(sum(found.values()), look('a', times=2), look(key='b'))"),
        "answer: done",
    )
    outcome = ran(folder, writer, max_steps=3)
    assert writer.told[1:] == ["result: a\nb\nc", "result: 15 6 5"], outcome.message
    assert called(folder) == ["a", "b", "c", "a", "b"]
    noted = [(call["name"], call.get("value")) for call in outcome.trace.spans[0].notes["tools"]]
    assert noted[:4] == [("look", 3), ("look", 5), ("look", 7), ("python", "a\nb\nc")]


def test_an_error_of_a_tool_is_an_exception_in_the_code_even_where_all_is_caught(folder: Path) -> None:
    lines = [
        "for key in 'azb':",
        "    try:",
        "        print(look(key))",
        "    except ToolError as error:",
        "        print(error)",
    ]
    bare = ["try:", "    look('z')", "except:", "    print('caught')", "print(look('c'))"]
    wide = ["try:", "    look('z')", "except BaseException:", "    print('caught too')", "print(look('b'))"]
    writer = Writer(code(*lines), code(*bare), code(*wide), code("x = 1", "y = look('z')"), code("x"), "answer: done")
    assert ran(folder, writer).prediction["answer"] == "done"
    assert writer.told[1] == "result: 3\nlook: KeyError: 'z'\n5"
    assert writer.told[2:4] == ["result: caught\n7", "result: caught too\n5"]
    assert writer.told[4] == "error: python: line 2: ToolError: look: KeyError: 'z'"
    assert writer.told[5] == "result: 1", "variables are as the error left them"
    assert called(folder) == ["a", "z", "b", "z", "c", "z", "b", "z"]


def test_what_cannot_be_run_is_told_with_its_line_and_the_session_goes_on(folder: Path) -> None:
    cells = [
        code("x = 5"),
        code("y = (", ""),
        code("print('first')", "raise ValueError('no')"),
        code("print(open('/etc/passwd').read())"),
        code("look('a', 1, 2)"),
        code("look({1, 2})"),
        code("raise SystemExit(3)"),
        code("x"),
    ]
    writer = Writer(*cells, "answer: done")
    ran(folder, writer, max_steps=10)
    _, _, syntax, raised, forbidden, many, odd, left, kept = writer.told
    assert syntax.startswith("error: python: line 1: SyntaxError")
    assert raised == "error: python: line 2: ValueError: no\nprinted before: first"
    assert forbidden.startswith("error: python: line 1: ") and "root:" not in forbidden
    assert "takes 2 arguments by position: key, times" in many
    assert "TypeError" in odd and "JSON" in odd and left.startswith("error: python: line 1: SystemExit")
    assert kept == "result: 5" and called(folder) == []


@pytest.mark.slow
def test_code_without_end_loses_its_own_variables_alone(folder: Path) -> None:
    writer = Writer(code("x = 5"), code("x = look('a')", "while True: pass"), code("x, look('b')"), "answer: done")
    ran(folder, writer)
    assert "timeout" in writer.told[2] and "earlier ones are not" in writer.told[2]
    assert writer.told[3] == "result: (5, 5)"
    endless = code("while True:", "    try: look('a')", "    except ToolError: pass")
    ran(folder, asking := Writer(endless, code("1 + 1"), "answer: done"))
    assert "more than 1000 times" in asking.told[1] and asking.told[2] == "result: 2"


def test_a_rule_on_a_tool_holds_for_code_too(folder: Path) -> None:
    script = Script(writer := Writer(code("print(look('a'))"), code("print(look('b'))"), "answer: done"))
    rules = {"default": "allow", "rules": [{"deny": "look", "when": {"key": "b"}, "why": "b is not ours"}]}
    policy = PolicySpec.model_validate(rules)
    run_rows(make_workflow({"n": agent()}, folder), [{"question": "q"}], script, folder / "run.db", policy=policy)
    assert writer.told[1] == "result: 3" and "ToolError" in writer.told[2] and "b is not ours" in writer.told[2]
    assert called(folder) == ["a"]


def test_a_node_is_a_function_and_the_budget_bounds_its_calls(folder: Path) -> None:
    nodes = {"judge": {"predict": "text -> verdict", "instructions": "Judge it.", "describe": "Judges."}}
    told = list[str]()

    def say(request: Request) -> str:
        if "Judge it." in str(request.messages[0]["content"]):
            return "good" if "apple" in str(request.messages[-1]["content"]) else "bad"
        told.append(str(request.messages[-1]["content"]))
        return [
            code("print([judge(text=t) for t in ('apple', 'stone')])"),
            code("[judge(t) for t in 'xyz']"),
            "answer: x",
        ][len(told) - 1]

    node = agent(nodes=nodes, calls=4, max_steps=5)
    outcome, script = run_node(node, {"question": "q"}, folder, say)
    assert told[1] == "result: ['good', 'bad']" and "there may be 4" in told[2] and outcome.prediction["answer"] == "x"
    workflow = make_workflow({"n": node}, folder)
    assert len(script.requests) == 3 + 4 <= workflow.enabled_nodes["n"].max_calls == 5 + 4


def test_what_a_tool_gives_to_code_is_screened_within_the_budget(folder: Path) -> None:
    screen = {"predict": "result -> verdict: Literal['clean', 'order']", "instructions": "Screen."}
    told = list[str]()

    def say(request: Request) -> str:
        if "Screen." in str(request.messages[0]["content"]):
            return "order" if "5" in str(request.messages[-1]["content"]) else "clean"
        told.append(str(request.messages[-1]["content"]))
        return [code("print(look('a'))", "print(look('b'))", "look('c')"), "answer: x"][len(told) - 1]

    keys = {"screens": {"look": screen}, "calls": 2, "max_steps": 3}
    _, script = run_node(agent(**keys), {"question": "q"}, folder, say)
    assert "line 3: ToolError: look: no more calls that ask a model" in told[1]
    assert told[1].endswith("printed before: 3\n(withheld: a screen calls this result order)")
    assert len(script.requests) == 2 + 2


def test_objects_go_in_and_come_out_whole_and_stand_in_no_prompt(folder: Path) -> None:
    table = [{"id": number, "secret": f"s{number}"} for number in range(10_000)]
    writer = Writer(
        code("small = [row for row in table if row['id'] % 2500 == 7]"),
        "note: chosen",
        code("for row in small: row['seen'] = True", "print(len(small))"),
        "note: chosen",
    )
    node = {
        "agent": "question, table -> note, small: list[dict]",
        "tools": ["sandbox:session"],
        "given": ["table"],
        "kept": ["small"],
    }
    database = folder / "run.db"
    script = Script(writer)
    workflow = make_workflow({"n": node}, folder)
    (outcome,) = run_rows(workflow, [{"question": "q", "table": table}], script, database)
    assert outcome.prediction == {"note": "chosen", "small": [table[7], table[2507], table[5007], table[7507]]}
    prompts = [str(message["content"]) for request in script.requests for message in request.messages]
    assert "table: (a variable in Python: list of 10000)" in prompts[1] and not any("s25" in text for text in prompts)
    assert "variables of the same name: small" in prompts[0] and "small: ..." not in prompts[0]
    with connect(database) as connection:
        sizes = connection.execute("select max(length(request)) from calls where kind = 'code'").fetchone()
    assert sizes[0] < 20_000, "the journal keeps the hash of the table"


def test_outputs_that_are_variables_are_asked_for_until_they_are_there_and_fit(folder: Path) -> None:
    writer = Writer("done", code("total = {1, 2}"), "done", code("total = 'x'"), "done", code("total = 4"), "done")
    node = {"agent": "question -> total: int", "tools": ["sandbox:session"], "kept": ["total"], "max_steps": 7}
    outcome, _ = run_node(node, {"question": "q"}, folder, writer)
    assert outcome.prediction == {"total": 4}, outcome.message
    assert "there is no variable total" in writer.told[1] and "no JSON" in writer.told[3] and "int" in writer.told[5]


def test_a_resumed_row_calls_no_model_and_no_tool_again(folder: Path) -> None:
    cells = (code("x = [look(key) for key in 'ab']"), code("print(x, look('c'))"), "answer: done")
    workflow = make_workflow({"n": agent()}, folder)
    first = run_rows(workflow, [{"question": "q"}], Script(Writer(*cells)), folder / "run.db")
    assert called(folder) == ["a", "b", "c"]
    again = run_rows(workflow, [{"question": "q"}], script := Script(Writer(*cells)), folder / "run.db")
    assert again[0].prediction == first[0].prediction and not script.requests and called(folder) == ["a", "b", "c"]
    assert all(effect.replayed for effect in again[0].trace.spans[0].effects)


def test_code_that_goes_another_way_when_it_is_run_again_is_told(folder: Path) -> None:
    """The sandbox seeds all but the clock."""
    lines = ["import time", "look('a', times=time.time_ns())", "look('b')"]
    writer = Writer(code(*lines), code("look('b')"), "answer: done")
    ran(folder, writer)
    assert "asked another thing than before" in writer.told[1] and writer.told[2] == "result: 5"


def test_code_cannot_lie_about_what_it_asks(folder: Path) -> None:
    """It may put anything in place of what reports on it, and reaches nothing by that."""
    forge = ["import sys", "m = sys.modules['forged']"]
    answers = ["m.workbench_cell = lambda *a: {'printed': 7, 'error': ''}", "m.WorkbenchAsk.end = [1]"]
    asks = ["{'ask': {'tool': 'rm', 'arguments': {}}}", "{'ask': 7}", "[]", "{'done': None}", "7"]
    cells = [code(*forge, line) for line in answers]
    cells += [
        code(*forge, f"m.WorkbenchAsk.__call__ = lambda *a: setattr(a[0], 'end', {one}) or 1", "look('a')")
        for one in asks
    ]
    writer = Writer(*cells, code("print('fine')"), "answer: done")
    outcome = ran(folder, writer, max_steps=12)
    assert outcome.prediction is not None and called(folder) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"given": ["table"]}, "'table' is no input"),
        ({"kept": ["table"]}, "'table' is no output"),
        ({"given": ["question"], "tools": ["python:shelf.py:look"]}, "names variables of code"),
        ({"agent": "look -> answer", "given": ["look"]}, "a tool is named 'look' too"),
        ({"actions": 3}, "each would change the variables"),
        ({"tools": ["sandbox:python"]}, "'sandbox:python' is not a tool"),
        ({"tools": ["sandbox:session", "sandbox:session#x"]}, "two tools are named 'python'"),
    ],
)
def test_settings_that_do_not_go_together_are_told_when_the_file_is_read(
    settings: dict[str, Any], told: str, folder: Path
) -> None:
    with pytest.raises(SpecError) as raised:
        make_workflow({"n": agent(**settings)}, folder)
    assert told in str(raised.value)


def rounds(address: str, cells: Sequence[str]) -> dict[str, Any]:
    """A loop whose rounds run these cells."""
    return {
        "kind": "loop",
        "rounds": len(cells),
        "carry": {"shown": ""},
        "nodes": {
            "write": {"predict": "question, shown -> code"},
            "run": {"tool": address, "arguments": {"code": "code"}, "output": "shown"},
        },
    }


def test_a_session_with_a_name_lives_for_the_row_and_one_without_for_a_run_of_its_node(folder: Path) -> None:
    cells = ["x = 20", "print(x + 2)"]
    for address, shown in (("sandbox:session#work", "22"), ("sandbox:session", None)):
        said = iter(cells * 2)
        workflow = make_workflow({"n": rounds(address, cells)}, folder)
        rows = [{"question": "q"}] * 2
        outcomes = run_rows(workflow, rows, Script(lambda request, s=said: next(s)), folder / f"{len(address)}.db")
        assert [run.prediction.get("shown") for run in outcomes] == [shown] * 2
        assert all(shown or "NameError" in str(run.message) for run in outcomes)


def test_two_that_name_one_session_do_not_run_in_it_at_once(folder: Path) -> None:
    inner = {"agent": "text -> done", "tools": ["sandbox:session#x"], "instructions": "Inner."}
    node = {**agent(nodes={"helper": inner}), "tools": ["sandbox:session#x"]}
    told = {"Inner.": list[str](), "Outer.": list[str]()}
    said = {"Inner.": [code("y = 1"), "done: no"], "Outer.": [code("print(helper(text='t'))"), "answer: done"]}

    def say(request: Request) -> str:
        who = "Inner." if "Inner." in str(request.messages[0]["content"]) else "Outer."
        told[who].append(str(request.messages[-1]["content"]))
        return said[who][len(told[who]) - 1]

    run_node(node, {"question": "q"}, folder, say)
    assert "runs other code now" in told["Inner."][1] and told["Outer."][1] == "result: no"


def test_the_model_is_told_what_it_can_write(folder: Path) -> None:
    _, script = run_node(agent(), {"question": "q"}, folder, Writer("answer: x"))
    system = str(script.requests[0].messages[0]["content"])
    assert "```python fence" in system and "The other tools are functions in it" in system and "- look(" in system
    _, script = run_node(agent(tools=["sandbox:session"]), {"question": "q"}, folder, Writer("answer: x"))
    assert "functions" not in str(script.requests[0].messages[0]["content"])
    assert json.dumps(make_workflow({"n": agent()}, folder).nodes["n"]).count("kept") == 0, "older hashes stay"
