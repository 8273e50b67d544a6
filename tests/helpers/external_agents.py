"""Agents as users have them, written to a folder, and the simulated task with one of them as its node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.testing.simulated import LABELS, write_task

#: Asks as vendors' clients do, in a tenth of their time to start.
CLIENT = """\
import json, os, sys, urllib.request

def chat(messages, **settings):
    body = json.dumps({"model": "gpt-4o-mini", "messages": messages, **settings}).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]

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
    path = write_task(place, budget={"calls": settings.pop("calls", 400)}, rows=settings.pop("rows", (12, 16, 24)))
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
