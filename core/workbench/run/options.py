"""The start and description of a run: options of the command line, and facts for its events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.runtime import SandboxChoice

Listener = Callable[[str, dict[str, Any]], None]


@dataclass
class Options:
    """Settings from the command line. They are stored with the run, like environment and config, so that a resumed run
    has the same settings."""

    sets: list[tuple[str, Any]] = field(default_factory=list)
    out: str | None = None
    keep_unproved: bool = False  # write the best candidate to `out` even if its gain is not shown
    sandbox: SandboxChoice = field(default_factory=SandboxChoice.from_environment)
    overwrite: bool = False  # replace a result file that no run of the workflow wrote
    allow_unproved: bool = False  # begin even if the budget cannot pay for the proof; resumed runs do not ask
    #: Not from the command line: the optimizers chosen for a file that names none, stored for a resumed run.
    chosen: list[str] | None = None
    gate: dict[str, Any] = field(default_factory=dict[str, Any])  # limits by which the command line judges the result

    @property
    def path(self) -> Path:
        """Return the path of the result."""
        return Path(self.out or "optimized.yaml")

    @property
    def unproved_path(self) -> Path:
        """Return the path of the best candidate if `path` keeps the baseline."""
        return self.path.with_name(f"{self.path.stem}.unproved{self.path.suffix}")

    def as_dict(self) -> dict[str, Any]:
        """Return the options to store, without permission to run code without a boundary: each process needs its
        own."""
        return {
            "sets": [list(s) for s in self.sets],
            "out": self.out,
            "keep_unproved": self.keep_unproved,
            "sandbox": self.sandbox.name,
            "chosen": self.chosen,
            "gate": self.gate,
        }
