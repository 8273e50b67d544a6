"""A head start: begin training with a few attention heads that already look back and compare.

Small models find "look for the same word earlier and copy what follows" only after very long training. Since
nano is trained on a CPU in minutes, its first two layers begin with weak forms of such heads. Everything is
then trained as usual; nothing about any task, word or label is planted.
"""

from __future__ import annotations

import torch
from network import Llama

CONSTANT = 4.0  # the first number of each embedding is this many times the spread of the others
FAST = slice(0, 8)  # rotation speeds that tell near positions apart
SLOW = slice(18, 32)  # rotation speeds so low that words far apart can be compared


def orthogonal(rows: int, columns: int) -> torch.Tensor:
    return torch.nn.init.orthogonal_(torch.empty(rows, columns))


def head_rows(head: int, part: slice, size: int) -> list[int]:
    """The rows of a head's query or key matrix that turn at the speeds of `part`."""
    half = size // 2
    speeds = range(half)[part]
    return [head * size + f for f in speeds] + [head * size + half + f for f in speeds]


@torch.no_grad()
def plant(model: Llama) -> None:
    shape = model.shape
    size = shape.width // shape.heads
    words = shape.width - 3 * 32  # words use these places; each of three heads writes to 32 places of its own
    spread = 0.03
    first, second = model.layers[0], model.layers[1]
    embedding = torch.zeros_like(model.embed.weight)
    embedding[:, 1:words] = torch.nn.functional.normalize(torch.randn(shape.vocabulary, words - 1))
    model.embed.weight.copy_(embedding * spread * words**0.5)
    model.embed.weight[:, 0] = spread * CONSTANT

    # First layer: heads that look 1 token back, 2 tokens back, and at the last few tokens.
    speed = shape.base ** (-torch.arange(0, size, 2).float() / size)[FAST]
    reads = {}
    for head, back, sharp in ((0, 1, 5.0), (1, 2, 5.0), (2, 5, 0.25)):
        strength = (sharp * size**0.5) ** 0.5 / CONSTANT
        rows = head_rows(head, FAST, size)
        first.q.weight[head * size : (head + 1) * size] *= 0.02
        first.k.weight[head * size : (head + 1) * size] *= 0.02
        first.q.weight[rows, 0] = torch.cat([torch.full_like(speed, strength), torch.zeros_like(speed)])
        first.k.weight[rows, 0] = strength * torch.cat([(speed * back).cos(), (speed * back).sin()])
        read = torch.zeros(32, shape.width)
        read[:, 1:words] = orthogonal(32, words - 1)
        first.v.weight[head * size : head * size + 32] = read
        place = words + head * 32
        first.o.weight[place : place + 32, head * size : head * size + 32] = spread * torch.eye(32)
        reads[head] = read

    # Second layer: compare this word, or the last few, with what stood before earlier words; copy those.
    for head, source, same in ((0, 0, False), (1, 2, True), (2, 1, False)):
        rows = head_rows(head, SLOW, size)
        place = words + source * 32
        written = torch.eye(shape.width)[place : place + len(rows)]
        second.q.weight[rows] = 1.7 * (written if same else reads[source][: len(rows)])
        second.k.weight[rows] = 1.7 * written
        copy = torch.zeros(size, shape.width)
        copy[:, 1:words] = orthogonal(size, words - 1)
        second.v.weight[head * size : (head + 1) * size] = copy
        second.o.weight[:, head * size : (head + 1) * size] = copy.T * spread * 2
