"""Writes docs/reference, and the parameter tables of the plugins' READMEs, from the code.

Usage: python docs/generate.py [--check]
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args, get_origin

import click
from pydantic import BaseModel

from workbench import hookspecs
from workbench.cli import cli
from workbench.cli.file_schema import json_schema
from workbench.plugins import GROUP, plugins
from workbench.run import prepare
from workbench.spec import ENVIRONMENT, BudgetSpec, DataSpec, DomainSpec, LMSpec, PolicySpec, ProofSpec, Spec
from workbench.store import SCHEMA, TABLES, Store
from workbench.workflow import mermaid, node_class

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
HEAD = "<!-- Written by docs/generate.py. Do not edit. -->\n\n"


_WIRING = """Nodes are wired by the names of their fields. A node reads a field from the last node before it in the file that writes
it; if there is none, from the first one after it; and if no node writes it, from the example. A node that reads and writes
the same field refines it. Independent nodes run at the same time, and who is faster never decides what is read. The
prediction has all fields that were written; of several writers of a field the last one in the file counts, or who refined what that one wrote.

Every node also takes

- `needs`: a node or a list of nodes that must be done before, though no field passes between them;
- `optional: true`: a failure of this node leaves the fields as they were before it;
- `enabled: false`: the workflow is as if this node were not there.
"""  # noqa: E501


def bundled(kind: str) -> list[str]:
    return plugins().names(kind)


def load_only_ours() -> None:
    """What else is installed must not get into our docs."""
    ours = [e.name for e in entry_points(group=GROUP) if (ROOT / "plugins" / e.value).is_dir()]
    os.environ["WORKBENCH_LOAD_PLUGINS"] = ",".join(ours)


def fields(model: Any) -> str:
    """A table of a pydantic model's fields, those of models inside it too: `course.steps`, `rewards[].kind`."""
    return "\n".join(["| key | type | default | what it is |", "| --- | --- | --- | --- |", *_rows(model)]) + "\n"


def _rows(model: Any, prefix: str = "", inside: tuple[Any, ...] = ()) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = str(inspect.formatannotation(field.annotation)).replace("typing.", "").replace("|", "or")
        default = "required" if field.is_required() else _default(field)
        text = (field.description or "").replace("|", "\\|")
        key = f"{prefix}{field.alias or name}"
        yield f"| `{key}` | {_short_type(kind)} | {default} | {text} |"
        for inner, mark in _models(field.annotation):
            if inner not in (model, *inside) and not _told_elsewhere(inner):
                yield from _rows(inner, f"{key}{mark}.", (*inside, model))


def _told_elsewhere(model: Any) -> bool:
    """Whether a model is core's, which has pages of its own; those of the kit are parts of plugins' settings."""
    return model.__module__.startswith("workbench.") and not model.__module__.startswith("workbench.kit.")


def _models(kind: Any, mark: str = "") -> Iterator[tuple[Any, str]]:
    """The models in a type, and what their keys bear before them in a list ([]) or in a mapping (.NAME)."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind, mark
    origin = get_origin(kind)
    step = "[]" if origin in (list, tuple, Sequence) else ".NAME" if origin in (dict, Mapping) else ""
    for part in get_args(kind):
        yield from _models(part, mark + step)


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return f"`{json.dumps(_plain(value), ensure_ascii=False, default=str)}`"


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    return (
        value.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
        if isinstance(value, BaseModel)
        else value
    )


def _short_type(text: str) -> str:
    return re.sub(r"\b(?:workbench\w*|collections)(?:\.\w+)*\.(\w+)", r"\1", text)


def doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "").strip() + "\n"


def workflow_file() -> str:
    rule = get_args(PolicySpec.model_fields["rules"].annotation)[0]
    condition = get_args(rule.model_fields["when"].annotation)[1]
    parts = [
        "# The workflow file\n",
        "Unknown keys are refused. `workbench schema` prints all of this as JSON Schema.\n",
    ]
    for title, model in (
        ("Top level", Spec),
        ("lm, and the roles proposer and judge", LMSpec),
        ("data", DataSpec),
        ("budget", BudgetSpec),
        ("search: one address", DomainSpec),
        ("proof", ProofSpec),
        ("policy", PolicySpec),
        ("policy: one rule", rule),
        ("policy: a condition on an argument", condition),
    ):
        parts += [f"## {title}\n", doc(model), fields(model)]
    return "\n".join(parts)


def nodes() -> str:
    parts = ["# Node kinds\n", _WIRING]
    for kind in bundled("node_kinds"):
        cls = node_class(kind)
        parts += [f"## {kind}\n", doc(cls), fields(cls.Config)]
        if cls.learnable:
            parts.append(
                "Optimizers may change: " + ", ".join(f"`{n}` ({w})" for n, w in cls.learnable.items()) + ".\n"
            )
    return "\n".join(parts)


#: Earlier names of optimizers: they still work, and only the new name is documented.
RENAMED = {"align"}


def optimizers() -> str:
    parts = ["# Optimizers\n"]
    for name in (name for name in bundled("optimizers") if name not in RENAMED):
        cls = plugins().get("optimizers", name)
        parts += [f"## {name}\n", doc(cls), fields(cls)]
    return "\n".join(parts)


def metrics() -> str:
    parts = ["# Metrics\n", "Written as `metric: name(field, option=value)`.\n"]
    for name in bundled("metrics"):
        target = plugins().get("metrics", name)
        signature = str(inspect.signature(target)).replace("'", "")
        parts += [f"## {name}\n", f"`{name}{signature}`\n", doc(target)]
    parts += ["# Data readers\n"]
    parts += [f"`{', '.join(bundled('readers'))}`: each with its options, as delimiter and types of CSV, in"]
    parts += ["[the readers' page](../../plugins/workbench_readers/README.md).\n"]
    return "\n".join(parts)


def gallery() -> str:
    """Each published design of workflows/gallery with its paper, what it is, and its picture."""
    parts = [
        "# Gallery\n",
        "Published agent designs as workflow files, in `workflows/gallery`. All run without a key, on "
        "`bundled/nano`, which knows "
        "a small made-up world of tickets, sums and facts and nothing else. `contest.yaml`, `jury.yaml` and "
        "`graph_of_thoughts.yaml` give "
        "real results with it. With `mag_sql.yaml` and `stateflow_bash.yaml` every row fails: it writes no SQL and "
        "no commands. In "
        "the others it finishes nearly all rows and shows which node reads what, but it calls no tool, builds no "
        "team and "
        "registers nothing, and what it writes as plan, search, critique or score has no meaning: where that cannot "
        "be read, the "
        "file says what is done instead. Name a real model for results. In the tests a scripted model goes every way "
        "through each file. Pictures: `workbench show --mermaid FILE`. Those "
        "with tools in Python are asked about once; `workbench trust --folder workflows` answers for all.\n",
    ]
    for path in sorted((ROOT / "workflows/gallery").glob("*.yaml")):
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
        title, *what = [line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("# "), lines)]
        _, _, task, _ = prepare(path, [])
        link = f"[{path.name}](../../workflows/gallery/{path.name})"
        parts += [
            f"## {title}\n",
            f"{link}: {' '.join(what)}\n",
            f"```mermaid\n{mermaid(task.workflow).rstrip()}\n```\n",
        ]
    return "\n".join(parts)


def hooks() -> str:
    parts = ["# Hooks\n", doc(hookspecs)]
    for name, function in vars(hookspecs).items():
        if inspect.isfunction(function) and function.__module__ == hookspecs.__name__:
            parts += [f"## {name}\n", f"`{name}{inspect.signature(function)}`\n".replace("'", ""), doc(function)]
    return "\n".join(parts)


def commands() -> str:
    parts = ["# The command line\n"]
    context = click.Context(cli, info_name="workbench")
    ours: list[str] = list(cli.ours)  # type: ignore[attr-defined]
    for name in [*ours, *(n for n in cli.list_commands(context) if n not in ours)]:
        command = cli.get_command(context, name)
        assert command is not None
        parts += _help(command, f"workbench {name}")
        if isinstance(command, click.Group):
            for sub in command.commands.values():
                parts += _help(sub, f"workbench {name} {sub.name}")
    parts += ["## Environment and config\n", _SURROUNDINGS]
    parts += ["| variable | what it sets |", "| --- | --- |"]
    parts += [f"| `{variable}` | `{address}` |" for variable, address in ENVIRONMENT.items()]
    parts += [
        "| `WORKBENCH_DB` | `--db` |",
        "| `WORKBENCH_SANDBOX` | `--sandbox`, that of `resume`, too |",
        "| `WORKBENCH_CONFIG` | the config file |",
        "| `WORKBENCH_TRUST` | folders whose workflow files are trusted ([trust](../security.md#trust)), as in PATH |",
        "| `WORKBENCH_LOAD_PLUGINS` | the only plugins to load, by name, with commas between them |\n",
    ]
    parts.append(doc(sys.modules["workbench.cli"]))
    return "\n".join(parts)


_SURROUNDINGS = """A flag comes before the environment, that before the workflow file, and that before `lm`, `budget` and `concurrency` of the
config file (`~/.config/workbench/config.yaml`). Of two flags for one setting the last holds. A run keeps what environment and
config added to it when it was started: `resume` does not look at them again, but for `WORKBENCH_SANDBOX`. A resumed run
refuses a weaker sandbox than it began with.
"""  # noqa: E501


def _help(command: click.Command, name: str) -> list[str]:
    context = click.Context(command, info_name=name, max_content_width=100, terminal_width=100)
    return [f"## {name}\n", "```text", command.get_help(context), "```\n"]


def database() -> str:
    return "\n".join(
        [
            "# The run database\n",
            doc(sys.modules[Store.__module__]),
            "",
            "| table | what it holds |",
            "| --- | --- |",
            *(f"| `{name}` | {what} |" for name, what in TABLES.items()),
            "",
            "```sql",
            SCHEMA.strip(),
            "```\n",
        ]
    )


PAGES = {
    "workflow-file.md": workflow_file,
    "nodes.md": nodes,
    "optimizers.md": optimizers,
    "metrics.md": metrics,
    "hooks.md": hooks,
    "gallery.md": gallery,
    "cli.md": commands,
    "database.md": database,
}


def pages() -> dict[str, str]:
    """All pages by file name, and the schema."""
    load_only_ours()
    found = {name: HEAD + write() for name, write in PAGES.items()}
    found["schema.json"] = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    return found


#: What README and docs/index.md list: a line for each group, of links by their path from the root.
CONTENTS: dict[str, list[tuple[str, str]]] = {
    "Begin": [("tutorial: the quickstart, line by line", "docs/tutorial.md")],
    "Workflows to try": [
        ("quickstart", "workflows/quickstart.yaml"),
        ("services", "workflows/services.yaml"),
        ("sums", "workflows/sums.yaml"),
        ("evolve", "workflows/evolve.yaml"),
        ("memory", "workflows/memory.yaml"),
        ("reflect", "workflows/reflect.yaml"),
        ("which_step", "workflows/which_step.yaml"),
        ("prompt_mcts", "workflows/prompt_mcts.yaml"),
        ("textgrad", "workflows/textgrad.yaml"),
        ("dspy_module", "workflows/dspy_module.yaml"),
        ("intercode_sql", "workflows/intercode_sql.yaml"),
        ("gallery of published designs", "docs/reference/gallery.md"),
    ],
    "How to": [
        ("choose an optimizer", "docs/how-to/choose-optimizer.md"),
        ("use your own endpoint", "docs/how-to/own-endpoint.md"),
        ("use vLLM", "docs/how-to/vllm.md"),
        ("read your CSV and other data", "docs/how-to/data.md"),
        ("start from traces", "docs/how-to/start-from-traces.md"),
        ("use a tool", "plugins/workbench_tools/README.md"),
        ("choose a metric", "plugins/workbench_metrics/README.md"),
        ("set an OpenAI-compatible model", "plugins/workbench_openai/README.md"),
        ("check a workflow", "docs/how-to/check-a-workflow.md"),
        ("write a metric", "docs/how-to/own-metric.md"),
        ("write a node", "docs/how-to/own-node.md"),
        ("write a reader", "docs/how-to/own-reader.md"),
        ("write a provider", "docs/how-to/own-provider.md"),
        ("write an exporter or a sandbox", "docs/how-to/own-exporter.md"),
        ("write an optimizer", "docs/how-to/own-optimizer.md"),
        ("measure it", "docs/how-to/benchmark-optimizer.md"),
        ("search over structure", "docs/how-to/search-structure.md"),
        ("get cheaper at the same quality", "docs/how-to/cheaper-at-the-same-quality.md"),
        ("keep service levels", "docs/how-to/service-levels.md"),
        ("improve an agent that you have", "docs/how-to/improve-an-agent.md"),
        ("train the model", "docs/how-to/train.md"),
        ("evaluate and compare", "docs/how-to/evaluate.md"),
        ("look at runs in a browser", "docs/how-to/look-at-runs.md"),
        ("find the step that fails", "docs/how-to/which-step-fails.md"),
        ("make metrics of feedback", "docs/how-to/metrics-from-feedback.md"),
        ("calibrate a judge", "docs/how-to/calibrate-a-judge.md"),
        ("gate a change in CI", "docs/how-to/continuous-integration.md"),
        ("use it from Python", "docs/how-to/from-python.md"),
        ("send runs to OpenTelemetry, MLflow, W&B, Optuna's dashboard", "docs/how-to/trackers.md"),
        ("give it to a coding agent", "plugins/workbench_mcp/README.md"),
        ("use the winner", "docs/how-to/use-the-winner.md"),
        ("come from DSPy, promptfoo or Inspect", "docs/how-to/dspy.md"),
    ],
    "Reference": [
        ("workflow file", "docs/reference/workflow-file.md"),
        ("nodes", "docs/reference/nodes.md"),
        ("optimizers", "docs/reference/optimizers.md"),
        ("metrics and readers", "docs/reference/metrics.md"),
        ("commands", "docs/reference/cli.md"),
        ("exit codes", "docs/reference/exit-codes.md"),
        ("hooks", "docs/reference/hooks.md"),
        ("database", "docs/reference/database.md"),
        ("gateway", "docs/reference/gateway.md"),
    ],
    "Explanation": [
        ("the proof", "docs/explanation/proof.md"),
        ("what fails, and its tests", "docs/explanation/reliability.md"),
        ("security", "docs/security.md"),
        ("budget and journal", "docs/explanation/budget-and-journal.md"),
        ("architecture", "docs/explanation/architecture.md"),
        ("words", "docs/explanation/words.md"),
    ],
    "Plugins": [
        (path.parent.name.removeprefix("workbench_").replace("_", " "), path.relative_to(ROOT).as_posix())
        for path in sorted((ROOT / "plugins").glob("*/README.md"))
    ],
    "Measured": [("benchmarks, losses included", "docs/benchmarks.md")],
}


def with_contents(path: Path) -> str:
    """A page with the list of contents between its two marks."""
    lines = [
        f"- {group}: " + ", ".join(f"[{title}]({os.path.relpath(ROOT / place, path.parent)})" for title, place in links)
        for group, links in CONTENTS.items()
    ]
    begin, end = "<!-- contents, written by docs/generate.py -->", "<!-- end of contents -->"
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    return "\n".join([before + begin, *lines, end + rest.partition(end)[2]])


_TABLE = re.compile(r"<!-- parameters of (node )?(\w+(?: \w+)*) -->\n.*?<!-- end of parameters -->", re.DOTALL)


def with_parameters(path: Path) -> str:
    """A README with the table between each pair of marks filled from the optimizers or the node kind that they name.

    A model that several fields hold is written out where the page names it first.
    """
    shown = set[Any]()

    def fill(match: re.Match[str]) -> str:
        node, names = match.groups()
        found = {}
        for name in names.split():
            optimizer = not node and name in bundled("optimizers")
            found[name] = plugins().get("optimizers", name) if optimizer else node_class(name).Config
        table = parameters(next(iter(found.values())), shown) if len(found) == 1 else shared_parameters(found)
        return f"<!-- parameters of {node or ''}{names} -->\n{table}\n<!-- end of parameters -->"

    return _TABLE.sub(fill, path.read_text(encoding="utf-8"))


def parameters(model: Any, shown: set[Any]) -> str:
    """A table of a model's fields, without types; models in `shown` are left out, and others added to it."""
    rows = [f"| `{name}` | {default} | {text} |" for name, default, text in _fields(model, shown)]
    return "\n".join(["| parameter | default | what it is |", "| --- | --- | --- |", *rows])


def shared_parameters(models: Mapping[str, Any]) -> str:
    """One table of the fields of several optimizers; a field that differs between them has a row for each form."""
    held: dict[tuple[str, str, str], list[str]] = {}
    for name, model in models.items():
        for row in _fields(model, set()):
            held.setdefault(row, []).append(name)
    lines = ["| parameter | of | default | what it is |", "| --- | --- | --- | --- |"]
    for (field, default, text), of in held.items():
        lines.append(f"| `{field}` | {'all' if len(of) == len(models) else ', '.join(of)} | {default} | {text} |")
    return "\n".join(lines)


def _fields(model: Any, shown: set[Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(name, default, description) of a model's fields and of those of the models that they hold."""
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _default(field)
        yield f"{prefix}{field.alias or name}", default, (field.description or "").replace("|", "\\|")
        for inner, mark in _models(field.annotation):
            if inner not in shown and not _told_elsewhere(inner):
                shown.add(inner)
                yield from _fields(inner, shown, f"{prefix}{name}{mark}.")


def included(path: Path) -> str:
    """A page with its `<!-- include: FILE -->` blocks filled from the files that they name."""
    import re

    def fill(match: re.Match[str]) -> str:
        code = (ROOT / match.group(1)).read_text(encoding="utf-8")
        return f"<!-- include: {match.group(1)} -->\n```python\n{code}```"

    return re.sub(
        r"<!-- include: (\S+) -->\n```python\n.*?```", fill, path.read_text(encoding="utf-8"), flags=re.DOTALL
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if any page is stale")
    check = parser.parse_args().check
    stale = []
    FOLDER.mkdir(exist_ok=True)
    wanted = {FOLDER / name: text for name, text in pages().items()}
    wanted |= {path: included(path) for path in sorted((ROOT / "docs").glob("*/*.md")) if path not in wanted}
    wanted |= {path: with_contents(path) for path in (ROOT / "README.md", ROOT / "docs" / "index.md")}
    wanted |= {path: with_parameters(path) for path in sorted((ROOT / "plugins").glob("*/README.md"))}
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(text, encoding="utf-8")
    print(("stale: " if check else "written: ") + ", ".join(stale) if stale else "docs are up to date")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
