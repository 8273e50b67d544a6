"""The zygote: a warm interpreter inside the sandbox that forks a child for each call.

    python -P -s -S -B zygote.py FD CONFIG

It reads orders from the socket FD, one JSON object per packet: {"id", "timeout"} with three descriptors (request,
answer, printed output), or {"kill": id}; and it reports the end of each child. Requests and answers bypass it: only the
child reads its own request, and only the workbench reads the answer. So a child, which starts as a copy of the zygote's
memory, finds nothing of other calls in it. The child drops all rights (see confine.py), runs one function, and writes
its answer to a separate descriptor, so that printed output cannot pass for an answer. The zygote ends when its socket
closes.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
from types import ModuleType


def _load(path: str) -> ModuleType:
    """Load a module by its file: neither of our packages is visible in the sandbox."""
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONFIG = json.loads(sys.argv[2])
confine = _load(CONFIG["confine"])
runner = _load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "runner.py"))

NOBODY = 65534


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    _preload()
    if os.geteuid() == 0:
        _become_nobody()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the workbench handles Ctrl-C
    control.sendall(b'{"ready": true}')
    Zygote(control, CONFIG).serve()


def _become_nobody() -> None:
    """Drop root's rights, unless the user nobody cannot read Python's own library (as below /root)."""
    os.seteuid(NOBODY)
    try:
        open(os.__file__).close()
    except OSError:
        os.seteuid(0)
        return
    os.seteuid(0)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _preload() -> None:
    """Import modules that forged code is likely to use, so that children start with them."""
    for name in (
        "base64",
        "datetime",
        "encodings.idna",
        "fractions",
        "heapq",
        "operator",
        "random",
        "statistics",
        "string",
        "typing",
    ):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # garbage collection in a child would copy every page that it shares with the zygote


class Zygote:
    def __init__(self, control: socket.socket, config: dict) -> None:
        self.control, self.config = control, config
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, None)
        self.children: dict[int, Child] = {}  # by the number of the call

    def serve(self) -> None:
        while True:
            now = time.monotonic()
            next_end = min((c.end for c in self.children.values()), default=now + 60)
            for key, _ in self.selector.select(max(0.0, next_end - now)):
                if key.data is not None:
                    self._finish(key.data, late=False)
                elif not self._order():
                    return self._stop()
            for child in [c for c in self.children.values() if time.monotonic() >= c.end]:
                self._finish(child, late=True)

    def _order(self) -> bool:
        """Execute the order in the next packet. Returns False at the end of the socket."""
        data, fds, _, _ = socket.recv_fds(self.control, 4096, 3)
        if not data:
            return False
        order = json.loads(data)
        if "kill" not in order:
            self._fork(order["id"], order["timeout"], *fds)
        elif order["kill"] in self.children:
            self._finish(self.children[order["kill"]], late=False)
        return True

    def _fork(self, number: int, timeout: float, request: int, answer: int, printed: int) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                _child(request, answer, printed, timeout, self.config)
            finally:
                os._exit(70)
        for fd in (request, answer, printed):
            os.close(fd)
        child = self.children[number] = Child(number, pid, os.pidfd_open(pid), timeout)
        self.selector.register(child.pidfd, selectors.EVENT_READ, child)

    def _finish(self, child: Child, late: bool) -> None:
        """Kill the rest of the child and report how it ended."""
        if self.children.pop(child.number, None) is None:
            return  # its end and the order to kill it arrived together
        try:
            os.kill(child.pid, signal.SIGKILL)
        except OSError:
            pass
        _, status = os.waitpid(child.pid, 0)
        self.selector.unregister(child.pidfd)
        os.close(child.pidfd)
        told = {"id": child.number, "late": late, "status": status, "seconds": time.monotonic() - child.begun}
        self.control.sendall(json.dumps(told).encode())

    def _stop(self) -> None:
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


class Child:
    def __init__(self, number: int, pid: int, pidfd: int, timeout: float) -> None:
        self.number, self.pid, self.pidfd = number, pid, pidfd
        self.begun = time.monotonic()
        self.end = self.begun + timeout


def _child(request_fd: int, answer: int, printed: int, timeout: float, config: dict) -> None:
    """Drop all rights, run the function and write its answer."""
    confine.die_with_parent()
    with open(request_fd, "rb") as file:
        request = json.loads(file.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.dup2(answer, 3)
    os.closerange(4, 1 + max(map(int, os.listdir("/proc/self/fd"))))  # the limit may have been lowered below them
    os.environ.clear()
    os.chdir("/")
    megabyte = 1 << 20
    cpu = int(timeout) + 1
    for what, limit in (
        (resource.RLIMIT_AS, config["memory"] * megabyte),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(what, (limit, limit))
    if config["landlock"] and not confine.landlock(config["readable"]):
        return _answer({"kind": "crashed", "message": "Landlock could not be applied"})
    if config["seccomp"] and not confine.seccomp():
        return _answer({"kind": "crashed", "message": "seccomp could not be applied"})
    import random

    random.seed(0)  # the same call gives the same result
    sys.setrecursionlimit(1000)
    _answer(runner.run(request))


def _answer(body: dict) -> None:
    data = json.dumps(body).encode("utf-8", "replace")
    while data:
        data = data[os.write(3, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
