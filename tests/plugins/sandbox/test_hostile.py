"""Attacks of a security review that once got through: each is run here as it was found."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.plugins.sandbox.test_sandbox import LEVELS, call, inside, needs_kernel

import workbench.kit.confine as confine
from workbench_sandbox.linux import LinuxSandbox, _readable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a sandbox of Linux")

#: The kernel is asked to kill a process each time that output leaves a pipe.
KILLS_BY_OUTPUT = """
import fcntl, os
def f(pid):
    tried = []
    for what, argument in ((fcntl.F_SETOWN, pid), (10, 9), (fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)):
        try:
            fcntl.fcntl(1, what, argument)
            tried.append("done")
        except PermissionError:
            tried.append("denied")
    for _ in range(100):
        os.write(1, b"x")
    return tried
"""


@pytest.mark.parametrize("level", LEVELS)
def test_output_sends_no_signal_to_another_process(level: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            assert call(level, KILLS_BY_OUTPUT, pid=other.pid).value == ["denied", "denied", "denied"]
            assert other.poll() is None
        finally:
            other.kill()


@pytest.mark.parametrize("level", LEVELS)
def test_fcntl_still_copies_descriptors_and_sets_their_flags(level: str) -> None:
    source = """
import fcntl, os
def f():
    copy = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 5)
    fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_NONBLOCK)
    return [copy >= 5, fcntl.fcntl(copy, fcntl.F_GETFD), bool(fcntl.fcntl(1, fcntl.F_GETFL) & os.O_NONBLOCK)]
"""
    assert call(level, source).value == [True, 1, True]


OPEN = """
import os
def f():
    found = []
    for fd in range(4, 6000):
        try:
            os.fstat(fd)
            found.append(fd)
        except OSError:
            pass
    return found
"""


@needs_kernel
def test_no_descriptor_of_the_workbench_stays_open_however_high_its_number() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 5000:
        pytest.skip("no process may open 5,000 files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5000), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(4200)]
    try:
        assert call("kernel", OPEN).value == []
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_packages_of_the_virtual_environment_are_not_readable() -> None:
    packages = Path(pytest.__file__).parent.parent.resolve()
    if packages.is_relative_to(Path(sys.base_prefix).resolve()):
        pytest.skip("the tests run in no virtual environment")
    assert not [path for path in _readable() if packages.is_relative_to(Path(path).resolve())]


@needs_kernel
def test_the_zygote_writes_no_bytecode_into_the_package() -> None:
    folders = [Path(confine.__file__).parent, Path(sys.modules[LinuxSandbox.__module__].__file__ or "").parent]

    async def nothing(_: LinuxSandbox) -> None: ...

    before = {p: p.stat().st_mtime_ns for folder in folders for p in folder.glob("__pycache__/*")}
    for path in before:
        if path.name.startswith(("runner.", "zygote.")):
            path.unlink()
    inside("kernel", nothing)
    assert not [p for folder in folders for p in folder.glob("__pycache__/*") if p.name.startswith("zygote.")]


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_strong_works_where_the_package_lies_below_tmp() -> None:
    root = Path(__file__).parents[3]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for part in ("core", "plugins"):
            shutil.copytree(root / part, Path(folder) / part, ignore=shutil.ignore_patterns("*.json", "__pycache__"))
        source = (
            "import asyncio, workbench_sandbox.linux as linux\n"
            f"assert linux.__file__.startswith({folder!r})\n"
            "async def level():\n"
            "    sandbox = await linux.open_linux(('strong',))\n"
            "    await sandbox.aclose()\n"
            "    return sandbox.level\n"
            "print(asyncio.run(level()))\n"
        )
        path = os.pathsep.join(str(Path(folder) / part) for part in ("core", "plugins"))
        done = subprocess.run(
            [sys.executable, "-c", source], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
    assert done.stdout.strip() == "strong", done.stderr
