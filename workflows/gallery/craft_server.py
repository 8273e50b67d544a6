"""A server in AgentGym's HTTP form, with a small world like its TextCraft: things are got, and made by recipes.

`python craft_server.py PORT`. Written by the form of the servers `agentenv-*` (github.com/WooooDyy/AgentGym): an
episode is created, reset to a task, stepped and closed; what is wrong is an `error` in the body.
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: What one makes: how many, of what.
RECIPES: dict[str, tuple[int, dict[str, int]]] = {
    "plank": (4, {"log": 1}),
    "stick": (4, {"plank": 2}),
    "ladder": (3, {"stick": 7}),
    "torch": (4, {"coal": 1, "stick": 1}),
    "bowl": (4, {"plank": 3}),
    "chest": (1, {"plank": 8}),
    "paper": (3, {"cane": 3}),
    "book": (1, {"paper": 3, "leather": 1}),
    "door": (3, {"plank": 6}),
    "boat": (1, {"plank": 5}),
    "sign": (3, {"plank": 6, "stick": 1}),
    "fence": (3, {"plank": 4, "stick": 2}),
    "arrow": (4, {"flint": 1, "stick": 1, "feather": 1}),
    "bow": (1, {"stick": 3, "string": 3}),
    "shield": (1, {"plank": 6, "iron": 1}),
    "axe": (1, {"stone": 3, "stick": 2}),
    "rail": (16, {"iron": 6, "stick": 1}),
    "lantern": (1, {"torch": 1, "iron": 8}),
    "cake": (1, {"milk": 3, "wheat": 3, "egg": 1, "sugar": 2}),
    "map": (1, {"paper": 8, "compass": 1}),
}
GOALS = ["plank", "stick", "bowl", "torch", "paper", "chest", "book", "ladder"]
GOALS += ["door", "boat", "sign", "fence", "arrow", "bow", "shield", "axe", "rail", "lantern", "cake", "map"]
EPISODES: dict[int, Episode] = {}


def told(of: dict[str, int]) -> str:
    return ", ".join(f"{count} {thing}" for thing, count in of.items())


class Episode:
    def __init__(self) -> None:
        self.reset(0)

    def reset(self, number: int) -> dict[str, Any]:
        self.goal, self.has, self.done = GOALS[number % len(GOALS)], dict[str, int](), False
        lines = [f"craft {count} {thing} using {told(of)}" for thing, (count, of) in RECIPES.items()]
        return {"observation": "\n".join([*lines, f"Goal: craft {self.goal}."]), "reward": 0, "done": False}

    def step(self, action: str) -> dict[str, Any]:
        words = re.fullmatch(r"(get|craft) (\d+) (\w+)(?: using (.*))?", action.strip())
        said = "Could not understand."
        if words and words[1] == "get":
            said = self.get(words[3], int(words[2]))
        elif words:
            said = self.craft(words[3], int(words[2]), words[4] or "")
        self.done = self.goal in self.has
        return {"observation": said, "reward": float(self.done), "done": self.done}

    def get(self, thing: str, count: int) -> str:
        if thing in RECIPES:
            return f"Could not find {thing}."
        self.has[thing] = self.has.get(thing, 0) + count
        return f"Got {count} {thing}."

    def craft(self, thing: str, count: int, using: str) -> str:
        made, of = RECIPES.get(thing, (0, {}))
        if (made, told(of)) != (count, using):
            return "Could not find a recipe for that."
        if missing := [part for part, needed in of.items() if self.has.get(part, 0) < needed]:
            return f"Could not find enough {missing[0]}."
        self.has = {part: left for part, had in self.has.items() if (left := had - of.get(part, 0))}
        self.has[thing] = self.has.get(thing, 0) + made
        return f"Crafted {made} {thing}."


def answer(path: str, content: dict[str, Any]) -> Any:
    if path == "/create":
        number = len(EPISODES)
        EPISODES[number] = Episode()
        return {"id": number, **EPISODES[number].reset(number)}
    if content.get("id") not in EPISODES:
        return {"error": f"The id {content.get('id')} is not valid."}
    episode = EPISODES[content["id"]]
    if path == "/reset" and isinstance(content.get("data_idx"), int):
        return {"id": content["id"], **episode.reset(content["data_idx"])}
    if path == "/step" and isinstance(content.get("action"), str):
        return episode.step(content["action"])
    return {"closed": bool(EPISODES.pop(content["id"]))} if path == "/close" else {"error": f"wrong: {path}"}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.dumps(answer(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
