"""The `code` node: what it gives, and what is recorded where its code does wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import run_node
from tests.plugins.sandbox.test_sandbox import needs_kernel

from workbench.errors import SpecError


def code(source: str, signature: str = "text -> n: int", **more: Any) -> dict[str, Any]:
    return {"code": signature, "source": source, **more}


@needs_kernel
def test_a_node_runs_its_source(tmp_path: Path) -> None:
    outcome, script = run_node(code("def count(text): return len(text.split())"), {"text": "a b c"}, tmp_path)
    assert dict(outcome.prediction) == {"n": 3} and not script.requests


@needs_kernel
@pytest.mark.parametrize(
    ("allowed", "value", "given"),
    [
        ("'True', 'False'", "True", "True"),
        ("'1', '2'", "2", "2"),
        ("1, 2", "'2'", 2),
        ("'None', 'some'", "None", "None"),
        ("1, 2", "1.0", 1),
    ],
)
def test_a_value_that_is_written_as_an_allowed_one_is_that_one(
    allowed: str, value: str, given: object, tmp_path: Path
) -> None:
    node = code(f"def f(text): return {value}", f"text -> a: Literal[{allowed}]")
    outcome, _ = run_node(node, {"text": "a"}, tmp_path)
    assert outcome.prediction.get("a") == given, outcome


@needs_kernel
@pytest.mark.parametrize(
    ("node", "message"),
    [
        (code("def f(text): return 3", "text -> a: Literal['1', '2']"), "returned an invalid 'a'"),
        (code("def f(text): return 'true'", "text -> a: Literal['True', 'False']"), "returned an invalid 'a'"),
        (code("def f(text): return 1 / 0"), "line 1: ZeroDivisionError"),
        (code('def f(text): return eval("1 +* 2")'), "SyntaxError: invalid syntax (<string>, line 1) in '1 +* 2'"),
        (code("def f(text): return 'many'"), "returned an invalid 'n'"),
        (code("def f(text): return 1", "text -> a: int, b: int"), "must return a dict with a, b"),
        (code("def f(text): return {'a': 1, 'c': 2}", "text -> a: int, b: int"), "must return a dict with a, b"),
        (code("def f(text):\n    while True: pass", timeout=0.2), "timeout"),
        (code("def f(text): return open('/etc/passwd').read()"), "Error"),
    ],
)
def test_what_the_code_does_wrong_is_a_failure_of_the_example(node: dict, message: str, tmp_path: Path) -> None:
    outcome, _ = run_node(node, {"text": "a"}, tmp_path)
    assert outcome.failure == "code" and message in (outcome.message or ""), outcome


@pytest.mark.parametrize(("source", "message"), [("def f(:", "not valid Python"), ("x = 1", "defines no function")])
def test_a_source_that_cannot_run_is_refused_at_once(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=message):
        run_node(code(source), {"text": "a"}, tmp_path)
