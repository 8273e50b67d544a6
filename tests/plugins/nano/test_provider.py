"""bundled/nano's provider: batching, seeds, identity; on a stand-in, and on the model if it is there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.errors import LMError, SpecError
from workbench.lm import LM, Request, Response
from workbench_nano import provider


@dataclass
class Completion:
    text: str
    finish: str
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]


class FakeNano:
    def __init__(self):
        self.calls: list[dict[str, Any]] = []

    def generate(self, chats, *, max_tokens, temperature, seeds, stop, top_p):
        self.calls.append(locals() | {"size": len(chats)})
        if any("long" in chat[-1]["content"] for chat in chats):
            raise ValueError("the prompt has 999 tokens")
        if any(chat[-1]["role"] == "tool" for chat in chats):
            raise ValueError("no role 'tool'")
        assert len(temperature) == len(seeds) == len(chats) and isinstance(stop, list)
        texts = [f"{chat[-1]['content']} {seed}" for chat, seed in zip(chats, seeds, strict=True)]
        texts = ["" if text.startswith("mute") else text for text in texts]
        return [Completion(text, "stop", [1, 2, 3], [4], [-0.5]) for text in texts]


@pytest.fixture
def nano(monkeypatch):
    fake = FakeNano()
    monkeypatch.setattr(provider, "_load", lambda path: fake)
    return fake


def settings(**values: Any) -> Any:
    return SimpleNamespace(**({"concurrency": None, "extra": {}} | values))


def request(text: str, **values: Any) -> Request:
    return Request(({"role": "user", "content": text},), **values)


def ask(*requests: Request, **values: Any) -> list[Any]:
    async def run() -> list[Any]:
        lm = provider.bundled("nano", settings(**values))
        try:
            return await asyncio.gather(*[lm.complete(r) for r in requests], return_exceptions=True)
        finally:
            await lm.aclose()

    return asyncio.run(run())


def test_answers_in_batches_of_like_settings(nano):
    answers = ask(*[request(f"q{n}", temperature=n / 10, max_tokens=8 if n % 2 else 16) for n in range(12)])
    assert [answer.text.split()[0] for answer in answers] == [f"q{n}" for n in range(12)]
    assert len(nano.calls) <= 4 and sum(call["size"] for call in nano.calls) == 12
    first = answers[0]
    assert (first.prompt_tokens, first.completion_tokens, first.usd) == (3, 1, 0.0)
    assert (first.prompt_ids, first.token_ids, first.logprobs) == ((1, 2, 3), (4,), (-0.5,))
    assert ask(request("mute"))[0].finish == "empty"


def test_draws_follow_prompt_and_replica_only(nano):
    one, again, other = (ask(request("a", replica=n))[0].text for n in (0, 0, 1))
    assert one == again != other
    assert ask(*[request(f"b{n}") for n in range(5)], request("a"))[-1].text == one


def test_only_the_long_prompt_fails(nano):
    fine, long, fine_too = ask(request("a"), request("too long"), request("b"))
    assert isinstance(fine, Response) and isinstance(fine_too, Response)
    assert isinstance(long, LMError) and long.kind == "too_long" and "999" in str(long)
    _, unfit = ask(request("a"), Request(({"role": "tool", "content": "x"},)))
    assert isinstance(unfit, LMError) and unfit.kind == "bad_request"


def test_refusals(nano):
    with pytest.raises(SpecError, match="no bundled model 'mini'"):
        provider.bundled("mini", settings())
    assert ask(request("a", tools=({"type": "function"},)))[0].kind == "unsupported"


def test_the_identity_of_the_bundled_weights_is_that_of_stored_runs():
    """The keys of their calls hold it, so they would be paid again if any file in the folder changed, its README, too,
    which keeps the path that it was written with."""
    assert provider.bundled("nano", settings()).identity == "bundled/nano@9ea013b4057ee9e6"


def test_identity_follows_the_weights(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"one")
    first = provider.bundled("nano", settings(extra={"path": str(tmp_path)}))
    assert isinstance(first, LM) and (first.concurrency, first.price(10, 10)) == (16, 0.0)
    (tmp_path / "w.safetensors").write_bytes(b"two")
    assert provider.bundled("nano", settings(extra={"path": str(tmp_path)})).identity != first.identity


def test_the_bundled_model_itself():
    pytest.importorskip("workbench_nano.model")
    if not any(path.is_file() for path in provider.WEIGHTS.rglob("*")):
        pytest.skip("the weights are not here")
    one, two = ask(request("What is two plus two?", max_tokens=8), request("Say hello.", max_tokens=8))
    for answer in (one, two):
        assert isinstance(answer, Response)
        assert answer.token_ids is not None and answer.logprobs is not None
        assert answer.completion_tokens == len(answer.token_ids) == len(answer.logprobs) <= 9
