"""A simulated language model and a small task, for tests. Answers follow a formula; no model is involved.

The task is to label texts about one of four things a, b, c or d. The probability of a right answer grows with the
number of demos, and with the word HELPFUL in the instructions. The same request always gets the same answer. So there
is a gain to find, and random search finds part of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import LMError
from workbench.lm import LMPool, Request, Response
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.spec import defaults
from workbench.store import Store

LABELS = ("a", "b", "c", "d")
HELPFUL = "carefully"


class Killed(BaseException):
    """Ends a simulated run as a kill would. No code may catch it."""


@dataclass
class SimulatedLM:
    """Answers the simulated task by a formula, counts requests, and misbehaves as configured.

    Args:
        fail: share of requests that fail with a server error.
        refuse: whether every answer is a refusal.
        kill_at: raise Killed at this request, counting from 1.
        helps: False makes instructions and demos worthless (the null problem).
    """

    fail: float = 0.0
    refuse: bool = False
    kill_at: int | None = None
    helps: bool = True
    identity: str = "simulated"
    concurrency: int = 4
    requests: int = 0
    texts: list[str] = field(default_factory=list)  # the last message of each request
    messages: list[str] = field(default_factory=list)  # all messages of each request
    keys: list[str] = field(default_factory=list)

    async def complete(self, request: Request) -> Response:
        self.requests += 1
        if self.kill_at is not None and self.requests >= self.kill_at:
            raise Killed
        key = request.key(self.identity)
        self.keys.append(key)
        question = str(request.messages[-1]["content"])
        self.texts.append(question)
        self.messages.append("\n".join(str(message["content"]) for message in request.messages))
        if _share(key, "fail") < self.fail:
            raise LMError("server", "simulated server error")
        if self.refuse:
            return Response("", "refusal", 10, 1, 0.0)
        return Response(
            self._answer(request, question), "stop", sum(len(str(m["content"])) for m in request.messages), 1, 0.0
        )

    def _answer(self, request: Request, question: str) -> str:
        system = str(request.messages[0]["content"]) if request.messages[0]["role"] == "system" else ""
        if not question.rstrip().endswith("label:"):
            return self._proposal(request, question)
        demos = sum(m["role"] == "assistant" for m in request.messages)
        skill = 0.35 + (0.3 * (HELPFUL in system) + 0.04 * min(demos, 8) if self.helps else 0.0)
        right = next((c for c in LABELS if f" {c}-thing" in question), LABELS[0])
        if _share(question, str(request.replica)) < skill:
            return right
        return LABELS[(LABELS.index(right) + 1 + int(_share(question, "wrong") * 3)) % len(LABELS)]

    def _proposal(self, request: Request, question: str) -> str:
        """An instruction, a helpful one in half of the draws; in the output format that the question asks for."""
        helpful = _share(request.key("proposal"), "") < 0.5
        text = f"Read the text {HELPFUL} and give its label." if helpful else "Give the label of the text."
        asked = question.rsplit("Respond with", 1)[-1]
        if "JSON object" in asked:
            return json.dumps(dict.fromkeys(re.findall(r"`(\w+)`", asked), text))
        fields = re.findall(r"\[\[ ## (\w+) ## \]\]", asked)
        if not fields:
            return f"```\n{text}\n```"
        return "\n\n".join(f"[[ ## {name} ## ]]" + ("" if name == "completed" else f"\n{text}") for name in fields)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 1e-6 * (prompt_tokens + completion_tokens)

    async def aclose(self) -> None:
        pass


class SimulatedPool(LMPool):
    """Gives the same simulated model to every node and every role."""

    def __init__(self, lm: SimulatedLM):
        super().__init__()
        self.lm = lm

    def get(self, spec: Any) -> SimulatedLM:
        return self.lm


def _share(text: str, salt: str) -> float:
    """A pseudo-random number in [0, 1), a hash of both texts."""
    return int.from_bytes(hashlib.sha256(f"{salt}|{text}".encode()).digest()[:6], "big") / 2**48


def write_task(folder: Path, *, budget: dict[str, Any], seed: int = 0, rows: Sequence[int] = (16, 16, 24)) -> Path:
    """Write the simulated task as files. rows: of train, val and test. Returns the path of the workflow file."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("train", "val", "test")
    for name, count in zip(names, rows, strict=True):
        lines = [{"text": f"{name} row {i}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    spec = {
        "name": "simulated",
        "lm": {"model": "openai/simulated", "api_base": "http://127.0.0.1:9/v1", "attempts": 2},
        "data": {name: f"{name}.jsonl" for name in names},
        "metric": defaults.METRIC,
        "nodes": {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Label it."}},
        "search": {
            "nodes.sort.instructions": ["Label it.", f"Label it {HELPFUL}.", "Give the label."],
            "nodes.sort.demos": {"demos": 8},
        },
        "budget": budget,
        "seed": seed,
        "concurrency": 4,
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec, indent=1), encoding="utf-8")
    return path


@dataclass
class SimulatedRun:
    """The outcome of a simulated run."""

    report: Report
    lm: SimulatedLM
    folder: Path
    before_test: int  # requests before the sealed test
    trees: list[str]  # every candidate's tree, as JSON

    def candidates(self) -> list[tuple[str, float | None]]:
        """(hash, score on val) of every candidate in order; the score is None if val was not finished."""
        with Store(self.folder / "run.db") as store:
            rows = store.rows(
                "select c.hash, e.score from candidates c left join evaluations e on e.run_id = c.run_id and "
                "e.candidate = c.hash and e.split = 'val' and e.replica = 0 order by c.run_id, c.seq"
            )
            return [(row["hash"], row["score"]) for row in rows]


def run_simulated(
    optimizer: Any, folder: Path, *, lm: SimulatedLM | None = None, calls: int = 200, seed: int = 0, again: bool = False
) -> SimulatedRun:
    """Run an optimizer on the simulated task through the real runtime, ledger and store; again: resume the last run."""
    lm = lm or SimulatedLM()
    path = write_task(folder, budget={"calls": calls}, seed=seed)
    begun: list[int] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "testing":
            begun.append(lm.requests)

    settings: dict[str, Any] = {
        "database": folder / "run.db",
        "listener": listen,
        "optimizers": [("checked", optimizer)],
        "pool": SimulatedPool(lm),
        "options": Options(out=str(folder / "out.yaml"), allow_unproved=True),
    }
    report = resume("last", **settings) if again else optimize(path, **settings)
    with Store(folder / "run.db") as store:
        trees = [row["tree"] for row in store.rows("select tree from candidates order by run_id, seq")]
    return SimulatedRun(report, lm, folder, begun[0] if begun else lm.requests, trees)
