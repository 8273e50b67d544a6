"""The user's own Python, named in workflow files: tools, metrics, environments, judges of states.

`python:path/tools.py:lookup`   `lookup` of a file; the path is relative to the workflow file
`python:tools:lookup`           of a module: the file tools.py beside the workflow file, else an installed module
`python:tools.lookup`           the same; modules may be dotted, as in `python:package.tools.lookup`
`mcp:COMMAND ARGS#name`         the tool `name` of the MCP server that the command starts; without `#name` all its tools

The code is trusted and runs in this process. Only `load_user_code` runs it. The caller decides whether a node or a
metric is made with its code (`Code`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shlex
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from workbench.base.code_outline import Outline, outline_function, syntax_error
from workbench.base.type_guards import walk
from workbench.errors import SpecError, suggest
from workbench.spec.doors import check_asked, is_open, pass_door

PREFIX = "python:"
#: Prefix of the names of modules loaded from files.
USER_MODULES = "_workbench_user_"
SERVER = "mcp:"
#: The tool name at the end of a server's address. Any other `#` belongs to the command.
_TOOL = re.compile(r"#([\w./:-]*)\Z")

#: State of the user code of nodes and metrics. `unread`: only its addresses are known, for stored runs, whose code may
#: be lost. `outlined`: its source exists and was parsed, for checks of files. `loaded`: it was run.
Code = Literal["unread", "outlined", "loaded"]

#: True while a node is made whose code must not be loaded: calls of `load_user_code` by its kind are refused, too.
_refused: ContextVar[bool] = ContextVar("refused", default=False)
#: The file that is being executed to load it.
_loading: ContextVar[Path | None] = ContextVar("loading", default=None)


def check_not_loading(what: str) -> None:
    """Raise SpecError while a file of user code is being loaded. what: the action at its top level."""
    if (path := _loading.get()) is not None:
        raise SpecError(
            f"{path} calls {what} when it is loaded, which would run it twice",
            hint="Put the call under `if __name__ == '__main__':`, or the functions into a file of their own.",
        )


@dataclass(frozen=True)
class Address:
    """A name in a module. module: a path that ends in `.py`, or the module's dotted name."""

    module: str
    name: str

    @property
    def is_file(self) -> bool:
        return self.module.endswith(".py")

    def file(self, base: Path) -> Path:
        """Return the path of the named file, or of a module's file next to the workflow file. It may not exist."""
        inside = Path(self.module) if self.is_file else Path(*self.module.split(".")).with_suffix(".py")
        return (base / inside).resolve()


def parse_address(address: str) -> Address:
    """Parse an address, given with or without its prefix. Raises SpecError."""
    place = address.removeprefix(PREFIX)
    module, mark, name = place.rpartition(":") if ":" in place or place.endswith(".py") else place.rpartition(".")
    if place.endswith(".py"):
        raise SpecError(f"'{address}' names no function of the file", hint=f"Write {PREFIX}{place}:function.")
    if not mark or not module or not name:
        raise SpecError(
            f"'{address}' names no function",
            hint=f"Write {PREFIX}file.py:function, {PREFIX}module:function or {PREFIX}module.function.",
        )
    if not name.isidentifier():
        bare = name.partition("(")[0]
        hint = (
            f"Write {PREFIX}{module}:{bare}, without arguments." if bare.isidentifier() else "Write a name in Python."
        )
        raise SpecError(f"'{address}': '{name}' is not the name of a function", hint=hint)
    if not module.endswith(".py") and not all(part.isidentifier() for part in module.split(".")):
        raise SpecError(
            f"'{address}': '{module}' is neither a module nor a file of Python",
            hint=f"A file ends in .py: {PREFIX}file.py:{name}.",
        )
    return Address(module, name)


@dataclass(frozen=True)
class ServerAddress:
    """A command that starts a server, as written, and the name of one of its tools; "" for all."""

    command: str
    tool: str

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.command))


def parse_server(address: str) -> ServerAddress:
    """Parse an address of a server, given with or without its prefix. Raises SpecError."""
    text = address.removeprefix(SERVER)
    found = _TOOL.search(text)
    parsed = ServerAddress(text[: found.start()] if found else text, found[1] if found else "")
    if found and not found[1]:
        raise SpecError(
            f"'{address}' names no tool after #", hint=f"Write {SERVER}COMMAND ARGS#name, or leave # out for all tools."
        )
    try:
        if parsed.words:
            return parsed
        wrong = f"'{address}' names no command that starts a server"
    except ValueError as error:  # an unclosed quotation mark
        wrong = f"the command of '{address}' cannot be read: {error}"
    raise SpecError(wrong, hint=f"Write {SERVER}COMMAND ARGS#name, as in a shell, or without #name for all tools.")


def load_user_code(address: str, base: Path) -> Any:
    """Load the function or class at an address. base: the folder of the workflow file. Raises SpecError."""
    if _refused.get():
        raise SpecError(f"'{address}' is not loaded to look at a workflow", hint="Its node kind is to use self.code.")
    load_python(address, base, now=True)
    parsed = parse_address(address)
    module = _module(address, parsed, base)
    found = getattr(module, parsed.name, None)
    if not callable(found):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise SpecError(f"{parsed.module} has no function '{parsed.name}'", hint=suggest(parsed.name, known))
    return found


@contextmanager
def refused_unless(code: Code) -> Generator[None]:
    """Refuse `load_user_code` in the block, unless the code is `loaded`."""
    token = _refused.set(code != "loaded")
    try:
        yield
    finally:
        _refused.reset(token)


def load_python(address: str, base: Path, *at: str | int, now: bool = False) -> None:
    """Pass the door to Python at an address, with or without its prefix (`workbench.spec.doors`)."""
    if is_open():
        return
    written = address if address.startswith(PREFIX) else f"{PREFIX}{address}"
    places = list[Path]()
    with suppress(SpecError):  # not an address: reported when it is used
        parsed = parse_address(written)
        places = [parsed.file(base)]
        if not parsed.is_file:  # the packages that contain it are run, too
            names = parsed.module.split(".")
            places += [base.resolve().joinpath(*names[: n + 1], "__init__.py") for n in range(len(names))]
    files, what = [path for path in places if path.is_file()], relocate_address(written, base, Path("/"))
    pass_door("runs Python", address, what, base, at, files, "address", now=now)


def read_user_code(address: str, base: Path, code: Code, *at: str | int) -> Any:
    """Return the function or class at an address if `code` is `loaded`, else its outline, which cannot be called.

    at: the setting that names it. Raises SpecError if it does not exist, unless the code is `unread`.
    """
    load_python(address, base, *at)
    if code == "loaded":
        return load_user_code(address, base)
    return _outline(address, base) if code == "outlined" else Outline(parse_address(address).name)


def _outline(address: str, base: Path) -> Outline:
    """Read the outline of a function or class from its source. For an installed module, only check that it exists."""
    parsed = parse_address(address)
    path = parsed.file(base)
    if path.is_file():
        return outline_function(path, parsed.name)
    if parsed.is_file:
        raise _no_file(path)
    if importlib.util.find_spec(parsed.module.partition(".")[0]) is None:  # imports nothing
        raise SpecError(f"there is no module '{parsed.module}'", hint=_looked_for(parsed, path))
    return Outline(parsed.name)


def names_code(value: Any) -> bool:
    """Return True if a text inside a value is an address of user code, or of a server that a command starts."""
    for part in walk(value):
        if isinstance(part, str) and part.startswith((PREFIX, SERVER)):
            with suppress(SpecError):  # not an address, though it begins like one
                _ = parse_address(part) if part.startswith(PREFIX) else parse_server(part)
                return True
    return False


def code_files(value: Any, base: Path) -> list[Path]:
    """Return the files named by each `python:...` inside a value, sorted; without installed modules and imports."""
    found: set[Path] = set()
    for part in walk(value):
        if isinstance(part, str) and part.startswith(PREFIX):
            with suppress(SpecError):  # not an address, though it begins like one
                found.add(parse_address(part).file(base))
    return sorted(path for path in found if path.is_file())


def relocate_address(address: str, base: Path, folder: Path) -> str:
    """Rewrite an address in a workflow file in `base` for a file in another folder. An address of an installed module
    and a text that is no address do not change."""
    if not address.startswith(PREFIX):
        return address
    try:
        parsed = parse_address(address)
    except SpecError:
        return address
    path = parsed.file(base)
    if Path(parsed.module).is_absolute() or not (parsed.is_file or path.is_file()):
        return address
    if not parsed.is_file and base.resolve() == folder.resolve():
        return address
    return f"{PREFIX}{os.path.relpath(path, folder.resolve())}:{parsed.name}"


def _module(address: str, parsed: Address, base: Path) -> ModuleType:
    path = parsed.file(base)
    try:
        if path.is_file():
            return _load_file(path)
        if parsed.is_file:
            raise _no_file(path)
        return importlib.import_module(parsed.module)
    except SpecError:
        raise
    except SyntaxError as error:
        raise syntax_error(error) from None
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
        if inside:
            where, hint = f"{inside[-1].filename}:{inside[-1].lineno}: ", "Correct the file."
        else:
            where, hint = "", _looked_for(parsed, path)
        raise SpecError(f"{where}'{address}' cannot be imported: {type(error).__name__}: {error}", hint=hint) from error


def _no_file(path: Path) -> SpecError:
    near = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
    hint = f"{suggest(path.name, near)} Paths are relative to the workflow file."
    return SpecError(f"there is no file {path}", hint=hint)


def _looked_for(parsed: Address, path: Path) -> str:
    return (
        f"Looked for {path} and for an installed module. Write {PREFIX}file.py:{parsed.name} for a file, relative to "
        "the workflow file."
    )


def _load_file(path: Path) -> ModuleType:
    """Load the file as a module. It is executed once for each content: a changed file is a new module. The content that
    was read is executed: a loader would read the file again, or run the bytecode of an edit in the same second."""
    content = path.read_bytes()
    check_asked(path, content)
    mark = hashlib.sha256(str(path).encode() + b"\0" + content).hexdigest()[:16]
    name = f"{USER_MODULES}{path.stem}_{mark}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module there
    token = _loading.set(path)
    try:
        exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _loading.reset(token)
    return module
