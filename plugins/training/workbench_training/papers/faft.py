"""FAFT: right and wrong runs are learned, each behind words that say which it is (Chen et al., arXiv 2408.06318).

Read: section 4 and appendix A.4, in a translation: training prompts are the question, the feedback on the plan that
follows, and the plan, right or wrong; in use the feedback in the prompt is that of success. Departures: the marker is
the last line of the node's instructions rather than a line behind the question; rollouts are drawn behind the marker of
success, as in use; the paper's feedback is a list of constraints with success or failure, here one line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from pydantic import Field, model_validator

from workbench.errors import SpecError
from workbench.spec import Pattern
from workbench.study import Study
from workbench.workflow import Workflow
from workbench_kit.prompting import default_instructions
from workbench_training.extension import Paper, RecipeField
from workbench_training.recipe import Recipe
from workbench_training.rewards import Rollout
from workbench_training.rollouts.node_settings import find_settings
from workbench_training.rollouts.sft_data import SFTExample, extract_examples


class Feedback(Recipe):
    """Markers in the instructions of the trained nodes."""

    positive: str = Field("feedback: success", min_length=1, description="last line of the instructions, also in use")
    negative: str = Field("feedback: failure", min_length=1, description="stands there where a wrong run is learned")

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.positive == self.negative:
            raise ValueError(f"`positive` and `negative` are both '{self.positive}', so that they tell nothing apart")
        return self

    def check(self, optimizer: Any) -> None:
        if optimizer.source == "labels":
            raise ValueError(
                "`feedback` tells right runs from wrong ones, and labels are all right: give another source"
            )
        if optimizer.splice:
            raise ValueError("`feedback` and `splice` both learn from wrong runs, in different ways: remove one")

    def ready(self, optimizer: Any, study: Study) -> None:
        if not optimizer.changes(study.workflow):
            raise SpecError(
                "`feedback` marks the instructions of trained nodes, and none has any",
                hint="Remove it, or write the node as a predict or an agent.",
            )

    def changes(self, workflow: Workflow, nodes: Collection[str]) -> dict[str, Any]:
        return mark_instructions(workflow, nodes, self.positive)

    def lessons(
        self,
        workflow: Workflow,
        group: Sequence[Rollout],
        nodes: Collection[str],
        threshold: float,
        errors: Pattern,
    ) -> Iterator[SFTExample]:
        return feedback_examples(group, nodes, self, threshold, errors)

    def of(self, rollout: Rollout, threshold: float) -> str:
        """The marker of a scored run."""
        assert rollout.score is not None
        return self.positive if rollout.score >= threshold else self.negative


def mark_instructions(workflow: Workflow, nodes: Collection[str], marker: str) -> dict[str, Any]:
    """Changes that end the instructions of these nodes, and of those inside them, with a marker."""
    changes = {}
    for place, node in find_settings(workflow, ("instructions",)):
        signature = getattr(node, "asked", getattr(node, "signature", None))
        if place.split(".")[1] in nodes and signature is not None:
            own = str(getattr(node.config, "instructions", "")).strip() or default_instructions(signature)
            changes[place] = own if own.endswith(f"\n{marker}") else f"{own}\n{marker}"
    return changes


def feedback_examples(
    group: Sequence[Rollout], nodes: Collection[str], feedback: Feedback, threshold: float, errors: Pattern
) -> Iterator[SFTExample]:
    """The chats of all scored runs on a row, drawn behind the marker of success, each behind its own marker. Chats
    without the marker in their first message are left out.

    nodes, errors: as for `extract_examples`.
    """
    for rollout in group:
        if rollout.reward is None or rollout.score is None or rollout.result.trace is None:
            continue
        marker = feedback.of(rollout, threshold)
        for example in extract_examples(rollout.result.trace, nodes, errors):
            first, *rest = example.messages
            before, found, after = str(first["content"]).partition(feedback.positive)
            if found:
                marked = [{**first, "content": before + marker + after}, *rest]
                yield replace(example, messages=marked, reward=rollout.reward)


PAPER = Paper(
    recipes=[
        RecipeField(
            "sft",
            "feedback",
            Feedback,
            "learn from wrong runs too, behind a marker in the instructions (FAFT); {} takes the defaults",
        )
    ]
)
