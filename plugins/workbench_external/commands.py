"""`workbench slots`, `apply` and `gateway`."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli import echo_json, say
from workbench.cli.run_commands import DB, FILE, JSON, OVERWRITE, SET, read_settings
from workbench.text import indented, one_line, visible

if TYPE_CHECKING:
    from workbench.spec import Source
    from workbench.workflow import Workflow
    from workbench_external.config import Slot
    from workbench_external.node import External


@click.command("slots")
@FILE
@click.option("--rows", type=click.IntRange(1), default=4, show_default=True, help="Training rows to run the agent on.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the workflow with its slots to this file.")
@OVERWRITE
@SET
@DB
@JSON
def slots_command(
    file: Path, rows: int, out: Path | None, overwrite: bool, sets: tuple[str, ...], db: str, as_json: bool
) -> None:
    """Run the agents in FILE on a few rows, and show which of their texts can be replaced.

    A part that varies stands as {{1}}, an input by its name. `optimize` finds the slots of a file without any by
    itself; with --out they can be edited before: delete those that must stay as they are.
    """
    from workbench.cli.trust import require_trust, trust_result
    from workbench.files import check_output
    from workbench.run import prepare
    from workbench.task import write_workflow
    from workbench_external.observed import describe_calls, observe_file

    source = require_trust(file)
    if out is not None:
        check_output(out, inputs=[file], overwrite=overwrite)
    task = prepare(source, read_settings(sets))[2]
    workflow, runs, spent = observe_file(task, file, Path(db), rows)
    found = list(_external_slots(workflow))
    for run in runs:
        if run.failure is not None:
            say(f"row {run.trace.example} failed: {one_line(run.message or run.failure)}", err=True)
    for line in describe_calls(runs):
        say(one_line(line), err=True)
    for node, name, slot in () if as_json else found:
        say(f"nodes.{node}.slots.{name}.text  ({_place_of(slot)})")
        say(f"    {indented(visible(slot.match))}")
    if out is not None:
        write_workflow(task, workflow, out)
        trust_result(source, out)
    say(
        f"{len(found)} slot{'s' * (len(found) != 1)} on {len(runs)} rows; {spent}"
        + (f"; written to {one_line(out)}" if out else ""),
        err=True,
    )
    if as_json:
        echo_json({"slots": {f"nodes.{n}.slots.{name}": s.model_dump(by_alias=True) for n, name, s in found}})


def _external_slots(workflow: Workflow) -> Any:
    """(name of the node, name of the slot, slot) of each slot of a workflow."""
    from workbench_external.node import find_agents

    for name, node in find_agents(workflow).items():
        yield from ((name, slot, value) for slot, value in (node.config.slots or {}).items())


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
@click.option("--write", is_flag=True, help="Change the files; otherwise only the diff is shown.")
@DB
def apply_command(result: str, folder: Path, write: bool, db: str) -> None:
    """Write the texts that a run found for an agent back into its source.

    RESULT is the file that `optimize` wrote, or the name of a run. Texts are found where they stand literally: in
    strings of Python (also f-strings and templates of str.format), in other code and data as whole literals, and in
    prose. One that stands in several places is left alone.

    \b
    Exit codes:
      0    every changed text has its place
      1    some have none, or several: replace them by hand, or use `workbench gateway`
    """
    from workbench_external.apply import describe_changes, find_places, write_places

    folder = folder.resolve()
    workflow = _read_result(result, db)
    changed = [found for found in _external_slots(workflow) if found[2].text not in (None, found[2].match)]
    places = {f"nodes.{node}.slots.{name}": find_places(slot, folder) for node, name, slot in changed}
    written = write_places([found[0] for found in places.values() if len(found) == 1])
    say(visible(describe_changes(written, folder)), nl=False)
    if write:
        _write_files(written)
    there = {f"nodes.{node}.slots.{name}" for node, name, slot in changed if find_places(_turned(slot), folder)}
    for name in (name for name, found in places.items() if not found and name in there):
        say(f"{one_line(name)} stands there already.", err=True)
    left = [n for n, found in places.items() if len(found) > 1 or not (found or n in there)] + _without_text(workflow)
    for name in left:
        found = ", ".join(sorted({str(place.path.relative_to(folder)) for place in places.get(name, ())}))
        where = f"stands in several places ({one_line(found)})" if found else f"stands nowhere in {one_line(folder)}"
        say(f"{one_line(name)} {where} literally.", err=True)
    if not changed and not left:
        say("No text of an agent was changed.", err=True)
    if left:
        raise SystemExit(1)


def _turned(slot: Slot) -> Slot:
    """The slot that would take its text back."""
    return slot.model_copy(update={"match": slot.text, "text": slot.match})


def _write_files(written: Mapping[Path, str]) -> None:
    from workbench.errors import StoreError

    for number, (path, text) in enumerate(written.items()):
        try:
            path.write_bytes(text.encode("utf-8", "replace"))
        except OSError as error:
            told = f"; {number} of {len(written)} files were changed before it" if number else ""
            raise StoreError(f"{path} cannot be written: {error.strerror}{told}") from None
    say(f"{len(written)} file{'s' * (len(written) != 1)} changed.", err=True)


def _without_text(workflow: Workflow) -> list[str]:
    """Settings that change what an agent sends, or which model answers, and are no text of it."""
    from workbench_external.node import find_agents

    of_nodes = [
        f"nodes.{name}.{key}"
        for name, node in find_agents(workflow).items()
        for key in ("instructions", "demos", "temperature", "functions", "lm")
        if getattr(node.config, key) not in (None, "", [])
    ]
    return of_nodes + [
        f"nodes.{node}.slots.{name}.{key}"
        for node, name, slot in _external_slots(workflow)
        for key in ("lm", "temperature", "max_tokens")
        if getattr(slot, key) is not None
    ]


def _read_result(result: str, db: str) -> Workflow:
    from workbench.inference import read_workflow
    from workbench.user_code import without_user_code

    with _asked_about(result, db) as source, without_user_code("names"):
        return read_workflow(source, [])[2]


@contextmanager
def _asked_about(result: str, db: str) -> Generator[Source]:
    """The workflow file of that name, or one with the winner of that run, once the user trusts it. Raises SpecError and
    StoreError."""
    from workbench.cli.trust import require_trust, require_trust_in_run
    from workbench.errors import SpecError
    from workbench.run import export_candidate
    from workbench.spec import load_yaml_file
    from workbench.store import ReadOnlyStore

    if Path(result).is_file():
        yield require_trust(Path(result), called=True)
        return
    if Path(result).suffix in (".yaml", ".yml"):
        raise SpecError(f"there is no file {one_line(result)}", hint="Name a file that `optimize` wrote, or a run.")
    store, run = ReadOnlyStore(db), require_trust_in_run(result, db)
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "result.yaml"
            export_candidate(store, run, None, "yaml", file)
            yield load_yaml_file(file)
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
    lm.concurrency sets a limit. SIGTERM or Ctrl-C ends it: requests in flight end first, for 30 seconds at most.
    """
    import asyncio

    from workbench.inference import read_workflow
    from workbench.lm import is_loopback
    from workbench_external.node import find_agents
    from workbench_external.served import serve_gateway

    with _asked_about(result, db) as source:
        spec, _, workflow = read_workflow(source, read_settings(sets))
    node = _choose(find_agents(workflow), name, result)

    def ready(variables: dict[str, str], limit: str) -> None:
        for variable, value in variables.items():
            say(f"{variable}={one_line(value)}")
        say(f"The gateway of {one_line(spec.name)} listens.", err=True)
        say(limit, err=True)
        if not is_loopback(f"http://{host}"):
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
