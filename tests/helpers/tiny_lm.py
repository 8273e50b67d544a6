"""Tiny language models with a tokenizer of single characters, created for tests of training."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

CHARACTERS = '0123456789abcdefghijklmnopqrstuvwxyz +-=?:.,{}"[]_\n'
SPECIAL = ["<pad>", "<end>", "<unk>", "<u>", "<a>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<a>' if m['role'] == 'assistant' else '<u>' }}{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def make_tokenizer(more: str = "") -> Any:
    """more: further characters."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate([*SPECIAL, *CHARACTERS, *more])}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    made.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=["<u>", "<a>"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(seed: int = 0, *, hidden: int = 64, layers: int = 2, positions: int = 128, more: str = "") -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(SPECIAL) + len(CHARACTERS) + len(more),
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=positions,
            eos_token_id=1,
            pad_token_id=0,
            bos_token_id=None,
            tie_word_embeddings=True,
        )
    )


def save(folder: Path, seed: int = 0, **shape: int) -> Path:
    """A checkpoint of random weights with its tokenizer."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    make_model(seed, **shape).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def save_taught(folder: Path, answers: Sequence[str], seed: int = 0, *, longest: int = 600, steps: int = 60) -> Path:
    """A checkpoint that answers every prompt with one of these texts and an end token."""
    import torch

    save(folder, seed, positions=2048)
    from transformers import LlamaForCausalLM

    model, tokenizer = LlamaForCausalLM.from_pretrained(folder), make_tokenizer()
    draw, adam = random.Random(seed), torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        texts = [
            "<u>"
            + "".join(draw.choices(CHARACTERS, k=draw.randint(2, longest if step % 4 == 0 else 40)))
            + f"<end><a>{said}<end>"
            for said in answers
        ]
        loss = torch.zeros(())
        for text, said in zip(texts, answers, strict=True):
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            asked = ids.clone()
            asked[0, : -len(said) - 1] = -100
            loss = loss + model(input_ids=ids, labels=asked).loss / len(answers)
        adam.zero_grad()
        loss.backward()
        adam.step()
    model.save_pretrained(folder)
    return folder
