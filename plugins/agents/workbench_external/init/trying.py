"""Starts an agent in one way after the other, until a row's text reaches a request and its answer is found."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.base.text import one_line
from workbench.errors import SpecError
from workbench_external.config import ExternalConfig
from workbench_external.hub import Hub
from workbench_external.init.columns import Columns, Row
from workbench_external.init.errors import never_asked, never_read
from workbench_external.init.hints import Hints, choose_environment
from workbench_external.init.places import (
    Form,
    find_answer,
    find_arrived,
    find_constant,
    forms_of_answer,
    has_whole_json,
)
from workbench_external.init.program import Program
from workbench_external.init.ways import (
    Way,
    ended_way,
    first_ways,
    key_way,
    one_key_way,
    option_ways,
    options_in_help,
    rarer_ways,
)
from workbench_external.init.witness import Outcome, Watched, start
from workbench_kit.answers import as_text

#: Rows to run to find slots, as in `workbench agent slots`; programs to run at once.
_ROWS, _AT_ONCE = 4, 2
_ABOUT_IMPORTS = re.compile(r"ModuleNotFound|ImportError|MODULE_NOT_FOUND|Cannot find (?:module|package)|SyntaxError")
#: Rows from which the one to try is chosen; hanging starts before giving up.
_CHOSEN_FROM, _MAX_HANGS = 50, 2
#: Minimum characters of a row's text that cannot occur in a prompt by chance.
_DISTINCT = 20


@dataclass(frozen=True)
class Found:
    """The way that works for an agent, and its results.

    outcome: of the start that showed it. output: the setting; output_by: how it was found. slots, calls: the settings
    of that name, if known. starts: the number of starts.
    """

    way: Way
    folder: Path | None
    outcome: Outcome
    output: str = "text"
    output_by: str = ""
    is_answer_found: bool = False
    slots: Mapping[str, Any] = field(default_factory=dict[str, Any])
    calls: int | None = None
    starts: int = 0


#: Characters of a failure on the line of its start, and what stands before the error in a Python program's last words.
_BRIEF = 100
_AROUND = re.compile(r'the agent ended with exit code \d+; it said: (File "[^"]*", line \d+, in \S+ )?')


class Trying:
    """The attempts for an agent. tell: takes a line for each start."""

    def __init__(
        self,
        program: Program,
        columns: Columns,
        rows: Sequence[Row],
        hints: Hints,
        timeout: float,
        tell: Callable[[str], None],
        data: Path,
    ):
        self.program, self.columns, self.hints, self.timeout, self.tell = program, columns, hints, timeout, tell
        labelled = [row for row in rows if row.get(columns.label) not in (None, "")] or [*rows]
        self.rows = sorted(labelled[:_CHOSEN_FROM], key=lambda row: -min(500, len(as_text(row.get(columns.main)))))
        self.env = choose_environment(hints)
        self.data = data.resolve()
        self.form: Form = as_text  # of answers that the agent reads
        self.starts, self._tried = 0, list[tuple[Way, Outcome]]()
        self._told = set[tuple[str, str]]()

    async def find(self) -> Found:
        """Try the ways. Raises SpecError with what was observed, and what to write by hand."""
        hub = await Hub.open(frozenset([self.data]))
        try:
            found = await self._find_answer(hub, await self._find_way(hub))
            return replace(await self._find_slots(hub, found), starts=self.starts)
        finally:
            await hub.aclose()

    async def _find_way(self, hub: Hub) -> Found:
        first = list[tuple[Way, Outcome]]()
        for folder in self.program.folders:
            self._tried = []
            self.tell(f"in {'an empty folder' if folder is None else f'a copy of {folder}'}:")
            found = await self._find_way_in(hub, folder)
            if found is not None:
                return found
            if any(outcome.asks for _, outcome in self._tried):
                raise never_read(self.program, self.columns, self._tried)
            first = first or self._tried
        raise never_asked(self.program, self.hints, first, self.data.name)

    async def _find_way_in(self, hub: Hub, folder: Path | None) -> Found | None:
        whole: Found | None = None
        for way in first_ways(self.program, self.columns, self.hints):
            found = await self._try(hub, folder, way)
            if found is not None and not (way.stdin == "json" and has_whole_json(found.outcome)):
                return await self._ended(hub, found)
            whole = whole or found
            if whole is None and self._is_broken():
                return None
        if whole is not None or self.program.function:
            return whole
        if (key := await self._find_key(hub, folder)) is not None:
            return await self._try(hub, folder, one_key_way(self.columns, key))
        if any(outcome.asks for _, outcome in self._tried) or self.hints.arguments:
            helped = await self._start(hub, folder, Way("--help", "none", {}, ("--help",)), self.rows[0])
            for way in option_ways(options_in_help(helped.printed), self.columns):
                if (found := await self._try(hub, folder, way)) is not None:
                    return found
        for way in rarer_ways(self.columns, self.hints, folder):
            if (found := await self._try(hub, folder, way)) is not None:
                return found
        return None

    async def _ended(self, hub: Hub, found: Found) -> Found:
        """Return a way that ends the conversation, for an agent that fails when its input ends."""
        words = self.hints.quits if found.way.stdin == "text" and not found.outcome.ended_well else ()
        for word in words[:1]:
            again = await self._try(hub, found.folder, ended_way(found.way, word))
            if again is not None and again.outcome.ended_well:
                return again
        return found

    def _reads_rows(self, outcome: Outcome) -> bool:
        """Return True if the requests contain most other rows too: the agent reads their file itself."""
        others = [as_text(row.get(self.columns.main)) for row in self.rows[1:6]]
        read = sum(any(text in said for said in outcome.texts) for text in others if len(text) > _DISTINCT)
        return read > max(2, len(others) / 2)

    def _is_broken(self) -> bool:
        """Return True if it failed twice with the same message, which is not about an input."""
        failures = [str(outcome.failure) for _, outcome in self._tried if not outcome.ended_well]
        return len(failures) == 2 and len({*failures}) == 1 and bool(_ABOUT_IMPORTS.search(failures[0]))

    async def _find_key(self, hub: Hub, folder: Path | None) -> str | None:
        """Return the JSON key for the agent's input, if it differs from the names of the columns."""
        told = " ".join(str(outcome.failure) for way, outcome in self._tried if way.stdin == "json")
        if (way := key_way(self.columns, self.hints, told)) is None:
            return None
        text = as_text(self.rows[0].get(self.columns.main))
        marked = {key: f"{text} ({key})" for key in way.inputs}
        outcome = await self._start(hub, folder, way, {}, marked)
        read = [key for key in marked if any(f"({key})" in text for text in outcome.texts)]
        return read[0] if len(read) == 1 else None

    async def _try(self, hub: Hub, folder: Path | None, way: Way) -> Found | None:
        outcome = await self._start(hub, folder, way, self.rows[0])
        self._tried.append((way, outcome))
        if outcome.failure is not None and outcome.failure.kind == "start":
            raise SpecError(one_line(str(outcome.failure)), hint="Name the command as you start it in a shell.")
        hung = sum(one.failure is not None and one.failure.kind == "deadline" for _, one in self._tried)
        arrived = {n for n in find_arrived(outcome) if way.inputs[n] == self.columns.main}
        told = "the row's text reached its request" if arrived else _describe(outcome)
        if arrived and self._reads_rows(outcome):
            arrived, told = set(), "it asked for other rows, too: it reads their file itself"
        if (way.told, told) not in self._told:  # the same in another folder is said once
            self._told.add((way.told, told))
            self.tell(f"{way.told}: {told}")
        if hung >= _MAX_HANGS and not outcome.asks:
            raise never_asked(self.program, self.hints, self._tried, self.data.name)
        return Found(way, folder, outcome) if arrived else None

    async def _find_answer(self, hub: Hub, found: Found) -> Found:
        """Find the place of the answer. For an agent that needs a certain form, answers in such forms are tried."""
        row, label, field_ = self.rows[0], self._label(self.rows[0]), self._node(found).signature.outputs[0]
        known = [self.columns.output, *(key for key in self.hints.keys if key not in self.columns.others)]
        outcomes = [found.outcome]
        place = find_answer(found.outcome, label, field_)
        for told, form in forms_of_answer(found.outcome, known) if place is None else ():
            outcome = await self._start(hub, found.folder, found.way, row, form=form)
            place = find_answer(outcome, label, field_)
            self.tell(f"an answer {told}: {'came out' if place else _describe(outcome)}")
            outcomes.append(outcome)
            if place is not None:
                self.form = form
                break
        outcome = outcomes[-1] if place else next((one for one in outcomes if one.ended_well), outcomes[0])
        if place is not None:
            return replace(found, outcome=outcome, output=place[0], output_by=place[1], is_answer_found=True)
        seen = one_line(outcome.printed.strip()[-80:]) or one_line(str(outcome.failure))
        return replace(found, outcome=outcome, output_by=f"NOT FOUND: a guess. A stand-in's answer ended in: {seen}")

    async def _find_slots(self, hub: Hub, found: Found) -> Found:
        """Run some rows as a search would, with the inputs that the agent used, to find slots."""
        found = replace(found, way=await self._used(hub, found))
        limit = asyncio.Semaphore(_AT_ONCE)

        async def run(row: Row) -> Outcome:
            async with limit:
                return await self._start(hub, found.folder, found.way, row, output=found.output, form=self.form)

        outcomes = await asyncio.gather(*(run(row) for row in self.rows[:_ROWS]))
        shown = self._node(found).observe([[one.span] for one in outcomes])
        failed = sum(not one.ended_well for one in outcomes)
        rows, slots = f"{len(outcomes)} rows{f', of which {failed} failed' if failed else ''}", len(shown["slots"])
        self.tell(f"{rows}: {slots} slot{'s' * (slots != 1)}")
        has_tools = any(ask.tools for one in outcomes for ask in one.asks)
        calls = shown.get("calls")
        return replace(found, slots=shown["slots"], calls=max(8, calls) if has_tools and calls else calls)

    async def _used(self, hub: Hub, found: Found) -> Way:
        """Return the way with only the inputs that arrived, that the source names, or that have the text."""
        way, main = found.way, {n for n, column in found.way.inputs.items() if column == self.columns.main}
        arrived = find_arrived(found.outcome, main)
        if way.stdin != "json" or self.program.function:
            return way
        if beside := [way.inputs[name] for name in arrived - main]:
            first = self.rows[0]
            other = max(self.rows, key=lambda row: sum(row.get(column) != first.get(column) for column in beside))
            arrived -= find_constant(found.outcome, await self._start(hub, found.folder, way, other), main)
        kept = {n: c for n, c in way.inputs.items() if n in arrived or n in main or self.hints.names(n)}
        return replace(way, inputs=kept)

    def _label(self, row: Row) -> Any:
        """Return the label of a row, as a value of its type."""
        value = row.get(self.columns.label)
        if self.columns.answers.kind == "number" and isinstance(value, str):
            return int(float(value)) if float(value) % 1 == 0 else float(value)
        return value

    def settings(self, way: Way, folder: Path | None, output: str = "text") -> dict[str, Any]:
        """Return the settings of the node for the workflow file, without defaults."""
        program = self.program
        found: dict[str, Any] = {"external": self.columns.signature([*way.inputs])}
        if program.function:
            found["python"] = program.function
        else:
            found |= {"command": way.command(program.words), "stdin": way.stdin}
        found["output"] = output
        if folder is not None:
            found["folder"] = os.path.relpath(folder, program.base)
        env = {**self.env, **way.env}
        return found | ({"env": env} if env else {})

    def _node(self, found: Found) -> Watched:
        return self._made(found.way, found.folder, found.output)

    def _made(self, way: Way, folder: Path | None, output: str = "text") -> Watched:
        settings = self.settings(way, folder, output)
        settings |= {"signature": settings.pop("external"), "timeout": self.timeout}
        return Watched("agent", ExternalConfig.model_validate(settings), self.program.base)

    async def _start(
        self,
        hub: Hub,
        folder: Path | None,
        way: Way,
        row: Row,
        inputs: Mapping[str, Any] | None = None,
        output: str = "text",
        form: Form = as_text,
    ) -> Outcome:
        self.starts += 1
        given = {name: row.get(column) for name, column in way.inputs.items()} if inputs is None else inputs
        return await start(hub, self._made(way, folder, output), given, self._label(row) if row else "", form)


def _describe(outcome: Outcome) -> str:
    """Describe what happened in an unsuccessful start."""
    number = len(outcome.asks)
    asked = f"{number} request{'s' * (number != 1)} without the row's text" if number else "it asked no model"
    failed = "" if outcome.ended_well or outcome.failure is None else one_line(str(outcome.failure))
    failed = _AROUND.sub("", failed)
    failed = failed if len(failed) <= _BRIEF else f"{failed[:_BRIEF]}..."
    return "; ".join(filter(None, (asked if number or not failed else "", failed)))
