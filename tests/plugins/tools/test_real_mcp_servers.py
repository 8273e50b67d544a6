"""MCP servers that others wrote, where their programs are on the PATH: what they list, and what calls give.

`.ci/mcp` installs them and runs these tests; without them they are skipped.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from workbench_kit.acting import describe_tool, load_tools

pytest.importorskip("mcp")

TIME = {"source_timezone": "Europe/Rome", "time": "12:00", "target_timezone": "Asia/Tokyo"}
ENTITY = {"name": "Ada", "entityType": "person", "observations": ["wrote a program"]}
SERVERS: list[Any] = [
    ("mcp-server-time --local-timezone UTC", "convert_time", TIME, '"time": "string, ', "20:00"),
    ("mcp-server-sqlite --db-path shop.db", "read_query", {"query": "select 6 * 7 as n"}, '"query": "string', "42"),
    ("mcp-server-everything", "get-sum", {"a": "1", "b": 2}, '"a": "number', "3"),
    ("mcp-server-everything", "get-tiny-image", {}, "get-tiny-image({})", "data:image/png;base64,"),
    ("mcp-server-memory", "create_entities", {"entities": [ENTITY]}, '"observations": ["string"]', "Ada"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "name", "given", "told", "result"), SERVERS, ids=lambda value: str(value)[:20])
def test_t1_a_server_is_listed_and_called(
    command: str, name: str, given: dict[str, Any], told: str, result: str, tmp_path: Path
) -> None:
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command.split()[0]} is not installed: run .ci/mcp")
    tools = load_tools([f"mcp:{command}"], tmp_path, {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")})
    assert told in describe_tool(tools[name]) and len(tools) > 1
    assert result in str(asyncio.run(tools[name](given, 30.0)))
