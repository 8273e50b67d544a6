"""A run as a run of Weights & Biases. Account, project and mode are its own settings: WANDB_API_KEY, WANDB_PROJECT,
WANDB_MODE (`offline` writes below WANDB_DIR, for `wandb sync`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench_kit.logs import ScoreTracker

if TYPE_CHECKING:
    from wandb import Run


class WandB(ScoreTracker):
    """Logs a run to Weights & Biases under its own name, so that a resumed run continues there."""

    needs = ("wandb", "watch[wandb]")

    def begin(self, resumed: bool) -> bool:
        import wandb

        self.record: Run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "workbench",
            name=f"{self.run.name} {self.run.run}",
            id=f"workbench-{self.run.run}",
            dir=os.environ.get("WANDB_DIR"),  # else it reuses that of the first run of a process
            resume="allow",
            reinit="create_new",  # next to one that the user's own program has open
            config=dict(self.run.settings),
            tags=[self.run.kind],
            # It captures neither the terminal nor its surroundings: code, packages, the machine's load.
            settings=wandb.Settings(
                console="off", silent=True, save_code=False, disable_git=True, x_disable_stats=True, x_disable_meta=True
            ),
        )
        self.record.define_metric("calls", hidden=True)
        self.record.define_metric("*", step_metric="calls")
        return resumed

    def log(self, numbers: Mapping[str, float], calls: int) -> None:
        self.record.log({**numbers, "calls": calls})

    def finish(self, status: str, numbers: Mapping[str, float], files: Sequence[Path], report: str) -> None:
        import wandb

        self.record.summary.update({**numbers, "status": status})
        kept = wandb.Artifact(f"workbench-{self.run.run}", type="result")
        with kept.new_file("report.json") as file:
            file.write(report)
        for path in files:
            kept.add_file(str(path))
        self.record.log_artifact(kept)
        self.record.finish(exit_code=1 if status == "failed" else 0)
