"""Tools on drawings, for gta.yaml: what they make of an image is named by the image and how it was made of it, such as
`image/1.png#crop=0,0,24,32`, and can be given by this name to the next tool. So no tool keeps anything."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "drawings"
SIGNATURE, BLACK = b"\x89PNG\r\n\x1a\n", bytes(3)
Pixels = list[list[bytes]]
Box = tuple[int, int, int, int]


def open_image(image: str) -> str:
    """The image of a name, as a data URI."""
    return "data:image/png;base64," + base64.b64encode(write_png(make(image))).decode("ascii")


def Crop(image: str, bbox: str) -> str:
    """Cuts a region out of an image, an image of its own. bbox: (x1, y1, x2, y2)"""
    return _named(image, "crop", bbox)


def DrawBox(image: str, bbox: str) -> str:
    """Draws a box around a region of an image, and gives the new image. bbox: (x1, y1, x2, y2)"""
    return _named(image, "box", bbox)


def make(name: str) -> Pixels:
    """The pixels of a named image. Raises ValueError."""
    file, *steps = name.split("#")
    path = (FOLDER / file).resolve()
    if not path.is_relative_to(FOLDER) or not path.is_file():
        raise ValueError(f"there is no image {file!r}")
    pixels = read_png(path.read_bytes())
    for step in steps:
        kind, _, box = step.partition("=")
        pixels = {"crop": crop, "box": frame}[kind](pixels, read_box(box))
    return pixels


def crop(pixels: Pixels, box: Box) -> Pixels:
    left, top, right, bottom = box
    return [line[left:right] for line in pixels[top:bottom]]


def frame(pixels: Pixels, box: Box) -> Pixels:
    left, top, right, bottom = box
    edge = {(x, y) for x in range(left, right) for y in (top, bottom - 1)}
    edge |= {(x, y) for y in range(top, bottom) for x in (left, right - 1)}
    return [[BLACK if (x, y) in edge else dot for x, dot in enumerate(line)] for y, line in enumerate(pixels)]


def read_box(text: str) -> Box:
    found = [int(number) for number in re.findall(r"\d+", text)]
    if len(found) != 4 or found[0] >= found[2] or found[1] >= found[3]:
        raise ValueError(f"{text!r} is no region: write (x1, y1, x2, y2)")
    return found[0], found[1], found[2], found[3]


def _named(image: str, kind: str, bbox: str) -> str:
    pixels, box = make(image), read_box(bbox)
    if box[2] > len(pixels[0]) or box[3] > len(pixels):
        raise ValueError(f"{bbox} leaves the image, which has {len(pixels[0])} x {len(pixels)} pixels")
    return f"{image}#{kind}={','.join(map(str, box))}"


def write_png(pixels: Pixels) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + b"".join(line) for line in pixels))
    return SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def read_png(data: bytes) -> Pixels:
    """The pixels of an image that `write_png` has written: no other form is known."""
    width, height = struct.unpack(">II", data[16:24])
    body, size = zlib.decompress(data[data.index(b"IDAT") + 4 : -16]), 3 * width + 1
    lines = [body[size * y + 1 : size * (y + 1)] for y in range(height)]
    return [[line[3 * x : 3 * x + 3] for x in range(width)] for line in lines]
