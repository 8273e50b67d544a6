"""Prompts: their format, the demos that they show, their defects, and proposals by a model."""

from workbench_kit.prompting.demo_search import (
    AS_WRITTEN as AS_WRITTEN,
    MAX_DEMOS as MAX_DEMOS,
    START_DEMOS as START_DEMOS,
    DemoSearch as DemoSearch,
    make_searcher as make_searcher,
    run_for_successes as run_for_successes,
    tell as tell,
)
from workbench_kit.prompting.images import (
    LARGEST as LARGEST,
    as_urls as as_urls,
    image_inputs as image_inputs,
    image_parts as image_parts,
    image_url as image_url,
    resolve_image as resolve_image,
    split_images as split_images,
    user_content as user_content,
)
from workbench_kit.prompting.named_types import (
    NAMED_TYPES as NAMED_TYPES,
    NamedTypes as NamedTypes,
    load_types as load_types,
)
from workbench_kit.prompting.nearest_demos import Nearest as Nearest
from workbench_kit.prompting.plain_adapter import default_instructions as default_instructions
from workbench_kit.prompting.prompt_defects import (
    fewest_tokens as fewest_tokens,
    find_contradictions as find_contradictions,
    find_unknown_tools as find_unknown_tools,
    find_wrong_demos as find_wrong_demos,
    tokens_of_answer as tokens_of_answer,
    tokens_of_call as tokens_of_call,
)
from workbench_kit.prompting.proposals import (
    fold as fold,
    read_prompt as read_prompt,
    why_unusable as why_unusable,
    wrap_in_tags as wrap_in_tags,
)
from workbench_kit.prompting.proposer import (
    Batches as Batches,
    Proposer as Proposer,
    finalists as finalists,
    one_of_each_message as one_of_each_message,
    order_texts as order_texts,
    prompt_in_use as prompt_in_use,
    room_for as room_for,
    runs_left as runs_left,
)
from workbench_kit.prompting.requests import (
    describe as describe,
    message_at as message_at,
    outline as outline,
    rewrite_request as rewrite_request,
    show_in_place as show_in_place,
    show_results as show_results,
)
from workbench_kit.prompting.said import check_said as check_said
from workbench_kit.prompting.templates import (
    RULES as RULES,
    draw_instruction as draw_instruction,
    split_sentences as split_sentences,
)
