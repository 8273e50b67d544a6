"""Fixtures of the tests of the runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.helpers.planted_nodes import DOES, Planted

from workbench.plugins import plugins


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(plugins()._tables["node_kinds"], "planted", (Planted, "test"))
    yield
    DOES.clear()
