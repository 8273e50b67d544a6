"""The checks of `workbench doctor`: package versions, plugins, disk and sandbox."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import site
import sqlite3
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from workbench.base.distribution import BUNDLED
from workbench.errors import SandboxError
from workbench.plugins import plugins, try_imports
from workbench.runtime import open_sandbox

#: Compromised releases that stole credentials.
_COMPROMISED = {"litellm": {"1.82.7", "1.82.8"}}
#: Packages that only a few models need.
_SPARED = ("litellm",)
#: Packages that are reported even if nothing is wrong with them.
_SHOWN = ("dspy", "litellm", "optuna", "pydantic", "aiohttp")


@dataclass(frozen=True)
class Check:
    name: str
    status: Literal["ok", "warn", "fail"]
    message: str


def run_checks() -> list[Check]:
    """Run all checks. They are cheap and use no network. Plugins that are not bundled are first imported in processes
    of their own."""
    try_imports()
    found = [Check("python", "ok", sys.version.split()[0]), _sqlite(), _disk(), *_packages(), *_plugins(), _sandbox()]
    found += [
        Check("executable .pth", "warn", f"{p} runs code at every start of Python")
        for p in _executable_pth(_site_folders())
    ]
    return found


def _sqlite() -> Check:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < (3, 51, 3):
        return Check(
            "sqlite",
            "warn",
            f"{version}; before 3.51.3, two processes that write and checkpoint at the same "
            "moment can, rarely, corrupt a WAL file. Several runs may share a database; until SQLite is updated, give "
            "those that run at the same time a database each (--db).",
        )
    return Check("sqlite", "ok", version)


def _disk() -> Check:
    free = shutil.disk_usage(".").free / 1e9
    return Check("disk", "ok" if free > 1 else "warn", f"{free:.1f} GB free here")


def _packages() -> Iterator[Check]:
    """Check the packages that our installed distributions require: report bad versions, by their pyproject.toml, and a
    few good ones."""
    asked: dict[str, str] = {}  # a requirement -> the first distribution that has it
    for name in BUNDLED:
        with suppress(importlib.metadata.PackageNotFoundError):
            for line in importlib.metadata.requires(name) or ():
                asked.setdefault(line, name)
    for wanted, owner in ((Requirement(line), owner) for line, owner in asked.items()):
        if wanted.marker is not None:
            continue
        try:
            version = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            if wanted.name in _SPARED:
                yield Check(wanted.name, "ok", "not installed; only needed for models that no other client serves")
            else:
                yield Check(wanted.name, "fail", f"not installed; reinstall {owner}")
            continue
        if version in _COMPROMISED.get(wanted.name, ()):
            yield Check(wanted.name, "fail", f"{version} stole credentials: uninstall it and change your keys")
        elif not wanted.specifier.contains(version, prereleases=True):
            yield Check(wanted.name, "fail", f"{version} is installed, but {wanted} is needed; reinstall {owner}")
        elif wanted.name in _SHOWN:
            yield Check(wanted.name, "ok", version)


def _plugins() -> Iterator[Check]:
    for info in plugins().infos:
        if info.error:
            yield Check(f"plugin {info.name}", "warn", f"set aside: {info.error}")
    yield Check("plugins", "ok", f"{sum(not i.error for i in plugins().infos)} loaded")


def _sandbox() -> Check:
    """Open the sandbox, whose self-test attacks it, and report the measured level."""
    import asyncio

    async def level() -> str:
        sandbox = await open_sandbox()
        await sandbox.aclose()
        return f"{sandbox.name}, level {sandbox.level}, measured by its self-test"

    try:
        return Check("sandbox", "ok", asyncio.run(level()))
    except SandboxError as error:
        return Check("sandbox", "warn", error.message)


#: The single line of setuptools' own file, in all versions so far.
_SETUPTOOLS_PTH = re.compile(
    r"import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os\.environ\.get\(var, '(stdlib|local)'\) == 'local'; "
    r"enabled and __import__\('_distutils_hack'\)(\.add_shim\(\))?;\s*"
)


def _site_folders() -> list[Path]:
    """List the folders whose `.pth` files Python reads at start."""
    named = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    named += [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return sorted({Path(folder).resolve() for folder in named})


def _executable_pth(folders: Iterable[Path]) -> Iterator[str]:
    """Yield `.pth` files with an executable line: one compromised release spread that way. A file that only shares its
    name with setuptools' own is reported, too."""
    for path in (path for folder in folders for path in sorted(folder.glob("*.pth"))):
        try:
            text = path.read_text(encoding="utf-8-sig", errors="replace") if path.is_file() else ""
        except OSError:
            continue
        known = path.name == "distutils-precedence.pth" and _SETUPTOOLS_PTH.fullmatch(text)
        if not known and any(line.startswith(("import ", "import\t")) for line in text.splitlines()):
            yield str(path)
