"""Models that think before they answer, which takes tokens in addition to those of the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from workbench.base.type_guards import is_dict

#: Names of models that think by default.
_THINKS = re.compile(
    r"(?i)(?:^|[/:_.-])(?:o[1-9](?=$|[-:])|gpt-5(?![\w.]*-chat)|gpt-oss|qwq|magistral|"
    r"deepseek-(?:r\d|v[4-9](?!\d)(?!.*(?:non|base|embed))|reasoner)|kimi-k(?:2\.[5-9](?!.*(?:non|instruct))|3)|"
    r"qwen-?3(?!.*(?:instruct|coder|embed|rerank|guard|tts|asr))|glm-(?:4\.[5-9]|5|z1)|minimax-m\d|"
    r"gemini-(?:2\.5|[3-9])|grok-(?:3-mini|4)(?!.*non-reasoning)|seed-oss|exaone-deep|phi-4(?:-mini)?-reasoning|nemotron|hunyuan-a13b|step-?3)"
    r"|(?<!non)[-_ ](?:thinking|reasoning|reasoner|think)(?![a-z])"
)
#: Tokens for thoughts, in addition to those for an answer.
THOUGHT_TOKENS = 8192


def thinks(model: str, extra: Mapping[str, Any]) -> bool:
    """Return True if a model thinks before it answers: by its settings, else by its name."""
    if not extra:
        return _thinks_by_name(model)
    reasoning, template, thinking = (
        value if is_dict(value := extra.get(name)) else {} for name in ("reasoning", "chat_template_kwargs", "thinking")
    )
    effort = extra.get("reasoning_effort") or reasoning.get("effort")
    if effort is not None:
        return effort not in ("none", "minimal")
    told = [extra.get("enable_thinking"), template.get("enable_thinking"), reasoning.get("enabled")]
    told += [thinking.get("type") != "disabled"] if thinking else []
    said = [one for one in told if isinstance(one, bool)]
    return said[0] if said else _thinks_by_name(model)


@lru_cache(maxsize=256)
def _thinks_by_name(model: str) -> bool:
    return _THINKS.search(model) is not None
