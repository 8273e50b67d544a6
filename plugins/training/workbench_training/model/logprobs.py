"""Log-probabilities of rows under a causal language model, with as little computation as possible.

Rollouts of one task share their prompt, so each prompt is computed once and its keys and values serve all rows that
begin with it; gradients flow back through them. Answers are batched by length; other rows are packed without padding
where the kernel of attention allows. Only the states that predict a sampled token go through the vocabulary. None of
this changes a number, up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from workbench_engine.running_batch import cache_argument
from workbench_training.model.prompt_cache import after_prompts, is_plain, of_rows, prompt_cache
from workbench_training.rollouts.token_rows import Batch

#: Logits that are computed at once: 512 MiB in float32. With gradients the peak is some four times as much.
LOGITS = 1 << 27
#: What one more forward pass costs, in tokens of padding that it may save. A GPU is slowed by many small passes.
PASS_TOKENS = {"cpu": 64, "cuda": 4096}
#: Kernels of attention that keep rows apart by their positions: they need no padding.
PACKS = ("flash_attention_2", "flash_attention_3")


def log_probabilities(
    model: Any, batch: Batch, *, temperature: float = 1.0, single: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the tokens after the prompts, and the entropies there (no gradient): (rows, longest).

    Only the tokens of the mask are computed, in chunks of `LOGITS`: the logits of a long batch over a large vocabulary
    are what fills a GPU first. Of several chunks none is kept: the backward pass computes each again, one at a time.
    Elsewhere both are 0. single: one pass of whole rows, whatever they are: so each weight is used
    once, and its gradient is whole as soon as the backward pass has left its layer.
    """
    states, rows, places = compute_states(model, batch, single=single)
    wanted = batch.tokens[rows, places]
    logp, entropy = score_states(model, states, wanted, temperature)
    logps = torch.zeros_like(batch.mask).index_put((rows, places), logp)
    entropies = torch.zeros_like(batch.mask).index_put((rows, places), entropy)
    return logps, entropies


def compute_states(
    model: Any, batch: Batch, *, single: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(the decoder's states before the tokens of the mask, their rows, their places after the prompts): (states, size),
    (states,), (states,)."""
    shares = not single and _shares(model, batch)
    found = [*(_with_shared_prompts(model, batch) if shares else _row_by_row(model, batch, single))]
    states, rows, places = (torch.cat(parts) for parts in zip(*found, strict=True))
    return states, rows, places


def score_states(
    model: Any, states: torch.Tensor, wanted: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probability of the wanted token, entropy without gradient) after each state: both (states,)."""
    head = model.get_output_embeddings()
    size = max(1, LOGITS // head.weight.shape[0])
    logps, entropies = [], []
    for start in range(0, max(1, len(states)), size):
        chunk = states[start : start + size], wanted[start : start + size], temperature, entropies
        if len(states) > size and torch.is_grad_enabled():
            logps.append(checkpoint(_OfChunk(head), *chunk, use_reentrant=False, preserve_rng_state=False))
        else:
            logps.append(_OfChunk(head)(*chunk))
    return torch.cat(logps), torch.cat(entropies)


class _OfChunk:
    """The log-probabilities of one chunk; the entropies are added to a list by the first call alone."""

    def __init__(self, head: Any):
        self.head, self.first = head, True

    def __call__(
        self, states: torch.Tensor, wanted: torch.Tensor, temperature: float, entropies: list[torch.Tensor]
    ) -> torch.Tensor:
        logits = self.head(states).float()
        scores = torch.log_softmax(logits if temperature == 1.0 else logits / temperature, -1)
        del logits
        if self.first:
            with torch.no_grad():
                entropies.append(-(scores.exp() * scores).sum(-1))
            self.first = False
        return scores.gather(1, wanted[:, None]).squeeze(1)


def _shares(model: Any, batch: Batch) -> bool:
    """Return True if prompts are computed once: some are equal, and every layer keeps all keys and values."""
    distinct = int(batch.prompts.unique().numel())
    return is_plain(model.config) and distinct < len(batch.prompts)


def _row_by_row(model: Any, batch: Batch, single: bool) -> Any:
    """(states, rows, places) of the drawn tokens, from whole rows."""
    fed = batch.attention.sum(-1) - 1  # the last token decides nothing
    if model.config._attn_implementation in PACKS and int(fed.min()) > 0:
        yield _packed(model, batch, fed)
        return
    every = torch.arange(len(fed), device=fed.device)
    for index in [every] if single else _passes(fed, batch.ids.device.type):
        width = max(1, int(fed[index].max()))
        states = model.get_decoder()(
            input_ids=batch.ids[index, :width], attention_mask=batch.attention[index, :width], use_cache=False
        )[0]
        rows, places = batch.mask[index].nonzero(as_tuple=True)
        yield states[rows, batch.starts[index][rows] + places - 1], index[rows], places


def _packed(model: Any, batch: Batch, fed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(states, rows, places) of the drawn tokens, from one pass of all rows behind each other. Where positions begin
    anew, attention does."""
    steps = torch.arange(int(fed.max()), device=fed.device)
    taken = steps < fed[:, None]
    states = model.get_decoder()(
        input_ids=batch.ids[:, : len(steps)][taken][None],
        position_ids=steps.expand(len(fed), -1)[taken][None],
        use_cache=False,
    )[0][0]
    rows, places = batch.mask.nonzero(as_tuple=True)
    begins = fed.cumsum(0) - fed
    return states[begins[rows] + batch.starts[rows] + places - 1], rows, places


def _with_shared_prompts(model: Any, batch: Batch) -> Any:
    """(states, rows, places) of the drawn tokens: distinct prompts first, then what follows them."""
    numbers, which = batch.prompts.unique(return_inverse=True)
    first = torch.full_like(numbers, len(which)).scatter_reduce(
        0, which, torch.arange(len(which), device=which.device), "amin"
    )
    starts = batch.starts[first]
    width = int(starts.max())
    seen = (torch.arange(width, device=starts.device) < starts[:, None]).long()
    cache = prompt_cache(model.config)
    decoder = model.get_decoder()
    name = cache_argument(decoder)
    states = decoder(input_ids=batch.ids[first, :width], attention_mask=seen, use_cache=True, **{name: cache})[0]
    last = states[torch.arange(len(first), device=starts.device), starts - 1]
    fed = (batch.attention.sum(-1) - batch.starts - 1).clamp(min=0)
    for index in _passes(fed, batch.ids.device.type):
        longest, prompt = int(fed[index].max()), which[index]
        after = of_rows(last, prompt)[:, None]
        if longest:
            steps = torch.arange(longest, device=starts.device)
            wide = int(starts[prompt].max())
            mask = torch.cat([seen[prompt, :wide], (steps < fed[index][:, None]).long()], dim=1)
            states = decoder(
                input_ids=batch.tokens[index, :longest],
                attention_mask=mask,
                use_cache=True,
                position_ids=batch.starts[index][:, None] + steps,
                **{name: after_prompts(cache, prompt, wide)},
            )[0]
            after = torch.cat([after, states], dim=1)
        rows, places = batch.mask[index].nonzero(as_tuple=True)
        yield after[rows, places], index[rows], places


def _passes(lengths: torch.Tensor, device: str) -> list[torch.Tensor]:
    """Indices of the rows of each pass, such that padding and passes cost least.

    Lengths are counted in 32 levels, so that the search is short.
    """
    overhead = PASS_TOKENS.get(device, PASS_TOKENS["cuda"])
    grain = max(1, -(-int(lengths.max()) // 32))
    levels = (lengths + grain - 1) // grain * grain
    widths, counts = levels.unique(return_counts=True)
    sizes, numbers = widths.tolist(), counts.tolist()
    best: list[tuple[float, int]] = [(0.0, 0)]  # of the shortest k levels: cost, and where the last pass begins
    for end in range(1, len(sizes) + 1):
        costs = [(best[start][0] + sizes[end - 1] * sum(numbers[start:end]) + overhead, start) for start in range(end)]
        best.append(min(costs))
    found, end = [], len(sizes)
    while end:
        start = best[end][1]
        found.append(((levels >= sizes[start]) & (levels <= sizes[end - 1])).nonzero(as_tuple=True)[0])
        end = start
    return found
