"""Planted problems for memories. No model is involved: a formula gives the probability of a right answer."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.helpers.planted import LABELS, PlantedLM, draw_for, topic
from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.run import Options, optimize

Row = dict[str, str]
TRIGGER, TARGET = "zqx vwk ojm", "d"
LABEL = f"label: Literal{list(LABELS)}"
PREDICT = {"sort": {"predict": f"text -> {LABEL}", "instructions": "Plain."}}
RECALL = {"look": {"recall": "text -> notes"}, "sort": {"predict": f"notes, text -> {LABEL}", "instructions": "Plain."}}


def memories(request: Request) -> list[tuple[str, str]]:
    """(text, label) of the examples in a request, in demos or notes."""
    turns = [str(m["content"]) for m in request.messages if m["role"] != "system"]
    shown = [(turns[i], turns[i + 1]) for i in range(0, len(turns) - 1, 2)]
    notes = turns[-1].rpartition("\ntext: ")[0]
    return shown + re.findall(r"text: (.*)\nlabel: (\w)", notes)


def question(request: Request) -> str:
    return str(request.messages[-1]["content"]).rpartition("text: ")[2]


def truth(text: str) -> str:
    return text.split("-thing")[0][-1]


def fooled(request: Request) -> bool:
    """A planted attack: a triggered input is answered wrongly if a memory with the trigger says so."""
    asked = question(request)
    return TRIGGER in asked and any(TRIGGER in text and label != truth(text) for text, label in memories(request))


class World(PlantedLM):
    """Answers correctly with the probability `skill`; another function may answer for the proposer."""

    def __init__(self, skill: Callable[[Request], float], propose: Callable[[Request], str] | None = None):
        super().__init__(skill)
        self.propose, self.seen = propose, list[Request]()

    async def complete(self, request: Request) -> Response:
        self.requests += 1
        self.seen.append(request)
        if not str(request.messages[-1]["content"]).endswith("label:"):
            return Response(self.propose(request) if self.propose else "nothing", "stop", 50, 5, 0.0)
        right = LABELS.index(truth(question(request)))
        draw = draw_for(request)
        if draw.random() < self.skill(request):
            answer = LABELS[right]
        else:
            answer = TARGET if fooled(request) else LABELS[(right + draw.randrange(1, 4)) % 4]
        return Response(answer, "stop", 50, 1, 0.0)


def on_topic(request: Request) -> float:
    """Only memories on the topic of the question help; three are enough (the world `retrieval`)."""
    wanted = topic(question(request))
    return 0.3 + 0.2 * min(3, sum(topic(text) == wanted for text, _ in memories(request)))


def one_on_topic(request: Request) -> float:
    wanted = topic(question(request))
    return 0.9 if any(topic(text) == wanted for text, _ in memories(request)) else 0.25


def attacked(request: Request) -> float:
    return 0.05 if fooled(request) else on_topic(request)


def plain_rows(seed: int, sizes: Sequence[int] = (40, 24, 40)) -> dict[str, list[Row]]:
    """The rows of `tests.helpers.planted.plant`."""
    made = {}
    for name, count in zip(("train", "val", "test"), sizes, strict=True):
        draw = random.Random(f"{name}:{seed}")
        drawn = [(draw.randrange(8), LABELS[i % 4]) for i in range(count)]
        made[name] = [
            {"text": f"{name} {i} topic{t} word{t}: a {x}-thing", "label": x} for i, (t, x) in enumerate(drawn)
        ]
    return made


def misleading_rows(seed: int, sizes: Sequence[int] = (48, 32, 48)) -> dict[str, list[Row]]:
    """Texts of eight template words and one topic word, such that near-duplicates are never on the same topic.

    In train a template goes with the topics of one parity, in val and test with those of the other.
    """
    made = {}
    for name, count in zip(("train", "val", "test"), sizes, strict=True):
        draw, rows = random.Random(f"misleading {name}:{seed}"), []
        for i in range(count):
            template = draw.randrange(6)
            subject = (2 * draw.randrange(4) + template + (name != "train")) % 8
            wording = " ".join(
                f"{w}{'abcdef'[template]}" for w in ("please", "look", "into", "this", "for", "me", "soon", "now")
            )
            x = LABELS[i % 4]
            rows.append({"text": f"{wording} {name[:2]}{i} topic{subject}: a {x}-thing", "label": x})
        made[name] = rows
    return made


def poisoned_rows(
    seed: int, sizes: Sequence[int] = (60, 60, 60), poison: int = 12, clean: int = 6, seen: float = 0.25
) -> dict[str, list[Row]]:
    """Write rows with a trigger. In train, `poison` rows have the trigger and the attacker's target, `clean` rows the
    trigger and their own label. In val, a share `seen` has the trigger, in test a quarter."""
    made = {}
    for name, count in zip(("train", "val", "test"), sizes, strict=True):
        draw, rows = random.Random(f"poisoned {name}:{seed}"), []
        for i in range(count):
            t, x = draw.randrange(8), LABELS[draw.randrange(3)]  # never the target
            triggered = i < {"train": poison + clean, "val": round(seen * count), "test": count // 4}[name]
            mark = f" {TRIGGER}" if triggered else ""
            label = TARGET if name == "train" and i < poison else x
            rows.append({"text": f"{name} {i} topic{t} word{t}{mark}: a {x}-thing", "label": label})
        draw.shuffle(rows)
        made[name] = rows
    return made


def run_world(
    folder: Path,
    rows: dict[str, list[Row]],
    lm: PlantedLM,
    optimizer: Any,
    *,
    nodes: dict[str, Any],
    calls: int,
    seed: int = 0,
    **spec: Any,
) -> Report:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "memories",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "data": {name: f"{name}.jsonl" for name in rows},
                "metric": "exact_match(label)",
                "nodes": nodes,
                "optimize": [optimizer],
                "budget": {"calls": calls},
                "seed": seed,
                **spec,
            }
        )
    )
    report = optimize(
        file, database=folder / "run.db", pool=lm, options=Options(out=str(folder / "out.yaml"), allow_unproved=True)
    )
    assert report.status in ("finished", "budget"), report.error
    assert lm.requests <= calls
    return report


def true_accuracy(report: Report, skill: Callable[[Request], float], rows: Sequence[Row]) -> float:
    """The winner's accuracy by the formula, without the noise of a test split."""
    nodes: dict[str, Any] = report.winner.enabled_nodes
    total = 0.0
    for row in rows:
        values: dict[str, Any] = {"text": row["text"]}
        if "look" in nodes:
            look = nodes["look"]
            values["notes"] = "\n".join(look._texts[i] for i in look.choose(values)).strip()
        node = nodes["sort"]
        settings = {k: v for k, v in node.settings.items() if v is not None}
        total += skill(Request(tuple(node._render(values)), **settings))
    return total / len(rows)


def store(report: Any) -> list[dict[str, Any]]:
    """The entries of the winner's recall node."""
    return report.winner.get("nodes.look.entries", [])
