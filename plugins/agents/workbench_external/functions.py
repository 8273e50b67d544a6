"""Functions that the gateway offers to models in addition to the agent's tools. The agent does not see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from workbench.base.hashing import digest
from workbench.errors import NodeError
from workbench.lm import Response
from workbench_external.asking import Asking
from workbench_external.gateway import Ask
from workbench_external.slots.discover import texts_of
from workbench_kit.acting import Forged, Tool, load_arguments, read_arguments
from workbench_kit.answers import as_text
from workbench_kit.lms.native_calls import same_said, to_message

Message = Mapping[str, Any]
#: Sends a request with these messages: its own, perhaps with further turns. The last argument is the replica.
Send = Callable[[Asking, Sequence[Message], int], Awaitable[Response]]
#: Maximum characters of a result in a row's trace.
_KEPT = 500
#: Answers of the model whose hidden turns are remembered.
_REMEMBERED = 1000


class OfferedFunctions:
    """The functions of a node, for the conversations of one row, or of one client of a served gateway.

    called: the calls, in the format of the traces of `agent` nodes.
    """

    def __init__(self, functions: Sequence[Forged], run: Callable[[Tool, dict[str, Any]], Awaitable[Any]]):
        """Set up the functions. run: runs a function, given as source, in the sandbox. Raises NodeError."""
        tools = [function.tool() for function in functions]
        self.tools = {tool.name: replace(tool, schema={"type": "object", **tool.schema}) for tool in tools}
        self.called: list[dict[str, Any]] = []
        self._run = run
        self._before: dict[str, list[Message]] = {}  # turns hidden from the agent, by the answer that followed

    def definitions(self, ask: Ask) -> list[dict[str, Any]]:
        """Return the additional tools of a request: none if the agent requires structured output or a call, or if the
        API has no tools."""
        if not self.tools or (ask.native is not None and ask.native.api == "completions"):
            return []
        choice = ask.settings.get("extra", {}).get("tool_choice", "auto")
        if choice != "auto" or ask.settings.get("response_format") is not None:
            return []
        taken = {str(tool.get("function", {}).get("name")) for tool in ask.tools}
        return [tool.definition for tool in self.tools.values() if tool.name not in taken]

    async def answer(self, asking: Asking, replica: int, send: Send, again: Callable[[int], None]) -> Response:
        """Return the model's first answer that calls none of the offered functions.

        If an answer also calls tools of the agent, the functions are run first, and the model is asked again.

        Args:
            asking: the request. Hidden turns before earlier answers are put back between its messages.
            replica: of its calls.
            send: calls the model.
            again: called before each further call of the model, with its number from 1. It raises if no call is left.
        """
        names = {tool["function"]["name"] for tool in asking.offered}
        said = self._with_unseen(asking.messages)
        begun = len(said)
        for number in count(1):
            response = await send(asking, said, replica)
            calls = [call for call in response.tool_calls if call["name"] in names]
            if not calls:
                break
            said.append(to_message(replace(response, tool_calls=tuple(calls))))
            said += [await self._result(call) for call in calls]
            again(number)
        if len(said) > begun:
            self._before[_identity(to_message(response))] = said[begun:]
            if len(self._before) > _REMEMBERED:
                del self._before[next(iter(self._before))]
        return response

    def _with_unseen(self, messages: Sequence[Message]) -> list[Message]:
        found: list[Message] = []
        for message in messages:
            if self._before and message.get("role") == "assistant":
                found += self._before.get(_identity(message), ())
            found.append(message)
        return found

    async def _result(self, call: Mapping[str, Any]) -> Message:
        """Return the result of a call as a message to the model; for a wrong call, the error."""
        tool, arguments = self.tools[call["name"]], load_arguments(call["arguments"])
        if not isinstance(arguments, dict):
            text = "error: the arguments must be a JSON object"
        else:
            try:
                arguments = read_arguments(tool, arguments)
                text = f"result: {as_text(await self._run(tool, arguments))}"
            except NodeError as error:
                text = f"error: {error}"
        self.called.append({"name": tool.name, "arguments": arguments, "result": text[:_KEPT]})
        return {"role": "tool", "tool_call_id": call["id"], "content": text}


def _identity(message: Message) -> str:
    """Return the identity of an answer that the agent sends again, in the form of any API."""
    said = same_said({**message, "content": "".join(texts_of(message.get("content")))})
    return digest([said.get("content"), said.get("tool_calls", [])])
