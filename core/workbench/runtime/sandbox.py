"""Sandboxes: where code that a language model wrote is run. The core knows what one does; plugins do it.

Code never runs in the workbench's own process. What comes back is JSON and is treated as hostile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.errors import SandboxError, suggest
from workbench.plugins import plugins

#: From strong to none. Below "kernel" there is no real boundary, and only the user can allow that.
LEVELS = ("strong", "kernel", "wasm", "limits-only")
BOUNDARIES = frozenset({"strong", "kernel", "wasm"})


@dataclass(frozen=True, slots=True)
class SandboxResult:
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
    ) -> SandboxResult: ...

    async def aclose(self) -> None: ...


#: Set by the command line (`--unsafe-sandbox`, `--sandbox`), never by a workflow file: a stranger's file must not open
#: the door.
_allowed_without_boundary = False
_chosen: str | None = None


def allow_without_boundary(allowed: bool = True) -> None:
    """Let code run where nothing but resource limits holds it."""
    global _allowed_without_boundary
    _allowed_without_boundary = allowed


def choose(name: str | None) -> None:
    """Take this sandbox and no other; None: the strongest. Without it, WORKBENCH_SANDBOX chooses. Raises
    SandboxError."""
    global _chosen
    if name is not None:
        _known(name)
    _chosen = name


def chosen() -> str | None:
    """The sandbox that the user names; None: the strongest is taken."""
    return _chosen or os.environ.get("WORKBENCH_SANDBOX")


async def open_sandbox() -> Sandbox:
    """The chosen sandbox, else the strongest that works here; its level is measured by attacking it.

    One whose `open` has an attribute `at_best`, a level, is not tried where something at least as strong was found.
    Raises SandboxError, with what to install, if none has a real boundary and the user has not allowed that.
    """
    best: Sandbox | None = None
    reasons = []
    openers = {name: plugins().get("sandboxes", name) for name in _names()}
    for name, opener in sorted(openers.items(), key=lambda pair: LEVELS.index(getattr(pair[1], "at_best", LEVELS[0]))):
        at_best = getattr(opener, "at_best", LEVELS[0])
        if best is not None and LEVELS.index(best.level) <= LEVELS.index(at_best):
            break
        try:
            sandbox: Sandbox = await opener()
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
        hint="Use Linux with Landlock and seccomp, or bubblewrap; or Deno (workbench sandbox install); or take the "
        "risk with --unsafe-sandbox.",
    )


def _names() -> list[str]:
    """The sandboxes to try. Raises SandboxError if the chosen one is not there."""
    name = chosen()
    return [_known(name)] if name else plugins().names("sandboxes")


def _known(name: str) -> str:
    known = plugins().names("sandboxes")
    if name not in known:
        raise SandboxError(f"there is no sandbox '{name}'", hint=suggest(name, known))
    return name
