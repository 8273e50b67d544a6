"""An OpenAI-compatible server on loopback that answers each request with its last message, after a fixed time.

    python contrib/bench/speed/echo_server.py --latency 0.05 --port 8111

It prints its base URL once it listens. `overhead.py` starts one for itself.
"""

from __future__ import annotations

import argparse
import asyncio

from aiohttp import web


def make_app(latency: float) -> web.Application:
    async def complete(request: web.Request) -> web.Response:
        asked = await request.json()
        await asyncio.sleep(latency)
        text = str(asked["messages"][-1]["content"])
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": len(text) // 4, "completion_tokens": len(text) // 4, "total_tokens": len(text) // 2}
        return web.json_response(
            {
                "id": "echo",
                "object": "chat.completion",
                "created": 0,
                "model": asked.get("model", "echo"),
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": usage,
            }
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    return app


async def serve(latency: float, port: int) -> None:
    runner = web.AppRunner(make_app(latency))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    parser.add_argument("--port", type=int, default=0, help="default: any that is free")
    args = parser.parse_args()
    asyncio.run(serve(args.latency, args.port))


if __name__ == "__main__":
    main()
