"""The workflow file of an agent, with a comment on each line that was found."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from workbench.base.files import write_whole
from workbench.base.text import one_line, short
from workbench.errors import SpecError
from workbench.run import estimate, prepare
from workbench.task import Task
from workbench.workflow import Patch, Workflow
from workbench_external.init.columns import Columns
from workbench_external.init.trying import Found, Trying
from workbench_external.observed import describe_place, list_slots

#: The provider for an API, and the environment variables with its address and key.
_PROVIDERS = {
    "messages": ("anthropic", ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), "ANTHROPIC_API_KEY"),
    "gemini": ("gemini", ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"), "GEMINI_API_KEY"),
    "": ("openai", ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "OPENAI_API_KEY"),
}
_NAMES = {
    "chat": "Chat Completions",
    "responses": "Responses",
    "messages": "Messages",
    "completions": "Completions",
    "gemini": "generateContent",
}
#: Rows of each split if there are enough, and their shares if not.
_SPLIT = {"train": 60, "val": 60, "test": 200}
_SHARES = {"train": 0.25, "val": 0.25, "test": 0.5}
#: Evaluations on val that fit the budget.
_CANDIDATES = 8
_MAX_PROGRAMS = 8
#: Characters of a slot's text to show.
_SHOWN = 60


class Written:
    """The workflow file that is written for the findings."""

    def __init__(self, found: Found, trying: Trying, data: Path, rows: int, head: str):
        self.found, self.trying, self.data, self.rows, self.head = found, trying, data, rows, head
        self.columns: Columns = trying.columns
        self.asked = Counter((_api_of(ask), ask.model) for ask in found.outcome.asks)

    @property
    def key(self) -> str:
        """The variable with the key of the model."""
        return _provider_of(next(iter(self.asked))[0])[2]

    def write(self, out: Path) -> Task:
        """Write the file. If it would not be valid, raise SpecError and write nothing."""
        before = out.read_text(encoding="utf-8") if out.exists() else None
        try:
            write_whole(out, self.text(1_000_000, ()))
            _, _, task, optimizers = prepare(out)
            cost = estimate(task, optimizers)
            budget = 100 * math.ceil((_CANDIDATES * cost["baseline_calls"] + cost["proof_calls"]) / 100)
            write_whole(out, self.text(budget, self._slots(task.workflow)))
            return prepare(out)[2]
        except SpecError as error:
            out.unlink(missing_ok=True)
            if before is not None:
                write_whole(out, before)
            raise SpecError(f"no workflow file was written: {error.message}", hint=error.hint) from None

    def text(self, budget: int, slots: Sequence[str]) -> str:
        """Return the file's text. slots: lines on the texts that can be replaced."""
        columns, found, folder = self.columns, self.found, self.trying.program.base
        top = [
            f"# {self.head}",
            "# Behind each `#`: how the line was found. Nothing was paid: a stand-in answered in place of the model.",
            _line("name", self._name()),
            *self._models(),
        ]
        data: dict[str, Any] = {"file": os.path.relpath(self.data, folder)}
        data["split"] = _SPLIT if self.rows >= sum(_SPLIT.values()) else _SHARES
        if fields := {name: column for name, column in found.way.inputs.items() if name != column}:
            data["fields"] = fields
        left = [name for name in columns.others if name not in found.way.inputs.values()]
        unread = f"; not asked with: {', '.join(left)}" if left else ""
        top.append(_line("data", data, f"{self.rows} rows; the label is '{columns.label}': {columns.found_by}{unread}"))
        top.append(_line("metric", columns.metric, f"by the answers in '{columns.label}': {columns.answers.shown_by}"))
        return "\n".join(
            [
                *top,
                "nodes:",
                "  agent:",
                *(f"    {line}" for line in self._node()),
                *(f"    # {line}" for line in slots),
                _line("optimize", [{"rewrite": {"rounds": 6}}], "changes the slots alone, which `agent apply` writes"),
                _line("budget", {"calls": budget}, f"about {_CANDIDATES} candidates and the proof"),
                _line("concurrency", min(_MAX_PROGRAMS, os.cpu_count() or 1), "programs at once"),
                "",
            ]
        )

    def _name(self) -> str:
        program = self.trying.program
        return (program.file.stem if program.file is not None else program.base.name) or "agent"

    def _models(self) -> list[str]:
        """Return the line `lm`: the model that was called most often."""
        (api, model), _ = self.asked.most_common(1)[0]
        provider, places, _ = _provider_of(api)
        told = f"named in its request, by {_NAMES.get(api, api)}"
        if len(self.asked) > 1:
            told += f"; it asks {len(self.asked)} models: {', '.join(name for _, name in self.asked)}"
        for place in places:
            # A URL with a password must not be in a file; the provider also reads it from the environment.
            if (address := os.environ.get(place)) and "@" not in address:
                named = {"model": f"{provider}/{model}", "api_base": address}
                return [_line("lm", named, f"{told}; api_base: {place} of your environment")]
        return [_line("lm", f"{provider}/{model}", told)]

    def _node(self) -> list[str]:
        found = self.found
        settings = self.trying.settings(found.way, found.folder, found.output)
        notes = {
            "external": self._why_inputs(),
            "command": "; ".join(self.trying.program.notes),
            "python": "called in a process of its own",
            "stdin": f"tried: {found.way.told}",
            "output": found.output_by,
            "folder": "copied for each row, which starts in the copy",
            "env": "named by its source, or of a provider and set in your environment",
        }
        lines = [_line(key, value, notes[key]) for key, value in settings.items()]
        if len({name for _, name in self.asked}) > 1:
            lines.append(_line("models", self._by_name(), "each is answered by the model of its name"))
        if embedder := found.outcome.embedder:
            lines.append(_line("embedder", f"openai/{embedder}", "named in its request for embeddings"))
        if found.calls is not None:
            lines.append(_line("calls", found.calls, f"at most, a row; it made {len(found.outcome.asks)}"))
        return lines

    def _by_name(self) -> dict[str, str]:
        if len({_provider_of(api)[0] for api, _ in self.asked}) == 1:
            return {"*": "as-named"}
        return {name: f"{_provider_of(api)[0]}/{name}" for api, name in self.asked}

    def _why_inputs(self) -> str:
        found = self.found
        seen = "found in its request" if len(found.way.inputs) == 1 else "found in its request or named by its source"
        told = f"{', '.join(found.way.inputs)}: by {found.way.told}, and {seen}"
        return told if found.folder is not None else f"{told}; starts in an empty folder"

    def _slots(self, workflow: Workflow) -> list[str]:
        patched = workflow.patched(Patch({"nodes.agent.slots": dict(self.found.slots)}))
        shown, _ = list_slots(patched, workflow)
        lines = [
            f"  {one.name} ({describe_place(one.slot)}; {one.where}): {short(one.slot.match, _SHOWN)}" for one in shown
        ]
        told = "found again when a search begins; `workbench agent slots` shows all of them"
        return [f"slots: {len(lines)}, {told}", *map(one_line, lines)]


def _api_of(ask: Any) -> str:
    return "" if ask.native is None else str(ask.native.api)


def _provider_of(api: str) -> tuple[str, tuple[str, ...], str]:
    return _PROVIDERS.get(api, _PROVIDERS[""])


def _line(key: str, value: Any, told: str = "") -> str:
    """Return a line of YAML, followed by a comment."""
    flow = yaml.dump(
        _plain(value), Dumper=_Dumper, default_flow_style=True, width=math.inf, allow_unicode=True, sort_keys=False
    ).removesuffix("...\n")
    return f"{key}: {flow.strip()}{f'  # {one_line(told)}' if told else ''}"


class _Dumper(yaml.SafeDumper):
    """Writes texts with quotes in a natural form."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "'" in text else None)


_Dumper.add_representer(str, _quoted)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(one) for one in value] if isinstance(value, Iterable) and not isinstance(value, str) else value
