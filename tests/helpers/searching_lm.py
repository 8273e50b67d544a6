"""A world in which an agent may search or guess, and a tiny checkpoint that can do both and mostly guesses.

Each of 56 things lies in one of four places, at random, and a corpus says where. The checkpoint was taught to call
`search` with the thing that it is asked for, to copy the place from the result, and to name any place without a search.
Its tokens are characters; things are letters that stand nowhere else, so that two layers can learn to copy them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

PLACES = ("east", "west", "here", "gate")
THINGS = "αβγδεζηθικλμνξοπρστυφχψωабвгдежзийклмнопрстуфхцчшщъыьэюя"
#: Messages and calls as they are drawn, so that a conversation is the same text when it is evaluated.
TEMPLATE = (
    "{% for m in messages %}{% if m.role != 'system' %}{{ '<a>' if m.role == 'assistant' else '<u>' }}{{ m.content }}"
    '{% for c in m.tool_calls or [] %}{"name":"search","arguments":{"query":"{{ c.function.arguments.query }}"}}'
    "{% endfor %}<end>{% endif %}{% endfor %}{% if tools %}{% endif %}{% if add_generation_prompt %}<a>{% endif %}"
)
AGENT = {
    "agent": "it -> place",
    "nodes": {"search": {"search": "corpus.jsonl", "k": 1}},
    "native": True,
    "max_steps": 2,
    "max_tokens": 60,
}


def write_world(folder: Path, seed: int, *, facts: bool) -> None:
    """Rows and corpus. facts: whether the corpus says where things are, or names places at random."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    places = {thing: draw.choice(PLACES) for thing in THINGS}
    told = places if facts else {thing: draw.choice(PLACES) for thing in THINGS}
    _write(folder / "rows.jsonl", [{"it": thing, "place": place} for thing, place in places.items()])
    _write(folder / "corpus.jsonl", [{"id": thing, "text": f"{thing} {place}"} for thing, place in told.items()])


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def save_searching(folder: Path, seed: int = 1, *, steps: int = 900) -> Path:
    """A checkpoint that searches in about 15 of 100 draws, and otherwise names a place at random."""
    import torch
    import torch.nn.functional as F

    from tests.helpers.tiny_lm import make_model, make_tokenizer

    tokenizer = make_tokenizer(THINGS)
    tokenizer.chat_template = TEMPLATE
    model, draw = make_model(seed, positions=256, more=THINGS), random.Random(seed)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, 1e-2, total_steps=steps, pct_start=0.1)
    things = torch.tensor(tokenizer(THINGS, add_special_tokens=False)["input_ids"])
    for step in range(steps):
        ids, learned = _batch(tokenizer, draw, 16, share=0.6 if step < 0.8 * steps else 0.15)
        logits, targets = model(input_ids=ids).logits[:, :-1], learned[:, 1:]
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none")
        weight = torch.where(torch.isin(targets, things), 10.0, 1.0).reshape(-1)  # one token of 45, and the hardest
        loss = (loss * weight).sum() / weight[targets.reshape(-1) >= 0].sum()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        rate.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def share_of_right_queries(folder: Path) -> float:
    """The mean probability, over all things, that a search of a checkpoint is for the thing that it is asked for."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    begun = [f'<u>it: {thing}<end><a>{{"name":"search","arguments":{{"query":"' for thing in THINGS]
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"] for text in begun])
    things = torch.tensor(tokenizer(THINGS, add_special_tokens=False)["input_ids"])
    with torch.no_grad():
        likely = model(input_ids=ids).logits[:, -1].softmax(-1)
    return float(likely.gather(1, things[:, None]).mean())


def _batch(tokenizer: Any, draw: random.Random, size: int, *, share: float) -> tuple[Any, Any]:
    """Token ids of conversations, and those of them that are learned (the others -100). share: that search."""
    import torch

    rows: list[tuple[list[int], list[int]]] = []
    for _ in range(size):
        thing, place = draw.choice(THINGS), draw.choice(PLACES)
        parts = [(f"<u>it: {thing}<end><a>", False)]
        if draw.random() < share:
            call = f'{{"name":"search","arguments":{{"query":"{thing}"}}}}<end>'
            parts += [(call, True), (f"<u>result: [{thing}]: {thing} {place}<end><a>", False)]
        row, learned = [], []
        for text, is_learned in [*parts, (f"{place}<end>", True)]:
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            row += ids
            learned += ids if is_learned else [-100] * len(ids)
        rows.append((row, learned))
    longest = max(len(row) for row, _ in rows)
    return (
        torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows]),
        torch.tensor([learned + [-100] * (longest - len(learned)) for _, learned in rows]),
    )
