"""Answers proposal requests (`workbench.kit.prompting`) with instructions put together from templates. No model is
involved.

For task models that cannot write an instruction, and as the control of those that can: whatever a proposer adds must
show against this one.
"""

from __future__ import annotations

import hashlib
import random
import re
from typing import Any

from workbench.errors import SpecError
from workbench.kit.prompting import wrap_in_tags
from workbench.lm import Request, Response, estimate_tokens
from workbench.spec import declares

OPENINGS = ("", "You are an expert.", "You are careful and precise.", "Take the point of view of a specialist.")
TASKS = (
    "Read {inputs} and give {outputs}.",
    "Decide on {outputs} from {inputs}.",
    "Work out {outputs}. All you need stands in {inputs}.",
    "Look for what matters most in {inputs}, then give {outputs}.",
    "Compare {inputs} with what you know and state {outputs}.",
)
RULES = (
    "Answer with the value alone.",
    "Choose the one that fits best, even if none fits well.",
    "Use one of the allowed values, spelled exactly as given.",
    "Heed the examples if there are any.",
    "Think about it before you answer.",
    "Do not be misled by single words: the whole counts.",
    "Ignore what does not bear on the answer.",
    "Where two seem right, take the more specific one.",
)
_WANTED = re.compile(r"Write a better part (\d+),")


@declares()
def templates(model: str, settings: Any) -> Templates:
    """The provider of `templates/...`."""
    return Templates(model)


class Templates:
    """An LM of the workbench's protocol; `templates/instructions` is its only name."""

    identity, concurrency = "templates, no model", 64

    def __init__(self, model: str):
        if model != "instructions":
            raise SpecError(f"there are no templates '{model}'", hint="Write templates/instructions.")

    async def complete(self, request: Request) -> Response:
        text = "\n".join(str(m["content"]) for m in request.messages)
        draw = random.Random(hashlib.sha256(request.key(self.identity).encode()).digest())
        if part := _WANTED.search(text):  # of a message in several: the one that is asked for
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
    """Several prompts are merged sentence by sentence; one is edited by a sentence or written anew."""
    shown = [block.strip() for block in re.findall(r"<prompt>\n(.*?)</prompt>", request, re.DOTALL)]
    if len(shown) > 1:
        return " ".join(dict.fromkeys(s for block in shown for s in _sentences(block)))
    old = _sentences(shown[0]) if shown else []
    kind = draw.random()
    if old and kind < 0.4:
        return " ".join([*old, draw.choice([r for r in RULES if r not in old] or ["Be exact."])])
    if len(old) > 1 and kind < 0.5:
        old.pop(draw.randrange(len(old)))
        return " ".join(old)
    found = re.search(r"reads (.*?) and gives (.*?)( \(one of|\.\n|\.$)", request, re.MULTILINE)
    inputs, outputs = (f"the {found[1]}", f"the {found[2]}") if found else ("the input", "the answer")
    parts = [
        draw.choice(OPENINGS),
        draw.choice(TASKS).format(inputs=inputs, outputs=outputs),
        *draw.sample(RULES, draw.randrange(3)),
    ]
    return " ".join(p for p in parts if p)


def _sentences(text: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.!?])\s+", text.strip()) if s]
