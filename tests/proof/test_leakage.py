"""Guards of the proof: a winner that carries rows in itself shows nothing by its score on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant

from workbench import Optimizer, Patch, Study, Workflow
from workbench.proof import Report
from workbench.proof.leakage import find_leaks
from workbench.run import Options, optimize, prepare

TEXTS = {
    "train": "the invoice of last month shows {} a fee that nobody told us about so take it back now",
    "val": "since the update of yesterday {} the app closes whenever I open the list of my orders",
    "test": "my parcel was left in the rain {} by your driver and everything in the box is wet",
}
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "larch"]


def rows_of(split: str, n: int) -> list[str]:
    return [TEXTS[split].format(f"{WORDS[i % 12]} {split}{i} {WORDS[(i * 5 + 3) % 12]}") for i in range(n)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    for split, n in (("train", 24), ("val", 24), ("test", 40)):
        lines = [
            {"text": f"{text}: a {'abcd'[i % 4]}-thing", "label": "abcd"[i % 4]}
            for i, text in enumerate(rows_of(split, n))
        ]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def leaks_of(folder: Path, change: Callable[[Any], dict[str, Any]]) -> list[tuple[str, str, int]]:
    task = prepare(folder / "workflow.yaml")[2]
    winner = task.workflow.patched(Patch(change(task)))
    return [(leak.split, leak.address, leak.rows) for leak in find_leaks(task, winner)]


def instructions(text: str) -> Callable[[Any], dict[str, Any]]:
    return lambda task: {"nodes.sort.instructions": text}


def demos(rows: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    return lambda task: {"nodes.sort.demos": [{"text": r["text"], "label": r["label"]} for r in rows(task)[:3]]}


def test_a_prompt_that_copies_a_train_row_is_named(folder: Path) -> None:
    copied = rows_of("train", 1)[0]
    assert leaks_of(folder, instructions(f"Sort. E.g. {copied}.")) == [("train", "nodes.sort.instructions", 1)]
    assert leaks_of(folder, demos(lambda task: task.dataset.train)) == [], "demos are made of train rows"


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_prompt_or_a_demo_that_repeats_a_sealed_row_is_named(split: str, folder: Path) -> None:
    copied = f"{rows_of(split, 1)[0]}: a a-thing"
    assert leaks_of(folder, instructions(f"Sort. E.g. {copied}.")) == [(split, "nodes.sort.instructions", 1)]
    rows = (lambda task: task.dataset.val) if split == "val" else (lambda task: task.dataset.test.open())
    assert leaks_of(folder, demos(rows)) == [(split, "nodes.sort.demos.0", 3)]


def test_filler_words_hide_no_copy(folder: Path) -> None:
    """One word in seven defeated a comparison of eight words in a row."""
    for every in (7, 3, 2):
        words = f"{rows_of('test', 1)[0]}: a a-thing".split()
        filled = " ".join(f"{word} um" if i % every == 0 else word for i, word in enumerate(words))
        assert leaks_of(folder, instructions(f"Sort. {filled}")) == [("test", "nodes.sort.instructions", 1)], every


def test_rows_of_few_words_are_seen_too(folder: Path) -> None:
    sums = [f"{i} + {i * 7 % 9} - {i % 4}" for i in range(1, 41)]
    (folder / "test.jsonl").write_text("".join(json.dumps({"text": t, "label": "a"}) + "\n" for t in sums))
    answers = "; ".join(f"{t} is {eval(t)}" for t in sums)
    assert leaks_of(folder, instructions(answers)) == [("test", "nodes.sort.instructions", 40)]
    assert leaks_of(folder, instructions("Add and take away, e.g. 1 + 7 - 1 is 7.")) == [], "one may be chance"


def test_nothing_new_or_nothing_of_theirs_is_no_leak(folder: Path) -> None:
    assert leaks_of(folder, lambda task: {}) == []
    assert (
        leaks_of(folder, instructions("Sort the message by what the customer wants: a refund, help, or a parcel."))
        == []
    )
    train = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    test = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    (folder / "train.jsonl").write_text(
        "".join(json.dumps({**r, "note": t["text"]}) + "\n" for r, t in zip(train, test, strict=False))
    )
    assert leaks_of(folder, instructions(test[0]["text"])) == [], "train says it too"


class Cheat(Optimizer):
    """Gives a workflow with these instructions."""

    text: str

    async def optimize(self, study: Study) -> Workflow:
        made = study.workflow.patched(Patch({"nodes.sort.instructions": self.text}))
        await study.evaluate(made)
        return study.best


def test_a_winner_that_repeats_sealed_rows_is_not_shown_and_not_taken(folder: Path) -> None:
    def run(text: str, name: str) -> Report:
        lm = PlantedLM(lambda r: 0.97 if "Remember" in str(r.messages[0]) else 0.2)
        return optimize(
            folder / "workflow.yaml",
            database=folder / f"{name}.db",
            pool=lm,
            optimizers=[("cheat", Cheat(text=text))],
            options=Options(out=str(folder / f"{name}.yaml")),
        )

    fair = run("Remember what the customer wants.", "fair")
    assert fair.gain_shown and fair.proved and not fair.leaks
    cheat = run("Remember: " + "; ".join(rows_of("test", 40)), "cheat")
    assert cheat.proof is not None and cheat.proof.shown and cheat.proof.p < 0.01, "by its numbers alone"
    assert not cheat.gain_shown and not cheat.proved and cheat.as_dict()["gain"]["shown"] is False
    assert "The gain is not shown: nodes.sort.instructions of the winner repeats test rows" in cheat.headline()[1]
    assert any(" rows of test, e.g." in line for line in cheat.lines())
    assert "Remember" not in (folder / "cheat.yaml").read_text()
