"""The pages of docs/reference, from the code."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from importlib.metadata import entry_points
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import click
from writers.agents import agents
from writers.tables import bundled, fields, places
from writers.works_with import works_with

from workbench.cli import cli
from workbench.cli.file_schema import BASICS, json_schema
from workbench.plugins import GROUP, hookspecs, plugins
from workbench.run import prepare
from workbench.spec import ENVIRONMENT, BudgetSpec, DataSpec, DomainSpec, LMSpec, PolicySpec, ProofSpec, Spec
from workbench.store import SCHEMA, TABLES, Store
from workbench.workflow import mermaid, node_class

ROOT = Path(__file__).parents[2]
HEAD = "<!-- Written by docs/generate.py. Do not edit. -->\n\n"


_WIRING = """Nodes are wired by the names of their fields. Each input comes from the nearest earlier node that outputs
it, else from the first later one, else from the data row. A node that reads and writes the same field refines it.
Independent nodes run at the same time; their speed never decides what is read. The prediction has all fields that
were written. If several nodes write a field, the last one in the file counts, or the node that refined its output.

Every node also takes

- `needs`: a node or a list of nodes that must be done before, though no field passes between them;
- `optional: true`: a failure of this node leaves the fields as they were before it;
- `enabled: false`: the workflow is as if this node were not there.
"""


def folders(package: str) -> list[Path]:
    """The folder of a package of ours, in a list; an empty one for others."""
    return list((ROOT / "plugins").glob(f"*/{package}"))


def load_only_ours() -> None:
    """What else is installed must not get into our docs."""
    ours = [e.name for e in entry_points(group=GROUP) if folders(e.value)]
    os.environ["WORKBENCH_LOAD_PLUGINS"] = ",".join(ours)


def doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "").strip() + "\n"


def workflow_file() -> str:
    rule = get_args(PolicySpec.model_fields["rules"].annotation)[0]
    condition = get_args(rule.model_fields["when"].annotation)[1]
    parts = [
        "# The workflow file\n",
        "Keys in **bold** are enough to start with; all others are advanced, and their defaults are good. Unknown keys "
        "are refused. `workbench validate --schema` prints all of this as JSON Schema.\n",
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
        parts += [f"## {kind}\n", doc(cls), _settings("node_kinds", kind)]
        if cls.learnable:
            parts.append(
                "Optimizers may change: " + ", ".join(f"`{n}` ({w})" for n, w in cls.learnable.items()) + ".\n"
            )
    return "\n".join(parts)


def optimizers() -> str:
    """The few to start with come first."""
    classes = {name: plugins().get("optimizers", name) for name in bundled("optimizers")}
    basic = [name for name, cls in classes.items() if cls.__name__ in BASICS]
    start = (
        "No idea? Leave `optimize:` out, or [choose](../how-to/choose-optimizer.md). These are enough to start with:"
    )
    parts = [
        "# Optimizers\n",
        f"{start} {', '.join(f'[{name}](#{name})' for name in basic)}. All others are advanced.\n",
    ]
    for name in [*basic, *(name for name in classes if name not in basic)]:
        parts += [f"## {name}\n", doc(classes[name]), _settings("optimizers", name)]
    return "\n".join(parts)


def _settings(kind: str, name: str) -> str:
    """A link to the page of the plugin, where the settings stand."""
    place = places()[kind, name]
    return f"[Settings](../../{place}), on the page of the plugin `{place.split('/')[2].removeprefix('workbench_')}`.\n"


def metrics() -> str:
    parts = ["# Metrics\n", "Written as `metric: name(field, option=value)`.\n"]
    for name in bundled("metrics"):
        target = plugins().get("metrics", name)
        signature = str(inspect.signature(target)).replace("'", "")
        parts += [f"## {name}\n", f"`{name}{signature}`\n", doc(target)]
    parts += ["# Data readers\n"]
    parts += [f"`{', '.join(bundled('readers'))}`: each with its options, as delimiter and types of CSV, in"]
    parts += ["[the readers' page](../../plugins/standard/workbench_readers/README.md).\n"]
    return "\n".join(parts)


def gallery() -> str:
    """Each published design of workflows/gallery with its paper, what it is, and its picture."""
    files = sorted((ROOT / "workflows/gallery").glob("*.yaml"))
    beyond = [path.name for path in files if "with it every row fails" in path.read_text(encoding="utf-8")]
    parts = [
        "# Gallery\n",
        "Published agent designs as workflow files, in `workflows/gallery`. All run without a key, on "
        "`bundled/nano`, which knows "
        "a small made-up world of tickets, sums and facts and nothing else. `contest.yaml`, `jury.yaml` and "
        "`graph_of_thoughts.yaml` give "
        f"real results with it. With {', '.join(f'`{name}`' for name in beyond)} every row fails: it writes no plans, "
        "choices and "
        "commands. In the others it finishes nearly all rows and shows which node reads what, but it calls no tool, "
        "builds no team and "
        "registers nothing, and what it writes as plan, search, critique or score has no meaning: where that cannot "
        "be read, the "
        "file says what is done instead. Name a real model for results. Our tests run a scripted model on each "
        "file's own sealed rows: it is right on most of them, and wrong on at least half where the part that the "
        "paper is about is taken out. Not so yet: `agent_poison`, `backdoors`, `gen_rewrite`, `hm_rag`. "
        "Pictures: `workbench show --mermaid FILE`. You are "
        "asked once before a file with tools in Python runs; `workbench trust --folder workflows` answers for all.\n",
    ]
    for path in files:
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
    for name in cli.list_commands(context):
        parts += _all_help(cli, name, f"workbench {name}")
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


def _all_help(group: click.Group, name: str, words: str) -> list[str]:
    """The help of a command of a group, and of the commands below it."""
    command = group.get_command(click.Context(group), name)
    assert command is not None
    parts = _help(command, words)
    if isinstance(command, click.Group):
        for inner in command.list_commands(click.Context(command)):
            parts += _all_help(command, inner, f"{words} {inner}")
    return parts


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


def catalogue() -> str:
    """Each plugin of ours: what it provides, and the first paragraph of its page."""
    parts = [
        "# Catalogue of plugins\n",
        "Everything that a workflow file can name comes from a plugin. These come with workbench. "
        "`workbench plugin list` lists all that are installed.\n",
        "| plugin | provides | what it is |",
        "| --- | --- | --- |",
    ]
    for info in sorted(plugins().infos, key=lambda info: info.module):
        name = info.module
        (folder,) = folders(name)
        text = (folder / "README.md").read_text(encoding="utf-8")
        first = _first_sentence(text)
        provides = [
            f"{kind.replace('_', ' ')}: {', '.join(f'`{n}`' for n in names)}" for kind, names in info.provides.items()
        ]
        rest = [hook.removeprefix("register_").replace("_", " ") for hook in info.hooks if hook.startswith("register_")]
        rest = [kind for kind in rest if kind.replace(" ", "_") not in info.provides]
        shown = "; ".join([*provides, *rest])
        parts.append(
            f"| [{name.removeprefix('workbench_')}](../../{folder.relative_to(ROOT)}/README.md) | {shown} | {first} |"
        )
    return "\n".join(parts) + "\n"


def _first_sentence(page: str) -> str:
    """The first sentence below the title, without links, which lead from another folder."""
    paragraph = " ".join(page.split("\n\n")[1].split())
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph).removeprefix("- ")
    return re.split(r"(?<=[.!?]) (?=[A-Z`*])", plain)[0].rstrip(":").replace("|", "\\|")


PAGES = {
    "workflow-file.md": workflow_file,
    "nodes.md": nodes,
    "optimizers.md": optimizers,
    "metrics.md": metrics,
    "hooks.md": hooks,
    "gallery.md": gallery,
    "cli.md": commands,
    "database.md": database,
    "plugins.md": catalogue,
}


def pages() -> dict[str, str]:
    """All pages by file name."""
    load_only_ours()
    found = {name: HEAD + write() for name, write in PAGES.items()}
    found["works-with.md"] = HEAD + works_with()
    found["agents.md"] = HEAD + agents()
    return found


def schema() -> str:
    """The JSON Schema of workflow files. It is built, for the site and for editors, and not committed."""
    load_only_ours()
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
