"""The executor of the tests, over sockets, keeps the contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.helpers.process_executor import Processes

from workbench_testing import executor_checks


@pytest.mark.fault("workers-killed")
@pytest.mark.fault("workers-large")
@pytest.mark.parametrize("check", executor_checks(), ids=lambda check: check.__name__)
def test_the_contract_of_an_executor(check: Callable[[type[Processes]], None]) -> None:
    check(Processes)


def test_only_the_checks_of_executors_need_their_base() -> None:
    code = """
import sys
sys.modules["workbench_workers"] = None
import workbench_testing
workbench_testing.check_metric
try:
    workbench_testing.check_executor
except ImportError:
    sys.exit(0)
sys.exit("it is not needed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
