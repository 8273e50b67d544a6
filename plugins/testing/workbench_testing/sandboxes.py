"""Checks of a sandbox's contract. Each opens it, runs code in it, and raises AssertionError with a remedy.

These are the outcomes of a call and the plainest attacks. A sandbox measures its own level, by attacks that know it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from workbench.runtime import BOUNDARIES, LEVELS, Sandbox, SandboxResult
from workbench_testing.case import checks_in, name_of, run_all

Open = Callable[[], Awaitable[Sandbox]]
Result = TypeVar("Result")


def check_sandbox(open_: Open) -> None:
    """Run all checks on a sandbox. open_: as it is registered. Raises AssertionError that says what to fix."""
    run_all(sandbox_checks(), open_)


def sandbox_checks() -> list[Callable[[Open], None]]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


def _with(open_: Open, use: Callable[[Sandbox], Awaitable[Result]]) -> Result:
    async def main() -> Result:
        async with aclosing(await open_()) as sandbox:
            return await use(sandbox)

    return asyncio.run(main())


def _call(open_: Open, source: str, timeout: float = 5.0, **arguments: Any) -> SandboxResult:
    return _with(open_, lambda sandbox: sandbox.call(source, "f", arguments, timeout=timeout))


def check_sandbox_names_its_level(open_: Open) -> None:
    """`name`, and `level`, one of workbench.runtime.LEVELS."""

    async def attributes(sandbox: Sandbox) -> tuple[str, str]:
        return sandbox.name, sandbox.level

    name, level = _with(open_, attributes)
    assert name and level in LEVELS, f"{name_of(open_)}: the level is {level!r}, it must be one of {', '.join(LEVELS)}"


def check_sandbox_returns_values(open_: Open) -> None:
    """Arguments and values are JSON; what is printed is kept."""
    value = {"a": [1, 2.5, None, True, "漢字"]}
    found = _call(open_, "def f(x, y=1):\n    print('seen')\n    return [x, y]", x=value)
    assert found.ok and found.value == [value, 1], f"{name_of(open_)}: [x, y] came back as {found}"
    assert found.printed.strip() == "seen", f"{name_of(open_)}: what was printed is lost: {found.printed!r}"


def check_sandbox_says_how_a_call_failed(open_: Open) -> None:
    """`error` with its line where the code raised or is no Python, `bad_result` for a value that is no JSON."""
    raised = _call(open_, "def f():\n    return 1 / 0")
    assert raised.kind == "error" and raised.line == 2 and "ZeroDivisionError" in raised.message, (
        f"{name_of(open_)}: a division by zero on line 2 gave {raised}"
    )
    for source in ("def f(:", "x = 1"):
        found = _call(open_, source)
        assert found.kind == "error", f"{name_of(open_)}: the source {source!r} gave {found}, it must be an `error`"
    for source in ("def f():\n    return {1, 2}", "def f():\n    return float('nan')"):
        found = _call(open_, source)
        assert found.kind == "bad_result", f"{name_of(open_)}: {source[-20:]!r} gave {found}, it must be `bad_result`"


def check_sandbox_ends_what_takes_too_long(open_: Open) -> None:
    """A call ends at its timeout, and the sandbox goes on working."""

    async def use(sandbox: Sandbox) -> tuple[SandboxResult, float, SandboxResult]:
        begun = time.monotonic()
        slow = await sandbox.call("def f():\n    while True: pass", "f", {}, timeout=1.0)
        took = time.monotonic() - begun
        return slow, took, await sandbox.call("def f():\n    return 1", "f", {}, timeout=10.0)

    slow, took, after = _with(open_, use)
    assert slow.kind == "timeout", f"{name_of(open_)}: an endless loop gave {slow}, it must be a `timeout`"
    assert took < 20, f"{name_of(open_)}: a timeout of 1 s took {took:.0f} s"
    assert after.ok and after.value == 1, f"{name_of(open_)}: after a timeout, the next call gave {after}"


def check_sandbox_keeps_no_state(open_: Open) -> None:
    """A call sees nothing of the one before."""
    source = "import builtins\ndef f():\n    builtins.seen = getattr(builtins, 'seen', 0) + 1\n    return builtins.seen"

    async def use(sandbox: Sandbox) -> list[Any]:
        return [(await sandbox.call(source, "f", {}, timeout=10.0)).value for _ in range(3)]

    found = _with(open_, use)
    assert found in ([1, 1, 1], [None] * 3), f"{name_of(open_)}: a call sees what the one before left: {found}"


def check_sandbox_runs_calls_at_once(open_: Open) -> None:
    """Several calls at the same time each get their own result."""

    async def use(sandbox: Sandbox) -> list[SandboxResult]:
        calls = (sandbox.call("def f(x):\n    return x * x", "f", {"x": x}, timeout=30.0) for x in range(8))
        return list(await asyncio.gather(*calls))

    values = [found.value for found in _with(open_, use)]
    assert values == [x * x for x in range(8)], f"{name_of(open_)}: eight calls at the same time gave {values}"


def check_sandbox_holds_what_it_claims(open_: Open) -> None:
    """Behind a boundary, code reads no file of the user, writes none, and opens no connection."""

    async def level(sandbox: Sandbox) -> str:
        return sandbox.level

    claimed = _with(open_, level)
    if claimed not in BOUNDARIES:
        return
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret.txt"
        secret.write_text("a secret", encoding="utf-8")
        attacks = {
            "reads files": "def f(path):\n    return open(path).read()",
            "writes files": "def f(path):\n    open(path + '.new', 'w').write('x')\n    return True",
            "starts programs": "import subprocess\ndef f(path):\n    return subprocess.check_output(['id']).decode()",
        }
        for what, source in attacks.items():
            found = _call(open_, source, path=str(secret))
            reached = (found.ok and found.value) or list(Path(folder).glob("*.new"))
            assert not reached, f"{name_of(open_)} claims the level '{claimed}', and code in it {what}"
