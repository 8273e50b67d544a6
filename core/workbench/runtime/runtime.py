"""Shared state of all examples of a run: ledger, language models by role, sandbox, embedders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from workbench.errors import SandboxError, SpecError
from workbench.ledger import Ledger, Settled
from workbench.lm import LM, LMPool, Request, Response, call_id, count_images
from workbench.runtime.draw import Draw
from workbench.runtime.embedding import Embedder
from workbench.runtime.sandbox import LEVELS, Sandbox, SandboxChoice, open_sandbox
from workbench.spec import LMSpec, PolicySpec, Spec
from workbench.store import RunRecord
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow, task_lm

#: Asks a person whether a tool may be called with these arguments.
Consent = Callable[[str, Mapping[str, Any]], bool]


class Shared(Protocol):
    """An object in `Runtime.shared`. warnings: lines for the report of the run. kept_state: state observed to outlive
    rows, as parts of a sentence (`NodeKind.kept_state`)."""

    def warnings(self) -> list[str]: ...

    def kept_state(self) -> list[str]: ...

    async def aclose(self) -> None: ...


class RowRunner(Shared, Protocol):
    """An object for `Runtime.elsewhere`, which runs rows and closes with the run."""

    async def open(self) -> None:
        """Start whatever runs the rows. Raises SpecError or PluginError if it cannot."""
        ...

    async def run(self, workflow: Workflow, example: Example, draw: Draw) -> ExampleRun:
        """Run a row, also without an earlier `open`. Raises errors that end the run, such as BudgetSpent."""
        ...


S = TypeVar("S", bound=Shared)


@dataclass
class Runtime:
    """Shared state of all examples of a run: the ledger, and the language models by role."""

    ledger: Ledger
    lm: LMSpec
    roles: Mapping[Any, LMSpec] = field(default_factory=dict)
    pool: LMPool = field(default_factory=LMPool)
    policy: PolicySpec = field(default_factory=lambda: PolicySpec())
    consent: Consent | None = None
    sandbox_choice: SandboxChoice = field(default_factory=SandboxChoice.from_environment)
    timeout: float = 300.0  # seconds for a tool, a step of an environment, or a metric of the user's own
    elsewhere: RowRunner | None = None  # runs the rows if they do not run in this process
    data_files: frozenset[Path] = frozenset()  # with the rows and their right answers, which no agent may see
    _sandbox: Sandbox | None = None
    _shared: dict[str, Shared] = field(default_factory=dict[str, Shared])
    _embedders: dict[tuple[str, str], Embedder] = field(default_factory=dict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _flying: dict[str, asyncio.Future[Any]] = field(default_factory=dict)  # effects in flight, for all callers

    @classmethod
    def of_spec(
        cls,
        spec: Spec,
        ledger: Ledger,
        *,
        pool: LMPool | None = None,
        sandbox: SandboxChoice | None = None,
        consent: Consent | None = None,
        data_files: frozenset[Path] = frozenset(),
    ) -> Runtime:
        """Make the runtime for a workflow file. pool: replaces the plugins' language models."""
        sandbox = sandbox or SandboxChoice.from_environment()
        made = cls(ledger, spec.lm, spec.roles, pool or LMPool(), spec.policy, consent, sandbox, spec.timeout)
        made.data_files = data_files
        return made

    async def sandbox(self) -> Sandbox:
        """Return the sandbox, opened at first use. Its level is stored. A resumed run refuses a weaker one."""
        async with self._opening:
            if self._sandbox is None:
                opened = await open_sandbox(self.sandbox_choice)
                try:
                    await self.agree_on_level(opened)
                except BaseException:
                    await opened.aclose()
                    raise
                self._sandbox = opened
            return self._sandbox

    async def agree_on_level(self, opened: Sandbox) -> None:
        self.note_sandbox(opened.name, opened.level)

    def note_sandbox(self, name: str, level: str) -> None:
        """Store the level of the run's sandbox. Raises SandboxError if it is weaker than at the start of the run."""
        store, run_id = self.ledger.store, self.ledger.run_id
        begun_in = RunRecord(store, run_id).find_sandbox()
        earlier = begun_in["level"] if begun_in else level
        if LEVELS.index(level) > LEVELS.index(earlier):
            raise SandboxError(
                f"this run began in a sandbox of level {earlier}, and here it would be {level}",
                hint="Resume it where it began, or start a new run.",
            )
        if begun_in is None:
            store.event(run_id, "sandbox", name=name, level=level)

    async def shared(self, name: str, open_it: Callable[[], Awaitable[S]]) -> S:
        """Return an object that all examples share, e.g. a server: opened at first use, closed with the run."""
        async with self._opening:
            if name not in self._shared:
                self._shared[name] = await open_it()
        return cast(S, self._shared[name])

    def warnings(self) -> list[str]:
        """Collect the warnings of the shared objects at the end of a run."""
        there = self.elsewhere.warnings() if self.elsewhere is not None else []
        return [*(line for thing in self._shared.values() for line in thing.warnings()), *there]

    def kept_state(self) -> list[str]:
        """Describe state that outlived rows in shared objects, as parts of a sentence. If any, no gain is shown."""
        there = self.elsewhere.kept_state() if self.elsewhere is not None else []
        return [*(line for thing in self._shared.values() for line in thing.kept_state()), *there]

    async def aclose(self) -> None:
        """Close the language models, the sandbox, and the shared objects."""
        if self.elsewhere is not None:
            await self.elsewhere.aclose()
        for thing in self._shared.values():
            await thing.aclose()
        self._shared.clear()
        if self._sandbox is not None:
            await self._sandbox.aclose()
            self._sandbox = None
        await self.pool.aclose()

    def lm_spec(self, role: str, workflow: Workflow | None = None) -> LMSpec:
        """Return the LM of a role. A role missing in the file has the task's LM, which a patch of `lm` may change."""
        if role in self.roles:
            return self.roles[role]
        return self.lm if workflow is None else task_lm(self.lm, workflow)

    async def complete(
        self, spec: LMSpec, request: Request, role: str, sender: Callable[[LM], LM] | None = None
    ) -> tuple[Response, Settled]:
        """Return the response and how it was paid. sender: makes a stand-in for the language model, which sends from
        another process. Raises LMError if the call failed for good, and SpecError for an image to a model that takes
        none."""
        lm, request = self.pool.get(spec), self.fit(spec, request)
        if not self.reads_images(spec) and any(map(count_images, request.messages)):
            raise SpecError(f"{spec.model} reads no images", hint="Name a model behind openai/ or LiteLLM that does.")
        settled = await self.ledger.call(lm if sender is None else sender(lm), request, role, spec)
        if settled.error is not None:
            settled.error.key = settled.key
            raise settled.error
        assert settled.response is not None
        most = lm.price(settled.response.prompt_tokens, request.max_tokens)
        return _with_ids(settled.response, len(request.messages)), replace(settled, max_usd=most)

    def speaks(self, spec: LMSpec, api: str) -> bool:
        """Return True if a request in the form of an API (`workbench.lm.API_PATHS`) passes to this model unchanged."""
        return api in getattr(self.pool.get(spec), "apis", ())

    def fit(self, spec: LMSpec, request: Request) -> Request:
        """Return the request to send: converted to chat completions if the model's server does not speak its API.
        Raises NotCarried if the conversion would lose something."""
        native = request.native
        return request if native is None or self.speaks(spec, native.api) else request.converted()

    def reads_images(self, spec: LMSpec) -> bool:
        """Return True if a language model takes images."""
        return getattr(self.pool.get(spec), "reads_images", False)

    async def shared_effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run an effect whose JSON result does not depend on the caller, once for this content, and journal it.

        Callers during the run wait for the same result or exception. An exception is not journalled, so a later call
        runs the effect again.
        """
        key = json.dumps([kind, content], sort_keys=True, default=str)
        while (flying := self._flying.get(key)) is not None:
            await asyncio.wait([flying])
            if not flying.cancelled():
                return flying.result()
        flying = self._flying[key] = asyncio.ensure_future(self.ledger.effect(kind, [content], run))
        try:
            return await flying
        finally:
            del self._flying[key]

    def embedder(self, spec: LMSpec, role: str) -> Embedder:
        """Return a model's embedder, shared by all nodes. Raises SpecError for a model that cannot embed."""
        lm = self.pool.get(spec)
        if (lm.identity, role) not in self._embedders:
            self._embedders[lm.identity, role] = Embedder(
                lm, lambda lm, request: self.pay_vectors(lm, request, role, spec)
            )
        return self._embedders[lm.identity, role]

    async def pay_vectors(self, lm: LM, request: Request, role: str, spec: LMSpec) -> Settled:
        return await self.ledger.call(lm, request, role, spec)


def _with_ids(response: Response, turn: int) -> Response:
    """Return the response with an id for each tool call, to match its result. turn: keeps it apart from ids of other
    turns."""
    ids = [call.get("id") for call in response.tool_calls]
    if all(isinstance(one, str) and one for one in ids) and len({*ids}) == len(ids):
        return response
    calls = tuple({**call, "id": call_id(turn, n)} for n, call in enumerate(response.tool_calls))
    return replace(response, tool_calls=calls)
