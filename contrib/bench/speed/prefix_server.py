"""A Llama behind the test server `lm_server.py`, several times faster on a CPU: for benchmarks with a real model.

    python contrib/bench/speed/prefix_server.py --server PATH/lm_server.py --model FOLDER --port 8112

It replaces how the server generates, and nothing else. Products are in bfloat16, the beginning that the prompts of a
batch share (instructions, examples) is computed once and kept, and rows that are done leave the batch. Answers are
those of transformers up to rounding. GET /stats counts for each name of a model too (`prompt_tokens:NAME`), so that
runs side by side, which share batches, know what each of them spent.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

KEPT = 24  # beginnings of prompts
BLOCK = 16  # a beginning is cut to a multiple of so many tokens, so that few different ones are kept
TYPE = torch.bfloat16
Cache = list[tuple[Tensor, Tensor]]  # keys and values of each layer


class Llama:
    """A checkpoint of LlamaForCausalLM, and a forward pass that takes a shared beginning apart from the rows."""

    def __init__(self, model: Any) -> None:
        config, inner = model.config, model.model
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size, self.eps = config.hidden_size // self.heads, config.rms_norm_eps
        base = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
        angle = torch.outer(torch.arange(8192).float(), base ** -(torch.arange(0, self.size, 2).float() / self.size))
        angle = torch.cat([angle, angle], 1)
        self.cos, self.sin = angle.cos(), angle.sin()
        self.embedding, self.head = inner.embed_tokens.weight.to(TYPE), model.lm_head.weight.to(TYPE)
        self.norm = inner.norm.weight.float()
        self.layers = [
            {
                "norm1": layer.input_layernorm.weight.float(),
                "norm2": layer.post_attention_layernorm.weight.float(),
                "qkv": torch.cat([getattr(layer.self_attn, f"{n}_proj").weight for n in "qkv"]).to(TYPE),
                "o": layer.self_attn.o_proj.weight.to(TYPE),
                "down": layer.mlp.down_proj.weight.to(TYPE),
                "gate_up": torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]).to(TYPE),
            }
            for layer in inner.layers
        ]

    def empty(self, rows: int, length: int) -> Cache:
        shape = (rows, self.groups, length, self.size)
        return [(torch.zeros(shape, dtype=TYPE), torch.zeros(shape, dtype=TYPE)) for _ in self.layers]

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight).to(TYPE)

    def logits(
        self,
        ids: Tensor,
        positions: Tensor,
        beginning: Cache | None,
        cache: Cache,
        places: Tensor,
        seen: Tensor,
        last: Tensor,
    ) -> Tensor:
        """ids, positions, places (in the cache): rows x n. seen: rows x n x cache length. last: the token of each row
        whose logits are wanted. beginning: keys and values, groups x length x size. The cache is written to."""
        rows, n = ids.shape
        x = F.embedding(ids, self.embedding).float()
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        bias = torch.where(seen, 0.0, float("-inf"))[:, None, None]
        each = torch.arange(rows)[:, None]
        for i, layer in enumerate(self.layers):
            h = F.linear(self._normed(x, layer["norm1"]), layer["qkv"])
            h = h.view(rows, n, self.heads + 2 * self.groups, self.size).transpose(1, 2)
            qk, v = h[:, : self.heads + self.groups].float(), h[:, self.heads + self.groups :]
            half = self.size // 2
            qk = (qk * cos + torch.cat([-qk[..., half:], qk[..., :half]], -1) * sin).to(TYPE)
            keys, values = cache[i]
            keys[each, :, places] = qk[:, self.heads :].transpose(1, 2)
            values[each, :, places] = v.transpose(1, 2)
            out = self._attend(qk[:, : self.heads], keys, values, bias, beginning[i] if beginning else None)
            x = x + F.linear(out, layer["o"]).float()
            gate, up = F.linear(self._normed(x, layer["norm2"]), layer["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer["down"]).float()
        return F.linear(self._normed(x[torch.arange(rows), last], self.norm), self.head).float()

    def _attend(
        self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor, beginning: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Attention to the row's own tokens and, in one product for all rows, to the shared beginning."""
        rows, _, n, size = q.shape
        shared = self.heads // self.groups  # query heads of one key head
        q = q.reshape(rows, self.groups, shared * n, size) * size**-0.5
        own = (q @ keys.transpose(2, 3)).float().view(rows, self.groups, shared, n, -1) + bias
        if beginning is None:
            weights = torch.softmax(own, -1).to(TYPE)
            out = weights.reshape(rows, self.groups, shared * n, -1) @ values
        else:
            length = beginning[0].shape[1]
            together = q.transpose(0, 1).reshape(self.groups, rows * shared * n, size)
            far = (together @ beginning[0].transpose(1, 2)).float()
            far = far.view(self.groups, rows, shared, n, length).transpose(0, 1)
            weights = torch.softmax(torch.cat([far, own], -1), -1).to(TYPE)
            near = weights[..., length:].reshape(rows, self.groups, shared * n, -1) @ values
            far = weights[..., :length].transpose(0, 1).reshape(self.groups, rows * shared * n, length) @ beginning[1]
            out = near + far.view(self.groups, rows, shared * n, size).transpose(0, 1)
        out = out.view(rows, self.groups, shared, n, size).reshape(rows, self.heads, n, size)
        return out.transpose(1, 2).reshape(rows, n, -1)


def shared_length(ids: list[list[int]]) -> int:
    """How many tokens all begin with, one token less than the shortest at most."""
    most = min(map(len, ids)) - 1
    return next((i for i in range(most) if any(x[i] != ids[0][i] for x in ids)), most)


def alike(ids: list[list[int]]) -> list[list[int]]:
    """The rows in groups whose prompts share most of their beginning."""
    order = sorted(range(len(ids)), key=ids.__getitem__)
    groups = [[order[0]]]
    for i in order[1:]:
        group = [*groups[-1], i]
        common = shared_length([ids[j] for j in group])
        now = shared_length([ids[j] for j in groups[-1]])
        if common >= 0.5 * max(len(ids[j]) for j in group) or common >= 0.8 * now:
            groups[-1] = group
        elif len(groups[-1]) < 4:
            groups[-1] = group  # too few to be worth a batch of their own
        else:
            groups.append([i])
    return groups


def generator(server: Any) -> type:
    """The server's class of models, with the generation of this file."""

    class Generator(server.Model):
        def __init__(self, path: str, max_batch: int) -> None:
            torch.set_num_threads(int(os.environ.get("THREADS", os.cpu_count() or 1)))
            self.beginnings: dict[tuple[int, ...], Cache] = {}
            super().__init__(path, max_batch)
            self.llama = Llama(self.model)

        @torch.inference_mode()
        def generate(self, requests: list[dict], tokens: int, temperature: float) -> list[tuple[str, int, int, str]]:
            template = self.tokenizer.apply_chat_template
            texts = [template(r["messages"], tokenize=False, add_generation_prompt=True) for r in requests]
            ids = [self.tokenizer(text)["input_ids"][-4096:] for text in texts]
            results: list[Any] = [None] * len(ids)
            for group in alike(ids):
                for i, (new, finish) in zip(
                    group, self._batch([ids[i] for i in group], tokens, temperature), strict=True
                ):
                    text = self.tokenizer.decode(new, skip_special_tokens=True)
                    for mark in requests[i]["stop"]:
                        text = text.split(mark)[0]
                    results[i] = (text, len(ids[i]), len(new), finish)
            return results

        def _beginning(self, ids: list[int]) -> Cache | None:
            if len(ids) < 2 * BLOCK:
                return None
            key = tuple(ids)
            if key not in self.beginnings:
                cache, n = self.llama.empty(1, len(ids)), torch.arange(len(ids))
                seen = (n[None, :] <= n[:, None])[None]
                self.llama.logits(torch.tensor([ids]), n[None], None, cache, n[None], seen, n[-1:])
                if len(self.beginnings) >= KEPT:
                    self.beginnings.pop(next(iter(self.beginnings)))
                self.beginnings[key] = [(k[0], v[0]) for k, v in cache]
            return self.beginnings[key]

        def _batch(self, ids: list[list[int]], tokens: int, temperature: float) -> list[tuple[list[int], str]]:
            start = shared_length(ids) // BLOCK * BLOCK
            beginning = self._beginning(ids[0][:start])
            start = start if beginning else 0
            lengths = torch.tensor([len(x) - start for x in ids])
            n = int(lengths.max())
            pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
            cache, at = self.llama.empty(len(ids), n + tokens), torch.arange(n)
            rows = torch.tensor([x[start:] + [pad] * (n - len(x) + start) for x in ids])
            seen = (at[None, :] <= at[:, None]).expand(len(ids), n, n)
            logits = self.llama.logits(
                rows, (at + start).expand_as(rows), beginning, _until(cache, n), at.expand_as(rows), seen, lengths - 1
            )
            new: list[list[int]] = [[] for _ in ids]
            alive, stopped = list(range(len(ids))), set()
            for step in range(tokens):
                if temperature > 0:
                    drawn = torch.multinomial(torch.softmax(logits / temperature, -1), 1)[:, 0]
                else:
                    drawn = logits.argmax(-1)
                going = [j for j, token in enumerate(drawn.tolist()) if token not in (pad, end)]
                stopped |= {alive[j] for j in range(len(alive))} - {alive[j] for j in going}
                for j in going:
                    new[alive[j]].append(int(drawn[j]))
                if step == tokens - 1 or not going:
                    break
                if len(going) < len(alive):
                    keep = torch.tensor(going)
                    alive, drawn, lengths = [alive[j] for j in going], drawn[keep], lengths[keep]
                    cache = [(k[keep], v[keep]) for k, v in cache]
                place = lengths + step
                top = int(place.max()) + 1
                seen = (torch.arange(top)[None, :] <= place[:, None])[:, None]
                logits = self.llama.logits(
                    drawn[:, None],
                    (place + start)[:, None],
                    beginning,
                    _until(cache, top),
                    place[:, None],
                    seen,
                    torch.zeros_like(place),
                )
            return [(x, "stop" if i in stopped else "length") for i, x in enumerate(new)]

    return Generator


def handler(server: Any) -> type:
    """The server's handler, which also counts by the name that a request gave to the model."""

    class Handler(server.Handler):
        def reply(self, status: int, body: Any, *rest: Any, **named: Any) -> Any:
            if status == 200 and isinstance(body, bytes) and body.startswith(b"{"):
                answer = json.loads(body)
                with server.LOCK:
                    server.STATS[f"requests:{answer['model']}"] += 1
                    for kind in ("prompt_tokens", "completion_tokens"):
                        server.STATS[f"{kind}:{answer['model']}"] += answer["usage"][kind]
            return super().reply(status, body, *rest, **named)

    return Handler


def _until(cache: Cache, length: int) -> Cache:
    return [(k[:, :, :length], v[:, :, :length]) for k, v in cache]


def main() -> None:
    place = sys.argv.index("--server")
    spec = importlib.util.spec_from_file_location("lm_server", sys.argv[place + 1])
    assert spec is not None and spec.loader is not None
    server = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(server)
    del sys.argv[place : place + 2]
    server.Model, server.Handler = generator(server), handler(server)
    server.main()


if __name__ == "__main__":
    main()
