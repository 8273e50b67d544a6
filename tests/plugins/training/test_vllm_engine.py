"""Drawing with an adapter on a server: a stand-in that speaks vLLM's routes, with its weights, stalls and lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.helpers.lm_faults import ChatServer  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402
from tests.helpers.vllm_stand_in import Server, serving  # noqa: E402

from workbench.errors import LMError  # noqa: E402
from workbench.lm import Request  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.serving.vllm_client import SyncError  # noqa: E402
from workbench_training.serving.vllm_engine import Limits, ServerEngine, parse_completion  # noqa: E402, parse_completion
from workbench_training.serving.weight_transfer import AdapterTransfer  # noqa: E402
from workbench_training.settings import Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


ASK = Request(({"role": "user", "content": "abc"},), temperature=1.0, max_tokens=5)


def with_server(folder: Path, schedule: Callable[[Server, ServerEngine, Policy], Any], **limits: Any) -> None:
    async def run() -> None:
        base = str(save(folder / "base", 1))
        policy, server = Policy(base, lora=Lora(rank=2), device="cpu"), Server(base)
        async with serving(server) as url:
            engine = adapter_engine(f"{url}/v1", policy, folder, **limits)
            try:
                await schedule(server, engine, policy)
            finally:
                await engine.aclose()

    asyncio.run(run())


def adapter_engine(url: str, policy: Policy, folder: Path, **limits: Any) -> ServerEngine:
    transfer = AdapterTransfer(policy, "p", folder / "adapters")
    return ServerEngine(url, "p", policy, transfer, Limits(**limits), seeds=True)


def change(policy: Policy) -> None:
    """Another version of the weights."""
    torch.manual_seed(5)
    with torch.no_grad():
        for p in policy.trained.values():
            p.add_(torch.randn_like(p))


def test_each_version_is_loaded_under_its_name_and_draws_as_the_policy_would(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        first = await engine.complete(ASK)
        assert 1 <= len(first.token_ids or ()) == len(first.logprobs or ()) <= 5
        assert list(first.prompt_ids or ()) == policy.generator.encode([dict(m) for m in ASK.messages])
        sent = server.asked[-1]
        assert (sent["model"], sent["top_k"], sent["top_p"], sent["repetition_penalty"]) == ("p-v0", -1, 1.0, 1.0)
        change(policy)
        await engine.at(1)
        assert list(server.adapters) == ["p-v1"] and engine.version == 1
        assert [path.name for path in (tmp_path / "adapters").iterdir()] == ["v1"]  # the one before is deleted
        again = await engine.complete(ASK)
        assert server.asked[-1]["model"] == "p-v1" and again.token_ids != first.token_ids
        assert server.asked[-1]["seed"] != sent["seed"]

    with_server(tmp_path, schedule)


def test_a_version_may_be_sent_again(tmp_path: Path) -> None:
    """As in self-play, whose solver answers before it is trained: a server refuses a name that it holds."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(3)
        await engine.at(3)
        assert list(server.adapters) == ["p-v3"]
        assert (await engine.complete(ASK)).token_ids

    with_server(tmp_path, schedule)


def test_the_limit_of_a_conversation_reaches_the_server(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        engine.conversations.limit = 3
        answer = await engine.complete(ASK)
        assert server.asked[-1]["max_tokens"] == 3 and len(answer.token_ids or ()) <= 3
        engine.conversations.limit = 9
        await engine.complete(ASK)
        assert server.asked[-1]["max_tokens"] == 5

    with_server(tmp_path, schedule)


def test_weights_that_did_not_arrive_are_found_out(tmp_path: Path) -> None:
    """The server says it loaded the new adapter, and goes on with the old one."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        change(policy)
        old = server.adapters["p-v0"]
        server.load = lambda place: old
        with pytest.raises(SyncError, match="answers as other weights would"):
            await engine.at(1)
        assert engine.version == -1  # nothing is drawn from it

    with_server(tmp_path, schedule)


def test_a_probe_is_compared_by_its_mean_and_its_divergence(tmp_path: Path) -> None:
    """In bfloat16 single tokens of a probe are apart by 0.4 and more, and yet the weights are the same."""

    def twist(by: float, tokens: int) -> Any:
        def twisted(path: str, answer: Any) -> Any:
            for choice in answer.get("choices", ()) if isinstance(answer, dict) else ():
                found = choice["logprobs"]["token_logprobs"]
                choice["logprobs"]["token_logprobs"] = [p - by * (i < tokens) for i, p in enumerate(found)]
            return answer

        return twisted

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        server.twist = twist(0.5, 1)
        await engine.at(0)
        server.twist = twist(0.3, 8)
        with pytest.raises(SyncError, match="differ by 0.3 on average"):
            await engine.at(1)
        server.twist = twist(1.5, 1)  # on average 0.19, but nearly five times as likely
        with pytest.raises(SyncError, match="with a divergence of 0.2"):
            await engine.at(2)

    with_server(tmp_path, schedule)


def test_a_probe_that_is_far_apart_by_one_token_is_drawn_again_and_all_tokens_count(tmp_path: Path) -> None:
    """One such token in some thousands must not end a training of a thousand steps; wrong weights always are apart."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        probes = list[int]()

        def twisted(path: str, answer: Any) -> Any:
            if path == "/v1/completions":
                found = answer["choices"][0]["logprobs"]["token_logprobs"]
                probes.append(len(found))
                found[0] += 2.5 if len(probes) == 1 else 0.0
            return answer

        server.twist = twisted
        await engine.at(0)
        assert engine.version == 0 and len(probes) in (2, 3) and 2.5 / probes[0] > engine.limits.probe_gap

    with_server(tmp_path, schedule)


def test_a_server_that_refuses_or_stalls_is_told_in_its_own_words_and_in_time(tmp_path: Path) -> None:
    async def stall(path: str, answer: Any) -> Any:
        await asyncio.sleep(300)

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        loop = asyncio.get_running_loop()
        server.twist = lambda path, answer: 500
        with pytest.raises(SyncError, match="500 planted"):
            await engine.at(0)
        server.twist = lambda path, answer: stall(path, answer)
        begun, engine.limits.sync_timeout = loop.time(), 0.3
        with pytest.raises(SyncError, match="no answer within 0.3 s"):
            await engine.at(0)
        server.twist, engine.limits.sync_timeout = None, 100.0
        await engine.at(0)
        server.twist = lambda path, answer: stall(path, answer)
        engine.limits.timeout = 0.3
        with pytest.raises(LMError, match="no answer within 0.3 s") as error:
            await engine.complete(ASK)
        assert error.value.kind == "timeout" and loop.time() - begun < 200
        engine.limits.timeout = 100.0
        server.twist = lambda path, answer: 429
        with pytest.raises(LMError) as limited:
            await engine.complete(ASK)
        assert (limited.value.kind, limited.value.retry_after) == ("rate_limit", 7.0)

    with_server(tmp_path, schedule, timeout=100.0, sync_timeout=100.0)


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("model", "p-v7", "bad_body"),
        ("token_ids", [5], "bad_body"),
        ("prompt_token_ids", [1], "bad_body"),
        ("logprobs", None, "bad_body"),
    ],
)
def test_an_answer_of_another_version_or_with_other_tokens_is_refused(
    tmp_path: Path, field: str, value: Any, kind: str
) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)

        def twist(path: str, answer: dict[str, Any]) -> dict[str, Any]:
            if field in answer:
                return {**answer, field: value}
            return {**answer, "choices": [{**answer["choices"][0], field: value}]}

        server.twist = twist
        with pytest.raises(LMError) as error:
            await engine.complete(ASK)
        assert error.value.kind == kind

    with_server(tmp_path, schedule)


def test_a_version_that_the_server_has_dropped_is_told(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        server.adapters.clear()
        with pytest.raises(LMError, match="does not exist") as error:
            await engine.complete(ASK)
        assert error.value.kind == "blocked"

    with_server(tmp_path, schedule)


def test_a_body_without_an_end_is_read_to_its_bound(tmp_path: Path) -> None:
    async def run(base: str) -> None:
        policy = Policy(str(save(tmp_path / "base", 1)), lora=Lora(rank=2), device="cpu")
        engine = adapter_engine(base, policy, tmp_path)
        try:
            with pytest.raises(LMError, match="a body over 33554432 bytes") as caught:
                await engine.client.post("/v1/completions", {"messages": []}, 20)
            assert caught.value.kind == "bad_body"
        finally:
            await engine.aclose()

    with ChatServer("endless") as server:
        asyncio.run(run(server.base))
    assert 0 < server.sent < 48 << 20


def test_a_server_that_is_not_there_is_a_connection_error(tmp_path: Path) -> None:
    async def run() -> None:
        policy = Policy(str(save(tmp_path / "base", 1)), lora=Lora(rank=2), device="cpu")
        engine = adapter_engine("http://127.0.0.1:9", policy, tmp_path)
        try:
            with pytest.raises(SyncError, match="did not take version 0"):
                await engine.at(0)
        finally:
            await engine.aclose()

    asyncio.run(run())


ASKED = {"model": "p", "prompt": [1, 2]}
CHOICE = {
    "text": "ab",
    "finish_reason": "stop",
    "prompt_token_ids": [1, 2],
    "token_ids": [3, 4],
    "logprobs": {"token_logprobs": [-0.5, -1.0]},
}


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        ({"logprobs": {"token_logprobs": [-0.5, None]}}, "bad_body", "no log-probability of 1 of 2 tokens"),
        ({"logprobs": {"token_logprobs": [-0.5, float("nan")]}}, "bad_body", "no log-probability of 1 of 2 tokens"),
        ({"finish_reason": "abort"}, "broken", "broke off"),
        ({"finish_reason": "error"}, "broken", "broke off"),
    ],
)
def test_training_c_an_answer_that_lacks_what_is_learned_from_is_an_error(found: Any, kind: str, words: str) -> None:
    with pytest.raises(LMError, match=words) as caught:
        parse_completion({"model": "p", "choices": [{**CHOICE, **found}]}, ASKED)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": "slow", "code": 429}}, "rate_limit"),
        ({"object": "error", "message": "This model's maximum context length is 4096 tokens."}, "too_long"),
        ({"choices": []}, "bad_body"),
        ("<html>", "bad_body"),
    ],
)
def test_an_error_in_place_of_an_answer_is_read_as_everywhere(body: Any, kind: str) -> None:
    with pytest.raises(LMError) as caught:
        parse_completion(body, ASKED)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("word", "text", "finish"), [("stop", "ab", "stop"), ("length", "", "length"), ("stop", "", "empty")]
)
def test_the_end_of_an_answer_is_read_by_the_table(word: str, text: str, finish: str) -> None:
    choice = {**CHOICE, "finish_reason": word, "text": text}
    assert parse_completion({"model": "p", "choices": [choice]}, ASKED).finish == finish
