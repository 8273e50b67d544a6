"""The sandbox of WebAssembly. What needs Deno and Pyodide is skipped where they are not; the rest is tested anywhere."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.plugins.test_sandbox import Fake

import workbench.sandbox as core
from workbench.cli import cli
from workbench.sandbox import Outcome, SandboxError
from workbench_sandbox import pyodide, wasm
from workbench_sandbox.attacks import ATTACKS, JAVASCRIPT, self_test
from workbench_sandbox.wasm import Guest, WasmSandbox, prepared
from workbench_sandbox.watch import exceeds, resident


def _missing() -> str:
    try:
        pyodide.find_deno()
        pyodide.find_pyodide()
    except SandboxError as error:
        return error.message
    return "" if sys.platform in ("linux", "darwin") else "needs Linux or macOS"


needs_wasm = pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")
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
    monkeypatch.setattr(core, "_chosen", None)

    def course(**levels: str) -> tuple[str, list[str]]:
        table = Table(levels)
        monkeypatch.setattr(core, "plugins", lambda: table)
        return asyncio.run(core.open_sandbox()).level, table.tried

    return course


@pytest.mark.parametrize("linux", ["strong", "kernel"])
def test_webassembly_is_not_even_tried_where_something_stronger_works(opened: Any, linux: str) -> None:
    assert opened(linux=linux, wasm="wasm") == (linux, ["linux"])


@pytest.mark.parametrize("linux", ["limits-only", ""])
def test_webassembly_is_taken_where_nothing_stronger_works(opened: Any, linux: str) -> None:
    assert opened(linux=linux, wasm="wasm") == ("wasm", ["linux", "wasm"])


def test_what_is_chosen_is_taken_and_nothing_else(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_SANDBOX", "wasm")
    assert opened(linux="strong", wasm="wasm") == ("wasm", ["wasm"])
    core.choose("linux")
    assert opened(linux="strong", wasm="wasm") == ("strong", ["linux"]), "the flag goes before the environment"
    core.choose("wasm")
    with pytest.raises(SandboxError, match="wasm: no wasm here"):
        opened(linux="strong", wasm="")
    with pytest.raises(SandboxError, match="no sandbox 'wsam'\n.*Did you mean 'wasm'"):
        core.choose("wsam")
    core.choose(None)
    monkeypatch.setenv("WORKBENCH_SANDBOX", "wsam")
    with pytest.raises(SandboxError, match="no sandbox 'wsam'\n.*Did you mean 'wasm'"):
        opened(linux="strong", wasm="wasm")


def test_a_choice_does_not_open_the_door(opened: Any) -> None:
    core.choose("linux")
    with pytest.raises(SandboxError, match="only limits-only"):
        opened(linux="limits-only", wasm="wasm")


def test_the_command_line_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr(core, "choose", seen.append)
    for arguments, variable in ((["--sandbox", "wasm"], None), ([], "linux"), ([], None)):
        CliRunner().invoke(cli, ["run", str(tmp_path / "none.yaml"), *arguments], env={"WORKBENCH_SANDBOX": variable})
    assert seen == ["wasm", "linux", None]


# What must be there, and how it comes


def test_without_deno_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "deno", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match=r"Deno is not installed; run pip install 'agent-workbench\[wasm\]'"):
        pyodide.find_deno()


@needs_posix
@pytest.mark.parametrize(
    "says, fine",
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
        with pytest.raises(SandboxError, match="run workbench sandbox install") as found:
            pyodide.find_pyodide()
        assert str(tmp_path) in found.value.message
        (tmp_path / name).touch()
    assert pyodide.find_pyodide() == tmp_path


def test_the_folder_is_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WORKBENCH_PYODIDE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pyodide.home() == tmp_path / "workbench" / f"pyodide-{pyodide.VERSION}"


def test_a_registry_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="could not be fetched(.|\n)*--file pyodide-"):
        pyodide.fetch((tmp_path / "none.tgz").as_uri())


def test_the_command_refuses_another_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "pyodide.tgz"
    file.write_bytes(package())
    monkeypatch.setattr(pyodide, "find_deno", lambda: "deno")
    monkeypatch.setenv("WORKBENCH_PYODIDE", str(tmp_path / "there"))
    done = CliRunner().invoke(cli, ["sandbox", "install", "--file", str(file)])
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

    async def course(source: str, seconds: float) -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", source)
        try:
            return await asyncio.wait_for(exceeds(process.pid, 100 << 20), seconds)
        finally:
            process.kill()
            await process.wait()
            assert await resident(process.pid) == 0

    assert 100 << 20 < asyncio.run(course(grows, 60)) < 1 << 30
    with pytest.raises(TimeoutError):
        asyncio.run(course("import time; time.sleep(60)", 1))


@needs_posix
def test_the_memory_of_a_process_is_that_of_its_pages() -> None:
    async def course() -> tuple[int, int]:
        before = await resident(os.getpid())
        held = b"x" * (64 << 20)
        return before, await resident(os.getpid()) - len(held)

    before, after = asyncio.run(course())
    assert before > 1 << 20 and abs(after - before) < 16 << 20


LIMITS = {"memory": 16, "output": 10_000, "result": 10_000}
GUEST = """
import json, os, sys, time
print("ready", flush=True)
request = json.loads(sys.stdin.read())
"""


def serve(body: str, timeout: float = 30.0, monkeypatch: pytest.MonkeyPatch | None = None) -> Outcome:
    """What a process does with a request after it said that it is ready."""

    async def course() -> Outcome:
        guest = await Guest.begin([sys.executable, "-I", "-S", "-c", GUEST + textwrap.dedent(body)])
        try:
            return await guest.serve(b'{"arguments": 7}', timeout, LIMITS)
        finally:
            await guest.aclose()
            assert guest.process.returncode is not None

    return asyncio.run(course())


@needs_posix
@pytest.mark.parametrize("body, kind, message", [
    ("print(json.dumps({'kind': 'ok', 'value': request['arguments']}))", "ok", ""),
    ("print('forged', file=sys.stderr)", "crashed", "code 0 and no result"),
    ("sys.exit(3)", "crashed", "code 3 and no result"),
    ("os.kill(os.getpid(), 9)", "crashed", "signal 9"),
    ("print('nonsense')", "bad_result", "form"),
    ("while True: print('x' * 1000)", "bad_result", "more than 10000 bytes"),
    ("while True: print('x' * 1000, file=sys.stderr)", "output", "more than 10000 bytes"),
    ("kept = []\nwhile True: kept.append(b'x' * (1 << 24))", "memory", "MB"),
])  # fmt: skip
def test_a_process_is_held_by_the_workbench_itself(body: str, kind: str, message: str) -> None:
    found = serve(body)
    assert (found.kind, message in found.message) == (kind, True), found
    assert found.value == (7 if kind == "ok" else None)


@needs_posix
def test_a_process_that_gives_nothing_is_ended_in_time() -> None:
    found = serve("print('some', file=sys.stderr, flush=True)\ntime.sleep(1e6)", timeout=1.0)
    assert (found.kind, found.printed) == ("timeout", "some\n") and 1.0 <= found.seconds < 10


@needs_posix
@pytest.mark.parametrize("source, message", [
    ("raise ValueError('no WebAssembly here')", "ValueError: no WebAssembly here"), ("print('hello')", "it said nothing"),
])  # fmt: skip
def test_a_process_that_does_not_get_ready_is_an_error(source: str, message: str) -> None:
    with pytest.raises(SandboxError, match=f"does not start: {message}"):
        asyncio.run(Guest.begin([sys.executable, "-I", "-S", "-c", source]))
    with pytest.raises(SandboxError, match="none cannot be started"):
        asyncio.run(Guest.begin(["/none"]))


@needs_posix
def test_each_call_has_a_process_of_its_own_and_one_that_died_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    body = GUEST + "print(json.dumps({'kind': 'ok', 'value': os.getpid()}))"

    async def course() -> list[Any]:
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
            assert not [pid for pid in pids if await resident(pid)]

    found = asyncio.run(course())
    assert len(set(found)) == 5


@needs_posix
def test_a_cancelled_call_ends_its_process() -> None:
    async def course() -> None:
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

    asyncio.run(course())


@needs_posix
def test_what_is_launched_cannot_write_files(tmp_path: Path) -> None:
    source = f"import os; os.write(os.open({str(tmp_path / 'x')!r}, os.O_CREAT | os.O_WRONLY), b'x')"
    launcher = [sys.executable, "-I", "-S", str(wasm.HERE / "launch.py"), sys.executable, "-c"]
    assert subprocess.run([*launcher, source], capture_output=True).returncode != 0
    assert (tmp_path / "x").read_bytes() == b""
    assert subprocess.run([*launcher, "print(6 * 7)"], capture_output=True, text=True).stdout == "42\n"


# With Deno and Pyodide


def inside(job: Callable[[WasmSandbox], Awaitable[Any]]) -> Any:
    async def course() -> Any:
        sandbox = await prepared()
        try:
            await sandbox.start()
            return await job(sandbox)
        finally:
            await sandbox.aclose()

    return asyncio.run(course())


def call(source: str, timeout: float = 20.0, **arguments: Any) -> Outcome:
    return inside(lambda s: s.call(source, "f", arguments, timeout=timeout))


@needs_wasm
def test_every_attack_is_stopped() -> None:
    assert inside(lambda s: self_test(s, [*ATTACKS, *JAVASCRIPT])) == []


CASES = [
    ("def f(): return {'a': [1, 2.5, None, 'ü']}", "ok", ""),
    ("def f(): return 1 / 0", "error", "ZeroDivisionError"),
    ("def f(:", "error", "SyntaxError"),
    ("def f(): return float('nan')", "bad_result", "JSON"),
    ("def f(): return 'x' * 2_000_000", "bad_result", "more than"),
    ("def f(): return f()", "error", "RecursionError"),
    ("def f():\n    import os\n    os._exit(3)", "crashed", "no result"),
    ("def f():\n    import sys\n    sys.exit()", "error", "SystemExit"),
    ("def f():\n    import threading\n    threading.Thread(target=print).start()", "forbidden", "thread"),
    ("def f():\n    import subprocess\n    subprocess.run(['true'])", "error", "does not support processes"),
    ("def f(): return open('/x', 'w').write('x')", "forbidden", "PermissionError"),
    ("def f():\n    kept = []\n    while True: kept.append(bytearray(1 << 26))", "memory", ""),
    ("def f():\n    import os\n    return os.write(3, b'x')", "error", "OSError"),
]


@needs_wasm
def test_each_way_to_fail_is_told_apart() -> None:
    async def job(sandbox: WasmSandbox) -> list[Outcome]:
        return await asyncio.gather(*(sandbox.call(source, "f", {}, timeout=30) for source, _, _ in CASES))

    for (source, kind, message), found in zip(CASES, inside(job), strict=True):
        assert (found.kind, message in found.message) == (kind, True), (source, found)


@needs_wasm
def test_what_is_printed_is_no_answer_and_an_error_has_its_line() -> None:
    forged = json.dumps({"kind": "ok", "value": "forged"})
    found = call(f"import os\ndef f():\n    os.write(1, {forged!r}.encode())\n    print({forged!r})\n    return 'true'")
    assert found.value == "true" and found.printed.count("forged") == 2
    found = call("def g(x):\n    return x['a']\n\ndef f():\n    return g({})")
    assert (found.kind, found.line) == ("error", 2) and "KeyError" in found.message


@needs_wasm
def test_ordinary_code_works_and_gives_the_same_each_time() -> None:
    source = """
import collections, datetime, decimal, math, random, re, statistics
from dataclasses import dataclass

@dataclass
class Point:
    x: float

def f(text):
    words = collections.Counter(re.findall(r"[a-z]+", text.lower()))
    return {
        "top": words.most_common(1)[0], "root": math.sqrt(2), "day": str(datetime.date(2026, 1, 2)),
        "mean": statistics.mean([1, 2]), "point": Point(1.5).x, "sum": str(decimal.Decimal("0.1") * 3),
        "draw": random.random(), "hash": hash("x") % 7,
    }
"""
    one, two = (call(source, text="The cat and the dog \u00fc \U0001f600") for _ in range(2))
    assert one.ok, one.message
    assert one.value["top"] == ["the", 2] and one.value["sum"] == "0.3" and one.value["point"] == 1.5
    assert one.value == two.value


@needs_wasm
def test_nothing_is_kept_between_calls() -> None:
    mark = """
import builtins, os, sys
def f():
    found = [hasattr(builtins, 'mark'), 'mark' in sys.modules, 'MARK' in os.environ, os.path.exists('/tmp/mark')]
    builtins.mark = sys.modules['mark'] = sys
    os.environ['MARK'] = '1'
    os.chmod('/tmp', 0o777)
    open('/tmp/mark', 'w').close()
    return found
"""

    async def job(sandbox: WasmSandbox) -> list[Any]:
        return [(await sandbox.call(mark, "f", {}, timeout=20)).value for _ in range(3)]

    assert inside(job) == [[False] * 4] * 3


@needs_wasm
def test_code_of_javascript_would_be_held_by_the_permissions(tmp_path: Path) -> None:
    """Were Python's walls to fall, there would still be those of Deno: the same command, with a script of an enemy."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "readable").mkdir()
    script = tmp_path / "enemy.mjs"
    script.write_text(ENEMY.replace("SECRET", json.dumps(str(secret))))
    done = subprocess.run(wasm.command(pyodide.find_deno(), tmp_path / "readable", script), env=wasm.ENVIRONMENT, cwd="/",
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    told = json.loads(done.stdout)
    assert len(told) == ENEMY.count("async () =>") and told.pop("alive") == "yes"
    assert {name: what for name, what in told.items() if not what.startswith("no: ")} == {}
    assert secret.read_text() == "secret" and not (tmp_path / "x").exists()


ENEMY = """
const tries = {
  alive: async () => "yes",
  read: async () => Deno.readTextFileSync(SECRET),
  read_by_node: async () => (await import("node:fs")).readFileSync(SECRET, "utf8"),
  list: async () => [...Deno.readDirSync("/")].length,
  write: async () => Deno.writeTextFileSync(SECRET, "x"),
  make: async () => Deno.makeTempFileSync(),
  link: async () => Deno.symlinkSync(SECRET, SECRET + "2"),
  remove: async () => Deno.removeSync(SECRET),
  tcp: async () => await Deno.connect({ hostname: "127.0.0.1", port: 9 }),
  listen: async () => Deno.listen({ port: 0 }).addr.port,
  fetch: async () => await (await fetch("http://127.0.0.1:8080/")).text(),
  program: async () => new Deno.Command("/bin/sh", { args: ["-c", "true"] }).outputSync().code,
  program_by_node: async () => (await import("node:child_process")).execSync("true"),
  environment: async () => JSON.stringify(Deno.env.toObject()),
  environment_by_node: async () => JSON.stringify((await import("node:process")).env),
  signal: async () => Deno.kill(Deno.ppid, "SIGTERM"),
  library: async () => Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } }),
  store: async () => localStorage.setItem("x", "1"),
  cache: async () => await caches.open("x"),
  sqlite: async () => new ((await import("node:sqlite")).DatabaseSync)(SECRET + ".db"),
  code_from_elsewhere: async () => await import("https://deno.land/std@0.200.0/version.ts"),
  code_from_npm: async () => await import("npm:left-pad"),
  code_from_text: async () => new Function("return 1")(),
  more_rights: async () => {
    const found = await Deno.permissions.request({ name: "read" });
    if (found.state !== "granted") throw new Error(found.state);
  },
  host: async () => Deno.hostname(),
  inspector: async () => (await import("node:inspector")).open(0),
  memory: async () => new WebAssembly.Memory({ initial: 1, maximum: 65536 }).grow(20000),
};
const told = {};
for (const [name, attempt] of Object.entries(tries)) {
  try { told[name] = String(await attempt()); } catch (error) { told[name] = "no: " + error.message; }
}
Deno.stdout.writeSync(new TextEncoder().encode(JSON.stringify(told)));
Deno.exit(0);
"""


@needs_wasm
def test_the_chosen_sandbox_is_opened_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_chosen", "wasm")

    async def course() -> tuple[str, Any]:
        sandbox = await core.open_sandbox()
        found = await sandbox.call("def f(x): return x + 1", "f", {"x": 1}, timeout=20)
        await sandbox.aclose()
        return sandbox.level, found.value

    assert asyncio.run(course()) == ("wasm", 2)
