"""Functions in workflow files: kept with their tests, referred to from other files, tested, listed and served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.function_library import DOUBLE, PEEK, SHOUT, TOTAL, write, write_library
from tests.helpers.scripted import run_node
from tests.plugins.sandbox.test_sandbox import needs_kernel

from workbench.cli.file_schema import json_schema
from workbench.errors import SpecError
from workbench.lm import Request
from workbench.run import prepare

pytestmark = needs_kernel


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_library(tmp_path)


def using(library: Path, functions: Any) -> Any:
    """The functions of an agent that refers to the library, as the loaded workflow has them."""
    nodes = {"other": {"agent": "question -> answer", "functions": functions}}
    return prepare(write(library.parent, "use.yaml", nodes), [])[2].workflow.get("nodes.other.functions")


# Referred to


def test_a_reference_is_replaced_by_the_functions(library: Path) -> None:
    bare = {"description": "", "parameters": {}}
    assert using(library, "library.yaml#nodes.solve") == [DOUBLE, SHOUT | bare, PEEK | bare]
    names = [f["name"] for f in using(library, ["library.yaml#nodes.add", {**SHOUT, "name": "shout"}])]
    assert names == ["total", "shout"]
    assert [f["name"] for f in using(library, "library.yaml")] == ["double", "shout", "peek", "total"]


def test_the_program_of_a_code_node_becomes_a_function_with_a_schema(library: Path) -> None:
    (total,) = using(library, "library.yaml#nodes.add")
    assert total["parameters"] == {
        "type": "object",
        "required": ["numbers"],
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
    }
    assert total["example"] == TOTAL["example"] and total["source"] == TOTAL["source"]


def test_references_work_in_nodes_inside_nodes_and_through_other_files(library: Path) -> None:
    inner = {"agent": "question -> answer", "functions": "library.yaml#nodes.solve"}
    write(library.parent, "middle.yaml", {"vote": {"ensemble": inner, "samples": 3}})
    functions = using(library, "middle.yaml#nodes.vote.of")
    assert [f["name"] for f in functions] == ["double", "shout", "peek"]


def test_an_agent_calls_a_function_of_another_file(library: Path) -> None:
    functions = using(library, "library.yaml#nodes.solve")

    def say(request: Request) -> str:
        last = str(request.messages[-1]["content"])
        return (
            f"answer: {last[8:]}" if last.startswith("result: ") else 'call: {"tool": "double", "arguments": {"x": 21}}'
        )

    outcome, _ = run_node(
        {"agent": "question -> answer", "functions": functions}, {"question": "?"}, library.parent, say
    )
    assert outcome.prediction["answer"] == "42"


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("library.yaml#nodes.solv", "no functions at nodes.solv\n  Did you mean 'nodes.solve'?"),
        ("libary.yaml", "'libary.yaml': there is no file"),
        ("library.yaml#", "names no functions\n  Write FILE#nodes.NAME"),
        ("use.yaml", "these files refer to each other: use.yaml -> use.yaml"),
        ("empty.yaml", "this file has no functions"),
        (["library.yaml", "library.yaml#nodes.add"], "two tools are named 'total'"),
    ],
)
def test_a_wrong_reference_is_told_with_line_and_column(library: Path, functions: Any, message: str) -> None:
    write(library.parent, "empty.yaml", {"a": {"predict": "question -> answer"}})
    with pytest.raises(SpecError) as raised:
        using(library, functions)
    assert message in str(raised.value)
    lines = (library.parent / "use.yaml").read_text().splitlines()
    assert raised.value.line is not None and raised.value.column is not None
    text = lines[raised.value.line - 1][raised.value.column - 1 :]
    assert text.startswith(('"functions"', '"other"')), text


def test_the_schema_for_editors_knows_references(library: Path) -> None:
    functions = json_schema()["$defs"]["node_agent"]["properties"]["functions"]
    assert [kind["type"] for kind in functions["anyOf"]] == ["string", "array"]
    assert {"$ref": "#/$defs/Forged"} in functions["anyOf"][1]["items"]["anyOf"]
