"""Commands for a project: init, doctor, plugins, plugin new, schema."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import asdict
from pathlib import Path

import click

from workbench.cli import Styled, echo_json, fail, say
from workbench.text import indented, one_line

_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")

_TEMPLATE = """\
# All settings: docs/reference/workflow-file.md, or `workbench schema`.
name: my-workflow
lm: bundled/nano                # or openai/gpt-4.1-mini, or {model: openai/NAME, api_base: http://127.0.0.1:8000/v1}
data: {file: rows.jsonl, split: {train: 30, val: 60, test: 150}, seed: 0}
metric: exact_match(label)
nodes:
  sort:
    predict: "text -> label: Literal['billing', 'shipping', 'technical', 'returns']"
    instructions: Classify the ticket.
search:
  nodes.sort.instructions:
    - Classify the ticket.
    - Route the ticket by the current problem.
    - Sort the support ticket by topic.
  nodes.sort.demos: {demos: 4}
optimize: [{optuna: {trials: 10}}]
budget: {calls: 1200}
"""


@click.command("init")
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init_command(folder: Path) -> None:
    """Write a starter workflow.yaml, and a rows.jsonl to try it with."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("workflow.yaml", _TEMPLATE), ("rows.jsonl", _rows())):
        if (folder / name).exists():
            fail(f"{folder / name} already exists; choose another folder", 2)
        (folder / name).write_text(text, encoding="utf-8")
        say(f"wrote {folder / name}")
    say(f"Next: workbench validate {folder / 'workflow.yaml'}, then replace rows.jsonl with your own rows.")


def _rows() -> str:
    """Made-up tickets as JSON lines, to try the file right away. Each has an open problem and a solved one.

    No two differ in one thing alone: a near copy of a training row is left out of the test.
    """
    things = {
        "billing": ["invoice", "payment", "receipt", "discount", "fee"],
        "shipping": ["parcel", "delivery", "courier", "package", "address"],
        "technical": ["screen", "battery", "app", "camera", "keyboard"],
        "returns": ["refund", "exchange", "warranty", "voucher", "repair"],
    }
    troubles = ["is wrong", "does not work", "is still missing", "came too late", "is not clear"]
    labels = list(things)
    rows, taken, draw = list[dict[str, str]](), set[tuple[str, ...]](), random.Random(0)
    while len(rows) < 240:
        label = labels[len(rows) % 4]
        other = draw.choice([name for name in labels if name != label])
        open_, solved = draw.choice(things[label]), draw.choice(things[other])
        first, second = draw.choice(troubles), draw.choice(troubles)
        form = "{asks} . {done}" if len(rows) % 3 == 0 else "{done} . {asks}"
        words = {("open", open_, first, second, form), ("solved", solved, first, second, form)}
        if words & taken:
            continue
        taken |= words
        asks = f"please help , my {open_} {first}"
        done = f"last month the {solved} {second} but that is solved"
        rows.append({"text": form.format(asks=asks, done=done), "label": label})
    return "".join(json.dumps(row) + "\n" for row in rows)


@click.command("plugins")
@_JSON
def plugins_command(as_json: bool) -> None:
    """List the plugins: version, what each provides, and why any was set aside."""
    from workbench.plugins import KINDS, plugins, try_imports

    try_imports()
    infos = sorted(plugins().infos, key=lambda info: info.name)
    if as_json:
        return echo_json([asdict(info) for info in infos])
    for info in infos:
        name = one_line(f"{info.name} ({info.distribution} {info.version})")
        if info.error:
            say(f"{name}: ", Styled(f"set aside: {one_line(info.error)}", fg="red"))
            continue
        say(name)
        for kind, names in info.provides.items():
            say(one_line(f"  {KINDS[kind]}: {', '.join(names)}"))


@click.group("plugin")
def plugin_command() -> None:
    """Create your own plugins."""


@plugin_command.command("new")
@click.argument("name")
@click.option(
    "--into", default=".", type=click.Path(path_type=Path, file_okay=False), help="Parent folder of the project."
)
def plugin_new(name: str, into: Path) -> None:
    """Write an optimizer plugin project, ready to install, with a passing test."""
    from workbench.cli.scaffold import new_plugin

    folder = new_plugin(name, into)
    say(f"wrote {folder}")
    say(f"Next: pip install -e '{folder}[test]' && python -m pytest {folder}")


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of workflow files, for editors. It covers the installed plugins."""
    from workbench.cli.file_schema import json_schema

    echo_json(json_schema(), indent=2)


@click.command("doctor")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@_JSON
def doctor_command(file: Path | None, as_json: bool) -> None:
    """Check the installation, and show where each setting of FILE comes from."""
    from workbench.run import find_origins, run_checks

    found = run_checks()
    settings = find_origins(file) if file else []
    if as_json:
        return echo_json({"checks": [asdict(c) for c in found], "settings": [asdict(s) for s in settings]})
    for check in found:
        mark = {"ok": Styled("ok  ", "green"), "warn": Styled("warn", "yellow"), "fail": Styled("FAIL", "red")}
        say(mark[check.status], f"  {one_line(check.name)}: {indented(check.message)}")
    for setting in settings:
        say(one_line(f"{setting.address} = {setting.value}   ({setting.origin})"))
    if any(c.status == "fail" for c in found):
        sys.exit(1)
