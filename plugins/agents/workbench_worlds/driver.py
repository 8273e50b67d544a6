"""The process that keeps worlds of one kind, in an interpreter of their own, with only the standard library.

    python driver.py FD

It imports the class of the world once, and forks a child for each row that plays. Over the socket FD it receives
`{"start": NUMBER}`, with the child's own socket, and `{"kill": NUMBER}`, and sends `{"ended": NUMBER, "why": ...}`. A
child answers lines of JSON (`serve_row`) in a folder of its own. When it ends, its folder and all processes that it
started are removed. When FD closes, everything ends.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import importlib.util
import inspect
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import zlib
from contextlib import suppress
from typing import Any

#: Maximum characters of an observation; the rest is cut off.
OBSERVATION = 100_000
#: Maximum bytes in a world's folder, unless its class sets more.
DISK = 1_000_000_000
#: Minimum bytes that an entry of a folder counts.
BLOCK = 4096
#: Seconds between two checks of the folders.
WATCH = 0.5
_DIE_WITH_PARENT, _ADOPT_ORPHANS = 1, 36


def load_class(place: dict[str, str]) -> Any:
    """Load the class at a place: {file or module, name, path, base}. path: folder whose modules the file may import.
    base: the workflow file's folder, which the class gets as `base`."""
    if "path" in place:
        sys.path.insert(0, place["path"])
    if "file" in place:
        spec = importlib.util.spec_from_file_location("world_of_row", place["file"])
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["world_of_row"] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place["module"])
    found = getattr(module, place["name"], None)
    if found is None:
        classes = ", ".join(name for name, value in vars(module).items() if isinstance(value, type)) or "none"
        raise LookupError(f"it has no class {place['name']}; its classes: {classes}")
    found.base = place["base"]
    return found


class Keeper:
    """Starts, watches and ends the children."""

    def __init__(self, control: socket.socket, folder: str):
        self.control, self.folder = control, folder
        self.children: dict[int, int] = {}  # number: process
        self.why: dict[int, str] = {}
        self.disk = DISK

    def keep(self, cls: Any) -> None:
        """Serve until the workbench closes the socket. cls: the world's class, or the error of its import."""
        self.disk = getattr(cls, "disk", DISK)
        while True:
            select.select([self.control], [], [], WATCH if self.children else None)
            with suppress(BlockingIOError):
                while True:
                    data, fds, _, _ = socket.recv_fds(self.control, 4096, 1)  # Python 3.11 ignores the flags of this
                    if not data:
                        return
                    message = json.loads(data)
                    if "start" in message:
                        self.start(message["start"], fds[0], cls)
                    else:
                        self.kill(message["kill"], "it was ended")
            self.watch()
            self.reap()

    def start(self, number: int, fd: int, cls: Any) -> None:
        place = os.path.join(self.folder, str(number))
        os.mkdir(place)
        process = os.fork()
        if process == 0:
            try:
                self.control.close()
                confine(place, self.disk)
                serve_row(socket.socket(fileno=fd), cls)
            finally:
                os._exit(0)
        os.close(fd)
        self.children[number] = process

    def kill(self, number: int, why: str) -> None:
        if number in self.children:
            self.why.setdefault(number, why)
            with suppress(OSError):
                os.killpg(self.children[number], signal.SIGKILL)
            with suppress(OSError):  # before it has a group of its own
                os.kill(self.children[number], signal.SIGKILL)
            self.reap(wait=number)

    def watch(self) -> None:
        for number in list(self.children):
            if size_of(os.path.join(self.folder, str(number)), self.disk) > self.disk:
                self.kill(number, f"its folder holds more than {self.disk} bytes")

    def reap(self, wait: int | None = None) -> None:
        """Collect the processes that ended, and end those that a world left behind, which are now our children."""
        ended: dict[int, int] = {}
        with suppress(ChildProcessError):
            if wait is not None:
                process, status = os.waitpid(self.children[wait], 0)
                ended[process] = status
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    break
                ended[process] = status
        for number in [n for n, process in self.children.items() if process in ended]:
            status = ended[self.children.pop(number)]
            told = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status >> 8}"
            self.end_strangers()
            remove(os.path.join(self.folder, str(number)))
            with suppress(OSError):
                self.control.send(json.dumps({"ended": number, "why": self.why.pop(number, told)}).encode())

    def end_strangers(self) -> None:
        """End the processes that dead worlds left behind, and then their children."""
        with suppress(OSError):  # not Linux
            while True:
                with open(f"/proc/self/task/{os.getpid()}/children") as listed:
                    strangers = set(map(int, listed.read().split())) - set(self.children.values())
                if not strangers:
                    return
                for process in strangers:
                    os.kill(process, signal.SIGKILL)
                    os.waitpid(process, 0)

    def end(self) -> None:
        for number in list(self.children):
            self.kill(number, "it was ended")
        self.end_strangers()
        remove(self.folder)


def remove(folder: str) -> None:
    """Delete a folder of any depth."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", folder], check=False)


def size_of(folder: str, enough: int) -> int:
    """Return the bytes of a folder's content, without following links. Counting stops beyond `enough`.

    Each entry counts at least one block: a million empty files are too much. So is a path that is too long to read.
    """
    total, waiting = 0, [folder]
    while waiting and total <= enough:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    total += max(BLOCK, entry.stat(follow_symlinks=False).st_blocks * 512)
        except OSError as error:  # others: it was deleted in the meantime
            total += enough * (error.errno == errno.ENAMETOOLONG)
    return total


def confine(place: str, disk: int) -> None:
    """Isolate this process for a row: its folder, its group, no output, and an end with the keeper."""
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # if memory runs out, the world is killed first
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.chdir(place)
    os.environ["TMPDIR"] = tempfile.tempdir = place
    resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the workbench


def serve_row(connection: socket.socket, cls: Any) -> None:
    """Answer requests, one per line: `reset` with settings and task, `step` with an action, `score`.

    The result of an action is `{observation, player, done, brief, tools, actions, reward}`; a fault of the world is
    `{error}`.
    """
    world: Any = None
    teller: Any = None
    for line in connection.makefile("r", encoding="utf-8"):
        told: dict[str, Any]
        request, fits = json.loads(line), world is not None
        try:
            if request["do"] == "reset":
                if isinstance(cls, BaseException):
                    raise cls
                seed_all(request["task"])
                with suppress(ValueError):  # a class written in C has no signature
                    inspect.signature(cls).bind(**request["settings"])
                fits = True
                world = cls(**request["settings"])
                teller = Teller(world)
                told = teller.tell(world.reset(request["task"]))
            elif request["do"] == "step":
                told = teller.tell(world.step(request["action"]))
            else:
                told = {"score": float(world.score()), "verdict": teller.read("verdict") if teller else None}
            answer = json.dumps(told)
        except BaseException as error:
            told = {"error": describe(error)}
            if error is cls or not fits:
                told["unusable"] = "imported" if error is cls else "made with these settings"
                told["missing"] = getattr(error, "name", None) if isinstance(error, ImportError) else None
            answer = json.dumps(told)
        connection.sendall(answer.encode() + b"\n")


def describe(error: BaseException) -> str:
    """Return the error, and its place in a file that is neither this one nor Python's."""
    others = ("<", __file__, os.path.dirname(os.__file__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:2000]}{place}"


def seed_all(task: dict[str, Any]) -> None:
    """Seed random generators by the task, so that the same actions have the same results again."""
    seed = zlib.crc32(json.dumps(task, sort_keys=True).encode())
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


class Teller:
    """Reports a world's output to the players. Values that a player knows are repeated only when they change."""

    def __init__(self, world: Any):
        self.world = world
        self.known: dict[tuple[str, str], Any] = {}  # by player and name

    def tell(self, observation: Any) -> dict[str, Any]:
        observation = str(observation)
        if len(observation) > OBSERVATION:
            observation = f"{observation[:OBSERVATION]}\n({len(observation) - OBSERVATION} more characters)"
        told: dict[str, Any] = {"observation": observation, "done": bool(getattr(self.world, "done", False))}
        for name in ("player", "reward", "actions"):
            told[name] = self.read(name)
        if not all(isinstance(action, str) for action in told["actions"] or ()):
            raise TypeError(f"actions must be texts, not {told['actions']!r:.200}")
        for name in ("brief", "tools"):
            value, key = self.read(name), (told["player"], name)
            if name == "tools" and not all(isinstance(t, dict) and isinstance(t.get("name"), str) for t in value or ()):
                raise TypeError(f"tools must be objects with name, description and parameters, not {value!r:.200}")
            if value != self.known.get(key):
                self.known[key] = told[name] = value
        if getattr(self.world, "repeats", True) is False:
            told["repeats"] = False
        return told

    def read(self, name: str) -> Any:
        value = getattr(self.world, name, None)
        return value() if callable(value) else value


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    del sys.path[0]  # this folder, whose files have the names of packages
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    place = json.loads(control.recv(1 << 16))
    control.setblocking(False)
    keeper = Keeper(control, tempfile.mkdtemp(prefix="workbench-worlds-"))
    try:
        try:
            found = load_class(place)
        except BaseException as error:
            found = error
        keeper.keep(found)
    finally:
        keeper.end()


if __name__ == "__main__":
    main()
