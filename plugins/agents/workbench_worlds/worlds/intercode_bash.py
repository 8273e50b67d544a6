"""InterCode-Bash: a task in words, solved by commands in the row's own file system.

Source: InterCode (Yang et al., arXiv 2306.14898), its environment `ic_bash` and its reward. It needs the programs
`bwrap` and `git`, and InterCode's own setup scripts. Departures: a file system is a folder under bubblewrap, without
network, in place of a Docker container, with the programs of this machine; commands reach the shell with their quotes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import posixpath
import re
import shutil
import subprocess
from pathlib import Path
from threading import Timer
from typing import Any

#: Maximum seconds and bytes of a command.
SECONDS, OUTPUT = 10, 100_000
#: Folders that do not count as changed, by InterCode's own list; the kernel's and the machine's are among them.
NOT_COUNTED = "bin boot dev etc home lib lib64 media opt proc root run sbin srv sys usr var".split()


class World:
    """Task: `query`, `gold` (its command), `file_system` (1 to 4). Actions are commands; `submit` ends.

    setup: the folder of setup_nl2b_fs_1.sh and so on, relative to the workflow file. partial: score by InterCode's
    reward in [0, 1], instead of whether it is 1.
    """

    base = "."
    tools = None

    def __init__(self, setup: str, partial: bool = False):
        self.setup, self.partial = Path(self.base, setup).resolve(), partial

    def reset(self, task: dict[str, Any]) -> str:
        self.gold, self.done, self.folder, self.output = task["gold"], False, "/", ""
        script = self.setup / f"setup_nl2b_fs_{int(task['file_system'])}.sh"
        if not script.is_file():
            raise ValueError(f"there is no {script}; settings.setup is InterCode's folder docker/bash_scripts")
        self.root, self.other = Path("root").resolve(), Path("gold").resolve()
        for name in (*NOT_COUNTED, "tmp"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (self.root / name).rmdir()
            (self.root / name).symlink_to(f"usr/{name}")
        shutil.copy(script, self.root / "setup.sh")
        self._run(self.root, "bash /setup.sh")
        (self.root / "setup.sh").unlink()
        (self.root / ".gitignore").write_text("\n".join(NOT_COUNTED))
        self._git(self.root, "init")
        self._git(self.root, "add", "-A")
        self._git(self.root, "commit", "-m", "as it was", "--allow-empty")
        subprocess.run(["cp", "-a", str(self.root), str(self.other)], check=True)
        return str(task.get("query", ""))

    def step(self, action: str) -> str:
        if action.strip().startswith("submit"):
            self.done = True
            return self.output
        if found := re.match(r"\s*cd(?:\s+([^;&|]*))?$", action):
            place = posixpath.normpath(posixpath.join(self.folder, (found[1] or "/root").strip()))
            self.output = self._run(self.root, f'cd "{place}"')
            self.folder = place if not self.output else self.folder
        else:
            self.output = self._run(self.root, action, self.folder)
        return self.output

    def score(self) -> float:
        reward = self._reward()
        return reward if self.partial else float(reward > 0.999)

    def _reward(self) -> float:
        """Return 0.01, and 0.33 each for equal changes, equal contents of new files, and similar output."""
        wanted = self._run(self.other, self.gold)
        changed, gold = self._changes(self.root), self._changes(self.other)
        files = 1 - math.erf(len(changed ^ gold))
        new = [path for path, status in changed & gold if status == "??"]
        same = [_content(self.root / path) == _content(self.other / path) for path in new]
        contents = sum(same) / len(same) if same else 1.0
        return 0.01 + sum(round(0.33 * part, 2) for part in (files, contents, _likeness(self.output, wanted)))

    def _changes(self, root: Path) -> set[tuple[str, str]]:
        words = self._git(root, "status", "--short").split()
        return set(zip(words[1::2], words[::2], strict=False))

    def _git(self, root: Path, *words: str) -> str:
        state = root.with_name(f"{self.root.name}.git")
        git = ["git", f"--git-dir={state}", f"--work-tree={root}", "-c", "user.name=w", "-c", "user.email=w@w"]
        if root != self.root:  # compare what was committed with the other folder, with an index of its own
            index = root.with_name("gold.index")
            env = {**os.environ, "GIT_INDEX_FILE": str(index)}
            if not index.exists():
                shutil.copy(state / "index", index)
        else:
            env = dict(os.environ)
        return subprocess.run([*git, *words], cwd=root, env=env, check=True, capture_output=True, text=True).stdout

    def _run(self, root: Path, command: str, folder: str = "/") -> str:
        """Return the output of a command, including its errors."""
        there = folder if (root / folder.lstrip("/")).is_dir() else "/"
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--bind", str(root), "/", "--ro-bind", "/usr", "/usr"]
        words += ["--ro-bind", "/etc/alternatives", "/etc/alternatives", "--proc", "/proc", "--dev", "/dev"]
        words += ["--clearenv", "--setenv", "PATH", "/usr/bin:/usr/sbin", "--setenv", "HOME", "/root"]
        words += ["--setenv", "LC_ALL", "C.UTF-8", "--chdir", there, "bash", "-c", command]
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            late: list[bool] = []
            timer = Timer(SECONDS, lambda: (late.append(True), process.kill()))
            timer.start()
            said = process.stdout.read(OUTPUT)
            process.kill()  # one that reached the output limit
            timer.cancel()
        return "Command timed out" if late else said.decode("utf-8", "replace")


def _content(path: Path) -> list[tuple[str, bytes]]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return [(str(f.relative_to(path)), hashlib.md5(f.read_bytes()).digest()) for f in files if f.is_file()]


def _likeness(one: str, other: str) -> float:
    """Return the cosine of both texts' words, weighted by TF-IDF as in scikit-learn; without words, whether the texts
    are equal."""
    counts = [
        {w: words.count(w) for w in words} for words in (re.findall(r"\b\w\w+\b", t.lower()) for t in (one, other))
    ]
    if not (counts[0] or counts[1]):
        return float(one == other)
    weights = [
        {w: n * (math.log(3 / (1 + sum(w in c for c in counts))) + 1) for w, n in count.items()} for count in counts
    ]
    lengths = [math.sqrt(sum(v * v for v in w.values())) or 1.0 for w in weights]
    return sum(v * weights[1].get(w, 0.0) for w, v in weights[0].items()) / (lengths[0] * lengths[1])


def list_tasks(file: str) -> list[dict[str, Any]]:
    """List the tasks of a file of InterCode, e.g. data/nl2bash/nl2bash_fs_1.json; its number is the file system."""
    rows = json.loads(Path(file).read_text())
    number = int(Path(file).stem.rpartition("_")[2])
    return [{"query": row["query"], "gold": row["gold"], "file_system": number} for row in rows]
