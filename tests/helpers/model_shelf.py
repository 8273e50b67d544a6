"""Simulated models that differ in quality, price and speed. No model is involved: a hash decides who knows a row."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workbench.base.hashing import digest
from workbench.lm import LMPool, Request, Response
from workbench.spec import LMSpec


@dataclass(frozen=True)
class Shelved:
    """One of the simulated models. accuracy: share of rows it knows; usd: of a call; seconds: of a call."""

    accuracy: float
    usd: float
    seconds: float = 0.0


class Shelf(LMPool):
    """A pool of simulated models by name. Rows are `word N`; the label of each is `yes`.

    Who is more accurate knows what the less accurate know, and more.
    """

    def __init__(self, models: Mapping[str, Shelved]):
        super().__init__()
        self.models, self.calls = models, dict.fromkeys(models, 0)

    def get(self, spec: LMSpec) -> Any:
        return _Model(self, spec.model.removeprefix("openai/"))

    async def aclose(self) -> None:
        pass


class _Model:
    concurrency = 8

    def __init__(self, shelf: Shelf, name: str):
        self.shelf, self.identity, self.model = shelf, f"simulated {name}", shelf.models[name]
        self.name = name

    async def complete(self, request: Request) -> Response:
        self.shelf.calls[self.name] += 1
        await asyncio.sleep(self.model.seconds)
        known = int(digest(str(request.messages[-1]["content"]))[:8], 16) / 16**8 < self.model.accuracy
        return Response("yes" if known else "no", "stop", 10, 1, self.model.usd)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return self.model.usd


def write_shelf_task(folder: Path, shelf: Shelf, rows: int = 100, **spec: Any) -> Path:
    """A workflow of one call, whose model is searched among those of a shelf; the first one is the baseline's."""
    made = [{"text": f"word {i}", "label": "yes"} for i in range(3 * rows)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in made))
    names = [f"openai/{name}" for name in shelf.models]
    written = {
        "name": "shelf",
        "lm": {"model": names[0]},
        "data": {"file": "rows.jsonl", "split": {"train": rows, "val": rows, "test": rows}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}},
        "search": {"lm.model": names},
        "optimize": [{"random": {"trials": 4 * len(names)}}],
        "budget": {"calls": 100_000},
        **spec,
    }
    path = folder / "w.yaml"
    path.write_text(yaml.safe_dump(written, sort_keys=False))
    return path
