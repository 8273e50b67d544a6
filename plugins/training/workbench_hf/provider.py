"""The LM `hf:PATH-or-hub-id`: batches the calls that wait together, in one thread of this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbench.base.distribution import pip_install
from workbench.base.files import weights_digest
from workbench.errors import LMError, PluginError, SpecError, suggest
from workbench.lm import Request, Response
from workbench_engine.chat_template import check_template_settings
from workbench_engine.checkpoint import check_checkpoint
from workbench_kit.lms.batching import Batcher, derive_seed
from workbench_kit.lms.native_calls import check_format, check_tools, read_native_calls

CONCURRENCY = 16
_WHOLE = 1 << 30  # files up to this size are hashed whole
_SETTINGS = {"device", "dtype", "revision", "chat_template_kwargs"}

#: Settings such as a node's temperature make LMs of their own, which must not load the weights again.
_ENGINES: dict[tuple, _Engine] = {}


def hf(model: str, settings: Any) -> HFLM:
    """A local folder or a hub id. Raises PluginError without the extra `local`, SpecError if it is unfit."""
    for package, least in (("torch", (2, 11)), ("transformers", (5, 0)), ("safetensors", (0, 5))):
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "0.0"
        if tuple(int(part) for part in found.split("+")[0].split(".")[:2]) < least:
            wanted = ".".join(map(str, least))
            raise PluginError(f"hf: models need {package}>={wanted}: {pip_install('training[local]')}")
    return HFLM(model, settings)


class HFLM:
    """An LM over a Hugging Face checkpoint. Loads it when it is first called; equal ones share what is loaded.

    settings.extra: `device`, `dtype` (such as bfloat16), `revision` of a hub id, and `chat_template_kwargs`, with which
    its chat template is rendered (such as {enable_thinking: false}).
    """

    def __init__(self, model: str, settings: Any):
        extra = dict(settings.extra or {})
        if unknown := extra.keys() - _SETTINGS:
            raise SpecError(f"hf: unknown setting '{min(unknown)}'", hint=suggest(min(unknown), _SETTINGS))
        folder = Path(model).expanduser()
        if folder.is_dir():
            if not list(folder.glob("*.safetensors")):
                raise SpecError(f"'{model}' holds no .safetensors file; others can run code when loaded")
            check_checkpoint(str(folder))
            self.identity = f"hf:{folder.name}@{_digest(folder)}"
        elif folder.is_absolute() or model.startswith((".", "~")):
            raise SpecError(f"no folder '{model}'", path=("lm",))
        else:
            self.identity = f"hf:{model}@{extra.get('revision', 'main')}"
        # A commit of a hub names the weights, a branch or a tag does not.
        self.reusable = folder.is_dir() or re.fullmatch("[0-9a-f]{40}", str(extra.get("revision"))) is not None
        if "dtype" in extra:
            self.identity += f"({extra['dtype']})"
        if "chat_template_kwargs" in extra:
            extra["chat_template_kwargs"] = check_template_settings(extra["chat_template_kwargs"])
            self.identity += json.dumps(extra["chat_template_kwargs"], sort_keys=True)
        self.weights = str(folder) if folder.is_dir() else model
        self.concurrency = settings.concurrency or CONCURRENCY
        # The identity is part of the key: a checkpoint that was trained further meanwhile is loaded anew.
        self._extra = extra
        self._key = (self.identity, str(folder), self.concurrency, json.dumps(extra, sort_keys=True))
        self._engine: _Engine | None = None
        self._closed = False
        self._answer: Callable[[Request], Awaitable[Response]] | None = None

    def _use_engine(self) -> _Engine:
        """Return the engine, which equal LMs share. Raises RuntimeError if this one is closed."""
        if self._closed:
            raise RuntimeError(f"{self.identity} is closed")
        if self._engine is None:  # only now a user: whoever checks a file makes an LM, and neither calls nor closes it
            self._engine = _ENGINES.get(self._key)
            if self._engine is None:
                self._engine = _ENGINES[self._key] = _Engine(self._key, self.weights, self._extra, self._key[2])
            self._engine.users += 1
        return self._engine

    @property
    def bound(self) -> bool:
        """Return True while an engine of this process answers."""
        return self._answer is not None

    def delegate(self, answer: Callable[[Request], Awaitable[Response]] | None, concurrency: int = 1) -> None:
        """Let an engine elsewhere answer that has these weights; None: answer here again."""
        self._answer = answer
        if answer is not None:
            self.concurrency = concurrency

    async def complete(self, request: Request) -> Response:
        """Generate one answer. Raises LMError: too_long, bad_request, unsupported (formats, and tools that the chat
        template does not show)."""
        check_format(request)
        if self._answer is not None and not self._closed:
            return await self._answer(request)
        return await self._use_engine().batcher.submit(request)

    async def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """For each text the mean of the last hidden states of its tokens, and how many tokens that were."""
        batcher = self._use_engine().batcher
        found = await asyncio.gather(*(batcher.submit(text) for text in texts))
        return [vector for vector, _ in found], sum(count for _, count in found)

    def with_weights(self, folder: str) -> dict[str, Any]:
        return {"model": f"hf:{folder}"}

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        """Free the weights, if no other LM uses them."""
        engine, self._engine, self._closed = self._engine, None, True
        if engine is not None:
            await engine.release()


class _Engine:
    """The engine that equal LMs share: the loaded checkpoint, and the batcher with its thread."""

    def __init__(self, key: tuple, source: str, extra: dict[str, Any], max_batch: int):
        self.users = 0
        self.batcher: Batcher[Any, Any] = Batcher(self._serve, max_batch=max(1, max_batch))
        self._key, self._source, self._extra, self._generator = key, source, extra, None

    async def release(self) -> None:
        self.users -= 1
        if self.users == 0:
            _ENGINES.pop(self._key, None)
            await self.batcher.aclose()
            self._generator = None

    def _serve(self, requests: list[Request | str]) -> list[Any]:
        """In the worker thread: one generate for prompts of similar length, so that padding stays small. A text is to
        be embedded; each by itself, so that its vector does not depend on what came with it."""
        from workbench_engine.generation import Row, generate_within_memory, group_by_length

        generator = self._generator or self._load()
        results: list[Any] = [None] * len(requests)
        rows: list[Row] = []
        asked: dict[int, tuple[int, Request]] = {}  # by the identity of a row: the place among the requests
        for i, request in enumerate(requests):
            if isinstance(request, str):
                results[i] = generator.mean_state(request)
                continue
            try:
                check_tools(request, generator.tokenizer)
                ids = generator.encode([dict(message) for message in request.messages], request.tools)
            except LMError as error:
                results[i] = error
                continue
            except Exception as error:  # a chat template refuses by raising whatever it likes
                results[i] = LMError("bad_request", f"the chat template refuses the messages: {error}")
                continue
            if len(ids) >= generator.context:
                text = f"the prompt has {len(ids)} tokens, the model's context {generator.context}"
                results[i] = LMError("too_long", text)
                continue
            limit = max(1, request.max_tokens)
            stop = tuple(stop for stop in request.stop if stop)
            row = Row(ids, limit, request.temperature, request.top_p, stop, derive_seed(request))
            rows.append(row)
            asked[id(row)] = (i, request)
        for group in group_by_length(rows):
            generate_within_memory(generator, group)
        for row in rows:
            i, request = asked[id(row)]
            results[i] = row.error or read_native_calls(row.response(), request)
        return [result or RuntimeError("not generated") for result in results]

    def _load(self) -> Any:
        from workbench_engine.generation import Generator

        try:
            self._generator = Generator.load(self._source, **self._extra)
        except (OSError, ValueError, AttributeError, SpecError) as error:
            raise LMError("bad_request", f"{self._source} cannot be loaded: {str(error)[:300]}") from error
        return self._generator


def _digest(folder: Path) -> str:
    """A hash of the checkpoint; very large files count by size, date and beginning."""
    suffixes = (".safetensors", ".json", ".jinja", ".model", ".txt")
    paths = sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    parts = [path.name.encode() + b"\0" + _file_digest(path) for path in paths]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _file_digest(path: Path) -> bytes:
    status = path.stat()
    if status.st_size <= _WHOLE:
        return bytes.fromhex(weights_digest(path))
    with path.open("rb") as file:
        return f"{status.st_size} {status.st_mtime_ns}".encode() + file.read(1 << 20)
