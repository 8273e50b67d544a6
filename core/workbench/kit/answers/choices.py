"""The reader of choices: which of a few allowed values an answer means. Truth values are two of them.

A wrong reading is scored as an answer, so nothing is guessed: a value counts where the answer states it, and one that
is denied, asked about or only listed does not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workbench.kit.answers.conclusions import find_conclusions

_TRUE = "yes true correct right y 1 ja oui si sí da 是 是的 对 对的 正确 はい 예"
_FALSE = "no false incorrect wrong n 0 nein non нет 否 不 不是 不对 错 错误 いいえ 아니요"
#: Words for truth values as a whole answer, or as the first word of one.
TRUTHS: dict[str, bool] = {word: words is _TRUE for words in (_TRUE, _FALSE) for word in words.split()}
#: Those that stand for one wherever they are stated.
_SAID = {"yes": True, "true": True, "no": False, "false": False}

_SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")
#: What ends a clause, in which a denial holds.
_CLAUSE = re.compile(
    r"[.;:!?\n,()\u3002\uff0c\u3001\uff1b\uff01\uff1f]|\b(?:but|however|so|because|since|then|sondern|mais|sino)\b"
)
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|without(?! (?:a |any )?doubt)|hardly|unlikely|rather than|instead of|except|"
    r"exclud\w+|unlike|rul\w+ out|no(?! doubt| question)|nicht|kein\w*|weder|ne|pas|ni|sin|не)\b|n[\u2019']t\b)"
    r"(?:\W+\w+){0,4}?\W*$|(?:[不非没無无未別别])\w{0,2}$"
)
_DENIED_BEHIND = re.compile(
    r"\W*(?:\w+\W+){0,2}?(?:not\b|\w*n[\u2019']t\b|cannot\b|wrong\b|incorrect\b|false\b|tempting\b|unlikely\b|"
    r"(?:can|could) be (?:ruled out|excluded)|ruled out\b|excluded\b|out$)"
)
#: What may follow a value that a text begins with, if it states it: `technical: ...`, `B. ...`, `No it is not`.
_BEGINS = re.compile(
    r"[\"'`*)\]]*(?:\s*$|\s*\n|\s*[.:;!,\u2014\u2013\u3002\uff0c\uff1a](?!\d)|\s+-\s|"
    r"\s+(?:because|since|as|it|this|that|they|he|she|we|i|you|there|the)\b|\s*\()",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?\n\u3002\uff01\uff1f])")
_SCALE = re.compile(r"(?<=\d)\s?(?:/|out of|von|sur|de)\s?\d+\b")
_ASKED = ("?", "\uff1f")
#: Characters at the end of a long answer in which values are looked for.
_TAIL = 20_000


def plain(text: str) -> str:
    """A text without case, compatibility forms, quotes and final stops; hyphens between words become spaces."""
    text = _compatible(text).strip(".,:;!\"'`*()[]\u3002\uff01\uff0c \n\t").casefold()
    return re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", text)


def _compatible(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("\u2212", "-")


@dataclass(frozen=True)
class Choices:
    """The values of an output.

    exact: by what stands for them. whole: by what an answer, or a line of one, is as a whole (`plain`). mentions:
    patterns of what stands for a value among other words, long ones first, since they hold short ones.
    """

    exact: Mapping[str, Any]
    whole: Mapping[str, Any]
    mentions: tuple[tuple[re.Pattern[str], Any], ...]

    @staticmethod
    def of(said: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> Choices:
        ordered = sorted(filter(plain, said), key=len, reverse=True)
        by_plain = {plain(one): value for one, value in said.items()}
        return Choices(said, by_plain | dict(whole or {}), tuple((_mention(one), said[one]) for one in ordered))

    def read(self, text: str, field: str = "answer") -> tuple[Any, bool] | None:
        """(the value that a text means, whether among other words); None if that is not certain.

        field: the name of the output, by which the answer may introduce its result.
        """
        if text.strip() in self.exact:
            return self.exact[text.strip()], False
        lines = [line for line in map(plain, text.strip().split("\n")) if line]
        if len(lines) == 1 and lines[0] in self.whole:
            return self.whole[lines[0]], False
        text = _compatible(text.strip())[-_TAIL:]
        if all(line.isdigit() for line in self.whole):  # grades, as 4/5
            text = _SCALE.sub("", text)
        for conclusion in find_conclusions(text, field):
            if stated := self._stated(conclusion):
                return stated[0], True
        stated = [self.whole[line] for line in lines[:1] + lines[-1:] if line in self.whole] or self._stated(text)
        if not stated or any(one != stated[0] for one in stated):
            return None
        return stated[0], lines[0] not in self.whole

    def _stated(self, text: str) -> list[Any]:
        """The value that a text states, or none of them."""
        if plain(text) in self.whole:
            return [self.whole[plain(text)]]
        first = re.match(r"[\s\"'`*(\[]*(\w+)", text)
        begins = [(m.end(), v) for p, v in self.mentions if first and (m := p.match(text, first.start(1)))][:1]
        if first and not begins and len(first[1]) > 1 and first[1].casefold() in self.whole:
            begins = [(first.end(), self.whole[first[1].casefold()])]
        for end, value in begins:
            rest = text[end:]
            others = [one for one in self._mentioned(rest.split("\n")[0][:80]) if one != value]
            listed = others and rest.lstrip().startswith(",")
            if _BEGINS.match(rest) and not listed and not _SENTENCE.split(rest, 1)[0].endswith(_ASKED):
                return [value]
        found = self._mentioned("".join(part for part in _SENTENCE.split(text) if not part.endswith(_ASKED)))
        return found[:1] if all(one == found[0] for one in found) else []

    def _mentioned(self, text: str) -> list[Any]:
        """The values that a text mentions without denying them."""
        found, taken = list[Any](), bytearray(len(text))
        for pattern, value in self.mentions:
            for mention in pattern.finditer(text):
                start, end = mention.span()
                if not any(taken[start:end]) and not _is_denied(text, start, end):
                    found.append(value)
                taken[start:end] = b"\1" * (end - start)
        return found


def _mention(said: str) -> re.Pattern[str]:
    words = plain(said).split(" ")
    body, first, last = r"[\s_-]+".join(map(re.escape, words)), words[0][0], words[-1][-1]
    if said.isascii() and said.isalpha() and len(said) == 1:  # neither the article a nor the pronoun I
        after = r"(?=[.,:;!?)\]\"'*`]*\s*$|[.:)\]\"*`])"
        named = "|".join(f"(?<=(?i:{word} ))" for word in ("option", "choice", "letter", "answer"))
        return re.compile(rf"(?<![\w'\u2019]){said}{after}|(?:{named}){said}(?!\w)", re.MULTILINE)
    before = "" if _SPACELESS.match(first) else r"(?<![\w.,+-])" if first.isdigit() else r"(?<!\w)(?<!\w-)"
    after = "" if _SPACELESS.match(last) else r"(?!\w|[.,]\d|\s?/\s?\d)" if last.isdigit() else r"(?!\w)"
    if body in TRUTHS and not TRUTHS[body]:  # `no doubt` says nothing
        after += rf"(?={_BEGINS.pattern})"
    return re.compile(f"{before}{body}{after}", re.IGNORECASE)


def _is_denied(text: str, start: int, end: int) -> bool:
    before, behind = text[max(0, start - 80) : start].lower(), text[end : end + 80].lower()
    clause = before[max((found.end() for found in _CLAUSE.finditer(before)), default=0) :]
    stop = _CLAUSE.search(behind)
    return bool(_DENIED_BEFORE.search(clause) or _DENIED_BEHIND.match(behind[: stop.start()] if stop else behind))


@lru_cache(maxsize=256)
def choices_of(said: tuple[str, ...], values: tuple[Any, ...]) -> Choices:
    """The choices among some values, each with what stands for it in an answer."""
    return Choices.of(dict(zip(said, values, strict=True)))


#: The choices of a truth value.
TRUTH = Choices.of(_SAID, TRUTHS)
