"""The contract of sandboxes, which run model-written code, and the choice of one. Plugins provide them.

Code never runs in the workbench's own process. Its result is JSON and is treated as hostile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from workbench.errors import SandboxError, suggest
from workbench.plugins import plugins

#: From the strongest to the weakest. "limits-only" is no boundary; only the user may allow it.
LEVELS = ("strong", "kernel", "wasm", "limits-only")
BOUNDARIES = frozenset({"strong", "kernel", "wasm"})


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The outcome of a call.

    kind: `ok`, `error` (the code raised, or is not Python), `forbidden` (it tried something that the sandbox denies),
    `timeout`, `memory`, `output` (printed too much), `bad_result` (not JSON, or too large), `crashed`. line: of the
    source, from 1, if the error has one. printed: the beginning of its output.
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
    """Runs functions of Python sources, any number of calls concurrently. level: one of LEVELS, as measured."""

    name: str
    level: str

    async def call(
        self, source: str, function: str, arguments: Mapping[str, Any], *, timeout: float = 5.0
    ) -> SandboxResult: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """The user's choice of a sandbox. It comes from flags and the environment, never from a workflow file: a stranger's
    file must not weaken the boundary.

    Attributes:
        name: of a registered sandbox; None: the strongest that works on this machine.
        allow_limits_only: accept a sandbox without a boundary, with resource limits only.
    """

    name: str | None = None
    allow_limits_only: bool = False

    @classmethod
    def from_environment(cls) -> SandboxChoice:
        """Return the choice made by WORKBENCH_SANDBOX."""
        return cls(os.environ.get("WORKBENCH_SANDBOX") or None)

    def candidates(self) -> list[str]:
        """List the openers to try. Raises SandboxError for an unknown name."""
        registered = plugins().names("sandboxes")
        if self.name is None:
            return registered
        if self.name not in registered:
            raise SandboxError(f"there is no sandbox '{self.name}'", hint=suggest(self.name, registered))
        return [self.name]


async def open_sandbox(choice: SandboxChoice | None = None) -> Sandbox:
    """Open the chosen sandbox, else the strongest that works on this machine. Its level is measured by attacking it.

    An opener may have the attribute `at_best`, its highest level. It is not tried once a sandbox at least as strong was
    found.

    Args:
        choice: default: the one of the environment.

    Raises:
        SandboxError: no sandbox has a real boundary, and the choice does not allow that. The message says what to
            install.
    """
    choice = choice or SandboxChoice.from_environment()
    best: Sandbox | None = None
    reasons = []
    openers = {name: plugins().get("sandboxes", name) for name in choice.candidates()}
    for name, opener in sorted(openers.items(), key=lambda pair: LEVELS.index(getattr(pair[1], "at_best", LEVELS[0]))):
        at_best = getattr(opener, "at_best", LEVELS[0])
        if best is not None and LEVELS.index(best.level) <= LEVELS.index(at_best):
            break
        try:
            sandbox: Sandbox = await opener()
        except SandboxError as error:
            reasons.append(f"{name}: {error.message}")
            continue
        if sandbox.level not in (LEVELS if choice.allow_limits_only else BOUNDARIES):
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
        f"code is not run here, since no sandbox would confine it "
        f"({'; '.join(reasons) or 'there is no sandbox plugin'})",
        hint="Use Linux with Landlock and seccomp, or bubblewrap, or Deno (workbench plugin sandbox install). "
        "To take the risk, add --unsafe-sandbox.",
    )
