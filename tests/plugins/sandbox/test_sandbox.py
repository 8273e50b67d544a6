"""The sandbox: every attack is stopped, each way to fail is told apart, and the next call works."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.processes import process_fields
from tests.helpers.sandboxed import ENDS, ORDINARY, check_ordinary

import workbench.runtime.sandbox as core
from workbench.errors import SandboxError
from workbench.ledger import Ledger
from workbench.runtime import Runtime, SandboxChoice, SandboxResult
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench_sandbox.attacks import ATTACKS, self_test
from workbench_sandbox.calls import read_answer
from workbench_sandbox.linux import LinuxSandbox, open_linux

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a sandbox of Linux")


async def _started(level: str) -> str:
    sandbox = LinuxSandbox(level)
    try:
        await sandbox.start()
    except SandboxError as error:
        return str(error)
    await sandbox.aclose()
    return ""


def usable(level: str) -> str:
    """Why a level cannot be had on this machine, or nothing. That it lets an attack through is no such reason."""
    if level == "strong":
        return "bubblewrap is not installed" if shutil.which("bwrap") is None else asyncio.run(_started(level))
    return _kernel_features()


def _kernel_features() -> str:
    import ctypes

    version = ctypes.CDLL(None).syscall(444, None, 0, 1)
    return "" if version >= 1 else "this kernel has no Landlock"


LEVELS = [
    pytest.param(level, marks=pytest.mark.skipif(bool(why), reason=why))
    for level in ("strong", "kernel")
    if (why := usable(level)) is not None
]


needs_kernel = pytest.mark.skipif(bool(_kernel_features()), reason=_kernel_features() or "-")


def inside(level: str, job: Callable[[LinuxSandbox], Awaitable[Any]], **limits: int) -> Any:
    async def main() -> Any:
        sandbox = LinuxSandbox(level, **limits)
        await sandbox.start()
        try:
            return await job(sandbox)
        finally:
            await sandbox.aclose()

    return asyncio.run(main())


def call(level: str, source: str, timeout: float = 5.0, **arguments: Any) -> SandboxResult:
    return inside(level, lambda s: s.call(source, "f", arguments, timeout=timeout))


@pytest.mark.fault("hostile-code")
@pytest.mark.parametrize("level", LEVELS)
def test_every_attack_is_stopped(level: str) -> None:
    assert inside(level, self_test) == []


SHAMS = {
    "lets all through": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "cannot start": "echo bwrap: No permissions to create a new namespace >&2; exit 1",
}


@needs_kernel
@pytest.mark.parametrize(("sham", "reason"), [("lets all through", ""), ("cannot start", "bwrap: No permissions")])
def test_an_attack_that_is_not_stopped_fails_a_test_and_skips_none(
    sham: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{SHAMS[sham]}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    async def breached(sandbox: LinuxSandbox) -> list[str]:
        return ["UDP"]

    monkeypatch.setattr(f"{__name__}.self_test", breached)
    found = usable("strong")
    assert found.startswith(reason) and bool(found) is bool(reason), found
    if not reason:
        with pytest.raises(AssertionError, match="UDP"):
            test_every_attack_is_stopped("strong")


@needs_kernel
def test_a_process_tests_a_level_once_and_again_after_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    missed: list[list[str]] = [[], ["UDP"]]

    async def tested(sandbox: LinuxSandbox) -> list[str]:
        return missed.pop()

    async def level() -> str:
        sandbox = await open_linux(("kernel", "limits-only"))
        await sandbox.aclose()
        return sandbox.level

    monkeypatch.setattr("workbench_sandbox.linux.self_test", tested)
    monkeypatch.setattr("workbench_sandbox.linux._PASSED", set())
    assert [asyncio.run(level()) for _ in range(3)] == ["limits-only", "kernel", "kernel"]


def test_most_attacks_get_through_without_the_walls(tmp_path: Path) -> None:
    """The attacks are real: with resource limits alone they succeed. (Those that would harm this machine are left
    out.)"""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    harmless = {"reading /etc/passwd", "reading the user's files", "new processes", "UDP", "signals to others"}
    arguments = {"secret": str(secret), "port": 9, "pid": os.getpid()}

    async def job(sandbox: LinuxSandbox) -> dict[str, bool]:
        return {
            a.name: a.stopped(await sandbox.call(a.source, "attack", arguments)) for a in ATTACKS if a.name in harmless
        }

    through = [name for name, stopped in inside("limits-only", job).items() if not stopped]
    assert "reading /etc/passwd" in through and "UDP" in through


CASES = [
    *ENDS,
    ("x = 1", "error", "defines no function 'f'"),
    ("def f(a): return a", "error", "TypeError"),
    ("import numpy_that_is_not\ndef f(): return 1", "error", "ModuleNotFoundError"),
    ("def f(): return {1, 2}", "bad_result", "JSON"),
    ("def f():\n    a = []\n    a.append(a)\n    return a", "bad_result", "JSON"),
    ("def f():\n    import os\n    os._exit(3)", "crashed", "code 3"),
    ("def f():\n    import ctypes\n    ctypes.string_at(0)", "crashed", "signal 11"),
    ("def f():\n    import subprocess\n    subprocess.run(['true'])", "forbidden", "PermissionError"),
    ("def f(): return bytearray(10 << 30)", "memory", ""),
    ("def f():\n    import os\n    os.write(3, b'nonsense')\n    os._exit(0)", "bad_result", "form"),
    ("def f():\n    import os\n    while True: os.write(3, b'x' * 4096)", "bad_result", "more than"),
]


@pytest.mark.parametrize("level", LEVELS)
def test_each_way_to_fail_is_told_apart_and_the_next_call_works(level: str) -> None:
    async def job(sandbox: LinuxSandbox) -> None:
        for source, kind, message in CASES:
            found = await sandbox.call(source, "f", {})
            assert (found.kind, message in found.message) == (kind, True), (source, found)
            assert found.ok or found.value is None
            fine = await sandbox.call("def f(): return 1", "f", {})
            assert fine.value == 1, f"after {source!r}: {fine}"

    inside(level, job)


@pytest.mark.parametrize("level", LEVELS)
def test_what_has_no_end_is_ended_by_its_name(level: str) -> None:
    async def job(sandbox: LinuxSandbox) -> None:
        found = await sandbox.call("def f():\n    while True: pass", "f", {}, timeout=0.3)
        assert (found.kind, found.message) == ("timeout", "no result within 0.3 s")
        found = await sandbox.call("def f():\n    while True: print('x' * 4096)", "f", {}, timeout=3)
        assert found.kind == "output" and "printed more than" in found.message and len(found.printed) == 4096

    inside(level, job)


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_printed_is_no_answer(level: str) -> None:
    forged = json.dumps({"kind": "ok", "value": "forged"})
    found = call(level, f"def f():\n    print({forged!r}, flush=True)\n    return 'true'")
    assert found.value == "true" and "forged" in found.printed


@pytest.mark.parametrize("level", LEVELS)
def test_ordinary_code_works(level: str) -> None:
    one, two = (call(level, "import sqlite3, zoneinfo\n" + ORDINARY, text="The cat and the dog") for _ in range(2))
    check_ordinary(one, two)


@needs_kernel
def test_an_error_has_the_line_of_the_source() -> None:
    found = call("kernel", "def g(x):\n    return x['a']\n\ndef f():\n    return g({})")
    assert (found.kind, found.line) == ("error", 2) and "KeyError" in found.message


@pytest.mark.slow
@needs_kernel
def test_many_calls_at_once_all_come_back_right() -> None:
    async def job(sandbox: LinuxSandbox) -> list[Any]:
        sources = ["def f(i): return i * i", "def f(i):\n    while True: pass", "def f(i): raise ValueError(i)"]
        return await asyncio.gather(
            *(
                sandbox.call(sources[0 if i % 10 else 1 + i // 10 % 2], "f", {"i": i}, timeout=5 if i % 20 else 0.3)
                for i in range(400)
            )
        )

    for i, found in enumerate(inside("kernel", job)):
        if i % 10:
            assert found.value == i * i, found
        else:
            assert found.kind == ("error" if i // 10 % 2 else "timeout"), found


@needs_kernel
def test_a_killed_zygote_is_replaced() -> None:
    async def job(sandbox: LinuxSandbox) -> None:
        waiting = asyncio.create_task(sandbox.call("def f():\n    while True: pass", "f", {}))
        await asyncio.sleep(0.2)
        assert sandbox._process is not None
        os.kill(sandbox._process.pid, signal.SIGKILL)
        assert (await waiting).kind == "crashed"
        assert (await sandbox.call("def f(): return 5", "f", {})).value == 5

    inside("kernel", job)


@needs_kernel
def test_a_cancelled_call_ends_its_child_at_once() -> None:
    def children(pid: int) -> int:
        found = map(process_fields, (name for name in os.listdir("/proc") if name.isdigit()))
        return sum(fields is not None and fields[1] == str(pid) for fields in found)

    async def job(sandbox: LinuxSandbox) -> None:
        waiting = asyncio.create_task(sandbox.call("def f():\n    while True: pass", "f", {}, timeout=60))
        assert sandbox._process is not None
        pid = sandbox._process.pid
        for _ in range(100):
            await asyncio.sleep(0.05)
            if children(pid):
                break
        assert children(pid) == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await sandbox.call("def f(): return 5", "f", {})).value == 5
        assert children(pid) == 0

    inside("kernel", job)


@needs_kernel
def test_nothing_is_left_behind() -> None:
    before = set(os.listdir("/proc/self/fd"))

    async def job(sandbox: LinuxSandbox) -> int:
        for _ in range(20):
            await sandbox.call("def f(): return 1", "f", {})
        assert sandbox._process is not None
        return sandbox._process.pid

    pid = inside("kernel", job)
    assert not os.path.exists(f"/proc/{pid}")
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1


def test_an_answer_of_another_form_is_a_bad_result(subtests: pytest.Subtests) -> None:
    for answer in [
        b"[" * 100_000,
        b"nonsense",
        b"[]",
        b'{"kind": "great"}',
        b"{}",
        b'{"kind": ["ok"]}',
        b'{"kind": "ok", "value": NaN}',
        b'{"kind": "ok", "value": 1e999}',
        b'{"kind": "ok", "value": [-1e999]}',
        b'{"kind": "ok", "value": "\xff"}',
        b'{"kind": "ok", "value": "\\uD800"}',
        b'{"kind": "error", "message": "\\udfff"}',
        b'{"kind": "ok", "value": ' + b"[" * 101 + b"]" * 101 + b"}",
        b'{"kind": "ok", "value": ' + b"9" * 5000 + b"}",
    ]:
        with subtests.test(answer=answer):
            found = read_answer(answer)
            assert found.kind == "bad_result" and len(found.message) <= 200
            json.dumps(asdict(found), ensure_ascii=False).encode()


def test_an_answer_is_kept_whole_or_cut() -> None:
    assert read_answer(b'{"kind": "ok", "value": 1.5e3}').value == 1500.0
    deep = b"[" * 99 + b"]" * 99
    assert read_answer(b'{"kind": "ok", "value": ' + deep + b"}").value == json.loads(deep)
    assert read_answer(b'{"kind": "ok", "value": "\\ud83d\\ude00"}').value == "\U0001f600", "a pair is a character"
    assert len(read_answer(b'{"kind": "error", "message": "' + b"m" * 90_000 + b'"}').message) == 2000
    assert read_answer(b'{"kind": "error", "value": 1, "line": true}') == SandboxResult("error")


@needs_kernel
def test_a_call_finds_nothing_of_other_calls_in_its_memory() -> None:
    """Not even freed memory: a child is a copy of a zygote that never held requests or answers."""
    snoop = """
def f(marks):
    import re
    parts, found = [], set()
    for line in open('/proc/self/maps'):
        low, high = (int(x, 16) for x in line.split()[0].split('-'))
        if line.split()[1].startswith('rw') and high - low < 1 << 28:
            parts.append((low, high))
    import ctypes
    for low, high in parts:
        found |= set(re.findall(rb'other-call-[0-9]{3}', ctypes.string_at(low, high - low)))
    return sorted(x.decode() for x in found)
"""

    async def job(sandbox: LinuxSandbox) -> None:
        others = [sandbox.call("def f(x): return x + x", "f", {"x": f"other-call-{i}"}) for i in range(100, 140)]
        snooped, own, *_ = await asyncio.gather(
            sandbox.call(snoop, "f", {"marks": ""}), sandbox.call(snoop, "f", {"marks": "other-call-999"}), *others
        )
        after = await sandbox.call(snoop, "f", {"marks": ""})
        assert own.value == ["other-call-999"], "it does find what is there"
        assert (snooped.value, after.value) == ([], [])

    async def open_maps() -> None:
        sandbox = LinuxSandbox("limits-only")
        await sandbox.start()
        try:
            await job(sandbox)
        finally:
            await sandbox.aclose()

    asyncio.run(open_maps())


def test_a_weaker_level_than_a_boundary_is_refused_unless_the_user_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def weak() -> LinuxSandbox:
        return await open_linux(("limits-only",))

    class Table:
        def names(self, kind: str) -> list[str]:
            return ["weak"]

        def get(self, kind: str, name: str) -> Any:
            return weak

    monkeypatch.setattr(core, "plugins", Table)

    async def opened(choice: SandboxChoice) -> str:
        sandbox = await core.open_sandbox(choice)
        await sandbox.aclose()
        return sandbox.level

    with pytest.raises(SandboxError, match="only limits-only.*\n.*--unsafe-sandbox"):
        asyncio.run(opened(SandboxChoice()))
    assert asyncio.run(opened(SandboxChoice(allow_limits_only=True))) == "limits-only"


class Fake:
    """A sandbox of a third party, of some level."""

    def __init__(self, level: str):
        self.name, self.level, self.closed = level, level, False

    async def aclose(self) -> None:
        self.closed = True


def test_the_strongest_of_all_sandboxes_is_taken_and_the_others_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    fakes = [Fake(level) for level in ("wasm", "limits-only", "strong", "kernel", "my own level")]

    class Table:
        def names(self, kind: str) -> list[str]:
            return [f.name for f in fakes]

        def get(self, kind: str, name: str) -> Any:
            async def opened() -> Fake:
                tried.append(name)
                return next(f for f in fakes if f.name == name)

            return opened

    monkeypatch.setattr(core, "plugins", Table)
    assert asyncio.run(core.open_sandbox()).level == "strong"
    assert tried == ["wasm", "limits-only", "strong"], "nothing is stronger, so no other is tried"
    assert [f.name for f in fakes if f.name in tried and not f.closed] == ["strong"]


@pytest.mark.fault("no-sandbox")
def test_a_resumed_run_refuses_a_weaker_level_than_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = iter(["kernel", "strong", "limits-only"])
    opened: list[Fake] = []

    async def open_next(choice: SandboxChoice) -> Any:
        opened.append(Fake(next(levels)))
        return opened[-1]

    monkeypatch.setattr("workbench.runtime.runtime.open_sandbox", open_next)

    async def main() -> None:
        store = Store(tmp_path / "run.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 1}))
        try:
            for level in ("kernel", "strong"):
                runtime = Runtime(ledger, lm_spec("openai/none"))
                assert (await runtime.sandbox()).level == level
                await runtime.aclose()
                store.flush()
            with pytest.raises(
                SandboxError, match="began in a sandbox of level kernel, and here it would be limits-only"
            ):
                await Runtime(ledger, lm_spec("openai/none")).sandbox()
        finally:
            store.close()

    asyncio.run(main())
    assert all(f.closed for f in opened)
