"""Prompts: how they are written, which demos they show, what is wrong with them, and how a model proposes others."""

from workbench.kit.prompting.images import (
    LARGEST,
    as_urls,
    image_inputs,
    image_parts,
    image_url,
    split_images,
    user_content,
)
from workbench.kit.prompting.named_types import NAMED_TYPES, NamedTypes, load_types
from workbench.kit.prompting.nearest_demos import Nearest
from workbench.kit.prompting.plain_adapter import default_instructions
from workbench.kit.prompting.prompt_defects import (
    fewest_tokens,
    find_contradictions,
    find_unknown_tools,
    find_wrong_demos,
    tokens_of_answer,
    tokens_of_call,
)
from workbench.kit.prompting.proposer import (
    Batches,
    Proposer,
    describe,
    finalists,
    outline,
    prompt_in_use,
    read_prompt,
    rewrite_request,
    room_for,
    runs_left,
    show_results,
    wrap_in_tags,
)
from workbench.kit.prompting.said import check_said

__all__ = [
    "Batches",
    "LARGEST",
    "NAMED_TYPES",
    "NamedTypes",
    "Nearest",
    "Proposer",
    "as_urls",
    "check_said",
    "default_instructions",
    "describe",
    "fewest_tokens",
    "finalists",
    "find_contradictions",
    "find_unknown_tools",
    "find_wrong_demos",
    "image_inputs",
    "image_parts",
    "image_url",
    "load_types",
    "outline",
    "prompt_in_use",
    "read_prompt",
    "rewrite_request",
    "room_for",
    "runs_left",
    "show_results",
    "split_images",
    "tokens_of_answer",
    "tokens_of_call",
    "user_content",
    "wrap_in_tags",
]
