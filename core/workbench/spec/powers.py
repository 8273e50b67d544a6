"""Capabilities of the things named in a workflow file, besides calling its models, as declared by their authors.

Each registered node kind, metric, reader, LM provider, optimizer and environment has the attribute `powers`: by
setting, the capability that its value gives.

    class Agent(NodeKind):
        powers = {"tools": TOOL_ADDRESSES, "env": VARIABLES, "nodes": NODES, "lm": MODEL}

`powers = {}` declares that no setting has a capability. Without the attribute nothing is known, and an untrusted file
may not use the thing. Each setting counts by itself, whatever the others are, since `search:` may put any value into
any. `trust`, bundles, `validate` and the MCP server read the same declaration; nothing is imported or started for it.
One file: the declarations of settings, and the few kinds of capabilities.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from workbench.base.text import one_line
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import PluginError, SpecError
from workbench.plugins import KINDS, plugins
from workbench.spec.places import existing, is_there, lies_inside
from workbench.spec.user_code import PREFIX, SERVER, parse_address, parse_server, relocate_address

#: The capabilities that the user is asked about, in the words shown.
Kind = Literal[
    "runs Python",
    "starts a program",
    "asks an address",
    "sends a variable of the environment",
    "reads a path",
    "uses what does not say what it does",
]
#: Kinds of parts inside others, and a file of rows, a workflow file and a model.
PartKind = Literal["node", "metric", "optimizer", "environment", "executor", "tracker", "rows", "file", "model"]
Place = tuple[str | int, ...]
#: The form of a value that names files: a path, an address of Python, or a command, which moves with its file; or
#: another.
Form = Literal["", "path", "address", "command"]

#: The gateway's variables, which an existing agent receives.
_OF_GATEWAY = frozenset({"OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL"})
#: A reference to an environment variable.
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_OF_IPV4 = re.compile(r"[0-9a-fxA-FX.]+")
#: A word of a command that is written as one text.
WORD = re.compile(r"[^\s'\"=;&|()]+")
_LONGEST_PATH, _MOST_FOLDERS = 4096, 16
#: Files that make a folder a program.
_PROGRAMS = ("__main__.py", "pyproject.toml", "package.json", "index.js", "go.mod", "Cargo.toml", "Makefile")


@dataclass(frozen=True)
class Power:
    """A capability of a file.

    text: as written. what: the same text, independent of the file's location. at: the path in the file. files: the
    existing files that it depends on; a folder stands for all of it. outside: True if a path leads out of the file's
    folder.
    """

    kind: Kind
    text: str
    what: str
    at: Place = ()
    files: tuple[Path, ...] = ()
    outside: bool = False
    form: Form = ""


@dataclass(frozen=True)
class Part:
    """An inner part with a declaration of its own. value: as written in the file."""

    of: PartKind
    value: Any
    at: Place


@dataclass(frozen=True)
class Written:
    """A value in a file, with its path in the file, and the folder for relative paths in the value.

    home: the folder of the file, if it differs.
    """

    value: Any
    at: Place
    base: Path
    home: Path | None = None

    def __truediv__(self, key: str | int) -> Written:
        return Written(self.value[key], (*self.at, key), self.base, self.home)

    def texts(self) -> Iterator[Written]:
        """Yield each text inside, with its path."""
        for one in self.walk():
            if isinstance(one.value, str):
                yield one

    def walk(self) -> Iterator[Written]:
        """Yield this value and each value inside it."""
        waiting = [self]
        while waiting:
            one = waiting.pop()
            yield one
            if is_dict(one.value) or is_list(one.value):
                waiting += [one / key for key in (one.value if is_dict(one.value) else range(len(one.value)))]


Found = Iterable[Power | Part]
Declaration = Callable[[Written], Found]
#: Declarations by setting, or a function of all settings together.
Powers = Mapping[str, Declaration] | Declaration


# Declarations of a setting's capability


def _python(setting: Written) -> Found:
    return (run_python(one, one.value) for one in setting.texts())


def run_python(setting: Written, address: str) -> Power:
    """Return the capability of running Python at an address, with or without its prefix."""
    written = address if address.startswith(PREFIX) else f"{PREFIX}{address}"
    files: tuple[Path, ...] = ()
    try:
        parsed = parse_address(written)
    except SpecError:
        pass  # reported when it is used
    else:
        places = [parsed.file(setting.base)]
        if not parsed.is_file:  # the packages that contain it are run, too
            names = parsed.module.split(".")
            places += [setting.base.joinpath(*names[: n + 1], "__init__.py") for n in range(len(names))]
        files = tuple(path for path in places if is_there(path))
    what = relocate_address(written, setting.base, Path("/"))
    return Power("runs Python", address, what, setting.at, files, form="address")


def _tools(setting: Written) -> Found:
    """Return the capabilities of addresses with a known prefix. Other texts have none."""
    for one in setting.texts():
        if one.value.startswith(PREFIX):
            yield run_python(one, one.value)
        elif one.value.startswith(SERVER):
            yield start_program(one, _command_of(one.value))


def _command_of(address: str) -> str:
    try:
        return parse_server(address).command
    except SpecError:
        return address.removeprefix(SERVER)  # reported when it is used


def start_program(setting: Written, command: str) -> Power:
    """Return the capability of a command. Its files are those that its words name: files, Python modules, also below a
    folder that another word names (`cd agent && python main.py`), and whole folders that are programs (`uv run
    --project agent`)."""
    words = [word for word in dict.fromkeys(WORD.findall(command)) if word.strip("./~")]
    folders = [path for word in words for path in existing(word, setting.base) if path.is_dir()][:_MOST_FOLDERS]
    files = {path: None for path in folders if any(is_there(path / name) for name in _PROGRAMS)}
    for word, base in product(words, (setting.base, *folders)):
        module = word.removeprefix("-m").replace(".", "/")
        for name in (word, *(f"{module}{end}" for end in (".py", "/__init__.py", "/__main__.py") if module)):
            files |= dict.fromkeys(path for path in existing(name, base) if path.is_file())
    inside = tuple(path for path in files if path.is_relative_to(setting.base.resolve()))
    what = WORD.sub(lambda word: str(next(existing(word[0], setting.base), word[0])), command)
    return Power("starts a program", command, what, setting.at, inside, form="command")


def _command(setting: Written) -> Found:
    """Return the capability of a program and its arguments, in one text or a list."""
    if setting.value:
        words = setting.value if is_list(setting.value) else [setting.value]
        yield start_program(setting, " ".join(map(str, words)))


def _server(setting: Written) -> Found:
    """Return the capability of COMMAND#TOOL, with or without `mcp:`."""
    if setting.value:
        yield start_program(setting, str(setting.value).removeprefix(SERVER).rpartition("#")[0] or str(setting.value))


def _program_folder(setting: Written) -> Found:
    """Return the capability of a folder whose programs may run. Its whole content and its location count."""
    for one in setting.texts():
        files = tuple(p for p in existing(one.value, setting.base) if p.is_dir())
        yield Power("starts a program", f"in the folder {one.value}", _absolute(one), one.at, files, form="path")


def _image(setting: Written) -> Found:
    for one in setting.texts():
        yield Power("starts a program", f"the container image {one.value}", one.value, one.at)


def _variables(setting: Written) -> Found:
    """Return the capabilities of a program's environment variables. Variables of ours are passed to it, and any of them
    (PATH, NODE_OPTIONS) may replace a program by another, or send its data elsewhere."""
    for one in setting.texts():
        name = one.at[-1]
        yield replace(start_program(one, f"with {name}={one.value}"), form="")
        if names := set(VARIABLE.findall(one.value)) - _OF_GATEWAY:
            text = f"{', '.join(sorted(names))} to a program, as {name}"
            yield Power("sends a variable of the environment", text, text, one.at)


def _variable_names(setting: Written) -> Found:
    for one in setting.texts():
        text = f"{one.value} to the workers"
        yield Power("sends a variable of the environment", text, text, one.at)


def _anything(setting: Written) -> Found:
    """Return the settings of another program, which may run commands, as a single capability."""
    if setting.value:
        text = f"{setting.at[-1]}: {json.dumps(setting.value, default=str)}"
        yield Power("starts a program", text, text, setting.at)


def _address(setting: Written) -> Found:
    return (ask_address(one, one.value) for one in setting.texts() if one.value)


def ask_address(setting: Written, address: str) -> Power:
    """Return the capability of sending requests to an address. Addresses on this machine or its network are marked."""
    near = describe_host(address)
    return Power("asks an address", f"{address} ({near})" if near else address, address, setting.at)


def describe_host(address: str) -> str:
    """Describe the host of an address if it is special, e.g. "a service of this machine"; else ""."""
    try:
        host = (urlsplit(address if "//" in address else f"//{address}").hostname or "").rstrip(".")
    except ValueError:
        return ""
    if host == "localhost" or host.endswith(".localhost"):
        return "a service of this machine"
    try:  # also 127.1, 0x7f000001 and 2130706433, which C libraries accept
        found = ip_address(socket.inet_ntoa(socket.inet_aton(host)) if _OF_IPV4.fullmatch(host) else host)
    except (OSError, ValueError):
        return ""
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback or found.is_unspecified:
        return "a service of this machine"
    if found.is_link_local:
        return "a service beside this machine, as clouds have for its keys"
    return "in a private network" if found.is_private else ""


def _path(setting: Written) -> Found:
    return (read_path(one, one.value) for one in setting.texts() if one.value)


def read_path(setting: Written, text: str) -> Power:
    """Return the capability of reading a file or folder. The user is not asked about one inside the file's folder."""
    if len(text) > _LONGEST_PATH:  # `a/../a/../...` is valid at any length, but slow to resolve
        return Power("reads a path", f"{text[:80]}...", text, setting.at, (), True)
    found = tuple(existing(text, setting.base))
    home = setting.home or setting.base
    outside = not all(lies_inside(path, home) for path in (setting.base / text, *found))
    return Power("reads a path", text, _absolute(setting, text), setting.at, found, outside, "path")


def part(kind: PartKind) -> Declaration:
    """Declare that the setting holds one such part."""
    return lambda setting: [Part(kind, setting.value, setting.at)] if setting.value is not None else []


def each(inner: Declaration) -> Declaration:
    """Declare that the setting holds several values, in a list or by name."""

    def found(setting: Written) -> Found:
        value = setting.value
        for key in value if is_dict(value) else range(len(value)) if is_list(value) else ():
            yield from inner(setting / key)

    return found


def one_or_each(inner: Declaration) -> Declaration:
    """Declare that the setting holds one value, or a list."""
    return lambda setting: (each(inner) if is_list(setting.value) else inner)(setting)


def inside(**settings: Declaration) -> Declaration:
    """Declare that the setting holds a group of settings."""
    return partial(_of_group, settings)


def _of_group(settings: Mapping[str, Declaration], setting: Written) -> Found:
    for name, declaration in settings.items() if is_dict(setting.value) else ():
        if name in setting.value:
            yield from declaration(setting / name)


def _functions(setting: Written) -> Found:
    """Return the capabilities of functions, written out or as references to another workflow file: FILE#nodes.NAME."""
    items = [setting / i for i in range(len(setting.value))] if is_list(setting.value) else [setting]
    return [Part("file", one.value, one.at) for one in items if isinstance(one.value, str)]


#: A Python address, with or without `python:`.
PYTHON: Declaration = _python
#: Addresses with `python:` or `mcp:`. Other texts have no capability.
TOOL_ADDRESSES: Declaration = _tools
COMMAND: Declaration = _command
SERVER_TOOL: Declaration = _server
PROGRAM_FOLDER: Declaration = _program_folder
IMAGE: Declaration = _image
VARIABLES: Declaration = _variables
#: Names of variables, for the workers of an executor.
VARIABLE_NAMES: Declaration = _variable_names
#: Settings of a foreign program.
FOREIGN_SETTINGS: Declaration = _anything
ADDRESS: Declaration = _address
PATH: Declaration = _path
FUNCTIONS: Declaration = _functions
MODEL: Declaration = part("model")
MODELS: Declaration = each(MODEL)
NODE: Declaration = part("node")
NODES: Declaration = each(NODE)
OPTIMIZER: Declaration = part("optimizer")
WORKFLOW_FILE: Declaration = part("file")


# Declarations


def declares(**settings: Declaration) -> Callable[[Any], Any]:
    """Declare the powers of a function that is registered, as a reader: @declares(location=PATH)."""

    def mark(function: Any) -> Any:
        function.powers = settings
        return function

    return mark


def declared_powers(kind: str, name: str) -> Powers | None:
    """Return the declaration of a registered thing; None if it declares nothing, or cannot be loaded."""
    try:
        return declaration_of(plugins().get(kind, name))
    except PluginError:
        return None


def declaration_of(thing: Any) -> Powers | None:
    """Return the declaration of a class or function. A class that adds settings to its base must declare anew."""
    if not isinstance(thing, type):
        return getattr(thing, "powers", None)
    for cls in thing.__mro__:
        if "powers" in vars(cls):
            declared: Powers = getattr(cls, "powers")  # noqa: B009
            return declared
        if _adds_settings(cls):
            return None
    return None


def _adds_settings(cls: type[Any]) -> bool:
    fields = getattr(cls, "model_fields", None)
    if fields is None:  # a node kind, or a metric whose settings are its arguments
        return "Config" in vars(cls) or ("__init__" in vars(cls) and not hasattr(cls, "Config"))
    return any(all(name not in getattr(base, "model_fields", ()) for base in cls.__bases__) for name in fields)


def powers_of(kind: str, name: str, settings: Written) -> Found:
    """Find the capabilities of a registered thing with these settings, a mapping."""
    powers = declared_powers(kind, name)
    if powers is None:
        text = f"the {KINDS[kind]} '{one_line(name)}' of the plugin '{one_line(plugins().owner(kind, name))}'"
        return [Power("uses what does not say what it does", text, text, settings.at)]
    return powers(settings) if callable(powers) else _of_group(powers, settings)


def _absolute(setting: Written, text: str | None = None) -> str:
    try:
        return str((setting.base / (setting.value if text is None else text)).resolve())
    except (OSError, RuntimeError, ValueError):
        return str(setting.value)
