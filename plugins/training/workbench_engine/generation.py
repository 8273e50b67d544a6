"""Batched generation with a KV cache; each row has its own settings and random numbers.

One file: one loop over one cache.
"""

from __future__ import annotations

import gc
import inspect
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging as hf_logging

from workbench.errors import LMError
from workbench.lm import Response
from workbench_engine.chat_template import render_chat
from workbench_engine.checkpoint import check_checkpoint
from workbench_engine.fixed_batch import Batch, settle
from workbench_engine.running_batch import GrowingCache, RunningBatch, cache_argument
from workbench_kit.lms.native_calls import to_template
from workbench_kit.lms.prefill import split_prefill

#: transformers loads a model with process-wide settings: two threads that load concurrently get models without weights.
_LOADING = threading.Lock()


@dataclass
class Row:
    """A prompt with its settings; generation fills the lists.

    finish: `stop` (an end token or a stop string) or `length`. error: why nothing was generated.
    """

    prompt_ids: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    stop: tuple[str, ...]
    seed: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    error: Exception | None = None
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was generated."""
        self.ids, self.logprobs, self.text, self.finish = [], [], "", ""
        self.random = random.Random(self.seed)

    def response(self) -> Response:
        """Return the generated text as an answer with its tokens."""
        return Response(
            self.text,
            self.finish if self.text.strip() or self.finish == "length" else "empty",
            len(self.prompt_ids),
            len(self.ids),
            usd=0.0,
            prompt_ids=tuple(self.prompt_ids),
            token_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
        )


@dataclass
class Refill:
    """The rows that wait while a batch runs, and the place where complete rows go: by default nothing, and nowhere.

    take: gives rows that join a batch of so many. give: receives each row that is complete, or has an error.
    """

    take: Callable[[int], list[Row]] = lambda running: []
    give: Callable[[Row], None] = lambda row: None


class Generator:
    """A causal language model and its tokenizer. Training may change the weights between two calls.

    template_settings: what its chat template is rendered with besides the messages, as `enable_thinking`.
    """

    def __init__(self, model: Any, tokenizer: Any, template_settings: Mapping[str, Any] | None = None):
        self.template_settings = dict(template_settings or {})
        self.model, self.tokenizer, self.device = model, tokenizer, model.device
        self.context = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 1 << 30)
        ends = model.generation_config.eos_token_id if model.generation_config else None
        ends = ends if isinstance(ends, list) else [ends]
        self.ends = {end for end in (*ends, self.tokenizer.eos_token_id) if end is not None}
        takes = inspect.signature(self.model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        self._cache_name = cache_argument(self.model)

    @classmethod
    def load(
        cls,
        path: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        attention: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> Generator:
        """Load a checkpoint: bfloat16 on a GPU, float32 on the CPU. Reads only safetensors and runs no code of the
        checkpoint. Raises OSError if it cannot be read, SpecError for one that asks for more, ImportError without the
        package of an attention (as transformers names it; by default its own choice)."""
        check_checkpoint(path, revision)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if place.type == "cuda":  # its attention makes a plan for each new shape, and here shapes seldom come twice
            torch.backends.cuda.enable_cudnn_sdp(False)
        default = torch.float32 if place.type == "cpu" else torch.bfloat16
        source: dict[str, Any] = {"trust_remote_code": False, "revision": revision or "main"}
        with _LOADING:
            bars = hf_logging.is_progress_bar_enabled()
            hf_logging.disable_progress_bar()
            try:
                tokenizer: Any = AutoTokenizer.from_pretrained(path, **source)
                model: Any = AutoModelForCausalLM.from_pretrained(
                    path,
                    use_safetensors=True,
                    attn_implementation=attention,  # by default transformers' choice, and not that of config.json
                    dtype=getattr(torch, dtype) if dtype else default,
                    **source,
                )
            finally:
                if bars:
                    hf_logging.enable_progress_bar()
        return cls(model.to(place).eval(), tokenizer, chat_template_kwargs)

    def encode(self, messages: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """The prompt's token ids, with the checkpoint's chat template, or as plain text if there is none. Raises
        TemplateError."""
        asked, begun = split_prefill(messages)
        if self.tokenizer.chat_template:
            template = {"tools": tools, "settings": self.template_settings}
            text = render_chat(self.tokenizer, to_template(asked), add_generation_prompt=True, **template) + begun
            return self.tokenizer(text, add_special_tokens=False)["input_ids"]
        text = "".join(f"{m['role']}: {m['content']}\n" for m in asked) + "assistant:" + begun
        return self.tokenizer(text)["input_ids"]

    @torch.inference_mode()
    def mean_state(self, text: str) -> tuple[list[float], int]:
        """(mean of the last hidden states over a text's tokens, their number); the text is truncated to the context."""
        ids = self.tokenizer(text)["input_ids"][: self.context] or self.tokenizer(" ")["input_ids"] or [0]
        found = self.model(
            input_ids=torch.tensor([ids], device=self.device),
            output_hidden_states=True,
            use_cache=False,
            **self._last_only,
        )
        return found.hidden_states[-1][0].float().mean(0).tolist(), len(ids)

    @torch.inference_mode()
    def generate(self, rows: list[Row], refill: Refill | None = None) -> None:
        """Complete all rows in one batch. Rows that a refill has join while it runs (continuous batching; Yu et al.,
        "Orca", OSDI 2022), unless the model's cache keeps more or less than all tokens. No prompt may be as long as
        `context`."""
        refill, steps = refill or Refill(), 0
        batch: Batch[Row] = self._begin(rows)
        while batch.rows:
            batch.tokens = self._choose(batch.rows, batch.logits)
            keep = [i for i, row in enumerate(batch.rows) if not self._ended(row)]
            for row in batch.rows:
                if row.finish:
                    self._decode(row)
                    refill.give(row)
            batch.keep(keep)
            if batch.rows:
                batch = settle(batch, self.model, steps, max(map(self._left, batch.rows)))
                batch.step()
                steps += 1
            if batch.keeps_all_tokens:
                for some in group_by_length(refill.take(len(batch.rows))):
                    batch = batch.join(self._begin(some)) if batch.rows else self._begin(some)

    def _begin(self, rows: list[Row]) -> RunningBatch[Row]:
        """Rows before their first token. Equal prompts are computed once."""
        cache = GrowingCache(config=self.model.config)
        prompts = {prompt: i for i, prompt in enumerate(dict.fromkeys(tuple(row.prompt_ids) for row in rows))}
        width = max(map(len, prompts))
        ids = torch.zeros((len(prompts), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for prompt, i in prompts.items():  # on the left, so that all prompts end in the same column
            ids[i, width - len(prompt) :] = torch.tensor(prompt)
            mask[i, width - len(prompt) :] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self._logits(ids, mask, positions, cache)
        last = positions[:, -1:]
        batch = RunningBatch(self._logits, list(rows), cache, mask, last, logits, ids[:, -1:])
        if len(prompts) < len(rows):  # from here on each row has its own cache
            batch.select(torch.tensor([prompts[tuple(row.prompt_ids)] for row in rows], device=self.device))
        return batch

    def _logits(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
        """The logits of the next token of every row, after the tokens in the cache and these."""
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_name: cache},
            **self._last_only,
        )
        return output.logits[:, -1].float()

    def _choose(self, rows: list[Row], logits: torch.Tensor) -> torch.Tensor:
        """The next token of every row, with its log-probability under the model itself (temperature 1)."""
        tokens = logits.argmax(-1)
        sampled = [i for i, row in enumerate(rows) if row.temperature > 0]
        if sampled:
            chosen = [rows[i] for i in sampled]
            index = torch.tensor(sampled, device=self.device)
            temperature = torch.tensor([row.temperature for row in chosen], device=self.device)
            tokens[index] = self._sample(chosen, torch.softmax(logits[index] / temperature[:, None], -1))
        found = torch.log_softmax(logits, -1).gather(1, tokens[:, None]).squeeze(1)
        for row, token, logprob in zip(rows, tokens.tolist(), found.tolist(), strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)
        return tokens[:, None]

    def _sample(self, rows: list[Row], probabilities: torch.Tensor) -> torch.Tensor:
        """Inverse transform sampling: one random number per row and step.

        The number comes from the row's own generator, so the draw depends neither on the other rows of the
        batch nor on the device.
        """
        draws = torch.tensor([row.random.random() for row in rows], dtype=torch.double, device=self.device)
        picks = _pick(probabilities, draws)
        if nucleus := [i for i, row in enumerate(rows) if row.top_p < 1.0]:
            index = torch.tensor(nucleus, device=self.device)
            likely, order = probabilities[index].sort(dim=-1, descending=True)
            top = torch.tensor([rows[i].top_p for i in nucleus], device=self.device)
            before = likely.cumsum(-1) - likely
            likely = likely.masked_fill((before >= top[:, None]) & (before > 0), 0.0)
            picks[index] = order.gather(1, _pick(likely, draws[index])[:, None]).squeeze(1)
        return picks

    def _ended(self, row: Row) -> bool:
        if row.ids[-1] in self.ends:
            row.finish = "stop"
        elif row.stop:
            # A stop of n characters lies within the last 4n tokens, even if each holds one byte of UTF-8.
            tail = row.ids[-(4 * max(map(len, row.stop)) + 8) :]
            text = self.tokenizer.decode(tail, skip_special_tokens=True)
            if any(stop in text for stop in row.stop):
                row.finish = "stop"
        if not row.finish and self._left(row) <= 0:
            row.finish = "length"
        return bool(row.finish)

    def _left(self, row: Row) -> int:
        """The most tokens that a row may still get."""
        return min(row.max_tokens, self.context - len(row.prompt_ids)) - len(row.ids)

    def _decode(self, row: Row) -> None:
        ids = row.ids[:-1] if row.ids[-1] in self.ends else row.ids
        row.text = self.tokenizer.decode(ids, skip_special_tokens=True)
        for stop in row.stop:
            row.text = row.text.split(stop, 1)[0]


def _pick(probabilities: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """The places where the cumulative probabilities (rows, tokens) of rows pass their random numbers (rows,)."""
    edges = probabilities.double().cumsum(-1)
    # A number below 1, times the sum, is below the sum: the edge that passes it is that of a token with a probability.
    picks = torch.searchsorted(edges, (draws * edges[:, -1])[:, None], right=True).squeeze(1)
    return picks.clamp(max=edges.shape[1] - 1)  # logits that are no numbers pass none


def group_by_length(rows: Sequence[Row]) -> list[list[Row]]:
    """Groups in which no prompt is much longer than the shortest, so that little is padding; the shortest first."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: len(row.prompt_ids)):
        if groups and len(row.prompt_ids) <= 1.5 * len(groups[-1][0].prompt_ids) + 64:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def free_device_memory() -> None:
    """Give a GPU what this process no longer uses of it, for other processes: torch keeps freed memory for itself, and
    a model may be part of a ring of references."""
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


def generate_within_memory(generator: Generator, rows: list[Row], refill: Refill | None = None) -> None:
    """Complete the rows, and those that a refill has; in halves, which no others join, where the memory does not
    suffice for all at once. A row that does not fit by itself gets an error."""
    refill, taken = refill or Refill(), list(rows)

    def take(running: int) -> list[Row]:
        found = refill.take(running)
        taken.extend(found)
        return found

    try:
        return generator.generate(rows, Refill(take, refill.give))
    except torch.OutOfMemoryError:
        if len(taken) == 1:
            rows[0].error = LMError("too_long", "not enough memory for this prompt and max_tokens")
            return refill.give(rows[0])
    torch.cuda.empty_cache()
    left = [row for row in taken if not row.finish]
    for row in left:
        row.restart()
    for half in (left[: len(left) // 2], left[len(left) // 2 :]):
        if half:
            generate_within_memory(generator, half, Refill(give=refill.give))
