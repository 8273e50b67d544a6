"""The tokens of texts: lower-case words and arithmetic signs.

Case, spaces, punctuation and invisible characters make no difference.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.base.text import without_unseen
from workbench.task.dataset import Example

_TAG = re.compile(r"</?[a-z][^<>]{0,200}>")
_TOKEN = re.compile(r"\w+|[-+*/=<>^%$€£]")
#: Scripts without spaces, in which each character is a token: Thai to Tibetan, Burmese, Khmer, kana, Han.
_WITHOUT_SPACES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_CHARACTER = re.compile(f"[{_WITHOUT_SPACES}]|[^{_WITHOUT_SPACES}]+")
_ACCENT = re.compile("[\u0300-\u036f]")
_LATIN = re.compile("[a-z]")
#: Greek and Cyrillic letters that look like a Latin one. In a word with Latin letters they count as that letter.
_LOOKALIKES = str.maketrans("аеорсухіјѕԁӏкмтвнгαοερνικτυχ", "aeopcyxijsdlkmtbhraoepviktux")


def tokenize(text: str) -> list[str]:
    """Return lower-case words and arithmetic signs; the whole text if it has neither."""
    text = without_unseen(unicodedata.normalize("NFKC", text).casefold())
    if "<" in text or "&" in text:
        text = _TAG.sub(" ", html.unescape(text))
    return _TOKEN.findall(text) or ([stripped] if (stripped := text.strip()) else [])


def _plain(token: str) -> Iterator[str]:
    """Yield a token in the form to compare: without accents and lookalikes; by characters in scripts without spaces."""
    if token.isascii():
        yield token
        return
    token = unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", token)))
    yield from _CHARACTER.findall(token.translate(_LOOKALIKES) if _LATIN.search(token) else token)


def _texts_of(value: Any) -> Iterator[str]:
    """Yield every text and number in a JSON value, in order, the values of an object sorted by name. Other tables hold
    the same rows with names in another order, empty texts, and 1.0 for 1."""
    if isinstance(value, Mapping):
        for name in sorted(value, key=str):
            yield from _texts_of(value[name])
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_of(inner)
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    elif value is not None and value != "":
        yield value if isinstance(value, str) else json.dumps(value, default=str)


def input_tokens(row: Example, inputs: Sequence[str]) -> list[str]:
    """Return the tokens of some fields of a row."""
    return [token for name in inputs if name in row for text in _texts_of(row[name]) for token in tokenize(text)]


def normalised_inputs(row: Example, inputs: Sequence[str]) -> str:
    """Return the inputs of a row as one text. Equal texts mean the same row."""
    return " ".join(input_tokens(row, inputs))


#: A text in the form to compare.
Words = tuple[str, ...]


def words_of(row: Example, name: str) -> tuple[Words, ...]:
    """Return the texts in a field of a row, in the form to compare."""
    texts = _texts_of(row[name]) if name in row else ()
    return tuple(
        tuple(tokenize(text) if text.isascii() else (w for token in tokenize(text) for w in _plain(token)))
        for text in texts
    )
