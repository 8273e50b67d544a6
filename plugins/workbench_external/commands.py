"""`workbench slots`, `apply` and `gateway`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import indented, one_line, short, visible
from workbench.cli import echo_json, say
from workbench.cli.run_commands import DB, FILE, JSON, OVERWRITE, SET, read_settings

if TYPE_CHECKING:
    from workbench.spec import Source
    from workbench.workflow import ExampleRun, Workflow
    from workbench_external.config import Slot
    from workbench_external.node import External
    from workbench_external.observed import Shown
    from workbench_external.write_back import Entry


@click.command("slots")
@FILE
@click.option("--rows", type=click.IntRange(1), default=4, show_default=True, help="Training rows to run the agent on.")
@click.option("--vendor", is_flag=True, help="Also texts that stand nowhere in the source: a framework's own.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the workflow with its slots to this file.")
@OVERWRITE
@SET
@DB
@JSON
def slots_command(
    file: Path,
    rows: int,
    vendor: bool,
    out: Path | None,
    overwrite: bool,
    sets: tuple[str, ...],
    db: str,
    as_json: bool,
) -> None:
    """Run the agents in FILE on a few rows, and show which of their texts can be replaced.

    A part that varies stands as {{1}}, an input by its name. `optimize` finds the slots of a file without any by
    itself; with --out they can be edited before: delete those that must stay as they are.

    Says for each where it stands in the source, where `workbench apply` writes it, or why it is for the gateway only.
    """
    from workbench.base.files import check_output
    from workbench.cli.trust import require_trust, trust_result
    from workbench.run import prepare
    from workbench.task import write_workflow
    from workbench_external.observed import list_slots, observe_file, with_slots, with_vendors

    source = require_trust(file)
    if out is not None:
        check_output(out, inputs=[file], overwrite=overwrite)
    task = prepare(source, read_settings(sets))[2]
    workflow, runs, spent = observe_file(replace(task, workflow=with_vendors(task.workflow)), file, Path(db), rows)
    found, others = list_slots(workflow, task.workflow)
    if vendor:
        found, others = [*found, *others], []
    workflow = with_slots(task.workflow, workflow, others)
    _tell_rows(runs, file, bool(found or others))
    if not as_json:
        _show_slots(found, others)
    if out is not None:
        write_workflow(task, workflow, out)
        trust_result(source, out)
    say(
        f"{len(found)} slot{'s' * (len(found) != 1)} on {len(runs)} rows; {spent}"
        + (f"; written to {one_line(out)}" if out else ""),
        err=True,
    )
    if as_json:
        echo_json(
            {
                "slots": {one.address: {**one.slot.model_dump(by_alias=True), "where": one.where} for one in found},
                "left_out": {one.address: one.slot.model_dump(by_alias=True) for one in others},
            }
        )


def _tell_rows(runs: Sequence[ExampleRun], file: Path, is_seen: bool) -> None:
    """What failed, and what was asked. Raises SpecError if nothing else came of it. is_seen: whether a text was."""
    from workbench.errors import SpecError
    from workbench_external.observed import describe_calls

    for run in runs:
        if run.failure is not None:
            say(f"row {run.trace.example} failed: {one_line(run.message or run.failure)}", err=True)
    for line in describe_calls(runs):
        say(one_line(line), err=True)
    if not is_seen and all(run.failure is not None for run in runs):
        raise SpecError(
            "every row failed, so that no text of the agent was seen",
            hint=f"Mend what the lines above say. `workbench doctor --ping {one_line(file)}` asks the models alone.",
        )


def _show_slots(found: Sequence[Shown], others: Sequence[Shown]) -> None:
    for one in found:
        say(f"{one_line(one.address)}.text  ({_place_of(one.slot)}; {one.where})")
        say(f"    {indented(visible(one.slot.match))}")
    if others:
        say(f"Left out, as they stand nowhere in the source (--vendor takes them in): {len(others)}")
    for one in others:
        say(f"    {_place_of(one.slot)}: {visible(short(one.slot.match, 80))}")


def _place_of(slot: Slot) -> str:
    words = {"system": "system message", "user": "message of the user", "turn": "message of an example"}
    if slot.in_ == "parameter":
        return f"parameter {one_line(slot.parameter)} of the tool {one_line(slot.name)}"
    if slot.in_ == "field":
        what = f"field {one_line(slot.parameter)}" if slot.parameter else "description"
        return f"{what} of the answer's schema {one_line(slot.name)}"
    return words.get(slot.in_) or f"{slot.in_} {one_line(slot.name)}"


@click.command("apply")
@click.argument("result")
@click.option(
    "--to", "folder", required=True, type=click.Path(path_type=Path, exists=True, file_okay=False), help="Its source."
)
@click.option("--check", is_flag=True, help="Start the agent from a changed copy, and compare what it sends.")
@click.option("--write", is_flag=True, help="Change the files, after such a check; otherwise only the diff is shown.")
@click.option("--unchecked", is_flag=True, help="With --write: without the check, by your word.")
@DB
def apply_command(result: str, folder: Path, check: bool, write: bool, unchecked: bool, db: str) -> None:
    """Write the texts that a run found for an agent back into its source.

    RESULT is the file that `optimize` wrote, or the name of a run. A text is found by what the program reads: in
    Python, JavaScript, TypeScript, JSON, YAML, TOML, notebooks, Markdown and files of templates. Before anything is
    written the agent is started on two rows from a changed copy of its folder, and what it then sends is compared with
    what was proved. No model is asked: a stand-in answers.

    \b
    Exit codes:
      0    every changed text has its place
      1    some have none, or several, or would be sent otherwise: replace them by hand, or use `workbench gateway`
    """
    from workbench.spec import without_user_code
    from workbench_external.apply import describe_changes
    from workbench_external.node import find_agents
    from workbench_external.write_back import NotTried, find_entries, refuse_uncertain, try_entries, write_entries

    folder = folder.resolve()
    source = _asked_about(result, db, called=False)
    with without_user_code("names"):
        workflow, rows = _read_result(source)
        agents = find_agents(workflow)
        entries = find_entries(agents, folder)
        not_tried = ""
        if (check or write) and not unchecked:
            try:
                try_entries(entries, agents, folder, rows)
                if tried := sum(entry.edit is not None for entry in entries):
                    say(f"Tried: the changed agent sends {tried} text{'s' * (tried != 1)} as proved.", err=True)
            except NotTried as why:
                not_tried = str(why)
        if unchecked:
            refuse_uncertain(entries)
        without_text = _without_text(agents)
    written = write_entries(entries)
    say(visible(describe_changes(written, folder)), nl=False)
    _tell_entries(entries, not_tried)
    for name in without_text:
        say(f"{one_line(name)} is no text of the agent: set it in its source by hand.", err=True)
    if write and not not_tried:
        _write_files(written)
    if not entries and not without_text:
        say("No text of an agent was changed.", err=True)
    if not_tried or without_text or any(entry.why and not entry.is_there for entry in entries):
        raise SystemExit(1)


def _tell_entries(entries: Sequence[Entry], not_tried: str) -> None:
    for entry in entries:
        if entry.is_there:
            say(f"{one_line(entry.address)} stands there already.", err=True)
        elif entry.why:
            say(f"{one_line(entry.address)} {entry.why}.", err=True)
        if entry.difference is not None:
            for line in entry.difference.lines():
                say(f"    {visible(line)}", err=True)
    if not_tried:
        say(
            f"Nothing was written: {not_tried}. `--write --unchecked` writes what is certain, by your word.",
            err=True,
        )


def _write_files(written: Mapping[Path, str]) -> None:
    from workbench.errors import StoreError

    for number, (path, text) in enumerate(written.items()):
        try:
            path.write_bytes(text.encode("utf-8"))
        except OSError as error:
            told = f"; {number} of {len(written)} files were changed before it" if number else ""
            raise StoreError(f"{path} cannot be written: {error.strerror}{told}") from None
    say(f"{len(written)} file{'s' * (len(written) != 1)} changed.", err=True)


def _without_text(agents: Mapping[str, External]) -> list[str]:
    """Settings that change what an agent sends, or which model answers, and are no text of it."""
    of_nodes = [
        f"nodes.{name}.{key}"
        for name, node in agents.items()
        for key in ("instructions", "demos", "temperature", "functions", "lm")
        if getattr(node.config, key) not in (None, "", [])
    ]
    return of_nodes + [
        f"nodes.{node}.slots.{name}.{key}"
        for node, agent in agents.items()
        for name, slot in (agent.config.slots or {}).items()
        for key in ("lm", "temperature", "max_tokens")
        if getattr(slot, key) is not None
    ]


def _read_result(source: Source) -> tuple[Workflow, Sequence[Mapping[str, Any]]]:
    """The workflow of a file, and the inputs of some training rows where it has data that can be read."""
    from workbench.errors import WorkbenchError
    from workbench.inference import read_workflow
    from workbench.run import prepare

    workflow = read_workflow(source, [])[2]
    try:
        dataset = prepare(source)[2].dataset
    except WorkbenchError:
        return workflow, []
    return workflow, [*(dataset.train or dataset.val)][:2]


def _asked_about(result: str, db: str, called: bool = True) -> Source:
    """The workflow file of that name, or one with the winner of that run, once the user trusts it. Raises SpecError and
    StoreError. called: its rows are not read."""
    from workbench.cli.trust import require_trust, require_trust_in_run
    from workbench.errors import SpecError
    from workbench.run import read_candidate
    from workbench.store import ReadOnlyStore

    if Path(result).is_file():
        return require_trust(Path(result), called=called)
    if Path(result).suffix in (".yaml", ".yml"):
        raise SpecError(f"there is no file {one_line(result)}", hint="Name a file that `optimize` wrote, or a run.")
    run = require_trust_in_run(result, db)
    store = ReadOnlyStore(db)
    try:
        return read_candidate(store, run)
    finally:
        store.close()


@click.command("gateway")
@click.argument("result")
@click.option("--node", "name", help="The external node whose slots are used, if the file has several.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="0.0.0.0: other machines and containers reach it, with the key.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8322, show_default=True, help="0: any that is free.")
@click.option(
    "--key",
    envvar="WORKBENCH_GATEWAY_KEY",
    help="What agents must send. Default: a new one. Better given as the variable.",
)
@SET
@DB
def gateway_command(
    result: str, name: str | None, host: str, port: int, key: str | None, sets: tuple[str, ...], db: str
) -> None:
    """Answer an agent at a base URL, with its texts replaced as a run found best: in production, without a change of
    the agent.

    RESULT is the file that `optimize` wrote, or the name of a run, whose winner is taken.

    Prints the variables that lead an agent there. Requests and answers pass as they are, streams piece by piece, but
    for the texts of the slots. Nothing is recorded, and no budget holds; all requests pass at once, unless
    lm.concurrency sets a limit. SIGTERM or Ctrl-C ends it: requests in flight end first, for 30 seconds at most; a
    second one ends it at once.
    """
    import asyncio

    from workbench.inference import read_workflow
    from workbench.lm import is_loopback
    from workbench_external.gateway import in_address
    from workbench_external.node import find_agents
    from workbench_external.served import serve_gateway

    spec, _, workflow = read_workflow(_asked_about(result, db), read_settings(sets))
    node = _choose(find_agents(workflow), name, result)

    def ready(variables: dict[str, str], limit: str) -> None:
        for variable, value in variables.items():
            say(f"{variable}={one_line(value)}")
        say(f"The gateway of {one_line(spec.name)} listens.", err=True)
        say(limit, err=True)
        if not is_loopback(f"http://{in_address(host)}"):
            say("Other machines reach it, with the key. What they send is not encrypted on the way.", err=True)
        for slot in (node.config.slots or {}).values():
            if slot.in_ == "file" and slot.text not in (None, slot.match):
                say(f"{one_line(slot.name)} is a file, which passes no gateway: `workbench apply` writes it.", err=True)

    asyncio.run(
        serve_gateway(
            node,
            workflow,
            spec,
            host=host,
            port=port,
            key=(key or "").strip() or None,
            ready=ready,
            log=lambda line: say(one_line(line), err=True),
        )
    )


def _choose(nodes: Mapping[str, External], name: str | None, result: str) -> External:
    """The node of that name, or the only one. Raises SpecError."""
    from workbench.errors import SpecError

    if not nodes or (name is None and len(nodes) > 1) or (name is not None and name not in nodes):
        number = f"{len(nodes)} external node{'s' * (len(nodes) != 1)}"
        raise SpecError(
            f"{one_line(result)} has {number}" + (f", and none is '{name}'" if name else ""),
            hint=f"Name one with --node: {', '.join(nodes)}."
            if nodes
            else "The gateway replaces texts of such a node.",
        )
    return nodes[name or next(iter(nodes))]
