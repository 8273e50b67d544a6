"""The self-test of sandboxes. A level is claimed only if every attack here fails."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.runtime import Sandbox, SandboxResult


@dataclass(frozen=True)
class Attack:
    """An attack. `source` defines attack(secret, port, pid), which returns a true value on success."""

    name: str
    source: str
    stopped: Callable[[SandboxResult], bool] = lambda outcome: not (outcome.ok and outcome.value)
    timeout: float = 5.0


def _body(*lines: str) -> str:
    return "\n".join(["import os, sys, time", "def attack(secret, port, pid):", *(f"    {line}" for line in lines)])


def _is(*kinds: str) -> Callable[[SandboxResult], bool]:
    return lambda outcome: outcome.kind in kinds


ATTACKS = [
    Attack("reading /etc/passwd", _body("return open('/etc/passwd').read()")),
    Attack("reading the user's files", _body("return open(secret).read()")),
    Attack("listing the user's folder", _body("return os.listdir(os.path.dirname(secret))")),
    Attack("writing to the user's files", _body("return open(secret, 'a').write('x')")),
    Attack("writing to /tmp", _body("open('/tmp/workbench-attack', 'w').write('x')", "return True")),
    Attack("a link to the user's files", _body("os.symlink(secret, '/tmp/workbench-link')", "return True")),
    Attack("deleting the user's files", _body("os.unlink(secret)", "return True")),
    Attack("TCP", _body("import socket", "socket.create_connection(('127.0.0.1', port), 1)", "return True")),
    Attack(
        "UDP",
        _body(
            "import socket",
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
            "return s.sendto(b'x', ('127.0.0.1', port))",
        ),
    ),
    Attack("new processes", _body("pid = os.fork()", "if not pid: os._exit(0)", "return pid")),
    Attack("other programs", _body("os.execv('/bin/sh', ['sh', '-c', 'exit 0'])")),
    Attack("signals to others", _body("os.kill(pid, 0)", "return True")),
    Attack(
        "signals by its own pipe",  # before Linux 6.12 the kernel sends them past Landlock
        _body("import fcntl", "fcntl.fcntl(1, fcntl.F_SETOWN, pid)", "return fcntl.fcntl(1, fcntl.F_GETOWN) == pid"),
    ),
    Attack(
        "signals by asynchronous output",
        _body(
            "import fcntl",
            "fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_ASYNC)",
            "return bool(fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ASYNC)",
        ),
    ),
    Attack("signals to the parent", _body("os.kill(os.getppid() or 1, 9)", "return True")),
    Attack(
        "debugging others", _body("import ctypes", "libc = ctypes.CDLL(None)", "return libc.ptrace(16, pid, 0, 0) == 0")
    ),
    Attack("the environment of others", _body("return open(f'/proc/{pid}/environ', 'rb').read().hex()")),
    Attack("its own environment", _body("return [k for k in os.environ if k not in ('LC_CTYPE',)]")),
    # With 32-bit pointers, 10 GB exceed the range of sizes: an error. Filling memory has ample time even on a busy
    # machine, since the memory limit must stop it, not the timeout.
    Attack("10 GB of memory", _body("return len(bytearray(10 << 30))"), _is("memory", "crashed", "error")),
    Attack(
        "memory bit by bit",
        _body("kept = []", "while True: kept.append(bytearray(1 << 26))"),
        _is("memory", "crashed"),
        120.0,
    ),
    Attack(
        "raising its limits",
        _body("import resource", "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))", "return True"),
    ),
    Attack("an endless loop", _body("while True: pass"), _is("timeout"), 0.3),
    Attack("endless sleep", _body("time.sleep(1e6)"), _is("timeout"), 0.3),
    Attack("endless output", _body("while True: print('x' * 10000)"), _is("output")),
    Attack(
        "an answer to others",
        _body(
            "done = 0",
            "for fd in range(4, 1000):",
            "    try: done += os.write(fd, b'x')",
            "    except OSError: pass",
            "return done",
        ),
    ),
]


_GUARDED = ("js", "pyodide", "pyodide_js", "_pyodide", "_pyodide_core")
_UNGUARD = f"for name in [n for n in sys.modules if n.partition('.')[0] in {_GUARDED}]: del sys.modules[name]"
#: Ways out of Pyodide through the JavaScript around it.
JAVASCRIPT = [
    Attack("JavaScript, imported", _body("import js", "return js.Deno.readTextFileSync(secret)")),
    Attack(
        "JavaScript, evaluated",
        _body(_UNGUARD, "from pyodide.code import run_js", "return run_js('Deno').readTextFileSync(secret)"),
    ),
    Attack(
        "JavaScript, by Pyodide's own functions",
        _body(
            _UNGUARD,
            "import pyodide_js",
            "return str(pyodide_js._module.constructor.constructor('return Deno.readTextFileSync')()(secret))",
        ),
    ),
    Attack(
        "JavaScript, by objects in memory",
        _body(
            "import gc",
            "for thing in gc.get_objects():",
            "    if 'JsProxy' in type(thing).__name__ or 'JsProxy' in str(type(thing).__mro__):",
            "        try: return str(thing.constructor.constructor('return Deno.readTextFileSync')()(secret))",
            "        except Exception as error: pass",
        ),
    ),
    Attack(
        "JavaScript, by C",
        _body(
            "import ctypes",
            "f = ctypes.CDLL(None).emscripten_run_script_string",
            "f.restype = ctypes.c_char_p",
            "return f(b'typeof Deno').decode()",
        ),
    ),
    Attack(
        "memory beside its own",
        _body(
            "os.chmod('/tmp', 0o777)",
            "for i in range(1000):",
            "    open(f'/tmp/{i}', 'wb').write(bytes(1 << 26))",
            "return True",
        ),
        _is("memory", "crashed"),
        120.0,
    ),
]


async def self_test(sandbox: Sandbox, attacks: Sequence[Attack] = ATTACKS) -> list[str]:
    """Return the names of the attacks that got through."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        secret = os.path.join(folder, "secret")
        with open(secret, "w") as file:
            file.write("secret")
        arguments: dict[str, Any] = {"secret": secret, "port": listening.getsockname()[1], "pid": os.getpid()}
        outcomes = await asyncio.gather(
            *(sandbox.call(a.source, "attack", arguments, timeout=a.timeout) for a in attacks)
        )
        fine = await sandbox.call("def attack(secret, port, pid): return 6 * 7", "attack", arguments)
    missed = [a.name for a, o in zip(attacks, outcomes, strict=True) if not a.stopped(o)]
    return missed if fine.value == 42 else [*missed, f"nothing: it cannot compute ({fine.kind}: {fine.message})"]
