"""A workflow as a DSPy program in a folder: `program.py` builds the predictors, `program.json` holds their state."""

from __future__ import annotations

import json
from pathlib import Path

from workbench.errors import SpecError
from workbench.kit.plain_adapter import default_instructions
from workbench.workflow import Workflow, node_at
from workbench_dspy.program import find_predictor_nodes

_HEAD = '''"""Written by `workbench export --format dspy`: the predictors of a workflow, with their instructions and demos.

    program = Program()
    program.load("program.json")
"""

from typing import Literal, Optional  # noqa: F401

import dspy


class Program(dspy.Module):
    def __init__(self):
        super().__init__()
'''  # noqa: E501


def export(workflow: Workflow, path: Path | None) -> None:
    """Write the folder. Nodes that are no predictors are left out; calls run one after the other, in their order."""
    if path is None:
        raise SpecError("a DSPy program is a folder", hint="Name it with --out FOLDER.")
    import dspy

    from workbench_dspy.program import dspy_signature

    nodes = {name: node_at(workflow, f"{a}.demos") for name, a in find_predictor_nodes(workflow).items()}
    path.mkdir(parents=True, exist_ok=True)
    lines, state = [_HEAD], dspy.Module()
    for name, node in nodes.items():
        config, signature = node.config, node.signature  # type: ignore[attr-defined]
        text = config.instructions or default_instructions(signature)
        lines.append(f"        self.{name} = dspy.Predict(dspy.Signature({config.signature!r}, {text!r}))\n")
        predictor = dspy.Predict(dspy_signature(signature, text))
        predictor.demos = [dspy.Example(**demo) for demo in config.demos]
        setattr(state, name, predictor)
    lines.append("\n    def forward(self, **fields):\n")
    for name, node in nodes.items():
        lines.append(f"        fields |= self.{name}(**{{k: fields[k] for k in {list(node.inputs)!r}}}).toDict()\n")
    lines.append("        return dspy.Prediction(**fields)\n")
    (path / "program.py").write_text("".join(lines), encoding="utf-8")
    (path / "program.json").write_text(json.dumps(state.dump_state(), indent=2, default=str), encoding="utf-8")
