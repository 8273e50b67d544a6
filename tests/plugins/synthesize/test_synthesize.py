"""`workbench data synthesize` keeps what passes all checks, counts each rejection, and holds budget and journal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import LMError, SpecError
from workbench.kit.answers import read_objects
from workbench.lm import Request
from workbench_synthesize.apis import find_misfit, load_apis
from workbench_synthesize.chains import Links
from workbench_synthesize.settings import load_synthesis
from workbench_synthesize.synthesize import Found, synthesize, write_rows

APIS = {
    "add": {
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "required": ["a", "b"],
            "properties": {"a": {"type": "int"}, "b": {"type": "integer"}},
        },
    },
    "greet": {"description": "Greet somebody.", "input_parameters": {"name": {"type": "str", "description": "who"}}},
}
TOOLS = "def half(n: int) -> int:\n    'Half of an even number.'\n    if n % 2: raise ValueError('odd')\n    return n // 2\n"  # noqa: E501


def write(folder: Path, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "apis.json").write_text(json.dumps(APIS))
    (folder / "tools.py").write_text(TOOLS)
    spec = {
        "name": "sums",
        "apis": "apis.json",
        "tools": ["python:tools.half"],
        "rows": 12,
        "each": 4,
        "concurrency": 2,
        "budget": {"calls": 40},
        "policy": {"default": "allow"},
        **settings,
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return folder / "spec.yaml"


def row(question: str, name: str, /, **arguments: Any) -> str:
    return json.dumps({"question": question, "name": name, "arguments": arguments})


class Writer:
    """Four lines a request: a right row, a wrong one of each sort in turn, one that fails (half of an odd number), and
    a duplicate of the right one. What is written depends on the request alone."""

    def __init__(self) -> None:
        self.script = Script(self)

    def __call__(self, request: Request) -> str:
        system, n = str(request.messages[0]["content"]), request.replica
        if "Does this one call do what was asked" in system:
            return "verdict: no" if " y3 " in str(request.messages[1]["content"]) else "I see.\nverdict: yes"
        other = f"x{n} y{n} z{n}"  # so many words of its own that it is no duplicate
        name = system.split("tool `")[1].split("`")[0]
        good = {
            "add": row(f"what is {n} and {n + 1} together {other}", "add", a=n, b=n + 1),
            "half": row(f"divide number {2 * n} by two {other}", "half", n=2 * n),
            "greet": row(f"say hello to person {n} {other}", "greet", name=f"p{n}"),
        }[name]
        wrong = [
            row("no such tool", "drop"),
            row("a word for a number", "add", a="x", b=1),
            row("b lacks", "add", a=1),
            row("one too much", "greet", name="x", age=2),
            row("", "greet", name="x"),
        ]
        if n % 7 == 6:
            return "I am sorry, I cannot do this."
        return "Sure:\n" + "\n".join(
            [good, wrong[n % 5], row(f"halve the odd number {2 * n + 1} {other}", "half", n=2 * n + 1), good]
        )


def test_only_right_rows_are_kept_and_each_rejection_has_its_reason(tmp_path: Path) -> None:
    found = synthesize(write(tmp_path, shown=3), database=str(tmp_path / "a.db"), pool=Writer().script)
    assert found.status == "finished" and len(found.rows) == 12
    apis = {a.name: a for a in load_apis("apis.json", ["python:tools.half"], tmp_path)}
    for kept in found.rows:
        (call,) = kept["calls"]
        assert find_misfit(call["arguments"], apis[call["name"]].schema) is None
        assert call["name"] in {t["name"] for t in kept["tools"]} and kept["source"]["seed"] == 0
        if call["name"] == "half":
            assert kept["result"] == call["arguments"]["n"] // 2 and kept["source"]["checks"] == ["format", "execution"]
    counts = found.as_dict()["rejected"]
    unreadable = sum(n % 7 == 6 for n in range(1, found.requests + 1))
    assert counts["unreadable"] == unreadable and counts["failed"] > 0 and counts["judge"] == 0
    read = found.requests - unreadable
    # One wrong row and one that fails in each answer, one duplicate; the last answer is read only until there are
    # enough.
    assert read - 1 <= counts["format"] <= read and read - 1 <= counts["failed"] <= read
    assert read - 1 <= counts["duplicate"] <= read
    assert "odd" in found.examples["failed"]
    by_name = [r["calls"][0]["name"] for r in found.rows]
    assert all(by_name.count(name) >= 3 for name in apis)  # no tool is left out


def test_a_judge_may_refuse(tmp_path: Path) -> None:
    found = synthesize(write(tmp_path, judge=True), database=str(tmp_path / "a.db"), pool=Writer().script)
    counts = found.as_dict()["rejected"]
    assert all("judge" in r["source"]["checks"] for r in found.rows)
    assert counts["judge"] == 1 and not any(" y3 " in r["question"] for r in found.rows)
    assert found.spent["by_role"]["judge"]["calls"] == len(found.rows) + counts["judge"]


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_the_budget_is_a_ceiling_and_what_was_found_is_kept(tmp_path: Path, calls: int) -> None:
    writer = Writer()
    found = synthesize(write(tmp_path, budget={"calls": calls}), database=str(tmp_path / "a.db"), pool=writer.script)
    assert found.status == "budget" and len(writer.script.requests) == calls == found.spent["calls"]
    assert len(found.rows) == calls


@pytest.mark.parametrize("tokens", range(700, 1500, 200))
def test_answers_that_were_paid_in_the_round_in_which_the_budget_ends_are_read(tmp_path: Path, tokens: int) -> None:
    spec = write(tmp_path, rows=500, budget={"tokens": tokens}, concurrency=4, max_tokens=200)
    found = synthesize(spec, database=str(tmp_path / "a.db"), pool=Writer().script)
    assert found.status == "budget"
    assert len(found.rows) + found.rejected["unreadable"] == found.spent["calls"], (
        "each that can be read has a right row"
    )


def test_a_writer_may_make_a_list_of_one_call_and_a_silent_one_ends_it(tmp_path: Path) -> None:
    def listed(request: Request) -> str:
        call = {"name": "greet", "arguments": {"name": f"p{request.replica}"}}
        return json.dumps(
            {"question": f"hello to p{request.replica} x{request.replica} y{request.replica}", "calls": [call]}
        )

    found = synthesize(write(tmp_path / "a", rows=2, shown=3), database=str(tmp_path / "a.db"), pool=Script(listed))
    assert [row["calls"][0]["name"] for row in found.rows] == ["greet", "greet"]

    def silent(request: Request) -> str:
        raise LMError("server", "gone")

    spec = write(tmp_path / "b", lm={"model": "openai/scripted", "attempts": 1}, budget={"calls": 100})
    found = synthesize(spec, database=str(tmp_path / "b.db"), pool=Script(silent))
    assert found.status == "unanswered" and not found.rows and found.rejected["unanswered"] < 12


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.plugins.synthesize.test_synthesize import Writer
from workbench_synthesize.synthesize import synthesize
writer, real = Writer(), Writer.__call__
def say(request):
    if len(writer.script.requests) > {after}:
        os._exit(9)
    return real(writer, request)
writer.script.say = say
synthesize(Path({path!r}), database={db!r}, pool=writer.script)
"""


def test_killed_and_begun_again_it_ends_with_the_same_rows_and_pays_nothing_twice(tmp_path: Path) -> None:
    path, db = write(tmp_path, judge=True, concurrency=1), str(tmp_path / "killed.db")
    whole = synthesize(path, database=str(tmp_path / "whole.db"), pool=Writer().script)
    root = str(Path(__file__).parents[3])
    code = KILLED.format(root=root, path=str(path), db=db, after=7)
    assert (
        subprocess.run([sys.executable, "-c", code], timeout=200, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode
        == 9
    )
    writer = Writer()
    again = synthesize(path, database=db, pool=writer.script)
    assert again.rows == whole.rows and again.rejected == whole.rejected and again.status == "finished"
    assert len(writer.script.requests) == whole.spent["calls"] - 7  # the eighth was under way at the kill
    assert again.spent["unknown"] == 1
    after = synthesize(path, database=db, pool=Writer().script)  # it had ended: the same command begins a new one
    assert after.rows == whole.rows and after.spent["calls"] == whole.spent["calls"]


def test_a_source_of_a_tool_runs_in_the_sandbox(tmp_path: Path) -> None:
    path = write(tmp_path, tools=[], rows=2)
    source = "def add(a, b):\n    if a > 1: raise ValueError('too large')\n    return a + b\n"
    (tmp_path / "apis.json").write_text(json.dumps({"add": {**APIS["add"], "source": source}}))
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=Writer().script, changes={"budget": {"calls": 3}})
    assert [r["result"] for r in found.rows] == [3] and found.rejected["failed"] >= 1
    assert "too large" in found.examples["failed"]


@pytest.mark.parametrize(
    ("value", "schema", "reason"),
    [
        ({"a": 1}, {"properties": {"a": {"type": "integer"}}}, None),
        ({"a": True}, {"properties": {"a": {"type": "integer"}}}, "arguments.a must be of type integer, not true"),
        ({"a": 1}, {"properties": {"a": {"type": "number"}}}, None),
        (
            {"a": ["x", 1]},
            {"properties": {"a": {"type": "array", "items": {"type": "string"}}}},
            "arguments.a[1] must be",
        ),
        ({"a": "c"}, {"properties": {"a": {"enum": ["a", "b"]}}}, "must be one of"),
        ({}, {"properties": {"a": {}}, "required": ["a"]}, "arguments lacks 'a'"),
        ({"b": 1}, {"properties": {"a": {}}}, "arguments has an unknown 'b'"),
        ({"a": None}, {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, None),
        ({"a": 2}, {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "of type string"),
        ({"a": {"b": 1}}, {"properties": {"a": {"properties": {"b": {"type": "string"}}}}}, "arguments.a.b"),
    ],
)
def test_arguments_are_checked_against_the_schema(value: Any, schema: Any, reason: str | None) -> None:
    found = find_misfit(value, schema)
    assert (found is None) == (reason is None) and (reason or "") in (found or "")


def test_objects_are_found_in_prose() -> None:
    assert list(read_objects('a {"x": {"y": 1}} b {bad} {"z": "}"}\n')) == [{"x": {"y": 1}}, {"z": "}"}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"apis": None, "tools": []}, "no tools are given"),
        ({"apis": "none.json"}, "cannot read"),
        ({"row": 3}, "unknown key 'row'"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(tmp_path: Path, settings: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        synthesize(write(tmp_path, **settings), database=str(tmp_path / "a.db"), pool=Writer().script)


def test_documents_of_the_shared_data_are_read(tmp_path: Path) -> None:
    """API-Bank and ToolE as they are, where they are at hand."""
    shared = Path(__file__).parents[4] / "shared/data"
    if not shared.exists():
        pytest.skip("the shared data are not here")
    docs = load_apis(str(shared / "api_bank/api_docs.json"), [], tmp_path)
    token = next(a for a in docs if a.name == "GetUserToken")
    assert find_misfit({"username": "a", "password": "b"}, token.schema) is None
    assert find_misfit({"username": "a"}, token.schema) == "arguments lacks 'password'"
    links = Links(docs)
    users = {a.name for a in docs if "token" in a.parameters}
    assert {a.name for a in docs if links.rank("GetUserToken", a.name) == 2} == users and len(users) == 18
    assert sum(links.rank(a.name, b.name) == 2 for a in docs for b in docs if a is not b) == 167, "as the README says"
    (tmp_path / "toole.json").write_text(
        json.dumps(json.loads((shared / "toole/tools.json").read_text())["plugin_des"])
    )
    assert all(a.description for a in load_apis("toole.json", [], tmp_path))


def test_rows_that_cannot_be_written_are_not_paid_for_again(tmp_path: Path) -> None:
    path, db, writer = write(tmp_path), str(tmp_path / "a.db"), Writer()
    with pytest.raises(IsADirectoryError):
        synthesize(path, database=db, pool=writer.script, out=tmp_path)
    paid = len(writer.script.requests)
    found = synthesize(path, database=db, pool=writer.script, out=tmp_path / "rows.jsonl")
    assert len(writer.script.requests) == paid > 0
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == found.rows
    write_rows([{"question": "half a pair: \ud83d"}], tmp_path / "odd.jsonl")
    assert (tmp_path / "odd.jsonl").exists()


def test_the_rows_are_data_of_a_workflow(tmp_path: Path) -> None:
    found = synthesize(write(tmp_path), database=str(tmp_path / "a.db"), pool=Writer().script)
    assert isinstance(found, Found)
    write_rows(found.rows, tmp_path / "rows.jsonl")
    spec = {
        "data": {"file": "rows.jsonl", "split": {"train": 4, "val": 4, "test": 4}},
        "metric": "tool_call_match(calls)",
        "nodes": {"call": {"predict": "question, tools -> calls"}},
    }
    (tmp_path / "workflow.yaml").write_text(json.dumps(spec))
    from workbench.run import prepare

    task = prepare(tmp_path / "workflow.yaml")[2]
    assert task.inputs == ("question", "tools") and task.dataset.warnings == ()


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('[{"name": "add"},\n {"name": "add"}]', None, "a second tool is named 'add'"),
        ('{"add": {},\n "add": {}}', (2, 2), "a second time"),
        (
            '{"add": {"parameters": {"a": {"type": "int"}}},\n "sub": {"parameters": {"a": {"type": "strnig"}}}}',
            (2, 2),
            "'sub': parameters.a has the unknown type 'strnig'",
        ),
        ('{"add": {"source": "def plus(a): return a"}}', (1, 2), "'add': its source defines no function of that name"),
        ('{"add": {"source": "def add(a) return a"}}', (1, 2), "'add': its source is not valid Python"),
    ],
)
def test_wrong_descriptions_of_tools_are_refused_at_their_place(
    text: str, place: tuple[int, int] | None, message: str, tmp_path: Path
) -> None:
    from workbench.errors import SpecError
    from workbench_synthesize.apis import load_apis

    (tmp_path / "apis.json").write_text(text)
    with pytest.raises(SpecError, match=message) as raised:
        load_apis("apis.json", [], tmp_path)
    found = (raised.value.line, raised.value.column)
    assert found == (place or (None, None)), "a list has no places: our reader of YAML wants a mapping"


@pytest.mark.parametrize("page", ["plugins/workbench_synthesize/README.md", "docs/how-to/train.md"])
def test_the_files_of_the_documents_are_right(page: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / page).read_text()
    (block,) = re.findall(r"\n\n((?:    (?!workbench).*\n)+)", text)
    (tmp_path / "block.yaml").write_text(block)
    spec, _ = load_synthesis(tmp_path / "block.yaml")
    assert spec.apis and spec.judge and spec.kinds["parallel"] == 1.0


def test_a_model_that_writes_no_row_ends_the_command_with_1(tmp_path: Path) -> None:
    """The bundled model writes names of teams, no rows."""
    path = write(tmp_path, lm="bundled/nano", budget={"calls": 3})
    args = ["data", "synthesize", str(path), "--out", str(tmp_path / "rows.jsonl"), "--db", str(tmp_path / "a.db")]
    found = CliRunner().invoke(cli, args)
    assert found.exit_code == 1 and "No row passed the checks" in found.output
    assert not (tmp_path / "rows.jsonl").exists()


def test_ceilings_given_beside_the_file_leave_its_others(tmp_path: Path) -> None:
    spec = write(tmp_path, budget={"calls": 40, "tokens": 300})
    found = synthesize(spec, database=str(tmp_path / "a.db"), pool=Writer().script, changes={"budget": {"calls": 30}})
    assert found.status == "budget" and found.spent["calls"] < 5, "the file's tokens end it"
