"""A folder of files in which an agent reads, writes and runs commands, and which a hidden check scores.

The form of benchmarks whose task is a repository and a failing test (AgentIssue-Bench, arXiv 2505.20749), an experiment
with a metric of its own (MLAgentBench, arXiv 2310.03302), or attachments and a file to deliver (AgentIF-OneDay, arXiv
2601.20613). It needs the program `bwrap`: commands run under bubblewrap without network, with the programs of this
machine. Departure: their containers and downloads are left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Characters of a command's output.
OUTPUT = 20_000


class World:
    """Task: `files`, {path: text}; `check`, a command that scores the folder at the end; `hidden`, {path: text}, files
    that are put there for the check alone, over whatever stands there.

    The score is the number in [0, 1] on the last line that the check prints; without one, 1 if it exits with 0.
    seconds: of a command.
    """

    base = "."

    def __init__(self, seconds: float = 60):
        self.seconds, self.done = seconds, False

    def reset(self, task: dict[str, Any]) -> str:
        self.check, self.hidden = task.get("check", ""), task.get("hidden") or {}
        self.folder = Path("workspace").resolve()
        self._put(task.get("files") or {})
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
        given = action["arguments"]
        if action["tool"] == "submit":
            self.done = True
            return self._changed() or "Nothing was changed."
        if action["tool"] == "run":
            return self._run(given["command"])[1] or "(no output)"
        path = (self.folder / given["path"]).resolve()
        if not path.is_relative_to(self.folder):
            return "That is outside the folder."
        if action["tool"] == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(given["text"], encoding="utf-8")
            return f"{len(given['text'])} characters are written."
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "There is no such file."

    def score(self) -> float:
        if not self.check:
            return 0.0
        self._put(self.hidden)
        status, said = self._run(self.check)
        last = said.strip().splitlines()[-1:] or [""]
        number = re.fullmatch(r"(?:.*\s)?(0(?:\.\d+)?|1(?:\.0+)?)", last[0])
        return float(number[1]) if number else float(status == 0)

    def _changed(self) -> str:
        """The files that are new or other than at the beginning, with their text."""
        now = self._read_all()
        return "\n\n".join(f"{path}:\n{text}" for path, text in sorted(now.items()) if self.before.get(path) != text)

    def _read_all(self) -> dict[str, str]:
        paths = [p for p in self.folder.rglob("*") if p.is_file() and p.resolve().is_relative_to(self.folder)]
        return {str(p.relative_to(self.folder)): p.read_text(encoding="utf-8", errors="replace") for p in paths}

    def _put(self, files: dict[str, str]) -> None:
        self.folder.mkdir(exist_ok=True)
        for name, text in files.items():
            path = self.folder / name
            for part in (path, *path.parents):  # a link that the agent put there leads the file elsewhere
                if part.is_symlink() and part != self.folder and part.is_relative_to(self.folder):
                    part.unlink()
            if not path.resolve().is_relative_to(self.folder):
                raise ValueError(f"the file {name} is outside the folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def _run(self, command: str) -> tuple[int, str]:
        """(status, output with errors) of a command; a late one has the status 124."""
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--bind", str(self.folder), "/work"]
        for place in ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives", sys.base_prefix, sys.prefix):
            if Path(place).exists():
                words += ["--ro-bind", place, place]
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/work"]
        # Python takes a file of equal size and second for the one that it has compiled.
        env = {"PATH": path, "HOME": "/tmp", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*words, "bash", "-c", f"({command}\n) 2>&1 | head -c {OUTPUT}; exit ${{PIPESTATUS[0]}}"],
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, f"It was stopped after {self.seconds:g} s."
        except FileNotFoundError:
            raise ValueError("there is no program `bwrap`: install bubblewrap") from None
        return done.returncode, (done.stdout or done.stderr).decode("utf-8", "replace")
