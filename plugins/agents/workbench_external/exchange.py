"""The inputs of an agent for a row, and the parser of its answer."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.files import NEVER_COPIED
from workbench.errors import NodeError, SpecError
from workbench.spec import PREFIX, parse_address
from workbench.workflow import Signature
from workbench_external.config import ExternalConfig
from workbench_external.home import home_variables
from workbench_external.process import MAX_OUTPUT
from workbench_kit.answers import as_text, convert, find_object, read_values

#: Variables that an agent inherits. Those of a home are inherited only if it keeps its state. All others, keys among
#: them, must be set by `env`.
_INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|VIRTUAL_ENV|PYTHON(?!PATH)\w*|LD_LIBRARY_PATH|NODE_PATH"
    r"|XDG_\w+|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NODE_EXTRA_CA_CERTS|SYSTEMROOT"
)
#: Turns off tracing to a framework's vendor, which would use the key of its models. It is ours (openai-agents).
NOT_TRACED = {"OPENAI_AGENTS_DISABLE_TRACING": "1"}
#: Turns off tracing of frameworks, which would send data of the rows to their vendors. CrewAI may trace by default on
#: its first run on a machine, and its telemetry variables do not stop that.
_QUIET = {
    **NOT_TRACED,
    "LANGSMITH_TRACING": "false",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
}
_FIELD = re.compile(r"\{(\w+)\}")
_PART = re.compile(r"\$(?:(?P<variable>\w+)|\{(?P<braced>\w+)\})|\{\w+\}")


def environment(
    config: ExternalConfig, inputs: Mapping[str, Any], gateway: Mapping[str, str], place: Path
) -> dict[str, str]:
    """Return the variables of an agent: some of ours, those of its home, those of the file, and those of the gateway,
    which win.

    In the file, `$OPENAI_BASE_URL` is the gateway's, so that an agent that reads another variable finds it too, and
    `$OPENAI_API_KEY` is never ours.

    place: the working directory, which lies in its home.
    """

    def filled(found: re.Match[str]) -> str:  # in one pass: values of inputs name no variables
        if name := found["variable"] or found["braced"]:
            return gateway.get(name, os.environ.get(name, ""))
        return fill_fields(found[0], inputs)

    own = {name: _PART.sub(filled, value) for name, value in config.env.items()}
    inherited: dict[str, str] = {}
    if config.image is None:  # an image has a PATH and a HOME of its own
        inherited |= {n: value for n, value in os.environ.items() if is_inherited(n)}
        if config.state != "kept":
            inherited |= home_variables(place.parent, own)
    return {**inherited, **_QUIET, **own, **gateway}


def is_inherited(name: str) -> bool:
    """Return True for a variable that an agent has without being named in `env`."""
    return _INHERITED.fullmatch(name) is not None


def fill_fields(text: str, inputs: Mapping[str, Any]) -> str:
    """Replace `{name}` in a text by the values of inputs. Other braces stay."""
    return _FIELD.sub(lambda found: as_text(inputs[found[1]]) if found[1] in inputs else found[0], text)


def command_line(
    config: ExternalConfig, inputs: Mapping[str, Any], base: Path, folder: Path | None, place: Path
) -> list[str]:
    """Return the program and its arguments. Words that name files next to the workflow file become absolute, since the
    working directory differs; for a file in the agent's folder, it is the row's copy. In an image other words are
    unchanged, as it has only the row's files."""
    assert config.command is not None
    return [
        fill_fields(word, inputs)
        if _FIELD.search(word)
        else _absolute(word, base, folder, place, config.image is not None)
        for word in config.command
    ]


def _absolute(word: str, base: Path, folder: Path | None, place: Path, in_image: bool) -> str:
    if not word or word.startswith("-") or not (base / word).is_file():
        return word
    path = Path(os.path.abspath(base.resolve() / word))
    found = in_row(path, folder, place)
    return word if in_image and found == path else str(found)


def in_row(path: Path, folder: Path | None, place: Path) -> Path:
    """Return a path as a row sees it: in its copy of the folder, if the path lies there and is copied."""
    if folder is None or not path.is_relative_to(folder):
        return path
    inside = path.relative_to(folder)
    return path if NEVER_COPIED & {*inside.parts} else place / inside


def find_program_folders(config: ExternalConfig, base: Path, folder: Path | None) -> list[Path]:
    """Return the user's folders with the row's program: of scripts and modules that are not copied with `folder`. Empty
    for an image, which sees none of our folders, and for a service that is already running."""
    if config.image is not None:
        return []
    words = list(config.command or ())
    if config.mcp is not None:
        words = shlex.split(config.mcp.rpartition("#")[0])
    found = [Path(os.path.abspath(base / word)) for word in words if word[:1] != "-" and (base / word).is_file()]
    if config.python is not None:
        found.append(parse_address(config.python.removeprefix(PREFIX)).file(base))
    ours = [path for path in found if in_row(path, folder, Path("/")) == path and not NEVER_COPIED & {*path.parts}]
    return [*dict.fromkeys(path.parent for path in ours if path.parent.name not in ("bin", "sbin"))]


def find_source_folders(config: ExternalConfig, base: Path, folder: Path | None) -> list[Path]:
    """Return the folders that may contain the source of an agent: its own, its program's, and those named in its
    command. Empty for a service that is already running."""
    found = [folder] if folder is not None else []
    named = [Path(os.path.abspath(base / word)) for word in config.command or () if word[:1] not in ("-", "")]
    if config.image is None:
        found += [*find_program_folders(config, base, folder), *(path for path in named if path.is_dir())]
    found = [path.resolve() for path in found]
    return [one for one in dict.fromkeys(found) if not any(one != o and one.is_relative_to(o) for o in found)]


def given_texts(config: ExternalConfig) -> list[tuple[str, str]]:
    """Return (setting, text) for texts in its file that it may send on: `--append-system-prompt TEXT`."""
    return [("command", word) for word in config.command or ()] + [("env", value) for value in config.env.values()]


def write_inputs(config: ExternalConfig, inputs: Mapping[str, Any]) -> bytes:
    """Return the bytes for its stdin."""
    if config.stdin == "none":
        return b""
    given = inputs_as_json(inputs)
    if config.stdin == "text":
        given = as_text(next(iter(inputs.values()), "")).encode("utf-8", "replace")
    return given if given.endswith(b"\n") else given + b"\n"  # Node's readline waits for it


def inputs_as_json(inputs: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(inputs), ensure_ascii=False, default=str).encode("utf-8", "replace")


def check_output(config: ExternalConfig, signature: Signature) -> None:
    """Raise SpecError if the outputs cannot be in this `output`."""
    kind, colon, place = config.output.partition(":")
    plain = kind in ("text", "line")
    if config.output == "cards":
        return
    if kind not in ("text", "line", "json", "file") or (plain and colon) or (kind == "file" and not place):
        hint = "Write text, line, json, json:PATH, file:NAME or cards."
        raise SpecError(f"output '{config.output}' names no place of an answer", hint=hint, path=("output",))
    if kind == "file" and (Path(place).is_absolute() or ".." in Path(place).parts):
        hint = "Write a path inside it: each row has its own."
        raise SpecError(f"the file '{place}' leads out of the row's working directory", hint=hint, path=("output",))
    if config.addresses and kind == "file":
        hint = "Write output: text, line, json or json:PATH."
        raise SpecError("a service gives its answer by HTTP, in no file", hint=hint, path=("output",))
    if plain and len(signature.outputs) > 1:
        hint = "Write output: json, and let the agent print an object with them."
        raise SpecError("an answer of several outputs cannot be plain text", hint=hint, path=("output",))


def read_answer(
    config: ExternalConfig, signature: Signature, printed: bytes, folder: Path | None = None
) -> dict[str, Any]:
    """Return the outputs.

    folder: of the row; the answer may be a file in it.
    Raises NodeError("unparsed") if an answer does not contain them, and "empty" if there is none.
    """
    kind, _, place = config.output.partition(":")
    names = [field.name for field in signature.outputs]
    text = printed.decode("utf-8-sig", "replace")
    if folder is not None and kind == "file":
        text = _text_of_file(folder, place)
    if not text.strip():
        raise NodeError("empty", "the agent gave no answer")
    value: Any = text.strip().splitlines()[-1].strip() if kind == "line" else text.strip()
    if kind == "json" or (kind == "file" and place.endswith(".json")):
        value = json_of(text, () if place and kind == "json" else names)
        for part in place.split(".") if kind == "json" and place else ():
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise NodeError("unparsed", f"the answer has nothing at '{place}': {text.strip()[:200]}") from None
    if isinstance(value, str):
        value = (_objects_of(value, names) or [value])[-1]
    value = find_object(value, names) or value
    if isinstance(value, dict) and all(name in value for name in names):
        return {name: _typed(signature, name, value[name]) for name in names}
    if len(names) == 1:
        return {names[0]: _typed(signature, names[0], value)}
    raise NodeError("unparsed", f"the answer lacks {', '.join(names)}: {text.strip()[:200]}")


def _text_of_file(folder: Path, name: str) -> str:
    path = (folder / name).resolve()
    # A pipe would block; a link out of a container's folder would expose our files.
    if not path.is_file() or not path.is_relative_to(folder.resolve()):
        raise NodeError("empty", f"the agent left no file {name}")
    with path.open("rb") as file:
        return file.read(MAX_OUTPUT).decode("utf-8-sig", "replace")


def json_of(text: str, names: Sequence[str] = ()) -> Any:
    """Return the JSON in an output: the whole text; else from the last line where JSON starts that extends to the end,
    as agents print other text before it; else the last value on its own lines, preferably one with these names.
    Attempts are limited, as an agent may repeat a model's words."""
    text = text.strip()
    told, text = text[:200], text[-_LARGEST:]
    begin = {"}": "{", "]": "["}.get(text[-1:])
    last = len(text) - len(text[text.rfind("\n") + 1 :].lstrip())
    lines = re.finditer(rf"(?m)^[ \t]*(?=\{begin})[ \t]*", text) if begin else ()
    starts, left = [last, 0, *reversed([line.end() for line in lines][-_STARTS:])], 2 * len(text)
    for start in starts:
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            end = error.pos
        except (ValueError, RecursionError):  # NaN, a number of thousands of digits, brackets without end
            end = len(text)
        else:
            if end == len(text):
                return value if start == 0 or not names else (_objects_of(text, names) or [value])[-1]
        if (left := left - (end - start)) < 0:
            break
    if others := _objects_of(text, names) or _objects_of(text):
        return others[-1]
    much = f" in its last {_LARGEST} characters" if len(text) == _LARGEST else ""
    raise NodeError("unparsed", f"the answer is not JSON{much}: {told}")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


#: Characters at the end of an output in which to look for JSON, and lines at which to try.
_LARGEST, _STARTS = 1 << 20, 400
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _objects_of(text: str, names: Sequence[str] = ()) -> list[Any]:
    """Return the lists and objects in a text that have lines of their own, as in a fence or between logs, in order.
    With names: the outputs in those that have them."""
    text = f"{text[-_LARGEST:]}\n"
    found = [
        value
        for value, start, end in read_values(text)
        if not text[text.rfind("\n", 0, start) + 1 : start].strip() and not text[end : text.find("\n", end)].strip()
    ]
    return [named for value in found if (named := find_object(value, names))] if names else found


def _typed(signature: Signature, name: str, value: Any) -> Any:
    """Convert a value to the output's type. Raises NodeError("unparsed") for one of another type.

    An output without a type may be any JSON, which the user's metric interprets.
    """
    field = next(field for field in signature.outputs if field.name == name)
    if value is None and field.type is str:
        raise NodeError("unparsed", f"the answer has null for '{name}'")
    if not isinstance(value, str) and (field.type is Any or (field.type is str and not field.values)):
        return value
    return convert(field, as_text(value))[0]
