"""A stand-in for vLLM: its routes for weights, sleep and completions (as vLLM 0.32 answers them on a CPU), drawn by
transformers. It refuses what would mix or lose weights. As a program it takes what `vllm serve` is given, and says on
stdout what it was started with."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import pickle
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from safetensors.torch import load_file

PARTS = frozenset({"weights", "kv_cache"})


class Refused(Exception):
    """What the server answers with status 500."""


class Server:
    """Takes weights and adapters, and samples with them, as vLLM does. `twist` may change an answer, or stall.

    asked: the bodies of requests, with their paths. routes: the paths of those that are not completions, in order.
    """

    def __init__(self, base: str, *, sleeps: bool = True, gpus: int = 1):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.base, self.sleeps, self.gpus = base, sleeps, gpus
        self.model = AutoModelForCausalLM.from_pretrained(base).eval()
        self.load = self._load_adapter
        self.adapters: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.routes: list[str] = []
        self.twist: Callable[[str, dict[str, Any]], Any] | None = None
        self.version: Any = "0.33.0"
        self.missing: set[str] = set()  # routes that this server does not have
        self.initialized = self.updating = self.stale = False
        self.running = asyncio.Event()  # not paused
        self.running.set()
        self.awake = PARTS
        self.drawing = self.most_drawing = 0
        self.pace: Callable[[], Any] = lambda: asyncio.sleep(0)  # between two tokens

    def _load_adapter(self, place: str) -> Any:
        from peft import PeftModel  # takes a second to import, in each program of a test
        from transformers import AutoModelForCausalLM

        return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(self.base), place).eval()

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        body = body or {}
        path = request.path
        self.asked.append({"path": path, **body})
        if path != "/v1/completions":
            self.routes.append(request.path_qs)
        status, answer = 200, dict[str, Any]()
        try:
            if path in self.missing:
                status, answer = 404, {"detail": "Not Found"}
            elif path == "/v1/completions":
                status, answer = await self.complete(body)
            else:
                answer = await self.manage(path, request.query, body)
        except Refused as error:
            status, answer = 500, {"error": str(error)}
        if self.twist is not None:
            twisted = self.twist(path, answer)
            answer = await twisted if asyncio.iscoroutine(twisted) else twisted
        if isinstance(answer, int):
            return web.Response(status=answer, text="planted", headers={"Retry-After": "7"})
        return web.json_response(answer, status=status)

    async def manage(self, path: str, query: Mapping[str, str], body: dict[str, Any]) -> dict[str, Any]:
        """What a route other than completions answers. Raises Refused."""
        match path:
            case "/health":
                return {"adapters": sorted(self.adapters)}
            case "/v1/models":
                return {"data": [{"id": self.base, "parent": None, "max_model_len": 512}]}
            case "/version":
                return {"version": self.version}
            case "/get_world_size":
                return {"world_size": self.gpus}
            case "/v1/load_lora_adapter":
                if body["lora_name"] in self.adapters:
                    raise Refused(f"{body['lora_name']} has already been loaded")
                self.adapters[body["lora_name"]] = self.load(body["lora_path"])
            case "/v1/unload_lora_adapter":
                self.adapters.pop(body["lora_name"])
            case "/pause" | "/sleep":
                if query.get("mode") != "wait":
                    raise Refused(f"{path} without mode=wait would cut or mix the draws in flight")
                self.running.clear()
                while self.drawing:
                    await asyncio.sleep(0.001)
                if path == "/sleep":
                    self.fall_asleep(int(query["level"]))
            case "/wake_up":
                self.awake |= {query["tags"]} if "tags" in query else PARTS
                if self.awake == PARTS:
                    self.running.set()
            case "/resume":
                if self.updating:
                    raise Refused("resumed within an update")
                self.running.set()
            case "/reset_prefix_cache":
                self.stale = False
                return {"success": not self.drawing}
            case _:
                self.take(path, body)
        return {}

    def fall_asleep(self, level: int) -> None:
        if not self.sleeps:
            raise Refused("Sleep mode is not enabled.")
        self.awake = frozenset()
        if level == 2:
            for p in self.model.parameters():
                p.data.zero_()

    def take(self, path: str, body: dict[str, Any]) -> None:
        """Weights in place of the server's own. Raises Refused out of order."""
        if path == "/init_weight_transfer_engine":
            self.initialized = body["init_info"] == {"packed": False}
            return
        self.check_still(path)
        if path == "/collective_rpc" and body["method"] == "reload_weights":
            self.put(load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors"))
        elif path == "/start_weight_update" and self.initialized and not self.updating:
            self.updating = True
        elif path == "/update_weights" and self.updating:
            self.put(self.rebuilt(body["update_info"]))
        elif path == "/finish_weight_update" and self.updating:
            self.updating = False
        else:
            raise Refused(f"{path} out of order")

    def check_still(self, path: str) -> None:
        if self.running.is_set() or self.drawing:
            raise Refused(f"{path} while draws may be running")
        if "weights" not in self.awake:
            raise Refused(f"{path} while the weights are asleep")

    def put(self, weights: Mapping[str, torch.Tensor]) -> None:
        own = dict(self.model.named_parameters())
        if unknown := weights.keys() - own.keys():
            raise Refused(f"unknown weights {sorted(unknown)}")
        with torch.no_grad():
            for name, t in weights.items():
                own[name].copy_(t)
        self.stale = True

    def rebuilt(self, update: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Tensors from their handles: here paths of files, in place of CUDA's."""
        handles = pickle.loads(base64.b64decode(update["ipc_handles_pickled"]))
        assert len(handles) == len(update["names"])
        found = {name: torch.load(h["the GPU"][0]) for name, h in zip(update["names"], handles, strict=True)}
        assert [list(t.shape) for t in found.values()] == update["shapes"]
        assert [str(t.dtype) for t in found.values()] == [f"torch.{name}" for name in update["dtype_names"]]
        return found

    async def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["model"] not in self.adapters and body["model"] != self.base:
            return 404, {"error": f"The model `{body['model']}` does not exist."}
        if not self.running.is_set():
            return 503, {"error": {"message": "engine is paused", "type": "engine_paused", "code": 503}}
        if self.awake != PARTS or self.stale:
            raise Refused("drawn from weights that are asleep, or with keys and values of others")
        self.drawing += 1
        self.most_drawing = max(self.most_drawing, self.drawing)
        try:
            return 200, await self.draw(body)
        finally:
            self.drawing -= 1

    async def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        rng = torch.Generator().manual_seed(body["seed"]) if "seed" in body else None
        ids, logprobs, temperature = list(body["prompt"]), [], body["temperature"]
        for _ in range(body["max_tokens"]):
            with torch.no_grad():
                model = self.adapters.get(body["model"], self.model)
                scores = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1], -1)
            greedy = int(scores.argmax())
            ids.append(int(torch.multinomial(scores.exp(), 1, generator=rng)) if temperature else greedy)
            logprobs.append(float(scores[ids[-1]]))
            await self.pace()
            if ids[-1] == self.tokenizer.eos_token_id:
                break
        drawn = ids[len(body["prompt"]) :]
        choice = {
            "text": self.tokenizer.decode(drawn, skip_special_tokens=True),
            "finish_reason": "stop" if drawn[-1] == self.tokenizer.eos_token_id else "length",
            "prompt_token_ids": body["prompt"],
            "token_ids": drawn,
            "logprobs": {"token_logprobs": logprobs},
        }
        return {"model": body["model"], "choices": [choice]}


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    """The server on a free port; yields its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    finally:
        await runner.cleanup()


def die_as_vllm_does(cause: str) -> int:
    """Print what vLLM 0.33 does where its engine's process fails: warnings, the child's traceback, much else, and then
    the parent's, which knows no cause."""
    at = "11-26 12:00:00"
    print(f"(APIServer pid=11) WARNING {at} [importing.py:44] ImportError: no module named flash_attn", flush=True)
    child = f"(EngineCore_DP0 pid=12) ERROR {at} [core.py:842]"
    print(f"{child} EngineCore failed to start.\n{child} Traceback (most recent call last):")
    for line in ('  File "core.py", line 833, in run_engine_core', "    raise"):
        print(f"{child} {line}")
    print(f"{child} {cause}")
    print("(EngineCore_DP0 pid=12) Process EngineCore_DP0:")
    for n in range(40):
        print(f'(APIServer pid=11)   File "module_{n}.py", line {n}, in start')
    failed = "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}"
    print(f"(APIServer pid=11) RuntimeError: {failed}", flush=True)
    return 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("--port", type=int)
    parser.add_argument("--host")
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--die", help="end as vLLM does where its engine fails: with this cause, far above the end")
    parser.add_argument("--enable-sleep-mode", action="store_true")
    options, others = parser.parse_known_args()
    environment = {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}
    print(json.dumps({"arguments": others, "environment": environment}), flush=True)
    if options.fail:
        raise SystemExit("no GPU is here")
    if options.die:
        raise SystemExit(die_as_vllm_does(options.die))
    server = Server(options.base, sleeps=options.enable_sleep_mode)

    async def logged(request: web.Request) -> web.Response:
        if request.path != "/health":
            print(request.path_qs, flush=True)
        return await server.handle(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", logged)
    web.run_app(app, host=options.host, port=options.port, print=lambda text: None)


if __name__ == "__main__":
    main()
