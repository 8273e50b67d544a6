"""Intents: whole lines survive, cut lines are no lines, and the file goes when all is in the database."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from workbench.errors import StoreError
from workbench.ledger.request_log import RequestLog

_intent = st.tuples(
    st.text("0123456789abcdef", min_size=32, max_size=32),
    st.text(max_size=12),  # roles are whatever an optimizer calls them
    st.integers(0, 10**9),
    st.floats(0, 1e6),
)


@given(
    sent=st.lists(st.tuples(st.integers(0, 2**48), st.lists(_intent, max_size=4)), max_size=3), cut=st.integers(0, 200)
)
def test_every_whole_line_is_read_back_and_a_cut_one_is_left_out(
    sent: list[tuple[int, list[tuple[str, str, int, float]]]], cut: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "intents"
        expected, ends = [], [0]
        for process, intents in sent:
            writer = RequestLog(path, process)
            for intent in intents:
                writer.add(*intent)
                expected.append((process, *intent))
                ends.append(path.stat().st_size)
            if writer._file is not None:
                os.close(writer._file)
        assert list(RequestLog(path, 0).read()) == expected
        if path.exists():
            size = max(0, path.stat().st_size - cut)  # as a disk that became full leaves it
            os.truncate(path, size)
            whole = sum(end <= size for end in ends) - 1
            assert list(RequestLog(path, 0).read()) == expected[:whole]
        RequestLog(path, 0).remove()
        assert not path.exists() and list(RequestLog(path, 0).read()) == []


def test_it_is_written_before_it_returns_and_removed_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "intents"
    intents = RequestLog(path, 1)
    intents.remove()  # nothing was sent
    assert not path.exists()
    for _ in range(2):
        intents.add("k", "task", 3, 0.5)
        assert list(RequestLog(path, 2).read()) == [(1, "k", "task", 3, 0.5)]
        intents.remove()
        assert not path.exists()


def test_a_short_write_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    intents = RequestLog(tmp_path / "intents", 1)
    intents.add("k", "task", 3, 0.5)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:-3]))
    with pytest.raises(StoreError, match="no space left; what was recorded before is safe"):
        intents.add("l", "task", 3, 0.5)
    assert [line[1] for line in intents.read()] == ["k"]
    intents.remove()
    with pytest.raises(StoreError, match="cannot write"):
        RequestLog(tmp_path / "none" / "intents", 1).add("k", "task", 3, 0.5)
