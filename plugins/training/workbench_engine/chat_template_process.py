"""The process that renders chat templates, which are programs of whoever made a checkpoint.

    python -P -B chat_template_process.py CONFINE

It reads requests as lines of JSON, renders each as transformers does, and answers with one line. Before the first one
it gives up the network, other processes, and all files but Python's own (see confine.py). `workbench_kit.lms`
is the other side, which holds the deadline.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

MEMORY = 2 << 30  # bytes
PROCESSOR = 600  # seconds in all: an end for a process whose parent died; others are then started anew
LONGEST = 32 << 20  # characters of a rendered chat


def render(request: dict[str, Any]) -> dict[str, str]:
    """{"text": ...} or {"error": ...}, where the template or its sandbox refuses."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        chats = render_jinja_template(
            conversations=[request["messages"]],
            chat_template=request["template"],
            tools=request.get("tools"),
            add_generation_prompt=request["add_generation_prompt"],
            **{**request["special_tokens"], **request.get("settings", {})},
        )[0]
        if len(chats[0]) > LONGEST:
            return {"error": f"it writes more than {LONGEST} characters"}
        return {"text": chats[0]}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except Exception as error:  # whatever a template raises
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    for template in ("{{ messages }}{{ strftime_now('%Y') }}", "{{ raise_exception('warm') }}"):  # imports what is lazy
        render({"messages": [], "template": template, "add_generation_prompt": True, "special_tokens": {}})
    _confined(sys.argv[1])
    with os.fdopen(1, "wb") as answers:
        answers.write(b"ready\n")
        answers.flush()
        for line in sys.stdin.buffer:
            answers.write(json.dumps(render(json.loads(line))).encode() + b"\n")
            answers.flush()


def _confined(path: str) -> None:
    spec = importlib.util.spec_from_file_location("confine", path)
    assert spec is not None and spec.loader is not None
    confine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(confine)
    confine.drop_rights([folder for folder in sys.path if folder], memory=MEMORY, processor=PROCESSOR)


if __name__ == "__main__":
    main()
