import pytest
from workbench_example.hillclimb import Hillclimb
from workbench_example.shorter import Shorter

from workbench_testing import optimizer_checks


@pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
def test_keeps_the_promises_of_an_optimizer(check):
    check(Hillclimb())


def test_shorter_falls_from_one_to_zero():
    metric = Shorter("answer", limit=10)
    scores = [metric(None, {"answer": "x" * n}).value for n in (10, 15, 20, 40)]
    assert scores == [1.0, 0.5, 0.0, 0.0]
