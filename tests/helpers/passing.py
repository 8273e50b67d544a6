"""Agents behind a gateway whose model's server is a stand-in: what they send, what it is asked, what they get back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.helpers.upstream import Upstream
from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.runtime import Runtime
from workbench.spec import BudgetSpec, Spec
from workbench.store import IN_MEMORY, Store, add_run
from workbench.workflow import Workflow, node_tree
from workbench_external.gateway import Gateway
from workbench_external.served import ServedSession

#: By API: the path behind the base URL, and the model of ours that speaks it.
APIS = {
    "chat": ("chat/completions", "openai/up"),
    "responses": ("responses", "openai/up"),
    "messages": ("messages", "anthropic/up"),
    "completions": ("completions", "openai/up"),
}


USER = [{"role": "user", "content": "hi"}]
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{ "a":1 }'}}


@asynccontextmanager
async def served(
    lm: Mapping[str, Any], node: Mapping[str, Any] | None = None, told: list[str] | None = None
) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway of a file with this model and node, and the secret. told: takes what the gateway says of refusals."""
    tree = {"external": "text -> label", "command": ["true"], **(node or {})}
    workflow = Workflow({"nodes": {"agent": node_tree(tree)}}, Path("."))
    file = {
        "name": "t",
        "lm": dict(lm),
        "data": {"file": "x"},
        "metric": "exact_match(label)",
        "nodes": {"agent": tree},
    }
    spec, store = Spec.model_validate(file), Store(IN_MEMORY)
    run = add_run(store, run="t", name="t", status="running", spec="", options="{}")
    ledger = Ledger(store, run, BudgetSpec.model_validate({}), recorded=False)
    runtime = Runtime(ledger, spec.lm, {}, LMPool())
    errors: list[Exception] = []
    gateway = await Gateway.open(on_error=errors.append)
    try:
        external: Any = workflow.enabled_nodes["agent"]
        refused = (told if told is not None else []).append
        session = ServedSession(external, workflow, spec, runtime, lambda text: None, refused)
        yield gateway, gateway.admit(session)
    finally:
        await gateway.aclose()
        await runtime.aclose()
        store.close()
    if errors:
        raise errors[0]


Use = Callable[[aiohttp.ClientSession, str], Awaitable[Any]]


def with_gateway(lm: Mapping[str, Any], use: Use, **more: Any) -> Any:
    """What `use` makes of a client and a base URL."""

    async def main() -> Any:
        async with served(lm, **more) as (gateway, secret):
            headers = {"Authorization": f"Bearer {secret}"}
            async with aiohttp.ClientSession(headers=headers) as client:
                return await use(client, f"{gateway.address}/v1")

    return asyncio.run(main())


def model(name: str, address: str, **settings: Any) -> dict[str, Any]:
    return {"model": name, "api_base": f"{address}/v1", "price": {"input": 1, "output": 1}, **settings}


def post(server: Upstream, api: str, *bodies: Any, lm: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """(status, JSON, headers) of each request, one after the other."""
    path, name = APIS[api]

    async def use(client: Any, base: str) -> list[Any]:
        found = []
        for body in bodies:
            headers = {"anthropic-beta": "b1"} if api == "messages" else {}
            async with client.post(f"{base}/{path}", json={"model": "named", **body}, headers=headers) as answer:
                found.append((answer.status, await answer.json(), answer.headers))
        return found

    return with_gateway(lm or model(name, server.address), use, **more)
