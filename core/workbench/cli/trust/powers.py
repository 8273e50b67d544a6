"""What a workflow file does besides asking its models: the things that the user is asked about (`workbench trust`).

They are read off the text of the file and of the workflow files that it refers to. Nothing is imported or started.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from workbench.errors import SpecError
from workbench.files import file_digest
from workbench.lm import is_loopback
from workbench.spec import load_yaml_file
from workbench.text import one_line
from workbench.type_guards import is_dict, is_list, walk
from workbench.user_code import PREFIX, SERVER, code_files, parse_server, relocate_address

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
#: The address of the gateway, which an agent that exists is given.
_GATEWAY = "OPENAI_BASE_URL"
_ADDRESS = re.compile(r"https?://\S+", re.IGNORECASE)
_DATA = ("file", "train", "val", "test")
#: Readers whose place is a path or a name on the hub, which is public.
_PATH_READERS = ("csv", "tsv", "json", "jsonl", "parquet", "hf")
_LONGEST_PATH = 4096
#: Of each kind so many texts are shown, and so many characters of each.
_LISTED, _SHOWN = 12, 160
#: Sections that are not read where a workflow is called.
_UNUSED = ("data", "metric", "search", "optimize")
#: Parts of an address under `search:`, from its end, that tell what its values are.
_DEEPEST = 8

Kind = Literal["runs Python", "starts a program", "sends a variable of the environment", "reads outside its folder"]


@dataclass
class Powers:
    """What a file does, and the digests of the files that say so.

    `found` holds by kind each text as it is written, with what it stands for wherever the file lies. Digested are the
    folder, the workflow file, those that it refers to, and the files in their folders that are named as Python or as
    words of a command; what these import is not.
    """

    folder: Path
    found: dict[Kind, dict[str, str]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def add(self, kind: Kind, text: str, what: str | None = None) -> None:
        self.found.setdefault(kind, {})[text] = text if what is None else what

    def __bool__(self) -> bool:
        return bool(self.found)

    @property
    def digest(self) -> str:
        content = repr((str(self.folder), sorted(self.digests.items())))  # elsewhere, `./server.sh` is another program
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()

    def covers(self, other: Powers) -> bool:
        """Whether the other file does nothing that this one does not do, or could do unasked."""
        return all(
            what in self.found.get(kind, {}).values()
            or (kind == "reads outside its folder" and _inside(Path(what.partition(":")[2] or what), self.folder))
            for kind, texts in other.found.items()
            for what in texts.values()
        )

    def lines(self) -> list[str]:
        """A line for each kind, safe to show."""
        return [f"{kind}: {_listed(self.found[kind])}" for kind in sorted(self.found)]


def _listed(texts: Iterable[str]) -> str:
    """Texts with commas between them, cut so that they cannot push the other lines off the screen."""
    shown = [one_line(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...") for text in sorted(texts)]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    return ", ".join(shown[:_LISTED]) + more


def file_powers(path: Path, called: bool = False) -> Powers:
    """What a workflow file does. called: where it is called, not improved. Raises SpecError for one that cannot be
    read."""
    source = load_yaml_file(path)
    value = source.value
    if called and is_dict(value):
        value = {key: part for key, part in value.items() if key not in _UNUSED}
    return read_powers(value, source.text, path.resolve().parent)


def read_powers(value: Any, text: str, base: Path) -> Powers:
    """What a workflow file does that was read before, as that of a stored run.

    Args:
        value: its content.
        text: what is digested for it.
        base: the folder that its paths are relative to.
    """
    base = base.resolve()
    reading = _Reading(base)
    reading.read(value, text, base)
    return reading.powers


class _Reading:
    """A workflow file in `start` and the workflow files that it refers to, each read once."""

    def __init__(self, start: Path):
        self.start, self.powers = start, Powers(start)

    def read(self, value: Any, text: str, base: Path, name: str = "") -> None:
        """name: the path of a file referred to, relative to the first folder."""
        self.powers.digests[name] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if not is_dict(value):
            return
        for file in code_files(value, base):
            self._add_digest(file)
        searched = list(_searched(value))
        for part in (*_mappings(value), *_mappings(searched)):
            for file in _add_programs(part, self.powers, base):
                self._add_digest(file)
        _add_variables(value, searched, self.powers)
        data = value.get("data")
        data = {"file": data} if isinstance(data, str) else data
        for key, place in data.items() if is_dict(data) else ():
            if key in _DATA and isinstance(place, str) and _leads_out(place, base):
                self.powers.add("reads outside its folder", place, _place(place, base))
        for part in _texts({key: part for key, part in value.items() if key not in ("data", "lm", "roles")}):
            self._add_file(part, base)

    def _add_digest(self, file: Path) -> None:
        self.powers.digests[os.path.relpath(file, self.start)] = file_digest(file)

    def _add_file(self, text: str, base: Path) -> None:
        """What a text outside data and models leads to: another workflow file, or a place outside the folder.

        A name may hold anything, so the whole text counts, and what stands before `#` in it. So does a folder `~`.
        """
        for place in dict.fromkeys((text, text.partition("#")[0])):
            if len(place) > _LONGEST_PATH:  # `a/../a/../...` leads somewhere at any length, but takes long to follow
                first, mark, _ = place.partition("/")
                if mark and any(_existing(first or mark, base)):
                    self.powers.add("reads outside its folder", f"{place[:80]}...")
                continue
            for path in _existing(place, base):
                if place.strip("./~ ") and not path.is_relative_to(base):
                    self.powers.add("reads outside its folder", place, str(path))
                self._add_workflow(path)

    def _add_workflow(self, path: Path) -> None:
        name = os.path.relpath(path, self.start)
        if not path.is_file() or name in self.powers.digests:
            return
        try:
            source = load_yaml_file(path)
        except SpecError:
            return  # told when the file is used
        if is_dict(source.value) and "nodes" in source.value:
            self.read(source.value, source.text, path.parent, name)


def _existing(place: str, base: Path) -> Iterator[Path]:
    """What is at a place, links followed, with `~` as a name and as the home."""
    for written in dict.fromkeys((place, os.path.expanduser(place))):
        try:
            path = (base / written).resolve()
            if path.exists():
                yield path
        except (OSError, RuntimeError, ValueError):
            pass  # no path


def _mappings(value: Any) -> Iterator[Mapping[Any, Any]]:
    """Each mapping inside a value, and the value as one of them."""
    return filter(is_dict, walk(value))


def _texts(value: Any) -> Iterator[str]:
    """Each text inside a value, and those that are keys."""
    for part in walk(value):
        yield from (text for text in (part if is_dict(part) else (part,)) if isinstance(text, str))


def _own_texts(part: Mapping[Any, Any]) -> Iterator[str]:
    """The texts of a mapping, and of the lists in it."""
    for key, value in part.items():
        for text in (key, *(value if is_list(value) else [value])):
            if isinstance(text, str):
                yield text


def _add_programs(part: Mapping[Any, Any], powers: Powers, base: Path) -> list[Path]:
    """Returns the files in the folder that are words of a command."""
    commands: list[str] = []
    for text in _own_texts(part):
        if text.startswith(PREFIX):
            powers.add("runs Python", text, relocate_address(text, base, Path("/")))
        if text.startswith(SERVER):
            commands.append(_server_command(text))
    if is_dict(managed := part.get("managed")) and "command" not in managed:  # whose arguments can load code
        commands.append(" ".join(map(str, ["vllm serve", *(managed.get("arguments") or ())])))
    if command := part.get("command"):
        commands.append(" ".join(map(str, command)) if is_list(command) else str(command))
    if "external" in part:  # an agent that exists; its command is read above
        commands += [_server_command(str(part["mcp"]))] if part.get("mcp") else []
        if part.get("python"):
            powers.add("runs Python", str(part["python"]))
    for command in commands:
        powers.add("starts a program", command)
    _add_environment(part.get("env"), powers)
    if isinstance(image := part.get("image"), str) and ("external" in part or len(part) == 1):  # alone: searched
        powers.add("starts a program", f"the container image {image}")
    settings = part.get("settings")
    if is_dict(settings) and ":" in str(settings.get("id")):
        powers.add("runs Python", str(settings["id"]))  # gymnasium imports the module before the colon
    words = {word for command in commands for word in re.split(r"[\s'\"=]+", command)}
    return [path for word in sorted(words) for path in _existing(word, base) if path.is_file() and _inside(path, base)]


def _add_environment(env: Any, powers: Powers) -> None:
    """Variables of a program's environment. Those of ours go to it, and any of them (PATH, NODE_OPTIONS) may make
    another program of it, or send what it is given elsewhere."""
    for name, value in env.items() if is_dict(env) else ():
        powers.add("starts a program", f"with {name}={value}")
        if names := set(_VARIABLE.findall(str(value))) - {_GATEWAY}:
            powers.add("sends a variable of the environment", f"{', '.join(sorted(names))} to a program, as {name}")


def _server_command(address: str) -> str:
    try:
        return parse_server(address).command
    except SpecError:
        return address  # told when it is used


def _add_variables(value: Any, searched: list[Any], powers: Powers) -> None:
    """Variables that a language model's settings send to a server which the same settings name. What is searched may
    be put into any settings."""
    sent, tried = list(map(_sent, _mappings(value))), list(map(_sent, _mappings(searched)))
    if any(names or servers for names, servers in tried):
        every = [*sent, *tried]
        sent = [(set().union(*(names for names, _ in every)), set().union(*(servers for _, servers in every)))]
    for names, servers in sent:
        places = sorted({_host(server) for server in servers if not is_loopback(server)})
        if names and places:
            text = f"{', '.join(sorted(names))} to {', '.join(places)}"
            powers.add("sends a variable of the environment", text)


def _sent(part: Mapping[Any, Any]) -> tuple[set[str], set[str]]:
    """The variables and the servers that a mapping names, if it is a model's settings."""
    names = {str(part["api_key_env"])} if part.get("api_key_env") else set[str]()
    servers = {str(part["api_base"])} if part.get("api_base") else set[str]()
    for text in _texts(part.get("extra")):
        names |= set(_VARIABLE.findall(text))
        servers |= set(_ADDRESS.findall(text))
    return names, servers


def _host(server: str) -> str:
    try:
        return urlsplit(server).netloc or server
    except ValueError:
        return server


def _searched(value: Mapping[Any, Any]) -> Iterator[Any]:
    """Each value that `search:` tries, inside the settings that its address names."""
    search = value.get("search")
    for address, domain in search.items() if is_dict(search) else ():
        choices = domain.get("choice") if is_dict(domain) else domain
        for choice in choices if is_list(choices) else ():
            for key in reversed(str(address).split(".")[-_DEEPEST:]):
                choice = {key: choice}
            yield choice


def _leads_out(place: str, base: Path) -> bool:
    """Whether rows come from elsewhere than the folder of the file. A place after a reader's name is relative to the
    current folder."""
    reader, colon, rest = place.partition(":")
    if not colon or not reader.isidentifier():
        return not _inside(base / place, base)
    if reader not in _PATH_READERS:
        return True
    if reader == "hf":  # a name on the hub has an owner; one without is a format, whose files are looked for here
        rest = rest.partition("?")[0]
        return "/" not in rest or (Path(rest).expanduser().exists() and not _inside(Path(rest), base))
    return not _inside(Path(rest), base)


def _place(place: str, base: Path) -> str:
    """The file of rows, wherever the workflow file lies."""
    reader, colon, rest = place.partition(":")
    named = colon and reader.isidentifier()
    return f"{reader}:{Path(rest).resolve()}" if named else str((base / place).resolve())


def _inside(path: Path, base: Path) -> bool:
    try:
        return path.expanduser().resolve().is_relative_to(base.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
