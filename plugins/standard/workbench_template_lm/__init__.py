"""A proposer without a model: instructions from templates."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_lms(register: workbench.plugins.hookspecs.Register) -> None:
    register("templates", "workbench_template_lm.proposer:templates")
