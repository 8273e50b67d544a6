"""The policy: a causal language model, and the log-probabilities that it gives to rows."""

from __future__ import annotations

from typing import Any

import torch

from workbench_grpo.rollouts import Batch

CHUNK = 4096  # tokens whose logits over the vocabulary are held at once


def log_probabilities(model: Any, batch: Batch, *, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the tokens after the prompts, and the entropies there (no gradient): (rows, longest).

    Only the tokens of the mask are computed, in pieces: the logits of a long batch over a large vocabulary are what
    fills a GPU first. Elsewhere both are 0.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    states = inner.get_decoder()(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False)[0]
    rows, places = batch.mask.nonzero(as_tuple=True)
    before = states[rows, batch.starts[rows] + places - 1]  # what stands before a token decides it
    wanted = batch.tokens[rows, places]
    logp, entropy = zip(*(
        _of_states(model, before[i : i + CHUNK], wanted[i : i + CHUNK], temperature)
        for i in range(0, max(1, len(rows)), CHUNK)
    ), strict=True)  # fmt: skip
    logps = torch.zeros_like(batch.mask).index_put((rows, places), torch.cat(logp))
    entropies = torch.zeros_like(batch.mask).index_put((rows, places), torch.cat(entropy))
    return logps, entropies


def _of_states(
    model: Any, states: torch.Tensor, wanted: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model.get_output_embeddings()(states).float() / temperature
    scores = torch.log_softmax(logits, -1)
    with torch.no_grad():
        entropy = -(scores.exp() * scores).sum(-1)
    return scores.gather(1, wanted[:, None]).squeeze(1), entropy
