"""A workflow as a DSPy program: a folder that needs only DSPy, with the same prompts and the same flow of data.

program.py       the program: a module for each node, and the fields that it reads
program.json     its state: instructions and demos
program_parts/   the modules' classes: copies of `workbench_dspy.exported` and of the parts of `workbench_kit` they use
program_tools/   copies of the Python files of tools and modules
NODE.state.json  for a node `dspy`: the state of its module, for MODULE().load(...)

A workflow of one node `dspy` can also become a single file with that state, program.json.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from pkgutil import iter_modules
from textwrap import indent
from typing import Any

from workbench.base.text import one_line
from workbench.errors import SpecError
from workbench.spec import LMSpec, Spec
from workbench.workflow import Field, Schedule, Signature, Workflow, task_lm
from workbench_kit import answers

_HEAD = '''"""{name}, written by `workbench export --format dspy`. It needs dspy alone:

    from program import Program
    program = Program()
    program.load("program.json")

{lm}{needs}
"""

import typing  # noqa: F401

from program_parts.agent import Agent, Tool, ToolCall  # noqa: F401
from program_parts.flow import Branch, Ensemble, Flow, Module, Reflect, Step  # noqa: F401
from program_parts.predictor import Predictor, language_model, signature  # noqa: F401
{imports}

class Program(Flow):
    """Give it the fields {inputs} by name."""

    steps = [
{steps}
    ]
{order}
    def __init__(self):
        super().__init__()
{modules}
'''

_FIELDS = '''"""Fields, signatures and failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class NodeError(Exception):
    """A module gave no outputs. kind: how it failed."""

    def __init__(self, kind: str, message: str):
        self.kind = kind
        super().__init__(message)


'''

#: Modules of the kit that the exported classes use. A module of the answer reader is called answers_NAME there.
_KIT = {"tfidf": "searching", "plain_adapter": "prompting", "nearest_demos": "prompting", "bound_function": "acting"}
_OWN = ("predictor", "agent", "flow")
_IMPORTS = (
    (r"from workbench\.errors import", "from .fields import"),
    (
        r"from workbench\.workflow import Field, read_nothing, says_nothing",
        "from .fields import Field\nfrom .nothing import read_nothing, says_nothing",
    ),
    (r"from workbench\.workflow import", "from .fields import"),
    (r"from workbench\.base\.(text|type_guards) import", r"from .base_\1 import"),
    (r"from workbench_dspy_seam import programs as", "from . import dspy_seam as"),
    (r"from workbench_dspy_seam\.programs import", "from .dspy_seam import"),
    (r"from workbench_kit import", "from . import"),
    (rf"from workbench_kit\.({'|'.join({*_KIT.values()})}) import", "from .kit import"),
    (r"from workbench_kit\.answers\.", "from .answers_"),
    (r"from workbench\.lm import", "from .thoughts import"),
    (r"from workbench_kit\.", "from ."),
    (r"from workbench_dspy\.exported\.", "from ."),
)


def export(workflow: Workflow, path: Path | None, *, spec: Spec) -> None:
    """Write the folder. Raises SpecError, before anything is written, for parts that a DSPy program cannot have."""
    if path is None:
        raise SpecError("a DSPy program is a folder", hint="Name it with --out FOLDER.")
    if path.suffix == ".json":
        return _export_state(workflow, path)
    if path.exists() and not path.is_dir():
        raise SpecError(f"{path} is a file", hint="A DSPy program is a folder: name another one with --out.")
    from workbench_dspy.export_nodes import Converter, attribute_names, file_order, refuse, steps
    from workbench_dspy.exported.flow import Flow

    if spec.policy.restricts:
        raise refuse("policy", "a policy of tool calls")
    lm = task_lm(spec.lm, workflow)
    converter, nodes = Converter(spec, lm), workflow.enabled_nodes
    modules = {name: converter.convert(node, f"nodes.{name}") for name, node in nodes.items()}
    schedule, names = Schedule(nodes, workflow.nodes, workflow.graph), attribute_names(nodes)
    flow = steps(schedule, workflow.nodes, names)
    order = file_order(schedule, nodes)
    program = Flow([step.value for step in flow], {names[n]: made.value for n, made in modules.items()})
    text = _HEAD.format(
        name=_as_words(str(workflow.tree.get("name") or "A workflow")),
        lm=_lm_lines(lm),
        needs=f"\nIts tools also import {', '.join(converter.files.needs)}." if converter.files.needs else "",
        imports="".join(f"{line}\n" for line in converter.files.imports),
        inputs=_as_words(", ".join(workflow.input_fields)),
        steps="\n".join(indent(f"{step.source},", " " * 8) for step in flow),
        order=f"    order = {order['order']!r}\n" if order else "",
        modules="\n".join(indent(f"self.{names[n]} = {made.source}", " " * 8) for n, made in modules.items()),
    )
    parts = _parts()
    path.mkdir(parents=True, exist_ok=True)
    (path / "program.py").write_text(text, encoding="utf-8")
    _write_package(path / "program_parts", parts)
    if converter.files.copies:
        _write_package(path / "program_tools", converter.files.copies)
    program.save(path / "program.json")
    for name, node in _modules(nodes).items():
        node.program.save(path / f"{names[name]}.state.json")


def _export_state(workflow: Workflow, path: Path) -> None:
    """Write the learned state of the only node's module. Raises SpecError, also if the file exists."""
    modules = _modules(workflow.enabled_nodes)
    if len(modules) != 1 or len(workflow.enabled_nodes) != 1:
        hint = "Name a folder with --out; beside the program it has a file for each node of the kind dspy."
        raise SpecError("a file contains one DSPy module, and the workflow has other or more nodes", hint=hint)
    if path.exists():
        raise SpecError(f"{path} exists, and nothing is overwritten", hint="Name another file with --out.")
    (node,) = modules.values()
    program = node.program
    path.parent.mkdir(parents=True, exist_ok=True)
    program.save(path)


def _modules(nodes: Mapping[str, Any]) -> dict[str, Any]:
    from workbench_dspy.node import DSPyModule

    return {name: node for name, node in nodes.items() if isinstance(node, DSPyModule)}


def check(workflow: Workflow, *, spec: Spec) -> None:
    """Raise SpecError for a node that has no counterpart in DSPy. Runs no Python of the workflow."""
    from workbench_dspy.export_nodes import Converter

    converter = Converter(spec, task_lm(spec.lm, workflow))
    for name, node in workflow.enabled_nodes.items():
        converter.check(node, f"nodes.{name}")


export.check = check  # type: ignore[attr-defined]
export.needs_spec = True  # type: ignore[attr-defined]


def _lm_lines(lm: LMSpec) -> str:
    """Describe the language model with which the program ran here."""
    from workbench_dspy.export_nodes import model_name

    model = model_name(lm)
    if model is None:
        told = f"It ran with {lm.model}, which DSPy does not serve. Configure a model before the first call."
        return _as_words(told)
    key = f"os.environ[{lm.api_key_env!r}]" if lm.api_key_env else None
    settings = {"api_base": lm.api_base and repr(lm.api_base), "api_key": key} | {
        k: repr(v) for k, v in lm.extra.items()
    }
    more = "".join(f", {name}={value}" for name, value in settings.items() if value)
    return _as_words(f"Before the first call: dspy.configure(lm=dspy.LM({model!r}{more}))")


def _as_words(text: str) -> str:
    """Return a text that cannot end the docstring around it."""
    return one_line(text).replace('"', "'").replace("\\", "/")


def _parts() -> dict[str, str]:
    """Return the modules of `program_parts`, by name, with their imports rewritten for one package."""
    found = {"fields": "\n\n".join([_FIELDS.strip("\n") + "\n", *(inspect.getsource(c) for c in (Field, Signature))])}
    places = {name: (f"workbench_kit.{drawer}", name) for name, drawer in _KIT.items()} | {
        f"answers_{one.name}": (answers.__name__, one.name) for one in iter_modules(answers.__path__)
    }
    places |= {name: ("workbench_dspy.exported", name) for name in _OWN}
    places["dspy_seam"] = ("workbench_dspy_seam", "programs")
    places |= {f"base_{name}": ("workbench.base", name) for name in ("text", "type_guards")}
    places["nothing"] = ("workbench.workflow", "nothing")
    places |= {"answers": ("workbench_kit.answers", "__init__"), "thoughts": ("workbench.lm", "thoughts")}
    for name, (package, module) in places.items():
        text = (files(package) / f"{module}.py").read_text(encoding="utf-8")
        for pattern, new in _IMPORTS:
            text = re.sub(rf"(?m)^{pattern}", new, text)
        found[name] = text
    # The public APIs of the packages, in this order: nearest_demos takes TfIdf from it.
    modules = ("tfidf", "bound_function", "nearest_demos")
    found["kit"] = "\n".join(["from . import plain_adapter", *(f"from .{name} import *" for name in modules), ""])
    return found


def _write_package(folder: Path, modules: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in {"__init__": "", **modules}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
