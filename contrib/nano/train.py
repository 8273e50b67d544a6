"""Train nano from nothing on a CPU and save it in the Hugging Face format.

    python contrib/nano/train.py --steps 3000 --out plugins/workbench_nano/weights

The order of the data depends on the seed alone; the result may differ in the last digits between machines.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from episodes import render
from export import save
from network import Llama, Shape
from plant import plant
from tasks import episode
from tokenizers import Tokenizer
from tokens import ASSISTANT, PAD, chat_text, train_tokenizer

LONGEST = 420  # longer chats are left out of the training data
OTHER_SHARE = 0.15  # of the tokens that are not an answer, drawn anew each time, count in the loss
OTHER_WEIGHT = 0.4  # with this weight
IGNORED = -1


def chats(tokenizer: Tokenizer, seed: int, pool: int = 1500) -> Iterator[list[tuple[list[int], str]]]:
    """Pools of encoded chats with the name of their family."""
    rng = Random(seed)
    while True:
        batch = [episode(rng) for _ in range(pool)]
        encoded = tokenizer.encode_batch([chat_text(render(e)) for e in batch])
        yield [(e.ids, b.family) for e, b in zip(encoded, batch, strict=True) if len(e.ids) <= LONGEST]


def batches(tokenizer: Tokenizer, seed: int, tokens: int) -> Iterator[torch.Tensor]:
    """Batches of chats of like length, so that little is padding; about `tokens` tokens each."""
    rng = Random(seed + 1)
    for pool in chats(tokenizer, seed):
        ids = sorted((ids for ids, _ in pool), key=len)
        groups: list[torch.Tensor] = []
        while ids:
            size = max(1, min(len(ids), tokens // len(ids[-1])))
            group, ids = ids[-size:], ids[:-size]
            longest = len(group[-1])
            groups.append(torch.tensor([g + [PAD] * (longest - len(g)) for g in group]))
        rng.shuffle(groups)
        yield from groups


def answer_mask(ids: torch.Tensor) -> torch.Tensor:
    """True at every token of an assistant's message, its end token included."""
    role = torch.where(ids == ASSISTANT, 1, torch.where((ids >= 2) & (ids < ASSISTANT), -1, 0))
    position = torch.arange(ids.shape[1]).expand_as(ids)
    last = torch.cummax(torch.where(role != 0, position, -1), 1).values.clamp(min=0)
    return (role.gather(1, last) == 1) & (ids != ASSISTANT) & (ids != PAD)


def loss_of(model: Llama, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted loss and, for the log, the plain loss on the answers alone.

    Only some of the tokens that are no answer take part, since the output layer costs a third of the time.
    """
    target = ids[:, 1:]
    answers = answer_mask(ids)[:, 1:]
    chosen = answers | ((target != PAD) & (torch.rand(target.shape) < OTHER_SHARE))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids[:, :-1], chosen)
    losses = F.cross_entropy(logits.float(), target[chosen], reduction="none")
    is_answer = answers[chosen]
    weight = torch.where(is_answer, 1.0, OTHER_WEIGHT)
    return (losses * weight).sum() / weight.sum(), losses.detach()[is_answer].mean()


@torch.no_grad()
def accuracy(model: Llama, tokenizer: Tokenizer, seed: int = 10_000_019) -> dict[str, float]:
    """Share of last answers that are right to the last token, by family (new episodes, same wordings)."""
    right: dict[str, list[bool]] = defaultdict(list)
    for ids, family in next(chats(tokenizer, seed, 300)):
        start = len(ids) - ids[::-1].index(ASSISTANT)
        with torch.autocast("cpu", torch.bfloat16):
            best = model(torch.tensor([ids[:-1]]))[0, start - 1 :].argmax(-1)
        right[family].append(best.tolist() == ids[start:])
    return {family: round(sum(r) / len(r), 3) for family, r in sorted(right.items())}


def optimizers(model: Llama, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(matrices, lr=rate, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=rate / 2, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def rate_at(step: int, steps: int, warmup: int = 60, decay: float = 0.4) -> float:
    """Warm up, hold, then fall in a line to nothing over the last `decay` of the steps."""
    return min(1.0, (step + 1) / warmup, max(0.02, (steps - step) / (steps * decay)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=8192, help="tokens in a batch")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=0.4, help="share of the steps in which the rate falls")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=Path, help="a .pt file to go on from (with its tokenizer beside it)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)

    if options.start:
        tokenizer = Tokenizer.from_file(str(options.start.with_name("tokenizer.json")))
    else:
        tokenizer = train_tokenizer()
    tokenizer.save(str(options.out / "tokenizer.json"))
    shape = Shape(vocabulary=tokenizer.get_vocab_size())
    model = Llama(shape)
    plant(model)
    if options.start:
        model.load_state_dict(torch.load(options.start))
    print(f"{sum(p.numel() for p in model.parameters()):,} weights, {shape}", flush=True)

    began, seen, running = time.time(), 0, None
    opts = optimizers(model, options.rate)
    for step, ids in zip(range(options.steps), batches(tokenizer, options.seed, options.tokens), strict=False):
        for opt, rate in zip(opts, (options.rate, options.rate / 2), strict=True):
            for group in opt.param_groups:
                group["lr"] = rate * rate_at(step, options.steps, decay=options.decay)
        loss, answer_loss = loss_of(model, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        seen += ids.numel()
        running = answer_loss.item() if running is None else 0.98 * running + 0.02 * answer_loss.item()
        if step % 50 == 49 or step == options.steps - 1:
            line = {
                "step": step + 1,
                "answer_loss": round(running, 4),
                "seconds": round(time.time() - began),
                "tokens": seen,
            }
            if step % 250 == 249 or step == options.steps - 1:
                line |= accuracy(model, tokenizer)
                torch.save(model.state_dict(), options.out / "checkpoint.pt")
            print(json.dumps(line), flush=True)
    save(model, tokenizer, options.out)


if __name__ == "__main__":
    main()
