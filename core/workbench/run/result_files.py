"""The workflow files that a run writes: the result, and the best candidate if its gain is not shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from workbench.base.files import content_digest, write_whole
from workbench.proof import Report
from workbench.run.options import Options
from workbench.store import RunRecord, typed
from workbench.study import Evaluation, configurations
from workbench.task import Task, workflow_text
from workbench.workflow import Workflow


def write_results(
    report: Report, task: Task, options: Options, record: RunRecord, evaluations: Mapping[str, Evaluation]
) -> None:
    """Write the results of the run, and add their paths to the report.

    Only a proved winner replaces the baseline, because a winner's score on val, where it was chosen, is biased upwards.
    Each file is first written under another name, then renamed. evaluations: those on val, by hash, for the costs of
    configurations.
    """
    changed = report.winner != task.workflow
    taken = report.proved or (options.keep_unproved and changed)
    report.kept = report.winner if taken else task.workflow

    def write(workflow: Workflow, out: Path) -> str | None:
        under_load = configurations(workflow, evaluations, task.spec)
        described = [(e.workflow, e.objectives) for e in under_load]
        text = workflow_text(task, workflow, out, _head(report, task, workflow), described)
        # First: after a kill in between, the resumed run would not know the file as its own.
        record.add_artifact(str(out.resolve()), workflow.hash, content_digest(text.encode()))
        try:
            write_whole(out.resolve(), text)
        except OSError as error:
            report.warnings.append(
                f"{out} cannot be written ({error}); write the result elsewhere with: "
                f"{typed(f'workbench export {report.run} --out FILE', report.database)}"
            )
            return None
        return str(out)

    if changed and not taken and (not report.loss_shown or report.levels is not None):
        report.unproved = write(report.winner, options.unproved_path)
    report.workflow = write(report.kept, options.path)


def _head(report: Report, task: Task, workflow: Workflow) -> list[str]:
    if workflow != report.winner:
        return [*report.headline(), "This file keeps the baseline."]
    if workflow != task.workflow and not report.proved:
        return [*report.headline(), "This file contains the unproved changes."]
    return report.headline()
