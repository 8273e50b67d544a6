"""Every consumer against every dialect: the right answer, or a refusal that the dialect states and the product says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.dialects.consumers import CONSUMERS
from tests.dialects.declared import DIALECTS
from tests.dialects.server import Lab
from workbench.errors import LMError, NodeError

CELLS = [(name, consumer) for name in DIALECTS for consumer in CONSUMERS]


@pytest.mark.parametrize(("name", "consumer"), CELLS, ids=[f"{name}-{consumer}" for name, consumer in CELLS])
def test_the_matrix(name: str, consumer: str, lab: Lab, tmp_path: Path) -> None:
    dialect, course = DIALECTS[name], CONSUMERS[consumer][1](DIALECTS[name], lab, tmp_path)
    stated = dialect.stated.get(consumer)
    if stated is None:
        asyncio.run(course)
        return
    with pytest.raises((NodeError, LMError)) as caught:
        asyncio.run(course)
    assert stated in str(caught.value)


def test_there_are_at_least_thirty_dialects_and_nine_consumers() -> None:
    assert len(DIALECTS) >= 30 and len(CONSUMERS) >= 9
