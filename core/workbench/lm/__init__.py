"""Language models: the contract of one attempt, and the models of a run.

One attempt a call: nothing here retries, counts or stores.
"""

from workbench.lm.chat_form import MOST_FORMS, Form, make_body
from workbench.lm.dialects import (
    THOUGHT_TOKENS,
    allowed_tokens,
    is_thought,
    kind_of_error,
    read_content,
    read_finish,
    read_thoughts,
    read_usage,
    refused_setting,
    thinks,
)
from workbench.lm.events import read_events
from workbench.lm.http import (
    MAX_BODY,
    Rates,
    is_loopback,
    is_reasoning,
    kind_of_status,
    parse_price,
    redact,
    redact_answer,
)
from workbench.lm.packed_tokens import split_tokens, unpack_tokens
from workbench.lm.pool import LMPool, lm_prefixes, make_lm, split_model
from workbench.lm.protocol import (
    LM,
    MOST_TOKENS,
    CanDelegate,
    CanEmbed,
    HasWeights,
    Message,
    Request,
    Response,
    check_embeds,
    check_extra,
    check_length,
    content_text,
    count_images,
    estimate_tokens,
    offset_seed,
)
from workbench.lm.thoughts import cut_at_stops, split_reasoning, split_thoughts
from workbench.lm.turns import as_it_came, dump_arguments, plain_message, unknown_parts
from workbench.lm.weights import LM_KEYS, locate_lms, locate_weights, relocate_weights, weights_folder

__all__ = [
    "LM",
    "Request",
    "Response",
    "Message",
    "CanDelegate",
    "CanEmbed",
    "HasWeights",
    "Form",
    "MOST_FORMS",
    "make_body",
    "LMPool",
    "make_lm",
    "split_model",
    "lm_prefixes",
    "MOST_TOKENS",
    "cut_at_stops",
    "split_reasoning",
    "split_thoughts",
    "split_tokens",
    "unpack_tokens",
    "MAX_BODY",
    "Rates",
    "check_embeds",
    "check_extra",
    "THOUGHT_TOKENS",
    "allowed_tokens",
    "as_it_came",
    "dump_arguments",
    "kind_of_error",
    "plain_message",
    "read_content",
    "read_events",
    "read_finish",
    "read_thoughts",
    "read_usage",
    "refused_setting",
    "thinks",
    "unknown_parts",
    "check_length",
    "content_text",
    "count_images",
    "estimate_tokens",
    "offset_seed",
    "is_loopback",
    "is_reasoning",
    "is_thought",
    "kind_of_status",
    "parse_price",
    "redact",
    "redact_answer",
    "LM_KEYS",
    "locate_lms",
    "locate_weights",
    "relocate_weights",
    "weights_folder",
]
