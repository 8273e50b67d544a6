"""Pages stay quick over a large database (contrib/bench/speed/view.py)."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("starlette")

sys.path.insert(0, str(Path(__file__).parents[3] / "contrib" / "bench" / "speed"))

import view


@pytest.mark.slow
def test_any_page_of_a_thousand_runs_and_fifty_thousand_calls_is_quick(tmp_path: Path) -> None:
    database = view.make_database(tmp_path, 1000, 50_000)
    clock = time.process_time  # of this process: others share the machine
    times = {page: statistics.median(found) for page, found in view.time_pages(database, clock=clock)}
    slow = {page: round(took) for page, took in times.items() if took > view.LIMIT}
    assert len(times) > 20 and not slow, "milliseconds, the median of five answers"
