"""Language models: what providers and models in this process share."""

from workbench.kit.lms.batching import Batcher, BatchThread, Job, RefillingBatcher, derive_seed
from workbench.kit.lms.bounded_http import BodyError, BodyReader, bodies_are_bounded, body_error, bounded_bodies
from workbench.kit.lms.chat_template import render_chat
from workbench.kit.lms.checkpoint import INDEX, check_checkpoint
from workbench.kit.lms.generation import (
    Generator,
    Refill,
    Row,
    as_computed,
    cache_argument,
    free_device_memory,
    generate_within_memory,
    group_by_length,
)
from workbench.kit.lms.native_calls import (
    check_format,
    check_tools,
    read_native_calls,
    same_said,
    to_message,
    to_template,
)
from workbench.kit.lms.prefill import join_prefill, split_prefill

__all__ = [
    "BatchThread",
    "Batcher",
    "BodyError",
    "BodyReader",
    "Generator",
    "INDEX",
    "Job",
    "Refill",
    "RefillingBatcher",
    "Row",
    "as_computed",
    "bodies_are_bounded",
    "body_error",
    "bounded_bodies",
    "cache_argument",
    "check_checkpoint",
    "check_format",
    "check_tools",
    "derive_seed",
    "free_device_memory",
    "generate_within_memory",
    "group_by_length",
    "join_prefill",
    "read_native_calls",
    "render_chat",
    "same_said",
    "split_prefill",
    "to_message",
    "to_template",
]
