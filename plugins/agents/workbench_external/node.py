"""The `external` node: an existing agent, started for each row, whose model calls pass through our gateway."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from workbench.errors import Defect, NodeError, SpecError
from workbench.runtime import Context
from workbench.spec import (
    PREFIX,
    lm_spec,
    parse_address,
)
from workbench.workflow import NodeKind, SignatureNode, Span, Surroundings, TextRole, Workflow, parse_signature
from workbench_external.a2a import CARDS, CONTEXT, Line, answered, check_talk
from workbench_external.config import ExternalConfig, Slot
from workbench_external.container import WORK, run_in_image
from workbench_external.defects import find_missing_files
from workbench_external.doors import enter_agent, enter_settings
from workbench_external.exchange import (
    check_output,
    command_line,
    environment,
    find_program_folders,
    find_source_folders,
    given_texts,
    in_row,
    read_answer,
    write_inputs,
)
from workbench_external.gateway import GatewaySession
from workbench_external.home import describe_kept_state
from workbench_external.hub import Hub
from workbench_external.process import Finished, last_words, run_program
from workbench_external.service import Row, ask_service, in_time
from workbench_external.session import RowSession
from workbench_external.silent import SilentRows
from workbench_external.slots.cut import cut_slots
from workbench_external.slots.discover import find_slots
from workbench_external.slots.files import replace_files
from workbench_external.slots.patches import Patches
from workbench_external.slots.roles import role_of
from workbench_external.sources.folder import Sources
from workbench_external.started import PORT, Turns, check_service, key_of, start_service

#: Maximum model calls in a row if the file sets no `calls`.
MAX_CALLS = 16
#: Maximum concurrent programs, and our own services, if the file sets no `processes`.
PROGRAMS, SERVICES = 16, 4
#: Failures of a row that are the agent's own.
_OWN = ("exit:", "crash:", "start:", "deadline:", "empty:", "output:", "unparsed:")
#: Differences from how the user starts it.
_STARTED = (
    "It starts in an empty working directory, unless `folder` names one to copy, and has no variables of yours but "
    "those that `env` names."
)
#: The settings of a slot for a system message that optimizers may change.
_OF_SYSTEM = {"text": "text", "lm": "lm", "temperature": "float", "max_tokens": "int"}


class External(SignatureNode):
    """An existing agent in any language, unchanged: a command, a service, a function, an MCP tool or one that speaks
    A2A. Its model calls pass a gateway, which can replace its prompts and tool descriptions."""

    Config = ExternalConfig
    primary = "signature"
    learnable = {
        "instructions": "text",
        "demos": "demos",
        "calls": "int",
        "temperature": "float",
        "lm": "lm",
        "functions": "functions",
    }
    names_temperature = True
    foreign = True
    applied_by = "workbench agent apply {} --write"
    config: ExternalConfig

    def __init__(self, name: str, config: Any, base: Path):
        super().__init__(name, config, base)
        enter_settings(config, self.base)
        self.signature = parse_signature(config.signature)
        self._tell_left_out: Callable[[int], None] = lambda number: None  # set when its first row runs
        check_service(config, self.signature)
        check_talk(config, self.signature)
        self.answered = self.signature if config.a2a is None else answered(self.signature)
        check_output(config, self.answered)
        for key in ("lm", "embedder"):
            if getattr(config, key) is not None:
                lm_spec(getattr(config, key))
        if config.python is not None:
            parse_address(config.python)
        if config.mcp is not None and not all(config.mcp.rpartition("#")[::2]):
            raise SpecError("mcp names no tool", hint="Write COMMAND#TOOL, e.g. python server.py#ask.", path=("mcp",))
        if self.folder is not None and not self.folder.is_dir():
            raise SpecError(f"there is no folder {self.folder}", path=("folder",))
        if config.slots is not None:
            self.learnable = _learnable(config, self.learnable)
        if config.is_stranger:
            self.learnable = {}  # it calls its own models
        if config.a2a is not None:
            self.introduce = self._introduce

    @cached_property
    def folder(self) -> Path | None:
        return None if self.config.folder is None else (self.base / self.config.folder).resolve()

    @cached_property
    def patches(self) -> Patches:
        return Patches(self.config, self.outputs)

    def text_role(self, name: str) -> TextRole:
        parts = name.split(".")
        slot = (self.config.slots or {}).get(parts[1]) if parts[0] == "slots" and len(parts) == 3 else None
        return super().text_role(name) if slot is None else role_of(slot, self.config.slots or {})

    @property
    def max_calls(self) -> int:
        return 0 if self.config.is_stranger else self.config.calls or MAX_CALLS

    @property
    def tools(self) -> Collection[str]:
        """Return the names that are taken: of functions, and of the agent's own tools if known."""
        own = {slot.name for slot in (self.config.slots or {}).values() if slot.in_ in ("tool", "parameter")}
        return own | {*self.tool_names()}

    def tool_names(self) -> Collection[str]:
        return [function.name for function in self.config.functions]

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        return find_missing_files(self.config, self.base, self.folder)

    @property
    def kept_state(self) -> str | None:
        return describe_kept_state(self.config)

    @cached_property
    def _program_folders(self) -> list[Path]:
        return find_program_folders(self.config, self.base.resolve(), self.folder)

    @property
    def source_folder(self) -> Path | None:
        """Return the user's folder with the agent's source, if there is one."""
        return self.folder or next(iter(self._program_folders), None)

    @cached_property
    def sources(self) -> Sources:
        """The files that may contain its texts, as they are now."""
        folders = find_source_folders(self.config, self.base.resolve(), self.folder)
        return Sources(folders, given_texts(self.config))

    @property
    def observed(self) -> bool:
        return self.config.slots is None and not self.config.is_stranger

    def observe(self, runs: Sequence[Sequence[Span]]) -> Mapping[str, Any]:
        seen = [span for spans in runs for span in spans]
        calls, errors = sum(len(span.calls) for span in seen), [span.error for span in seen if span.error]
        if not calls and len(errors) == len(seen) and any(error.startswith(_OWN) for error in errors):
            if any("refused" in span.notes for span in seen):  # the message contains the reason
                raise SpecError(f"the agent failed on each of {len(seen)} rows; {errors[0]}")
            raise SpecError(
                f"the agent failed on each of {len(seen)} rows before it asked a model; {errors[0]}",
                hint=None if self.config.addresses else _STARTED,
            )
        if not calls and len(errors) < len(seen):
            if refused := [span.notes["refused"] for span in seen if "refused" in span.notes]:
                raise SpecError(
                    f"no request of the agent was answered, so that nothing of it can be improved: it {refused[0]}"
                )
            raise SpecError(
                "the agent made no call through the gateway, so that nothing of it can be improved",
                hint="It must read OPENAI_BASE_URL or ANTHROPIC_BASE_URL, as the vendors' clients do; `env` sets other "
                "variables, e.g. MY_URL: $OPENAI_BASE_URL.",
            )
        slots = find_slots(runs, self.folder, self.config.instructions)
        found: dict[str, Any] = {}
        found["slots"], left_out = cut_slots(slots, self.sources, self.config.vendor)
        self._tell_left_out(left_out)
        ended = [spans for spans in runs if spans and all(span.error is None for span in spans)]
        if self.config.calls is None and ended:
            most = max(sum(len(span.calls) for span in spans) for spans in ended)
            found["calls"] = min(MAX_CALLS, max(2 * most, most + 2)) if most <= MAX_CALLS // 2 else MAX_CALLS
        return found

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        hub = await ctx.shared("external", partial(Hub.open, ctx.program.runtime.data_files))
        self._tell_left_out = partial(hub.left_out.__setitem__, ctx.node)
        found = await ctx.recorded("external", [ctx.node, dict(inputs)], lambda: self._run(inputs, ctx, hub))
        ctx.note(**found["notes"])
        if found["failure"] is None and not self.config.is_stranger:
            silent = await ctx.shared("external_silent", SilentRows.open)
            silent.count(ctx.node, len(ctx.span.calls), found["notes"].get("refused", ""))
        hub.count(ctx.node, found["notes"], remembers=bool(self.config.addresses) and self.config.state is None)
        if found["failure"] is not None:
            raise NodeError(found["failure"], found["message"])
        return found["outputs"]

    async def _run(self, inputs: Mapping[str, Any], ctx: Context, hub: Hub) -> dict[str, Any]:
        """Return the outcome of a row, failures of the agent included. Raises failures of models, and run errors."""
        ctx.span.agent = self.name
        if not self.config.addresses:
            async with hub.place_of(ctx.node, self.config.processes or PROGRAMS):
                return await self._run_in_place(inputs, ctx, hub)
        return await self._run_in_place(inputs, ctx, hub)

    async def _run_in_place(self, inputs: Mapping[str, Any], ctx: Context, hub: Hub) -> dict[str, Any]:
        session = RowSession(self.config, self.patches, self.max_calls, inputs, ctx)
        beside = await hub.leftovers.look(self._program_folders)
        secret = hub.gateway.admit(session)
        failure, outputs = None, {}
        try:
            outputs = await self.answer(inputs, session, hub, secret)
        except NodeError as error:
            failure = error
        finally:
            await session.settle()
            await hub.gateway.dismiss(secret)
        notes = await session.notes()
        if left := await asyncio.to_thread(beside.find_changed):
            notes["left_beside"] = left
        if session.error is not None:
            failure = session.error
            if not isinstance(failure, NodeError):
                raise failure
        if session.last is not None and session.last.kind.infrastructure:
            raise session.last  # its behavior in an outage is no evidence about the agent
        told = (None, None) if failure is None else (str(failure.kind), str(failure))
        if failure is not None and "refused" in notes:
            told = (str(failure.kind), f"{failure}; it {notes['refused']}")
        return {"outputs": outputs, "failure": told[0], "message": told[1], "notes": notes}

    async def answer(self, inputs: Mapping[str, Any], session: Row, hub: Hub, secret: str) -> dict[str, Any]:
        """Start the agent on a row, and read its outputs. The session answers requests that carry this secret. Raises
        NodeError."""
        leading = hub.gateway.environment(secret, dict.fromkeys(self.config.env, ""))
        if self.config.a2a is not None:
            async with self._service(session, hub) as addresses:
                return await self._talk(inputs, session, Line(self.config, addresses, hub.cards))
        if self.config.addresses:
            async with self._service(session, hub) as (url,):
                printed = await ask_service(self.config, url, inputs, leading, session)
            return await self.read(printed)
        enter_agent(self.config, self.base, now=True)
        async with hub.workspaces.fresh(self.folder, links=self.config.image is None) as place:
            env = environment(self.config, inputs, leading, place)
            session.missed.update(await asyncio.to_thread(replace_files, place, self._files))
            run = run_program
            if self.config.image is not None:
                assert isinstance(session, RowSession)
                run = partial(run_in_image, self.config.image, session.ctx)
            try:
                ended = await run(
                    self._command(inputs, place),
                    cwd=place,
                    env=env,
                    stdin=write_inputs(self.config, inputs),
                    timeout=self.config.timeout,
                    waited=session.waited,
                    over=session.over,
                )
            except OSError as error:
                raise NodeError("start", f"the agent cannot be started: {error}") from None
            _check_ended(ended, self.config.timeout, place)
            return await self.read(ended.stdout, place)

    async def read(self, printed: bytes, place: Path | None = None) -> dict[str, Any]:
        """Read the outputs of a row. place: its working directory, which may hold them. Raises NodeError."""
        return await asyncio.to_thread(read_answer, self.config, self.signature, printed, place)

    @cached_property
    def _files(self) -> list[tuple[str, Slot]]:
        """The slots that are files in the folder of the agent, by name."""
        return [(name, slot) for name, slot in (self.config.slots or {}).items() if slot.in_ == "file"]

    async def _talk(self, inputs: Mapping[str, Any], session: Row, line: Line) -> dict[str, Any]:
        """Return the outputs of agents that speak A2A: the answer of the one asked, or the cards of all."""
        if self.config.output == CARDS:
            cards = await in_time(self.config, session, line.cards())
            return {self.outputs[0]: [card.document() for card in cards]}
        reply = await line.ask(inputs, session)
        said = reply.text.encode("utf-8", "replace")
        found = await asyncio.to_thread(read_answer, self.config, self.answered, said)
        return {**found, CONTEXT: reply.context} if CONTEXT in self.outputs else found

    async def _introduce(self, ctx: Context) -> str:
        """Describe the agents by their cards, for a model that has them as a tool."""

        async def asked() -> str:
            hub = await ctx.shared("external", partial(Hub.open, ctx.program.runtime.data_files))
            async with self._service(Turns(), hub) as addresses:
                cards = await Line(self.config, addresses, hub.cards).cards()
            told = [card.describe() for card in cards]
            return told[0] if isinstance(self.config.a2a, str) else "\n".join(["Asks one of these agents.", *told])

        return await ctx.effect("card", [self.name, *self.config.addresses], asked)

    @asynccontextmanager
    async def _service(self, session: GatewaySession, hub: Hub) -> AsyncGenerator[list[str]]:
        """Yield the addresses of the service for a row: one that is already running, or one of ours."""
        c = self.config
        enter_agent(c, self.base, now=True)
        if c.command is None:
            yield list(c.addresses)
            return
        name = session.ctx.node if isinstance(session, RowSession) else self.name
        most = (c.processes or SERVICES) if PORT in c.addresses[0] else 1
        services = hub.services_of(name, most, anew=c.state == "fresh")
        starting = partial(start_service, c, self.base, self.folder, self._files, hub.gateway, hub.workspaces)
        async with services.lease(key_of(c, self._files), session, starting) as service:
            if isinstance(session, RowSession):
                session.missed.update(service.missed)
            yield [address.replace(PORT, str(service.port)) for address in c.addresses]

    def _command(self, inputs: Mapping[str, Any], place: Path) -> list[str]:
        """Return the command of a row. Our worker program calls functions and MCP tools."""
        c = self.config
        if c.command is not None:
            return command_line(c, inputs, self.base, self.folder, place if c.image is None else WORK)
        base = str(in_row(self.base.resolve(), self.folder, place))
        worker = [sys.executable, str(Path(__file__).with_name("worker.py"))]
        if c.mcp is not None:
            command, _, tool = c.mcp.rpartition("#")
            return [*worker, "mcp", base, command, tool]
        address = parse_address(str(c.python).removeprefix(PREFIX))
        return [*worker, "python", base, address.module, address.name]


def find_agents(workflow: Workflow) -> dict[str, External]:
    """Return the external nodes of a workflow by address without `nodes.`, including those inside other nodes."""
    found: dict[str, External] = {}

    def walk(address: str, node: NodeKind) -> None:
        if isinstance(node, External):
            found[address] = node
        for name, child in node.children().items():
            walk(f"{address}.{name}", child)

    for name, node in workflow.enabled_nodes.items():
        walk(name, node)
    return found


def _learnable(config: ExternalConfig, always: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that optimizers may change. `instructions` are included only if no system message is known.

    Long texts come first, and messages before descriptions, because an optimizer that tries them in order may not reach
    the last one.
    """
    order = {place: number for number, place in enumerate(("system", "user", "file"))}
    slots = sorted((config.slots or {}).items(), key=lambda one: (order.get(one[1].in_, 3), -len(one[1].match)))
    found = {
        f"slots.{name}.{key}": kind
        for name, slot in slots
        for key, kind in (_OF_SYSTEM if slot.in_ == "system" else {"text": "text"}).items()
    }
    known = any(slot.in_ == "system" for _, slot in slots)
    return {**found, **{key: kind for key, kind in always.items() if key != "instructions" or not known}}


def _check_ended(ended: Finished, timeout: float, place: Path) -> None:
    """Raise NodeError for a program that did not end well. place: its working directory, whose path is left out."""
    said = last_words(ended.stderr.replace(f"{place}/", ""))
    if ended.ended == "timeout":
        raise NodeError("deadline", f"the agent took more than {timeout:g} s{said}")
    if ended.ended == "output":
        raise NodeError("output", f"the agent printed too much{said}")
    if ended.ended == "over":
        raise NodeError("ended", "the row was ended")
    if ended.code is not None and ended.code < 0:
        raise NodeError("crash", f"the agent was killed by signal {-ended.code}{said}")
    if ended.code:
        raise NodeError("exit", f"the agent ended with exit code {ended.code}{said}")
