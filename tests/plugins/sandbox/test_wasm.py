"""The sandbox of WebAssembly: what can be tested without Deno and Pyodide. With them: test_sandbox_wasm_guest.py."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import mmap
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.plugins.sandbox.test_sandbox import Fake

import workbench.runtime.sandbox as core
from workbench.cli import cli
from workbench.errors import SandboxError
from workbench.run import Options
from workbench.runtime import SandboxChoice, SandboxResult
from workbench_sandbox import pyodide, wasm
from workbench_sandbox.wasm import Guest, WasmSandbox
from workbench_sandbox.watch import read_resident, wait_until_exceeds

needs_posix = pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="needs Linux or macOS")


# Which sandbox is taken


class Table:
    """Sandboxes of these levels, each with the name of its level; `tried` tells which were opened."""

    def __init__(self, levels: dict[str, str], at_best: str = "wasm"):
        self.levels, self.at_best, self.tried = levels, at_best, list[str]()

    def names(self, kind: str) -> list[str]:
        return sorted(self.levels)

    def get(self, kind: str, name: str) -> Any:
        async def opened() -> Any:
            self.tried.append(name)
            if not self.levels[name]:
                raise SandboxError(f"no {name} here")
            return Fake(self.levels[name])

        if name == "wasm":
            opened.at_best = self.at_best  # type: ignore[attr-defined]
        return opened


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, list[str]]]:
    """The level that is taken from a table, and what was tried."""
    monkeypatch.delenv("WORKBENCH_SANDBOX", raising=False)

    def main(choice: SandboxChoice | None = None, **levels: str) -> tuple[str, list[str]]:
        table = Table(levels)
        monkeypatch.setattr(core, "plugins", lambda: table)
        return asyncio.run(core.open_sandbox(choice)).level, table.tried

    return main


@pytest.mark.parametrize("linux", ["strong", "kernel"])
def test_webassembly_is_not_even_tried_where_something_stronger_works(opened: Any, linux: str) -> None:
    assert opened(linux=linux, wasm="wasm") == (linux, ["linux"])


@pytest.mark.parametrize("linux", ["limits-only", ""])
def test_webassembly_is_taken_where_nothing_stronger_works(opened: Any, linux: str) -> None:
    assert opened(linux=linux, wasm="wasm") == ("wasm", ["linux", "wasm"])


def test_what_is_chosen_is_taken_and_nothing_else(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_SANDBOX", "wasm")
    assert opened(linux="strong", wasm="wasm") == ("wasm", ["wasm"])
    linux = SandboxChoice("linux")
    assert opened(linux, linux="strong", wasm="wasm") == ("strong", ["linux"]), "the flag goes before the environment"
    with pytest.raises(SandboxError, match="wasm: no wasm here"):
        opened(SandboxChoice("wasm"), linux="strong", wasm="")
    with pytest.raises(SandboxError, match="no sandbox 'wsam'\n.*Did you mean 'wasm'"):
        SandboxChoice("wsam").candidates()
    monkeypatch.setenv("WORKBENCH_SANDBOX", "wsam")
    with pytest.raises(SandboxError, match="no sandbox 'wsam'\n.*Did you mean 'wasm'"):
        opened(linux="strong", wasm="wasm")


def test_a_choice_does_not_open_the_door(opened: Any) -> None:
    with pytest.raises(SandboxError, match="only limits-only"):
        opened(SandboxChoice("linux"), linux="limits-only", wasm="wasm")


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("run", "evaluation.run_single"),
        ("eval", "evaluation.evaluate"),
        ("optimize", "run.optimize"),
        ("resume", "evaluation.resume_run"),
    ],
)
def test_the_command_line_chooses(command: str, function: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[SandboxChoice] = []

    def call(*args: Any, options: Options | None = None, **others: Any) -> None:
        seen.append(options.sandbox if options else others.get("sandbox", args[-1]))

    monkeypatch.setattr(f"workbench.{function}", call)
    for asked in ("require_trust", "require_trust_in_run"):  # there is no file to ask about
        monkeypatch.setattr(f"workbench.cli.trust.{asked}", lambda *_, **__: None)
    for arguments, variable, choice in (
        (["--sandbox", "wasm"], "linux", SandboxChoice("wasm")),
        ([], "linux", SandboxChoice("linux")),
        ([], None, SandboxChoice()),
        (["--unsafe-sandbox"], None, SandboxChoice(allow_limits_only=True)),
    ):
        seen.clear()
        CliRunner().invoke(cli, [command, str(tmp_path), *arguments], env={"WORKBENCH_SANDBOX": variable})
        assert seen == [choice]


# What must be there, and how it comes


def test_without_deno_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "deno", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"Deno is not installed; run pip install -e '\./plugins/standard\[wasm\]'"):
        pyodide.find_deno()


@needs_posix
@pytest.mark.parametrize(
    ("says", "fine"),
    [("deno 2.9.8 (stable)", True), ("deno 3.0.1", True), ("deno 2.8.3", False), ("hello", False), ("", False)],
)
def test_an_old_deno_is_refused(says: str, fine: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "deno"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "deno", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    if fine:
        return None if pyodide.find_deno() == str(program) else pytest.fail("another one was found")
    with pytest.raises(SandboxError, match="2.9 or newer is needed; run pip install"):
        pyodide.find_deno()


def package(**replaced: bytes) -> bytes:
    """A package like that of Pyodide."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name in pyodide.FILES:
            data = replaced.get(name.partition(".")[0], name.encode())
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def test_what_is_not_the_expected_package_is_not_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "pyodide"
    good, bad = package(), package(pyodide=b"evil")
    monkeypatch.setattr(pyodide, "SHA512", base64.b64encode(hashlib.sha512(good).digest()).decode())
    for wrong in (bad, good[:-1], good + b"x", b""):
        with pytest.raises(SandboxError, match="this is not Pyodide .* its SHA-512 is"):
            pyodide.install(wrong, folder)
    assert not folder.exists()
    pyodide.install(good, folder)
    assert {p.name for p in folder.iterdir()} == set(pyodide.FILES)
    (folder / "pyodide.mjs").write_text("touched")
    pyodide.install(good, folder)
    assert (folder / "pyodide.mjs").read_bytes() == b"pyodide.mjs", "a second time puts it right"
    assert [p.name for p in folder.parent.iterdir()] == ["pyodide"], "nothing else is left"


def test_the_hash_is_one_of_sha512() -> None:
    assert len(base64.b64decode(pyodide.SHA512, validate=True)) == 64


def test_a_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKBENCH_PYODIDE", str(tmp_path))
    for name in pyodide.FILES:
        with pytest.raises(SandboxError, match="run workbench plugin sandbox install") as found:
            pyodide.find_pyodide()
        assert str(tmp_path) in found.value.message
        (tmp_path / name).touch()
    assert pyodide.find_pyodide() == tmp_path


def test_the_folder_is_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WORKBENCH_PYODIDE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pyodide.home() == tmp_path / "workbench" / f"pyodide-{pyodide.VERSION}"


def npm(folder: Path, script: str) -> None:
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)


@needs_posix
def test_npm_is_asked_for_one_version_and_runs_no_scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    npm(tmp_path, f'echo "$@" > {tmp_path}/asked; printf data > "$4/pyodide-1.tgz"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert pyodide.fetch() == b"data"
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:3] == ["pack", "--ignore-scripts", "--pack-destination"] and asked[4:] == [pyodide.PACKAGE]
    assert not Path(asked[3]).exists(), "nothing is left"


@needs_posix
@pytest.mark.parametrize("script", ["echo no network >&2; exit 1", "echo no network >&2"])
def test_what_npm_cannot_do_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    npm(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SandboxError, match="npm did not download pyodide@.*: no network(.|\n)*--file pyodide-"):
        pyodide.fetch()


def test_a_machine_without_npm_is_told_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="npm.* is not installed(.|\n)*npm pack pyodide@(.|\n)*--file pyodide-"):
        pyodide.fetch()


def test_the_command_refuses_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pyodide.tgz"
    file.write_bytes(package())
    monkeypatch.setattr(pyodide, "find_deno", lambda: "deno")
    monkeypatch.setenv("WORKBENCH_PYODIDE", str(tmp_path / "there"))
    done = CliRunner().invoke(cli, ["plugin", "sandbox", "install", "--file", str(file)])
    assert isinstance(done.exception, SandboxError) and "SHA-512" in done.exception.message
    assert not (tmp_path / "there").exists()


def test_nothing_is_fetched_but_by_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pyodide, "fetch", lambda: pytest.fail("it was fetched"))
    monkeypatch.setattr(wasm, "find_deno", lambda: "deno")
    monkeypatch.setenv("WORKBENCH_PYODIDE", str(tmp_path))
    with pytest.raises(SandboxError, match="there is no Pyodide"):
        asyncio.run(wasm.open_wasm())


# The watch, and how a process is served: with a plain Python in the place of Deno


@needs_posix
def test_the_watch_tells_of_a_process_that_grows() -> None:
    grows = "import time\nkept = []\nwhile True: kept.append(b'x' * (1 << 23)); time.sleep(0.01)"

    async def main(source: str, seconds: float) -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", source)
        try:
            return await asyncio.wait_for(wait_until_exceeds(process.pid, 100 << 20), seconds)
        finally:
            process.kill()
            await process.wait()
            assert await read_resident(process.pid) == 0

    assert 100 << 20 < asyncio.run(main(grows, 60)) < 1 << 30
    with pytest.raises(TimeoutError):
        asyncio.run(main("import time; time.sleep(60)", 1))


@needs_posix
def test_the_memory_of_a_process_is_that_of_its_pages() -> None:
    async def main() -> tuple[int, int]:
        before = await read_resident(os.getpid())
        with mmap.mmap(-1, 64 << 20) as held:  # an allocation may take pages that an earlier test left
            held[:: mmap.PAGESIZE] = b"x" * (len(held) // mmap.PAGESIZE)
            return before, await read_resident(os.getpid()) - len(held)

    before, after = asyncio.run(main())
    assert before > 1 << 20 and abs(after - before) < 16 << 20


LIMITS = {"memory": 16, "output": 10_000, "result": 10_000}
GUEST = """
import json, os, sys, time
print("ready", flush=True)
request = json.loads(sys.stdin.read())
"""


def serve(body: str, timeout: float = 30.0, monkeypatch: pytest.MonkeyPatch | None = None) -> SandboxResult:
    """What a process does with a request after it said that it is ready."""

    async def main() -> SandboxResult:
        guest = await Guest.begin([sys.executable, "-I", "-S", "-c", GUEST + textwrap.dedent(body)])
        try:
            return await guest.serve(b'{"arguments": 7}', timeout, LIMITS)
        finally:
            await guest.aclose()
            assert guest.process.returncode is not None

    return asyncio.run(main())


@needs_posix
@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("print(json.dumps({'kind': 'ok', 'value': request['arguments']}))", "ok", ""),
        ("print('forged', file=sys.stderr)", "crashed", "code 0 and no result"),
        ("sys.exit(3)", "crashed", "code 3 and no result"),
        ("os.kill(os.getpid(), 9)", "crashed", "signal 9"),
        ("print('nonsense')", "bad_result", "form"),
        ("while True: print('x' * 1000)", "bad_result", "more than 10000 bytes"),
        ("while True: print('x' * 1000, file=sys.stderr)", "output", "more than 10000 bytes"),
        ("kept = []\nwhile True: kept.append(b'x' * (1 << 24))", "memory", "MB"),
    ],
)
def test_a_process_is_held_by_the_workbench_itself(body: str, kind: str, message: str) -> None:
    found = serve(body)
    assert (found.kind, message in found.message) == (kind, True), found
    assert found.value == (7 if kind == "ok" else None)


@needs_posix
def test_a_process_that_gives_nothing_is_ended_in_time() -> None:
    found = serve("print('some', file=sys.stderr, flush=True)\ntime.sleep(1e6)", timeout=1.0)
    assert (found.kind, found.printed) == ("timeout", "some\n") and 1.0 <= found.seconds < 10


@needs_posix
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ValueError('no WebAssembly here')", "ValueError: no WebAssembly here"),
        ("print('hello')", "it said nothing"),
    ],
)
def test_a_process_that_does_not_get_ready_is_an_error(source: str, message: str) -> None:
    with pytest.raises(SandboxError, match=f"does not start: {message}"):
        asyncio.run(Guest.begin([sys.executable, "-I", "-S", "-c", source]))
    with pytest.raises(SandboxError, match="none cannot be started"):
        asyncio.run(Guest.begin(["/none"]))


@needs_posix
def test_each_call_has_a_process_of_its_own_and_one_that_died_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    body = GUEST + "print(json.dumps({'kind': 'ok', 'value': os.getpid()}))"

    async def main() -> list[Any]:
        sandbox = WasmSandbox("deno", Path("/"), Path("/"))
        sandbox._command = [sys.executable, "-I", "-S", "-c", body]
        await sandbox.start()
        try:
            found = [(await sandbox.call("", "", {})).value for _ in range(4)]
            waiting = await asyncio.gather(*sandbox._ready)
            os.kill(waiting[0].process.pid, signal.SIGKILL)
            while waiting[0].process.returncode is None:
                await asyncio.sleep(0.01)
            found.append((await sandbox.call("", "", {})).value)
            assert found[-1] == waiting[1].process.pid
            return found
        finally:
            pids = [g.process.pid for g in await asyncio.gather(*sandbox._ready)]
            await sandbox.aclose()
            assert not [pid for pid in pids if await read_resident(pid)]

    found = asyncio.run(main())
    assert len(set(found)) == 5


@needs_posix
def test_a_cancelled_call_ends_its_process() -> None:
    async def main() -> None:
        sandbox = WasmSandbox("deno", Path("/"), Path("/"))
        sandbox._command = [sys.executable, "-I", "-S", "-c", GUEST + "time.sleep(1e6)"]
        await sandbox.start()
        guest = await sandbox._ready[0]
        calling = asyncio.create_task(sandbox.call("", "", {}, timeout=60))
        await asyncio.sleep(0.2)
        assert guest.process.returncode is None
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert guest.process.returncode is not None
        await sandbox.aclose()

    asyncio.run(main())


@needs_posix
def test_what_is_launched_cannot_write_files(tmp_path: Path) -> None:
    source = f"import os; os.write(os.open({str(tmp_path / 'x')!r}, os.O_CREAT | os.O_WRONLY), b'x')"
    launcher = [sys.executable, "-I", "-S", str(wasm.HERE / "launch.py"), sys.executable, "-c"]
    assert subprocess.run([*launcher, source], capture_output=True).returncode != 0
    assert (tmp_path / "x").read_bytes() == b""
    assert subprocess.run([*launcher, "print(6 * 7)"], capture_output=True, text=True).stdout == "42\n"
