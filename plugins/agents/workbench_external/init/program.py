"""The program of an agent, as the user starts it: its command, its file, and the folders that it may need."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.base.files import NEVER_COPIED
from workbench.errors import SpecError

#: The programs that start a file, by its suffix.
_STARTED_BY = {
    ".py": ("python",),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ("node",)),
    **dict.fromkeys((".ts", ".mts", ".tsx"), ("npx", "tsx")),
    **dict.fromkeys((".sh", ".bash"), ("bash",)),
    ".rb": ("ruby",),
    ".pl": ("perl",),
    ".php": ("php",),
    ".go": ("go", "run"),
}
_FUNCTION = re.compile(r"[\w./-]+\.py:\w+|[A-Za-z_][\w.]*:[A-Za-z_]\w*")
#: Maximum files and bytes of a folder to copy for each row.
_MAX_FILES, _MAX_BYTES = 2000, 100_000_000


@dataclass(frozen=True)
class Program:
    """The program of an agent.

    words: its command, with paths relative to `base`; none for a function. function: `file.py:name`. file: the file
    that it starts, if any. base: the folder of the workflow file. folders: to try as the setting `folder`, the
    likeliest first; None: an empty working directory. notes: how the user's words were interpreted.
    """

    words: tuple[str, ...]
    function: str
    file: Path | None
    base: Path
    folders: tuple[Path | None, ...]
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return self.function or " ".join(self.words)


def read_program(words: Sequence[str], here: Path, out: Path | None = None) -> Program:
    """Read the program that the user named: a file, a function, or a command. here: the current directory.

    out: the workflow file, if the user named one; else it is in the agent's own folder. Raises SpecError.
    """
    if len(words) == 1 and _FUNCTION.fullmatch(words[0]):
        place = words[0].rpartition(":")[0]
        file = here / (place if place.endswith(".py") else f"{place.replace('.', '/')}.py")
        if not file.is_file():
            raise SpecError(f"there is no file {file}", hint="Name a function as agent.py:answer.")
        own = file.parent if place.endswith(".py") else here
        return _placed(Program((), words[0], file.resolve(), own.resolve(), ()), here, (own, here), out)
    if len(words) == 1 and (here / words[0]).is_file():
        file = (here / words[0]).resolve()
        # A file written as a path that is executable is a command.
        starter = () if words[0].startswith((".", "/")) and os.access(file, os.X_OK) else _starter_of(file)
        made = Program((*starter, words[0] if not starter else str(file)), "", file, file.parent, ())
        return _placed(made, here, (file.parent, here), out)
    named = [word for word in words if not word.startswith("-") and (here / word).is_file()]
    if shutil.which(words[0]) is None and words[0] not in named:
        near = " It is no file here either." if "." in words[0] or "/" in words[0] else ""
        raise SpecError(
            f"there is no program '{words[0]}' on PATH.{near}",
            hint="Give the agent's file (agent.py), or the command that starts it behind `--`: -- python agent.py.",
        )
    file = (here / named[-1]).resolve() if named else None
    made = Program(tuple(words), "", file, here.resolve(), ())
    return _placed(made, here, (here, *([file.parent] if file else [])), out)


def _placed(program: Program, here: Path, folders: Sequence[Path], out: Path | None) -> Program:
    """Return the program with paths relative to the workflow file, and the folders that are small enough to copy."""
    base = program.base if out is None else out.resolve().parent
    words = [_from_base(word, here, base) for word in program.words]
    notes = list[str]()
    if words[:1] == ["npx"] and len(words) > 1 and (own := _in_modules(words[1], here, program)) is not None:
        words[:2] = [os.path.relpath(own, base)]
        notes.append(f"npx starts {words[0]}, which is named here, since rows start elsewhere")
    if words[:1] == ["python"] and (own := _own_python(here, program)) is not None:
        words[0] = os.path.relpath(own, base)
        notes.append("the Python of the agent's own environment")
    elif words[:1] == ["python"] and shutil.which("python") is None:
        words[0] = "python3"
    function = program.function
    if function.rpartition(":")[0].endswith(".py"):
        function = f"{_from_base(function.rpartition(':')[0], here, base)}:{function.rpartition(':')[2]}"
    fitting = dict[Path, None]()
    for folder in (folder.resolve() for folder in folders):
        if program.file is not None and not program.file.is_relative_to(folder):
            continue
        if _is_small(folder):
            fitting[folder] = None
        else:
            notes.append(f"{folder.name} has too many files to be copied for each row")
    return replace(
        program, words=tuple(words), function=function, base=base, folders=(*fitting, None), notes=tuple(notes)
    )


def _starter_of(file: Path) -> tuple[str, ...]:
    """Return the words that start a file: by its suffix, or none for an executable one."""
    if (found := _STARTED_BY.get(file.suffix)) is not None:
        return found
    if os.access(file, os.X_OK):
        return ()
    raise SpecError(
        f"{file.name}: it is not known what starts this file",
        hint=f"Write the whole command behind `--`, e.g. -- python {file.name}, or make it executable.",
    )


def _from_base(word: str, here: Path, base: Path) -> str:
    """Return a word of a command relative to the workflow file's folder: paths of files and folders are moved."""
    is_path = not word.startswith("-") and ("/" in word or "." in word) and (here / word).exists()
    if not word or word in (".", "..") or not is_path:
        return word
    moved = os.path.relpath(os.path.abspath(here / word), base)
    return f"./{moved}" if word.startswith("./") and "/" not in moved else moved


def _in_modules(name: str, here: Path, program: Program) -> Path | None:
    """Return the program that npx would start, in the nearest node_modules."""
    for folder in dict.fromkeys(_upwards(here, program)):
        if (found := folder / "node_modules/.bin" / name).is_file():
            return found
    return None


def _own_python(here: Path, program: Program) -> Path | None:
    """Return the Python of an environment in the agent's folder or above, unless one is active."""
    if os.environ.get("VIRTUAL_ENV"):
        return None
    for folder in _upwards(here, program):
        for name in (".venv", "venv"):
            if (found := folder / name / "bin/python").is_file():
                return found
    return None


def _upwards(here: Path, program: Program) -> Iterator[Path]:
    """Yield the folder of the program and those above it, up to the current directory."""
    here = here.resolve()
    if program.file is not None and program.file.is_relative_to(here):
        for folder in program.file.parents:
            yield folder
            if folder == here:
                return
    yield from ([program.file.parent] if program.file is not None else [])
    yield here


def _is_small(folder: Path) -> bool:
    """Return True if a folder can be copied for each row."""
    count = size = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in NEVER_COPIED]
        for name in names:
            count += 1
            try:
                size += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
            if count > _MAX_FILES or size > _MAX_BYTES:
                return False
    return True
