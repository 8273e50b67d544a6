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

import workbench_kit.acting.confine as confine
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
        path = os.pathsep.join(map(str, (Path(folder) / "core", *(Path(folder) / "plugins").iterdir())))
        done = subprocess.run(
            [sys.executable, "-c", source], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
    assert done.stdout.strip() == "strong", done.stderr


FORGED = 'os.write(3, b\'{"kind": "ok", "value": "forged"}\')'

#: What code does after, or in place of, an honest answer, with the kinds of outcome that are right.
AFTERWARDS = {
    "an exit handler": (f"    import atexit, os\n    atexit.register(lambda: {FORGED})\n    return 1", {"ok"}),
    "a finalizer": (
        f"    import os\n    class D:\n        def __del__(self): {FORGED}\n    d = D()\n    return 1",
        {"ok", "bad_result"},
    ),
    "an endless finalizer": (
        "    class D:\n        def __del__(self):\n            while True: pass\n    d = D()\n    return 1",
        {"timeout"},
    ),
    "signal handlers": (
        "    import signal\n    for n in range(1, 65):\n        try: signal.signal(n, lambda *a: None)\n"
        "        except (OSError, ValueError): pass\n    while True: pass",
        {"timeout"},
    ),
    "an alarm": ("    import signal\n    signal.alarm(1)\n    while True: pass", {"crashed", "timeout"}),
    "tracing": ("    import sys\n    sys.settrace(lambda *a: 1 / 0)\n    return 1", {"ok", "crashed", "error"}),
    "broken builtins": (
        "    import builtins\n    builtins.len = builtins.str = builtins.isinstance = None\n    return {'a': 1}",
        {"ok", "crashed", "error"},
    ),
    "an error that cannot be told": (
        "    class E(Exception):\n        def __str__(self): raise RuntimeError\n    raise E",
        {"error", "crashed"},
    ),
    "an error that is told for ever": (
        "    class E(Exception):\n        def __str__(self):\n            while True: pass\n    raise E",
        {"timeout"},
    ),
    "an error of 50 MB": ("    raise ValueError('x' * 50_000_000)", {"error"}),
    "an error with a name of 1 MB": ("    raise type('E' * 1_000_000, (Exception,), {})", {"error"}),
    "a group of errors": ("    raise ExceptionGroup('g', [ValueError('x' * 1000)] * 1000)", {"error"}),
    "a chain of errors": (
        "    last = None\n    for n in range(10_000):\n        new = ValueError(n)\n"
        "        new.__cause__, last = last, new\n    raise last",
        {"error"},
    ),
    "errors in a circle": (
        "    a, b = ValueError(1), ValueError(2)\n    a.__cause__, b.__cause__ = b, a\n    raise a",
        {"error"},
    ),
    "a dictionary without end": (
        "    class D(dict):\n        def items(self):\n            while True: yield 'a', 1\n    return D(a=1)",
        {"memory", "timeout"},
    ),
    "a list that holds itself": ("    a = []\n    a.append(a)\n    return a", {"bad_result"}),
    "a number of 5,000 digits": ("    return 10 ** 5000", {"bad_result"}),
    "a pickle": ("    import pickle\n    return pickle.dumps(print)", {"bad_result"}),
    "a pickle on the channel": (
        "    import os, pickle\n    os.write(3, pickle.dumps(print))\n    os._exit(0)",
        {"bad_result"},
    ),
    "no recursion limit": (
        "    import sys\n    sys.setrecursionlimit(10 ** 9)\n    return f()",
        {"timeout", "crashed", "memory"},
    ),
    "a read of address 0": ("    import ctypes\n    ctypes.string_at(0)", {"crashed", "forbidden", "error"}),
    "a closed channel": ("    import os\n    os.close(3)\n    return 1", {"crashed"}),
    "another channel": ("    import os\n    os.dup2(1, 3)\n    return 1", {"forbidden", "crashed", "bad_result"}),
    "two answers": (f"    import os\n    {FORGED}\n    return 1", {"bad_result"}),
    "nothing": ("    import os\n    os._exit(0)", {"crashed", "bad_result"}),
}


@pytest.mark.fault("hostile-code")
@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_what_code_does_around_its_answer_ends_its_own_call_alone(level: str) -> None:
    """One after the other in one sandbox: each has its kind, a short message, and the next call works."""

    async def job(sandbox: LinuxSandbox) -> None:
        for name, (body, kinds) in AFTERWARDS.items():
            found = await sandbox.call(f"def f():\n{body}\n", "f", {}, timeout=1.0)
            assert found.kind in kinds, (name, found)
            assert len(found.message) <= 2000 and (found.kind != "ok" or found.value in (1, {"a": 1})), (name, found)
            after = await sandbox.call("def f(): return 42", "f", {})
            assert after.value == 42, (name, after)

    inside(level, job)
