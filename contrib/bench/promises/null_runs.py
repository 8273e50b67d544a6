"""False claims of whole runs of `workbench optimize` in worlds without a gain, and true ones beside them.

    python contrib/bench/promises/null_runs.py [--runs 200] [--world NAME ...] [--out FILE]

Each world is a way in which a test can be set up wrongly: an agent or a cache that remembers, copies and conversations
in the test, rows that were val before, rare dear rows, timeouts on one side, branches. In the null column the change
does nothing, and at most 5% of the runs may claim anything (upper end of the exact 95% interval). In the column beside
it the change does what it says. No language model takes part: answers are formulas. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from workbench.errors import LMError
from workbench.labels import order_items, run_answers
from workbench.lm import LMPool, Request, Response
from workbench.proof import Report
from workbench.run import Options, branch_run, optimize, resume
from workbench.store import ReadOnlyStore, Store

LABELS = ("a", "b", "c", "d")
WORDS = [
    f"{a}{b}{c}" for a in ("ba", "ko", "li", "me", "nu") for b in ("ra", "so", "ti", "ve") for c in ("n", "l", "x", "")
]
PLAIN = "Plain."
#: Right answers by chance, and with another wording in a world with a gain.
CHANCE, BETTER = 0.5, 0.9


@dataclass
class Rows:
    """The rows of a world by split; meaning: by text, what decides the answer, equal for rows that are answered
    alike."""

    train: list[dict[str, Any]] = field(default_factory=list)
    val: list[dict[str, Any]] = field(default_factory=list)
    test: list[dict[str, Any]] = field(default_factory=list)
    meaning: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path, **parts: list[dict[str, Any]]) -> None:
        for name in ("train", "val", "test"):
            rows = parts.get(name, getattr(self, name))
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def asked(request: Request) -> str:
    """The row's text in a request of a `predict` node."""
    return str(request.messages[-1]["content"]).removeprefix("text: ").partition("\nlabel:")[0]


def draw(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big") / 2**56


class Formula(LMPool):
    """The only member of its own pool: right with a chance that depends on the wording alone."""

    identity, concurrency = "formula, no model", 16

    def __init__(self, rows: Rows, seed: int, gain: bool):
        super().__init__()
        self.rows, self.seed, self.gain = rows, seed, gain
        self.labels = {r["text"]: r["label"] for part in (rows.train, rows.val, rows.test) for r in part}

    def get(self, spec: Any) -> Any:
        return self

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass

    def chance(self, wording: str) -> float:
        return BETTER if self.gain and wording != PLAIN else CHANCE

    def is_right(self, text: str, wording: str) -> bool:
        return draw(self.seed, self.rows.meaning.get(text, text), wording) < self.chance(wording)

    def answer(self, text: str, wording: str) -> str:
        right = self.labels[text]
        return right if self.is_right(text, wording) else LABELS[(LABELS.index(right) + 1) % 4]

    def tokens(self, text: str, wording: str) -> int:
        return 1

    async def complete(self, request: Request) -> Response:
        text = asked(request)
        wording = next(
            (w for w in (PLAIN, *(f"Wording {i}." for i in range(60))) if w in str(request.messages[0]["content"])), ""
        )
        return Response(self.answer(text, wording), "stop", 20, self.tokens(text, wording), 0.0)


class Notes(Formula):
    """An agent with notes, or a cache behind the model: whoever asks second about a row is right."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.seen = set[str]()

    def answer(self, text: str, wording: str) -> str:
        known = text in self.seen
        self.seen.add(text)
        return self.labels[text] if known else super().answer(text, wording)


class Cached(Formula):
    """A cache of answers by the row alone, whatever the wording: the second asker gets the first one's answer, at
    once and for fewer tokens."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.kept = dict[str, str]()

    async def complete(self, request: Request) -> Response:
        text = asked(request)
        if text in self.kept:
            return Response(self.kept[text], "stop", 20, 10, 0.0)
        await asyncio.sleep(0.01)
        found = await super().complete(request)
        self.kept[text] = found.text
        tokens = 40 if self.gain and PLAIN not in str(request.messages[0]["content"]) else 200
        return Response(found.text, "stop", 20, tokens, 0.0)


class Steady(Formula):
    """Right or wrong whatever the wording: only costs differ."""

    def is_right(self, text: str, wording: str) -> bool:
        return draw(self.seed, text) < 0.7


class Loops(Steady):
    """Another wording costs a little less on most rows and very much more on one in a hundred: the mean is the same."""

    def tokens(self, text: str, wording: str) -> int:
        if wording == PLAIN:
            return 100
        if self.gain:
            return 40
        return 1090 if draw(self.seed, text, wording, "loop") < 0.01 else 90


class Silent(Formula):
    """The winner gives no answer on some of the rows that it gets wrong."""

    def answer(self, text: str, wording: str) -> str:
        if wording != PLAIN and not self.is_right(text, wording) and draw(self.seed, text, wording, "slow") < 0.3:
            raise LMError("timeout", "no answer in time")
        return super().answer(text, wording)


class Graded(Formula):
    """A small gain on most rows and a rare loss of everything: the mean gain is 0."""

    def answer(self, text: str, wording: str) -> str:
        if wording == PLAIN:
            return "0.80"
        if self.gain:
            return "0.95"
        return "0.0" if draw(self.seed, text, wording) < 0.05 else "0.8421"


class Judged(Formula):
    """A judge likes whatever is new; people like old and new answers alike, unless there is a gain."""

    def answer(self, text: str, wording: str) -> str:
        return f"the {'old' if wording == PLAIN else 'new'} answer"

    async def complete(self, request: Request) -> Response:
        if "You grade an answer" in str(request.messages):
            new = "the new answer" in str(request.messages[-1]["content"])
            return Response(f"fine\nscore: {9 if new else 5}", "stop", 20, 1, 0.0)
        return await super().complete(request)

    def people(self, row: str, answer: str) -> float:
        """What somebody says of an answer."""
        return float(draw(self.seed, row, answer) < (BETTER if self.gain and "new" in answer else CHANCE))


def sentence(rng: random.Random, count: int = 14) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


def plain_rows(rng: random.Random, test: int = 60, val: int = 40) -> Rows:
    made = [[{"text": sentence(rng), "label": rng.choice(LABELS)} for _ in range(n)] for n in (8, val, test)]
    return Rows(*made)


def copied_rows(change: Callable[[str, int], str], kinds: int = 6, times: int = 10) -> Callable[[random.Random], Rows]:
    """Few questions, each many times with a change that means nothing."""

    def made(rng: random.Random) -> Rows:
        rows = plain_rows(rng, 0)
        for _ in range(kinds):
            text, label = sentence(rng), rng.choice(LABELS)
            for i in range(times):
                rows.test.append({"text": change(text, i), "label": label})
                rows.meaning[rows.test[-1]["text"]] = text
        return rows

    return made


def other_word(text: str, i: int) -> str:
    return f"{text} {WORDS[-1 - i]}"


def unseen_character(text: str, i: int) -> str:
    return text[: 3 + i] + "\u200b" + text[3 + i :]


def other_number(text: str, i: int) -> str:
    return f"{text} {1000 + 37 * i}"


def conversations(name: str, groups: int = 20, turns: int = 10) -> Callable[[random.Random], Rows]:
    """Turns of a conversation are answered alike, and nothing but a field of the row says which belong together."""

    def made(rng: random.Random) -> Rows:
        rows = plain_rows(rng, 0)
        for group in range(groups):
            for _ in range(turns):
                row = {"text": sentence(rng), "label": rng.choice(LABELS), name: f"c{group}"}
                rows.test.append(row)
                rows.meaning[row["text"]] = f"group {group}"
        rng.shuffle(rows.test)
        return rows

    return made


@dataclass(frozen=True)
class World:
    """rows, model: what is tested. spec: further keys of the file. course: the runs; None: one `optimize`."""

    rows: Callable[[random.Random], Rows] = plain_rows
    model: type[Formula] = Formula
    spec: Mapping[str, Any] = field(default_factory=dict)
    course: Callable[[Path, Rows, Formula], bool] | None = None


def write_file(folder: Path, world: World, wordings: int = 6, **more: Any) -> Path:
    file = folder / "workflow.yaml"
    spec = {
        "name": "null",
        "lm": {"model": "openai/formula", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": PLAIN}},
        "search": {"nodes.sort.instructions": [PLAIN, *(f"Wording {i}." for i in range(wordings))]},
        "optimize": [{"random": {"trials": wordings}}],
        "budget": {"calls": 100_000},
        **world.spec,
        **more,
    }
    file.write_text(json.dumps(spec), encoding="utf-8")
    return file


def run(file: Path, model: Formula, **sets: Any) -> Report:
    options = Options([*sets.items()], str(file.with_name("out.yaml")), allow_unproved=True)
    report = optimize(file, database=file.with_name("runs.db"), pool=model, options=options)
    assert report.status == "finished", report.error
    return report


def val_reused(folder: Path, rows: Rows, model: Formula) -> bool:
    """Sixty wordings are scored on rows as val; then these rows are the test, and the best wording the only one."""
    rows.write(folder, val=rows.test, test=rows.val)
    world = World()
    first = run(write_file(folder, world, 59), model)
    best = str(first.winner.get("nodes.sort.instructions"))
    lucky = [r for r in rows.val if model.is_right(r["text"], best) and not model.is_right(r["text"], PLAIN)]
    rows.write(folder, val=[*lucky, *(r for r in rows.val if r not in lucky)][: max(10, 2 * len(lucky))])
    only = {"nodes.sort.instructions": [PLAIN, best]}
    return run(write_file(folder, world, search=only), model).proved


def branched(folder: Path, rows: Rows, model: Formula) -> bool:
    """A branch from a winner that did badly on the sealed rows: its bad luck is not repeated by the next winner."""
    rows.write(folder)
    first = run(write_file(folder, World()), model)
    if first.proof is None or first.proof.diff > -0.05:
        return first.proved
    database = folder / "runs.db"
    store = Store(database)
    name = branch_run(store, first.run, None, [("seed", 7)])
    store.close()
    options = Options(out=str(folder / "branch.yaml"), allow_unproved=True)
    return first.proved or resume(name, database=database, pool=model, options=options).proved


def labelled(folder: Path, model: Judged, count: int, leave_out: int = 0) -> bool:
    """Whether a claim is made with labels of the first rows of the draw, but those that speak most against it."""
    database = folder / "runs.db"
    store = ReadOnlyStore(str(database))
    items = order_items([(one.cluster, one.item) for one in run_answers(store, "last").answers])
    store.close()
    rows = [*dict.fromkeys(item.row for item in items)][:count]
    said = {(item.row, item.key): model.people(item.row, str(item.answer)) for item in items if item.row in rows}
    gains = {row: sum(s if "new" in str(i.answer) else -s for i in items if i.row == row
                      for s in [said[i.row, i.key]]) for row in rows}  # fmt: skip
    left = {*sorted(rows, key=lambda row: gains[row])[:leave_out]}
    lines = [
        {"row": r, "answer": key, "by": "ann", "score": score} for (r, key), score in said.items() if r not in left
    ]
    (folder / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return resume("last", database=database, pool=model, options=Options(out=str(folder / "out.yaml"))).proved


def labels_peeked_at(folder: Path, rows: Rows, model: Formula) -> bool:
    """Ten labels more, and a look at the report, until it shows a gain."""
    assert isinstance(model, Judged)
    rows.write(folder)
    run(write_file(folder, WORLDS["labels, peeked at"], 1), model)
    return any(labelled(folder, model, count) for count in range(30, 121, 10))


def labels_left_out(folder: Path, rows: Rows, model: Formula) -> bool:
    """Ninety rows are labelled, and the thirty that speak most against the winner deleted."""
    assert isinstance(model, Judged)
    rows.write(folder)
    run(write_file(folder, WORLDS["labels, left out"], 1), model)
    return labelled(folder, model, 90, leave_out=30)


JUDGED = {
    "metric": "judge(label)",
    "nodes": {"sort": {"predict": "text -> label", "instructions": PLAIN}},
    "proof": {"labels": "labels.jsonl"},
}
COSTS = {"pick": "cheapest"}
GRADED = {"metric": "python:graded.py:score", "nodes": {"sort": {"predict": "text -> label", "instructions": PLAIN}}}
WORLDS: dict[str, World] = {
    "plain": World(),
    "remembers": World(model=Notes),
    "cache, tokens": World(model=Cached, spec={"objectives": ["score", "tokens"], **COSTS}),
    "cache, latency": World(model=Cached, spec={"objectives": ["score", "latency"], **COSTS}),
    "copies, a word": World(copied_rows(other_word)),
    "copies, unseen": World(copied_rows(unseen_character)),
    "copies, a number": World(copied_rows(other_number)),
    "conversations": World(conversations("conv")),
    "sessions": World(conversations("meta_session")),
    "val reused": World(course=val_reused),
    "branches": World(course=branched),
    "rare dear rows": World(lambda rng: plain_rows(rng, 120), Loops, {"objectives": ["score", "tokens"], **COSTS}),
    "winner silent": World(model=Silent),
    "graded, skewed": World(model=Graded, spec=GRADED),
    "labels, peeked at": World(lambda rng: plain_rows(rng, 120, 10), Judged, JUDGED, labels_peeked_at),
    "labels, left out": World(lambda rng: plain_rows(rng, 120, 10), Judged, JUDGED, labels_left_out),
}
#: Worlds in which nothing true can be claimed, so that there is no column beside.
WITHOUT_GAIN = {
    "labels, left out",
    "val reused",
    "branches",
    "cache, tokens",
    "cache, latency",
    "copies, a word",
    "copies, unseen",
    "copies, a number",
}


def claims(job: tuple[str, int, bool]) -> bool:
    """Whether one run of a world claims a gain or a saving."""
    name, seed, gain = job
    world, rng = WORLDS[name], random.Random(f"{name}:{seed}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "graded.py").write_text(
            "def score(example, prediction, trace):\n    return float(prediction['label'])\n"
        )
        rows = world.rows(rng)
        model = world.model(rows, seed, gain)
        if world.course is not None:
            return world.course(folder, rows, model)
        rows.write(folder)
        return run(write_file(folder, world, seed=seed), model).proved


def exact(hits: int, runs: int) -> tuple[float, float]:
    found = binomtest(hits, runs).proportion_ci(method="exact")
    return float(found.low), float(found.high)


def measure(name: str, runs: int, pool: ProcessPoolExecutor, seed: int) -> dict[str, Any]:
    false = sum(pool.map(claims, [(name, seed + i, False) for i in range(runs)]))
    row: dict[str, Any] = {"world": name, "runs": runs, "false": false / runs, "false95": exact(false, runs)}
    if name not in WITHOUT_GAIN:
        few = max(1, runs // 4)
        row["true"] = sum(pool.map(claims, [(name, seed + i, True) for i in range(few)])) / few
    return {**row, "missed": row["false95"][1] > 0.05 if runs >= 100 else row["false95"][0] > 0.05}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--world", nargs="*", default=None, help="only those whose name begins so")
    parser.add_argument("--out", type=Path, help="JSON lines")
    args = parser.parse_args()
    missed = False
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        for name in WORLDS:
            if args.world is not None and not any(name.startswith(w) for w in args.world):
                continue
            row = measure(name, args.runs, pool, args.seed)
            missed |= row["missed"]
            low, high = row["false95"]
            true = f"{row['true']:.2f}" if "true" in row else "-"
            print(f"{name:<20} {row['runs']:>5}  {row['false']:.3f} [{low:.3f}, {high:.3f}]  {true:>5}", flush=True)
            if args.out is not None:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    sys.exit(missed)


if __name__ == "__main__":
    main()
