"""The self-test: what a sandbox must stop, tried on it. A level is only claimed if every one of these fails."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.sandbox import Outcome

if TYPE_CHECKING:
    from workbench_sandbox.linux import LinuxSandbox


@dataclass(frozen=True)
class Attack:
    """`source` defines attack(secret, port, pid), which returns something true if it got through."""

    name: str
    source: str
    stopped: Callable[[Outcome], bool] = lambda outcome: not (outcome.ok and outcome.value)
    timeout: float = 5.0


def _body(*lines: str) -> str:
    return "\n".join(["import os, sys, time", "def attack(secret, port, pid):", *(f"    {line}" for line in lines)])


def _is(*kinds: str) -> Callable[[Outcome], bool]:
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
    Attack("UDP", _body("import socket", "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
                        "return s.sendto(b'x', ('127.0.0.1', port))")),
    Attack("new processes", _body("pid = os.fork()", "if not pid: os._exit(0)", "return pid")),
    Attack("other programs", _body("os.execv('/bin/sh', ['sh', '-c', 'exit 0'])")),
    Attack("signals to others", _body("os.kill(pid, 0)", "return True")),
    Attack("signals to the parent", _body("os.kill(os.getppid() or 1, 9)", "return True")),
    Attack("debugging others", _body("import ctypes", "libc = ctypes.CDLL(None)",
                                     "return libc.ptrace(16, pid, 0, 0) == 0")),
    Attack("the environment of others", _body("return open(f'/proc/{pid}/environ', 'rb').read().hex()")),
    Attack("its own environment", _body("return [k for k in os.environ if k not in ('LC_CTYPE',)]")),
    Attack("10 GB of memory", _body("return len(bytearray(10 << 30))"), _is("memory", "crashed")),
    Attack("raising its limits", _body("import resource",
                                       "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))", "return True")),
    Attack("an endless loop", _body("while True: pass"), _is("timeout"), 0.3),
    Attack("endless sleep", _body("time.sleep(1e6)"), _is("timeout"), 0.3),
    Attack("endless output", _body("while True: print('x' * 10000)"), _is("output")),
    Attack("an answer to others", _body("done = 0", "for fd in range(4, 1000):", "    try: done += os.write(fd, b'x')",
                                        "    except OSError: pass", "return done")),
]  # fmt: skip


async def self_test(sandbox: LinuxSandbox) -> list[str]:
    """The names of the attacks that got through."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        secret = os.path.join(folder, "secret")
        with open(secret, "w") as file:
            file.write("secret")
        arguments: dict[str, Any] = {"secret": secret, "port": listening.getsockname()[1], "pid": os.getpid()}
        outcomes = await asyncio.gather(
            *(sandbox.call(a.source, "attack", arguments, timeout=a.timeout) for a in ATTACKS)
        )
        fine = await sandbox.call("def attack(secret, port, pid): return 6 * 7", "attack", arguments)
    missed = [a.name for a, o in zip(ATTACKS, outcomes, strict=True) if not a.stopped(o)]
    return missed if fine.value == 42 else [*missed, f"nothing: it cannot compute ({fine.kind}: {fine.message})"]
