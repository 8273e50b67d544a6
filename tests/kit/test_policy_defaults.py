"""An argument that is left out is checked as the default that the tool will take."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.policies import policy

from workbench.errors import NodeError
from workbench_kit.acting import Tool, check_call, load_tool

DENY = policy({"rules": [{"deny": "pay", "when": {"to": "evil"}}]})


async def _effect(kind: str, content: Any, run: Any) -> Any:
    return await run()


def check(tool: Tool, arguments: dict[str, Any]) -> None:
    asyncio.run(check_call([DENY], tool.name, arguments, None, _effect, tool.all_defaults))


def test_the_default_of_a_python_function_counts(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text('def pay(amount: int, to: str = "evil") -> str:\n    return to\n')
    tool = load_tool("python:desk.py:pay", tmp_path)
    assert "default" not in str(tool.schema), "what a model is told stays as it was"
    with pytest.raises(NodeError, match="not allowed"):
        check(tool, {"amount": 5})
    check(tool, {"amount": 5, "to": "ann"})


def test_the_default_of_a_schema_counts() -> None:
    schema = {"properties": {"amount": {}, "to": {"type": "string", "default": "evil"}}}
    tool = Tool("pay", "", schema, lambda arguments: None)
    with pytest.raises(NodeError, match="not allowed"):
        check(tool, {"amount": 5})
    check(tool, {"to": "ann"})
