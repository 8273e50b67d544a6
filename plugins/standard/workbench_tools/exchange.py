"""The messages between a question and its answer: from a model's response to a demo and back."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import SpecError
from workbench.lm import Response, count_images
from workbench.runtime import Context
from workbench.spec import LMSpec
from workbench.workflow import EXCHANGE
from workbench_kit.acting import RowCalls, Tool, cut_result, read_calls
from workbench_kit.answers import Reading
from workbench_kit.prompting import image_parts, plain_adapter as plain, split_images
from workbench_kit.wire import read_content

#: Start of a call in a text, to find the words before it.
_CALL = re.compile(r"```|[<{\[]|^\W{0,9}call:", re.MULTILINE)
#: A label in front of a call.
_LABEL = re.compile(r"^\W{0,9}\w{1,60}\W{0,9}:\W{0,9}\Z", re.MULTILINE)
#: Maximum characters of a tool's result that a trace keeps whole.
_KEPT = 4000


def note_call(ctx: Context, name: Any, arguments: Any, text: str, value: Any) -> None:
    """Note a call on the span, and for the nodes of later calls.

    text: report of its result. value: the result; ... if there is none.
    """
    known = {"value": value} if value is not ... and len(plain.as_text(value)) <= _KEPT else {}
    told = {"name": name, "arguments": arguments, "result": text[:500], **known}
    ctx.note(tools=[*ctx.span.notes.get("tools", []), told])
    RowCalls.of(ctx).keep(str(name), arguments if isinstance(arguments, dict) else {}, text)


def check_exchange(exchange: Any, path: tuple[str | int, ...]) -> None:
    """Raise SpecError if a demo's exchange is not a list of messages."""
    roles = ("assistant", "user", "tool")
    messages = exchange if isinstance(exchange, list) else [exchange]
    for message in messages:
        if (
            not isinstance(message, dict)
            or message.get("role") not in roles
            or not (isinstance(message.get("content"), str) or message.get("tool_calls"))
        ):
            raise SpecError(
                f"{EXCHANGE} is a list of messages, not {str(message)[:80]}",
                path=path,
                hint="Write e.g. {role: assistant, content: 'call: {...}'}, {role: user, content: 'result: 7'}.",
            )


def see_result(value: Any, ctx: Context, lm: LMSpec | None) -> tuple[str, Sequence[str]]:
    """Return (a tool's result as text, its images if the model takes them). lm: the agent's own, if it has one."""
    shown, images = split_images(cut_result(value))
    runtime = ctx.program.runtime
    if images and not runtime.reads_images(lm or runtime.lm_spec("task", ctx.program.workflow)):
        return f"{shown}\nYou cannot see images.", ()
    return shown, images


def result_messages(told: Sequence[tuple[Mapping[str, Any], str, Sequence[str]]]) -> list[dict[str, Any]]:
    """Return the results of calls as messages to the model.

    Images of native calls are in a message after all of them: results can hold text only. told: (call, its result as
    text, images) each.
    """
    found, behind = list[dict[str, Any]](), list[dict[str, Any]]()
    for call, text, images in told:
        if call.get("id"):
            found.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            label = {"type": "text", "text": f"images of {call.get('name')}:"}
            behind += [label, *image_parts(images)] if images else []
        else:
            whole = [{"type": "text", "text": text}, *image_parts(images)]
            found.append({"role": "user", "content": whole if images else text})
    return [*found, {"role": "user", "content": behind}] if behind else found


def read_turn(response: Response, tools: Collection[Tool], labels: Collection[str], values: Collection[str]) -> Reading:
    """Return the calls in a turn of an agent (`read_calls`).

    labels: of an answer. values: labels after which a call counts as one: of outputs that hold no object, or all labels
    if the model was given no other form.
    """
    reading, text = read_calls(response, tools, labels), response.text.strip()
    names = "|".join(map(re.escape, values))
    alone = re.fullmatch(rf"(?is)\W{{0,9}}(?:{names})\W{{0,9}}:\s*+(\{{.*\}})\W{{0,9}}", text) if names else None
    if reading.calls or reading.fault or alone is None:
        return reading
    return found if (found := read_calls(replace(response, text=alone[1]), tools)).calls else reading


def lift_calls(
    response: Response, calls: Sequence[Mapping[str, Any]], names: Mapping[str, str], turn: int | None
) -> Response:
    """Return an answer whose calls are in its text, as if the server had parsed them.

    Some servers do not parse e.g. bare JSON, and a chat template shows a tool's result only after a call. names:
    server-side tool names, by the tools' own names.
    """
    if response.tool_calls or not calls:
        return response
    lifted = tuple(
        {
            "id": f"call{(turn or 0) % 1000:03}{number % 100:02}",  # Mistral requires nine letters and digits
            "name": names.get(call["name"], call["name"]),
            "arguments": json.dumps(call["arguments"], ensure_ascii=False),
        }
        for number, call in enumerate(calls)
    )
    before = _LABEL.sub("", _CALL.split(response.text, maxsplit=1)[0]).strip()
    return replace(response, text=before, tool_calls=lifted, message=None)


def without_images(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a run for a demo, with text in place of images, which would make the demo large."""
    return {**message, "content": read_content(message["content"])[0]} if count_images(message) else dict(message)


def replay_message(message: Mapping[str, Any], native: bool) -> dict[str, Any]:
    """Return a demo's message for replay. For an agent without native tools, native calls and results become text."""
    if native or (message["role"] != "tool" and not message.get("tool_calls")):
        return dict(message)
    text, functions = read_content(message.get("content"))[0], [c["function"] for c in message.get("tool_calls") or ()]
    lines = [f'call: {{"tool": {json.dumps(f["name"])}, "arguments": {f["arguments"]}}}' for f in functions]
    role = "user" if message["role"] == "tool" else message["role"]
    return {"role": role, "content": "\n".join(part for part in (text, *lines) if part)}
