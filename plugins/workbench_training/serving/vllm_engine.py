"""Sampling on a vLLM server: after each step it loads the policy's adapter under a name that contains the version.

The server may be started by the user, on a machine that sees the same files:

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve BASE --enable-lora --max-lora-rank 16 --max-loras 2

Stale weights cannot answer: a request names the version, the server refuses an unknown name, and after each load the
log-probabilities of a probe must agree with the policy's own. Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp

from workbench.errors import LMError, WorkbenchError
from workbench.kit.batching import derive_seed
from workbench.lm import MAX_BODY, Request, Response, kind_of_status, redact
from workbench_training.correction import measure_gap
from workbench_training.model.policy import Policy
from workbench_training.rollouts.token_rows import Row, collate
from workbench_training.serving.policy_lm import Conversations, hash_numbers

PROBE_TOKENS = 8


class SyncError(WorkbenchError):
    """The server did not take the weights, or does not answer as they do."""


class ServerEngine:
    """Draws on a vLLM server. timeout, sync_timeout: seconds for an answer, and for taking weights. probe_gap,
    probe_kl: as in `ServerSettings`."""

    def __init__(
        self,
        url: str,
        name: str,
        policy: Policy,
        folder: Path,
        *,
        timeout: float = 600.0,
        sync_timeout: float = 300.0,
        probe_gap: float = 0.2,
        probe_kl: float = 0.1,
    ):
        self.url, self.name, self.policy, self.folder = url.rstrip("/").removesuffix("/v1"), name, policy, folder
        self.timeout, self.sync_timeout = timeout, sync_timeout
        self.probe_gap, self.probe_kl = probe_gap, probe_kl
        self.version = -1
        generator = policy.generator
        self.conversations = Conversations(generator.tokenizer, generator.ends, generator.encode)
        self._session: aiohttp.ClientSession | None = None

    def lora_name(self, version: int) -> str:
        return f"{self.name}-v{version}"

    async def at(self, version: int) -> None:
        """Give the server the weights of this version, and check that it answers with them. Raises SyncError."""
        before, self.version = self.version, -1  # while weights are on their way nothing may be drawn
        place = self.folder / f"v{version}"
        place = await asyncio.to_thread(self.policy.save_adapter, place)
        body = {"lora_name": self.lora_name(version), "lora_path": str(place.resolve())}
        try:
            await self._post("/v1/load_lora_adapter", body, self.sync_timeout)
            if before >= 0:
                await self._post("/v1/unload_lora_adapter", {"lora_name": self.lora_name(before)}, self.sync_timeout)
            await self._check(version)
        except LMError as error:
            raise SyncError(f"the server at {self.url} did not take version {version}: {error}") from error
        self.version = version
        self.conversations.forget()

    async def _check(self, version: int) -> None:
        """A few tokens drawn by the server must be as likely here as it says."""
        prompt = self.policy.generator.encode([{"role": "user", "content": "1"}])
        probe = Request(({"role": "user", "content": "1"},), temperature=1.0, max_tokens=PROBE_TOKENS)
        response = await self._draw(probe, prompt, version)
        ids = response.token_ids or ()
        row = Row(tuple(prompt), ids, (1,) * len(ids), response.logprobs or (), 0.0, "probe")
        own = (await asyncio.to_thread(self.policy.log_probabilities, collate([row], self.policy.device)))[0][0]
        apart = [a - b for a, b in zip(own.tolist(), row.logprobs, strict=True)]
        gap, kl = measure_gap(apart)
        if not (gap <= self.probe_gap and kl <= self.probe_kl):
            raise SyncError(
                f"the server at {self.url} answers as other weights would: log-probabilities of version {version} "
                f"differ by {gap:.3g} on average, with a divergence of {kl:.3g}; allowed are {self.probe_gap:g} and "
                f"{self.probe_kl:g}"
            )

    async def complete(self, request: Request) -> Response:
        """One answer. Raises LMError."""
        if request.tools or request.response_format is not None:
            raise LMError("unsupported", "a policy takes neither tools nor a response format")
        try:
            prompt = self.conversations.prompt_ids(request)
        except Exception as error:  # a chat template refuses by raising whatever it likes
            raise LMError("bad_request", f"the chat template refuses the messages: {error}") from error
        response = await self._draw(request, prompt, self.version)
        self.conversations.remember(request, response)
        return response

    async def _draw(self, request: Request, prompt: list[int], version: int) -> Response:
        # All that bends the distribution is switched off by name: servers take defaults from the checkpoint.
        body = {
            "model": self.lora_name(version),
            "prompt": prompt,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop": list(request.stop),
            "seed": hash_numbers(derive_seed(request), version),
            "logprobs": 0,
            "return_token_ids": True,
        }
        found = await self._post("/v1/completions", body, self.timeout)
        try:
            if found["model"] != body["model"]:
                raise LMError("bad_body", f"asked {body['model']}, answered {found['model']}")
            choice = found["choices"][0]
            ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            if len(ids) != len(logprobs) or choice["prompt_token_ids"] != prompt:
                raise LMError("bad_body", "the server's tokens are not those that were asked for")
            text, cut = choice["text"], choice["finish_reason"] == "length"
        except (KeyError, IndexError, TypeError) as error:
            raise LMError("bad_body", f"no tokens in the answer ({error}): vLLM 0.10.2 or later gives them") from error
        finish = "length" if cut else "stop" if text.strip() else "empty"
        return Response(
            text,
            finish,
            len(prompt),
            len(ids),
            0.0,
            prompt_ids=tuple(prompt),
            token_ids=tuple(ids),
            logprobs=tuple(map(float, logprobs)),
        )

    async def _post(self, path: str, body: dict[str, Any], timeout: float) -> Any:
        """The JSON of an answer, or its text. Raises LMError with the server's own words."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        try:
            async with asyncio.timeout(timeout), self._session.post(self.url + path, json=body) as answer:
                text = await _text(answer)
                if answer.status >= 400:
                    wait = answer.headers.get("Retry-After", "")
                    raise LMError(
                        kind_of_status(answer.status),
                        redact(f"{path}: {answer.status} {text}")[:320],
                        status=answer.status,
                        retry_after=float(wait) if wait.isdigit() else None,
                    )
                return json.loads(text) if answer.content_type == "application/json" else text
        except TimeoutError as error:
            raise LMError("timeout", f"{path}: no answer within {timeout:g} s") from error
        except (aiohttp.ClientError, ValueError) as error:
            kind = "connection" if isinstance(error, aiohttp.ClientConnectorError) else "broken"
            raise LMError(kind, f"{path}: {type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _text(answer: aiohttp.ClientResponse) -> str:
    """The body, read while it is short enough. Raises LMError."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            answer.close()  # or the rest would be read on the way out
            raise LMError("bad_body", f"{answer.url.path}: a body over {MAX_BODY} bytes")
    return body.decode("utf-8", "replace")
