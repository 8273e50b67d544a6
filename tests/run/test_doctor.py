"""The line of `workbench doctor` on sandboxes: the level that was measured, never one that was only hoped for."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner
from tests.plugins.sandbox.test_sandbox import needs_kernel

from workbench.cli import cli
from workbench_sandbox.linux import LinuxSandbox


def doctors_line() -> tuple[str, str]:
    """The status and the text of the line on sandboxes in `workbench doctor --json`."""
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    found = [c for c in json.loads(done.stdout)["checks"] if c["name"] == "sandbox"]
    assert len(found) == 1
    return found[0]["status"], found[0]["message"]


@needs_kernel
def test_doctor_names_the_level_that_was_measured_and_warns_where_attacks_got_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORKBENCH_SANDBOX", "linux")
    status, message = doctors_line()
    assert status == "ok" and re.fullmatch("linux, level (strong|kernel), measured by its self-test", message), message

    async def breached(sandbox: LinuxSandbox) -> list[str]:
        return ["UDP"]

    monkeypatch.setattr("workbench_sandbox.linux.self_test", breached)
    status, message = doctors_line()
    assert status == "warn" and "not run here" in message and "only limits-only" in message
