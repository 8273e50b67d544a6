"""`check_lm`: each check finds the fault that it is about, and no other check does (friction 30)."""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from tests.helpers.conformance import broken

from workbench.errors import LMError
from workbench.lm import Request, Response
from workbench_testing import LMCase, check_lm, lm_checks

VARIABLE = "WORKBENCH_TEST_KEY"
KINDS = {400: "bad_request", 401: "auth", 404: "blocked", 429: "rate_limit"}


class Client:
    """A provider that keeps its contract: one POST, and typed errors."""

    concurrency = 8

    def __init__(self, address: str):
        self.address, self.key = address, os.environ.get(VARIABLE, "")
        self.identity = f"m@{address}"

    async def complete(self, request: Request) -> Response:
        if request.tools:
            raise LMError("unsupported", "no tools")
        try:
            return await self.post(request)
        except aiohttp.ClientError as error:
            raise LMError("broken", str(error)) from error

    async def post(self, request: Request) -> Response:
        body = {"messages": [dict(message) for message in request.messages]}
        async with aiohttp.ClientSession() as session, session.post(self.address, json=body) as answer:
            if answer.status != 200:
                waits = answer.headers.get("Retry-After")
                text = (await answer.text()).replace(self.key or "\0", "***")
                wait = float(waits) if waits else None
                raise LMError(KINDS.get(answer.status, "server"), text, retry_after=wait)
            return self.parse(await answer.read())

    def parse(self, body: bytes) -> Response:
        import json

        try:
            found = json.loads(body)
            text, usage = found["choices"][0]["message"]["content"], found["usage"]
        except (ValueError, LookupError, TypeError) as error:
            raise LMError("bad_body", "no answer") from error
        return Response(text, "stop", usage["prompt_tokens"], usage["completion_tokens"])

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return 1e-6 * (prompt_tokens + 2 * completion_tokens)

    async def aclose(self) -> None:
        pass


class NewIdentity(Client):
    """Another identity for each object."""

    numbers = itertools.count()

    def __init__(self, address):
        super().__init__(address)
        self.identity += f"#{next(self.numbers)}"


class OddFinish(Client):
    """A `finish` of the server's own."""

    def parse(self, body):
        return replace(super().parse(body), finish="end_turn")


class KeyInIdentity(Client):
    """The key is part of the identity."""

    def __init__(self, address):
        super().__init__(address)
        self.identity = f"{self.key}@{address}"


class KeyInErrors(Client):
    """Repeats what the server says, the key included."""

    def __init__(self, address):
        super().__init__(address)
        self.key = ""


class Retries(Client):
    """Tries again after a server's fault."""

    async def complete(self, request):
        try:
            return await super().complete(request)
        except LMError as error:
            if error.kind != "server":
                raise
            return await super().complete(request)


class Sleeps(Client):
    """Waits as the server asks."""

    async def complete(self, request):
        try:
            return await super().complete(request)
        except LMError as error:
            await asyncio.sleep(error.retry_after or 0)
            raise


class ForgetsRetryAfter(Client):
    """Does not pass on how long to wait."""

    async def complete(self, request):
        try:
            return await super().complete(request)
        except LMError as error:
            error.retry_after = None
            raise


class Raw(Client):
    """Errors of its client and its parser pass through."""

    async def complete(self, request):
        return await self.post(request)


class RawTools(Client):
    """Has an error of its own for what it does not take."""

    async def complete(self, request):
        if request.tools:
            raise NotImplementedError("tools")
        return await super().complete(request)


class AllAlike(Client):
    """Calls each status a fault of the server, but for 429."""

    async def complete(self, request):
        try:
            return await super().complete(request)
        except LMError as error:
            raise LMError("rate_limit" if error.kind == "rate_limit" else "server", str(error), retry_after=error.retry_after) from error  # fmt: skip # noqa: E501


class Pays(Client):
    """A negative price."""

    def price(self, prompt_tokens, completion_tokens):
        return -1e-6 * prompt_tokens


class OneAtATime(Client):
    """Cannot be called while it works."""

    busy = False

    async def complete(self, request):
        if self.busy:
            raise LMError("server", "busy")
        self.busy = True
        try:
            return await super().complete(request)
        finally:
            self.busy = False


class InProcess:
    """A model in this process: no server, no key."""

    identity, concurrency = "echo", 4

    async def complete(self, request: Request) -> Response:
        return Response("hello", "stop", 1, 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("make", [Client, lambda address: InProcess()], ids=["client", "in process"])
def test_a_provider_that_keeps_its_contract_passes(make: Any) -> None:
    check_lm(make, key_variable=VARIABLE)


@pytest.mark.parametrize(
    ("provider", "check", "said"),
    [
        (NewIdentity, "has_its_attributes", "differs between two of equal settings"),
        (OddFinish, "answers", "finish is 'end_turn'"),
        (KeyInIdentity, "stores_no_key", "identity holds the key"),
        (KeyInErrors, "stores_no_key", "the message of an error holds the key"),
        (Retries, "sends_once", "sent 2 requests for one call"),
        (Sleeps, "does_not_wait_for_rate_limits", "waits for a rate limit"),
        (ForgetsRetryAfter, "does_not_wait_for_rate_limits", "retry_after None"),
        (Raw, "raises_lm_errors", "ServerDisconnectedError"),
        (RawTools, "raises_lm_errors", "raised NotImplementedError for a request that it does not take"),
        (AllAlike, "tells_failures_apart", "401 is 'server', it must be 'auth'"),
        (Pays, "price", "dollars from 0"),
        (OneAtATime, "takes_requests_at_once", "of 8 requests in flight failed"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_fault_is_found_by_its_check_alone(
    provider: Any, check: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench_testing.lms._AT_ONCE", 0.8)
    found = broken(lm_checks(), LMCase(provider, key_variable=VARIABLE))
    assert list(found) == [f"check_lm_{check}"], found
    assert said in found[f"check_lm_{check}"]
    assert VARIABLE not in os.environ
