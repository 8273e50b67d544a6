"""Finds Deno and Pyodide, and installs Pyodide: one version, through npm or from a file, checked by its hash.

Only `workbench plugin sandbox install` downloads anything, by npm and from npm's configured registry.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from workbench.base.distribution import pip_install
from workbench.errors import SandboxError

VERSION = "314.0.7"
PACKAGE = f"pyodide@{VERSION}"
SHA512 = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
LARGEST = 64 << 20  # bytes: the file has 6.5 MB
LONGEST = 600  # seconds for npm
OLDEST_DENO = (2, 9)
INSTALL_DENO = pip_install("standard[wasm]")
INSTALL = "workbench plugin sandbox install"
BY_HAND = f"Run `npm pack {PACKAGE}` on a machine that can, and {INSTALL} --file pyodide-{VERSION}.tgz here."


def home() -> Path:
    """Return the folder of Pyodide's files: WORKBENCH_PYODIDE, else one in ~/.cache/workbench."""
    given = os.environ.get("WORKBENCH_PYODIDE")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(given) if given else cache / "workbench" / f"pyodide-{VERSION}").absolute()


def find_pyodide() -> Path:
    """Return the folder with all files of this version. Raise SandboxError with the command to install it."""
    folder = home()
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise SandboxError(f"there is no Pyodide {VERSION} in {folder} ({missing[0]} is missing); run {INSTALL}")
    return folder


def find_deno() -> str:
    """Return Deno's program. Raise SandboxError if it is missing or too old."""
    try:
        from deno import find_deno_bin  # type: ignore[import-not-found]

        program = str(find_deno_bin())
    except (ImportError, FileNotFoundError):
        program = shutil.which("deno") or ""
    if not program:
        raise SandboxError(f"Deno is not installed; run {INSTALL_DENO}")
    try:
        said = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            env={"DENO_DIR": "/dev/null/none", "DENO_NO_UPDATE_CHECK": "1"},
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{program} cannot be started: {error}") from None
    found = re.match(r"deno (\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_DENO:
        raise SandboxError(
            f"{program} is {said.splitlines()[0] if said else 'not Deno'}, but {'.'.join(map(str, OLDEST_DENO))} "
            f"or newer is needed; run {INSTALL_DENO}"
        )
    return program


def fetch() -> bytes:
    """Download the package with npm, from npm's configured registry. Raise SandboxError."""
    npm = shutil.which("npm")
    if npm is None:
        raise SandboxError(f"npm, which downloads Pyodide {VERSION}, is not installed", hint=BY_HAND)
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [npm, "pack", "--ignore-scripts", "--pack-destination", folder, PACKAGE],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LONGEST,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SandboxError(f"npm did not download {PACKAGE}: {error}", hint=BY_HAND) from None
        files = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(files) != 1:
            said = " ".join(done.stderr.split())[-300:]
            raise SandboxError(f"npm did not download {PACKAGE}: {said}", hint=BY_HAND)
        with files[0].open("rb") as file:
            return file.read(LARGEST + 1)


def install(package: bytes, folder: Path) -> None:
    """Unpack Pyodide's files into the folder, completely or not at all.

    Raises SandboxError if the package's hash differs or the folder cannot be written.
    """
    found = base64.b64encode(hashlib.sha512(package).digest()).decode()
    if found != SHA512:
        raise SandboxError(
            f"this is not Pyodide {VERSION}: its SHA-512 is {found[:16]}..., not {SHA512[:16]}...",
            hint=f"Use the file that `npm pack {PACKAGE}` writes.",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            whole = Path(temporary) / "whole"
            whole.mkdir()
            with tarfile.open(fileobj=io.BytesIO(package)) as archive:
                for name in FILES:
                    member = archive.extractfile(f"package/{name}")
                    assert member is not None, "the package with this hash contains it"
                    (whole / name).write_bytes(member.read())
            if folder.exists():
                os.rename(folder, Path(temporary) / "before")
            os.rename(whole, folder)
    except OSError as error:
        raise SandboxError(
            f"Pyodide cannot be put into {folder}: {error}",
            hint="Set WORKBENCH_PYODIDE to a folder that you may write.",
        ) from None
