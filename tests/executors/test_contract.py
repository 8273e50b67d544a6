"""The executor of the tests, over sockets, keeps the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.helpers.process_executor import Processes

from workbench_testing import executor_checks


@pytest.mark.fault("workers-killed")
@pytest.mark.fault("workers-large")
@pytest.mark.parametrize("check", executor_checks(), ids=lambda check: check.__name__)
def test_the_contract_of_an_executor(check: Callable[[type[Processes]], None]) -> None:
    check(Processes)
