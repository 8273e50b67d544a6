"""Tries changed source: does an agent started from it send the proved texts?

The agent is started unchanged, once on each row. Any texts can be replaced in its recorded requests. For each change of
its files it is started again from a copy of its folder, with nothing replaced. No start is repeated. A stand-in answers
at once and for free: it calls each offered tool, then returns a value that the outputs allow.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.errors import NodeError
from workbench.lm import Response
from workbench.spec import allow, collecting
from workbench.workflow import Signature
from workbench_external.config import ExternalConfig
from workbench_external.doors import enter_settings
from workbench_external.gateway import Ask
from workbench_external.hub import Hub
from workbench_external.node import External
from workbench_external.slots.discover import schema_of
from workbench_external.slots.patches import Patches
from workbench_external.verdict import Sent, Verdict, holds, judge
from workbench_external.workspace import copy_folder

#: Maximum tools called in a conversation, and maximum requests of a row.
_TOOLS, _MAX = 6, 24
_CALL = "call_of_trial_"


class NotTried(Exception):
    """The reason why an agent cannot be tried, as a sentence."""


class Recorder:
    """A row whose requests are recorded and answered by a stand-in."""

    passes = True  # as in a run: requests that only a server of the same API supports are accepted

    def __init__(self, node: External, inputs: Mapping[str, Any]):
        self.signature, self.inputs, self.over, self.missed = node.signature, inputs, asyncio.Event(), Counter[str]()
        self.asks, self.failure, self._size = list[Ask](), "", 0

    async def complete(self, ask: Ask) -> Sequence[Response]:
        self.asks.append(ask)
        self._size += sum(1 for one in (ask.messages, ask.tools) for _ in _texts(one))
        if self._size > 4000:
            self.over.set()
        return [stand_in_answer(ask, self.signature)] * ask.samples

    def sent(self, node: External) -> Sent:
        """Return what the agent sends with a node's texts replaced."""
        patches, sent = Patches(node.config, node.outputs), Sent(failure=self.failure)
        for ask in self.asks:
            patched = patches.apply(ask, self.inputs)
            sent.used |= {*patched.used}
            sent.texts += [t for one in (patched.messages, patched.tools, patched.response_format) for t in _texts(one)]
        return sent

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        return [[1.0] + [0.0] * 1535 for _ in texts], 0

    def models(self) -> Sequence[str]:
        return ()

    def waited(self) -> float:
        return 0.0


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def stand_in_answer(ask: Ask, signature: Signature) -> Response:
    """Return the stand-in's answer: a call of each tool in turn, then an answer that the outputs or schema allow."""
    called = sum(message.get("role") == "tool" for message in ask.messages)
    if not called:  # some agents report calls in plain text
        said = json.dumps(ask.messages, default=str)
        called = next(n for n in range(_TOOLS + 1) if f"{_CALL}{n}" not in said)
    if called < min(len(ask.tools), _TOOLS):
        function = ask.tools[called].get("function", {})
        arguments = json.dumps(make_example(function.get("parameters", {})))
        call = {"id": f"{_CALL}{called}", "name": str(function.get("name", "")), "arguments": arguments}
        return Response("", "tool_calls", 1, 1, 0.0, tool_calls=(call,))
    if (form := schema_of(ask.settings.get("response_format"))) is not None:
        return Response(json.dumps(make_example(form["parameters"])), "stop", 1, 1, 0.0)
    values = {one.name: str(one.allowed[0]) if one.allowed else "a text" for one in signature.outputs}
    if ask.settings.get("response_format"):
        return Response(json.dumps(values), "stop", 1, 1, 0.0)
    return Response(next(iter(values.values())), "stop", 1, 1, 0.0)


def make_example(
    schema: Mapping[str, Any],
    depth: int = 0,
    known: Mapping[str, Any] | None = None,
    like: Any = "a text",
    choice: Any = None,
) -> Any:
    """Make a value that a schema allows. like: the value of its texts. choice: preferred value of an enumeration."""
    known = dict(schema.get("$defs") or {}) if known is None else known
    if "$ref" in schema:
        named = known.get(str(schema["$ref"]).rpartition("/")[2], {})
        return make_example(named, depth + 1, known, like, choice) if depth < 8 else None
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return choice if choice in schema["enum"] else schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return make_example(schema[key][0], depth + 1, known, like, choice)
    kind = schema.get("type")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()  # in capitals for Google
    if kind == "object" or "properties" in schema:
        parts = schema.get("properties", {})
        needed = schema.get("required", [*parts])
        if depth >= 8:
            return {}
        return {name: make_example(parts.get(name, {}), depth + 1, known, like, choice) for name in needed}
    if kind == "array":
        return [make_example(schema.get("items", {}), depth + 1, known, like, choice)] if depth < 8 else []
    if kind in ("integer", "number") and isinstance(like, int | float):
        return like
    return {"integer": 1, "number": 1.0, "boolean": True, "null": None}.get(kind, like)


class Trial:
    """The agent of a node, tried from its folder and from changed copies of it.

    rows: the inputs of some rows. folder: its source. starts: the agent's starts so far. Raises NotTried for an agent
    that cannot be started from a copy.
    """

    def __init__(self, node: External, folder: Path, rows: Sequence[Mapping[str, Any]]):
        self.node, self.folder, self.rows = node, folder.resolve(), rows
        self.starts = 0
        self._asked: dict[tuple[Any, ...], list[Recorder]] = {}
        self._changes: dict[tuple[frozenset[tuple[Path, str]], int], Sent] = {}
        c = node.config
        if c.addresses and c.command is None:
            raise NotTried("the agent is a service that runs already, which cannot be started from a changed source")
        if c.image is not None:
            raise NotTried("the agent runs in an image, which has its own source")
        if not _lies_in(node, self.folder):
            own = " and ".join(str(place) for place in node.sources.folders)
            raise NotTried(f"the agent is not started from {self.folder}" + (f", but from {own}" if own else ""))

    def find_unsent(self, texts: Mapping[str, str | None]) -> list[str]:
        """List the slots that no request uses, except files, which appear in no request. Raises NotTried if the agent
        sends no request."""
        slots = self.node.config.slots or {}
        used = {name for row in run_in_loop(self._prove(texts)) for name in row.used}
        return [name for name in texts if name not in used and slots[name].in_ != "file"]

    def compare(
        self, changed: Mapping[Path, str], texts: Mapping[str, str | None], of: Collection[str] | None = None
    ) -> Verdict:
        """Compare the requests of the agent with changed files with those where its texts are replaced.

        Args:
            changed: the new content of files of the folder.
            texts: the new texts of slots, by name; the others stay as they are.
            of: slots; only rows that cover them are run. None: all rows.
        """
        return run_in_loop(self._compare(changed, texts, of))

    async def _compare(
        self, changed: Mapping[Path, str], texts: Mapping[str, str | None], of: Collection[str] | None
    ) -> Verdict:
        proved, starts = await self._prove(texts), self.starts
        new = {name: text for name, text in texts.items() if text is not None}
        verdict = Verdict()
        with tempfile.TemporaryDirectory(prefix="workbench-apply-") as made:
            for number in _rows_of(proved, of):
                sent = await self._send(changed, number, Path(made) / "source")
                verdict = judge(proved[number], sent, new)
                if [*verdict.differs] == [""] and await self._varies(texts, number):
                    verdict = Verdict()
                if verdict.differs:
                    break
        verdict.started = self.starts > starts
        return verdict

    def is_sent(self, changed: Mapping[Path, str], text: str) -> bool:
        """Return True if the agent with changed files sends a text on a row."""
        return run_in_loop(self._is_sent(changed, text))

    async def _is_sent(self, changed: Mapping[Path, str], text: str) -> bool:
        with tempfile.TemporaryDirectory(prefix="workbench-apply-") as made:
            for number in range(len(self.rows)):
                sent = await self._send(changed, number, Path(made) / "source")
                if any(holds(one, text) for one in sent.texts):
                    return True
        return False

    async def _prove(self, texts: Mapping[str, str | None], again: bool = False) -> list[Sent]:
        """Return the unchanged agent's requests, with texts replaced. again: of a second start, to find variation."""
        slots, node = self.node.config.slots or {}, self._patched(texts)
        # A file's text may change the agent's behavior. Texts of requests cannot, since a stand-in answers.
        key = (again, *sorted((name, text or "") for name, text in texts.items() if slots[name].in_ == "file"))
        if key not in self._asked:
            self._asked[key] = [await self._record(row, node) for row in self.rows]
        for row in self._asked[key]:
            if not row.asks:
                raise NotTried(f"the agent asked no model on a row{f': {row.failure}' if row.failure else ''}")
        return [row.sent(node) for row in self._asked[key]]

    async def _varies(self, texts: Mapping[str, str | None], number: int) -> bool:
        """Return True if the unchanged agent sends different requests on two starts."""
        one, other = (await self._prove(texts))[number], (await self._prove(texts, again=True))[number]
        return "" in judge(one, other, {}).differs or "" in judge(other, one, {}).differs

    async def _send(self, changed: Mapping[Path, str], number: int, copy: Path) -> Sent:
        """Return the agent's requests on a row, started from a copy of its folder with changed files."""
        key = (frozenset(changed.items()), number)
        if key not in self._changes:
            if not copy.exists():
                await asyncio.to_thread(self._copy, copy, changed)
            node = self._changed(copy)
            self._changes[key] = (await self._record(self.rows[number], node)).sent(node)
        return self._changes[key]

    async def _record(self, inputs: Mapping[str, Any], node: External) -> Recorder:
        self.starts += 1
        hub, row = await Hub.open(), Recorder(node, inputs)
        secret = hub.gateway.admit(row)
        try:
            await node.answer(inputs, row, hub, secret)
        except NodeError as error:  # the agent may not accept the stand-in's answers: only its requests count
            row.failure = str(error)
        finally:
            await hub.gateway.dismiss(secret)
            await hub.aclose()
        return row

    def _patched(self, texts: Mapping[str, str | None]) -> External:
        slots = {
            name: slot.model_copy(update={"text": texts.get(name), "lm": None})
            for name, slot in (self.node.config.slots or {}).items()
        }
        return _bare(self.node, slots=slots)

    def _changed(self, copy: Path) -> External:
        """Return the node with every path into the folder changed to the copy."""
        old, new = str(self.folder), str(copy)
        base = self.node.base.resolve()
        inside = base.is_relative_to(self.folder)

        def moved(word: str) -> str:
            path = Path(os.path.abspath(base / word)) if word and not word.startswith("-") else None
            if path is not None and not inside and path.exists() and path.resolve().is_relative_to(self.folder):
                return str(copy / path.resolve().relative_to(self.folder))
            return word.replace(old, new)

        c = self.node.config
        update: dict[str, Any] = {"slots": {}, "env": {name: value.replace(old, new) for name, value in c.env.items()}}
        if c.command is not None:
            update["command"] = [moved(word) for word in c.command]
        if c.folder is not None:
            update["folder"] = moved(c.folder)
        if c.python is not None and c.python.removeprefix("python:").partition(":")[0].endswith(".py"):
            file, colon, name = c.python.removeprefix("python:").partition(":")
            update["python"] = f"{moved(file)}{colon}{name}"
        return _bare(self.node, copy / base.relative_to(self.folder) if inside else None, **update)

    def _copy(self, copy: Path, changed: Mapping[Path, str]) -> None:
        copy_folder(self.folder, copy)
        for path, text in changed.items():
            (copy / path.relative_to(self.folder)).write_bytes(text.encode("utf-8", "replace"))


def _bare(node: External, base: Path | None = None, **update: Any) -> External:
    """Return the node without settings that change requests, except its slots."""
    plain = {"instructions": "", "demos": [], "functions": [], "temperature": None, "lm": None}
    config, base = node.config.model_copy(update={**plain, **update}), base or node.base
    with collecting(base) as passed:
        enter_settings(config, base)
    allow(passed)  # it is the approved agent, in a copy of its folder
    return External(node.name, config, base)


def _lies_in(node: External, folder: Path) -> bool:
    """Return True if something that a node starts lies in a folder."""
    c: ExternalConfig = node.config
    words = [*(c.command or ()), *((c.mcp or "").rpartition("#")[0].split()), *([c.folder] if c.folder else [])]
    if c.python is not None:
        file = c.python.removeprefix("python:").rpartition(":")[0] or c.python
        words.append(file if file.endswith(".py") else file.replace(".", "/") + ".py")
    paths = [Path(os.path.abspath(node.base.resolve() / word)) for word in words if word and not word.startswith("-")]
    return any(path.exists() and path.resolve().is_relative_to(folder) for path in paths)


def _rows_of(proved: Sequence[Sent], names: Collection[str] | None) -> list[int]:
    """Return rows that cover some slots: each adds a slot that earlier rows do not use."""
    if names is None:
        return [*range(len(proved))]
    found, left = list[int](), {*names}
    for number, row in enumerate(proved):
        if not found or left & row.used:
            found.append(number)
            left -= row.used
    return found


def try_rows(rows: Sequence[Mapping[str, Any]], node: External) -> list[Mapping[str, Any]]:
    """Return two rows for a trial: the first of the given ones, or made-up ones if there are none."""
    names = [one.name for one in node.signature.inputs]
    fitting = [{name: row[name] for name in names} for row in rows if all(name in row for name in names)][:2]
    return [*(fitting or (dict.fromkeys(names, words) for words in ("A short text.", "Another line of words.")))]
