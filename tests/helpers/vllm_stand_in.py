"""A stand-in for vLLM: its routes for adapters and completions, drawn by transformers on a CPU. As a program it takes
what `vllm serve` is given, and says on stdout what it was started with."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable
from typing import Any

import torch
from aiohttp import web


class Server:
    """Loads adapters by name and samples with them, as vLLM does. `twist` may change an answer, or stall."""

    def __init__(self, base: str):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        self.load = lambda place: PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), place).eval()
        self.adapters: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.twist: Callable[[str, dict[str, Any]], Any] | None = None

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append({"path": request.path, **body})
        status, answer = 200, dict[str, Any]()
        if request.path == "/v1/load_lora_adapter":
            self.adapters[body["lora_name"]] = self.load(body["lora_path"])
        elif request.path == "/v1/unload_lora_adapter":
            self.adapters.pop(body["lora_name"])
        elif body["model"] not in self.adapters:
            status, answer = 404, {"error": f"The model `{body['model']}` does not exist."}
        else:
            answer = self.draw(body)
        if self.twist is not None:
            twisted = self.twist(request.path, answer)
            answer = await twisted if asyncio.iscoroutine(twisted) else twisted
        if isinstance(answer, int):
            return web.Response(status=answer, text="planted", headers={"Retry-After": "7"})
        return web.json_response(answer, status=status)

    @torch.no_grad()
    def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        torch.manual_seed(body["seed"])
        ids, logprobs = list(body["prompt"]), []
        for _ in range(body["max_tokens"]):
            scores = torch.log_softmax(self.adapters[body["model"]](torch.tensor([ids])).logits[0, -1], -1)
            ids.append(int(torch.multinomial(scores.exp(), 1)))
            logprobs.append(float(scores[ids[-1]]))
        choice = {
            "text": "x",
            "finish_reason": "length",
            "prompt_token_ids": body["prompt"],
            "token_ids": ids[len(body["prompt"]) :],
            "logprobs": {"token_logprobs": logprobs},
        }
        return {"model": body["model"], "choices": [choice]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("--port", type=int)
    parser.add_argument("--host")
    parser.add_argument("--fail", action="store_true")
    options, others = parser.parse_known_args()
    print(json.dumps({"arguments": others, "updating": os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING")}), flush=True)
    if options.fail:
        raise SystemExit("no GPU is here")
    server = Server(options.base)
    app = web.Application()
    app.router.add_get("/health", lambda request: _healthy(server))
    app.router.add_post("/{path:.*}", server.handle)
    web.run_app(app, host=options.host, port=options.port, print=lambda text: None)


async def _healthy(server: Server) -> web.Response:
    return web.json_response({"adapters": sorted(server.adapters)})


if __name__ == "__main__":
    main()
