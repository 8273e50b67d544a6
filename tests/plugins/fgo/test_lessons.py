"""`rewrite` keeps the texts of earlier rounds: the proposer sees how each did, and none is asked for twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.helpers.planted import plant

from workbench.lm import Request


def skill(request: Request) -> float:
    """The second text pays, and the first harms."""
    first = str(request.messages[0]["content"])
    return 0.9 if "Second." in first else 0.1 if "First." in first else 0.4


def test_later_rounds_are_told_how_earlier_texts_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = list[str](), iter(["First.", "Second.", "First.", "Third."])

    async def write(self: object, messages: list[dict[str, str]], replica: int = 0) -> str:
        asked.append(messages[-1]["content"])
        return f"<prompt>\n{next(answers)} It labels.\n</prompt>"

    monkeypatch.setattr("workbench_kit.prompting.proposer.Proposer._whole", write)
    settings = {"rewrite": {"rounds": 4, "width": 1, "batch": 8}}
    report, _ = plant(tmp_path, skill, settings, calls=900, roles={"proposer": "openai/planted"})
    assert report.winner.get("nodes.sort.instructions") == "Second. It labels."
    told = [dict(re.findall(r"- score (-?[\d.]+): (.+)", text)[::-1]) for text in asked]
    assert told[0] == {} and [*told[1].values()] == ["First. It labels."]
    assert {*told[3].values()} == {"First. It labels."}, "the text in force is not told as tried"
    assert all(float(score) < 0.4 for score in told[1]), "by its difference to the best on the rows that both had"
    assert report.candidates == 4, "the baseline and three texts: what was tried is not tried again"
