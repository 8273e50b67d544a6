"""Recorded judges are scored on the logs that they saw (contrib/bench/optimizers/who_and_when.py --recorded)."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "contrib" / "bench" / "optimizers" / "who_and_when.py"


def test_peers_3_a_recorded_judge_is_scored_on_the_logs_that_are_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = runpy.run_path(str(SCRIPT))
    logs, addendum, first = (tmp_path / name for name in ("Algorithm-Generated", "llm_judge_addendum", "llm_judge"))
    for folder in (logs, addendum, first):
        folder.mkdir()
    said = ["The plan is to add.", "I cannot find it.", "The answer is 7."]
    history = [{"role": "assistant", "name": f"agent {n}", "content": words} for n, words in enumerate(said)]
    more = {"history": history, "mistake_agent": "agent 1", "ground_truth": "8"}
    records = [{"question": "Où?", "mistake_step": "2", **more}, {"mistake_step": 1, "question": "Who?", **more}]
    for n, record in enumerate(records):
        (logs / f"{n}.json").write_text(json.dumps(record))

    def record_judge(path: Path, steps: list[int], keys: list[str]) -> None:
        found = {key: {"top": step} for key, step in zip(keys, steps, strict=True)}
        path.write_text(json.dumps({"predictions": found}))

    keys = [names["digest"](record) for record in [*records, {"question": "elsewhere"}]]
    record_judge(addendum / "whoandwhen__all_at_once__j.json", [2, 2, 2], keys)
    record_judge(first / "whoandwhen__binary_search__old.json", [2, 1, 0], ["000-a", "001-b", "002-c"])
    old = dict(zip(["000-a", "001-b", "002-c"], keys, strict=True))
    (first / "legacy_run_keys.json").write_text(json.dumps({"keys": old}))
    names["print_recorded"](tmp_path, tmp_path)
    printed = capsys.readouterr().out
    for line in ("| all_at_once, j | 0.500 [", "| binary_search, old | 1.000 [", "| lexical | 0.500 [", "2 logs |"):
        assert line in printed, printed
    assert names["digest"]({"b": 1, "a": "é"}) == names["digest"]({"a": "é", "b": 1})
    skills, weigh = names["skills"], names["weigh"]
    assert skills({"j": [1.0, 0.0, 1.0]}, 0) == {"j": pytest.approx(2 / 7)}, "of the other logs alone"
    assert (
        weigh({"a": 1.0, "b": 0.6, "c": 0.6}, {"a": 3, "b": 1, "c": 1}) == 1 and weigh({"a": 1.0}, {"a": None}) is None
    )
