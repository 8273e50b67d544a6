"""The LM `bundled/nano`: batches the calls that wait together, in one thread of this process."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

from workbench.base.files import weights_digest
from workbench.errors import LMError, SpecError, suggest
from workbench.lm import Request, Response
from workbench_kit.lms.batching import Batcher, derive_seed

CONCURRENCY = 16
WEIGHTS = Path(__file__).parent / "weights"


def bundled(model: str, settings: Any) -> NanoLM:
    """`bundled/nano`; `extra: {path: FOLDER}` runs other weights of the same form. Raises SpecError."""
    if model != "nano":
        raise SpecError(f"no bundled model '{model}'", hint=suggest(model, ["nano"]), path=("lm",))
    return NanoLM(settings)


class NanoLM:
    """An LM over `workbench_nano.model.Nano`. Loads the weights when it is first called."""

    def __init__(self, settings: Any):
        path = (settings.extra or {}).get("path")
        self._path = Path(path) if path else None
        self.weights = str(self._path or WEIGHTS)
        self.identity = f"bundled/nano@{_digest(self._path or WEIGHTS)}"
        self.concurrency = settings.concurrency or CONCURRENCY
        self._nano: Any = None
        self._batcher = Batcher[Request, Response](self._generate, max_batch=max(1, self.concurrency))

    async def complete(self, request: Request) -> Response:
        """Generate one answer. Raises LMError: too_long, or unsupported for tools and response formats."""
        if request.tools or request.response_format is not None:
            raise LMError("unsupported", "bundled/nano takes neither tools nor a response format")
        return await self._batcher.submit(request)

    def with_weights(self, folder: str) -> dict[str, Any]:
        return {"extra": {"path": folder}}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        await self._batcher.aclose()

    def _generate(self, requests: list[Request]) -> list[Response | Exception]:
        """In the worker thread: one generate for all requests that share the settings which it takes once."""
        if self._nano is None:
            self._nano = _load(self._path)
        groups: dict[Any, list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            groups[request.max_tokens, request.stop, request.top_p].append(index)
        results: dict[int, Response | Exception] = {}
        for indices in groups.values():
            answers = self._group([requests[i] for i in indices])
            results.update(zip(indices, answers, strict=True))
        return [results[i] for i in range(len(requests))]

    def _group(self, requests: list[Request]) -> list[Response | Exception]:
        first = requests[0]
        try:
            completions = self._nano.generate(
                [[dict(message) for message in request.messages] for request in requests],
                max_tokens=max(1, first.max_tokens),
                temperature=[request.temperature for request in requests],
                seeds=[derive_seed(request) for request in requests],
                stop=list(first.stop),
                top_p=first.top_p,
            )
        except ValueError as error:  # one of the prompts is unfit: only its own call may fail
            if len(requests) == 1:
                return [LMError("too_long" if "tokens" in str(error) else "bad_request", str(error))]
            return [answer for request in requests for answer in self._group([request])]
        return [_response(completion) for completion in completions]


def _load(path: Path | None) -> Any:
    from workbench_nano.model import Nano  # imports the heavy parts

    return Nano.load(path)


def _response(completion: Any) -> Response:
    finish = completion.finish if completion.text.strip() or completion.finish == "length" else "empty"
    return Response(
        completion.text,
        finish,
        len(completion.prompt_ids),
        len(completion.completion_ids),
        usd=0.0,
        prompt_ids=tuple(completion.prompt_ids),
        token_ids=tuple(completion.completion_ids),
        logprobs=tuple(completion.logprobs),
    )


def _digest(folder: Path) -> str:
    """A hash of the weights and what lies beside them: answers of others must never be taken for these."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*") if folder.is_dir() else [folder]):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + bytes.fromhex(weights_digest(path)))
    return digest.hexdigest()[:16]
