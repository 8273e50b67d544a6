"""Doors: the only ways from a workflow file to Python, programs, addresses, variables and other folders.

Whatever is made from a file passes its values through a door, and passes it again when it acts. A guard of the process
decides what a door does:

- open, the default: all pass. Python that calls `workbench` has these rights already.
- `collecting`: a door records what was asked for. Nothing acts: Python is read as an outline.
- `guarded`: what was collected and approved passes, with the same files. All else raises `Untrusted`.

So the question to the user and the loader cannot differ. One file: the guard, and the few kinds of doors.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from workbench.base.files import content_digest
from workbench.base.text import one_line
from workbench.errors import SpecError, current_place, placed_at

#: The kinds of doors, in the words shown to the user.
Kind = Literal[
    "runs Python",
    "starts a program",
    "asks an address",
    "sends a variable of the environment",
    "reads outside its folder",
]
Place = tuple[str | int, ...]
#: The form of a text that names files, and moves with its file; text: a workflow file whose digest is in `what`.
Form = Literal["", "path", "address", "command", "model", "text"]

#: The gateway's variables, which an existing agent receives.
_OF_GATEWAY = frozenset({"OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL"})
#: A reference to an environment variable.
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_OF_IPV4 = re.compile(r"[0-9a-fxA-FX.]+")
#: A word of a command that is written as one text.
WORD = re.compile(r"[^\s'\"=;&|()]+")
_LONGEST_PATH, _MAX_FOLDERS = 4096, 16
#: Files that make a folder a program.
_PROGRAMS = ("__main__.py", "pyproject.toml", "package.json", "index.js", "go.mod", "Cargo.toml", "Makefile")


class Untrusted(SpecError):
    """A file needs something that the user was not asked about."""


@dataclass(frozen=True)
class Passed:
    """A value that passed a door.

    text: as written. what: the same text, independent of the file's location. base: the folder for relative paths.
    at: its path in the file. files: the existing files that it depends on; a folder stands for all of it. asked: False
    if the user is not asked about it, as for a file in the folder.
    """

    kind: Kind
    text: str
    what: str
    base: Path
    at: Place = ()
    files: tuple[Path, ...] = ()
    asked: bool = True
    form: Form = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Return what a consent is about: a text in a folder, with the files that are loaded; or its meaning."""
        if self.kind == "runs Python":
            return (self.kind, self.text, str(self.base), *map(str, self.files))
        return (self.kind, self.text, str(self.base)) if self.kind == "starts a program" else (self.kind, self.what)


@dataclass
class Consent:
    """The approved passages through doors, and the approved content: SHA-256 by path of file, or by another name.

    home: the folder of the workflow file. everything: it is a trusted folder.
    """

    home: Path
    keys: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    contents: dict[str, str] = field(default_factory=dict[str, str])
    everything: bool = False

    def covers(self, one: Passed) -> bool:
        return one.key in self.keys or (self.everything and one.base.is_relative_to(self.home))


@dataclass(eq=False)
class _Collection:
    home: Path
    passed: list[Passed] = field(default_factory=list[Passed])


_collection: ContextVar[_Collection | None] = ContextVar("collection", default=None)
_consents: list[Consent] = []


@contextmanager
def collecting(home: Path) -> Generator[list[Passed]]:
    """Record what passes doors in the block, in this thread. home: the folder of the workflow file."""
    made = _Collection(home.resolve())
    token = _collection.set(made)
    try:
        with placed_at(anew=True):
            yield made.passed
    finally:
        _collection.reset(token)


def is_collecting() -> bool:
    """Return True if nothing may act here."""
    return _collection.get() is not None


def collection() -> object:
    """Return a key for things that pass doors when they are made: of this collection and this place; None without."""
    made = _collection.get()
    return made and (made, current_place())


def is_open() -> bool:
    """Return True if all pass."""
    return not is_collecting() and all(consent.everything for consent in _consents)


def guard(consent: Consent) -> None:
    """Let only what was approved pass, in the whole process, until `unguard`."""
    _consents.append(consent)


def unguard() -> None:
    """Open the doors: the command is over."""
    _consents.clear()


def allow(passed: Iterable[Passed]) -> None:
    """Let pass what the command itself makes of approved things: trained weights, an agent in a copy of its folder."""
    for consent in _consents:
        consent.keys |= {one.key for one in passed}


def check_asked(place: str | Path, content: bytes) -> None:
    """Raise SpecError if this is not the approved content. place: the path of a file, or a name."""
    name = str(place.resolve()) if isinstance(place, Path) else place
    approved = [consent.contents[name] for consent in _consents if name in consent.contents]
    if approved and content_digest(content) not in approved:
        raise SpecError(
            f"{place} has changed since this command asked whether it is trusted",
            hint="Nothing of the new one was run. Give the command again.",
        )


def enter_text(path: Path, content: bytes) -> None:
    """Note a workflow file that was read; while doors are guarded, check that it is the approved one."""
    check_asked(path, content)
    if is_collecting():
        what = content_digest(content)
        pass_door("reads outside its folder", str(path), what, path.parent, (), [path.resolve()], "text", asked=False)


def home_folder() -> Path:
    """Return the folder of the workflow file that is asked about; else the current one."""
    made = _collection.get()
    return made.home if made else _consents[-1].home if _consents else Path.cwd()


def pass_door(
    kind: Kind,
    text: str,
    what: str,
    base: Path,
    at: Place = (),
    files: Iterable[Path] = (),
    form: Form = "",
    *,
    asked: bool = True,
    now: bool = False,
) -> None:
    """Pass a door with the fields of `Passed`. now: this is about to act. Raises Untrusted."""
    made = _collection.get()
    one = Passed(kind, text, what, base.resolve(), (*current_place(), *at), tuple(files), asked, form)
    if made is not None and not now:
        made.passed.append(one)
    elif asked and not is_open() and not any(consent.covers(one) for consent in _consents):
        raise Untrusted(
            f"it {kind}: {one_line(text)}, and this was not asked about",
            hint="Nothing of it was done. To trust all files of a folder: workbench trust --folder FOLDER.",
        )


# Doors. Python has its own in `user_code`, and models in `workbench.lm`.


def start_program(
    command: str, base: Path, *at: str | int, form: Form = "command", files: Iterable[Path] = (), now: bool = False
) -> None:
    """Pass the door to a program, by its command in one text. Its files are those that its words name: files, Python
    modules, also below a folder that another word names (`cd agent && python main.py`), and whole folders that are
    programs (`uv run --project agent`)."""
    if not is_open():
        what, named = _read_command(command, base)
        pass_door("starts a program", command, what, base, at, (*named, *files), form, now=now)


def set_variables(variables: Mapping[str, str], base: Path, *at: str | int) -> None:
    """Pass the door to the environment of a program. Variables of ours are passed to it, and any variable (PATH,
    NODE_OPTIONS) may replace a program by another, or send its data elsewhere."""
    for name, value in variables.items():
        start_program(f"with {name}={value}", base, *at, name, form="")
        send_variables(set(VARIABLE.findall(value)) - _OF_GATEWAY, f"a program, as {name}")


def send_variables(names: Collection[str], to: str, now: bool = False) -> None:
    """Pass the door for values of environment variables to a server or a program."""
    if names and not is_open():
        text = f"{', '.join(sorted(names))} to {to}"
        pass_door("sends a variable of the environment", text, text, home_folder(), now=now)


def connect(address: str, *at: str | int, now: bool = False) -> None:
    """Pass the door to an address that is no model's. Addresses on this machine or its network are marked."""
    if not is_open():
        near = describe_host(address)
        text = f"{address} ({near})" if near else address
        pass_door("asks an address", text, address, home_folder(), at, now=now)


def read_outside(text: str, base: Path, *at: str | int, shown: str = "", outside: bool = False) -> bool:
    """Pass the door to a file or folder. The user is not asked about one inside the workflow file's folder.

    shown: the text for the user. outside: True if it is elsewhere in any case. Returns True if it may be read now: what
    is elsewhere is not read while it is asked about.
    """
    if is_open():
        return True
    files, what = list[Path](), text
    if len(text) > _LONGEST_PATH:  # `a/../a/../...` is valid at any length, but slow to resolve
        shown, outside = f"{text[:80]}...", True
    else:
        files, what = [*existing(text, base)], _absolute(text, base)
        outside |= not all(lies_inside(path, home_folder()) for path in (base / text, *files))
    pass_door("reads outside its folder", shown or text, what, base, at, files, "path", asked=outside)
    return not (outside and is_collecting())


# Places


def existing(place: str, base: Path) -> Iterator[Path]:
    """Yield the existing paths for a text, links followed, with `~` as a name and as the home folder."""
    for written in dict.fromkeys((place, str(Path(place).expanduser()) if place.startswith("~") else place)):
        try:
            path = (base / written).resolve()
            if path.exists():
                yield path
        except (OSError, RuntimeError, ValueError):
            pass  # not a path


def lies_inside(path: Path, base: Path) -> bool:
    """Return True if a path is inside a folder, links followed."""
    try:
        return path.expanduser().resolve().is_relative_to(base.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def _absolute(text: str, base: Path) -> str:
    try:
        return str((base / text).resolve())
    except (OSError, RuntimeError, ValueError):
        return text


def _read_command(command: str, base: Path) -> tuple[str, tuple[Path, ...]]:
    """Return a command with the paths of its files, and these files."""
    words = [word for word in dict.fromkeys(WORD.findall(command)) if word.strip("./~")]
    folders = [path for word in words for path in existing(word, base) if path.is_dir()][:_MAX_FOLDERS]
    files = {path: None for path in folders if any((path / name).is_file() for name in _PROGRAMS)}
    for word, folder in product(words, (base, *folders)):
        module = word.removeprefix("-m").replace(".", "/")
        for name in (word, *(f"{module}{end}" for end in (".py", "/__init__.py", "/__main__.py") if module)):
            files |= dict.fromkeys(path for path in existing(name, folder) if path.is_file())
    inside = tuple(path for path in files if path.is_relative_to(base.resolve()))
    return WORD.sub(lambda word: str(next(existing(word[0], base), word[0])), command), inside


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
