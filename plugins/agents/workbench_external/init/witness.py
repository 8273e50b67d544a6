"""A start of an agent on a row, with a stand-in for its model that answers with the label and records requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import NodeError
from workbench.lm import Response
from workbench.workflow import CallRecord, Span
from workbench_external.gateway import Ask
from workbench_external.hub import Hub
from workbench_external.node import External
from workbench_external.slots.discover import schema_of
from workbench_external.trial import Recorder, make_example
from workbench_kit.answers import as_text

#: Names of tools with which frameworks return their answer.
_GIVES = re.compile(r"final|answer|result|submit|output|respond|finish|done", re.IGNORECASE)
#: Files that may contain the answer: maximum number and size.
_MAX_FILES, _LARGEST = 500, 1 << 20


class Witness(Recorder):
    """A row whose model is a stand-in. It answers with the label, and calls a tool only if it must.

    form: writes a plain answer.
    """

    def __init__(self, node: External, inputs: Mapping[str, Any], label: Any, form: Callable[[Any], str] = as_text):
        super().__init__(node, inputs)
        self.label, self.form = label, form
        self.calls, self.embedder = list[CallRecord](), ""

    async def complete(self, ask: Ask) -> Sequence[Response]:
        await super().complete(ask)  # records the request, and ends an agent that never stops asking
        response = self._answer(ask)
        self.calls.append(
            CallRecord(
                ask.messages, response, "task", ask.model, False, 0.0,
                tools=ask.tools, response_format=ask.settings.get("response_format"), number=len(self.calls) + 1,
            )
        )  # fmt: skip
        return [response] * ask.samples

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        self.embedder = model
        return await super().embed(texts, model)

    def _answer(self, ask: Ask) -> Response:
        choice: Any = (ask.settings.get("extra") or {}).get("tool_choice")
        named = (
            choice.get("name") or (choice.get("function") or {}).get("name") if isinstance(choice, Mapping) else None
        )
        if ask.tools and (named or choice in ("required", "any")):
            functions = [tool.get("function", {}) for tool in ask.tools]
            called = next((one for one in functions if one.get("name") == named), None)
            called = called or next((one for one in functions if _GIVES.search(str(one.get("name")))), functions[-1])
            arguments = self._example(called.get("parameters", {}))
            call = {"id": f"call_{len(self.calls)}", "name": str(called.get("name", "")), "arguments": arguments}
            return Response("", "tool_calls", 1, 1, 0.0, tool_calls=(call,))
        if (form := schema_of(ask.settings.get("response_format"))) is not None:
            return Response(self._example(form["parameters"]), "stop", 1, 1, 0.0)
        return Response(self.form(self.label), "stop", 1, 1, 0.0)

    def _example(self, schema: Mapping[str, Any]) -> str:
        """Return an object that a schema allows, with the label as an enumeration's value, or else in every text."""
        is_choice = f'"{as_text(self.label)}"' in json.dumps(schema, ensure_ascii=False)
        return json.dumps(make_example(schema, like="a text" if is_choice else self.label, choice=self.label))


class Watched(External):
    """The node of an agent that keeps the output, and the files left in the working directory."""

    def watch(self) -> None:
        self.printed, self.left = "", dict[str, str]()

    async def read(self, printed: bytes, place: Path | None = None) -> dict[str, Any]:
        self.printed = printed.decode("utf-8", "replace")
        self.left = _new_files(place, self.folder) if place is not None else {}
        return await super().read(printed, place)


@dataclass
class Outcome:
    """A start on a row. failure: of the agent, or of its answer. printed: its output. left: new files by name.
    embedder: the model that it requested for embeddings."""

    inputs: Mapping[str, Any]
    asks: Sequence[Ask]
    texts: Sequence[str]
    failure: NodeError | None
    printed: str
    left: Mapping[str, str]
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    span: Span = field(default_factory=lambda: Span("agent", "external", {}))
    embedder: str = ""

    @property
    def ended_well(self) -> bool:
        """Return True if the program ended without an error, whatever its answer."""
        return self.failure is None or self.failure.kind in ("empty", "unparsed")


async def start(
    hub: Hub, node: Watched, inputs: Mapping[str, Any], label: Any, form: Callable[[Any], str] = as_text
) -> Outcome:
    """Start an agent on a row."""
    node.watch()
    row = Witness(node, inputs, label, form)
    secret, failure, outputs = hub.gateway.admit(row), None, {}
    try:
        outputs = await node.answer(inputs, row, hub, secret)
    except NodeError as error:
        failure = error
    finally:
        await hub.gateway.dismiss(secret)
    error = None if failure is None else f"{failure.kind}: {failure}"
    span = Span("agent", "external", dict(inputs), outputs, row.calls, error=error)
    return Outcome(
        inputs, row.asks, row.sent(node).texts, failure, node.printed, node.left, outputs, span, row.embedder
    )


def _new_files(place: Path, folder: Path | None) -> dict[str, str]:
    """Return the texts of new and changed files in the working directory of a row."""
    found = dict[str, str]()
    for path in sorted(place.rglob("*"))[:_MAX_FILES]:
        name = path.relative_to(place).as_posix()
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        content, before = path.read_bytes(), folder / name if folder is not None else None
        if before is None or not before.is_file() or before.read_bytes() != content:
            found[name] = content.decode("utf-8", "replace")
    return found
