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
    """Settings from the command line. They are stored with the run, as are environment and config, so that a resumed
    run has the same settings."""

    sets: list[tuple[str, Any]] = field(default_factory=list)
    out: str | None = None
    keep_unproved: bool = False  # write the best candidate to `out` even if its gain is not shown
    sandbox: SandboxChoice = field(default_factory=SandboxChoice.from_environment)
    overwrite: bool = False  # replace a result file that no run of the workflow wrote
    allow_unproved: bool = False  # begin even if the budget cannot pay for the proof; a resumed run is not asked
    #: Not of the command line; kept for a resumed run: the optimizers that were chosen, where the file names none.
    chosen: list[str] | None = None
    gate: dict[str, Any] = field(default_factory=dict[str, Any])  # what the command line judges the result by

    @property
    def path(self) -> Path:
        """Where the result is written."""
        return Path(self.out or "optimized.yaml")

    @property
    def unproved_path(self) -> Path:
        """Where the best candidate is written if `path` keeps the baseline."""
        return self.path.with_name(f"{self.path.stem}.unproved{self.path.suffix}")

    def as_dict(self) -> dict[str, Any]:
        """The stored options. Permission to run code without a boundary is not stored: each process needs its own."""
        return {
            "sets": [list(s) for s in self.sets],
            "out": self.out,
            "keep_unproved": self.keep_unproved,
            "sandbox": self.sandbox.name,
            "chosen": self.chosen,
            "gate": self.gate,
        }
