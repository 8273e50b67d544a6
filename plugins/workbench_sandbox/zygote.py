"""The zygote: a warm interpreter inside the sandbox that forks a child for each call.

    python -P -s -S zygote.py FD CONFIG

It reads requests from the socket FD, one JSON object a line, and answers likewise. Each child gives up everything
(see confine.py), runs one function, and writes its answer to a pipe of its own; what it prints goes elsewhere, so it
cannot pass for an answer. The zygote ends with its socket.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confine  # noqa: E402

sys.path.pop(0)

NAME = "<source>"
PRINTED = 4096  # so much of what a call prints is given back
LONGEST_MESSAGE = 2000
NOBODY = 65534


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    config = json.loads(sys.argv[2])
    _preload()
    if os.geteuid() == 0:
        _become_nobody()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the workbench's business
    control.sendall(b'{"ready": true}\n')
    Zygote(control, config).serve()


def _become_nobody() -> None:
    """Root's rights are given up, unless nobody could then read Python's own library (as below /root)."""
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
    """Modules that forged code is likely to use: imported once, so that a child starts with them."""
    import base64  # noqa: E401, F401
    import encodings.idna  # noqa: E401, F401
    import operator  # noqa: E401, F401


class Zygote:
    def __init__(self, control: socket.socket, config: dict) -> None:
        self.control, self.config = control, config
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, None)
        self.children: dict[int, Child] = {}  # by the descriptor of the answer
        self.unread = b""

    def serve(self) -> None:
        while True:
            now = time.monotonic()
            next_end = min((c.end for c in self.children.values()), default=now + 60)
            for key, _ in self.selector.select(max(0.0, next_end - now)):
                if key.fd == self.control.fileno():
                    if not self._requests():
                        return self._stop()
                elif not key.data.finished:  # its descriptors may be others' by now
                    self._read(key.data, key.fd)
            for child in [c for c in self.children.values() if time.monotonic() >= c.end]:
                self._finish(child, {"kind": "timeout", "message": f"no result within {child.timeout:g} s"})

    def _requests(self) -> bool:
        data = self.control.recv(1 << 20)
        if not data:
            return False
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self._fork(json.loads(line))
        return True

    def _fork(self, request: dict) -> None:
        answer_read, answer_write = os.pipe()
        printed_read, printed_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _child(request, answer_write, printed_write, self.config)
            finally:
                os._exit(70)
        os.close(answer_write)
        os.close(printed_write)
        child = Child(pid, request["id"], answer_read, printed_read, request["timeout"], self.config)
        self.children[answer_read] = child
        for fd in (answer_read, printed_read):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, child)

    def _read(self, child: Child, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if fd == child.printed_fd:
            child.printed_size += len(data)
            child.printed = (child.printed + data)[:PRINTED]
            if not data:
                self.selector.unregister(fd)
                child.printed_open = False
            if child.printed_size > self.config["output"]:
                self._finish(child, {"kind": "output", "message": f"printed more than {self.config['output']} bytes"})
            return
        child.answer += data
        if len(child.answer) > self.config["result"]:
            self._finish(child, {"kind": "bad_result", "message": f"more than {self.config['result']} bytes"})
        elif not data:
            self._finish(child, None)

    def _finish(self, child: Child, verdict: dict | None) -> None:
        """Kill what is left of the child and send its answer, or the verdict on it."""
        del self.children[child.answer_fd]
        child.finished = True
        try:
            os.kill(child.pid, signal.SIGKILL)
        except OSError:
            pass
        _, status = os.waitpid(child.pid, 0)
        for fd in (child.answer_fd, child.printed_fd):
            if fd == child.printed_fd and not child.printed_open:
                os.close(fd)
                continue
            if fd == child.printed_fd:
                try:
                    child.printed = (child.printed + os.read(fd, PRINTED))[:PRINTED]
                except OSError:
                    pass
            self.selector.unregister(fd)
            os.close(fd)
        reply = {
            "id": child.id,
            "seconds": time.monotonic() - child.begun,
            "printed": child.printed.decode("utf-8", "replace"),
        }
        if verdict is None and child.answer:
            reply["answer"] = child.answer.decode("utf-8", "replace")
        else:
            reply["verdict"] = verdict or _crash(status)
        self.control.sendall(json.dumps(reply).encode() + b"\n")

    def _stop(self) -> None:
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


class Child:
    def __init__(self, pid: int, id: int, answer_fd: int, printed_fd: int, timeout: float, config: dict) -> None:
        self.pid, self.id, self.answer_fd, self.printed_fd, self.timeout = pid, id, answer_fd, printed_fd, timeout
        self.begun = time.monotonic()
        self.end = self.begun + timeout
        self.answer, self.printed, self.printed_size, self.printed_open = b"", b"", 0, True
        self.finished = False


def _crash(status: int) -> dict:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return {"kind": "timeout", "message": "used up its processor time"}
        return {"kind": "crashed", "message": f"ended by signal {number}"}
    return {"kind": "crashed", "message": f"ended with code {os.WEXITSTATUS(status)} and no result"}


def _child(request: dict, answer: int, printed: int, config: dict) -> None:
    """Give everything up, run the function, write its answer."""
    confine.die_with_parent()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.dup2(answer, 3)
    os.closerange(4, 4096)
    os.environ.clear()
    os.chdir("/")
    megabyte = 1 << 20
    cpu = int(request["timeout"]) + 1
    for what, limit in (
        (resource.RLIMIT_AS, config["memory"] * megabyte), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0),
    ):  # fmt: skip
        resource.setrlimit(what, (limit, limit))
    if config["landlock"] and not confine.landlock(config["readable"]):
        return _answer({"kind": "crashed", "message": "Landlock could not be applied"})
    if config["seccomp"] and not confine.seccomp():
        return _answer({"kind": "crashed", "message": "seccomp could not be applied"})
    import random

    random.seed(0)  # the same call gives the same result
    sys.setrecursionlimit(1000)
    _answer(_run(request))


def _run(request: dict) -> dict:
    try:
        module = sys.modules["forged"] = types.ModuleType("forged")  # dataclasses look their module up
        exec(compile(request["source"], NAME, "exec"), module.__dict__)
        function = getattr(module, request["function"], None)
        if not callable(function):
            return {"kind": "error", "message": f"the source defines no function '{request['function']}'"}
        value = function(**request["arguments"])
        try:
            return {"kind": "ok", "value": json.loads(json.dumps(value, allow_nan=False))}
        except (TypeError, ValueError, RecursionError) as error:
            return {"kind": "bad_result", "message": f"the result is not JSON: {error}"[:LONGEST_MESSAGE]}
    except MemoryError:
        return {"kind": "memory", "message": "out of memory"}
    except BaseException as error:  # SystemExit and KeyboardInterrupt are its own affair too
        kind = "forbidden" if isinstance(error, PermissionError) or _no_threads(error) else "error"
        return {"kind": kind, "line": _line(error), "message": f"{type(error).__name__}: {error}"[:LONGEST_MESSAGE]}
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            pass


def _no_threads(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)


def _line(error: BaseException) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == NAME:
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == NAME]
    return lines[-1] if lines else None


def _answer(body: dict) -> None:
    data = json.dumps(body).encode("utf-8", "replace")
    while data:
        data = data[os.write(3, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
