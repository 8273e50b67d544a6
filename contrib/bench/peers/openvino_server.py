"""OpenVINO GenAI behind the OpenAI protocol, in a venv with `openvino-genai` (no compiler, no GPU).

    python openvino_server.py MODEL PORT [--cache 3]

MODEL: a GGUF file in Q8_0, Q4_0 or F16 of Qwen2, Llama or SmolLM, or a folder that `optimum-cli export openvino` made.
Requests that arrive together are computed together, and prompts that begin alike are read once: on a CPU with AMX
several times as fast as the wheel of `llama_server.py`. --cache: GiB of keys and values.

A field that changes the answer and is not known here is refused with status 400.
"""

from __future__ import annotations

import argparse
import itertools
import json
import queue
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import openvino_genai
from proxy import JsonHandler, Server

#: Fields that are read, and those that change nothing here.
KNOWN = {"messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop", "n", "model"}
NOTHING = {"user", "stream_options", "store", "metadata"}


@dataclass
class _Request:
    """answers: texts with their numbers of tokens and ends, once `done` is set; else `error`."""

    messages: list[dict[str, str]]
    config: Any
    prompt_tokens: int = 0
    answers: list[tuple[str, int, str]] = field(default_factory=list)
    error: str = ""
    done: threading.Event = field(default_factory=threading.Event)


class Engine(threading.Thread):
    """The one thread that touches the pipeline: takes requests in, computes a step of all, hands finished ones back."""

    def __init__(self, model: str, cache: int):
        super().__init__(daemon=True)
        plan = openvino_genai.SchedulerConfig()
        plan.cache_size, plan.enable_prefix_caching, plan.max_num_batched_tokens = cache, True, 2048
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(model, plan, "CPU")
        self.tokenizer = self.pipeline.get_tokenizer()
        self.waiting: queue.Queue[_Request] = queue.Queue()
        self.start()

    def run(self) -> None:
        numbers, running = itertools.count(), list[tuple[_Request, Any]]()
        while True:
            while not running or not self.waiting.empty():
                request = self.waiting.get()
                try:
                    running.append((request, self._begin(next(numbers), request)))
                except Exception as error:
                    request.error = str(error)
                    request.done.set()
            self.pipeline.step()
            for request, handle in running:
                if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                    self._end(request, handle)
            running = [pair for pair in running if not pair[0].done.is_set()]

    def _begin(self, number: int, request: _Request) -> Any:
        text = self.tokenizer.apply_chat_template(request.messages, add_generation_prompt=True)
        ids = self.tokenizer.encode(text, add_special_tokens=False).input_ids
        request.prompt_tokens = ids.shape[1]
        return self.pipeline.add_request(number, ids, request.config)

    def _end(self, request: _Request, handle: Any) -> None:
        for output in handle.read_all():
            ends = "length" if output.finish_reason == openvino_genai.GenerationFinishReason.LENGTH else "stop"
            text = self.tokenizer.decode([*output.generated_ids])
            for stop in request.config.stop_strings:
                text = text.split(stop)[0]
            request.answers.append((text, len(output.generated_ids), ends))
        request.done.set()


def read_config(body: Mapping[str, Any]) -> Any:
    """The settings of a request. Raises ValueError for a field that is not known and not null."""
    if unknown := [name for name, value in body.items() if name not in KNOWN | NOTHING and value not in (None, False)]:
        raise ValueError(f"this server does not know {', '.join(unknown)}")
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = body.get("max_completion_tokens") or body.get("max_tokens") or 512
    config.num_return_sequences = body.get("n") or 1
    stops = body.get("stop") or []
    config.stop_strings = {stops} if isinstance(stops, str) else {*stops}
    if temperature := body.get("temperature", 1.0):
        config.do_sample, config.temperature, config.top_p = True, temperature, body.get("top_p") or 1.0
        seed = body.get("seed")
        config.rng_seed = random.getrandbits(32) if seed is None else seed
    return config


class Handler(JsonHandler):
    engine: Engine

    def do_GET(self) -> None:
        self.reply(200, b'{"object": "list", "data": [{"id": "model", "object": "model"}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        try:
            request = _Request(body["messages"], read_config(body))
        except (KeyError, ValueError) as error:
            self.reply(400, _error(str(error)))
            return
        self.engine.waiting.put(request)
        request.done.wait()
        if request.error:
            self.reply(400, _error(request.error))
            return
        written = sum(count for _, count, _ in request.answers)
        choices = [
            {"index": index, "finish_reason": ends, "message": {"role": "assistant", "content": text}}
            for index, (text, _, ends) in enumerate(request.answers)
        ]
        usage = {"prompt_tokens": request.prompt_tokens, "completion_tokens": written}
        usage["total_tokens"] = sum(usage.values())
        said = {"id": "chatcmpl", "object": "chat.completion", "created": int(time.time()), "model": "model"}
        self.reply(200, json.dumps({**said, "choices": choices, "usage": usage}).encode())


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("port", type=int)
    parser.add_argument("--cache", type=int, default=3, help="GiB of keys and values")
    args = parser.parse_args()
    Handler.engine = Engine(args.model, args.cache)
    print("ready", flush=True)
    Server(("127.0.0.1", args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
