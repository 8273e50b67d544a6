"""Entries that runs share: a later run begins with them, and names where they are from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.memory_worlds import RECALL, World, on_topic, plain_rows, run_world, store, true_accuracy

from workbench.errors import SpecError
from workbench.run import Options, resume
from workbench_testing import Killed

SHARED = {"memory": {"kinds": ["examples"], "policies": ["lexical"], "shared": "../lessons.jsonl"}}
ALONE = {"memory": {"kinds": ["examples"], "policies": ["lexical"]}}
#: Another laboratory has few labelled rows of its own.
FEW = (4, 24, 40)


def learn(folder: Path, optimizer: Any, rows: Any, calls: int, lm: World | None = None) -> Any:
    return run_world(folder, rows, lm or World(on_topic), optimizer, nodes=RECALL, calls=calls)


def test_a_second_run_reaches_with_half_the_calls_what_it_could_not_alone(tmp_path: Path) -> None:
    """Over three seeds: with the store the second run is as good as the first one, which had ten times the rows."""
    gained = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        learn(folder / "first", SHARED, plain_rows(seed), 600)
        lines = [json.loads(line) for line in (folder / "lessons.jsonl").read_text().splitlines()]
        assert lines and all(line["source"].startswith("run run.db#1/") for line in lines)
        rows = plain_rows(100 + seed, FEW)
        found = []
        for name, optimizer in (("with", SHARED), ("without", ALONE)):
            report = learn(folder / name, optimizer, rows, 300)
            found.append(true_accuracy(report, on_topic, rows["test"]))
            if name == "with":
                sources = {entry["source"].partition("/")[0] for entry in store(report)}
                assert "run run.db#1" in sources, "what came from the first run says so"
        gained.append(found[0] - found[1])
    assert min(gained) > 0.15, gained


def test_only_the_winners_entries_are_shared_and_each_once(tmp_path: Path) -> None:
    hurt = World(lambda request: 0.1 if "notes: text" in str(request.messages[-1]["content"]) else 0.9)
    report = learn(tmp_path / "hurt", SHARED, plain_rows(0), 600, hurt)
    assert not report.changes and not (tmp_path / "lessons.jsonl").exists()
    for name in ("first", "again"):
        learn(tmp_path / name, SHARED, plain_rows(0), 600)
    lines = (tmp_path / "lessons.jsonl").read_text().splitlines()
    told = [json.dumps({k: json.loads(line)[k] for k in ("inputs", "outputs", "text")}) for line in lines]
    assert len({*told}) == len(told)


def test_a_resumed_run_begins_with_what_it_read_first(tmp_path: Path) -> None:
    """Whatever others have added since. A killed run has added nothing itself."""
    rows, lessons = plain_rows(1, FEW), tmp_path / "lessons.jsonl"
    learn(tmp_path / "first", SHARED, plain_rows(0), 600)
    before = lessons.read_text()
    whole = learn(tmp_path / "whole", SHARED, rows, 300)
    lessons.write_text(before)

    class Dying(World):
        async def complete(self, request: Any) -> Any:
            if self.requests >= 40:
                raise Killed
            return await super().complete(request)

    with pytest.raises((Killed, BaseExceptionGroup)):
        learn(tmp_path / "killed", SHARED, rows, 300, Dying(on_topic))
    assert lessons.read_text() == before
    lessons.write_text("")
    options = Options(out=str(tmp_path / "killed" / "out.yaml"), allow_unproved=True)
    again = resume("last", database=tmp_path / "killed" / "run.db", pool=World(on_topic), options=options)
    assert again.winner.hash == whole.winner.hash and lessons.read_text()


def test_what_is_no_store_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "lessons.jsonl").write_text('{"reads": ["text"], "text": "a"}\n{"reads": ["text"], "texts": "b"}\n')
    with pytest.raises(SpecError, match=r"lessons.jsonl:2 is no entry"):
        learn(tmp_path / "run", SHARED, plain_rows(0), 600)
    from tests.helpers.memory_worlds import PREDICT

    with pytest.raises(SpecError, match="`shared` is for entries of a recall node"):
        run_world(tmp_path / "demos", plain_rows(0), World(on_topic), SHARED, nodes=PREDICT, calls=600)


def test_a_sealed_row_that_another_run_has_shared_voids_the_proof(tmp_path: Path) -> None:
    rows = plain_rows(3, FEW)
    told = [{"reads": ["text"], "inputs": {"text": r["text"]}, "outputs": {"label": r["label"]}} for r in rows["test"]]
    told += [{"reads": ["text"], "inputs": {"text": r["text"]}, "outputs": {"label": r["label"]}} for r in rows["val"]]
    (tmp_path / "lessons.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    report = learn(tmp_path / "run", SHARED, rows, 600)
    shown = {entry["inputs"]["text"] for entry in store(report)}
    assert shown & {r["text"] for r in rows["test"]} and not shown & {r["text"] for r in rows["val"]}
    assert not report.gain_shown and any("test" in str(line) and "rows" in str(line) for line in report.warnings)
