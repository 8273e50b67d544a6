"""Agents on the real SDK of A2A (`a2a-sdk`), which know nothing of us: started by an interpreter that has it.

`python a2a_sdk_agents.py PORT`. Each agent has a card and an endpoint below its name. `adder` answers at once, with a
message. `packer` makes a task: it works a moment, asks for what it needs, and ends with an artifact. `elder` speaks
release 0.3 of the protocol. `guard` lets in who has the key. The others are those of workflows/gallery/strangers.py.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[2] / "workflows" / "gallery"))
strangers: Any = importlib.import_module("strangers")

PORT = int(sys.argv[1])
CANCELED: list[str] = []


class Adder(AgentExecutor):
    """Adds the numbers of a message, and of those before it in the same context."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        numbers = sum(map(int, re.findall(r"\d+", context.get_user_input())))
        total = self.known[str(context.context_id)] = self.known.get(str(context.context_id), 0) + numbers
        await event_queue.enqueue_event(new_text_message(f"the sum is {total}", context_id=context.context_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class Packer(AgentExecutor):
    """Packs a parcel, by a task: asks for the address where there is none, is slow or fails where it is told so."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        said = context.get_user_input()
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))  # type: ignore[arg-type]
        task = TaskUpdater(event_queue, str(context.task_id), str(context.context_id))
        await task.start_work()
        if "slowly" in said:
            await asyncio.sleep(60)
        if "bomb" in said:
            await task.failed(task.new_agent_message([Part(text="that is not packed")]))
        elif "to " not in said:
            await task.requires_input(task.new_agent_message([Part(text="where to?")]))
        else:
            await task.add_artifact([Part(text=f"a parcel {said[said.index('to ') :]}")])
            await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        CANCELED.append(str(context.task_id))
        await TaskUpdater(event_queue, str(context.task_id), str(context.context_id)).cancel()


class Stranger(AgentExecutor):
    """Knows what a stranger of the gallery knows."""

    def __init__(self, name: str):
        self.name = name

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        said = strangers.answer(self.name, context.get_user_input()) or "I do not know"
        await event_queue.enqueue_event(new_text_message(said, context_id=context.context_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def card(name: str, about: str, version: str, *skills: AgentSkill) -> AgentCard:
    place = AgentInterface(
        url=f"http://localhost:{PORT}/{name}/rpc", protocol_binding="JSONRPC", protocol_version=version
    )
    return AgentCard(
        name=name,
        description=about,
        version="1.0.0",
        supported_interfaces=[place],
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=skills,
    )


def routes(of: AgentCard, executor: AgentExecutor, old: bool = False) -> list[Any]:
    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=of)
    return [
        *create_agent_card_routes(of, card_url=f"/{of.name}/.well-known/agent-card.json"),
        *create_jsonrpc_routes(handler, f"/{of.name}/rpc", enable_v0_3_compat=old),
    ]


class Guard:
    """Lets in whom the key lets in, and to the elder nobody who names a later release."""

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope.get("path", "").startswith("/guard") and headers.get(b"authorization") != b"Bearer open sesame":
            await PlainTextResponse("no key", 401)(scope, receive, send)
        elif scope.get("path", "").startswith("/elder") and b"a2a-version" in headers:
            await PlainTextResponse("what is that?", 400)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


sums = AgentSkill(id="sums", name="sums", description="Adds numbers.", tags=["arithmetic"], examples=["2 and 3"])
parcels = AgentSkill(id="parcels", name="parcels", description="Packs and sends.", tags=["shipping"])
of_gallery = [
    route
    for name, (about, (skill, does)) in strangers.AGENTS.items()
    for route in routes(
        card(name, about, "1.0", AgentSkill(id=skill, name=skill, description=does, tags=[skill])), Stranger(name)
    )
]
app = Starlette(
    routes=[
        *routes(card("adder", "Calculates.", "1.0", sums), Adder()),
        *routes(card("packer", "Sends things.", "1.0", parcels), Packer()),
        *routes(card("elder", "Calculates, as ever.", "0.3", sums), Adder(), old=True),
        *routes(card("guard", "Calculates behind a door.", "1.0", sums), Adder()),
        *of_gallery,
        Route("/canceled", lambda request: PlainTextResponse(str(len(CANCELED)))),
    ]
)
uvicorn.run(Guard(app), host="127.0.0.1", port=PORT, log_level="error")
