"""Token ids and log-probabilities of an answer as bytes: some 3 to 6 per token in the journal, compared with 15 to 33
as JSON. An unchanged streamed answer is packed, too: it has some 300 bytes per token, most of them repeated.

The form is a header (`_HEADER`), then zlib: the ids as 32-bit integers and the log-probabilities as floats,
little-endian, with bytes of equal weight next to each other, which compresses better. Log-probabilities that are 32-bit
floats are stored as such, others as 64-bit floats, so that every bit is preserved.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import StoreError
from workbench.lm.protocol import Response

#: Form, bytes per log-probability, and the counts of prompt ids, ids and log-probabilities.
_HEADER = struct.Struct("<BBIII")
_FORM = 1
_NAMES = ("prompt_ids", "token_ids", "logprobs")
#: An unchanged answer up to this many characters is stored unpacked.
_WORTH_PACKING = 4096
#: No answer is larger.
_MAX_BYTES = 1 << 30


def pack_native(native: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an unchanged answer (`Response.native`) to its form in the journal."""
    raw = native["raw"]
    if len(raw) < _WORTH_PACKING:
        return dict(native)
    packed = b64encode(zlib.compress(raw.encode("utf-8", "surrogatepass"), 1)).decode()
    return {**{name: value for name, value in native.items() if name != "raw"}, "packed": packed}


def unpack_native(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Reverse `pack_native`. Raises StoreError for data that it did not write."""
    if "packed" not in stored:
        return dict(stored)
    try:
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(b64decode(stored["packed"]), _MAX_BYTES)
        if not unpacking.eof:
            raise ValueError("its length is wrong")
        text = raw.decode("utf-8", "surrogatepass")
    except (zlib.error, ValueError, TypeError) as error:
        raise StoreError(f"the answer of a call is damaged ({error}); use a copy of the database") from error
    return {**{name: value for name, value in stored.items() if name != "packed"}, "raw": text}


def split_tokens(response: Response) -> tuple[dict[str, Any], bytes | None]:
    """Return (an answer as JSON values, its tokens as bytes). Tokens that cannot be packed stay among the values."""
    values, packed = response.as_dict(), _pack(response)
    if response.native is not None:
        values["native"] = pack_native(response.native)
    return (values if packed is None else {k: v for k, v in values.items() if k not in _NAMES}), packed


def _pack(response: Response) -> bytes | None:
    """Pack the tokens; None if there are none, or others than 32-bit ids and floats."""
    ids = (response.prompt_ids or (), response.token_ids or ())
    logprobs = response.logprobs or ()
    if not any((*ids, logprobs)):
        return None
    try:
        parts = [array("I", part) for part in ids]
        narrow = array("f", logprobs)
        floats = narrow if narrow.tolist() == list(logprobs) else array("d", logprobs)
    except (TypeError, OverflowError):
        return None
    body = b"".join(_interleave(part) for part in (*parts, floats))
    header = _HEADER.pack(_FORM, floats.itemsize, len(ids[0]), len(ids[1]), len(logprobs))
    return header + zlib.compress(body, 1)


def unpack_tokens(packed: bytes) -> dict[str, tuple[int, ...] | tuple[float, ...]]:
    """Return the fields of a `Response` that `split_tokens` packed. Fields without values are left out.

    Raises:
        StoreError: `split_tokens` did not write these bytes.
    """
    try:
        form, width, *counts = _HEADER.unpack_from(packed)
        sizes = [4 * counts[0], 4 * counts[1], width * counts[2]]
        if form != _FORM or width not in (4, 8) or sum(sizes) > _MAX_BYTES:
            raise ValueError("its header is not one of workbench")
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(packed[_HEADER.size :], sum(sizes) + 1)
        if len(body) != sum(sizes) or not unpacking.eof:
            raise ValueError("its length is wrong")
    except (struct.error, zlib.error, ValueError) as error:
        raise StoreError(f"the tokens of a call are damaged ({error}); use a copy of the database") from error
    found, start = {}, 0
    for name, code, size in zip(_NAMES, ("I", "I", "f" if width == 4 else "d"), sizes, strict=True):
        if size:
            found[name] = tuple(_separate(body[start : start + size], code))
        start += size
    return found


def _interleave(values: array[int] | array[float]) -> bytes:
    """Return all lowest bytes, then all next ones, and so on."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    flat = values.tobytes()
    return b"".join(flat[place :: values.itemsize] for place in range(values.itemsize))


def _separate(planes: bytes, code: str) -> Sequence[int] | Sequence[float]:
    values = array(code)
    count = len(planes) // values.itemsize
    flat = bytearray(len(planes))
    for place in range(values.itemsize):
        flat[place :: values.itemsize] = planes[place * count : (place + 1) * count]
    values.frombytes(bytes(flat))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
