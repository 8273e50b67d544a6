"""Tries a changed source: does the agent, started from it, send what the proved texts were?

The agent is started twice on the same rows, in working directories of their own: as it is, with its texts replaced as
they pass, and from a copy of its folder with the changed files, with nothing replaced. A stand-in answers at once and
for nothing: it calls each tool that is offered, then says a value that the outputs allow.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.errors import NodeError
from workbench.lm import Response
from workbench.workflow import Signature
from workbench_external.config import ExternalConfig
from workbench_external.gateway import Ask
from workbench_external.hub import Hub
from workbench_external.node import External
from workbench_external.slots.discover import schema_of
from workbench_external.slots.patches import Patches
from workbench_external.slots.template import Template, mark_inputs
from workbench_external.workspace import copy_folder

#: Tools that are called in a conversation, and requests of a row, at most.
_TOOLS, _MOST = 6, 24
_CALL = "call_of_trial_"


class NotTried(Exception):
    """Why an agent cannot be tried, as a sentence."""


@dataclass(frozen=True)
class Difference:
    """A text that was proved, and the text that the changed source sends in its place."""

    proved: str
    sent: str

    def lines(self) -> list[str]:
        found = unified_diff(self.proved.splitlines(), self.sent.splitlines(), "proved", "sent", lineterm="", n=1)
        return [*found]


@dataclass
class Verdict:
    """The findings of a trial, by the names of slots: texts that differ. unsent: slots that no request needed.
    is_unclear: which of them the cause is, a trial of each alone tells."""

    differs: dict[str, Difference] = field(default_factory=dict[str, Difference])
    unsent: list[str] = field(default_factory=list[str])
    is_unclear: bool = False


class Recorder:
    """A row whose requests are recorded and answered by a stand-in."""

    passes = True  # as in a run: what only a server of the same API takes is no obstacle

    def __init__(self, node: External, inputs: Mapping[str, Any]):
        self.patches, self.inputs = Patches(node.config, node.outputs), inputs
        self.signature, self.over, self.missed = node.signature, asyncio.Event(), Counter[str]()
        self.texts, self.failure = list[str](), ""
        self.used: set[str] = set()

    async def complete(self, ask: Ask) -> Sequence[Response]:
        patched = self.patches.apply(ask, self.inputs)
        self.used |= {*patched.used}
        form = patched.response_format
        self.texts += [text for one in (patched.messages, patched.tools, form) for text in _texts(one)]
        if len(self.texts) > 4000:
            self.over.set()
        return [stand_in_answer(ask, self.signature)] * ask.samples

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
    """Each tool is called in its turn; then comes an answer that the outputs, or the schema, allow."""
    called = sum(message.get("role") == "tool" for message in ask.messages)
    if not called:  # some tell of calls in words
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


def make_example(schema: Mapping[str, Any], depth: int = 0, known: Mapping[str, Any] | None = None) -> Any:
    """A value that a schema allows."""
    known = dict(schema.get("$defs") or {}) if known is None else known
    if "$ref" in schema:
        return (
            make_example(known.get(str(schema["$ref"]).rpartition("/")[2], {}), depth + 1, known) if depth < 8 else None
        )
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return make_example(schema[key][0], depth + 1, known)
    kind = schema.get("type")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()  # in capitals for Google
    if kind == "object" or "properties" in schema:
        parts = schema.get("properties", {})
        needed = schema.get("required", [*parts])
        return {name: make_example(parts.get(name, {}), depth + 1, known) for name in needed} if depth < 8 else {}
    if kind == "array":
        return [make_example(schema.get("items", {}), depth + 1, known)] if depth < 8 else []
    return {"integer": 1, "number": 1.0, "boolean": True, "null": None}.get(kind, "a text")


class Trial:
    """The agent of a node, tried from its folder and from changed copies of it.

    rows: the inputs of some. folder: its source. Raises NotTried for an agent that cannot be started from a copy.
    """

    def __init__(self, node: External, folder: Path, rows: Sequence[Mapping[str, Any]]):
        self.node, self.folder, self.rows = node, folder.resolve(), rows
        c = node.config
        if c.addresses and c.command is None:
            raise NotTried("the agent is a service that runs already, which cannot be started from a changed source")
        if c.image is not None:
            raise NotTried("the agent runs in an image, which has its own source")
        if not _lies_in(node, self.folder):
            own = " and ".join(str(place) for place in node.sources.folders)
            raise NotTried(f"the agent is not started from {self.folder}" + (f", but from {own}" if own else ""))

    def compare(self, changed: Mapping[Path, str], texts: Mapping[str, str | None]) -> Verdict:
        """Compare the requests of the agent with changed files with those where its texts are replaced.

        Args:
            changed: the new content of files of the folder.
            texts: the new texts of slots, by name; the others stay as they are.

        Raises NotTried where it asks nothing.
        """
        return run_in_loop(self._compare(changed, texts))

    async def _compare(self, changed: Mapping[Path, str], texts: Mapping[str, str | None]) -> Verdict:
        hub = await Hub.open()
        with tempfile.TemporaryDirectory(prefix="workbench-apply-") as made:
            copy = Path(made) / "source"
            try:
                await asyncio.to_thread(self._copy, copy, changed)
                proved = [await self._record(hub, row, self._patched(texts)) for row in self.rows]
                if silent := next((row for row in proved if not row.texts), None):
                    raise NotTried(
                        f"the agent asked no model on a row{f': {silent.failure}' if silent.failure else ''}"
                    )
                if unsent := self._unsent(proved, texts):  # what no request needs may be anything, and is not started
                    return Verdict(unsent=unsent)
                sent = [await self._record(hub, row, self._changed(copy)) for row in self.rows]
                verdict = _judge(proved, sent, {name: text for name, text in texts.items() if text is not None})
                if "" in verdict.differs:  # perhaps it never sends the same twice
                    again = [await self._record(hub, row, self._patched(texts)) for row in self.rows]
                    if "" in _judge(again, proved, {}).differs or "" in _judge(proved, again, {}).differs:
                        del verdict.differs[""]
                return verdict
            finally:
                await hub.aclose()

    def _unsent(self, proved: Sequence[Recorder], texts: Mapping[str, str | None]) -> list[str]:
        """The slots that no request needed, except files, which appear in no request."""
        used, slots = {name for row in proved for name in row.used}, self.node.config.slots or {}
        return [
            name for name, text in texts.items() if text is not None and name not in used and slots[name].in_ != "file"
        ]

    async def _record(self, hub: Hub, inputs: Mapping[str, Any], node: External) -> Recorder:
        row = Recorder(node, inputs)
        secret = hub.gateway.admit(row)
        try:
            await node.answer(inputs, row, hub, secret)
        except NodeError as error:  # answers of a stand-in may not please it: what counts is what it asked
            row.failure = str(error)
        finally:
            await hub.gateway.dismiss(secret)
        return row

    def _patched(self, texts: Mapping[str, str | None]) -> External:
        slots = {
            name: slot.model_copy(update={"text": texts.get(name), "lm": None})
            for name, slot in (self.node.config.slots or {}).items()
        }
        return _bare(self.node, slots=slots)

    def _changed(self, copy: Path) -> External:
        """The node whose every path into the folder leads into the copy."""
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
    """The node with nothing that changes requests but its slots."""
    plain = {"instructions": "", "demos": [], "functions": [], "temperature": None, "lm": None}
    config = node.config.model_copy(update={**plain, **update})
    return External(node.name, config, base or node.base)


def _lies_in(node: External, folder: Path) -> bool:
    """Return True if something that a node starts lies in a folder."""
    c: ExternalConfig = node.config
    words = [*(c.command or ()), *((c.mcp or "").rpartition("#")[0].split()), *([c.folder] if c.folder else [])]
    if c.python is not None:
        file = c.python.removeprefix("python:").rpartition(":")[0] or c.python
        words.append(file if file.endswith(".py") else file.replace(".", "/") + ".py")
    paths = [Path(os.path.abspath(node.base.resolve() / word)) for word in words if word and not word.startswith("-")]
    return any(path.exists() and path.resolve().is_relative_to(folder) for path in paths)


def _judge(proved: Sequence[Recorder], sent: Sequence[Recorder], texts: Mapping[str, str]) -> Verdict:
    """Compare what two runs asked, row by row. A difference outside of all slots has the name ""."""
    verdict = Verdict(is_unclear=not all(row.texts for row in sent))
    for before, after in zip(proved, sent, strict=True):
        there = {_plain(text): text for text in after.texts}
        for text in before.texts:
            if _plain(text) in there:
                continue
            nearest = _nearest(text, after.texts) if after.texts else f"nothing: {after.failure}"
            held = [name for name, new in texts.items() if name in before.used and _holds(text, new)]
            lost = [name for name in held if not any(_holds(other, texts[name]) for other in after.texts)]
            verdict.is_unclear |= not lost and len(held) > 1
            for name in lost or held or [""]:
                verdict.differs.setdefault(name, Difference(text, nearest))
    return verdict


def _plain(text: str) -> str:
    """A text without what differs from one run to the next, as dates."""
    return mark_inputs(text, {}).strip()


def _holds(text: str, new: str) -> bool:
    """Return True if a text holds the constants of another, in their order."""
    at = 0
    for constant in Template(new.strip()).constants:
        if (found := text.find(constant, at)) < 0:
            return False
        at = found + len(constant)
    return True


def _nearest(text: str, others: Sequence[str]) -> str:
    """The one that begins most like a text."""

    def shared(other: str) -> int:
        return next((n for n, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), len(other))

    return max(others, key=shared, default="")


def try_rows(rows: Sequence[Mapping[str, Any]], node: External) -> list[Mapping[str, Any]]:
    """Two rows for a trial: the first of those given, or made-up ones where there are none."""
    names = [one.name for one in node.signature.inputs]
    fitting = [{name: row[name] for name in names} for row in rows if all(name in row for name in names)][:2]
    return [*(fitting or (dict.fromkeys(names, words) for words in ("A short text.", "Another line of words.")))]
