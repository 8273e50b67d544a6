"""`check_sandbox`: each check finds the fault that it is about, and no other check does. The sandbox below is a plain
child process without any boundary, and says so."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.helpers.conformance import broken

from workbench.runtime import SandboxResult
from workbench_testing import check_sandbox, sandbox_checks

_CHILD = r"""
import contextlib, io, json, sys, traceback
asked = json.loads(sys.stdin.read())
printed = io.StringIO()
try:
    with contextlib.redirect_stdout(printed):
        names = {}
        exec(compile(asked["source"], "<code>", "exec"), names)
        value = names[asked["function"]](**asked["arguments"])
    try:
        out = {"kind": "ok", "value": json.loads(json.dumps(value, allow_nan=False))}
    except (TypeError, ValueError) as error:
        out = {"kind": "bad_result", "message": str(error)}
except BaseException as error:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == "<code>"]
    out = {"kind": "error", "message": f"{type(error).__name__}: {error}", "line": lines[-1] if lines else None}
print(json.dumps({**out, "printed": printed.getvalue()}))
"""


class Child:
    """A child process for each call."""

    name, level = "child", "limits-only"

    async def call(self, source: str, function: str, arguments: Any, *, timeout: float = 5.0) -> SandboxResult:
        asked = json.dumps({"source": source, "function": function, "arguments": dict(arguments)}).encode()
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", _CHILD, stdin=pipe, stdout=pipe)
        try:
            out, _ = await asyncio.wait_for(child.communicate(asked), timeout)
        except TimeoutError:
            child.kill()
            await child.wait()
            return SandboxResult("timeout")
        return SandboxResult(**json.loads(out))

    async def aclose(self) -> None:
        pass


class Unnamed(Child):
    level = "unbreakable"


class LosesPrint(Child):
    async def call(self, *args, **more):
        found = await super().call(*args, **more)
        return SandboxResult(found.kind, found.value, found.message, found.line)


class LosesLines(Child):
    async def call(self, *args, **more):
        found = await super().call(*args, **more)
        return SandboxResult(found.kind, found.value, found.message, None, found.printed)


class Late(Child):
    async def call(self, source, function, arguments, *, timeout=5.0):
        found = await super().call(source, function, arguments, timeout=timeout)
        return SandboxResult("crashed") if found.kind == "timeout" else found


class Remembers(Child):
    calls = 0

    async def call(self, source, function, arguments, *, timeout=5.0):
        self.calls += 1
        source = source.replace("'seen', 0", f"'seen', {self.calls - 1}")
        return await super().call(source, function, arguments, timeout=timeout)


class Mixes(Child):
    """Its calls share one place for arguments."""

    async def call(self, source, function, arguments, *, timeout=5.0):
        self.arguments = arguments
        await asyncio.sleep(0.01)
        return await super().call(source, function, self.arguments, timeout=timeout)


class Boasts(Child):
    level = "strong"


def opener(kind: type[Child]) -> Callable[[], Awaitable[Any]]:
    async def open_() -> Any:
        return kind()

    return open_


@pytest.mark.slow
def test_a_sandbox_that_keeps_its_contract_passes() -> None:
    check_sandbox(opener(Child))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "check", "said"),
    [
        (Unnamed, "names_its_level", "the level is 'unbreakable'"),
        (LosesPrint, "returns_values", "what was printed is lost"),
        (LosesLines, "says_how_a_call_failed", "on line 2"),
        (Late, "ends_what_takes_too_long", "it must be a `timeout`"),
        (Remembers, "keeps_no_state", "what the one before left: [1, 2, 3]"),
        (Mixes, "runs_calls_at_once", "eight calls at the same time"),
        (Boasts, "holds_what_it_claims", "claims the level 'strong', and code in it reads files"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_fault_is_found_by_its_check_alone(kind: type[Child], check: str, said: str) -> None:
    found = broken(sandbox_checks(), opener(kind))
    assert list(found) == [f"check_sandbox_{check}"], found
    assert said in found[f"check_sandbox_{check}"]
