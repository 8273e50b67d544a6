"""The reader `gta`: GTA's `dataset.json`, tasks on images with the dialog of calls that solves each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench_readers.common import Row, fault, known_options
from workbench_readers.json_files import parse_json_file


def read_gta(location: str, options: Mapping[str, Any]) -> Iterator[Row]:
    """Read one row per task (GTA, Wang et al., arXiv 2407.08713: its `dataset.json`, an object of tasks by number).

    `question` is the user's first message; `files` are paths and `tools` descriptions, unchanged. `steps` are the
    assistant's actions in the dialog, `{name, arguments}` or `{answer}`. `histories` has, for each step, the preceding
    messages as text. `gt_answer` is `{whitelist, blacklist}`, a list of right answers, or `{}` if an image is the
    answer. Option `encoding`. Raises SpecError.
    """
    known_options(options, ("encoding",), location)
    tasks = parse_json_file(location, options)
    if not isinstance(tasks, dict):
        raise fault("the file must be an object of tasks", location, 'Write {"0": {...}, "1": {...}}.')
    return iter([_row(number, task, location) for number, task in tasks.items()])


def _row(number: str, task: Any, location: str) -> Row:
    try:
        dialog = [message for message in task["dialogs"] if message["role"] != "system"]
        acts = [place for place, message in enumerate(dialog) if message["role"] == "assistant"]
        return {
            "question": dialog[0]["content"],
            "files": [file["path"] for file in task["files"]],
            "tools": [_tool(tool) for tool in task["tools"]],
            "histories": [_told(dialog[1:place]) for place in acts],
            "steps": [_step(dialog[place]) for place in acts],
            "gt_answer": task["gt_answer"] or {},
        }
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        hint = "Each task has `tools`, `files`, `dialogs`, whose first message is the user's, and `gt_answer`."
        raise fault(f"task {number} is not of GTA's form: {error!r}", location, hint) from None


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's description for a model, without its outputs and without empty fields of its inputs."""
    inputs = [{key: value for key, value in one.items() if value} for one in tool.get("inputs") or ()]
    return {"name": tool["name"], "description": tool.get("description") or "", "inputs": inputs}


def _step(message: Mapping[str, Any]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return {"answer": message["content"]}
    function = message["tool_calls"][0]["function"]
    return {"name": function["name"], "arguments": function["arguments"]}


def _told(dialog: Sequence[Mapping[str, Any]]) -> str:
    """Return messages as text, each starting on a new line."""
    lines = list[str]()
    for message in dialog:
        if message.get("tool_calls"):
            lines += [message["thought"]] if message.get("thought") else []
            lines.append(f"call: {json.dumps(_step(message), ensure_ascii=False)}")
        elif message["role"] == "tool":
            content = message["content"]
            lines.append(f"result: {content['content'] if isinstance(content, dict) else content}")
        else:
            lines.append(f"{message['role']}: {message['content']}")
    return "\n".join(lines) or "none"
