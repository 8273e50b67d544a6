"""Separation of a model's thoughts from its answer, by the marks of its family.

The marks are those of the reasoning parsers of vLLM (docs.vllm.ai, "Reasoning outputs") and of the models' chat
templates. A server with such a parser returns thoughts in a field of their own (`Response.thoughts`); others leave them
in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

#: Marks that begin thoughts, each with the mark that ends them.
_MARKS = {
    "<think>": "</think>",  # DeepSeek, Qwen, GLM, MiniMax, Nemotron, Hunyuan
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",  # Gemini in OpenAI's form
    "<thoughts>": "</thoughts>",
    "<antthinking>": "</antthinking>",  # Claude, if told so
    "<scratchpad>": "</scratchpad>",
    "<seed:think>": "</seed:think>",
    "<longcat_think>": "</longcat_think>",
    "[think]": "[/think]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi-VL
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|start_thinking|>": "<|end_thinking|>",  # Command A
    "<|thinking|>": "<|/thinking|>",
    "<|think|>": "<|/think|>",
    "<|inner_prefix|>": "<|inner_suffix|>",  # Apertus
    "<|channel>": "<channel|>",  # Gemma 4
    "<unused94>": "<unused95>",  # MedGemma
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",  # gpt-oss
    "here is my thought process:": "here is my response:",  # Granite
    "here's my thought process:": "here's my response:",
}
_OPENING = re.compile(rf"(?im)^[ \t]*(?:<\|start\|>assistant)?({'|'.join(map(re.escape, _MARKS))})")
#: An end mark whose begin mark is in the prompt. In backticks it is only mentioned.
_CLOSING = re.compile(  # in lower case; a pattern that begins with a character is found fast
    rf"[<\[\u25c1](?<!`.)(?:{'|'.join(re.escape(end[1:]) for end in _MARKS.values() if ' ' not in end).lower()})(?!`)|"
    r"a(?<=[.?!\w].)ssistantfinal"  # gpt-oss without its special tokens
)
#: Marks that templates put before an answer.
_BEFORE = re.compile(
    r"(?i)\A\s*(?:<\|start\|>assistant)?(?:<\|(?:channel\|>final<\|message|start_response|begin_of_solution)\|>)"
)
#: The final channel of gpt-oss, with or without a format.
_FINAL = re.compile(r"(?i)<\|channel\|>final[^<\n]*(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>")
#: Marks of templates at the end of a turn, by their form: special tokens, ends of sequences, turns and instructions.
#: Marks of tool calls stay, for the parser of calls.
_END = (
    r"<\|(?![^|>]*tool)[^<>|\s]{1,40}\|>|<\uff5c(?![^\uff5c>]*tool)[^<>\uff5c\s]{1,40}\uff5c>|"
    r"\[\|(?![^|\]]*tool)[^\[\]|\s]{1,40}\|\]|<(?:extra_id|reserved)_\d{1,4}>|"
    r"<(?:/s|eos|eot|eod|eom|pad|turn\||\|turn|end_of_[a-z_]{2,20}|/?start_of_turn)>|"
    r"\[/?(?:INST|EOS|ASSISTANT|SYSTEM_PROMPT|AVAILABLE_TOOLS)\]|<</?SYS>>"
)
#: Opening marks that make a closing mark part of the content.
_OPENED = {"</s>": re.compile(r"(?i)(?<!\A)<s[\s>]"), "[/inst]": re.compile(r"(?i)\[inst\]")}
#: The start of a next turn, written by a model that nothing stopped.
_NEXT_TURN = re.compile(
    rf"(?:{_END})\s*"
    r"(<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|turn>|<\|user\|>|<s>|\[INST\])"
)
_BEHIND = re.compile(rf"(?i)(?:\s*(?:{_END}))+\s*\Z")
#: The same, possibly incomplete.
_BEGUN = re.compile(rf"(?i)\s*(?:(?:{_END})\s*)*(?:<[|\uff5c/<]?[^<>\s]{{0,40}}|\[[/|]?[a-z_|]{{0,43}})?\Z")
#: Characters at the end of a text that are searched for marks.
_LAST = 400


#: The most characters of a mark to wait for.
_LONGEST = 64


def split_reasoning(text: str, asked: Callable[[], str]) -> tuple[str, str]:
    """Return (thoughts, answer) of a text that begins with `<reasoning>`, as texts of Bedrock do. asked: returns the
    prompt. If it contains the mark, it asks for a field of that name, as DSPy's XML adapter does."""
    start, end = "<reasoning>", "</reasoning>"
    if not text.startswith(start) or start in asked():
        return "", text
    thoughts, _, said = text.removeprefix(start).partition(end)
    return thoughts.strip(), said.lstrip("\n")


def split_thoughts(text: str) -> tuple[str, str]:
    """Return (thoughts, answer) of a text. Thoughts without an end are the whole text."""
    if not any(mark in text for mark in ("<", "[", "\u25c1", "thought process", "assistantfinal")):
        return "", text
    text = _FINAL.sub("<|channel|>final<|message|>", text)
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
    """Return a text in lower case with the same length: characters whose lower case is longer stay."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """Return an answer without everything after a stop, for stops that were not sent to the model. Thoughts may contain
    stops, and a right answer may begin with a newline."""
    told = [stop for stop in stops if stop.strip()]
    said = split_thoughts(text)[1] if told else ""
    begun = max(0, text.rfind(said)) if said else len(text)
    for stop in told:
        place = text.find(stop, begun)
        text = text[:place] if place >= 0 else text
    return text


class SaidInPieces:
    """The same for an answer in pieces: separates thoughts at its beginning, and cuts at a stop. A possible beginning
    of a mark is held back until more is known. Later thoughts count as text.

    asked: the prompt (see `split_reasoning`).
    """

    def __init__(self, stops: Sequence[str], asked: str):
        self._marks = dict(_MARKS) if "<reasoning>" in asked else {**_MARKS, "<reasoning>": "</reasoning>"}
        self._stops = [stop for stop in stops if stop.strip()]
        self._held, self._cut = "", False
        self._said: list[str] = []
        self._ending: str | None = None  # of the thoughts; None: not known yet whether there are any
        self._begun = False  # thoughts or answer have begun; newlines before that are dropped

    def add(self, text: str, last: bool = False) -> tuple[str, str]:
        """Return (thoughts, answer) that are certain now. last: return all that is left."""
        self._held += text
        if self._ending is None and not self._begin(last):
            return "", ""
        thoughts = self._thought(last) if self._ending else ""
        return thoughts, "" if self._ending or self._cut else self._say(last)

    def _begin(self, last: bool) -> bool:
        begun = self._held.lstrip()
        low = begun.lower()
        mark = max((mark for mark in self._marks if low.startswith(mark)), key=len, default="")
        if not last and any(one != low and one.startswith(low) for one in self._marks):
            return False
        self._held, self._ending = begun[len(mark) :] if mark else self._held, self._marks.get(mark, "")
        self._begun = not mark
        return True

    def _thought(self, last: bool) -> str:
        assert self._ending
        found = re.search(re.escape(self._ending), self._held, re.IGNORECASE)
        end = found.start() if found else len(self._held) - (0 if last else _begun_marks(self._held, [self._ending]))
        thoughts = self._held[:end] if self._begun else self._held[:end].lstrip()
        self._held = self._held[found.end() if found else end :]
        self._begun = self._begun or bool(thoughts)
        if found:
            self._ending, self._begun = "", False
        return thoughts

    def _say(self, last: bool) -> str:
        held = self._held if self._begun else self._held.lstrip("\n")
        place = min((place for stop in self._stops if (place := held.find(stop)) >= 0), default=-1)
        if place >= 0:
            self._cut, said, self._held = True, held[:place], ""
            return said
        end = len(held) - _begun_marks(held, self._stops)
        begun = _BEGUN.search(held, max(0, len(held) - _LAST))
        end = min(end, begun.start() if begun and begun[0].strip() else end)
        said = _without_tokens(held, "".join(self._said)) if last else held[:end]
        self._held = "" if last else held[end:]
        self._begun = self._begun or bool(said)
        self._said.append(said)
        return said


def _begun_marks(text: str, marks: Sequence[str]) -> int:
    """Count the characters at the end of a text that may begin a mark, or are one."""
    low = text[-_LONGEST:].lower()
    found = [n for mark in marks for n in range(min(len(mark), len(low)), 0, -1) if low.endswith(mark[:n].lower())]
    return max(found, default=0)


def _without_tokens(text: str, before: str = "") -> str:
    """Return a text without the special tokens at its beginning and end. before: the answer so far."""
    text = _BEFORE.sub("", text)
    found = _BEHIND.search(text, max(0, len(text) - _LAST))
    if found is None:
        return text
    rest = text[: found.start()]
    closing = found[0].strip().lower()
    return text if closing in _OPENED and _OPENED[closing].search(before + rest) else rest
