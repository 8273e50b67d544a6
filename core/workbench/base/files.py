"""Writing files, checked before anything is paid for, and whole or not at all; and checks of their disk."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TextIO

from workbench.errors import SpecError, StoreError

#: Bytes. A run of ten thousand calls with one-page prompts writes about this much.
LITTLE = 200_000_000

#: The end of a rollback journal of SQLite that names a second journal. SQLite deletes the file of that name.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")

#: Parts of a folder that are not copied or read: large, or generated.
NEVER_COPIED = frozenset({".git", "__pycache__", ".venv", "venv", "node_modules"})
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "fuse.sshfs"}
_MOUNTS = Path("/proc/self/mountinfo")


def check_output(
    out: Path,
    option: str = "--out",
    *,
    inputs: Iterable[str | Path] = (),
    ours: Callable[[Path], bool] = lambda path: False,
    overwrite: bool = False,
    other: str = "",
) -> None:
    """Check, before anything is paid for, the file that a command will write.

    Args:
        option: the flag that names it.
        inputs: files that the command reads; values that are no files are ignored.
        ours: returns True if the same command made an existing file, so that nothing is lost with it.
        overwrite: replace any other file, except the inputs.
        other: an example of another name, for the hint.

    Raises:
        SpecError: the file cannot be written, is an input, or would replace somebody else's file.
    """
    check_writable(out, option)
    if not out.exists():
        return
    another = f"Name another file{f', e.g. {option} {other}' if other else ''}"
    if any(Path(path).exists() and out.samefile(path) for path in inputs):
        raise SpecError(f"{option} {out}: that file is read by this command, and would be lost", hint=f"{another}.")
    if overwrite or not out.stat().st_size:  # an empty file, e.g. from mktemp
        return
    known = False
    with suppress(OSError):  # unreadable
        known = ours(out)
    if not known:
        raise SpecError(
            f"{option} {out}: that file exists, and was not written by this command, or edited since",
            hint=f"{another}, or add --overwrite to replace it.",
        )


def begins_with(pattern: str) -> Callable[[Path], bool]:
    """Return a check that the text of a file begins with a match of a regular expression."""

    def check(path: Path) -> bool:
        with path.open("rb") as file:
            return re.match(pattern, file.read(4096).decode(errors="replace")) is not None

    return check


def check_writable(out: Path, option: str = "--out") -> None:
    """Raise SpecError if the file cannot be written. option: the flag that names it."""
    folder = next(p for p in (out.resolve().parent, *out.resolve().parent.parents) if p.exists())
    if out.is_dir():
        raise SpecError(f"{option} {out}: that is a folder", hint="Name a file in it.")
    if out.exists() and not out.is_file():
        raise SpecError(f"{option} {out}: that is not a file", hint="Name a file in a folder of yours.")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SpecError(f"{option} {out}: nothing can be written in {folder}", hint="Name a file in a folder of yours.")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return content_digest(path.read_bytes())


def weights_digest(path: Path) -> str:
    """Return the SHA-256 of a large file's content, which is read once for each state of the file."""
    at = path.stat()
    return _digest_of_state(path, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)


@lru_cache(maxsize=1024)
def _digest_of_state(path: Path, *state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(content: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()


def make_private(path: Path) -> None:
    """Create an empty file that only its owner may read and write. An existing one keeps its mode."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass


def write_whole(out: Path, text: str) -> None:
    """Write a file whole or not at all (`open_whole`)."""
    with open_whole(out) as file:
        file.write(text)


@contextmanager
def open_whole(out: Path, *, errors: str = "strict", newline: str | None = None) -> Generator[TextIO]:
    """Open a file to write it whole or not at all. Creates a missing folder.

    It is written under another name first, so that no crash leaves half a file. Only the owner may read a new file; an
    existing one keeps its mode.

    errors, newline: as for `open`.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # left by a killed process
    make_private(part)
    with part.open("w", encoding="utf-8", errors=errors, newline=newline) as file:
        yield file
    if out.exists():
        part.chmod(stat.S_IMODE(out.stat().st_mode))
    os.replace(part, out)


def check_database_files(database: Path) -> None:
    """Raise StoreError if a database, or one of its side files, must not be opened: a pipe would hang, and a link or a
    journal that names another file would change that one."""
    if database.exists() and not database.is_file():
        raise StoreError(f"{database} is not a file; name another database with --db")
    if not database.parent.is_dir():
        return
    beside = re.compile(re.escape(database.name) + r"-(wal|shm|journal|[\w-]+\.lock)")
    for path in database.parent.iterdir():
        if not beside.fullmatch(path.name):
            continue
        with suppress(FileNotFoundError):  # its writer has just removed it
            if not stat.S_ISREG(path.lstat().st_mode):
                raise StoreError(f"{path} is a link or no file, so {database} is not opened; remove it")
            if path.name.endswith("-journal") and _last_bytes(path, len(_NAMES_ANOTHER)) == _NAMES_ANOTHER:
                raise StoreError(f"{path} names a file that SQLite would delete, so it is not used; remove it")


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read(count)


def disk_warnings(database: Path) -> list[str]:
    """Warn of possible problems with a database at this path. It need not exist."""
    folder = next(folder for folder in database.resolve().parents if folder.exists())
    found, free = list[str](), shutil.disk_usage(folder).free
    if free < LITTLE:
        found.append(
            f"only {free / 1e6:.0f} MB are free where {database} is written; if the disk fills up, the run stops, "
            "keeps what it has paid for, and can be resumed once there is room"
        )
    if (kind := file_system(folder)) in _NETWORK:
        found.append(
            f"{database} is on a network file system ({kind}), where locks may not hold and a database may be "
            "damaged; name one on a local disk with --db"
        )
    return found


def file_system(folder: Path) -> str | None:
    """Return the type of the file system that holds a folder, such as ext4; None if unknown."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    longest, found = -1, None
    for line in lines:
        mount, _, source = line.partition(" - ")
        place = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), mount.split()[4]))
        if folder.is_relative_to(place) and len(place.parts) >= longest:  # a later mount hides an earlier one
            longest, found = len(place.parts), source.split()[0]
    return found
