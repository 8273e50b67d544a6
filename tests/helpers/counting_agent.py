"""An agent that counts without knowing of functions, a scripted model that calls those it is offered, and a run of both
that kills itself.

python counting_agent.py FOLDER KILL_AT RESUMES
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.helpers.external_agents import CLIENT
from tests.helpers.scripted import Script
from workbench.lm import Request, Response
from workbench.run import Options, optimize, resume

COUNTER = f"""{CLIENT}
system = "You count by the rule. Write the number alone."
print(chat([{{"role": "system", "content": system}}, {{"role": "user", "content": row["text"]}}])["content"])
"""


def propose(name: str, body: str, result: int) -> str:
    """The proposer's answer that adds a function with its test."""
    edit = {
        "action": "add",
        "name": name,
        "description": "counts",
        "source": f"def {name}(text):\n    {body}",
        "example": {"arguments": {"text": "abe"}, "result": result},
    }
    return json.dumps(edit)


WRONG = propose("wrong", "return 99", 99)
GOOD = propose("vowels", "return sum(c in 'aeiou' for c in text)", 2)


def call_tools(*calls: tuple[str, Any]) -> Response:
    made = tuple({"id": f"c{n}", "name": name, "arguments": given} for n, (name, given) in enumerate(calls))
    return Response("", "tool_calls", 5, 1, 0.0, tool_calls=made)


def count(request: Request) -> str | Response:
    """Call the newest function that is offered, and repeat its result; without one say 0."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return str(last["content"]).removeprefix("result: ")
    if not request.tools:
        return "0"
    return call_tools((request.tools[-1]["function"]["name"], json.dumps({"text": last["content"]})))


def count_and_propose(*answers: str) -> Any:
    """The model of the agent, and a proposer whose answer follows from how many lists it was shown to have failed."""

    def say(request: Request) -> str | Response:
        text = "\n".join(str(message["content"]) for message in request.messages)
        if "You improve the tools of an agent" not in text:
            return count(request)
        untried = [a for a in answers if json.dumps(json.loads(a)["source"])[1:-1].split("\\n")[0] not in text]
        return untried[0] if untried else '{"action": "terminate"}'

    return say


class LoggedScript(Script):
    """Appends the key of each request to a file, and kills its process at the request after `last`."""

    def __init__(self, say: Any, log: Path, last: int):
        super().__init__(say)
        self.log, self.last = log, last

    async def complete(self, request: Request) -> Response:
        if self.last and len(self.requests) >= self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        with self.log.open("a") as log:
            log.write(f"{request.key(self.identity)}\n")
        return await super().complete(request)


def main() -> None:
    folder, kill_at, again = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
    keys = folder.with_name(f"{folder.name}-keys")  # not beside the agent, where it would be taken for its memory
    keys.mkdir(exist_ok=True)
    pool = LoggedScript(count_and_propose(WRONG, GOOD), keys / f"keys_{os.getpid()}.txt", kill_at)
    settings: dict[str, Any] = {"database": folder / "run.db", "pool": pool}
    settings["options"] = Options(out=str(folder / "out.yaml"))
    if again:
        resume("last", **settings)
    else:
        optimize(folder / "workflow.yaml", **settings)


if __name__ == "__main__":
    main()
