"""Nano: chats in, answers out. Batches share work, yet an answer never depends on the rest of its batch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from workbench_kit.lms.prefill import split_prefill
from workbench_nano.network import Array, Cache, Network
from workbench_nano.threads import OneThread
from workbench_nano.tokenizer import NanoTokenizer

WEIGHTS = Path(__file__).with_name("weights")
ROLES = ("system", "user", "assistant")
Chat = Sequence[dict[str, str]]
BATCH_ROWS = 64
BATCH_TOKENS = 12_000
KEPT_PREFIX_TOKENS = 12_000  # about 100 MB of keys and values
KEPT_TEXTS = 20_000
ONE_THREAD = OneThread()


@dataclass
class Completion:
    """An answer. `completion_ids` and `logprobs` count the end token; `text` stops before a stop string."""

    text: str
    finish: Literal["stop", "length"]
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass
class Job:
    """A chat on its way to an answer."""

    completion: Completion
    prefix: tuple[int, ...]  # all messages but the last
    suffix: tuple[int, ...]
    temperature: float
    random: np.random.Generator
    most: int
    done: bool = False


def render(chat: Chat) -> str:
    """The chat as the template of tokenizer_config.json writes it, ready for the assistant's answer."""
    asked, begun = split_prefill(chat)
    return "".join(_message_text(dict(message)) for message in asked) + "<|assistant|>" + begun


def _message_text(message: dict[str, str]) -> str:
    if message["role"] not in ROLES:
        raise ValueError(f"nano knows the roles {', '.join(ROLES)}, not {message['role']!r}")
    return f"<|{message['role']}|>{message['content']}<|end|>"


class Nano:
    """The model. `generate` may be called from several threads at once."""

    def __init__(self, folder: Path) -> None:
        self.network = Network(folder)
        self.tokenizer = NanoTokenizer(folder)
        self.end, self.assistant = (self.tokenizer.special[token] for token in ("<|end|>", "<|assistant|>"))
        self._texts: dict[str, tuple[int, ...]] = {}
        self._prefixes: OrderedDict[tuple[int, ...], Cache] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: str | Path | None = None) -> Nano:
        """The model of a folder in Hugging Face format; the bundled one by default."""
        return cls(Path(path) if path else WEIGHTS)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids, remembered since messages come again and again."""
        ids = self._texts.get(text)
        if ids is None:
            ids = tuple(self.tokenizer.encode(text))
            if len(self._texts) >= KEPT_TEXTS:
                self._texts.clear()
            self._texts[text] = ids
        return ids

    def prompt_ids(self, chat: Chat) -> list[int]:
        # Encoding message by message is exact: each begins and ends with a special token.
        asked, begun = split_prefill(chat)
        ids = [i for message in asked for i in self.encode(_message_text(dict(message)))]
        return [*ids, self.assistant, *(self.encode(begun) if begun else ())]

    def all_logits(self, ids: Sequence[int]) -> Array:
        """Logits (tokens, vocabulary) of one text, for checks."""
        cache = self.network.empty_cache(1, len(ids))
        states = self.network.forward(np.array([ids]), np.array([len(ids)]), cache)
        return self.network.logits(states)[0]

    def generate(
        self,
        chats: Sequence[Chat],
        *,
        max_tokens: int,
        temperature: Sequence[float] | float = 0.0,
        seeds: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        top_p: float = 1.0,
    ) -> list[Completion]:
        """Answer each chat. Temperature 0 takes the likeliest token; otherwise each chat's seed decides."""
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {max_tokens}")
        heats = [float(temperature)] * len(chats) if isinstance(temperature, int | float) else list(temperature)
        seeds = [0] * len(chats) if seeds is None else seeds
        jobs = [self._job(*each, max_tokens) for each in zip(chats, heats, seeds, strict=True)]
        stops = [s for s in stop if s]
        for prefix, group in self._groups(jobs):
            self._run(prefix, group, stops, top_p)
        return [job.completion for job in jobs]

    def _job(self, chat: Chat, temperature: float, seed: int, max_tokens: int) -> Job:
        ids = self.prompt_ids(chat)
        room = self.network.positions - len(ids)
        if room < 1:
            raise ValueError(
                f"the prompt has {len(ids)} tokens, but nano reads at most {self.network.positions - 1} "
                f"({len(chat)} messages; the longest has "
                f"{max(len(self.encode(_message_text(m))) for m in chat)} tokens)"
            )
        cut = len(ids) - 1 - (len(self.encode(_message_text(chat[-1]))) if chat else 0)
        return Job(
            Completion("", "length", ids),
            tuple(ids[:cut]),
            tuple(ids[cut:]),
            temperature,
            np.random.default_rng(seed & (2**64 - 1)),
            min(max_tokens, room),
        )

    def _groups(self, jobs: list[Job]) -> list[tuple[tuple[int, ...], list[Job]]]:
        """Batches of like length. Chats share the work on a prefix where several have it, or it is kept."""
        by_prefix: dict[tuple[int, ...], list[Job]] = {}
        for job in jobs:
            by_prefix.setdefault(job.prefix, []).append(job)
        shared: dict[tuple[int, ...], list[Job]] = {}
        for prefix, members in by_prefix.items():
            alone = len({job.suffix for job in members}) == 1 and prefix not in self._prefixes
            if alone and len(by_prefix) > 1:  # too little to gain: run it beside the other lone ones
                for job in members:
                    job.prefix, job.suffix = (), job.prefix + job.suffix
                prefix = ()
            shared.setdefault(prefix, []).extend(members)
        batches = []
        for prefix, members in shared.items():
            members.sort(key=lambda job: len(job.suffix))
            while members:
                rows = max(1, min(BATCH_ROWS, BATCH_TOKENS // len(members[-1].suffix)))
                batches.append((prefix, members[-rows:]))
                del members[-rows:]
        return batches

    def _prefix_cache(self, ids: tuple[int, ...]) -> Cache | None:
        if not ids:
            return None
        with self._lock:
            cache = self._prefixes.get(ids)
            if cache is not None:
                self._prefixes.move_to_end(ids)
                return cache
        cache = self.network.empty_cache(1, len(ids))
        self.network.forward(np.array([ids]), np.array([len(ids)]), cache)
        with self._lock:
            self._prefixes[ids] = cache
            while len(self._prefixes) > 1 and sum(map(len, self._prefixes)) > KEPT_PREFIX_TOKENS:
                self._prefixes.popitem(last=False)
        return cache

    def _run(self, prefix_ids: tuple[int, ...], jobs: list[Job], stops: list[str], top_p: float) -> None:
        """Prefill one batch (equal prompts once), then add a token to each row until all are done."""
        prefix = self._prefix_cache(prefix_ids)
        unique = list(dict.fromkeys(job.suffix for job in jobs))
        counts = np.array([len(suffix) for suffix in unique])
        ids = np.zeros((len(unique), counts.max()), np.int64)
        for row, suffix in enumerate(unique):
            ids[row, : len(suffix)] = suffix
        cache = self.network.empty_cache(*ids.shape)
        states = self.network.forward(ids, counts, cache, prefix)
        logits = self.network.logits(states[np.arange(len(unique)), counts - 1])

        index = {suffix: row for row, suffix in enumerate(unique)}
        order = [index[job.suffix] for job in jobs]
        logits, active = logits[order], jobs
        cache = cache.rows(order).room(max(job.most for job in jobs))
        with ONE_THREAD:  # a token for each row: small products
            while True:
                tokens = [self._choose(job, row, top_p) for job, row in zip(active, logits, strict=True)]
                for job, token in zip(active, tokens, strict=True):
                    self._advance(job, token, stops)
                alive = [i for i, job in enumerate(active) if not job.done]
                if not alive:
                    return
                if len(alive) < len(active):
                    active, cache = [active[i] for i in alive], cache.rows(alive)
                step = np.array([[tokens[i]] for i in alive])
                states = self.network.forward(step, np.ones(len(alive), np.int64), cache, prefix)
                logits = self.network.logits(states[:, 0])

    def _choose(self, job: Job, logits: Array, top_p: float) -> int:
        logits = logits.astype(np.float64)
        logits -= logits.max()
        if job.temperature <= 0:
            token = int(logits.argmax())
        else:
            weights = np.exp(logits / job.temperature)
            if top_p < 1:
                best = np.argsort(-weights, kind="stable")
                total = np.cumsum(weights[best])
                weights[best[np.searchsorted(total, top_p * total[-1]) + 1 :]] = 0
            total = np.cumsum(weights)
            # Not above the last token that has any weight, whatever the rounding of the sum.
            token = int(np.searchsorted(total, job.random.random() * total[-1], side="right"))
            token = min(token, int(np.flatnonzero(weights)[-1]))
        job.completion.completion_ids.append(token)
        job.completion.logprobs.append(float(logits[token] - np.log(np.exp(logits).sum())))
        return token

    def _advance(self, job: Job, token: int, stops: list[str]) -> None:
        answer = job.completion
        ids = answer.completion_ids
        if token == self.end:
            answer.text, answer.finish, job.done = self._text(ids[:-1]), "stop", True
            return
        if stops:
            text = self._text(ids)
            found = [text.index(s) for s in stops if s in text]
            if found:
                answer.text, answer.finish, job.done = text[: min(found)], "stop", True
                return
        if len(ids) >= job.most:
            answer.text, job.done = self._text(ids), True

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids)
