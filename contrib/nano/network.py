"""The network of nano for training: a small Llama, weight for weight that of transformers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    width: int = 192
    layers: int = 4
    heads: int = 3
    inner: int = 512
    positions: int = 1024
    base: float = 10_000.0
    eps: float = 1e-5


def rotation(shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    size = shape.width // shape.heads
    speed = shape.base ** (-torch.arange(0, size, 2).float() / size)
    angle = torch.arange(shape.positions).float()[:, None] * speed[None]
    angle = torch.cat([angle, angle], 1)
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1 = nn.RMSNorm(shape.width, shape.eps)
        self.norm2 = nn.RMSNorm(shape.width, shape.eps)
        # q, k, v (and gate, up) are separate, since Muon makes each update orthogonal on its own.
        self.q, self.k, self.v, self.o = (nn.Linear(shape.width, shape.width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(shape.width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        h = self.norm1(x)
        q, k, v = (m(h).view(rows, length, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(h.transpose(1, 2).reshape(rows, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.width, shape.eps)
        self.cos: torch.Tensor
        self.sin: torch.Tensor
        cos, sin = rotation(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02 if "embed" in name else weight.shape[1] ** -0.5)
            if name.endswith(("o.weight", "down.weight")):
                nn.init.zeros_(weight)  # each layer starts as no change

    def forward(self, ids: torch.Tensor, chosen: torch.Tensor | None = None) -> torch.Tensor:
        """The logits at every position, or only where `chosen` is true."""
        x = self.embed(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        if chosen is not None:
            x = x[chosen]
        return self.norm(x) @ self.embed.weight.T
