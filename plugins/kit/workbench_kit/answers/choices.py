"""The reader of choices: which of a few allowed values an answer means. Truth values are two of them.

A wrong reading is scored as an answer, so nothing is guessed. A value counts if the answer states it, and not if it is
denied, asked about or only listed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workbench.base.text import without_unseen
from workbench_kit.answers.conclusions import CORRECTS, SPACELESS, ends_of, find_conclusions

_TRUE = (
    "yes true correct right y 1 ja wahr richtig oui vrai si sí verdadero cierto sim verdadeiro vero waar sant sann tak "
    "prawda evet doğru da да правда верно так نعم صحيح بله हाँ हां सही có đúng benar "
    "是 是的 对 对的 真 正确 没错 はい 正しい 네 예 참"
)
_FALSE = (
    "no false incorrect wrong n 0 nein falsch non faux falso não nao nee onwaar nej falskt nie fałsz hayır yanlış "
    "нет ложь неверно ні لا خطأ خیر नहीं गलत không sai tidak salah "
    "否 不 不是 不对 假 错 错误 いいえ 正しくない 아니요 아니오 거짓"
)
#: Words for truth values as a whole answer, or as the first word of one.
TRUTHS: dict[str, bool] = {word: words is _TRUE for words in (_TRUE, _FALSE) for word in words.split()}
#: Those that mean a truth value wherever they are stated.
_SAID = {"yes": True, "true": True, "no": False, "false": False}

#: Letters of words: next to one, a value is part of another word. Scripts without spaces have none.
_LETTER = rf"[^\W{SPACELESS}]"
#: Korean particles after a word, which do not change it.
PARTICLE = "(?:입니다|이다|이에요|예요|이며|이고|으로|로|은|는|이|가|을|를|의|인)"
#: Ends of a clause, to which a denial is limited.
_CLAUSE = re.compile(
    r"[.;:!?\n,()\u3002\uff0c\u3001\uff1b\uff01\uff1f\u2192]|->|\bmeans\b|"
    r"\b(?:(?<!anything )but|however|so|because|since|then|sondern|"
    r"mais|sino|pero|utan|maar|tylko|lecz|ale|но|а|بل|melainkan|mà)\b"
)
#: Words that deny a value up to four words later in the same clause; and words that deny the value directly before
#: them, up to two words before them, or before a mark, as in `billing: no`.
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|cannot|without(?! (?:a |any )?doubt)|hardly|unlikely|rather than|instead of|except|"
    r"nothing|none|exclud\w+|unlike|rul\w+ out|misclassified|no(?! doubt| question)|nicht|kein\w*|weder|ne|pas|ni|sin|"
    r"n[\u00e3a]o|non|nie|niet|inte|ikke|не|ei ole|nu este?|nem|δεν|ليس\w?|không|bukan|"
    r"if|whether|far from|anything but|less than|opposite of|fail\w* to|wrong to|lack\w*|"
    r"not (?:the case|true|correct|right) that)\b|n[\u2019']t\b)(?:\W+\w+){0,4}?\W*$|[不非没無无未别別]\w{0,2}$"
)
_DENIED_BEHIND = re.compile(
    r"\s*(?:(?:では|じゃ)(?:な|あり)|[이가은는]?\s*아[니닙닌]|değil|नहीं)|"
    r"\W*(?:\w+\W+){0,2}?(?:not\b|\w*n[\u2019']t\b|cannot\b|wrong\b|incorrect\b|false\b|tempting\b|unlikely\b|"
    r"(?:can|could) be (?:ruled out|excluded)|ruled out\b|excluded\b|out$)"
)
_DENIED_BY_MARK = re.compile(
    r"(?i)[\"'`*]*\s*[:=\uff1a]\s*[\"'`*]*(?:no|false|0|\u2717|\u274c)[\"'`*]*\s*(?:[.,;](?!\d)|\n|\Z)"
)
#: Struck-out text; the boxes of a list; a line with an empty box, and a line with several.
_STRUCK = re.compile(r"~~[^~\n]*~~")
_TICKED, _EMPTY = r"(?:\[[xX\u2713]\]|[\u2611\u2705])", r"(?:\[ ?\]|[\u2610\u274c])"
_EMPTY_LINE = re.compile(rf"(?m)^(?!.*{_TICKED}).*{_EMPTY}.*$")
_BOXES = re.compile(rf"(?m)^[ \t>*-]*(?:{_TICKED}|{_EMPTY}).*$")
#: English words that are values only as written (`US`, but not `us`), or where they are stated.
_PRONOUNS = frozenset("us it in or me may will as at be do go is of on so to up we who an am all and can".split())
_HYPHENS = str.maketrans("\u2212\u2010\u2011", "---")
#: Text after a value on its own: `technical: ...`, `B. ...`, `No it is not`.
_BEGINS = re.compile(
    r"[\"'`*)\]}]*(?:\s*$|\s*\n|(?<!\d):|\s*[.:;!,\u2014\u2013\u3002\u3001\uff0c\uff1a](?!\d)|\s+-\s|"
    r"\s+(?:because|since|as|it|this|that|they|he|she|we|i|you|there|the)\b|\s*\()",
    re.IGNORECASE,
)
#: A clause after a value that may choose another one. These clauses do not.
_ASIDE = r"not|despite|although|though|even|because|since|as|while|whereas|with|which|rather|but|obwohl|weil|aber"
_LISTS_ON = re.compile(rf"\s*,(?!\s*(?:{_ASIDE})\b)", re.IGNORECASE)
#: Text before a value on its own: the beginning of a line or sentence, or, in the first sentence, of a clause.
_OPENS, _LEADS = r"[\s\"'`*(\[{<$-]*", r"(?:(?:but|and|or|no|so|then)\s+)*"
_NEW_LINE = re.compile(rf"(?i)(?:\A|\n|[.!?\u3002]\s){_OPENS}{_LEADS}\Z")
_NEW_CLAUSE = re.compile(rf"(?i)(?:[.,;:!?/|()\u2014\u2013\u3001\uff0c]|\s-\s){_OPENS}{_LEADS}\Z")
#: Text before a mention that explains: `D: all of the above (A, B and C)`, but not `A (or B)`.
_IN_BRACKETS = re.compile(r"\w[^()\n]*\([^()\n]*\Z")
_SENTENCE = re.compile(r"(?<=[.!?\n\u3002\uff01\uff1f])(?!\d)")
_SCALE = re.compile(r"(?i)(?<=\d)\s?(?:/|out of|von|sur|de)\s?\d+\b|\bscale (?:of|from) \d+ ?(?:to|-|\u2013) ?\d+\b")
#: Links between letters, none of which is chosen: `A and C`, `A, C`.
_JOINS = r"(?:[ \t]*[,/&+<>\u3001和或と][ \t]*|[ \t]+)(?:(?:and|or|und|oder|et|ou|y|o|e|и|или|&)[ \t]+)?"
#: Words before a letter that is a choice. After other words it is part of a name: `hepatitis B`, `plan B`.
_NAMES_LETTER = "option|choice|letter|answer|response|candidate|assistant"
_BEFORE_LETTER = (
    r"is|be|it|s|say|pick|choose|select|take|with|so|thus|therefore|hence|then|for|that|remains|clearly|definitely|"
    r"prefer|(?:give|gave|assign|deserve|earn|get)s?(?: \w+){0,2} an?|"
    r"probably|likely|correct|best|but|sondern|ist|lautet|es|est|è|é|jest"
)


def plain(text: str) -> str:
    """Return a text without case, compatibility forms, invisible characters, quotes and final stops. Hyphens between
    words become spaces."""
    text = _compatible(text).strip(".,:;!\"'`*()[]\u3002\uff01\uff0c \n\t").casefold()
    return re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", text)


def _compatible(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", without_unseen(text)).translate(_HYPHENS)


@dataclass(frozen=True)
class Choices:
    """The values of an output.

    exact: by their exact texts. whole: by the text (`plain`) of a whole answer or line, or of its beginning. mentions:
    patterns of values among other words, long ones first, since they contain short ones. pairs: two values, neither of
    which is chosen, e.g. `low-medium`.
    """

    exact: Mapping[str, Any]
    whole: Mapping[str, Any]
    mentions: tuple[tuple[re.Pattern[str], Any], ...]
    pairs: re.Pattern[str]

    @staticmethod
    def of(said: Mapping[str, Any], more: Mapping[str, Any]) -> Choices:
        ordered = sorted(filter(plain, said), key=len, reverse=True)
        whole = {plain(one): said[one] for one in ordered} | dict(more)
        mentions = tuple((_mention(one), said[one]) for one in ordered)
        either = "|".join(r"[\s_-]".join(map(re.escape, plain(one).split(" "))) for one in ordered)
        pair = rf"(?:{either})\s?(?:[/|~]|[-\u2013](?:to-)?)\s?(?:{either})"
        pairs = re.compile(rf"(?i)(?<![\w-]){pair}(?![\w-]|[ \t]*:)")
        return Choices(said, whole, mentions, pairs)

    def read(self, text: str, field: str = "answer") -> tuple[Any, bool] | None:
        """Return (the value that a text means, whether it is among other words); None if that is not certain.

        field: the name of the output, which may introduce the result.
        """
        if (text := text.strip()) in self.exact:
            return self.exact[text], False
        text = self._without_open(_compatible(ends_of(text)))
        lines = [line for line in map(plain, text.split("\n")) if line] or [""]
        for conclusion in find_conclusions(text, field):
            if stated := self._stated(conclusion):
                return stated[0], True
        stated = [self.whole[line] for line in lines[:1] + lines[-1:] if line in self.whole] or self._stated(text)
        if stated and (corrections := [*CORRECTS.finditer(text)]):
            stated += self._stated(text[corrections[-1].end() :])
        if not stated or any(one != stated[0] for one in stated):
            return None
        return stated[0], lines[0] not in self.whole

    def _without_open(self, text: str) -> str:
        """Return a text without struck-out or unticked text, pairs of values, and, for grades, their scale."""
        if all(line.isdigit() for line in self.whole):
            text = _SCALE.sub("", text)
        text = self.pairs.sub(lambda pair: pair[0] if plain(pair[0]) in self.whole else " ", _STRUCK.sub("", text))
        if re.search(_TICKED, text):
            text = _BOXES.sub(lambda line: re.sub(rf"{_EMPTY}[^\[\u2610-\u2611\u2705\u274c]*", "", line[0]), text)
            text = _EMPTY_LINE.sub("", text)
        return text

    def _stated(self, text: str) -> list[Any]:
        """Return the stated value in a list, or []: the value at the beginning, unless others are stated on their own,
        too; else the only one mentioned."""
        if plain(text) in self.whole:
            return [self.whole[plain(text)]]
        text = "".join(part for part in _SENTENCE.split(text) if not part.endswith(("?", "\uff1f")))
        text = text.lstrip(" \t\n\"'`*([{<$,:;")
        said = [*self._mentioned(text)]
        found = [one for one in said if not _is_denied(text, *one[1:])]
        first = re.match(r"\w\w+|[^\W\x00-\x7f]", text)  # a word for a truth value, or `us` for US
        if first and first[0].casefold() in self.whole and all(start for _, start, _ in said):
            begins = [(self.whole[first[0].casefold()], 0, first.end())] if _BEGINS.match(text, first.end()) else []
            said, found = said + begins, found + begins
        for value, _, end in [one for one in said if not one[1] and _BEGINS.match(text, one[2])][:1]:
            if _DENIED_BY_MARK.match(text, end):
                return []
            others = [one[1:] for one in found if one[0] != value and one[1] >= end]
            others = [one for one in others if not _IN_BRACKETS.search(text[end : one[0]][-80:])]
            clauses = end + len(_SENTENCE.split(text[end:], 1)[0])
            lists = bool(_LISTS_ON.match(text, end)) and any(start < clauses for start, _ in others)
            if not lists and not any(_stands_alone(text, *one, clauses) for one in others):
                return [value]
        return [one for one, _, _ in found[:1]] if all(one[0] == found[0][0] for one in found) else []

    def _mentioned(self, text: str) -> Iterator[tuple[Any, int, int]]:
        """Yield (value, start, end) of each mention."""
        taken = bytearray(len(text))
        for pattern, value in self.mentions:
            for mention in pattern.finditer(text):
                start, end = mention.span("said")
                if not any(taken[start:end]):
                    yield value, start, end
                taken[start:end] = b"\1" * (end - start)


def _stands_alone(text: str, start: int, end: int, clauses: int) -> bool:
    """Return True if a mention is a whole line or sentence before a mark, or, up to `clauses`, a whole clause."""
    before, opens = text[max(0, start - 30) : start], (_NEW_LINE, _NEW_CLAUSE)[: 1 + (start < clauses)]
    return bool(_BEGINS.match(text, end)) and any(one.search(before) for one in opens)


def _mention(said: str) -> re.Pattern[str]:
    """Return a pattern for a value among other words: not within a word or a number."""
    words = plain(said).split(" ")
    body, first, last = r"[\s_-]+".join(map(re.escape, words)), words[0][0], words[-1][-1]
    if said.isascii() and ((len(said) == 1 and said.isalpha()) or said in _PRONOUNS):
        return _marked_mention(said)
    before = rf"(?<!{_LETTER})" + (r"(?<![.,+-])" if first.isdigit() else r"(?<!\w-)")
    after = rf"(?:(?={PARTICLE})|(?!{_LETTER}))" + (r"(?![.,]\d|\s?/\s?\d)" if last.isdigit() else "")
    before, after = ("" if re.match(f"[{SPACELESS}]", c) else p for c, p in ((first, before), (last, after)))
    if body in TRUTHS:  # `half true`; `no doubt` is no answer
        before += "".join(rf"(?<!{word}[ -])" for word in ("half", "partly", "partially", "mostly", "largely"))
        after += "" if TRUTHS[body] else rf"(?={_BEGINS.pattern})"
    as_written = said.lower() in _PRONOUNS
    return re.compile(f"{before}(?P<said>{said if as_written else body}){after}", 0 if as_written else re.IGNORECASE)


def _marked_mention(word: str) -> re.Pattern[str]:
    """Return a pattern for a letter that is a choice, and neither the article a nor the pronoun I.

    The word or mark before it decides, or letters next to it, and the text after it.
    """
    before = (
        rf"^[ \t]*|[^\w\s'\u2019.-][ \t]*|[.!?][ \t]+|(?<!\w)-[ \t]*|[{SPACELESS}가-힣][ \t]*|"
        rf"\b(?i:{_BEFORE_LETTER})[ \t]+"
    )
    after = (
        r"[.,:;!?)\]}>$\"'*`_]*[ \t]*$|[ \t]+[\u2013-][ \t]|[.:,](?!\w)|[)\]}>$\"*`\u3001\u3002\uff0c\uff0e]|"
        rf"[ \t]+(?i:is|would be)[ \t]+(?:the[ \t]+)?(?i:correct|right|better|best|true|answer)\b|"
        rf"[{SPACELESS}가-힣]|{_JOINS}[A-Z]\b"
    )
    named = "" if word in "AI" else f"|(?(named){word.lower()}|(?!))"  # `option b`, but not `option a user has`
    return re.compile(
        rf"(?:(?P<named>\b(?i:{_NAMES_LETTER})[ \t]+)|{before})(?:[A-Z]{_JOINS}){{0,8}}"
        rf"(?P<said>{word}{named})(?![^\W{SPACELESS}가-힣])(?(named)|(?={after}))",
        re.MULTILINE,
    )


def _is_denied(text: str, start: int, end: int) -> bool:
    before, behind = text[max(0, start - 80) : start].lower(), text[end : end + 80].lower()
    clause = before[max((found.end() for found in _CLAUSE.finditer(before)), default=0) :]
    stop = _CLAUSE.search(behind)
    return bool(_DENIED_BEFORE.search(clause) or _DENIED_BEHIND.match(behind[: stop.start()] if stop else behind))


@lru_cache(maxsize=256)
def choices_of(said: tuple[str, ...], values: tuple[Any, ...]) -> Choices:
    """Return the choices among some values, each with the texts that stand for it."""
    return Choices.of(dict(zip(said, values, strict=True)), {})


#: The choices of a truth value.
TRUTH = Choices.of(_SAID, TRUTHS)
