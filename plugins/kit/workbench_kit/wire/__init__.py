"""The formats of servers: requests and answers of several APIs, their dialects, usage and prices.

Nothing is sent here. Providers and the gateway read and write with it.
"""

from workbench_kit.wire.billing import (
    answered_call as answered_call,
    asked_call as asked_call,
    price_fields as price_fields,
)
from workbench_kit.wire.chat_form import MAX_FORMS as MAX_FORMS, Form as Form, make_body as make_body
from workbench_kit.wire.chunks import ChunkReader as ChunkReader
from workbench_kit.wire.clients import (
    MAX_BODY as MAX_BODY,
    NO_SUCH_PATH as NO_SUCH_PATH,
    Mask as Mask,
    body_of as body_of,
    check_extra as check_extra,
    estimate_answer as estimate_answer,
    header_text as header_text,
    is_reasoning as is_reasoning,
    kind_of_answer as kind_of_answer,
    kind_of_status as kind_of_status,
    redact as redact,
    redact_answer as redact_answer,
    redactor as redactor,
    refused_prompt as refused_prompt,
    storable as storable,
)
from workbench_kit.wire.dialects import (
    Usage as Usage,
    allowed_tokens as allowed_tokens,
    is_thought as is_thought,
    kind_of_error as kind_of_error,
    read_content as read_content,
    read_finish as read_finish,
    read_thoughts as read_thoughts,
    read_usage as read_usage,
    refused_setting as refused_setting,
)
from workbench_kit.wire.events import is_stream as is_stream, parse_events as parse_events, read_events as read_events
from workbench_kit.wire.forwarded import Forwarded as Forwarded
from workbench_kit.wire.headers import describe_redirect as describe_redirect, headers_key as headers_key
from workbench_kit.wire.native_answers import (
    TURN as TURN,
    as_chat as as_chat,
    is_as_named as is_as_named,
    join_events as join_events,
)
from workbench_kit.wire.rate_rows import read_rates as read_rates
from workbench_kit.wire.rates import (
    Billed as Billed,
    Rates as Rates,
    parse_price as parse_price,
)
from workbench_kit.wire.turns import (
    as_it_came as as_it_came,
    dump_arguments as dump_arguments,
    plain_message as plain_message,
    unknown_parts as unknown_parts,
)
