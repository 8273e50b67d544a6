"""Train nano from nothing on a CPU and save it in the Hugging Face format.

    python contrib/nano/train.py --out plugins/standard/workbench_nano/weights

It begins with the barest label games alone, until looking up an earlier example works, then with all games whose
answers stand in the examples, and goes on with all tasks. Without that beginning, the noise of all other tasks kept a
model of this size from ever learning to look.

The order of the data depends on the seed alone; the result may differ in the last digits between machines.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from episodes import Episode, render
from export import save
from network import Llama, Shape
from plant import plant
from tasks import episode, label_games, recall
from tokenizers import Tokenizer
from tokens import ASSISTANT, PAD, chat_text, train_tokenizer

LONGEST = 420  # longer chats are left out of the training data
OTHER_SHARE = 0.15  # of the tokens that are not an answer, drawn anew each time, count in the loss
OTHER_WEIGHT = 0.4  # with this weight
STAGES = ((500, recall), (1100, label_games), (10**9, episode))  # up to which step, and the tasks of the time


Make = Callable[[Random], Episode]


def chats(tokenizer: Tokenizer, make: Make, seed: int, pool: int = 1500) -> Iterator[list[tuple[list[int], Episode]]]:
    """Pools of encoded chats with their episodes."""
    rng = Random(seed)
    while True:
        batch = [make(rng) for _ in range(pool)]
        encoded = tokenizer.encode_batch([chat_text(render(e)) for e in batch])
        yield [(e.ids, b) for e, b in zip(encoded, batch, strict=True) if len(e.ids) <= LONGEST]


def batches(tokenizer: Tokenizer, make: Make, seed: int, tokens: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(ids, known) of chats of like length, so that little is padding; about `tokens` tokens each."""
    rng = Random(seed + 1)
    for pool in chats(tokenizer, make, seed):
        pool.sort(key=lambda chat: len(chat[0]))
        groups = []
        while pool:
            size = max(1, min(len(pool), tokens // len(pool[-1][0])))
            group, pool = pool[-size:], pool[:-size]
            longest = len(group[-1][0])
            ids = torch.tensor([chat + [PAD] * (longest - len(chat)) for chat, _ in group])
            groups.append((ids, known_mask(ids, [e.known() for _, e in group])))
        rng.shuffle(groups)
        yield from groups


def known_mask(ids: torch.Tensor, known: list[list[bool]]) -> torch.Tensor:
    """False in the messages of the assistant that nothing before them tells: their answers are chance."""
    most = max(map(len, known))
    table = torch.tensor([[True, *k] + [True] * (most - len(k)) for k in known])
    return table.gather(1, (ids == ASSISTANT).cumsum(1))


def answer_mask(ids: torch.Tensor) -> torch.Tensor:
    """True at every token of an assistant's message, its end token included."""
    role = torch.where(ids == ASSISTANT, 1, torch.where((ids >= 2) & (ids < ASSISTANT), -1, 0))
    position = torch.arange(ids.shape[1]).expand_as(ids)
    last = torch.cummax(torch.where(role != 0, position, -1), 1).values.clamp(min=0)
    return (role.gather(1, last) == 1) & (ids != ASSISTANT) & (ids != PAD)


def loss_of(model: Llama, ids: torch.Tensor, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted loss and, for the log, the plain loss on the answers that can be known.

    Only some of the tokens that are no answer take part, since the output layer costs a third of the time.
    """
    target = ids[:, 1:]
    every = answer_mask(ids)[:, 1:]
    answers = every & known[:, 1:]
    chosen = answers | ((target != PAD) & ~every & (torch.rand(target.shape) < OTHER_SHARE))
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
    for ids, made in next(chats(tokenizer, episode, seed, 400)):
        if not made.known()[-1]:
            continue
        start = len(ids) - ids[::-1].index(ASSISTANT)
        with torch.autocast("cpu", torch.bfloat16):
            best = model(torch.tensor([ids[:-1]]))[0, start - 1 :].argmax(-1)
        right[made.family].append(best.tolist() == ids[start:])
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
    parser.add_argument("--steps", type=int, default=8500)
    parser.add_argument("--tokens", type=int, default=3072, help="tokens in a batch")
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
    data = {make: batches(tokenizer, make, options.seed, options.tokens) for _, make in STAGES}
    for step in range(options.steps):
        ids, known = next(data[next(make for end, make in STAGES if step < end)])
        for opt, rate in zip(opts, (options.rate, options.rate / 2), strict=True):
            for group in opt.param_groups:
                group["lr"] = rate * rate_at(step, options.steps, decay=options.decay)
        loss, answer_loss = loss_of(model, ids, known)
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
            if step % 500 == 499 or step == options.steps - 1:
                line |= accuracy(model, tokenizer)
                torch.save(model.state_dict(), options.out / "checkpoint.pt")
            print(json.dumps(line), flush=True)
    save(model, tokenizer, options.out)


if __name__ == "__main__":
    main()
