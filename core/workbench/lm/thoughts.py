"""What a model thought, and what it said: thoughts in its text are told apart by the marks of its family.

The marks are those of the reasoning parsers of vLLM (docs.vllm.ai, "Reasoning outputs") and of the models' chat
templates. A server with such a parser sends thoughts beside the text (`Response.thoughts`); one without leaves them in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What begins thoughts, and what ends them.
_MARKS = {
    "<think>": "</think>",  # DeepSeek, Qwen, GLM, MiniMax, Nemotron, Hunyuan
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # Gemini in OpenAI's form
    "<thoughts>": "</thoughts>",
    "<antthinking>": "</antthinking>",  # Claude, as it was told to
    "<scratchpad>": "</scratchpad>",
    "<seed:think>": "</seed:think>",
    "<longcat_think>": "</longcat_think>",
    "[think]": "[/think]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi-VL
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|start_thinking|>": "<|end_thinking|>",  # Command A
    "<|inner_prefix|>": "<|inner_suffix|>",  # Apertus
    "<|channel>": "<channel|>",  # Gemma 4
    "<unused94>": "<unused95>",  # MedGemma
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",  # gpt-oss
    "here is my thought process:": "here is my response:",  # Granite
    "here's my thought process:": "here's my response:",
}
_OPENING = re.compile(rf"(?im)^[ \t]*(?:<\|start\|>assistant)?({'|'.join(map(re.escape, _MARKS))})")
#: An end without a beginning, which stands in the prompt. In backticks it is spoken of.
_CLOSING = re.compile(  # in lower case; a pattern that begins with a character is found fast
    rf"[<\[\u25c1](?<!`.)(?:{'|'.join(re.escape(end[1:]) for end in _MARKS.values() if ' ' not in end).lower()})(?!`)|"
    r"a(?<=[.?!\w].)ssistantfinal"  # gpt-oss, where its special tokens were left out
)
#: What templates put before and behind what is said.
_BEFORE = re.compile(
    r"(?i)\A\s*(?:<\|start\|>assistant)?(?:<\|(?:channel\|>final<\|message|start_response|begin_of_solution)\|>)"
)
#: Where a model goes on with the next turn, since nothing stopped it.
_NEXT_TURN = re.compile(
    r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|<turn\|>|<\|end\|>|</s>)\s*"
    r"(<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|turn>|<\|user\|>|<s>|\[INST\])"
)
_BEHIND = tuple(
    "<|end_response|> <|end_of_solution|> <|im_end|> <|eot_id|> <|end|> <|return|> <|endoftext|> <|end_of_text|> "
    "<|end_of_turn|> <turn|> <eos> </s>".split()
)


def split_reasoning(text: str, asked: str) -> tuple[str, str]:
    """(thoughts, what is said) of an answer that begins with `<reasoning>`, as those of Bedrock do.

    asked: the prompt. One that names the mark asks for a field of that name, as DSPy's XML adapter does.
    """
    start, end = "<reasoning>", "</reasoning>"
    if not text.startswith(start) or start in asked:
        return "", text
    thoughts, _, said = text.removeprefix(start).partition(end)
    return thoughts.strip(), said.lstrip("\n")


def split_thoughts(text: str) -> tuple[str, str]:
    """(thoughts, what is said) of an answer. Thoughts that do not end are all there is."""
    if not any(mark in text for mark in ("<", "[", "\u25c1", "thought process", "assistantfinal")):
        return "", text
    if (turn := _NEXT_TURN.search(text)) and turn[1] not in text[: turn.start()]:  # else it speaks of turns
        text = text[: turn.start()]
    low, thoughts, said, place = _lower(text), list[str](), list[str](), 0
    while opening := _OPENING.search(text, place):
        ending = _MARKS[opening[1].lower()]
        end = low.find(ending, opening.end())
        said.append(text[place : opening.start()])
        thoughts.append(text[opening.end() : end if end >= 0 else len(text)].strip())
        place = end + len(ending) if end >= 0 else len(text)
    said.append(text[place:])
    rest = "".join(said)
    if closings := [*_CLOSING.finditer(_lower(rest))]:
        thoughts.append(rest[: closings[-1].start()].strip())
        rest = rest[closings[-1].end() :]
    return "\n\n".join(filter(None, thoughts)), _without_tokens(rest).lstrip("\n" if thoughts else "")


def _lower(text: str) -> str:
    """A text in lower case, with each character at its place: some have no lower case of one character."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """An answer without what follows a stop, for stops that the model was not told of. Thoughts may hold any of them,
    and a right answer may begin with the end of a line."""
    told = [stop for stop in stops if stop.strip()]
    said = split_thoughts(text)[1] if told else ""
    begun = max(0, text.rfind(said)) if said else len(text)
    for stop in told:
        place = text.find(stop, begun)
        text = text[:place] if place >= 0 else text
    return text


def _without_tokens(text: str) -> str:
    """A text without the special tokens at its beginning and end."""
    text = _BEFORE.sub("", text)
    low, end, bare = text.lower(), len(text), len(text.rstrip())
    while low.endswith(_BEHIND, 0, bare):
        end = bare = low.rindex("<", 0, bare)
        while bare and low[bare - 1].isspace():
            bare -= 1
    return text[:end]
