"""Prompts for an action and for a judgement of a state, and parsers of the answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import NodeError
from workbench.workflow import Field
from workbench_kit import answers
from workbench_kit.acting import Position
from workbench_kit.prompting import plain_adapter as plain
from workbench_tree_search.settings import TreeSearchConfig

VERDICTS = {"success": 1.0, "on track": 0.5, "off track": 0.0}
_JUDGE = """\
You judge how far an agent has come with a task. Answer with one of:
success: the task is done
on track: it is not done, and what the agent did leads towards it
off track: what the agent did does not lead towards it"""


def action_messages(
    config: TreeSearchConfig, help_text: str, inputs: Mapping[str, Any], path: Sequence[Position]
) -> list[dict[str, str]]:
    """Asks for the next action. path: positions from the start of the episode to where the agent stands."""
    rules = [config.instructions.strip() or "Choose the next action.", "Answer with one action and nothing else."]
    system = "\n".join([*rules, *([f"Actions: {help_text}"] if help_text else [])])
    here = path[-1]
    listed = [f"You can: {', '.join(here.hints)}"] if here.hints is not None else []
    user = "\n".join([*_shown(config, inputs), *_told(config, path), *listed, "action:"])
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def value_messages(
    config: TreeSearchConfig, inputs: Mapping[str, Any], path: Sequence[Position]
) -> list[dict[str, str]]:
    """Asks for a judgement of the last position."""
    user = "\n".join([*_shown(config, inputs), *_told(config, path), "judgement:"])
    return [{"role": "system", "content": _JUDGE}, {"role": "user", "content": user}]


def _shown(config: TreeSearchConfig, inputs: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {plain.as_text(inputs[name])}" for name in config.show]


def _told(config: TreeSearchConfig, path: Sequence[Position]) -> list[str]:
    """The last observations, and the actions between them."""
    lines = []
    for i, position in enumerate(path[-1 - config.history :]):
        if i and position.actions:
            lines.append(f"action: {position.actions[-1]}")
        text = position.observation
        cut = text if len(text) <= config.chars else f"{text[: config.chars - 1]}…"
        lines.append(f"observation: {cut}")
    return lines


def read_action(text: str, hints: Sequence[str] | None) -> str | None:
    """The action of an answer; None where there is none, or none of those that can be done."""
    return _said(text, "action", hints)


def read_verdict(text: str) -> float | None:
    """1, 0.5 or 0; None for what is no judgement."""
    return VERDICTS.get(_said(text, "judgement", tuple(VERDICTS)) or "")


def _said(text: str, label: str, allowed: Sequence[str] | None) -> str | None:
    """The words behind a label, which may be missing; None where there are none, or none of those allowed."""
    body = re.sub(rf"(?i)\A\s*{label}\s*:", "", text).strip()
    if allowed is None:
        return body or None
    try:
        return answers.convert(Field(label, str, tuple(allowed)), body)[0] if allowed else None
    except NodeError:
        return None


def most_frequent(actions: Sequence[str], count: int) -> list[str]:
    """The most frequent different actions; among equals the one said first."""
    return [action for action, _ in Counter(actions).most_common(count)]
