"""Pairs of answers from a file, in place of rollouts: people's choices, a jury's, or those of `workbench data make`.

A row has the inputs of the node that is trained, and `chosen` and `rejected`: its output, or an object of its outputs.
These are the names of TRL's preference data (huggingface.co/docs/trl, "Dataset formats and types"). Departure: inputs
are fields that the node's own prompt shows, as in use, and no finished prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.workflow import NodeKind
from workbench_training.rollouts.preference_pairs import pair_rollouts
from workbench_training.rollouts.sft_data import ChatTokenizer, SFTExample, tokenize_example
from workbench_training.rollouts.token_rows import RolloutRows, Row

SIDES = ("chosen", "rejected")


def read_pairs(rows: Iterable[Mapping[str, Any]], node: NodeKind) -> list[tuple[SFTExample, SFTExample]]:
    """The (better, worse) chats of a node. Raises ValueError for a row that is no pair."""
    found = []
    for number, row in enumerate(rows, start=1):
        if missing := [name for name in (*node.inputs, *SIDES) if row.get(name) is None]:
            raise ValueError(f"the row {number} has no '{missing[0]}'")
        inputs = {name: row[name] for name in node.inputs}
        chats = [node.training_chat({**inputs, **_outputs(node, row[side], number)}) for side in SIDES]
        examples = [SFTExample(chat, frozenset({len(chat) - 1}), f"pair {number}", node.name) for chat in chats if chat]
        if len(examples) < len(SIDES):
            raise ValueError(f"the row {number} lacks an output: `{node.name}` writes {', '.join(node.outputs)}")
        found.append((examples[0], examples[1]))
    return found


def _outputs(node: NodeKind, said: Any, number: int) -> Mapping[str, Any]:
    if isinstance(said, Mapping):
        return said
    if len(node.outputs) > 1:
        names = ", ".join(node.outputs)
        raise ValueError(f"the row {number}: `{node.name}` writes {names}, so give `chosen` and `rejected` as objects")
    return dict.fromkeys(node.outputs, said)


def tokenize_pairs(pairs: Sequence[tuple[SFTExample, SFTExample]], tokens: ChatTokenizer) -> list[list[Row]]:
    """The rows of each comparison. Pairs of the same tokens are left out."""
    found = []
    for better, worse in pairs:
        sides = []
        for number, example in enumerate((better, worse)):
            rows = tokenize_example(replace(example, reward=float(1 - number)), tokens)
            sides.append(RolloutRows(tuple(rows), float(1 - number)))
        if made := [row for side in pair_rollouts(sides[0], sides[1], better.task) for row in side.rows]:
            found.append(made)
    return found
