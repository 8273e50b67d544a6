"""Planted problems: a simulated language model whose accuracy follows a known formula, so the optimum is known.

Nothing here is a model. An answer is right if a number made of the request's hash lies below the skill, so every
candidate has noise of its own, as a real one has; the same request always gets the same answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.helpers.scripted import Say, Script
from workbench.lm import LMPool, Request, Response, make_lm
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.store import Store
from workbench_testing import Killed

LABELS = ("a", "b", "c", "d")
Skill = Callable[[Request], float]


def draw_for(request: Request) -> random.Random:
    """A generator seeded by what is asked, whatever the limits of a short answer."""
    asked = replace(request, max_tokens=16, stop=("\n",)) if request.stop[:1] == ("\n",) else request
    return random.Random(hashlib.sha256(asked.key("planted").encode()).digest())


class PlantedLM(LMPool):
    """A pool of itself and of templates, which are no model either; answers correctly with the probability `skill`."""

    identity, concurrency = "planted, no model", 8

    def __init__(self, skill: Skill):
        super().__init__()
        self.skill, self.requests = skill, 0

    def get(self, spec: Any) -> Any:
        return make_lm(spec) if spec.model.startswith("templates/") else self

    async def complete(self, request: Request) -> Response:
        self.requests += 1
        question = str(request.messages[-1]["content"])
        right = LABELS.index(question.split("-thing")[0][-1])
        draw = draw_for(request)
        if draw.random() >= self.skill(request):
            right = (right + draw.randrange(1, 4)) % 4
        return Response(LABELS[right], "stop", sum(len(str(m["content"])) for m in request.messages), 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 1e-6 * (prompt_tokens + completion_tokens)

    async def aclose(self) -> None:
        pass


def demos_of(request: Request) -> list[str]:
    """The inputs of the demos in a request."""
    return [str(m["content"]) for m in request.messages if m["role"] == "user"][:-1]


def better_with_demos(request: Request) -> float:
    """0.3, and 0.05 more for each message of the request."""
    return 0.3 + 0.05 * len(request.messages)


def topic(text: str) -> str:
    found = re.search(r"topic\d+", text)
    return found.group() if found else ""


def plant(
    folder: Path,
    skill: Skill,
    optimizer: Any,
    *,
    calls: int,
    seed: int = 0,
    rows: tuple[int, int, int] = (40, 24, 40),
    given: dict[str, Any] | None = None,
    **spec: Any,
) -> tuple[Report, PlantedLM]:
    """Run an optimizer (as written in a file) on a planted problem. Rows are about one of eight topics.

    given: further arguments of `workbench.run.optimize`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in zip(("train", "val", "test"), rows, strict=True):
        draw = random.Random(f"{name}:{seed}")
        made = [(draw.randrange(8), LABELS[i % 4]) for i in range(count)]
        lines = [{"text": f"{name} {i} topic{t} word{t}: a {x}-thing", "label": x} for i, (t, x) in enumerate(made)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "planted",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
                "metric": "exact_match(label)",
                "nodes": {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Plain."}},
                "optimize": [optimizer],
                "budget": {"calls": calls},
                "seed": seed,
                **spec,
            }
        )
    )
    lm = PlantedLM(skill)
    report = optimize(
        file,
        database=folder / "run.db",
        pool=lm,
        options=Options(out=str(folder / "out.yaml"), allow_unproved=True),
        **(given or {}),
    )
    assert given or report.status in ("finished", "budget"), report.error
    assert given or lm.requests <= calls
    return report, lm


def true_skill(report: Report, skill: Skill, seed: int) -> float:
    """The winner's accuracy by the formula, over fresh inputs of all topics, without the noise of a test split."""

    node: Any = report.winner.enabled_nodes["sort"]
    draw = random.Random(f"true:{seed}")
    rows = [{"text": f"new topic{t} word{t}: a {draw.choice(LABELS)}-thing"} for t in range(8)]
    made = [Request(tuple(node._render(r)), **{k: v for k, v in node.settings.items() if v is not None}) for r in rows]
    return sum(map(skill, made)) / len(made)


def optimize_killed(file: Path, say: Say, kill_at: int = 0) -> tuple[Report, int]:
    """The report of a run, and how often its model was asked. kill_at: the request at which the run is killed, and then
    resumed; 0: none."""
    asked = 0

    def answer(request: Request) -> str | Response:
        nonlocal asked
        asked += 1
        if asked == kill_at:
            raise Killed
        return say(request)

    options = Options(out=str(file.with_name("out.yaml")))
    common: dict[str, Any] = {"database": file.with_name("run.db"), "pool": Script(answer), "options": options}
    try:
        report = optimize(file, **common)
    except (Killed, BaseExceptionGroup):
        report = resume("last", **common)
    assert report.status in ("finished", "budget"), report.error
    return report, asked


def lower_bound(differences: list[float]) -> float:
    """The lower end of the 95% interval of the mean, by Student's t."""
    from scipy.stats import t

    n = len(differences)
    return statistics.mean(differences) - t.ppf(0.975, n - 1) * statistics.stdev(differences) / math.sqrt(n)


def candidates(folder: Path) -> list[dict[str, Any]]:
    """The settings of each candidate's patch, in order."""
    store = Store(folder / "run.db")
    try:
        rows = store.rows("select hash, patch, optimizer from candidates order by seq")
        return [json.loads(r["patch"])["set"] for r in rows if r["patch"]]
    finally:
        store.close()


def evaluations(folder: Path) -> list[Any]:
    """The evaluations on val, in order."""
    store = Store(folder / "run.db")
    try:
        return list(store.rows("select candidate, n, complete, score from evaluations where split = 'val' order by id"))
    finally:
        store.close()
