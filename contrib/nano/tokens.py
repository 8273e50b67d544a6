"""The tokenizer of nano: byte-level BPE (any UTF-8 text can be encoded), digits one by one."""

from __future__ import annotations

from random import Random

from episodes import Message, render
from tasks import episode
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIALS = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
PAD, END, _, _, ASSISTANT = range(5)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
VOCABULARY = 1280


def chat_text(chat: list[Message]) -> str:
    """A whole chat, answers included, as the chat template writes it."""
    return "".join(f"<|{message['role']}|>{message['content']}<|end|>" for message in chat)


def train_tokenizer(seed: int = 0, episodes: int = 12_000) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    # Every line starts with a space, so that a word is one token wherever it stands: a label in the list
    # of allowed values, at the start of an answer, or in the middle of a text.
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(" "), normalizers.Replace("\n", "\n ")])
    words = Regex(r" ?\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Replace("\n ", "\n"), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rng = Random(seed)
    texts = (m["content"] for _ in range(episodes) for m in render(episode(rng)))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
