"""Perturbed rows: each runs unchanged and under each perturbation with the same seeds, to show its effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from workbench.runtime import FIRST_DRAW, Context
from workbench.study.evaluate import Evaluator
from workbench.study.evaluation import Result
from workbench.task import Example
from workbench.workflow import Workflow


class Perturbation:
    """A change to the run of a row: to the workflow, to the row, or to the context of nodes (`runtime.Variation`). By
    default it changes nothing. It is pickled if rows run on workers."""

    @property
    def context(self) -> type[Context]:
        """Return the class of the nodes' contexts."""
        return Context

    def change_workflow(self, workflow: Workflow) -> Workflow:
        """Return the workflow to run."""
        return workflow

    def change_row(self, workflow: Workflow, row: Example) -> Example:
        """Return the row to run on. workflow: the unchanged one."""
        return row


class PerturbedRows:
    """Runs rows of a workflow under perturbations."""

    def __init__(self, evaluator: Evaluator, workflow: Workflow, perturbations: Mapping[str, Perturbation]):
        self._evaluator, self._workflow, self._perturbations = evaluator, workflow, perturbations
        self._programs = {name: evaluator.program(one.change_workflow(workflow)) for name, one in perturbations.items()}

    async def run(self, clean: Result, split: str = "") -> Result:
        """Return the result of the unchanged row, with the results of its perturbed runs by name in `perturbed`."""
        found = dict[str, Result]()
        for name, perturbation in self._perturbations.items():
            row = perturbation.change_row(self._workflow, clean.example)
            draw = replace(FIRST_DRAW, variation=perturbation)
            found[name] = await self._evaluator.run_one(self._programs[name], row, draw, True, split)
        return replace(clean, perturbed=found)
