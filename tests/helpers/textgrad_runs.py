"""Runs of the optimizer `textgrad` on planted workflows, with a scripted model that says what a test wants it to
say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.planted import LABELS
from tests.helpers.scripted import Script
from workbench.lm import Request
from workbench.proof import Report
from workbench.run import Options, optimize

ONE = {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Version 0."}}

#: The beginnings of requests for a gradient and for a new prompt.
GRADIENT, REWRITE = "Find out what one of its steps", "You write the instruction"


def text_of(request: Request) -> str:
    return "\n".join(str(m["content"]) for m in request.messages)


def run(
    folder: Path,
    nodes: dict[str, Any],
    say: Callable[[Request], str],
    calls: int = 600,
    rows: tuple[int, int, int] = (24, 16, 16),
    **settings: Any,
) -> tuple[Report, Script]:
    for name, count in zip(("train", "val", "test"), rows, strict=True):
        made = [{"text": f"{name} row {i}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in made))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "planted",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
                "data": {n: f"{n}.jsonl" for n in ("train", "val", "test")},
                "metric": "exact_match(label)",
                "nodes": nodes,
                "optimize": [{"textgrad": settings}],
                "budget": {"calls": calls},
            }
        )
    )
    script = Script(say)
    report = optimize(
        file,
        database=folder / "run.db",
        pool=script,
        options=Options(out=str(folder / "out.yaml"), allow_unproved=True),
    )
    assert report.status in ("finished", "budget"), report.error
    return report, script


def asked(script: Script, words: str, step: str = "") -> list[str]:
    """Requests to the proposer about a step that contain certain words."""
    found = [text_of(r) for r in script.requests]
    return [t for t in found if words in t and (not step or f"The step '{step}'" in t)]
