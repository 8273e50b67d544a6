"""Redacts personal data and secrets in texts: each is replaced by its kind in brackets.

Patterns find only data with a fixed form. Names, addresses and what people tell about themselves are not found.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from workbench.base.type_guards import is_dict, is_list

# Every repetition is possessive or bounded, so that a long text takes at most linear time.
_KEY = re.compile(
    r"""-----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----(?>(?:(?!-----END)[\s\S]){0,20000})
      (?:-----END\ [A-Z ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----)?
    | (?<![A-Za-z0-9])(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}+
    | (?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|gl(?:pat|dt|ptt|rt|soat|cbt)-|hf_|npm_|pypi-|rubygems_|dckr_pat_|dop_v1_
      |do[or]_v1_|lsv2_(?:pt|sk)_|xox[abceprs]-|xapp-|ya29\.|GOCSPX-|shp(?:at|ca|pa|ss)_|sq0(?:atp|csp)-|whsec_|glsa_|figd_
      |lin_api_|ntn_|secret_|gsk_|xai-|nvapi-|pplx-|tvly-|r8_|jina_|fw_|sntry[su]_|hvs\.|PMAK-|ATATT3|AGE-SECRET-KEY-1
      |EAA[A-Z]|sbp_|dp\.[a-z]{2,5}\.|pscale_(?:tkn|pw|oauth)_|fm[12]_|NRAK-|AKCp|1//0)[A-Za-z0-9_-]{10,}+
    | (?<![A-Za-z0-9])(?:pat[A-Za-z0-9]{14}\.[0-9a-f]{64}|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{20,}+
      |[0-9a-f]{32}-us\d{1,2}|[MNO](?=\w{0,22}\d)[A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40})(?![A-Za-z0-9_-])
    | (?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+
    | (?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])
    | (?<![A-Za-z0-9])(?:(?:SK|AC|dapi)[0-9a-f]{32}|key-[0-9a-z]{32})(?![0-9A-Za-z])
    | (?<![A-Za-z0-9])\d{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])
    | (?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{30,}+
    | (?<=hooks\.slack\.com/)[A-Za-z0-9/_-]{10,}+
    | (?<=/api/webhooks/)[A-Za-z0-9/_-]{10,}+
    | (?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?
    | (?i:(?<![A-Za-z0-9])(?:bearer|basic|(?:ssws|token)(?=\s{1,5}[^\s]{0,40}[0-9]))\s{1,5}[A-Za-z0-9._~+/=-]{16,}+)
    | (?i:(?<![A-Za-z0-9-])(?:set-)?cookie:\s{0,5}[^\r\n"']{6,4000}+)
    | (?<=\s-u\s)[^\s:]{1,200}:[^\s]{1,200}
    | (?<=://)[^\s/:@]{0,200}:[^\s/@]{1,200}(?=@)
    | (?i:(?<=[?&])(?:key|sig|signature)=[^\s&"'#]{6,200})
    | (?i:(?<![A-Za-z0-9])[A-Za-z0-9_.-]{0,40}
      (?:(?:api|access|account|auth|client|encryption|private|secret|shared|signing)[_-]?(?:access[_-]?)?key
        |secret|token|passw(?:or)?d|passphrase|pwd)
      (?:(?:\\{0,8}["'])?\s{0,5}(?::=|=>|[:=>])\s{0,5}|(?<=--token)\s{1,5})(?:\\{0,8}["'])?
      (?=[^\s"'\\,;&]{0,200}[0-9!@#$%^*])[^\s"'\\,;&\[]{6,200})""",
    re.VERBOSE,
)
_EMAIL = re.compile(r"(?<![\w.%+-])(?>(?:[\w.+-]|%(?!40))+)(?:@|%40)(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")
_CARD = re.compile(r"(?<![\d.])(?:\d{4}(?:\.\d{4}){3}|\d(?:[ -]?\d){12,18})(?![\d]|\.\d)")
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?!\d|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])")
_PHONE = re.compile(
    r"""(?:(?<![\w+])\+\d{1,3}(?:[\s.()/-]{0,3}\d){6,12} | (?<![\w.,:/-])(?:
      00\d{1,3}(?:[\s.()/-]{0,3}\d){6,12}
    | \(\d{2,5}\)[\s.-]{0,2}\d{2,4}(?:[\s.-]?\d{2,4}){1,3}
    | 0\d{1,4}[\s./-]\d{2,5}(?:[\s.-]?\d{2,5}){1,3}
    | \d{3}\s\d{3}\s\d{4}
    | \d{2,5}[-.]\d{2,4}[-.]\d{2,5}(?:[-.]\d{2,5})?
    ))(?![\w]|[.,:/-]\d)""",
    re.VERBOSE,
)
_DATE = re.compile(r"(?:19|20)\d\d[-./\s](?:0?[1-9]|1[0-2])\b|\d{1,2}[-./\s]\d{1,2}[-./\s](?:19|20)?\d\d\b")


Span = tuple[int, int]


def _whole(text: str) -> Span:
    return 0, len(text)


def _card(text: str) -> Span | None:
    """Return the part of a row of digits that is a card number by Luhn's check, as an expiry date may be next to it. It
    is all of the row, or up to five groups of digits."""
    ends = [(found.start(), found.end()) for found in re.finditer(r"\d+", text)]
    runs = [_whole(text), *((a, b) for n, (a, _) in enumerate(ends) for _, b in ends[n : n + 5])]
    return next((run for run in sorted(runs, key=lambda r: r[0] - r[1]) if _passes_luhn(text[run[0] : run[1]])), None)


def _passes_luhn(text: str) -> bool:
    digits = [int(c) for c in text if c.isdigit()]
    doubled = [d if n % 2 == 0 else d * 2 - 9 * (d > 4) for n, d in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0 and len(set(digits)) > 1


def _ip(text: str) -> Span | None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if text in ("::", "0.0.0.0") else _whole(text)


def _phone(text: str) -> Span | None:
    enough = 9 <= sum(c.isdigit() for c in text) <= 15
    return _whole(text) if enough and not _DATE.match(text) else None


#: By kind, the pattern, and a function that returns the matching part of it.
_FINDERS: dict[str, tuple[tuple[re.Pattern[str], Callable[[str], Span | None]], ...]] = {
    "key": ((_KEY, _whole),),
    "email": ((_EMAIL, _whole),),
    "card": ((_CARD, _card),),
    "ip": ((_IPV4, _ip), (_IPV6, _ip)),
    "phone": ((_PHONE, _phone),),
}

#: The kinds that can be redacted, in the order of the search.
KINDS = tuple(_FINDERS)

#: Values under these names are always secrets.
_SECRET = re.compile(
    r"(?i).{0,40}(?:(?:api|access|account|client|encryption|private|secret|shared|signing)[_-]?(?:access[_-]?)?key"
    r"|authorization|cookie|passw(?:or)?d|passphrase|pwd|secret|(?:access|refresh|auth|bearer|id)[_-]?token)"
)


class Redactor:
    """Redacts texts and JSON values, and counts its finds. keep: kinds that are not redacted."""

    def __init__(self, keep: Collection[str] = ()):
        self.kinds = [kind for kind in KINDS if kind not in keep]
        self.counts: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """Redact a text."""
        for kind in self.kinds:
            for pattern, check in _FINDERS[kind]:
                text = self._replaced(text, kind, pattern, check)
        return text

    def value(self, value: Any) -> Any:
        """Redact the texts, names and numbers in a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if is_dict(value):
            return {self.text(str(name)): self._named(str(name), inner) for name, inner in value.items()}
        if is_list(value):
            return [self.value(inner) for inner in value]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**8:
            told = self.text(str(value))
            return value if told == str(value) else told
        return value

    def _named(self, name: str, value: Any) -> Any:
        if "key" in self.kinds and isinstance(value, str) and value and _SECRET.fullmatch(name):
            self.counts["key"] += 1
            return "[key]"
        return self.value(value)

    def _replaced(self, text: str, kind: str, pattern: re.Pattern[str], part_of: Callable[[str], Span | None]) -> str:
        plain, places = _plain(text)
        parts, end = list[str](), 0
        for found in pattern.finditer(plain):
            if (part := part_of(found[0])) is not None:
                self.counts[kind] += 1
                first, last = places(found.start() + part[0]), places(found.start() + part[1] - 1) + 1
                parts += [text[end:first], f"[{kind}]"]
                end = last
        return "".join([*parts, text[end:]]) if parts else text


def _plain(text: str) -> tuple[str, Callable[[int], int]]:
    """Return a text in the form that patterns match, and the original place of each of its characters: without
    invisible characters, and with full-width letters, digits and signs as ordinary ones."""
    if text.isascii():
        return text, lambda place: place
    kept = [(number, _ordinary(char)) for number, char in enumerate(text) if unicodedata.category(char) != "Cf"]
    return "".join(char for _, char in kept), lambda place: kept[place][0]


def _ordinary(char: str) -> str:
    if char.isascii():
        return char
    made = unicodedata.normalize("NFKC", char)
    return made if len(made) == 1 else char
