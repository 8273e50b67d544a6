"""A one-step workflow, search spaces over it, and training rows that demos are drawn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.spec import DomainSpec
from workbench.task import Example, Space
from workbench.workflow import Workflow, node_tree

TRAIN = tuple(Example(str(i), {"text": f"row {i}", "label": "ab"[i % 2]}) for i in range(20))


def workflow(**node: Any) -> Workflow:
    tree = node_tree({"predict": "text -> label: Literal['a', 'b']", **node})
    return Workflow({"lm": {}, "nodes": {"sort": tree}}, Path("."))


def space(**domains: Any) -> Space:
    return Space({k.replace("__", "."): DomainSpec.model_validate(v) for k, v in domains.items()}, TRAIN)
