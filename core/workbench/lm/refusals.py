"""Recognition of refusals that a model writes as an ordinary answer."""

from __future__ import annotations

import re

#: Characters. A longer text is more than a refusal.
_LONGEST = 800
_HELP = (
    r"(?:help|assist|comply|provide|fulfil+|do (?:that|this|so)|create|generate|write|continue|answer|respond|support|"
    r"engage|discuss|share|produce|rewrite|improve|propose|complete|participate|be able|with (?:that|this|your))"
)
_REFUSAL = re.compile(
    r"(?is)\A\W*"
    r"(?:(?:(?:i'?m|i am|we'?re|we are)\s+(?:\w+ ){0,2}sorry|(?:so |very )?sorry|(?:my )?apologies|"
    r"i apologi[sz]e|"
    r"unfortunately|thank you[^.!]*[.!]|as an? (?:ai|language|assistant)[^,.]*)[\s,.:;!\u2013\u2014-]*)*"
    r"(?:but |however,? )?(?:i|we)\s*(?:(?:can(?:no|')?t|can not|couldn't|could not|won't|will not|do not|don't)\s+|"
    r"(?:'m|am|are|'re) (?:\w+ )?(?:unable|not (?:able|allowed|permitted|comfortable)|sorry)\b\s*|"
    r"(?:must|have to|need to|respectfully|will have to)?\s*(?:decline|refuse)\b\s*)"
    rf"(?:to |feel comfortable |be able to |\w+ing )*(?:{_HELP}\b|to\b|that\b|this\b|\Z|[.!,])"
)
#: Continuations of a refusal: an offer, a reason, or regret. Anything else is content.
_MORE = re.compile(
    r"(?is)\W*(?:(?:but|however|instead|so|and),? )?(?:\Z|sorry|apologies|thank|let me|feel free|my |"
    r"(?:if|should) you(?:'d|'re|'ve| (?:have|need|want|would|wish|like|can|could|are|share|provide))\b|"
    r"please (?:feel|let|ask|provide|share|try|consult|contact|reach|rephrase|tell|clarify)\b|"
    r"(?:is|are) there|(?:would|could|can|do) you|(?:how|what) (?:else|can|may|would)|"
    r"i(?:'d|'m|'ll| am| can| could| would| will)? (?:(?:be|still|also|only|very|more than) )*"
    r"(?:happy|glad|here|help|assist|offer|recommend|suggest|understand|appreciate|hope|apologi[sz]e|sorry)\b|"
    r"(?:it|this|that|such|doing so|your|the (?:request|prompt|content))\b[^.]*\b"
    r"(?:violat|against|harm|polic|guideline|inappropriate|unsafe|illegal|not (?:allowed|something|appropriate)))"
)
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|\n+")
#: Beginnings of refusals in other languages.
_ELSEWHERE = re.compile(
    r"(?i)\A\W*(?:lo siento,? (?:pero )?no (?:puedo|podemos)|"
    r"(?:je suis (?:vraiment )?)?d\u00e9sol\u00e9e?,? (?:mais )?je ne (?:peux|suis)|"
    r"(?:es tut mir (?:sehr )?leid|tut mir leid|entschuldigung),? (?:aber )?(?:ich (?:kann|darf)|d\w+ kann ich)|"
    r"mi dispiace,? (?:ma )?non posso|(?:desculpe|sinto muito),? (?:mas )?n\u00e3o posso|"
    r"(?:\u5f88\u62b1\u6b49|\u62b1\u6b49|\u5bf9\u4e0d\u8d77)[\uff0c,]?\s*(?:\u4f46)?\u6211(?:\u65e0\u6cd5|\u4e0d\u80fd)|"
    r"\u7533\u3057\u8a33|\u0438\u0437\u0432\u0438\u043d\u0438\u0442\u0435,? (?:\u043d\u043e )?\u044f \u043d\u0435 "
    r"\u043c\u043e\u0433\u0443)"
)


_TAG = re.compile(r"</?[A-Za-z]\w*>")


def is_blank(text: str) -> bool:
    """Return True if a text consists only of tags, such as `<prompt></prompt>`."""
    return not _TAG.sub("", text).strip()


def is_refusal(text: str) -> bool:
    """Return True if a text, apart from tags, only says that its writer will not do the task."""
    plain = re.sub("[*_#>`]", "", _TAG.sub("", text).replace("\u2019", "'")).strip()
    if len(plain) > _LONGEST:
        return False
    if (refusal := _REFUSAL.match(plain)) is None:
        return _ELSEWHERE.match(plain) is not None
    _, *more = _SENTENCE_END.split(plain[refusal.end() - 1 :])
    return all(_REFUSAL.match(sentence) or _MORE.match(sentence) for sentence in more)
