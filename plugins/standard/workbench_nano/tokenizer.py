"""Tokens of nano: the byte-level BPE of `tokenizer.json`, read for tiktoken.

The `tokenizers` package reads such a file itself, but brings the client of a model hub with it, 31 MiB in all. The ids
and texts are the same (`tests/plugins/nano/test_tokenizer.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import tiktoken

#: Characters at a time, where a text cannot be read at once. Its tokens are then about those of the reference.
_SLICE = 100_000


class NanoTokenizer:
    """The tokenizer of a folder in Hugging Face format that `contrib/nano/tokens.py` made, and of no other kind."""

    def __init__(self, folder: Path) -> None:
        file = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        self.special: dict[str, int] = {token["content"]: token["id"] for token in file["added_tokens"]}
        byte_of = _byte_alphabet()
        # The alphabet and then the merges have their ids in the order in which they are merged.
        ranks = {
            bytes(byte_of[c] for c in token): number
            for token, number in file["model"]["vocab"].items()
            if token not in self.special
        }
        self._tokens = tiktoken.Encoding(
            "nano",
            pat_str=file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"],
            mergeable_ranks=ranks,
            special_tokens=self.special,
        )
        self._parts = re.compile(f"({'|'.join(map(re.escape, self.special))})")

    def encode(self, text: str) -> list[int]:
        """Token ids. Every line begins with a space, as in training. A lone surrogate is read as `?`."""
        parts = self._parts.split(text.encode("utf-8", "replace").decode("utf-8"))
        lines = (p if p in self.special or not p else " " + p.replace("\n", "\n ") for p in parts)
        whole = "".join(lines)
        try:
            return self._tokens.encode(whole, allowed_special="all")
        except ValueError:  # tiktoken's expressions overflow at half a million spaces: far more than nano reads
            slices = (whole[at : at + _SLICE] for at in range(0, len(whole), _SLICE))
            return [number for part in slices for number in self._tokens.encode(part, allowed_special="all")]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        special = self.special.values() if skip_special_tokens else ()
        text = self._tokens.decode([i for i in ids if i not in special])
        return text.replace("\n ", "\n").removeprefix(" ")


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of a token stands for: printable ones for themselves, the others, in their order, as
    characters from 256 on (GPT-2's `bytes_to_unicode`)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in shown]
    return {**{chr(byte): byte for byte in shown}, **{chr(0x100 + n): byte for n, byte in enumerate(hidden)}}
