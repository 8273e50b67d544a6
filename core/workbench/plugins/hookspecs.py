"""The hooks of workbench: what a plugin can add.

A plugin is a module named by an entry point in the group `workbench`. It implements any of these functions,
each marked with `@workbench.hookimpl`. Every `register_...` hook receives a callback

    register(name, target)

where target is the object itself or, to keep start-up fast, its address as a string "package.module:name".

What is registered gets its settings from workflow files. It passes those that lead to Python, programs, addresses,
variables or files through a door (`workbench.spec`) when it is made, and again when it acts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("workbench")
hookimpl = pluggy.HookimplMarker("workbench")
Register = Callable[[str, Any], None]


@hookspec
def register_node_kinds(register: Register) -> None:
    """Add node kinds (`workbench.workflow.NodeKind`): register("predict", "workbench_predict.node:Predict")."""


@hookspec
def register_optimizers(register: Register) -> None:
    """Add optimizers (`workbench.study.Optimizer`): register("random", "workbench_random.optimizer:Random")."""


@hookspec
def register_lms(register: Register) -> None:
    """Add LM providers: register("hf", factory) serves `hf:...` and `hf/...`; "*" serves all others.

    factory(model, settings) returns a `workbench.lm.LM`; model is the name after the prefix, settings a
    `workbench.spec.LMSpec`.
    """


@hookspec
def register_metrics(register: Register) -> None:
    """Add metrics: register("f1", "workbench_metrics.text:F1"); see `workbench.task.Metric`."""


@hookspec
def register_readers(register: Register) -> None:
    """Add dataset readers: register("jsonl", reader) reads `*.jsonl`; register("hf", reader) reads `hf:...`.

    reader(location, options) returns dicts, in a list or one at a time, and raises
    `workbench.errors.tree.SpecError` with the line of the data file that is wrong. location is an absolute path, or
    what follows the prefix.
    """


@hookspec
def register_sandboxes(register: Register) -> None:
    """Add sandboxes for code written by language models: register("linux", open).

    `await open()` gives a `workbench.runtime.Sandbox` whose level was measured, or raises SandboxError.
    """


@hookspec
def register_environments(register: Register) -> None:
    """Add environments (`workbench_kit.acting.environment.Environment`): register("grid",
    "workbench_environments.grid:Grid")."""


@hookspec
def register_exporters(register: Register) -> None:
    """Add exporters: register("dspy", export) serves `workbench export --format dspy`; export(workflow, path).

    An exporter with the attribute `needs_task = True` also receives `task=`, the run's `workbench.task.Task`: its data,
    metric and settings. One with `needs_spec = True` receives `spec=`, the run's `workbench.spec.Spec`; no data are
    read. One with `check = function` has it called first, as check(workflow, ...) with the same values and a workflow
    whose code is not loaded: its errors come before the request for `--run-code`.

    A class with `of_rows = True` exports stored rows instead: cls()(store, run, candidate, split, path, overwrite)
    returns the text to print. It reads runs of `eval`, too.
    """


@hookspec
def register_edits(register: Register) -> None:
    """Add edits of a workflow's structure (`workbench_kit.searching.edits.Edit`): register("refine",
    "workbench_x.edits:Refine")."""


@hookspec
def register_trackers(register: Register) -> None:
    """Add trackers (`workbench.run.trackers.Tracker`), which report runs to another system if the file names them under
    `track:`: register("mlflow", "workbench_mlflow.tracker:MLflow")."""


@hookspec
def register_executors(register: Register) -> None:
    """Add executors (`workbench.runtime.ExecutorPlugin`), which run rows in other processes or on other machines:
    register("ray", "workbench_ray.executor:Ray")."""


@hookspec
def register_claims(register: Register) -> None:
    """Add sources of claims (`workbench.proof.ClaimSource`): register("targets", "workbench_levels.levels:Levels").

    A source that tests a section of the file is named after it. It is a class without arguments that makes claims
    (`workbench.proof.Claim`) for a report. It may check files, and request runs of sealed rows under perturbations.
    """


@hookspec
def register_policies(register: Register) -> None:
    """Add the reader of rules of `policy:` (`workbench.spec.RuleReader`): register("policy",
    "workbench_policy.rules:READER").

    Core decides rules that name tools, and the conditions of rules that allow. The reader decides all others. If it is
    not installed, or fails, files with such rules are refused.
    """


@hookspec
def register_commands(cli: Any) -> None:
    """Add commands to the click group `cli`: cli.add_command(command, under="Look").

    under: a heading of `workbench --help` (Begin, Measure, Improve, Look, Use) or a command group (data, plugin, agent,
    runs). Without it the command is listed under Plugins. Print with `workbench.cli.say` and `echo_json`: they keep
    text from models and rows from controlling the terminal. Anything printed by other means goes to stderr.
    """


@hookspec
def removable_files(database: Path, runs: Collection[int], kept: Collection[str]) -> Collection[Path]:
    """List the files and folders next to `database` that the plugin wrote and that are no longer needed.

    `workbench runs prune` deletes them.

    runs: the numbers of finished runs, which cannot be resumed. kept: every text in the workflows that may still be
    used; a file that such a text names is still needed. Take no path from elsewhere: the database may be a stranger's.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def share_run(rank: int, size: int, command: Callable[[], int]) -> int | None:
    """Share one `optimize` or `resume` among several processes, as torchrun starts them. Called in each of them.

    Rank 0 connects to the other processes, calls `command` (the whole run), releases them, and returns its exit code.
    The others serve rank 0 until it releases them, and return 0.
    """
