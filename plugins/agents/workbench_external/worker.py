"""Calls a function or an MCP tool for a row, in its own process: inputs as JSON on stdin, the answer on stdout.

Output of the function, and of programs that it starts, goes to stderr. This file imports nothing of workbench, so that
it starts fast and the user's modules see an ordinary process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any


def _load(base: str, module: str, name: str) -> Any:
    sys.path.insert(0, base)
    if not module.endswith(".py"):
        return getattr(importlib.import_module(module), name)
    path = Path(base, module)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


def _call(named: Any, inputs: dict[str, Any]) -> Any:
    """Call a function. A class is instantiated first; for an object that is not callable, its `run` is called."""
    named = named() if inspect.isclass(named) else named
    function = named if callable(named) else named.run
    parameters = inspect.signature(function).parameters.values()
    free = [p for p in parameters if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    keyword = all(p.name in inputs or p.default is not p.empty for p in parameters if p not in free)
    found = function(**inputs) if keyword else function(*inputs.values())
    if inspect.isawaitable(found) or inspect.isasyncgen(found):
        found = asyncio.run(_await(found))
    if not inspect.isgenerator(found):
        return found
    pieces = [*found]
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(pieces) else pieces


async def _await(found: Any) -> Any:
    """Return the value of an awaitable; for an asynchronous generator, a generator of its items."""
    found = await found if inspect.isawaitable(found) else found
    if not inspect.isasyncgen(found):
        return found
    pieces = [piece async for piece in found]
    return (piece for piece in pieces)


async def _ask_mcp(base: str, command: str, tool: str, inputs: dict[str, Any]) -> Any:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    program, *arguments = shlex.split(command)
    program = sys.executable if program == "python" else program
    server = StdioServerParameters(command=program, args=arguments, cwd=base, env=dict(os.environ))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        result = await session.call_tool(tool, inputs)
    text = "\n".join(getattr(part, "text", "") for part in result.content)
    if getattr(result, "is_error", getattr(result, "isError", False)):
        raise RuntimeError(text[:500])
    structured = getattr(result, "structured_content", getattr(result, "structuredContent", None))
    # A plain value is wrapped: {"result": value}.
    return text if structured is None or [*structured] == ["result"] else structured


def main() -> None:
    kind, base, first, second = sys.argv[1:5]
    inputs = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace") as answer:
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        answer.write(_written(_find(kind, base, first, second, inputs)))


def _find(kind: str, base: str, first: str, second: str, inputs: dict[str, Any]) -> Any:
    if kind == "mcp":
        return asyncio.run(_ask_mcp(base, first, second, inputs))
    return _call(_load(base, first, second), inputs)


def _written(found: Any) -> str:
    return found if isinstance(found, str) else json.dumps(found, default=_as_json)


def _as_json(value: Any) -> Any:
    """Convert an object: pydantic models and dataclasses to a mapping, others to text."""
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(mode="json")
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else str(value)


if __name__ == "__main__":
    main()
