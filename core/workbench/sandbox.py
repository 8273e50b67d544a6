"""Sandboxes: where code that a language model wrote is run. The core knows what one does; plugins do it.

Code never runs in the workbench's own process. What comes back is JSON and is treated as hostile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.errors import SpecError
from workbench.plugins import plugins

#: From strong to none. Below "kernel" there is no real boundary, and only the user can allow that.
LEVELS = ("strong", "kernel", "wasm", "limits-only")
BOUNDARIES = frozenset({"strong", "kernel", "wasm"})


class SandboxError(SpecError):
    """There is no sandbox with a real boundary here, or it cannot be started."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call gave.

    kind: `ok`, `error` (the code raised, or is no Python), `forbidden` (it tried what the sandbox denies), `timeout`,
    `memory`, `output` (printed too much), `bad_result` (not JSON, or too large), `crashed`. line: of the source,
    counted from 1, where an error has one. printed: the beginning of what it printed.
    """

    kind: str
    value: Any = None
    message: str = ""
    line: int | None = None
    printed: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.kind == "ok"


class Sandbox(Protocol):
    """Runs one function of a source at a time, any number of calls at once. level: one of LEVELS, as measured."""

    name: str
    level: str

    async def call(
        self, source: str, function: str, arguments: Mapping[str, Any], *, timeout: float = 5.0
    ) -> Outcome: ...

    async def aclose(self) -> None: ...


#: Set by the command line (`--unsafe-sandbox`), never by a workflow file: a stranger's file must not open the door.
_allowed_without_boundary = False


def allow_without_boundary(allowed: bool = True) -> None:
    """Let code run where nothing but resource limits holds it."""
    global _allowed_without_boundary
    _allowed_without_boundary = allowed


async def open_sandbox() -> Sandbox:
    """The strongest sandbox that works here, its level measured by attacking it.

    Raises SandboxError, with what to install, if none has a real boundary and the user has not allowed that.
    """
    best: Sandbox | None = None
    reasons = []
    for name in plugins().names("sandboxes"):
        try:
            sandbox: Sandbox = await plugins().get("sandboxes", name)()
        except SandboxError as error:
            reasons.append(f"{name}: {error.message}")
            continue
        if sandbox.level not in (LEVELS if _allowed_without_boundary else BOUNDARIES):
            reasons.append(f"{name}: only {sandbox.level}")
            await sandbox.aclose()
        elif best is None or LEVELS.index(sandbox.level) < LEVELS.index(best.level):
            best, weaker = sandbox, best
            if weaker is not None:
                await weaker.aclose()
        else:
            await sandbox.aclose()
    if best is not None:
        return best
    raise SandboxError(
        f"code is not run here, since nothing would hold it ({'; '.join(reasons) or 'there is no sandbox plugin'})",
        hint="Use Linux with Landlock and seccomp, or bubblewrap; or take the risk with --unsafe-sandbox.",
    )
