"""Requests of nodes and roles: the caller's settings, completed by those of the language model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.lm import THOUGHT_TOKENS, Message, Request, thinks
from workbench.spec import LMSpec
from workbench.workflow import NodeKind, Workflow, called_lms

#: Output tokens of an answer without any other limit.
MAX_TOKENS = 512


def spec_thinks(spec: LMSpec) -> bool:
    """Return True if a model thinks before it answers: by its spec, else by its settings and its name."""
    return thinks(spec.model, spec.extra) if spec.thinks is None else spec.thinks


def max_tokens(spec: LMSpec, answer: int | None) -> int:
    """Return the most output tokens of one call. answer: tokens that the caller wants for the answer, if any."""
    if not spec_thinks(spec):
        return answer or spec.max_tokens or MAX_TOKENS
    return max(answer or 0, spec.max_tokens) if spec.max_tokens else (answer or MAX_TOKENS) + THOUGHT_TOKENS


def make_request(spec: LMSpec, messages: Sequence[Message], replica: int, settings: Mapping[str, Any]) -> Request:
    """Make a Request, with the LM's defaults for settings that the caller leaves out.

    At temperature 0 there is no sampling: all replicas are the same call, which is paid once. A thinking model gets
    tokens for its thoughts in addition to those for the answer, unless its settings name a number.
    """
    values = {k: v for k, v in settings.items() if v is not None}
    if spec.temperature is not None:
        values.setdefault("temperature", spec.temperature)
    values["max_tokens"] = max_tokens(spec, values.get("max_tokens"))
    if not values.get("temperature"):
        replica = 0
    return Request(tuple(messages), replica=replica, **values)


def call_tokens(node: NodeKind, spec: LMSpec) -> int:
    """Return the most output tokens of one call of a node."""
    settings: Any = getattr(node, "settings", None) or {}
    own = settings.get("max_tokens") or getattr(node.config, "max_tokens", None)
    return max_tokens(spec, own)


def dearest_call(
    workflow: Workflow, lm: LMSpec, prompt: int, price: Callable[[LMSpec, int, int], float]
) -> tuple[int, float]:
    """Return the tokens and dollars of a workflow's most expensive call with a prompt of this many tokens and the
    longest answer. lm: the file's model; price: dollars of a model for tokens in and out."""
    calls = [(spec, call_tokens(node, spec)) for node in workflow.walk() for spec in called_lms(workflow, lm, node)]
    tokens = max((prompt + most for _, most in calls), default=0)
    return tokens, max((price(spec, prompt, most) for spec, most in calls), default=0.0)
