"""All methods by name. To add one, write a function (log, judge) that returns a Diagnosis, and add a line here."""

from __future__ import annotations

from workbench_attribute.baselines import BASELINES
from workbench_attribute.judges import JUDGES, Method

METHODS: dict[str, Method] = {**JUDGES, **BASELINES}
