"""The LM `policy:NAME@VERSION`: a policy in training in this process, at one version of its weights.

A call for another version than the live one is refused, so an answer of stale weights is never taken for a fresh one.
The version is the step that draws. Its weights are those before the step's update; with `schedule.staleness` 1 those
before the update of the step before, if that was not yet made when the drawing began.
Conversations are token-in, token-out: where a request continues an answer that this policy sampled, its prompt begins
with exactly the tokens of that answer; only new text is tokenized.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench_engine.chat_template import render_chat
from workbench_kit.lms.batching import Job, RefillingBatcher, derive_seed
from workbench_kit.lms.native_calls import (
    check_format,
    check_tools,
    read_native_calls,
    same_said,
    to_message,
    to_template,
)
from workbench_training.rollouts.stragglers import CUT

if TYPE_CHECKING:
    from workbench_engine.generation import Generator, Row

CONCURRENCY = 64
_Job: TypeAlias = Job[Request, Response]


class Engine(Protocol):
    """Samples a policy's tokens, in this process or on a server that receives its weights.

    concurrency: requests in flight where the workflow's LM sets none.
    """

    version: int
    concurrency: int
    conversations: Conversations

    def at(self, version: int) -> Awaitable[None] | None:
        """Draw with the policy's current weights, under this version, until the next `at`."""
        ...

    def rest(self) -> Awaitable[None] | None:
        """Free what drawing needs, until the next `at`."""
        ...

    async def complete(self, request: Request) -> Response: ...

    async def aclose(self) -> None: ...


async def wait_if_any(waiting: Awaitable[None] | None) -> None:
    """Await what `at` or `rest` of an engine gives, where that is anything."""
    if waiting is not None:
        await waiting


@runtime_checkable
class FileEngine(Protocol):
    """An engine on a server. sends_files: weights on their way to it are on disk."""

    sends_files: bool


@runtime_checkable
class CandidateEngine(Protocol):
    """An engine that also draws for the evaluation of candidates, if `candidates` says so."""

    candidates: bool
    concurrency: int

    async def hold_candidate(self, step: int) -> None:
        """Take the policy's current weights, for `answer` alone: no version draws until the next `at`."""
        ...

    async def answer(self, request: Request) -> Response:
        """Answer, as a checkpoint of these weights would answer. Raises LMError."""
        ...


#: The engines of the policies that are trained in this process, by name.
LIVE: dict[str, Engine] = {}


def policy(model: str, settings: Any) -> PolicyLM:
    """The LM of the name `NAME@VERSION`, as rollouts use it."""
    name, _, version = model.rpartition("@")
    engine = LIVE.get(name)
    return PolicyLM(name, int(version), settings.concurrency or (engine.concurrency if engine else CONCURRENCY))


class PolicyLM:
    """An LM that answers only while its policy is at its version."""

    bound = True  # its weights are here
    reusable = False  # the version says how often it was trained, not what its weights are

    def __init__(self, name: str, version: int, concurrency: int):
        self.name, self.version, self.concurrency = name, version, concurrency
        self.identity = f"policy:{name}@{version}"

    async def complete(self, request: Request) -> Response:
        """Answer with token ids and log-probabilities. Raises LMError."""
        engine = LIVE.get(self.name)
        if engine is None:
            raise LMError("unsupported", f"{self.identity} is not being trained in this process")
        if engine.version != self.version:
            raise LMError("unsupported", f"{self.identity} is gone: the policy is at version {engine.version}")
        return await engine.complete(request)

    def recall(self, request: Request, response: Response) -> None:
        """Record an answer of this version from the journal: later turns continue from its tokens."""
        engine = LIVE.get(self.name)
        if engine is not None and engine.version == self.version:
            engine.conversations.remember(request, response)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


class _Known(NamedTuple):
    """A conversation up to a sampled answer: its tokens, and how many of them are its first prompt."""

    ids: tuple[int, ...]
    first: int


class Conversations:
    """The token ids of sampled answers, by the messages up to them.

    settings: of the chat template, as `encode` has them. limit: the most tokens of a conversation after its first
    prompt.
    """

    def __init__(self, tokenizer: Any, ends: set[int], encode: Any, settings: Mapping[str, Any] | None = None):
        self.tokenizer, self.ends, self.encode, self.settings = tokenizer, ends, encode, settings
        self._known: dict[str, _Known] = {}
        self.limit: int | None = None

    def forget(self) -> None:
        self._known.clear()

    def remember(self, request: Request, response: Response) -> None:
        """Keep an answer that ended by an end token, which is how a template ends it, too."""
        ids = response.token_ids or ()
        if ids and ids[-1] in self.ends and self.tokenizer.chat_template and response.prompt_ids is not None:
            said = [*request.messages, to_message(response)]
            known = _Known(response.prompt_ids + ids, self._first(request, response.prompt_ids))
            self._known[self._key(said, request.replica)] = known

    def prompt_ids(self, request: Request) -> list[int]:
        """The prompt of a request. Raises whatever the chat template raises."""
        messages = [dict(m) for m in request.messages]
        for end in range(len(messages) - 1, 0, -1):
            known = self._known.get(self._key(messages[:end], request.replica))
            if known is not None and (rest := self._after(request, end, known.ids)) is not None:
                return [*known.ids, *rest]
        return self.encode(messages, request.tools)

    def max_tokens(self, request: Request, prompt: Sequence[int]) -> int:
        """The most tokens of the answer. Raises LMError where the conversation has as many as it may."""
        if self.limit is None:
            return request.max_tokens
        so_far = len(prompt) - self._first(request, tuple(prompt))
        if so_far >= self.limit:
            raise LMError("too_long", f"{CUT}: the conversation has {so_far} tokens, of {self.limit} at most")
        return min(request.max_tokens, self.limit - so_far)

    def _first(self, request: Request, prompt: tuple[int, ...]) -> int:
        """The length of the first prompt of a conversation, in tokens."""
        for end in range(len(request.messages) - 1, 0, -1):
            known = self._known.get(self._key(request.messages[:end], request.replica))
            if known is not None and prompt[: len(known.ids)] == known.ids:
                return known.first
        return len(prompt)

    def _after(self, request: Request, end: int, known: tuple[int, ...]) -> list[int] | None:
        """Tokens of what the template writes after the answer that ends messages[:end]; None if it rewrites history."""
        messages, last = to_template(request.messages), self.tokenizer.decode([known[-1]])
        render = partial(render_chat, self.tokenizer, tools=request.tools, settings=self.settings)
        whole = render(messages, add_generation_prompt=True)
        before = render(messages[: end - 1], add_generation_prompt=True)
        if not messages[end - 1].get("tool_calls"):
            before += messages[end - 1]["content"] + last
        elif whole.startswith(before):
            # The template writes the calls in its own JSON: what follows begins after the end of that turn.
            said = render(messages[:end])
            place = said.rfind(last, len(before))
            before = said[: place + len(last)] if place >= 0 else whole + last
        if not whole.startswith(before):
            return None
        return self.tokenizer(whole[len(before) :], add_special_tokens=False)["input_ids"]

    def _key(self, messages: Sequence[Mapping[str, Any]], replica: int) -> str:
        text = json.dumps([[same_said(m) for m in messages], replica], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def make_conversations(generator: Any) -> Conversations:
    """The conversations of a generator, whose chat template they continue with its settings."""
    return Conversations(generator.tokenizer, generator.ends, generator.encode, generator.template_settings)


class LocalEngine:
    """Draws with the weights in this process, in batches.

    continuous: requests join the running batch in the places of complete answers. Which ones share a batch then depends
    on their timing, and by that the last bits of what is computed. None: on a GPU, where these bits vary anyway.
    """

    def __init__(
        self, generator: Any, version: int = 0, max_batch: int = CONCURRENCY, *, continuous: bool | None = None
    ):
        self.generator, self.version, self.concurrency = generator, version, max_batch
        self.continuous = generator.device.type != "cpu" if continuous is None else continuous
        self.conversations = make_conversations(generator)
        self._batcher = RefillingBatcher[Request, Response](self._serve, max_batch=max_batch)

    def at(self, version: int) -> None:
        """Set the version of the current weights."""
        self.version = version
        self.conversations.forget()

    def rest(self) -> None:
        pass

    async def complete(self, request: Request) -> Response:
        check_format(request)
        check_tools(request, self.generator.tokenizer)
        return await self._batcher.submit(request)

    async def aclose(self) -> None:
        await self._batcher.aclose()

    def _serve(self, jobs: list[_Job], take: Callable[[int], list[_Job]]) -> None:
        """In the worker thread: one batch, which others may join while it runs."""
        from workbench_engine.generation import Refill, generate_within_memory, group_by_length

        asked: dict[int, _Job] = {}  # by the identity of a row

        def make_rows(found: list[_Job]) -> list[Row]:
            rows: list[Row] = []
            for job in found:
                try:
                    rows.append(self._make_row(job.item))
                except LMError as error:
                    job.finish(error)
                else:
                    asked[id(rows[-1])] = job
            return rows

        def give(row: Row) -> None:
            job = asked.pop(id(row))
            job.finish(self._response(row, job.item))

        if not self.continuous:  # answered together, so that what follows them shares a batch again
            for row in self._generate(make_rows(jobs)):
                give(row)
            return
        waiting = group_by_length(make_rows(jobs))

        def join(running: int) -> list[Row]:
            found = [row for group in waiting for row in group]
            waiting.clear()
            return found + make_rows(take(self.concurrency - running - len(found)))

        while waiting:
            generate_within_memory(self.generator, waiting.pop(), Refill(join, give))

    def _generate(self, rows: list[Row]) -> list[Row]:
        """Complete the rows of a static batch. Returns them in the order in which they were complete."""
        return generate_static(self.generator, rows)

    def _response(self, row: Row, request: Request) -> Response | Exception:
        """The answer that a complete row holds, or its error."""
        if row.error is not None:
            return row.error
        response = read_native_calls(row.response(), request)
        self.conversations.remember(request, response)
        return response

    def _make_row(self, request: Request) -> Row:
        """Describe what to generate for a request. Raises LMError."""
        from workbench_engine.generation import Row

        try:
            ids = self.conversations.prompt_ids(request)
        except Exception as error:  # a chat template may raise any exception
            raise LMError("bad_request", f"the chat template refuses the messages: {error}") from error
        if len(ids) >= self.generator.context:
            text = f"the prompt has {len(ids)} tokens, the model's context {self.generator.context}"
            raise LMError("too_long", text)
        # Another version draws anew: with the same numbers it would hardly ever try anything else.
        seed = hash_numbers(derive_seed(request), self.version)
        stop = tuple(s for s in request.stop if s)
        most = max(1, self.conversations.max_tokens(request, ids))
        return Row(ids, most, request.temperature, request.top_p, stop, seed)


def generate_static(generator: Generator, rows: list[Row]) -> list[Row]:
    """Complete rows that no others join, those with long prompts first. Returns them in the order in which they were
    complete."""
    from workbench_engine.generation import Refill, generate_within_memory, group_by_length

    complete: list[Row] = []
    waiting = group_by_length(rows)
    while waiting:
        generate_within_memory(generator, waiting.pop(), Refill(give=complete.append))
    return complete


def hash_numbers(*values: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(values).encode()).digest()[:4], "big")
