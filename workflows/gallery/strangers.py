"""Strangers for internet_of_agents.yaml: a server of five agents that speak A2A and know what stands in tables.

Started as `python strangers.py PORT`; each agent has a card and an endpoint below its name. Written by the
specification of A2A 1.0.0 (a2a-protocol.org: 8 on cards, 9 on JSON-RPC, 4.1 on messages and tasks); what it does not
allow is refused.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PRICES = {"tea": 4, "rice": 2, "honey": 7}
POSTAGE = {"Rome": 9, "Oslo": 12, "Kyiv": 6}
#: Name: what it is, and its skill.
AGENTS = {
    "poet": ("Writes verse.", ("rhymes", "Finds rhymes.")),
    "grocer": ("Keeps a shop.", ("prices", "Knows what goods cost, by their name.")),
    "carrier": ("Brings parcels.", ("shipping", "Knows the postage to a city.")),
    "reckoner": ("Good with numbers.", ("arithmetic", "Calculates sums and products, e.g. 2 * 3 + 4.")),
    "gardener": ("Grows roses.", ("pruning", "Prunes what grows.")),
}
TASKS: dict[str, dict[str, Any]] = {}


def answer(name: str, said: str) -> str | None:
    """What an agent knows; None for what it does not."""
    if name == "grocer":
        return next((f"{good} costs {price}" for good, price in PRICES.items() if good in said), None)
    if name == "carrier":
        return next((f"postage to {city} is {price}" for city, price in POSTAGE.items() if city in said), None)
    if name == "reckoner" and (found := re.search(r"\d+(?: [*+] \d+)*", said)):
        sums = found[0].split(" + ")
        products = [[int(factor) for factor in one.split(" * ")] for one in sums]
        return f"that is {sum(one[0] * (one[1] if len(one) > 1 else 1) for one in products)}"
    return "what a lovely thought" if name in ("poet", "gardener") else None


def card(name: str, port: int) -> dict[str, Any]:
    about, (skill, does) = AGENTS[name]
    return {
        "name": name,
        "description": about,
        "version": "1.0.0",
        "supportedInterfaces": [
            {"url": f"http://127.0.0.1:{port}/{name}", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": skill, "name": skill, "description": does, "tags": [skill]}],
    }


class Wrong(Exception):
    """A request that the protocol does not allow, by its code."""


def check(request: Any, version: str | None) -> None:
    """Raise Wrong for a request that is none of JSON-RPC 2.0, or of another release than 1.0."""
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0" or not isinstance(request.get("id"), str | int):
        raise Wrong(-32600, "Invalid Request")
    if version != "1.0":
        raise Wrong(-32009, "Version not supported")
    if not isinstance(request.get("params"), dict):
        raise Wrong(-32602, "Invalid params")


def handle(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """The result of a method."""
    method, params = request["method"], request["params"]
    if method in ("GetTask", "CancelTask"):
        if params.get("id") not in TASKS:
            raise Wrong(-32001, "Task not found")
        task = TASKS[params["id"]]
        task["status"] = {"state": "TASK_STATE_CANCELED" if method == "CancelTask" else "TASK_STATE_COMPLETED"}
        return task
    if method != "SendMessage":
        raise Wrong(-32601, "Method not found")
    message = params.get("message")
    if not isinstance(message, dict) or message.get("role") != "ROLE_USER" or not message.get("messageId"):
        raise Wrong(-32602, "Invalid params")
    parts = message.get("parts")
    if not parts or any(set(part) != {"text"} or not isinstance(part["text"], str) for part in parts):
        raise Wrong(-32005, "Incompatible content types")
    context = message.get("contextId") or uuid.uuid4().hex
    said = answer(name, "\n".join(part["text"] for part in parts))
    reply = {"messageId": uuid.uuid4().hex, "contextId": context, "role": "ROLE_AGENT"}
    if name != "carrier":
        return {"message": {**reply, "parts": [{"text": said or "I do not know"}]}}
    number = uuid.uuid4().hex  # it works a moment
    made = [{"artifactId": "1", "parts": [{"text": said or "I do not know"}]}]
    TASKS[number] = {"id": number, "contextId": context, "artifacts": made, "status": {"state": "TASK_STATE_WORKING"}}
    return {"task": {key: value for key, value in TASKS[number].items() if key != "artifacts"}}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        _, name, *rest = self.path.split("/")
        found = rest == [".well-known", "agent-card.json"] and name in AGENTS
        self.tell(200, card(name, int(sys.argv[1]))) if found else self.tell(404, {})

    def do_POST(self) -> None:
        body, number = self.rfile.read(int(self.headers["Content-Length"])), None
        try:
            request = json.loads(body)
            check(request, self.headers.get("A2A-Version"))
            number = request["id"]
            told = {"result": handle(self.path.strip("/"), request)}
        except Wrong as wrong:
            told = {"error": {"code": wrong.args[0], "message": wrong.args[1]}}
        self.tell(200, {"jsonrpc": "2.0", "id": number, **told})

    def tell(self, status: int, found: dict[str, Any]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
