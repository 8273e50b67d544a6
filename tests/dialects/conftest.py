"""The lab is opened once for all tests of a process, with a key in the environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.dialects.declared import DIALECTS
from tests.dialects.dialect import KEY, KEY_VARIABLE
from tests.dialects.server import Lab, playing

#: The dialects of models that think, as they would speak without a thought.
THOUGHTLESS = {
    f"{name}-thoughtless": replace(dialect, name=f"{name}-thoughtless", thoughts=None)
    for name, dialect in DIALECTS.items()
    if dialect.thoughts is not None
}


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    with playing({**DIALECTS, **THOUGHTLESS}) as found:
        yield found


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
