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
    logs, recorded = tmp_path / "Algorithm-Generated", tmp_path / "llm_judge_addendum"
    logs.mkdir()
    recorded.mkdir()
    records = [{"question": "Où?", "mistake_step": "2"}, {"mistake_step": 1, "question": "Who?"}]
    for n, record in enumerate(records):
        (logs / f"{n}.json").write_text(json.dumps(record))
    said = {names["digest"](record): {"top": 2} for record in [*records, {"question": "elsewhere"}]}
    (recorded / "whoandwhen__all_at_once__j.json").write_text(json.dumps({"predictions": said}))
    names["print_recorded"](tmp_path, tmp_path)
    assert "| j | 2 | 0.500 [" in capsys.readouterr().out
    assert names["digest"]({"b": 1, "a": "é"}) == names["digest"]({"a": "é", "b": 1})
