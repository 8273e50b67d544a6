"""One model learns to do alone what the workflow's nodes do together.

Source: multi-agent distillation of Chain-of-Agents (Li et al., arXiv 2508.13167, section 3), read in digests: runs of a
team that solved their task become one chain, in which each agent's part stands between tags of its role, and one model
is fine-tuned on the chains; reinforcement learning follows (here `grpo` on the result). Departures: the workflow is
the team, and the chain is an output of the one node that replaces it; runs that called tools are left out, since what a
tool said must not be learned, and a chain within one answer has no place for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import SpecError
from workbench.kit.answers import as_text
from workbench.workflow import Trace, Workflow, node_tree
from workbench_training.rewards import Rollout
from workbench_training.rollouts.sft_data import SFTExample

NAME = "solo"


class Solo(BaseModel):
    """The node that replaces all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: dict[str, Any] = Field(description='a predict, e.g. {predict: "question -> chain, answer"}')
    chain: str = Field("chain", description="its output that holds what the nodes say, in their order")


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
    lacking = [name for name in (solo.chain, *workflow.output_fields) if name not in node.outputs]
    if outside or lacking:
        what = f"reads '{outside[0]}', which no row has" if outside else f"does not write '{lacking[0]}'"
        wanted = f"{', '.join(workflow.input_fields)} -> {', '.join([solo.chain, *workflow.output_fields])}"
        raise SpecError(f"the node {what}", hint=f'Write e.g. predict: "{wanted}".', path=("node", "predict"))
    first = next(iter(node.outputs))
    if first != solo.chain:
        raise SpecError(
            f"the node writes '{solo.chain}' behind '{first}', which it would then write without the chain",
            hint=f"Let '{solo.chain}' be its first output.",
            path=("node", "predict"),
        )
    return change


def chain_examples(workflow: Workflow, solo: Solo, rollouts: Sequence[Rollout]) -> list[SFTExample]:
    """A chat for each run: the one node's prompt, and the chain with the run's outputs in its own form. Runs that
    failed or called tools are left out."""
    node, found = workflow.patched(replace_nodes(workflow, solo)).enabled_nodes[NAME], []
    for rollout in rollouts:
        result, trace = rollout.result, rollout.result.trace
        if trace is None or any(span.notes.get("tools") for span in trace.spans):
            continue
        read = {name: rollout.example[name] for name in node.inputs}  # and no label that the run did not write
        values = {**read, **result.prediction, solo.chain: describe_chain(trace)}
        if chat := node.training_chat(values):
            found.append(SFTExample(chat, frozenset({len(chat) - 1}), rollout.example.id, NAME, rollout.reward or 0.0))
    return found


def describe_chain(trace: Trace) -> str:
    """What each node wrote, in the order of the run, between tags of its name."""
    parts = []
    for span in trace.spans:
        if span.outputs and span.calls:
            name = span.agent or span.node
            said = "\n".join(f"{field}: {as_text(value)}" for field, value in span.outputs.items())
            parts.append(f"<{name}>\n{said}\n</{name}>")
    return "\n".join(parts)
