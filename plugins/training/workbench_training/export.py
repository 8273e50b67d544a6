"""The exporter `vllm`: a folder that serves a trained model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from workbench.errors import SpecError
from workbench.lm import HasWeights, make_lm
from workbench.spec import LMSpec, lm_spec
from workbench.task import Task, dump_yaml
from workbench.workflow import Workflow, task_lm
from workbench_training.chat_behavior import ChatBehavior
from workbench_training.settings import round_rank


def vllm(workflow: Workflow, path: Path | None, *, task: Task) -> None:
    """Write DIR/serve.sh, which serves the model of the workflow, and DIR/lm.yaml, the `lm:` that then uses it.

    Of weights with an adapter beside them also DIR/serve_adapter.sh, which serves the adapter over its base.
    """
    folder, (spec, weights) = _folder(path), find_weights(workflow, task)
    name, adapter = task.spec.name, Path(weights) / "adapter"
    scripts = {
        "serve.sh": (
            "# Serves the trained model on port 8000; every other flag of vLLM may follow.",
            f"{shlex.quote(weights)} --served-model-name {shlex.quote(name)}",
        )
    }
    if (adapter / "adapter_config.json").is_file():
        scripts["serve_adapter.sh"] = (
            "# Serves the adapter alone, over its base; several may share one server.",
            _adapter_arguments(adapter, name),
        )
    folder.mkdir(parents=True, exist_ok=True)
    for script, (comment, arguments) in scripts.items():
        text = f'#!/bin/sh\n{comment}\nexec vllm serve {arguments} "$@"\n'
        (folder / script).write_text(text, encoding="utf-8")
        (folder / script).chmod(0o755)
    served = {"model": f"openai/{name}", "api_base": "http://127.0.0.1:8000/v1"}
    lm = ChatBehavior.of(spec).under(served, template=True)
    (folder / "lm.yaml").write_text(dump_yaml({"lm": lm}), encoding="utf-8")


def _adapter_arguments(adapter: Path, name: str) -> str:
    """The adapter and its base as arguments of `vllm serve`. The adapter's configuration may be a stranger's: what it
    says is checked and quoted. Raises SpecError."""
    file = adapter / "adapter_config.json"
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        base, rank = about["base_model_name_or_path"], int(about["r"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        base, rank = None, 0
    if not isinstance(base, str) or rank < 1 or "\0" in base:
        raise SpecError(
            f"{file} must name a base model and a rank",
            hint='Write e.g. {"base_model_name_or_path": "org/model", "r": 8}.',
        )
    try:
        allowed = round_rank(rank)
    except ValueError as error:
        raise SpecError(f"{file}: {error}", hint="Train one with a smaller `lora: {rank: ...}`.") from None
    modules = shlex.quote(f"{name}={adapter}")
    return f"{shlex.quote(base)} --enable-lora --max-lora-rank {allowed} --lora-modules {modules}"


vllm.needs_task = True  # type: ignore[attr-defined]


def find_weights(workflow: Workflow, task: Task) -> tuple[LMSpec, str]:
    """The workflow's language model, and the folder or hub id of its weights. Raises SpecError."""
    own = [
        lm_spec(node["lm"])
        for name, node in workflow.nodes.items()
        if name in workflow.enabled_nodes and node.get("lm")
    ]
    everyone = len(own) == len(workflow.enabled_nodes)  # nobody is left who would use the workflow's own model
    specs = [*own, *([] if everyone else [task_lm(task.spec.lm, workflow)])]
    if len({s.model for s in specs}) > 1:
        raise SpecError(
            f"the nodes use several models: {', '.join(dict.fromkeys(s.model for s in specs))}",
            hint="One is exported at a time: give all nodes the same `lm`, or none of their own.",
        )
    spec: LMSpec = specs[0]
    lm = make_lm(spec)
    if not isinstance(lm, HasWeights):
        raise SpecError(
            f"the weights of {spec.model} are not here", hint="Export a run whose LM is hf:PATH or bundled/nano."
        )
    return spec, lm.weights


def _folder(path: Path | None) -> Path:
    """The folder that is to be written, which is made only when nothing can be refused any more."""
    if path is None:
        raise SpecError("this export is a folder", hint="Name it with --out FOLDER.")
    if path.exists() and not path.is_dir():
        raise SpecError(f"{path} is a file, and this export is a folder", hint="Name another with --out FOLDER.")
    return path
