"""Drawing on a vLLM server: before each step it receives the policy's weights, as an adapter or in place of its own.

Stale weights cannot answer. An adapter's name contains its version, and the server refuses an unknown name. Where the
server's own weights are replaced, it is paused until the draws in flight have ended, and an answer that spans an update
is refused. After each update the log-probabilities of a probe must agree with the policy's own. Every wait has a
deadline.

The server may be started by the user, on a machine that sees the same files:

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve BASE --enable-lora --max-lora-rank 16 --max-loras 2
    VLLM_SERVER_DEV_MODE=1 vllm serve BASE
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, replace
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench_engine.generation import free_device_memory
from workbench_kit.lms.batching import derive_seed
from workbench_kit.lms.native_calls import check_format, check_tools, read_native_calls
from workbench_kit.wire import kind_of_error, read_finish
from workbench_training.correction import measure_gap
from workbench_training.model.policy import Policy
from workbench_training.rollouts.token_rows import Row, collate
from workbench_training.serving.policy_lm import hash_numbers, make_conversations
from workbench_training.serving.vllm_client import SyncError, VLLMClient
from workbench_training.serving.weight_transfer import WeightTransfer

PROBE_TOKENS = 8
#: How often these are drawn before new weights are given up: in bfloat16 one token in some thousands is so far apart
#: that the mean of eight passes any useful bound.
PROBES = 3
#: Requests in flight where the workflow's LM sets no concurrency: vLLM batches what it is given.
CONCURRENCY = 256


@dataclass
class Limits:
    """Of a server's engine. timeout, sync_timeout: seconds for an answer, and for each step of taking weights.
    probe_gap, probe_kl: on the tokens that test new weights, the most that log-probabilities may differ by on average,
    and the most divergence of the server from the policy. concurrency: requests in flight."""

    timeout: float = 600.0
    sync_timeout: float = 300.0
    probe_gap: float = 0.2
    probe_kl: float = 0.1
    concurrency: int = CONCURRENCY


class ServerEngine:
    """Draws on a vLLM server.

    Args:
        url: of the server.
        name: of the policy, and of its adapters on the server.
        policy: whose weights the server receives.
        transfer: how it receives them.
        limits: deadlines and bounds.
        seeds: send a seed with every request.
        sleep: the server frees its memory between drawing and the next weights.
        candidates: `answer` draws for the evaluation of candidates.
    """

    def __init__(
        self,
        url: str,
        name: str,
        policy: Policy,
        transfer: WeightTransfer,
        limits: Limits | None = None,
        *,
        seeds: bool = False,
        sleep: bool = False,
        candidates: bool = True,
    ):
        self.name, self.policy, self.transfer, self.limits = name, policy, transfer, limits or Limits()
        self.seeds, self.sleep, self.candidates, self.sends_files = seeds, sleep, candidates, transfer.in_files
        self.client = VLLMClient(url, self.limits.concurrency)
        self.concurrency, self.version = self.limits.concurrency, -1
        generator = policy.generator
        self.conversations = make_conversations(generator)
        self._context = generator.context
        self._base = ""  # the server's name of the model that it was started with; unknown until it is connected
        self._label = ""  # of the weights on the server; empty while they change
        self._updates, self._asleep = 0, False

    async def at(self, version: int) -> None:
        """Give the server the weights of this version, and check that it answers with them. Raises SyncError."""
        await self._give(f"v{version}")
        self.version = version

    async def hold_candidate(self, step: int) -> None:
        """Give the server the current weights, for `answer` alone: no version draws until the next `at`. Raises
        SyncError."""
        await self._give(f"c{step}")

    async def _give(self, label: str) -> None:
        self.version, self._label = -1, ""  # while weights are on their way nothing may be drawn
        try:
            if not self._base:
                await self._connect()
            await self._update(label)
            await self._check(label)
        except LMError as error:
            hint = "; it offers this route in development mode (VLLM_SERVER_DEV_MODE=1), and vLLM 0.32 has it"
            raise SyncError(
                f"the server at {self.client.url} did not take {_spelled(label)}: {error}"
                f"{hint if error.status == 404 and self.transfer.in_place else ''}"
            ) from error
        self._label = label
        self.conversations.forget()

    async def _connect(self) -> None:
        found = await self.client.get("/v1/models", self.limits.sync_timeout)
        try:
            model = next(m for m in found["data"] if not m.get("parent"))
            base, context = str(model["id"]), int(model.get("max_model_len") or self._context)
        except (KeyError, TypeError, StopIteration) as error:
            raise LMError("bad_body", f"/v1/models: {str(found)[:200]}") from error
        await self.transfer.check_version(self.client, self.limits.sync_timeout)
        await self.transfer.connect(self.client, self.limits.sync_timeout)
        self._base, self._context = base, min(context, self._context)

    async def _update(self, label: str) -> None:
        """Bring the policy's weights to the server. In place: without a draw in flight, and without what was computed
        of the weights before."""
        if self.transfer.in_place:
            if not self._asleep:  # a server that sleeps is paused
                await self._do("/pause?mode=wait")
            self._updates += 1
        await self._wake("weights" if self.transfer.in_place else "")
        await self.transfer.send(self.client, label, self.limits.sync_timeout)
        if self.transfer.in_place:
            await self._wake("kv_cache")
            found = await self._do("/reset_prefix_cache")
            if isinstance(found, dict) and found.get("success") is False:
                raise LMError("broken", "/reset_prefix_cache: keys and values of the weights before are still held")
            await self._do("/resume")
        self._asleep = False

    async def _wake(self, part: str) -> None:
        if not self._asleep:
            return
        free_device_memory()  # what this process holds free is what the server needs
        await self._do(f"/wake_up?tags={part}" if part else "/wake_up")

    async def rest(self) -> None:
        """Let the server free its memory until the next weights, if it is to. Raises SyncError."""
        if not self.sleep or self._asleep:
            return
        self.version, self._label = -1, ""
        level = 2 if self.transfer.in_place else 1  # 2 drops the weights, which come anew; an adapter's base stays
        try:
            await self._do(f"/sleep?level={level}&mode=wait")
        except LMError as error:
            raise SyncError(f"the server at {self.client.url} does not sleep: {error}") from error
        self._asleep = True

    async def _do(self, path: str) -> Any:
        return await self.client.post(path, None, self.limits.sync_timeout)

    async def _check(self, label: str) -> None:
        """A few tokens drawn by the server must be as likely here as it says. Where they are not, more are drawn, and
        all of them count."""
        prompt = self.policy.generator.encode([{"role": "user", "content": "1"}])
        apart, gap, kl = list[float](), 0.0, 0.0
        for number in range(PROBES):
            message = {"role": "user", "content": "1"}
            probe = Request((message,), temperature=1.0, max_tokens=PROBE_TOKENS, replica=number)
            response = await self._draw(probe, prompt, label)
            ids = response.token_ids or ()
            row = Row(tuple(prompt), ids, (1,) * len(ids), response.logprobs or (), 0.0, "probe")
            own = await asyncio.to_thread(self.policy.sampling_log_probabilities, collate([row], self.policy.device))
            apart += [a - b for a, b in zip(own[0].tolist(), row.logprobs, strict=True)]
            gap, kl = measure_gap(apart)
            if gap <= self.limits.probe_gap and kl <= self.limits.probe_kl:
                return
        raise SyncError(
            f"the server at {self.client.url} answers as other weights would: log-probabilities of "
            f"{_spelled(label)} differ by {gap:.3g} on average, with a divergence of {kl:.3g}; allowed are "
            f"{self.limits.probe_gap:g} and {self.limits.probe_kl:g}"
        )

    async def complete(self, request: Request) -> Response:
        """Ask the policy for an answer. Raises LMError."""
        self._require(f"v{self.version}")
        prompt = self._prompt(request, self.conversations.prompt_ids)
        limited = replace(request, max_tokens=self.conversations.max_tokens(request, prompt))
        response = read_native_calls(await self._draw(limited, prompt, self._label), request)
        self.conversations.remember(request, response)
        return response

    async def answer(self, request: Request) -> Response:
        """Ask the weights that were given last, as a checkpoint of them would answer. Raises LMError."""
        self._require(self._label)
        encode = self.policy.generator.encode
        prompt = self._prompt(request, lambda r: encode([dict(message) for message in r.messages], r.tools))
        return read_native_calls(await self._draw(request, prompt, self._label), request)

    def _require(self, label: str) -> None:
        if not label or label != self._label:
            raise LMError("unsupported", f"the server at {self.client.url} holds no weights to draw with: they change")

    def _prompt(self, request: Request, encode: Any) -> list[int]:
        check_format(request)
        check_tools(request, self.policy.generator.tokenizer)
        try:
            prompt = encode(request)
        except Exception as error:  # a chat template may raise any exception
            raise LMError("bad_request", f"the chat template refuses the messages: {error}") from error
        if len(prompt) >= self._context:
            raise LMError("too_long", f"the prompt has {len(prompt)} tokens, the model's context {self._context}")
        return prompt

    async def _draw(self, request: Request, prompt: list[int], label: str) -> Response:
        updates = self._updates
        body = self._body(request, prompt, label)
        found = await self.client.post("/v1/completions", body, self.limits.timeout)
        if updates != self._updates:
            raise LMError("broken", "the server's weights were replaced while this was drawn")
        return parse_completion(found, body)

    def _body(self, request: Request, prompt: list[int], label: str) -> dict[str, Any]:
        # All that bends the distribution is switched off by name: servers take defaults from the checkpoint.
        body = {
            "model": self._base if self.transfer.in_place else f"{self.name}-{label}",
            "prompt": prompt,
            "max_tokens": max(1, min(request.max_tokens, self._context - len(prompt))),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop": [stop for stop in request.stop if stop],
            "logprobs": 0,
            "return_token_ids": True,
        }
        if self.seeds:  # vLLM then samples row by row
            body["seed"] = hash_numbers(derive_seed(request), int(label[1:]))
        return body

    async def aclose(self) -> None:
        await self.client.aclose()


def parse_completion(found: Any, body: dict[str, Any]) -> Response:
    """The response in what the server gave to a request. Raises LMError where it is not the answer to that request,
    broke off, or lacks the log-probability of a token: nothing could be learned from it."""
    prompt = body["prompt"]
    if not is_dict(found) or found.get("error") or not found.get("choices"):
        raise LMError(kind_of_error(None, found), f"no answer: {str(found)[:200]}")
    if found.get("model") != body["model"]:
        raise LMError("bad_body", f"asked {body['model']}, answered {found.get('model')}")
    try:
        choice = found["choices"][0]
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        if len(ids) != len(logprobs) or choice["prompt_token_ids"] != prompt:
            raise LMError("bad_body", "the server's tokens are not those that were asked for")
        text, word = choice["text"], choice["finish_reason"]
    except (KeyError, IndexError, TypeError) as error:
        raise LMError("bad_body", f"no tokens in the answer ({error}): vLLM 0.10.2 or later gives them") from error
    if unknown := sum(not isinstance(one, int | float) or not math.isfinite(one) for one in logprobs):
        raise LMError("bad_body", f"no log-probability of {unknown} of {len(ids)} tokens")
    return Response(
        text,
        read_finish(word, text, False),
        len(prompt),
        len(ids),
        0.0,
        prompt_ids=tuple(prompt),
        token_ids=tuple(ids),
        logprobs=tuple(map(float, logprobs)),
    )


def _spelled(label: str) -> str:
    return f"version {label[1:]}" if label[0] == "v" else f"the candidate of step {label[1:]}"
