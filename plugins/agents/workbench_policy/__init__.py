"""Rules on earlier calls, and conditions that hold in any spelling."""

from __future__ import annotations

import workbench
from workbench.plugins.hookspecs import Register


@workbench.hookimpl
def register_policies(register: Register) -> None:
    register("policy", "workbench_policy.rules:READER")
