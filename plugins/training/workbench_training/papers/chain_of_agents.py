"""Chain-of-Agents: one model learns to do alone what the nodes of a workflow do together (Li et al., arXiv 2508.13167).

Read, in digests of section 3: runs of a multi-agent system that solved their task become one chain, in which each
agent's part stands between tags of its role, and one model is fine-tuned on the chains; reinforcement learning follows
(here `grpo` on the result). Departures: the workflow is the team, and the chain is the first output of the one node
that replaces it. Runs that called tools are left out: what a tool wrote must not be learned, and a chain within one
answer has no place for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from pydantic import Field, field_validator

from workbench.errors import PluginError, SpecError
from workbench.spec import Pattern, home_folder, is_collecting
from workbench.study import Study
from workbench.workflow import Trace, Workflow, node_tree
from workbench_kit.acting import child_node
from workbench_kit.answers import as_text
from workbench_training.extension import Paper, RecipeField
from workbench_training.recipe import Recipe
from workbench_training.rewards import Rollout
from workbench_training.rollouts.sft_data import SFTExample

#: The name of the node that replaces the others.
NAME = "solo"


class Solo(Recipe):
    """The node that replaces all others."""

    node: dict[str, Any] = Field(description='a predict, e.g. {predict: "question -> chain, answer"}')
    chain: str = Field("chain", description="its first output, which holds the answers of the nodes in their order")

    @field_validator("node")
    @classmethod
    def _enter_node(cls, value: dict[str, Any]) -> dict[str, Any]:
        if is_collecting():
            with suppress(SpecError, PluginError):  # reported by `ready`
                child_node(NAME, value, home_folder(), ("node",), "outlined")
        return value

    def check(self, optimizer: Any) -> None:
        given = {
            "source": optimizer.source == "labels",
            "splice": optimizer.splice,
            "errors": optimizer.errors != "learn",
            "rounds": optimizer.rounds > 1,
            "address": optimizer.address != "lm",
        }
        if any(given.values()):
            named = max(given, key=given.__getitem__)
            raise ValueError(f"`solo` learns whole runs, once, with the workflow's `lm`: remove `{named}`")

    def ready(self, optimizer: Any, study: Study) -> None:
        replace_nodes(study.workflow, self)

    def changes(self, workflow: Workflow, nodes: Collection[str]) -> dict[str, Any]:
        return replace_nodes(workflow, self)

    def drawn(self, workflow: Workflow, nodes: Collection[str]) -> dict[str, Any]:
        return {}  # the team runs

    def lessons(
        self,
        workflow: Workflow,
        group: Sequence[Rollout],
        nodes: Collection[str],
        threshold: float,
        errors: Pattern,
    ) -> Iterator[SFTExample]:
        good = [rollout for rollout in group if rollout.score is not None and rollout.score >= threshold]
        return chain_examples(workflow, self, good)


def replace_nodes(workflow: Workflow, solo: Solo) -> dict[str, Any]:
    """The change that puts the one node in the place of all others.

    Raises SpecError, with a path within the settings, for a node that cannot take their place.
    """
    if "predict" not in solo.node:
        raise SpecError("the node has to be a predict: its answer is the whole chain", path=("node",))
    try:
        change = {"nodes": {NAME: node_tree(solo.node)}}
        made = workflow.patched(change)
    except SpecError as error:
        raise SpecError(error.message, hint=error.hint, path=("node", *error.path)) from None
    node = made.enabled_nodes[NAME]
    outside = [name for name in node.inputs if name not in workflow.input_fields]
    missing = [name for name in (solo.chain, *workflow.output_fields) if name not in node.outputs]
    if outside or missing:
        what = f"reads '{outside[0]}', which no row has" if outside else f"does not write '{missing[0]}'"
        wanted = f"{', '.join(workflow.input_fields)} -> {', '.join([solo.chain, *workflow.output_fields])}"
        raise SpecError(f"the node {what}", hint=f'Write e.g. predict: "{wanted}".', path=("node", "predict"))
    if (first := next(iter(node.outputs))) != solo.chain:
        raise SpecError(
            f"the node writes '{solo.chain}' after '{first}', which it would then write without the chain",
            hint=f"Make '{solo.chain}' its first output.",
            path=("node", "predict"),
        )
    return change


def chain_examples(workflow: Workflow, solo: Solo, rollouts: Sequence[Rollout]) -> Iterator[SFTExample]:
    """Yield a chat for each run: the one node's prompt, and the chain with the run's outputs in its own form. Runs that
    failed or called tools are left out."""
    node = workflow.patched(replace_nodes(workflow, solo)).enabled_nodes[NAME]
    for rollout in rollouts:
        result, trace = rollout.result, rollout.result.trace
        if trace is None or any(span.notes.get("tools") for span in trace.spans):
            continue
        inputs = {name: rollout.example[name] for name in node.inputs}  # and no label that the run did not write
        values = {**inputs, **result.prediction, solo.chain: describe_chain(trace)}
        if chat := node.training_chat(values):
            yield SFTExample(chat, frozenset({len(chat) - 1}), rollout.example.id, NAME, rollout.reward or 0.0)


def describe_chain(trace: Trace) -> str:
    """The outputs of each node that called a model, in the order of the run, between tags of its name."""
    parts = []
    for span in trace.spans:
        if span.outputs and span.calls:
            name = span.agent or span.node
            said = "\n".join(f"{field}: {as_text(value)}" for field, value in span.outputs.items())
            parts.append(f"<{name}>\n{said}\n</{name}>")
    return "\n".join(parts)


PAPER = Paper(
    recipes=[
        RecipeField(
            "sft",
            "solo",
            Solo,
            "learn to do alone, as one node, what the workflow's nodes do together (Chain-of-Agents)",
        )
    ]
)
