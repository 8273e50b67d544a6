"""`reviews` of `adas`: the proposer looks at its agent again before it runs. No model: a function answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script

from workbench.lm import Request, Response
from workbench.run import Options, optimize
from workbench_adas import optimizer as adas_optimizer

LABELS = ("a", "b", "c", "d")
AGENT = "name: {0}\nthought: t\n```python\ndef agent(task, inputs):\n    return (yield {1})\n```"
BROKEN = AGENT.format("broken", "tsk")
GOOD = AGENT.format("careful", "'carefully ' + task")
REVIEW = "Look at your agent again."


class Designer:
    """Answers a review by `reviewed` and all else by `written`; keeps all that it was asked, a conversation each."""

    def __init__(self, written: str, reviewed: str):
        self.written, self.reviewed, self.asked = written, reviewed, list[list[str]]()

    def __call__(self, request: Request) -> str | Response:
        texts = [str(message["content"]) for message in request.messages]
        if "You design agents" not in texts[0]:
            right = LABELS.index(texts[-1].split("-thing")[0][-1])
            return LABELS[right if "carefully" in texts[-1] or "easy" in texts[-1] else (right + 1) % 4]
        self.asked.append(texts)
        said = self.reviewed if texts[-1].startswith(REVIEW) else self.written
        return Response(said, "stop" if said else "empty", 5, 1, 0.0)


def search(folder: Path, designer: Designer, **settings: Any) -> str:
    """The source of the winner's agent; "" where none won. An agent that fails is not repaired."""
    for name, count in (("train", 12), ("val", 24), ("test", 24)):
        rows = [
            {"text": f"{name} {i}, {'hard' if i % 4 else 'easy'}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]}
            for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"seeds": False, "rounds": 1, "rows": 12, **settings}
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "planted",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
                "metric": "exact_match(label)",
                "nodes": {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Label it."}},
                "optimize": [{"adas": options}],
                "budget": {"calls": 600},
            }
        )
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(adas_optimizer, "ATTEMPTS", 1)
        report = optimize(
            file, database=folder / "run.db", pool=Script(designer), options=Options(out=str(folder / "o.yaml"))
        )
    assert report.status in ("finished", "budget"), report.error
    return str(report.winner.nodes["sort"].get("source", ""))


@pytest.mark.slow
def test_what_a_review_makes_of_an_agent_is_what_runs(tmp_path: Path) -> None:
    """One review. The first writing is broken, so without it nothing runs."""
    designer = Designer(BROKEN, GOOD)
    assert "carefully" in search(tmp_path, designer)
    first, review = designer.asked[0], designer.asked[1]
    assert review[: len(first)] == first and review[len(first)] == BROKEN and review[-1].startswith(REVIEW)


@pytest.mark.slow
def test_a_review_without_an_answer_leaves_the_agent_as_it_is(tmp_path: Path) -> None:
    assert "carefully" in search(tmp_path, Designer(GOOD, ""))
