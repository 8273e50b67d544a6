"""The disk of a run database: room on it, and file systems on which SQLite's locks may not hold."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

#: Bytes. A run of ten thousand calls with prompts of a page writes about this much.
LITTLE = 200_000_000

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "fuse.sshfs"}
_MOUNTS = Path("/proc/self/mountinfo")


def disk_warnings(database: Path) -> list[str]:
    """What may go wrong with a database in this place. It need not exist."""
    folder = next(folder for folder in database.resolve().parents if folder.exists())
    found, free = list[str](), shutil.disk_usage(folder).free
    if free < LITTLE:
        found.append(
            f"only {free / 1e6:.0f} MB are free where {database} is written; if the disk fills up, the run stops, keeps "
            "what it has paid for, and can be resumed once there is room"
        )
    if (kind := file_system(folder)) in _NETWORK:
        found.append(
            f"{database} lies on a network file system ({kind}), where locks may not hold and a database may be "
            "damaged; name one on a local disk with --db"
        )
    return found


def file_system(folder: Path) -> str | None:
    """The type of the file system that holds a folder, such as ext4; None where the kernel does not tell."""
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
