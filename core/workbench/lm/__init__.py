"""Language models: the contract of one attempt, and the models of a run.

One attempt a call: nothing here retries, counts or stores.
"""

from workbench.lm import dialects
from workbench.lm.http import (
    MAX_BODY,
    Rates,
    is_loopback,
    is_reasoning,
    kind_of_status,
    parse_price,
    redact,
    redact_sent,
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
from workbench.lm.thoughts import split_thoughts
from workbench.lm.weights import LM_KEYS, locate_lms, locate_weights, relocate_weights, weights_folder

__all__ = [
    "LM",
    "Request",
    "Response",
    "Message",
    "CanDelegate",
    "CanEmbed",
    "HasWeights",
    "LMPool",
    "make_lm",
    "split_model",
    "lm_prefixes",
    "MOST_TOKENS",
    "split_thoughts",
    "split_tokens",
    "unpack_tokens",
    "MAX_BODY",
    "Rates",
    "check_embeds",
    "check_extra",
    "dialects",
    "check_length",
    "content_text",
    "count_images",
    "estimate_tokens",
    "offset_seed",
    "is_loopback",
    "is_reasoning",
    "kind_of_status",
    "parse_price",
    "redact",
    "redact_sent",
    "LM_KEYS",
    "locate_lms",
    "locate_weights",
    "relocate_weights",
    "weights_folder",
]
