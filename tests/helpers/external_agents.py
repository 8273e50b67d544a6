"""Agents as users have them, written to a folder, and the simulated task with one of them as its node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench_testing.simulated import LABELS, write_task

#: Asks as vendors' clients do, in a tenth of their time to start: `urllib` alone takes two thirds of a process.
CLIENT = """\
import json, os, socket, sys

def chat(messages, **settings):
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages, **settings}).encode()
    place, _, path = os.environ["OPENAI_BASE_URL"].removeprefix("http://").partition("/")
    head = f"POST /{path}/chat/completions HTTP/1.1\\r\\nHost: {place}\\r\\nContent-Type: application/json\\r\\n"
    head += f"Connection: close\\r\\nContent-Length: {len(body)}\\r\\n"
    head += f"Authorization: Bearer {os.environ['OPENAI_API_KEY']}\\r\\n\\r\\n"
    with socket.create_connection(place.split(":")) as connection:
        connection.sendall(head.encode() + body)
        head, _, said = connection.makefile("rb").read().partition(b"\\r\\n\\r\\n")
    if b" 200 " not in head.splitlines()[0]:
        raise OSError(f"HTTP Error {head.decode()}")
    return json.loads(said)["choices"][0]["message"]

row = json.load(sys.stdin)
"""

SYSTEM = "You label what people write to the office. It is 2026-11-23."

#: One prompt, one call.
SORTER = f"""{CLIENT}
system = {SYSTEM!r}
print(chat([{{"role": "system", "content": system}}, {{"role": "user", "content": row["text"] + " label:"}}],
           temperature=0.5)["content"])
"""


def write_agent(place: Path, source: str, **settings: Any) -> Path:
    """Write the simulated task with an agent of this source as its node. Returns the path of the workflow file."""
    path = write_task(place, budget={"calls": settings.pop("budget", 400)}, rows=settings.pop("rows", (12, 16, 24)))
    (place / "agent.py").write_text(source, encoding="utf-8")
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["nodes"] = {
        "agent": {
            "external": f"text -> label: Literal{list(LABELS)}",
            "command": ["python", "agent.py"],
            "timeout": 60,
            **settings,
        }
    }
    del spec["search"]
    path.write_text(json.dumps(spec, indent=1), encoding="utf-8")
    return path
