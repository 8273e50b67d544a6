"""An OpenAI-compatible server on loopback that answers each request with its last message, after a fixed time.

    python contrib/bench/speed/echo_server.py --latency 0.05 --port 8111

It prints its base URL once it listens. `overhead.py` and `serve_load.py` start one for themselves. It reads no more of
HTTP than their clients write: what the server takes would be counted as time of those that are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Echo(asyncio.Protocol):
    """One connection."""

    def __init__(self, latency: float):
        self.latency, self.buffer = latency, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            head, mark, rest = self.buffer.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if not mark or length is None or len(rest) < int(length[1]):
                return
            body, self.buffer = rest[: int(length[1])], rest[int(length[1]) :]
            asyncio.get_running_loop().call_later(self.latency, self.answer, body)

    def answer(self, body: bytes) -> None:
        asked = json.loads(body)
        text = str(asked["messages"][-1]["content"])
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": len(text) // 4, "total_tokens": len(text) // 2}
        answer = {
            "id": "echo",
            "object": "chat.completion",
            "created": 0,
            "model": asked.get("model", "echo"),
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": usage,
        }
        content = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.transport.write(head.encode() + content)


async def serve(latency: float, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Echo(latency), "127.0.0.1", port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    args = parser.parse_args()
    asyncio.run(serve(args.latency, args.port))


if __name__ == "__main__":
    main()
