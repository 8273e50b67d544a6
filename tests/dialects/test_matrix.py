"""Every consumer against every dialect: the right answer, or a refusal that the dialect states and the product says.

The fast tier has each dialect with `predict`, and each consumer with the dialects of `SHOWN`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.consumers import RUNS
from tests.dialects.declared import DIALECTS
from tests.dialects.dialect import CONSUMERS
from tests.dialects.server import Lab
from workbench.errors import LMError, NodeError

#: One that thinks beside the text, one that thinks in it, one that takes no tools.
SHOWN = {"deepseek-thinking", "minimax", "perplexity"}


def cell(name: str, consumer: str) -> Any:
    fast = not DIALECTS[name].slow and (consumer == "predict" or name in SHOWN)
    return pytest.param(name, consumer, id=f"{name}-{consumer}", marks=[] if fast else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "consumer"), [cell(name, consumer) for name in DIALECTS for consumer in RUNS])
def test_the_matrix(name: str, consumer: str, lab: Lab, tmp_path: Path) -> None:
    main, stated = RUNS[consumer](DIALECTS[name], lab, tmp_path), DIALECTS[name].stated.get(consumer)
    if stated is None:
        asyncio.run(main)
        return
    with pytest.raises((NodeError, LMError)) as caught:
        asyncio.run(main)
    assert stated in str(caught.value)
    if stated == DIALECTS[name].no_tools:
        assert caught.value.kind == "unsupported" and "write native: false" in str(caught.value)


def test_there_are_at_least_thirty_dialects_and_nine_consumers() -> None:
    assert len(DIALECTS) >= 30 and len(CONSUMERS) >= 9 and RUNS.keys() == CONSUMERS.keys()
    assert all({*one.stated} <= {*CONSUMERS} for one in DIALECTS.values())
