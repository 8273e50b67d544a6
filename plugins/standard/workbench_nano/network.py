"""The forward pass of a small Llama in numpy, with keys and values kept for reuse.

Rows of a batch may have different lengths: they are filled up on the right, where no real token ever looks
(attention is causal), so a row's result does not depend on the rows beside it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
HIDDEN = np.float32(-1e30)


def read_safetensors(path: Path) -> dict[str, Array]:
    """The tensors of a safetensors file as float32: eight bytes of length, a JSON header, raw bytes."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors: dict[str, Array] = {}
    for name, about in header.items():
        start, end = (8 + length + offset for offset in about["data_offsets"])
        if about["dtype"] == "BF16":  # the upper half of a float32
            flat = (np.frombuffer(raw[start:end], "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            flat = np.frombuffer(raw[start:end], {"F16": "<f2", "F32": "<f4"}[about["dtype"]])
        tensors[name] = flat.astype(np.float32).reshape(about["shape"])
    return tensors


@dataclass
class Cache:
    """Keys and values by layer: (layers, rows, heads, tokens, head size). `lengths` counts real tokens."""

    keys: Array
    values: Array
    lengths: Array

    def rows(self, index: list[int]) -> Cache:
        return Cache(self.keys[:, index], self.values[:, index], self.lengths[index])

    def room(self, tokens: int) -> Cache:
        """A copy with room for `tokens` more tokens in each row."""
        pad = [(0, 0), (0, 0), (0, 0), (0, tokens), (0, 0)]
        return Cache(np.pad(self.keys, pad), np.pad(self.values, pad), self.lengths.copy())


def softmax_(scores: Array) -> Array:
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)
    return scores


class Network:
    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.heads: int = config["num_attention_heads"]
        self.layers: int = config["num_hidden_layers"]
        self.positions: int = config["max_position_embeddings"]
        self.eps = np.float32(config["rms_norm_eps"])
        self.width: int = config["hidden_size"]
        self.head_size = self.width // self.heads
        if config["num_key_value_heads"] != self.heads or not config["tie_word_embeddings"]:
            raise ValueError(f"{folder}: this runtime wants as many key heads as heads, and tied embeddings")
        tensors = read_safetensors(folder / "model.safetensors")
        self.embedding = tensors["model.embed_tokens.weight"]
        self.head = np.ascontiguousarray(self.embedding.T)
        self.norm = tensors["model.norm.weight"]
        self.weights = [self._layer(tensors, f"model.layers.{i}.") for i in range(self.layers)]
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]  # as transformers 4 and 5 write it
        speed = theta ** (-np.arange(0, self.head_size, 2) / self.head_size)
        angle = np.arange(self.positions)[:, None] * speed[None]
        self.cos = np.cos(angle).astype(np.float32)
        self.sin = np.sin(angle).astype(np.float32)

    @staticmethod
    def _layer(tensors: dict[str, Array], prefix: str) -> dict[str, Array]:
        def matrix(*names: str) -> Array:
            return np.ascontiguousarray(np.concatenate([tensors[prefix + n + ".weight"] for n in names]).T)

        return {
            "norm1": tensors[prefix + "input_layernorm.weight"],
            "norm2": tensors[prefix + "post_attention_layernorm.weight"],
            "qkv": matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "o": matrix("self_attn.o_proj"),
            "gate_up": matrix("mlp.gate_proj", "mlp.up_proj"),
            "down": matrix("mlp.down_proj"),
        }

    def empty_cache(self, rows: int, tokens: int) -> Cache:
        shape = (self.layers, rows, self.heads, tokens, self.head_size)
        return Cache(np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.zeros(rows, np.int64))

    def _norm(self, x: Array, weight: Array) -> Array:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.eps) * weight

    def _rotate(self, x: Array, cos: Array, sin: Array) -> Array:
        half = self.head_size // 2
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, ids: Array, counts: Array, cache: Cache, prefix: Cache | None = None) -> Array:
        """Run `ids` (rows, tokens; `counts` of each row are real) and write their keys and values to `cache`.

        `prefix` is a cache of one row that all rows continue. Gives the hidden states (rows, tokens, width).
        """
        rows, tokens = ids.shape
        before = int(prefix.lengths[0]) if prefix is not None else 0
        place = cache.lengths[:, None] + np.arange(tokens)[None]  # of each token within the row's own cache
        reach = int(cache.lengths.max()) + tokens
        position = np.minimum(before + place, self.positions - 1)
        cos, sin = self.cos[position][:, None], self.sin[position][:, None]
        visible = np.arange(reach)[None, None, :] <= place[:, :, None]
        hidden = np.where(visible, np.float32(0), HIDDEN)[:, None]
        scale = np.float32(self.head_size**-0.5)
        row_index, same_place = np.arange(rows)[:, None], bool((cache.lengths == cache.lengths[0]).all())
        start = int(cache.lengths[0])

        x = self.embedding[ids]
        for layer, w in enumerate(self.weights):
            mixed = self._norm(x, w["norm1"]).reshape(rows * tokens, -1) @ w["qkv"]
            mixed = mixed.reshape(rows, tokens, 3, self.heads, self.head_size).transpose(2, 0, 3, 1, 4)
            q = self._rotate(mixed[0], cos, sin) * scale
            k, v = self._rotate(mixed[1], cos, sin), mixed[2]
            keys, values = cache.keys[layer], cache.values[layer]
            if same_place:
                keys[:, :, start : start + tokens], values[:, :, start : start + tokens] = k, v
            else:
                keys[row_index, :, place] = k.transpose(0, 2, 1, 3)
                values[row_index, :, place] = v.transpose(0, 2, 1, 3)
            scores = q @ keys[:, :, :reach].transpose(0, 1, 3, 2) + hidden
            if prefix is None:
                mix = softmax_(scores) @ values[:, :, :reach]
            else:  # all rows share these keys: one product for each head
                shared = prefix.keys[layer, 0, :, :before], prefix.values[layer, 0, :, :before]
                flat = q.transpose(1, 0, 2, 3).reshape(self.heads, rows * tokens, -1)
                early = (flat @ shared[0].transpose(0, 2, 1)).reshape(self.heads, rows, tokens, before)
                weights = softmax_(np.concatenate([early.transpose(1, 0, 2, 3), scores], -1))
                early = np.ascontiguousarray(weights[..., :before].transpose(1, 0, 2, 3))
                old = early.reshape(self.heads, rows * tokens, before) @ shared[1]
                old = old.reshape(self.heads, rows, tokens, -1).transpose(1, 0, 2, 3)
                mix = weights[..., before:] @ values[:, :, :reach] + old
            x = x + (mix.transpose(0, 2, 1, 3).reshape(rows * tokens, -1) @ w["o"]).reshape(x.shape)
            wide = self._norm(x, w["norm2"]).reshape(rows * tokens, -1) @ w["gate_up"]
            gate, up = np.split(wide, 2, -1)
            with np.errstate(over="ignore"):
                inner = gate / (1 + np.exp(-gate)) * up
            x = x + (inner @ w["down"]).reshape(x.shape)
        cache.lengths = cache.lengths + counts
        return x

    def logits(self, states: Array) -> Array:
        return self._norm(states, self.norm) @ self.head
