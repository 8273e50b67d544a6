"""The optimizer `forge` on planted problems: a script plays the proposer and the agent, and the right code is known."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.scripted import Script
from tests.plugins.sandbox.test_sandbox import _kernel_features

from workbench.errors import SandboxError, SpecError
from workbench.lm import Request
from workbench.proof import Report
from workbench.run import Options, optimize
from workbench.runtime import Runtime
from workbench.study import Evaluation, Result
from workbench.task import Example
from workbench.workflow import Span, Trace, Workflow
from workbench_forge import optimizer as forge_optimizer, prompts
from workbench_forge.actions import Refused, apply_action, read_action, without_handlers

pytestmark = pytest.mark.skipif(bool(_kernel_features()), reason=_kernel_features() or "-")

RIGHT = "def rule(text):\n    return sum(c in 'aeiou' for c in text)"
NEAR = "def rule(text):\n    return sum(c in 'aei' for c in text)"
WRONG = "def rule(text):\n    return 0"


def text_of(request: Request) -> str:
    return "\n".join(str(m["content"]) for m in request.messages)


def write(
    folder: Path,
    nodes: dict[str, Any],
    optimizer: Any,
    calls: int,
    seed: int = 0,
    rows: tuple[int, int, int] = (20, 20, 30),
) -> Path:
    """The task as a workflow file with its data: count the vowels of a word."""
    folder.mkdir(exist_ok=True)
    draw = random.Random(f"rows {seed}")
    for name, count in zip(("train", "val", "test"), rows, strict=True):
        words = ["".join(draw.choices("abcdeiou", k=6)) for _ in range(count)]
        lines = [{"text": w, "answer": sum(c in "aeiou" for c in w)} for w in words]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "planted",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
                "data": {n: f"{n}.jsonl" for n in ("train", "val", "test")},
                "metric": "numeric(answer)",
                "nodes": nodes,
                "optimize": [optimizer],
                "budget": {"calls": calls},
                "seed": seed,
            }
        )
    )
    return file


def run(
    folder: Path,
    nodes: dict[str, Any],
    say: Any,
    optimizer: Any,
    calls: int = 2000,
    seed: int = 0,
    rows: tuple[int, int, int] = (20, 20, 30),
    **constants: int,
) -> tuple[Report, Script]:
    """constants: of the optimizer, e.g. ATTEMPTS."""
    file, script = write(folder, nodes, optimizer, calls, seed, rows), Script(say)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in constants.items():
            patched.setattr(forge_optimizer, name, value)
        report = optimize(file, database=folder / "run.db", pool=script, options=Options(out=str(folder / "out.yaml")))
    assert report.status in ("finished", "budget"), report.error
    return report, script


# Programs of code nodes

CODE = {"count": {"code": "text -> answer: int", "source": WRONG}}


def test_the_best_program_on_train_is_found_and_kept_as_source(tmp_path: Path) -> None:
    answers = [
        "no python at all (",
        f"```python\n{NEAR}\n```",
        f"Here it is:\n```python\n{RIGHT}\n```\nGood luck",
        WRONG,
    ]

    def say(request: Request) -> str:
        return answers[min(len(script_requests), len(answers)) - 1]

    script_requests: list[int] = []

    def counted(request: Request) -> str:
        script_requests.append(1)
        assert "Python function `rule(text)`" in text_of(request)
        return say(request)

    report, script = run(tmp_path, CODE, counted, {"forge": {"samples": 4}}, ATTEMPTS=2)
    assert report.winner.get("nodes.count.source").strip() == RIGHT
    assert report.best["test"]["score"] == 1.0 and report.gain_shown
    assert report.as_dict()["sandbox"]["level"] in ("strong", "kernel")
    assert any(f"level {report.as_dict()['sandbox']['level']}." in line for line in report.headline())
    assert RIGHT.splitlines()[1].strip() in (tmp_path / "out.yaml").read_text()
    assert len(script.requests) <= 8


def test_the_mistakes_of_the_best_program_are_shown_and_repaired(tmp_path: Path) -> None:
    """A proposer that takes the same wrong turn in each sample, and sees it in what the program gave."""
    asked: list[str] = []

    def say(request: Request) -> str:
        asked.append(text_of(request))
        return RIGHT if "That is wrong" in asked[-1] else NEAR

    report, _ = run(tmp_path, CODE, say, {"forge": {"samples": 2}})
    assert report.winner.get("nodes.count.source") == RIGHT and report.gain_shown
    assert "That is wrong" not in asked[0], "nothing is known of the first program"
    assert asked[1].startswith(asked[0]) and NEAR in asked[1], "so that a server's cache has the task"
    shown = asked[1].split("That is wrong")[1]
    assert "write the whole program again, in one python block" in shown.lower() and "sentence" not in shown
    assert 1 <= shown.count(" gives ") <= 3 and shown.count("and must give") == shown.count(" gives ")


def test_a_repair_is_told_of_the_error_that_the_program_catches(tmp_path: Path) -> None:
    """A model that catches all errors, and gives a value that looks like an answer."""
    hides = "def rule(text):\n    try:\n        return int(text)\n    except ValueError:\n        return 0"
    asked: list[str] = []

    def say(request: Request) -> str:
        asked.append(text_of(request))
        return RIGHT if "it catches ValueError: invalid literal for int()" in asked[-1] else hides

    report, _ = run(tmp_path, CODE, say, {"forge": {"samples": 2}})
    assert report.winner.get("nodes.count.source") == RIGHT


@pytest.mark.parametrize(
    ("source", "bare"),
    [
        ("def f(x):\n    return x", None),
        ("try:\n    import re\nfinally:\n    y = 1", None),
        (
            "def f(x):\n    try:\n        a = int(x)\n    except ValueError:\n        return 0\n"
            "    else:\n        a += 1\n    finally:\n        pass\n    return a",
            "def f(x):\n    a = int(x)\n    a += 1\n    pass\n    return a",
        ),
    ],
)
def test_handlers_are_taken_out_and_what_they_guard_stays(source: str, bare: str | None) -> None:
    assert without_handlers(source) == bare


@pytest.mark.parametrize("description", ["Counts the facts that follow from others.", ""])
def test_the_proposer_is_told_what_the_file_is_for(description: str, tmp_path: Path) -> None:
    asked: list[str] = []

    def say(request: Request) -> str:
        asked.append(text_of(request))
        return NEAR if len(asked) == 1 else RIGHT

    file, script = write(tmp_path, CODE, {"forge": {"samples": 2}}, 2000, 0, (20, 20, 30)), Script(say)
    file.write_text(json.dumps({**json.loads(file.read_text()), "description": description}))
    report = optimize(file, database=tmp_path / "run.db", pool=script, options=Options(out=str(tmp_path / "o.yaml")))
    assert report.status == "finished", report.error
    for text in asked:  # a repair is told once, too
        assert text.count(description or "What the workflow is for") == bool(description)
        assert (f"\n\nWhat the workflow is for: {description}\n\nIt must hold" in text) == bool(description)


def test_a_program_that_is_right_on_train_and_val_ends_the_search(tmp_path: Path) -> None:
    report, script = run(tmp_path, CODE, lambda request: RIGHT, {"forge": {"samples": 6}})
    assert len(script.requests) == 1 and report.gain_shown and report.winner.get("nodes.count.example")


SORT = "Sort the words: "


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([f"{SORT}b a", f"{SORT}be c"], ['Each `text` begins with "Sort the words: ".']),
        (["True and False is", "not True is"], ['Each `text` ends with " is".']),
        (["Add: 1 + 2 =", "Add: 13 + 22 ="], ['Each `text` begins with "Add: ".', 'Each `text` ends with " =".']),
        (["same", "same"], ['Each `text` begins with "same".']),
        (["banana", "band"], []),
        (["one alone"], []),
        (["one", 2], []),
    ],
)
def test_words_that_all_texts_share_are_told(texts: list[Any], said: list[str]) -> None:
    """Small models take them for data: they sort the words of the question, too."""
    rows = [Example(id=str(number), fields={"text": text}) for number, text in enumerate(texts)]
    assert prompts.find_shared_ends(["text"], rows) == said


def test_a_request_for_a_program_tells_shared_words(tmp_path: Path) -> None:
    node = SimpleNamespace(
        function="solve", inputs=["text"], outputs=["label"], config=SimpleNamespace(source="", code="text -> label")
    )
    rows = [Example(id=word, fields={"text": f"{SORT}{word}", "label": word}) for word in ("b", "c")]
    (message,) = prompts.program(node, rows, {}, 6000)
    assert 'Each `text` begins with "Sort the words: ".' in message["content"]


def test_a_row_without_a_result_says_nothing_of_a_program(tmp_path: Path) -> None:
    file, script = write(tmp_path, CODE, {"forge": {"samples": 3}}, 2000, 0, (20, 20, 30)), Script(lambda r: NEAR)
    rows = (tmp_path / "train.jsonl").read_text().splitlines()
    first = {**json.loads(rows[0]), "answer": "many"}  # no number, so that nothing can be scored on it
    (tmp_path / "train.jsonl").write_text("\n".join([json.dumps(first), *rows[1:]]))
    options = Options(out=str(tmp_path / "out.yaml"), allow_unproved=True)
    report = optimize(file, database=tmp_path / "run.db", pool=script, options=options)
    assert report.status == "finished", report.error


def test_a_program_is_shown_what_it_was_given_and_gave_itself() -> None:
    node: Any = SimpleNamespace(name="count", function="rule", inputs=("facts",), outputs=("answer",))
    row = Example("1", {"text": "x", "answer": 3})

    def result(span: Span | None, **rest: Any) -> Result:
        return Result(row, 0.0, trace=Trace("1", [span] if span else []), **rest)

    def span(given: str, gave: Any, error: str | None = None) -> Span:
        return Span("count", "code", {"facts": given}, {"answer": gave}, error=error)

    results = (
        result(span("a", 3), failure="parse", message="the next node fails"),
        result(span("b", 4)),
        result(None, failure="parse", message="an earlier node fails"),
        result(span("c", None, "KeyError: 'c'"), failure="code"),
        result(span("d", "3")),
    )
    found = Evaluation(Workflow({"name": "w", "nodes": {}}), "train", results, True)
    assert [one.text for one in prompts.find_mistakes("nodes.count.source", node, found, {})] == [
        'rule("b") gives 4, and must give 3',
        """rule("c") fails: KeyError: 'c'""",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("function", [{}, {"function": "rule"}])
def test_a_program_whose_helper_stands_last_is_called_by_its_name(function: dict[str, str], tmp_path: Path) -> None:
    source = "def rule(text):\n    return sum(map(vowel, text))\n\ndef vowel(c):\n    return c in 'aeiou'"
    nodes = {"count": {**CODE["count"], **function}}
    report, _ = run(tmp_path, nodes, lambda r: source, {"forge": {"samples": 1}})
    assert report.winner.get("nodes.count.source") == source and report.winner.get("nodes.count.function") == "rule"
    assert report.best["test"]["score"] == 1.0


def test_a_sandbox_that_breaks_ends_the_run_and_not_just_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = Runtime.sandbox

    async def breaks_once(self: Runtime) -> None:
        monkeypatch.setattr(Runtime, "sandbox", sandbox)
        raise SandboxError("the sandbox is gone")

    def say(request: Request) -> str:
        monkeypatch.setattr(Runtime, "sandbox", breaks_once)
        return RIGHT

    with pytest.raises(SandboxError, match="is gone"):
        run(tmp_path, CODE, say, {"forge": {"samples": 1}})


@pytest.mark.slow
def test_test_rows_are_never_shown_to_the_proposer(tmp_path: Path) -> None:
    _report, script = run(tmp_path, CODE, lambda r: RIGHT, {"forge": {"samples": 2}})
    for split in ("val", "test"):
        for line in (tmp_path / f"{split}.jsonl").read_text().splitlines():
            assert not any(f'rule("{json.loads(line)["text"]}")' in text_of(r) for r in script.requests)
    shown = json.loads((tmp_path / "train.jsonl").read_text().splitlines()[0])
    assert all(f'rule("{shown["text"]}") == {shown["answer"]}' in text_of(r) for r in script.requests)


def test_programs_that_do_harm_change_nothing(tmp_path: Path) -> None:
    evil = "def rule(text):\n    import os\n    return os.kill(os.getppid(), 9)"
    answers = iter(
        [
            evil,
            "def rule(text):\n    while True: pass",
            "def other(text): return 1",
            "import numpy\ndef rule(text): return 1",
        ]
    )
    nodes = {"count": {"code": "text -> answer: int", "source": WRONG, "timeout": 0.1}}
    report, _ = run(tmp_path, nodes, lambda r: next(answers, "nothing"), {"forge": {"samples": 4}}, ATTEMPTS=1)
    assert report.winner.get("nodes.count.source") == WRONG and not report.gain_shown


# Functions of agents

AGENT = {"solve": {"agent": "text -> answer: int", "instructions": "Apply the rule.", "max_steps": 3}}


def function(name: str, body: str, result: int) -> str:
    return json.dumps(
        {
            "action": "add",
            "name": name,
            "description": "counts",
            "source": f"def {name}(text):\n    {body}",
            "example": {"arguments": {"text": "abe"}, "result": result},
        }
    )


GOOD = function("vowels", "return sum(c in 'aeiou' for c in text)", 2)


def agent(request: Request) -> str:
    """Uses the newest function that it is told of; without one it guesses 0."""
    last = str(request.messages[-1]["content"])
    if last.startswith("result: "):
        return f"answer: {last.removeprefix('result: ')}"
    tools = [line[2:].split("(")[0] for line in text_of(request).splitlines() if line.startswith("- ")]
    if not tools:
        return "answer: 0"
    word = last.split("text: ")[1].split("\n")[0]
    return "call: " + json.dumps({"tool": tools[-1], "arguments": {"text": word}})


def proposing(answers: list[str]) -> Any:
    """The agent, and a proposer that gives these answers in order, then ends."""
    left = iter(answers)

    def say(request: Request) -> str:
        if "You improve the tools of an agent" in text_of(request):
            return next(left, '{"action": "terminate"}')
        return agent(request)

    return say


@pytest.mark.slow
def test_a_right_function_is_kept_and_wrong_ones_are_rolled_back(tmp_path: Path) -> None:
    answers = [
        function("wrong", "return 99", 99),
        '{"action": "terminate"}',
        GOOD,
        '{"action": "terminate"}',
        json.dumps(
            {
                "action": "revise",
                "name": "vowels",
                "source": "def vowels(text):\n    return 7",
                "example": {"arguments": {"text": "abe"}, "result": 7},
            }
        ),
    ]
    report, _ = run(tmp_path, AGENT, proposing(answers), {"forge": {"steps": 4, "batch": 8}}, EDITS=2)
    functions = report.winner.get("nodes.solve.functions")
    assert [f["name"] for f in functions] == ["vowels"] and "aeiou" in functions[0]["source"]
    assert report.best["test"]["score"] == 1.0 and report.gain_shown


def test_who_edits_next_is_told_of_the_lists_that_failed(tmp_path: Path) -> None:
    """A proposer that repeats a failed list unless it is shown."""

    def say(request: Request) -> str:
        told = text_of(request)
        if "You improve the tools of an agent" not in told:
            return agent(request)
        return GOOD if "wrong" in told.partition("tried and not kept")[2] else function("wrong", "return 99", 99)

    report, _ = run(tmp_path, AGENT, say, {"forge": {"steps": 2, "batch": 8}}, EDITS=1)
    assert [f["name"] for f in report.winner.get("nodes.solve.functions")] == ["vowels"]


TOOLS = {"solve": {**AGENT["solve"], "tools": ["python:tools.py:vowels"]}}


@pytest.mark.slow
def test_a_function_with_the_name_of_a_tool_is_refused_and_the_proposer_hears_of_it(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def vowels(text: str):\n    return 0\n")
    other = function("count_vowels", "return sum(c in 'aeiou' for c in text)", 2)
    report, script = run(tmp_path, TOOLS, proposing([GOOD, other]), {"forge": {"steps": 1, "batch": 8}})
    assert any("That cannot be used: 'vowels' is a tool of the agent already" in text_of(r) for r in script.requests)
    assert [f["name"] for f in report.winner.get("nodes.solve.functions")] == ["count_vowels"]


def test_functions_that_an_agent_does_not_take_are_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(text: str, functions: Any, most: int, imports: Any, tools: Any = ()) -> Any:
        return read_action(text, functions, most, imports)

    monkeypatch.setattr("workbench_forge.optimizer.read_action", careless)
    (tmp_path / "tools.py").write_text("def vowels(text: str):\n    return 0\n")
    report, _ = run(tmp_path, TOOLS, proposing([GOOD]), {"forge": {"steps": 1, "batch": 8}})
    assert report.status == "finished" and not report.winner.get("nodes.solve.functions", [])


def test_functions_without_a_description_are_shown(tmp_path: Path) -> None:
    source = "def vowels(text):\n    return 0"
    nodes = {"solve": {**AGENT["solve"], "functions": [{"name": "vowels", "source": source}]}}
    _, script = run(tmp_path, nodes, proposing([]), {"forge": {"steps": 1, "batch": 8}})
    assert any(f"### vowels: \n{source}" in text_of(r) for r in script.requests)


def test_it_does_better_than_random_search_with_as_many_calls(tmp_path: Path) -> None:
    (tmp_path / "forge").mkdir()
    (tmp_path / "random").mkdir()
    forged, _ = run(tmp_path / "forge", AGENT, proposing([GOOD]), {"forge": {"batch": 8}}, calls=600)
    drawn, _ = run(tmp_path / "random", AGENT, proposing([]), "random", calls=600)
    assert forged.best["val"] > drawn.best["val"] + 0.5 and forged.best["test"]["score"] > 0.5


def test_a_function_whose_own_example_fails_costs_no_call_of_the_task(tmp_path: Path) -> None:
    lie = function("vowels", "return 1", 2)
    report, script = run(tmp_path, AGENT, proposing([lie] * 20), {"forge": {"steps": 2, "patience": 2}}, EDITS=1)
    told = [r for r in script.requests if "That cannot be used: the example gave 1" in text_of(r)]
    assert told and not report.winner.get("nodes.solve.functions", [])
    task = [r for r in script.requests if "You improve" not in text_of(r)]
    assert all("vowels" not in text_of(r) for r in task)


def test_an_edit_is_tried_exactly_so_often_and_terminate_ends_the_round(tmp_path: Path) -> None:
    _, script = run(tmp_path, AGENT, proposing(["nonsense"] * 3), {"forge": {"steps": 1}})
    asked = [r for r in script.requests if "You improve" in text_of(r)]
    assert len(asked) == 3 + 1, "three tries for the first edit, then terminate ends the round"


def test_two_functions_keep_their_own_code(tmp_path: Path) -> None:
    """The original bound every name to the last function's code."""
    from tests.helpers.scripted import run_node

    functions = [
        {"name": n, "description": "", "parameters": {}, "source": f"def {n}(text):\n    return '{n}!'"}
        for n in ("one", "two")
    ]
    for name in ("one", "two"):

        def say(request: Request, name: str = name) -> str:
            last = str(request.messages[-1]["content"])
            if last.startswith("result: "):
                return f"answer: {last.removeprefix('result: ')}"
            return "call: " + json.dumps({"tool": name, "arguments": {"text": "x"}})

        outcome, _ = run_node({"agent": "text -> answer", "functions": functions}, {"text": "x"}, tmp_path, say)
        assert outcome.prediction["answer"] == f"{name}!"


def test_edits_that_cannot_be_used_say_why(subtests: pytest.Subtests) -> None:
    for answer, message in [
        ("no json", "one JSON object"),
        ('{"action": "explode"}', "must be add"),
        ('{"action": "remove", "name": "x"}', "there is no function 'x'"),
        ('{"action": "add", "name": "Bad Name"}', "Python name"),
        ('{"action": "add", "name": "a"}', "is there already"),
        ('{"action": "add", "name": "f", "source": "def f(:"}', "not Python"),
        ('{"action": "add", "name": "f", "source": "def g(): pass"}', "must define the function 'f'"),
        (
            '{"action": "add", "name": "f", "source": "import numpy\\ndef f(): pass"}',
            "'numpy' may not be imported; these may: ast",
        ),
        ('{"action": "add", "name": "f", "source": "import os.path\\ndef f(): pass"}', "'os.path' may not"),
        ('{"action": "add", "name": "f", "source": "from . import x\\ndef f(): pass"}', "'.' may not"),
        (
            '{"action": "add", "name": "f", "source": "def f(a): pass", "parameters": {"properties": {"b": {}}}}',
            "differ: b, a",
        ),
        (
            '{"action": "add", "name": "f", "source": "def f(a): pass", "parameters": {"properties": {"a": 1}}}',
            "JSON Schemas",
        ),
        ('{"action": "add", "name": "f", "source": "def f(a): pass", "parameters": {"required": ["a"]}}', '"required"'),
        (
            '{"action": "add", "name": "f", "source": "def f(a): pass", "parameters": {"required": [["a"]]}}',
            '"required"',
        ),
        ('{"action": "add", "name": "f", "example": {"arguments": {}, "result": 1e999}}', "NaN or infinite"),
        ('{"action": "add", "name": "f", "example": {"arguments": {"a": NaN}, "result": 1}}', "one JSON object"),
        ('{"action": "add", "name": "search"}', "'search' is a tool of the agent already"),
        ('{"action": "add", "name": "f", "source": "def f(a, /): pass"}', "remove the '/'"),
        ('{"action": "add", "name": "f", "source": "def f(): pass"}', '"example" must be'),
        ('{"action": "add", "name": "f", "source": "def f(): pass", "parameters": []}', '"example"'),
    ]:
        with subtests.test(answer=answer):
            with pytest.raises(Refused, match=message):
                read_action(
                    answer, [{"name": "a", "source": "", "description": "", "parameters": {}}], 8, tools={"search"}
                )


def test_edits_leave_the_given_list_as_it_is() -> None:
    before = [{"name": "a"}, {"name": "b"}]
    action = read_action('thinking... {"action": "remove", "name": "a"} done', before, 8)
    assert apply_action(action, before) == [{"name": "b"}] and len(before) == 2
    with pytest.raises(Refused, match="functions already"):
        read_action('{"action": "add", "name": "c"}', before, 2)


def test_a_schema_is_read_from_the_annotations_where_none_is_given() -> None:
    source = "def f(a: int, b: list[str], c, *, d: bool, e=1): pass"
    text = json.dumps({"action": "add", "name": "f", "source": source, "example": {"arguments": {}, "result": 1}})
    parameters = read_action(text, [], 8).function["parameters"]
    assert parameters == {
        "type": "object",
        "required": ["a", "b", "c", "d"],
        "properties": {"a": {"type": "integer"}, "b": {"type": "array"}, "c": {}, "d": {"type": "boolean"}, "e": {}},
    }


def test_what_may_not_be_imported_is_refused_and_the_proposer_is_told(tmp_path: Path) -> None:
    source = "def rule(text):\n    import sys\n    return sum(c in 'aeiou' for c in text)"
    report, script = run(tmp_path, CODE, lambda r: source, {"forge": {"samples": 1}}, ATTEMPTS=2)
    assert report.winner.get("nodes.count.source") != source
    assert "It may import ast, base64, " in text_of(script.requests[0])
    assert "'sys' may not be imported; these may: ast, base64, " in text_of(script.requests[-1])


BOTH = {"sum": {"code": "text -> other: int", "source": WRONG}, **AGENT}


@pytest.mark.parametrize(
    ("kind", "functions", "programs"), [("auto", True, True), ("functions", True, False), ("heuristic", False, True)]
)
def test_kind_says_which_nodes_are_forged(kind: str, functions: bool, programs: bool, tmp_path: Path) -> None:
    asked: list[str] = []

    def say(request: Request) -> str:
        text = text_of(request)
        if "You improve the tools of an agent" in text or "Write the Python function" in text:
            asked.append("functions" if "You improve" in text else "programs")
            return '{"action": "terminate"}'
        return agent(request)

    run(tmp_path, BOTH, say, {"forge": {"kind": kind, "steps": 1, "samples": 1}}, ATTEMPTS=1)
    assert ("functions" in asked, "programs" in asked) == (functions, programs)


def test_a_kind_without_such_a_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="lacks an agent or external node"):
        run(tmp_path, CODE, lambda r: RIGHT, {"forge": {"kind": "functions"}})
