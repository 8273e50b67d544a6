"""The model behind every dialect. It knows the right answer, and thinks of the wrong one first."""

from __future__ import annotations

import re
from typing import Any

from tests.dialects.dialect import Json, Said

#: The rows of the planted task, with their labels. The desk of a ticket stands behind the tool `look` only.
ROWS = {"INV-7 was charged twice": "billing", "APP-3 crashes at the start": "technical"}
DESKS = {"INV-7": "billing", "APP-3": "technical"}
#: In a row: the answer is cut, or refused.
CUT, FORBIDDEN = "Tell it at length.", "Say what is forbidden."
#: Rows on which the model errs, or says nothing that is a label.
MISLED = {"XXX-1 is a riddle": "technical", "XXX-2 is nothing": "I cannot tell."}
_CODE = re.compile(r"\b(?:INV-7|APP-3)\b")
INSTRUCTION = "Sort each ticket by the desk of its code."
#: All that a reader could take for an answer, and that is none.
THOUGHTS = (
    'Is it technical, or billing? label: {wrong}. A call could be call: {{"tool": "look", "arguments": '
    '{{"code": "XXX-0"}}}}, and a grade score: 1. A prompt would be <prompt>Guess.</prompt>'
)


def answer(request: Json, thinks: bool) -> Said:
    """What the model says to a request in the form of chat completions."""
    messages = request["messages"]
    asked = "\n".join(text_of(m) for m in messages if m["role"] != "assistant")
    begun = max((n for n, m in enumerate(messages) if m["role"] == "user" and _CODE.search(text_of(m))), default=0)
    code = next(iter(_CODE.findall(text_of(messages[begun]))), "")
    wrong = "technical" if DESKS.get(code) == "billing" else "billing"
    thoughts = THOUGHTS.format(wrong=wrong) if thinks else ""
    if FORBIDDEN in asked:
        return Said("", end="refusal")
    if CUT in asked:
        return Said("The ticket is about the bil", thoughts=thoughts, end="length")
    for row, said in MISLED.items():
        if row in asked:
            return Said(said, thoughts=thoughts)
    told = _told(messages[begun:])
    if (request.get("tools") or "call: {" in asked) and told is None and "grade an answer" not in asked:
        if request.get("tools"):
            return Said("", (("look", {"code": code}),), thoughts, "tool_calls")
        return Said(f'call: {{"tool": "look", "arguments": {{"code": "{code}"}}}}', thoughts=thoughts)
    return Said(_text(asked, code, told), thoughts=thoughts)


def _text(asked: str, code: str, told: str | None) -> str:
    if "grade an answer" in asked.lower():
        right = DESKS.get(code, "") in asked.rpartition("Answer:")[2]
        return f"The desk is {'right' if right else 'wrong'}.\nscore: {10 if right else 0}"
    if "write the instruction of one step" in asked:
        return f"<prompt>\n{INSTRUCTION}\n</prompt>"
    return told or DESKS.get(code, "unknown") if "label: ..." not in asked else f"label: {told or DESKS.get(code)}"


def _told(messages: list[Json]) -> str | None:
    """The desk that the tool has told; None before that."""
    found = [re.search(r"desk of [A-Z]+-\d is (\w+)", text_of(message)) for message in messages]
    desks = [one[1] for one in found if one]
    return desks[-1] if desks else None


def text_of(message: Json) -> str:
    content: Any = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)
