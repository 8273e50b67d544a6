"""`workbench agent slots`, `apply` and `gateway`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import indented, one_line, short, visible
from workbench.cli import echo_json, say
from workbench.cli.options import DB, FILE, JSON, OVERWRITE, SET, read_settings

if TYPE_CHECKING:
    from workbench.spec import Source
    from workbench.workflow import ExampleRun, Workflow
    from workbench_external.node import External
    from workbench_external.observed import Shown
    from workbench_external.write_back import Entry


@click.command("init")
@click.argument("agent", nargs=-1, required=True)
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Rows: inputs, and the right answer.")
@click.option("--label", "--output", "label", help="Column with the right answer. [default: one named like one]")
@click.option("--out", type=click.Path(path_type=Path), help="[default: workflow.yaml in the agent's folder]")
@click.option("--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds of a start.")
@OVERWRITE
@click.option("-q", "--quiet", is_flag=True, help="Show no progress and no warnings.")
def init_agent_command(agent: tuple[str, ...], quiet: bool, **options: Any) -> None:
    """Write a workflow file for an agent, by starting it on a row.

    AGENT is its file (agent.py), a function (agent.py:answer), or behind `--` the command that starts it. It is started
    in one way after the other until the text of the row reaches a request to its model. A stand-in answers in place of
    the model, with the row's label, so nothing is paid and no key is needed. The file is trusted as it is written.
    """
    from workbench.cli.trust import trust_file
    from workbench_external.init.begin import begin

    begun = begin(agent, **options, tell=lambda line: None if quiet else say(one_line(line), err=True))
    file = one_line(begun.file)
    trust_file(begun.file)
    if not quiet:
        say(f"wrote {file}, and trusted it as it is; {begun.starts} starts of the agent, no call was paid", err=True)
    for warning in () if quiet else begun.warnings:
        say(one_line(warning), err=True, fg="yellow")
    say(f"Next: workbench optimize {file} --out {one_line(begun.file.with_name('better.yaml'))}")


@click.command("slots")
@FILE
@click.option(
    "-n",
    "--rows",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Number of train rows to run the agent on.",
)
@click.option("--vendor", is_flag=True, help="Include texts of the framework, which are not in the source.")
@click.option("--out", type=click.Path(path_type=Path), help="Output file for the workflow with its slots.")
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
    """Show which texts of an agent can be replaced.

    Runs the agents in FILE on a few rows. Varying parts appear as {{1}}, inputs by name. Each slot is shown with its
    place in the source, where `workbench agent apply` writes it, or with the reason why only the gateway can replace
    it. `optimize` finds the slots by itself. To exclude some, write the workflow with --out and delete them there.
    """
    from workbench.base.files import check_output
    from workbench.cli.trust import require_trust, trust_result
    from workbench.run import prepare
    from workbench.task import write_workflow
    from workbench_external.observed import list_slots, observe_file, with_slots, with_vendors

    settings = read_settings(sets)
    source = require_trust(file, settings)
    if out is not None:
        check_output(out, inputs=[file], overwrite=overwrite)
    task = prepare(source, settings)[2]
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
    """Report failed rows and the models that were called. Raises SpecError if no text of the agent was seen."""
    from workbench.errors import SpecError
    from workbench_external.observed import describe_calls

    for run in runs:
        if run.failure is not None:
            say(f"row {run.trace.example} failed: {one_line(run.message or run.failure)}", err=True)
    for line in describe_calls(runs):
        say(one_line(line), err=True)
    if not is_seen and all(run.failure is not None for run in runs):
        raise SpecError(
            "every row failed, so no text of the agent was seen",
            hint=f"Fix the errors above. `workbench doctor --ping {one_line(file)}` checks the models alone.",
        )


def _show_slots(found: Sequence[Shown], others: Sequence[Shown]) -> None:
    from workbench_external.observed import describe_place

    for one in found:
        say(f"{one_line(one.address)}.text  ({describe_place(one.slot)}; {one.where})")
        say(f"    {indented(visible(one.slot.match))}")
    if others:
        say(f"Left out, as they are not in the source (--vendor includes them): {len(others)}")
    for one in others:
        say(f"    {describe_place(one.slot)}: {visible(short(one.slot.match, 80))}")


@click.command("apply")
@click.argument("result")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the agent's source. [default: the one that it is started from]",
)
@click.option("--check", is_flag=True, help="Run the agent from a changed copy and compare its requests.")
@click.option("--write", is_flag=True, help="Check, then change the files. Without it, only the diff is shown.")
@click.option("--unchecked", is_flag=True, help="With --write: skip the check.")
@DB
def apply_command(result: str, folder: Path | None, check: bool, write: bool, unchecked: bool, db: str) -> None:
    """Write improved texts back into the source of an agent.

    RESULT is a file that `optimize` wrote, or a run. Texts are found in Python, JavaScript, TypeScript, shell,
    makefiles, JSON, YAML, TOML, INI, XML, CSV, .env, notebooks, Markdown, plain text and template files. Before
    anything is written, the agent runs on two rows from a changed copy of its folder, and its requests are compared
    with the proven ones; a line tells each trial. No model is called: a stand-in answers.

    \b
    Exit codes:
      0    every changed text has its place
      1    some texts have no unique place, or would be sent differently: replace them by hand, or use
           `workbench agent gateway`
    """
    from workbench_external.apply import describe_changes, find_changed
    from workbench_external.node import find_agents
    from workbench_external.write_back import NotTried, find_entries, refuse_uncertain, try_entries, write_entries

    source = _asked_about(result, db, called=False)
    workflow, rows = _read_result(source)
    agents = find_agents(workflow)
    folder = (folder or _source_folder(agents)).resolve()
    entries = find_entries(agents, folder)
    not_tried = ""
    if (check or write) and not unchecked:
        try:
            try_entries(entries, agents, folder, rows, lambda line: say(one_line(line), err=True))
            if tried := sum(bool(entry.edits) for entry in entries):
                say(f"Checked: the changed agent sends {tried} text{'s' * (tried != 1)} as proved.", err=True)
        except NotTried as why:
            not_tried = str(why)
    if unchecked:
        refuse_uncertain(entries)
    without_text = _without_text(agents)
    written = write_entries(entries)
    say(visible(describe_changes(written, folder)), nl=False, verbatim=True)
    _tell_entries(entries, not_tried)
    for name in without_text:
        say(f"{one_line(name)} is not a text of the agent: set it in the source by hand.", err=True)
    if write and not not_tried:
        _write_files(written, find_changed(edit for entry in entries for edit in entry.edits))
    if not entries and not without_text:
        say("No text of an agent was changed.", err=True)
    if not_tried or without_text or any(entry.why and not entry.is_there for entry in entries):
        raise SystemExit(1)


def _source_folder(agents: Mapping[str, External]) -> Path:
    """Return the folder with the source of the agents. Raises SpecError if there is none, or several."""
    from workbench.errors import SpecError

    found = {folder for agent in agents.values() if (folder := agent.source_folder) is not None}
    if len(found) != 1:
        told = "several folders" if found else "no folder"
        raise SpecError(f"the source of the agents lies in {told}", hint="Name one: --to FOLDER.")
    return found.pop()


def _tell_entries(entries: Sequence[Entry], not_tried: str) -> None:
    for entry in entries:
        if entry.is_there:
            say(f"{one_line(entry.address)} is already there.", err=True)
        elif entry.why:
            say(f"{one_line(entry.address)} {entry.why}.", err=True)
        if entry.difference is not None:
            for line in entry.difference.lines():
                say(f"    {visible(line)}", err=True)
    if not_tried:
        say(
            f"Nothing was written: {not_tried}. `--write --unchecked` writes the unambiguous texts without a check.",
            err=True,
        )


def _write_files(written: Mapping[Path, str], changed: Sequence[Path]) -> None:
    from workbench.errors import StoreError

    if changed:
        raise StoreError(f"{changed[0]} was changed after it was read, so nothing was written: run the command again")
    for number, (path, text) in enumerate(written.items()):
        try:
            path.write_bytes(text.encode("utf-8"))
        except OSError as error:
            told = f"; {number} of {len(written)} files were changed before it" if number else ""
            raise StoreError(f"{path} cannot be written: {error.strerror}{told}") from None
    told = (
        " Start the agent as before. To improve it further, trust its workflow file again: `workbench trust FILE`."
        if written
        else ""
    )
    say(f"{len(written)} file{'s' * (len(written) != 1)} changed.{told}", err=True)


def _without_text(agents: Mapping[str, External]) -> list[str]:
    """List the settings that change an agent's requests or model but are not texts in its source."""
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
    """Read the workflow of a file, and the inputs of some train rows if its data can be read. Runs no Python."""
    from workbench.errors import WorkbenchError
    from workbench.inference import read_workflow
    from workbench.run import prepare

    workflow = read_workflow(source, [], "unread")[2]
    try:
        dataset = prepare(source, code="unread")[2].dataset
    except WorkbenchError:
        return workflow, []
    return workflow, [*(dataset.train or dataset.val)][:2]


def _asked_about(result: str, db: str, called: bool = True) -> Source:
    """Return the workflow file of that name, or the winner of that run as one, once the user trusts it.

    called: False if no rows are read. Raises SpecError and StoreError.
    """
    from workbench.cli.trust import require_trust, require_trust_in_run
    from workbench.errors import SpecError
    from workbench.run import read_candidate
    from workbench.store import ReadOnlyStore

    if Path(result).is_file():
        return require_trust(Path(result), called=called)
    if Path(result).suffix in (".yaml", ".yml"):
        raise SpecError(f"there is no file {one_line(result)}", hint="Name a file that `optimize` wrote, or a run.")
    run = require_trust_in_run(result, db)
    with ReadOnlyStore(db) as store:
        return read_candidate(store, run)


@click.command("gateway")
@click.argument("result")
@click.option("--node", "name", help="External node to serve, if the file has several.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. 0.0.0.0: reachable from other machines and containers.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8322, show_default=True, help="Port. 0: any free port.")
@click.option(
    "--key",
    envvar="WORKBENCH_GATEWAY_KEY",
    show_envvar=True,
    help="API key that agents must send: 24 to 200 letters, digits, '-' and '_'. [default: a new one]",
)
@SET
@DB
def gateway_command(
    result: str, name: str | None, host: str, port: int, key: str | None, sets: tuple[str, ...], db: str
) -> None:
    """Serve improved texts to an unchanged agent.

    RESULT is a file that `optimize` wrote, or a run. The agent calls its models through this server, which replaces the
    texts of its slots and passes everything else on unchanged, streams included.

    Prints the environment variables that point an agent to the server. Nothing is recorded, and no budget applies.
    Concurrency is unlimited unless lm.concurrency is set. SIGTERM or Ctrl-C stops it after running requests, or after
    30 seconds; a second one stops it at once.
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
        address = variables["OPENAI_BASE_URL"].removesuffix("/v1")
        say(f"The gateway of {one_line(spec.name)} is listening at {one_line(address)}.", err=True)
        say(limit, err=True)
        if not is_loopback(f"http://{in_address(host)}"):
            say("Other machines can reach it with the key. Their requests are not encrypted.", err=True)
        for slot in (node.config.slots or {}).values():
            if slot.in_ == "file" and slot.text not in (None, slot.match):
                say(
                    f"{one_line(slot.name)} is a file; the gateway cannot replace it: use `workbench agent apply`.",
                    err=True,
                )

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
    """Return the node of that name, or the only one. Raises SpecError."""
    from workbench.errors import SpecError

    if not nodes or (name is None and len(nodes) > 1) or (name is not None and name not in nodes):
        number = f"{len(nodes)} external node{'s' * (len(nodes) != 1)}"
        raise SpecError(
            f"{one_line(result)} has {number}" + (f", and none is '{name}'" if name else ""),
            hint=f"Name one with --node: {', '.join(nodes)}."
            if nodes
            else "The gateway replaces the texts of an external node.",
        )
    return nodes[name or next(iter(nodes))]
