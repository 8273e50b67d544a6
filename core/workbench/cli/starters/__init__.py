"""`workbench init`: starter folders, each of which runs on the bundled model within seconds.

The files in `template/NAME` are copied. The functions below write the rows, which are made up.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from workbench.cli.file_schema import json_schema

_TEMPLATES = Path(__file__).parent / "template"

_TEAMS = {
    "billing": ["invoice", "payment", "receipt", "discount", "fee"],
    "shipping": ["parcel", "delivery", "courier", "package", "address"],
    "technical": ["screen", "battery", "app", "camera", "keyboard"],
    "returns": ["refund", "exchange", "warranty", "voucher", "repair"],
}
_TROUBLES = ["is wrong", "does not work", "is still missing", "came too late", "is not clear"]
_URGENCY = {"high": ["it cannot wait", "this is urgent"], "low": ["there is no rush", "it can wait"]}
_NAMES = "Ann Bob Carl Dora Emil Fay Gus Hana Ian Jane Kim Leo Mia Nils Olga Paul Rita Sam Tina Uma".split()
_ANIMALS = "dog cat horse bird fish cow goat duck frog mouse".split()
_COLORS = "red blue green yellow black white brown pink grey purple".split()


def starter_files(template: str) -> dict[str, str]:
    """Return the files of a starter, one of STARTERS: a workflow, its rows, its Python, and the schema for editors."""
    copied = {path.name: path.read_text(encoding="utf-8") for path in sorted((_TEMPLATES / template).glob("*.*"))}
    schema = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    return {**copied, **STARTERS[template](), "schema.json": schema}


def _tickets() -> list[dict[str, str]]:
    """Made-up tickets, each with an open problem and a solved one.

    No two differ in one word only: a near copy of a training row would be left out of the test.
    """
    labels, draw = list(_TEAMS), random.Random(0)
    rows, taken = list[dict[str, str]](), set[tuple[str, ...]]()
    while len(rows) < 240:
        label = labels[len(rows) % 4]
        other = draw.choice([name for name in labels if name != label])
        open_, solved = draw.choice(_TEAMS[label]), draw.choice(_TEAMS[other])
        first, second = draw.choice(_TROUBLES), draw.choice(_TROUBLES)
        form = "{asks} . {done}" if len(rows) % 3 == 0 else "{done} . {asks}"
        words = {("open", open_, first, second, form), ("solved", solved, first, second, form)}
        if words & taken:
            continue
        taken |= words
        asks, done = f"please help , my {open_} {first}", f"last month the {solved} {second} but that is solved"
        rows.append({"text": form.format(asks=asks, done=done), "label": label})
    return rows


def _classify() -> dict[str, str]:
    return {"rows.jsonl": _lines(_tickets())}


def _extract() -> dict[str, str]:
    rows = []
    for number, ticket in enumerate(_tickets()[:110]):
        urgency = ("high", "low")[number // 4 % 2]
        text = f"{ticket['text']} . {_URGENCY[urgency][number // 8 % 2]}"
        rows.append({"text": text, "ticket": {"queue": ticket["label"], "urgency": urgency}})
    return {"rows.jsonl": _lines(rows)}


def _rag() -> dict[str, str]:
    rng = random.Random(0)
    animals, colors = [*_ANIMALS, *_ANIMALS], [*_COLORS]
    rng.shuffle(animals)
    rng.shuffle(colors)
    owned, seen = list(zip(_NAMES, animals, strict=True)), list(zip(_ANIMALS, colors, strict=True))
    corpus = [f"{name} has the {animal}" for name, animal in owned] + [f"the {a} is {color}" for a, color in seen]
    rows = [{"question": f"Which animal has {name}?", "answer": animal} for name, animal in owned]
    rows += [{"question": f"Which color is the {animal}?", "answer": color} for animal, color in seen]
    rows += [{"question": f"Tell the color of the {animal}.", "answer": color} for animal, color in seen]
    rng.shuffle(corpus)
    return {"corpus.txt": "\n".join(corpus) + "\n", "rows.jsonl": _lines(rows)}


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


#: The starters, each with the function that writes its rows.
STARTERS: dict[str, Callable[[], dict[str, str]]] = {
    "classify": _classify,
    "extract": _extract,
    "agent": _classify,
    "rag": _rag,
}
