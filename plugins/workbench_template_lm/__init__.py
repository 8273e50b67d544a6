"""A proposer that is no model: instructions from templates."""

from __future__ import annotations

from typing import Any

import workbench
from workbench.powers import declares


@workbench.hookimpl
def register_lms(register: workbench.hookspecs.Register) -> None:
    register("templates", _open)


@declares()
def _open(model: str, settings: Any) -> Any:
    from workbench_template_lm.proposer import Templates

    return Templates(model)
