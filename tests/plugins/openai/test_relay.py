"""A stream is passed on event by event, at a cost that grows with its length alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from workbench_openai import server


class Kept:
    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.ended = False

    def begin(self, headers: Mapping[str, str]) -> None: ...

    def add(self, events: bytes) -> None:
        self.events.append(events)

    def end(self) -> None:
        self.ended = True


def relay(*chunks: bytes) -> Kept:
    kept = Kept()
    passing = server._Relay(kept, lambda text: text.replace("secret", "***"))
    for chunk in chunks:
        passing.add(chunk)
    passing.end()
    return kept


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"], ids=repr)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_events_pass_whole_however_the_packets_are_cut(end: bytes, size: int) -> None:
    raw = end.join((b"data: a secret", b"data: b", b"data: c"))
    kept = relay(*(raw[n : n + size] for n in range(0, len(raw), size)))
    assert b"".join(kept.events) == raw.replace(b"secret", b"***") and kept.ended
    assert all(event.endswith(end) for event in kept.events[:-1])


def test_h34_one_giant_event_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was joined and searched anew with each packet: 8 MB took a minute."""
    seen = 0

    class Counted(bytearray):
        def rfind(self, mark: bytes, start: int = 0) -> int:  # type: ignore[override]
            nonlocal seen
            seen += len(self) - start
            return super().rfind(mark, start)

    monkeypatch.setattr(server, "bytearray", Counted, raising=False)
    chunk, count = b"x" * 1000, 2000
    kept = relay(b"data: ", *[chunk] * count, b"\n\n")
    assert len(kept.events) == 1 and len(kept.events[0]) == 1000 * count + 8
    assert 0 < seen < 4 * 1000 * count, "each byte is searched once for each mark"
