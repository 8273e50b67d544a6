"""What scripted models say in the workflows of the gallery on drawings: an agent that sees nothing, and one that looks
at the pictures that it is sent (`gallery_scripts`)."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

from tests.helpers.gallery_speech import Case, call
from workbench_readers.gta import read_gta

TASKS = [*read_gta(str(Path(__file__).parents[2] / "workflows" / "gallery" / "drawings" / "dataset.json"), {})]
HALVES = {"left": "(0, 0, 24, 32)", "right": "(24, 0, 48, 32)"}
#: Which of red, green and blue is strongest in a colour.
STRONGEST = {"red": 0, "green": 1, "blue": 2}
Found = re.Match[str]


def work(found: Found, keeps: bool = True, colours: tuple[str, str] = ("red", "blue")) -> str:
    """The next call or the answer. keeps: gives what a tool has drawn to the next one, else the first image.
    colours: of the squares that it counts where the question names red and blue."""
    told = found.string
    image = re.findall(r"image/\d+\.png", told)[0]
    results = re.findall(r"(?m)^result: (.*)$", told)
    made = results[0] if results and keeps else image
    if half := re.findall(r"How many red squares are in the (\w+) half", told):
        if len(results) == 2:
            return f"answer: There are {results[1]} red squares in the {half[0]} half."
        cut = call("Crop", image=image, bbox=HALVES[half[0]])
        return call("CountGivenObject", image=made, text=f"{colours[0]} square") if results else cut
    if prices := re.findall(r"square costs (\d+) and a blue one (\d+)", told):
        if len(results) < 2:
            return call("CountGivenObject", image=image, text=f"{colours[len(results)]} square")
        total = f"{prices[0][0]} * {results[0]} + {prices[0][1]} * {results[1]}"
        return call("Calculator", expression=total) if len(results) == 2 else f"answer: They cost {results[2]}."
    if not results:
        return call("Crop", image=image, bbox=HALVES[re.findall(r"Cut out the (\w+) half", told)[0]])
    if len(results) == 1:
        return call("TextToBbox", image=made, text="green square")
    return "answer: It is drawn." if len(results) == 3 else call("DrawBox", image=made, bbox=results[1])


def next_step(found: Found) -> str:
    """The same where each step is asked for by itself: a call as JSON, or the answer in words."""
    said = work(found)
    if said.startswith("answer: "):
        return said.removeprefix("answer: ")
    asked = json.loads(said.removeprefix("call: "))
    return json.dumps({"name": asked["tool"], "arguments": asked["arguments"]})


def squares(picture: bytes, colour: str) -> list[tuple[int, int, int, int]]:
    """Boxes around the squares of a colour in a PNG of 8 bits a channel without filters."""
    width, height = struct.unpack(">II", picture[16:24])
    body = zlib.decompress(picture[picture.index(b"IDAT") + 4 : -16])
    at = STRONGEST[colour]

    def strong(x: int, y: int) -> bool:
        start = y * (3 * width + 1) + 1 + 3 * x
        dot = body[start : start + 3]
        return max(dot) - min(dot) > 50 and dot[at] == max(dot)

    inside = {(x, y) for x in range(width) for y in range(height) if strong(x, y)}
    corners = sorted((x, y) for x, y in inside if (x - 1, y) not in inside and (x, y - 1) not in inside)
    found = list[tuple[int, int, int, int]]()
    for x, y in corners:
        right = next(r for r in range(x, width + 1) if (r, y) not in inside)
        below = next(b for b in range(y, height + 1) if (x, b) not in inside)
        found.append((x, y, right, below))
    return found


def look(found: Found) -> list[tuple[int, int, int, int]]:
    return squares(base64.b64decode(found[1]), found[2])


SEEN = r"base64,([\w+/=]+).*text: (\w+) square"
LOOKS: list[Any] = [
    ("Count these in the picture", SEEN, lambda m: str(len(look(m)))),
    ("Where in the picture is it", SEEN, lambda m: str(look(m)[0])),
]


DRAWINGS = {
    "gta.yaml": Case(
        [("give its name to the next tool", "question", work), *LOOKS],
    ),
    "gta_steps.yaml": Case(
        [("What is the next step?", "history", next_step)],
    ),
}
