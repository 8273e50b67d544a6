"""A baseline whose answers mostly cannot be scored is warned of: a search would spend on it in vain."""

from __future__ import annotations

import pytest

from workbench.proof.findings import _unusable
from workbench.study import Evaluation, Result
from workbench.task import Example
from workbench.workflow import Workflow


@pytest.mark.parametrize(("failed", "said"), [(0, ""), (1, ""), (2, "on 2 of the 4 rows"), (4, "on any of the 4 rows")])
def test_most_rows_without_an_answer_are_warned_of(failed: int, said: str) -> None:
    results = [
        Result(Example(str(n), {}), 0.0, "unparsed" if n < failed else None, "no label" if n < failed else None)
        for n in range(4)
    ]
    found = _unusable(Evaluation(Workflow({"nodes": {}}), "val", tuple(results), True))
    assert (said in found[0] and found[0].endswith("e.g. no label")) if said else found == []
