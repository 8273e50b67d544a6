"""Fixtures that several test files of the core use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.stored import NEW_RUN

from workbench.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A run database with one run."""
    opened = Store(tmp_path / "run.db")
    opened.execute(NEW_RUN, "r")
    yield opened
    opened.close()
