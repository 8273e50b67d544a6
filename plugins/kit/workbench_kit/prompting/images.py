"""Images as inputs of a node: a path, an address, a data URI or bytes, converted to a part of a message."""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.errors import NodeError
from workbench.workflow import Image, Signature
from workbench_kit.answers import as_text
from workbench_kit.prompting.plain_adapter import user_text

#: Maximum bytes of one image: servers refuse larger ones.
LARGEST = 20_000_000

#: The maximum length of a file name; the characters of base64.
_LONGEST_NAME, _BASE64 = 255, re.compile(r"[A-Za-z0-9+/\s]+={0,2}")
#: First bytes of an image, its format, and its end, which other bytes may follow. A JPEG may contain a smaller one. The
#: end mark of a GIF may also be inside it.
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "png", b"IEND"),
    (b"\xff\xd8\xff", "jpeg", b"\xff\xd9"),
    (b"GIF87a", "gif", b""),
    (b"GIF89a", "gif", b""),
)


def image_inputs(signature: Signature) -> list[str]:
    """Return the names of the inputs that are images."""
    return [field.name for field in signature.inputs if field.type is Image]


def as_urls(values: Mapping[str, Any], names: Sequence[str], base: Path) -> dict[str, Any]:
    """Return the values with these images as addresses that a message can hold.

    Args:
        values: of all inputs.
        names: the inputs that are images.
        base: the folder that paths are relative to, and that no path may leave: rows may be untrusted.

    Raises:
        NodeError: `data`, if a value is no image.
    """
    return {**values, **{name: image_url(values[name], base, name) for name in names if name in values}}


def image_url(value: Any, base: Path, name: str = "image") -> str:
    """Return an image as `https://...` or `data:image/...;base64,...`. Raise NodeError("data")."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _data_uri(bytes(value), name)
    if not isinstance(value, str) or not value:
        raise _wrong(name, f" is not an image: {value!r:.80}; give a path, an address or bytes")
    if value.startswith(("https://", "http://")):
        return value
    if value.startswith("data:"):
        head, comma, body = value.partition(",")
        try:
            if not comma or not head.endswith(";base64"):
                raise ValueError("it has another form than data:image/...;base64,...")
            return _data_uri(base64.b64decode(body, validate=True), name)
        except (ValueError, binascii.Error) as error:
            raise _wrong(name, f" is not a data URI of an image: {error}") from None
    with _reading(value, name):
        path, stamp = _find_file(value, base, name)
        return _read(path, stamp.st_mtime_ns, stamp.st_size, name)


def resolve_image(value: Any, base: Path, folder: Path, name: str) -> Any:
    """Return an image of a row in a form that `image_url` reads.

    A path that leads to a file next to the row's own file, and to none from `base`, is made relative to `base`. folder:
    of the row's file. Raises NodeError("data") for images that `image_url` refuses.
    """
    if not isinstance(value, str) or not value or value.startswith(("https://", "http://", "data:")):
        image_url(value, base, name)
        return value
    with _reading(value, name):
        if not (base / value).exists() and (folder / value).exists():
            value = os.path.relpath((folder / value).resolve(), base.resolve())
        path, _ = _find_file(value, base, name)
        with path.open("rb") as file:
            _check_content(file.read(LARGEST + 1), name)
    return value


def _wrong(name: str, said: str) -> NodeError:
    return NodeError("data", f"'{name}'{said}", field=name)


@contextmanager
def _reading(value: str, name: str) -> Generator[None]:
    """Convert file system errors to NodeError("data")."""
    try:
        yield
    except (OSError, ValueError) as error:  # the latter: a name with a null byte
        if _BASE64.fullmatch(value) and len(value) > _LONGEST_NAME:
            hint = "it looks like base64, which is written data:image/png;base64,..."
            raise _wrong(name, f": {value[:40]!r}... is not a path: {hint}") from None
        raise _wrong(name, f": {value!r:.120} cannot be read: {error}") from None


def _find_file(value: str, base: Path, name: str) -> tuple[Path, os.stat_result]:
    """Find the file of an image. Raise NodeError("data"), OSError and ValueError."""
    folder, path = base.resolve(), (base / value).resolve()
    if not path.is_relative_to(folder):
        raise _wrong(name, f": {value!r:.120} is outside {folder}, the folder of the workflow file")
    stamp = path.stat()
    if not stat.S_ISREG(stamp.st_mode):  # a pipe would never end
        raise _wrong(name, f": {value!r:.120} cannot be read: it is not a file")
    if stamp.st_size > LARGEST:
        size, most = stamp.st_size / 1e6, LARGEST / 1e6
        raise _wrong(name, f": {path.name} has {size:.1f} MB, at most {most:.0f} are sent")
    return path, stamp


def split_images(value: Any) -> tuple[str, list[str]]:
    """Return (a tool's result as text, with a number for each image; the images, as data URIs)."""
    found: list[str] = []

    def without(part: Any) -> Any:
        if isinstance(part, str) and part.startswith("data:image/"):
            try:
                found.append(image_url(part, Path()))
            except NodeError:
                return part  # no server would accept it
            return f"(image {len(found)})"
        if isinstance(part, list):
            return [without(one) for one in part]
        return {key: without(one) for key, one in part.items()} if isinstance(part, dict) else part

    rest = without(value)
    if found and isinstance(rest, list) and all(isinstance(part, str) for part in rest):
        return "\n".join(rest), found
    return as_text(rest), found


def image_parts(images: Sequence[str]) -> list[dict[str, Any]]:
    """Return images as parts of a message."""
    return [{"type": "image_url", "image_url": {"url": url}} for url in images]


@lru_cache(maxsize=64)
def _read(path: Path, changed: int, size: int, name: str) -> str:
    with path.open("rb") as file:
        return _data_uri(file.read(LARGEST + 1), name)  # it may have grown since


def _data_uri(content: bytes, name: str) -> str:
    kind = _check_content(content, name)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _check_content(content: bytes, name: str) -> str:
    """Return the format of an image. Raise NodeError("data") if it is not one that is sent, or is truncated."""
    kind, cut = None, False
    for head, of, end in _KINDS:
        if content.startswith(head):
            kind, cut = of, content.count(head) > content.count(end)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        kind, cut = "webp", len(content) < 8 + int.from_bytes(content[4:8], "little")
    if kind is None:
        raise _wrong(name, " is neither PNG, JPEG, GIF nor WebP")
    if len(content) > LARGEST:
        raise _wrong(name, f" has more than {LARGEST / 1e6:.0f} MB")
    if cut:
        raise _wrong(name, f" is a {kind.upper()} without its end: the file was cut off")
    return kind


def user_content(signature: Signature, values: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    """Return the content of a user's message of the plain adapter: its text, with each image after the line that names
    it.

    values: with the images as addresses.
    """
    text = user_text(signature, values)
    parts: list[dict[str, Any]] = []
    for name in image_inputs(signature):
        before, mark, text = text.partition(f"{name}: {values.get(name, '')}")
        if mark and values.get(name):
            parts += [_text_part(f"{before}{name}:"), *image_parts([values[name]])]
        else:
            text = before + mark + text
    return [*parts, _text_part(text.lstrip("\n"))] if parts else text


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text.strip("\n")}
