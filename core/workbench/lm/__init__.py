"""Language models: the contract of one attempt, and the models of a run.

Each call is one attempt. Nothing here retries, counts or stores.
"""

from workbench.lm.native import (
    API_PATHS as API_PATHS,
    Native as Native,
    NotCarried as NotCarried,
    max_tokens as max_tokens,
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
    MAX_TOKENS as MAX_TOKENS,
    CanEmbed as CanEmbed,
    HasWeights as HasWeights,
    Message as Message,
    Request as Request,
    Response as Response,
    call_id as call_id,
    check_embeds as check_embeds,
    check_length as check_length,
    content_text as content_text,
    count_images as count_images,
    estimate_tokens as estimate_tokens,
    is_loopback as is_loopback,
    prompt_text as prompt_text,
    split_page as split_page,
)
from workbench.lm.refusals import is_blank as is_blank, is_refusal as is_refusal
from workbench.lm.thinking import THOUGHT_TOKENS as THOUGHT_TOKENS, thinks as thinks
from workbench.lm.thoughts import (
    SaidInPieces as SaidInPieces,
    cut_at_stops as cut_at_stops,
    split_reasoning as split_reasoning,
    split_thoughts as split_thoughts,
)
from workbench.lm.weights import (
    LM_KEYS as LM_KEYS,
    enter_model as enter_model,
    locate_lms as locate_lms,
    locate_weights as locate_weights,
    relocate_weights as relocate_weights,
    weights_folder as weights_folder,
)
