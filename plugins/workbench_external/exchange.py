"""What an agent is given for a row, and how its answer is read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import NodeError, SpecError
from workbench.kit.plain_adapter import as_text, convert
from workbench.workflow import Signature
from workbench_external.config import ExternalConfig

#: Variables that an agent inherits; others, keys among them, only by `env`.
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|VIRTUAL_ENV|PYTHON(?!PATH)\w*|LD_LIBRARY_PATH|NODE_PATH"
    r"|XDG_\w+|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS|SYSTEMROOT"
)
#: Tracing of a framework would send what the row holds to its maker. CrewAI may trace without being asked when it first
#: runs on a machine, and its variables for telemetry do not stop that.
_QUIET = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
}
_FIELD = re.compile(r"\{(\w+)\}")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def environment(config: ExternalConfig, inputs: Mapping[str, Any], gateway: Mapping[str, str]) -> dict[str, str]:
    """The variables of an agent: a few of ours, those of the file, and those that lead to the gateway, which win.

    `$OPENAI_BASE_URL` in the file is the gateway's, so that an agent that reads another variable finds it too, and
    `$OPENAI_API_KEY` never ours.
    """
    inherited = {name: value for name, value in os.environ.items() if _INHERITED.fullmatch(name)}

    def ours(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return gateway.get(name, os.environ.get(name, ""))

    own = {name: _VARIABLE.sub(ours, fill_fields(value, inputs)) for name, value in config.env.items()}
    return {**inherited, **_QUIET, **own, **gateway}


def fill_fields(text: str, inputs: Mapping[str, Any]) -> str:
    """A text with the values of inputs in place of `{name}`; other braces stay."""
    return _FIELD.sub(lambda found: as_text(inputs[found[1]]) if found[1] in inputs else found[0], text)


def command_line(config: ExternalConfig, inputs: Mapping[str, Any], base: Path) -> list[str]:
    """The program and its arguments. Words that name files beside the workflow file become absolute, since the working
    directory is another one."""
    assert config.command is not None
    return [
        _absolute(word, base) if _FIELD.search(word) is None else fill_fields(word, inputs) for word in config.command
    ]


def _absolute(word: str, base: Path) -> str:
    path = base / word
    return str(path.resolve()) if word and not word.startswith("-") and path.is_file() else word


def write_inputs(config: ExternalConfig, inputs: Mapping[str, Any]) -> bytes:
    """What stands on its stdin."""
    if config.stdin == "none":
        return b""
    if config.stdin == "text":
        return as_text(next(iter(inputs.values()), "")).encode("utf-8", "replace")
    return json.dumps(dict(inputs), ensure_ascii=False, default=str).encode("utf-8", "replace")


def check_output(config: ExternalConfig, signature: Signature) -> None:
    """Raise SpecError for an `output` that cannot hold the outputs."""
    kind, colon, place = config.output.partition(":")
    if kind not in ("text", "json", "file") or (kind == "text" and colon) or (kind == "file" and not place):
        raise SpecError(
            f"output '{config.output}' names no place of an answer",
            hint="Write text, json, json:PATH or file:NAME.",
            path=("output",),
        )
    if kind == "text" and len(signature.outputs) > 1:
        raise SpecError(
            "an answer of several outputs cannot be plain text",
            hint="Write output: json, and let the agent print an object with them.",
            path=("output",),
        )


def read_answer(config: ExternalConfig, signature: Signature, printed: bytes, folder: Path) -> dict[str, Any]:
    """The outputs. Raises NodeError("unparsed") for an answer that does not hold them, and "empty" for none."""
    kind, _, place = config.output.partition(":")
    names = [field.name for field in signature.outputs]
    text = _text_of_file(folder / place) if kind == "file" else printed.decode("utf-8", "replace")
    if not text.strip():
        raise NodeError("empty", "the agent gave no answer")
    value: Any = text.strip()
    if kind == "json" or (kind == "file" and place.endswith(".json")):
        value = _json_of(text)
        for part in place.split(".") if kind == "json" and place else ():
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise NodeError("unparsed", f"the answer has nothing at '{place}': {text.strip()[:200]}") from None
    if isinstance(value, dict) and all(name in value for name in names):
        return {name: _typed(signature, name, value[name]) for name in names}
    if len(names) == 1:
        return {names[0]: _typed(signature, names[0], value)}
    raise NodeError("unparsed", f"the answer lacks {', '.join(names)}: {text.strip()[:200]}")


def _text_of_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NodeError("empty", f"the agent left no file {path.name}: {error.strerror}") from None


def _json_of(text: str) -> Any:
    """The JSON in an output: all of it, or its last line, since agents print other things before."""
    for part in (text, text.strip().splitlines()[-1]):
        try:
            return json.loads(part)
        except ValueError:
            continue
    raise NodeError("unparsed", f"the answer is no JSON: {text.strip()[:200]}")


def _typed(signature: Signature, name: str, value: Any) -> Any:
    """A value of the output's type, where its text is one."""
    field = next(field for field in signature.outputs if field.name == name)
    return convert(field, value)[0] if isinstance(value, str) else value
