"""The sandbox of WebAssembly, with Deno and Pyodide; skipped where they are not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.sandboxed import ENDS, ORDINARY, check_ordinary

from workbench.errors import SandboxError
from workbench.runtime import SandboxChoice, SandboxResult, open_sandbox
from workbench_sandbox import pyodide, wasm
from workbench_sandbox.attacks import ATTACKS, JAVASCRIPT, self_test
from workbench_sandbox.wasm import WasmSandbox, prepare_sandbox


def _missing() -> str:
    try:
        pyodide.find_deno()
        pyodide.find_pyodide()
    except SandboxError as error:
        return error.message
    return "" if sys.platform in ("linux", "darwin") else "needs Linux or macOS"


needs_wasm = pytest.mark.skipif(bool(_missing()), reason=_missing() or "-")


def inside(job: Callable[[WasmSandbox], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        sandbox = await prepare_sandbox()
        try:
            await sandbox.start()
            return await job(sandbox)
        finally:
            await sandbox.aclose()

    return asyncio.run(main())


def call(source: str, timeout: float = 20.0, **arguments: Any) -> SandboxResult:
    return inside(lambda s: s.call(source, "f", arguments, timeout=timeout))


@needs_wasm
def test_every_attack_is_stopped() -> None:
    assert inside(lambda s: self_test(s, [*ATTACKS, *JAVASCRIPT])) == []


CASES = [
    *ENDS,
    ("def f():\n    import os\n    os._exit(3)", "crashed", "no result"),
    ("def f():\n    import subprocess\n    subprocess.run(['true'])", "error", "does not support processes"),
    ("def f(): return open('/x', 'w').write('x')", "forbidden", "PermissionError"),
    ("def f():\n    kept = []\n    while True: kept.append(bytearray(1 << 26))", "memory", ""),
    ("def f():\n    import os\n    return os.write(3, b'x')", "error", "OSError"),
]


@needs_wasm
def test_each_way_to_fail_is_told_apart() -> None:
    async def job(sandbox: WasmSandbox) -> list[SandboxResult]:
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
    one, two = (call(ORDINARY, text="The cat and the dog \u00fc \U0001f600") for _ in range(2))
    check_ordinary(one, two)


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
    done = subprocess.run(
        wasm.command(pyodide.find_deno(), tmp_path / "readable", script),
        env=wasm.ENVIRONMENT,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
    )
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
def test_the_chosen_sandbox_is_opened_and_measured() -> None:
    async def main() -> tuple[str, Any]:
        sandbox = await open_sandbox(SandboxChoice("wasm"))
        found = await sandbox.call("def f(x): return x + 1", "f", {"x": 1}, timeout=20)
        await sandbox.aclose()
        return sandbox.level, found.value

    assert asyncio.run(main()) == ("wasm", 2)
