"""Language models: the contract of one attempt, and the models of a run.

One attempt a call: nothing here retries, counts or stores.
"""

from workbench.lm.billing import (
    answered_call as answered_call,
    asked_call as asked_call,
    price_fields as price_fields,
)
from workbench.lm.chat_form import MOST_FORMS as MOST_FORMS, Form as Form, make_body as make_body
from workbench.lm.chunks import ChunkReader as ChunkReader
from workbench.lm.dialects import (
    THOUGHT_TOKENS as THOUGHT_TOKENS,
    Usage as Usage,
    allowed_tokens as allowed_tokens,
    is_thought as is_thought,
    kind_of_error as kind_of_error,
    read_content as read_content,
    read_finish as read_finish,
    read_thoughts as read_thoughts,
    read_usage as read_usage,
    refused_setting as refused_setting,
    thinks as thinks,
)
from workbench.lm.events import is_stream as is_stream, parse_events as parse_events, read_events as read_events
from workbench.lm.forwarded import Forwarded as Forwarded
from workbench.lm.headers import describe_redirect as describe_redirect, headers_key as headers_key
from workbench.lm.http import (
    MAX_BODY as MAX_BODY,
    Mask as Mask,
    body_of as body_of,
    header_text as header_text,
    is_loopback as is_loopback,
    is_reasoning as is_reasoning,
    kind_of_answer as kind_of_answer,
    kind_of_status as kind_of_status,
    redact as redact,
    redact_answer as redact_answer,
    redactor as redactor,
    split_page as split_page,
)
from workbench.lm.native import (
    API_PATHS as API_PATHS,
    NO_SUCH_PATH as NO_SUCH_PATH,
    Native as Native,
    NotCarried as NotCarried,
    most_tokens as most_tokens,
)
from workbench.lm.native_answers import (
    TURN as TURN,
    as_chat as as_chat,
    is_as_named as is_as_named,
    join_events as join_events,
)
from workbench.lm.packed_tokens import (
    split_tokens as split_tokens,
    unpack_native as unpack_native,
    unpack_tokens as unpack_tokens,
)
from workbench.lm.pieces import Piece as Piece, Pieces as Pieces
from workbench.lm.pool import (
    LMPool as LMPool,
    lm_prefixes as lm_prefixes,
    make_lm as make_lm,
    split_model as split_model,
)
from workbench.lm.protocol import (
    LM as LM,
    MOST_TOKENS as MOST_TOKENS,
    CanDelegate as CanDelegate,
    CanEmbed as CanEmbed,
    HasWeights as HasWeights,
    Message as Message,
    Request as Request,
    Response as Response,
    call_id as call_id,
    check_embeds as check_embeds,
    check_extra as check_extra,
    check_length as check_length,
    content_text as content_text,
    count_images as count_images,
    estimate_answer as estimate_answer,
    estimate_tokens as estimate_tokens,
    prompt_text as prompt_text,
    refused_prompt as refused_prompt,
    storable as storable,
)
from workbench.lm.rate_rows import read_rates as read_rates
from workbench.lm.rates import (
    Billed as Billed,
    Rates as Rates,
    parse_price as parse_price,
)
from workbench.lm.refusals import is_blank as is_blank, is_placeholder as is_placeholder, is_refusal as is_refusal
from workbench.lm.thoughts import (
    cut_at_stops as cut_at_stops,
    split_reasoning as split_reasoning,
    split_thoughts as split_thoughts,
)
from workbench.lm.turns import (
    as_it_came as as_it_came,
    dump_arguments as dump_arguments,
    plain_message as plain_message,
    unknown_parts as unknown_parts,
)
from workbench.lm.weights import (
    LM_KEYS as LM_KEYS,
    locate_lms as locate_lms,
    locate_weights as locate_weights,
    relocate_weights as relocate_weights,
    weights_folder as weights_folder,
)
