"""An MCP server in plain Python: it starts fast, and notes in `log.txt` what it is asked for."""

from __future__ import annotations

from pathlib import Path

SERVER = """
import json, os, sys, time

TOOLS = [
    {"name": "add", "description": "Put so many cups\\n    of an item into the cart.", "inputSchema": {
        "type": "object", "required": ["item", "cups"], "properties": {
            "item": {"type": "string", "description": "what to buy"}, "cups": {"type": "integer"},
            "gift": {"type": "boolean", "default": False}}}},
    {"name": "key", "inputSchema": {"type": "object", "properties": {}}},
    {"name": "photo", "inputSchema": {"type": "object"}},
    {"name": "hang", "inputSchema": {"type": "object"}},
    {"name": "crash", "inputSchema": {"type": "object"}},
    {"name": "fail", "inputSchema": {"type": "object"}},
]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
cart = []

def log(word):
    with open("log.txt", "a") as file:
        file.write(word + "\\n")

def call(name, given):
    log(f"call {name}" + (f" {given['item']}" if "item" in given else ""))
    if name == "add":
        cart.append(given["item"])
        assert isinstance(given["cups"], int), given
        return [{"type": "text", "text": " and ".join(cart)}]
    if name == "key":
        return [{"type": "text", "text": str(os.environ.get("MY_KEY"))}]
    if name == "photo":
        return [{"type": "text", "text": "the cart"}, {"type": "image", "data": PIXEL, "mimeType": "image/png"}]
    if name == "leak":
        raise ValueError("no such key: " + os.environ["MY_KEY"])
    if name == "hang":
        time.sleep(600)
    if name == "crash":
        sys.exit(3)
    raise ValueError("no " + name)

log(f"start {os.getpid()}")
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params") or {}
    if "id" not in asked:
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    elif method == "tools/list":
        log("list")
        at = int(params.get("cursor") or 0)
        result = {"tools": TOOLS[at:at + 4], **({"nextCursor": "4"} if at == 0 else {})}
    elif method == "tools/call":
        try:
            result = {"content": call(params["name"], params.get("arguments") or {})}
        except Exception as error:
            result = {"isError": True, "content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}]}
    else:
        result = {}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\\n")
    sys.stdout.flush()
"""  # noqa: E501


def write_server(folder: Path) -> str:
    """Write the server into a folder, and return its address."""
    (folder / "server.py").write_text(SERVER)
    return "mcp:python server.py"


def read_log(folder: Path) -> list[str]:
    """What the server was asked for, without the numbers of its processes."""
    path = folder / "log.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return ["start" if line.startswith("start") else line for line in lines]
