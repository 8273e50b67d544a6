"""A folder of files in which an agent reads, writes and runs commands, scored by a hidden check.

The form of benchmarks whose task is a repository and a failing test (AgentIssue-Bench, arXiv 2505.20749), an experiment
with a metric of its own (MLAgentBench, arXiv 2310.03302), or attachments and a file to deliver (AgentIF-OneDay, arXiv
2601.20613). It needs the program `bwrap`: commands run under bubblewrap without network, with the programs of this
machine. Departure: their containers and downloads are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import Any

#: The folder, as commands see it.
PLACE = "/task"
#: Maximum bytes to read of a command's output, and of a file.
OUTPUT, CONTENT = 20_000, 100_000


class World:
    """Task: `files`, {path: text}; `check`, a command that scores the folder at the end; `hidden`, {path: text}, files
    that are added only for the check, replacing existing ones.

    The score is a number in [0, 1] on the last line that the check prints; without one, 1 if it exits with 0. No check:
    0. Processes that a command leaves running end with it. seconds: of a command.
    """

    base = "."
    repeats = False  # commands report the time

    def __init__(self, seconds: float = 60):
        self.seconds, self.done = seconds, False

    def reset(self, task: dict[str, Any]) -> str:
        self.check = task.get("check") or ""
        files, self.hidden = (task.get(name) or {} for name in ("files", "hidden"))
        if not isinstance(self.check, str):
            raise ValueError(f"the task's `check` must be a shell command, not {self.check!r:.100}")
        for given in (files, self.hidden):
            if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
                raise ValueError(f"the task's `files` and `hidden` must be {{path: text}}, not {given!r:.100}")
        self.folder = Path("workspace").resolve()
        self._put(files)
        status, said = self._run("true")
        if status:
            raise ValueError(f"bubblewrap runs no command here: {said}")
        self.before = self._read_all()
        return f"Files: {', '.join(sorted(self.before)) or 'none'}."

    def tools(self) -> list[dict[str, Any]]:
        def tool(name: str, description: str, *arguments: str) -> dict[str, Any]:
            properties = {argument: {"type": "string"} for argument in arguments}
            return {
                "name": name,
                "description": description,
                "parameters": {"type": "object", "properties": properties, "required": [*arguments]},
            }

        return [
            tool("read", "The text of a file.", "path"),
            tool("write", "Write a file, whole.", "path", "text"),
            tool("run", "Run a shell command in the folder.", "command"),
            tool("submit", "End: the files stand as they are."),
        ]

    def step(self, action: Any) -> str:
        if not isinstance(action, dict):
            return "Call one of the tools: read, write, run or submit."
        needed = next(tool["parameters"]["required"] for tool in self.tools() if tool["name"] == action["tool"])
        if wrong := [name for name in needed if not isinstance(action["arguments"].get(name), str)]:
            return f"{action['tool']} needs the text `{wrong[0]}`."
        try:
            return self._act(action["tool"], *(action["arguments"][name] for name in needed))
        except (OSError, UnicodeError, RuntimeError) as error:  # RuntimeError: a circle of links
            return f"That cannot be done: {getattr(error, 'strerror', None) or error}."

    def _act(self, tool: str, where: str = "", text: str = "") -> str:
        """Use a tool. where: a path, or a command."""
        if "\0" in where:
            return "There is a zero byte in it."
        if tool == "submit":
            self.done = True
            return self._changed() or "Nothing was changed."
        if tool == "run":
            return self._run(where)[1] or "(no output)"
        path = (self.folder / where).resolve()
        if not path.is_relative_to(self.folder):
            return "That is outside the folder."
        if path.exists() and not path.is_file():
            return "That is no file."
        if tool == "read":
            return _read(path) if path.exists() else "There is no such file."
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "replace"))
        return f"{len(text)} characters are written."

    def score(self) -> float:
        if not self.check:
            return 0.0
        self._put(self.hidden)
        status, said = self._run(self.check, end=True)
        last = said.strip().splitlines()[-1:] or [""]
        number = re.fullmatch(r"0?\.\d+|0|1(?:\.0*)?", last[0].strip())
        return float(number[0]) if number else float(status == 0)

    def _changed(self) -> str:
        """Return the new and changed files, with their text."""
        now = {path: text for path, text in self._read_all().items() if self.before.get(path) != text}
        return "\n\n".join(f"{path}:\n{text}" for path, text in sorted(now.items()))

    def _read_all(self) -> dict[str, str]:
        """Return the text of each file, by its path. Beyond a total size, texts are empty."""
        found, left = dict[str, str](), 100 * CONTENT
        for folder, _, names in os.walk(self.folder):
            for path in (Path(folder, name) for name in sorted(names)):
                if path.is_file() and path.resolve().is_relative_to(self.folder):
                    text = _read(path) if left > 0 else ""
                    found[str(path.relative_to(self.folder)).encode("utf-8", "replace").decode()] = text
                    left -= len(text)
        return found

    def _put(self, files: dict[str, str]) -> None:
        self.folder.mkdir(exist_ok=True)
        for name, text in files.items():
            path = Path(os.path.normpath(self.folder / name))
            if not path.is_relative_to(self.folder) or path == self.folder:
                raise ValueError(f"the file {name} is outside the folder")
            for part in (*reversed(path.relative_to(self.folder).parents), path.relative_to(self.folder)):
                there = self.folder / part  # the agent may have put a link or a pipe there
                if there != path and there.is_dir() and not there.is_symlink():
                    there.chmod(0o700)
                elif there.is_dir() and not there.is_symlink():
                    shutil.rmtree(there)
                else:
                    there.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def _run(self, command: str, end: bool = False) -> tuple[int, str]:
        """Return (status, output with errors) of a command. A timeout has the status 124. end: of a long output, return
        the end instead of the beginning."""
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
        words += ["--tmpfs", "/tmp", "--bind", str(self.folder), PLACE]  # /tmp first: our Python itself may be below it
        for place in ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives", sys.base_prefix, sys.prefix):
            if Path(place).exists():
                words += ["--ro-bind", place, place]
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        words += ["--proc", "/proc", "--dev", "/dev", "--chdir", PLACE, "bash", "-c", command]
        # Python considers a compiled file current if the source has the same size and second.
        env = {"PATH": path, "HOME": "/tmp", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        said, late = b"", list[bool]()
        try:
            process = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except FileNotFoundError:
            raise ValueError("there is no program `bwrap`: install bubblewrap") from None
        except OSError as error:  # a command of megabytes
            return 126, f"It cannot be run: {error.strerror}."
        timer = Timer(self.seconds, lambda: (late.append(True), process.kill()))
        timer.start()
        with process:
            assert process.stdout is not None
            while part := process.stdout.read(OUTPUT - len(said) if not end else OUTPUT):
                said = (said + part)[-OUTPUT:]
        timer.cancel()
        text = said.decode("utf-8", "replace")
        return (
            (124, f"{text}\nIt was stopped after {self.seconds:g} s.".strip()) if late else (process.returncode, text)
        )


def _read(path: Path) -> str:
    """Return the text of a file; of a large one, the beginning and its size."""
    with path.open("rb") as file:
        text = file.read(CONTENT).decode("utf-8", "replace")
    size = path.stat().st_size
    return text if size <= CONTENT else f"{text}\n({size} bytes in all)"
