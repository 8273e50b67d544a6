"""A world behind AgentGym's HTTP form (arXiv 2406.04151), which its servers `agentenv-*` speak: POST /create, /reset,
/step and, of some, /close. It imports nothing of the workbench."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any


class AgentGym:
    """Task: `data_idx`, the number of a task of the server. Action: as the server says, also behind `Action:`.

    url: where a server runs. server: a command that starts one for the row, with `{port}`. key: what the server calls
    the number of an episode.
    """

    done, reward = False, 0.0
    base: Path

    def __init__(self, url: str = "", server: list[str] | None = None, key: str = "id"):
        self.url, self.server, self.key = url, server, key

    def reset(self, task: dict[str, Any]) -> str:
        if self.server is not None:
            self._start(self.server)
        made = self._post("create", {})
        self.episode = {self.key: made.get(self.key) if isinstance(made, dict) else made}
        found = self._post("reset", {**self.episode, "data_idx": int(task["data_idx"])})
        return str(found["observation"])

    def step(self, action: str) -> str:
        found = self._post("step", {**self.episode, "action": str(action).rpartition("Action:")[2].strip()})
        self.done, self.reward = bool(found["done"]), float(found["reward"])
        return str(found.get("observation", found.get("state")))

    def score(self) -> float:
        with suppress(OSError, RuntimeError):  # not all servers have it
            self._post("close", dict(self.episode))
        return min(1.0, max(0.0, self.reward))

    def _post(self, path: str, content: dict[str, Any]) -> Any:
        """Raises where the server says that it went wrong: that says nothing of the player."""
        asked = urllib.request.Request(
            f"{self.url.rstrip('/')}/{path}", json.dumps(content).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=120) as answer:
            found = json.load(answer)
        if isinstance(found, dict) and "error" in found:
            raise RuntimeError(f"/{path}: {found['error']}")
        return found

    def _start(self, command: list[str]) -> None:
        """Start a server of its own, which ends with the world's process."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        subprocess.Popen([word.replace("{port}", str(port)) for word in command], cwd=self.base)
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{command} does not listen at {self.url} after 30 s")
