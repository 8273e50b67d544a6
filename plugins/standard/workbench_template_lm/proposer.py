"""Answer proposal requests (`workbench_kit.prompting`) with instructions built from templates, without a model.

For task models that cannot write an instruction, and as the control for those that can: a proposer must beat this one.
"""

from __future__ import annotations

import hashlib
import random
import re
from typing import Any

from workbench.errors import SpecError
from workbench.lm import Request, Response, estimate_tokens
from workbench_kit.prompting import RULES, draw_instruction, split_sentences, wrap_in_tags

_WANTED = re.compile(r"Write a better part (\d+),")


def templates(model: str, settings: Any) -> Templates:
    """Create the provider of `templates/...`."""
    return Templates(model)


class Templates:
    """An LM of workbench's protocol. Its only name is `templates/instructions`."""

    identity, concurrency = "templates, no model", 64

    def __init__(self, model: str):
        if model != "instructions":
            raise SpecError(f"there are no templates '{model}'", hint="Write templates/instructions.")

    async def complete(self, request: Request) -> Response:
        text = "\n".join(str(m["content"]) for m in request.messages)
        draw = random.Random(hashlib.sha256(request.key(self.identity).encode()).digest())
        if part := _WANTED.search(text):  # in a message with several: the requested one
            shown = re.findall(rf"<part {part[1]}>\n(.*?)\n</part {part[1]}>", text, re.DOTALL)
            written = _instruction(f"{text.partition('<part')[0]}{wrap_in_tags(shown[0] if shown else '')}", draw)
            answer = f"<part {part[1]}>\n{written}\n</part {part[1]}>"
        else:
            answer = wrap_in_tags(_instruction(text, draw)) if "between <prompt>" in text else draw.choice(RULES)
        return Response(answer, "stop", estimate_tokens(request.messages), len(answer) // 4, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


def _instruction(request: str, draw: random.Random) -> str:
    """Return an instruction: several prompts are merged by sentences, one is edited by a sentence or rewritten."""
    shown = [block.strip() for block in re.findall(r"<prompt>\n(.*?)</prompt>", request, re.DOTALL)]
    if len(shown) > 1:
        return " ".join(dict.fromkeys(s for block in shown for s in split_sentences(block)))
    found = re.search(r"reads (.*?) and gives (.*?)( \(one of|\.\n|\.$)", request, re.MULTILINE)
    return draw_instruction(draw, shown[0] if shown else "", *((found[1], found[2]) if found else ("", "")))
