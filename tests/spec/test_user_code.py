"""The user's own code: one grammar and one loader for tools, metrics and all else that a workflow file names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.cli import main
from workbench.errors import SpecError
from workbench.run import prepare
from workbench.spec import code_files, load_user_code, parse_address, relocate_address
from workbench.task import Example, Score, Task
from workbench_kit.acting import environment_class, load_tool, tool_name
from workbench_metrics.function import load_function

#: The three forms, of a module beside the workflow file and of one in a folder.
BESIDE = ["own.py:{}", "own:{}", "own.{}"]
INSIDE = ["parts/deep.py:{}", "parts.deep:{}", "parts.deep.{}"]
CODE = """
from workbench_kit.acting import Environment

def right(example, prediction, trace=None):
    return 0.25

def double(text: str) -> str:
    "Says it twice."
    return text * 2

class World(Environment):
    pass

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    for name in ("own.py", "parts/deep.py"):
        (tmp_path / name).write_text(CODE)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": f"t{i}"}) + "\n" for i in range(9)))
    return tmp_path


def task(folder: Path, metric: Any, tool: str) -> Task:
    spec = {
        "name": "own",
        "lm": "bundled/nano",
        "data": {"file": "rows.jsonl"},
        "metric": metric,
        "budget": {"calls": 9},
        "nodes": {"n": {"tool": tool}},
        "optimize": ["random"],
    }
    (folder / "workflow.yaml").write_text(yaml.safe_dump(spec))
    return prepare(folder / "workflow.yaml", ())[2]


@pytest.mark.parametrize("form", [*BESIDE, *INSIDE])
def test_every_form_names_a_tool_a_metric_and_an_environment(form: str, folder: Path) -> None:
    tool = load_tool("python:" + form.format("double"), folder)
    assert (tool.name, tool.call({"text": "ab"}), tool.description) == ("double", "abab", "Says it twice.")
    metric = load_function(form.format("right"), folder)
    assert metric(Example("1", {}), {}) == Score(0.25)
    assert environment_class("python:" + form.format("World"), folder).__name__ == "World"
    assert tool_name("python:" + form.format("World")) == "World"


@pytest.mark.parametrize("form", [*BESIDE, *INSIDE])
def test_every_form_runs_in_a_workflow(form: str, folder: Path) -> None:
    made = task(folder, "python:" + form.format("right"), "python:" + form.format("double"))
    assert made.metric(Example("1", {}), {}, None) == Score(0.25)


@pytest.mark.parametrize("form", ["math:prod", "math.prod", "os.path:join", "os.path.join"])
def test_installed_modules(form: str, tmp_path: Path) -> None:
    assert load_user_code(f"python:{form}", tmp_path) is load_user_code(form, tmp_path)
    assert code_files([f"python:{form}"], tmp_path) == [], "only files beside the workflow are watched"


def test_a_module_beside_the_workflow_comes_before_an_installed_one(tmp_path: Path) -> None:
    (tmp_path / "math.py").write_text("def prod(): return 'mine'")
    assert load_user_code("python:math.prod", tmp_path)() == "mine"


@pytest.mark.parametrize("form", [*BESIDE, *INSIDE])
@pytest.mark.parametrize("where", ["tool", "metric"])
def test_a_changed_file_changes_the_hash(form: str, where: str, folder: Path) -> None:
    """By it a run is not resumed on other code."""
    (folder / "other.py").write_text("def same(text: str): return text\ndef score(example): return 1")
    metric: Any = "python:other.py:score"
    tool = "python:other.py:same"
    if where == "tool":
        tool = "python:" + form.format("double")
    else:
        metric = "python:" + form.format("right")
    before = task(folder, metric, tool).external_hash
    assert task(folder, metric, tool).external_hash == before
    file = folder / ("parts/deep.py" if "deep" in form else "own.py")
    file.write_text(CODE + "\n# changed\n")
    assert task(folder, metric, tool).external_hash != before


def test_a_changed_file_is_loaded_anew_and_an_equal_one_is_not(folder: Path) -> None:
    first = load_user_code("python:own.py:double", folder)
    assert load_user_code("python:own:double", folder) is first, "one module, whoever names it"
    (folder / "own.py").write_text(CODE.replace("text * 2", "text * 3"))
    assert load_user_code("python:own.py:double", folder)("a") == "aaa"


WRONG = {
    "own.py": ("names no function of the file", "Write python:own.py:function."),
    "own": ("names no function", "python:file.py:function, python:module:function or python:module.function"),
    "own.py:": ("names no function", "python:file.py:function"),
    ":double": ("names no function", "python:file.py:function"),
    "own.py:double(text)": (
        r"'double\(text\)' is not the name of a function",
        "Write python:own.py:double, without arguments.",
    ),
    "my-own:double": ("'my-own' is neither a module nor a file of Python", "python:file.py:double"),
    "own.py:duoble": ("own.py has no function 'duoble'", "Did you mean 'double'?"),
    "own.duoble": ("own has no function 'duoble'", "Did you mean 'double'?"),
    "own.py:number": ("has no function 'number'", ""),
    "onw.py:double": ("there is no file .*onw.py", "Did you mean 'own.py'? Paths are relative to the workflow file."),
    "onw:double": ("'.*onw:double' cannot be imported: .*No module named 'onw'", "onw.py and for an installed module"),
}


@pytest.mark.parametrize(("address", "told"), WRONG.items(), ids=WRONG)
def test_errors_say_what_to_write_for_tools_and_metrics_alike(
    address: str, told: tuple[str, str], folder: Path
) -> None:
    for load in (lambda: load_tool(f"python:{address}", folder), lambda: load_function(address, folder)):
        with pytest.raises(SpecError, match=told[0]) as caught:
            load()
        assert told[1] in (caught.value.hint or "")


def test_an_error_inside_the_file_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("x = 1\n\nimport no_such_module_anywhere\n")
    for load in (lambda: load_tool("python:own.double", tmp_path), lambda: load_function("own.double", tmp_path)):
        with pytest.raises(SpecError, match="no_such_module_anywhere") as caught:
            load()
        assert (
            caught.value.message.startswith(f"{tmp_path / 'own.py'}:3: ") and caught.value.hint == "Correct the file."
        )


def test_an_address_is_relocate_address_another_folder(folder: Path) -> None:
    out = folder / "results"
    assert relocate_address("python:own.py:double", folder, out) == "python:../own.py:double"
    assert relocate_address("python:own.double", folder, out) == "python:../own.py:double", (
        "out there is no module of that name"
    )
    assert relocate_address("python:parts.deep:double", folder, out) == "python:../parts/deep.py:double"
    for same in ("python:own.double", "python:own:double", "python:own.py:double"):
        assert relocate_address(same, folder, folder) == same
    for stays in ("python:math.prod", f"python:{folder}/own.py:double", "python:no address", "exact_match(label)"):
        assert relocate_address(stays, folder, out) == stays


def test_a_result_in_another_folder_finds_its_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task(folder, "python:own.right", "python:own.double")
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(["optimize", "workflow.yaml", "--out", "results/best.yaml", "--allow-unproved"])
    assert ended.value.code in (0, None)
    written = yaml.safe_load((folder / "results/best.yaml").read_text())
    assert written["metric"] == "python:../own.py:right" and written["nodes"]["n"]["tool"] == "python:../own.py:double"
    prepare(folder / "results/best.yaml", ())


def test_the_parts_of_an_address() -> None:
    for text in ("python:a/b.py:f", "a/b.py:f"):
        assert (parse_address(text).module, parse_address(text).name) == ("a/b.py", "f")
    assert parse_address("a.b.f") == parse_address("python:a.b:f")
