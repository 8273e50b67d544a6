"""A simulated language model for any agent framework. Answers follow a formula; no model is involved.

The task is that of `workbench_testing.simulated`: the kind of a text such as `row 3: a b-thing`. A right answer has the
probability 0.35, or 0.65 where a system or developer message has the word HELPFUL. Whether a row is answered rightly
depends on nothing else, so every framework has the same gain to find. Frameworks put messages of their own around the
text, so it is looked for in all messages of the user; where tools are offered, one is called first.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from workbench.lm import Request, Response
from workbench_testing.simulated import HELPFUL, LABELS, SimulatedLM

ROW = re.compile(rf"row \d+: a ([{''.join(LABELS)}])-thing")
#: Roles of messages whose words help.
SYSTEM = ("system", "developer")
#: The tool by which some frameworks have a model give its answer.
ANSWER_TOOL = "final_answer"


class SimulatedAgentLM(SimulatedLM):
    """Answers requests of agents, and those of the optimizer for a better prompt.

    helps (of `SimulatedLM`): False makes prompts worthless.
    """

    async def complete(self, request: Request) -> Response:
        self.requests += 1
        said = [(m["role"], _text(m.get("content"))) for m in request.messages]
        size = sum(len(text) for _, text in said)
        if "</prompt>" in said[-1][1]:
            return Response(self._rewrite(request, said[-1][1]), "stop", size, 1, 0.0)
        tools = {tool["function"]["name"]: tool["function"] for tool in request.tools}
        asked = next((found for role, text in said if role == "user" and (found := ROW.search(text))), None)
        if asked is None:
            return Response("There is no text.", "stop", size, 1, 0.0)
        others = [name for name in tools if name != ANSWER_TOOL]
        if others and not any(role in ("assistant", "tool") for role, _ in said):
            return _call(others[0], dict.fromkeys(_strings(tools[others[0]]), asked[0]), size)
        skill = 0.65 if self.helps and any(HELPFUL in text for role, text in said if role in SYSTEM) else 0.35
        label = asked[1]
        if _share(asked[0]) >= skill:
            label = LABELS[(LABELS.index(label) + 1) % len(LABELS)]
        if ANSWER_TOOL in tools:
            return _call(ANSWER_TOOL, {"answer": label}, size)
        return Response(label, "stop", size, 1, 0.0)

    def _rewrite(self, request: Request, asked: str) -> str:
        """The prompt that is shown, with a sentence more, which is helpful in half of the draws."""
        now = asked.partition("<prompt>")[2].partition("</prompt>")[0].strip()
        helpful = _share(f"{now} {request.replica}") < 0.5
        return f"<prompt>\n{now}\n{f'Read the text {HELPFUL}.' if helpful else 'Give the kind alone.'}\n</prompt>"


def _text(content: Any) -> str:
    """The text of a message, whose content may be parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def _strings(function: Any) -> list[str]:
    """The parameters of a tool that take a text."""
    properties = function.get("parameters", {}).get("properties", {})
    return [name for name, schema in properties.items() if schema.get("type") == "string"]


def _call(name: str, arguments: dict[str, Any], size: int) -> Response:
    # Its id follows from what is called, as an answer must not differ from one run to the next.
    mark = hashlib.sha256(f"{name} {arguments}".encode()).hexdigest()[:16]
    call = {"id": f"call_{mark}", "name": name, "arguments": json.dumps(arguments)}
    return Response("", "tool_calls", size, 1, 0.0, tool_calls=(call,))


def _share(text: str) -> float:
    """A pseudo-random number in [0, 1)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48
