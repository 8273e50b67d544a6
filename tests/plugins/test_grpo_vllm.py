"""Drawing on a server: a stand-in that speaks vLLM's routes (no vLLM runs here), with its weights, stalls and lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.tiny_lm import save  # noqa: E402

from workbench.errors import LMError  # noqa: E402
from workbench.lm import Request  # noqa: E402
from workbench_grpo.optimizer import GRPO  # noqa: E402
from workbench_grpo.policy import Policy  # noqa: E402
from workbench_grpo.settings import Lora  # noqa: E402
from workbench_grpo.vllm import ServerEngine, SyncError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Server:
    """Loads adapters by name and draws with them, as vLLM would. `twist` may change an answer, or stall."""

    def __init__(self, base: str):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        self.load = lambda place: PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), place).eval()
        self.adapters: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.twist: Callable[[str, dict[str, Any]], Any] | None = None

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.asked.append({"path": request.path, **body})
        status, answer = 200, dict[str, Any]()
        if request.path == "/v1/load_lora_adapter":
            self.adapters[body["lora_name"]] = self.load(body["lora_path"])
        elif request.path == "/v1/unload_lora_adapter":
            self.adapters.pop(body["lora_name"])
        elif body["model"] not in self.adapters:
            status, answer = 404, {"error": f"The model `{body['model']}` does not exist."}
        else:
            answer = self.draw(body)
        if self.twist is not None:
            twisted = self.twist(request.path, answer)
            answer = await twisted if asyncio.iscoroutine(twisted) else twisted
        if isinstance(answer, int):
            return web.Response(status=answer, text="planted", headers={"Retry-After": "7"})
        return web.json_response(answer, status=status)

    @torch.no_grad()
    def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        torch.manual_seed(body["seed"])
        ids, logprobs = list(body["prompt"]), []
        for _ in range(body["max_tokens"]):
            scores = torch.log_softmax(self.adapters[body["model"]](torch.tensor([ids])).logits[0, -1], -1)
            ids.append(int(torch.multinomial(scores.exp(), 1)))
            logprobs.append(float(scores[ids[-1]]))
        choice = {"text": "x", "finish_reason": "length", "prompt_token_ids": body["prompt"],
                  "token_ids": ids[len(body["prompt"]) :], "logprobs": {"token_logprobs": logprobs}}  # fmt: skip
        return {"model": body["model"], "choices": [choice]}


ASK = Request(({"role": "user", "content": "abc"},), temperature=1.0, max_tokens=5)


def with_server(folder: Path, course: Callable[[Server, ServerEngine, Policy], Any], **settings: Any) -> None:
    async def run() -> None:
        base = str(save(folder / "base", 1))
        policy = Policy(base, lora=Lora(rank=2), device="cpu")
        server = Server(base)
        app = web.Application()
        app.router.add_post("/{path:.*}", server.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        engine = ServerEngine(f"http://127.0.0.1:{port}/v1", "p", policy, folder / "adapters", **settings)
        try:
            await course(server, engine, policy)
        finally:
            await engine.aclose()
            await runner.cleanup()

    asyncio.run(run())


def change(policy: Policy) -> None:
    """Another version of the weights."""
    torch.manual_seed(5)
    with torch.no_grad():
        for p in policy.trained.values():
            p.add_(torch.randn_like(p))


def test_each_version_is_loaded_under_its_name_and_draws_as_the_policy_would(tmp_path: Path) -> None:
    async def course(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        first = await engine.complete(ASK)
        assert len(first.token_ids or ()) == len(first.logprobs or ()) == 5 and first.finish == "length"
        assert list(first.prompt_ids or ()) == policy.generator.encode([dict(m) for m in ASK.messages])
        sent = server.asked[-1]
        assert (sent["model"], sent["top_k"], sent["top_p"], sent["repetition_penalty"]) == ("p-v0", -1, 1.0, 1.0)
        change(policy)
        await engine.at(1)
        assert list(server.adapters) == ["p-v1"] and engine.version == 1
        again = await engine.complete(ASK)
        assert server.asked[-1]["model"] == "p-v1" and again.token_ids != first.token_ids
        assert server.asked[-1]["seed"] != sent["seed"]

    with_server(tmp_path, course)


def test_weights_that_did_not_arrive_are_found_out(tmp_path: Path) -> None:
    """The server says it loaded the new adapter, and goes on with the old one."""

    async def course(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        change(policy)
        old = server.adapters["p-v0"]
        server.load = lambda place: old
        with pytest.raises(SyncError, match="answers as other weights would"):
            await engine.at(1)
        assert engine.version == -1  # nothing is drawn from it

    with_server(tmp_path, course)


def test_a_server_that_refuses_or_stalls_is_told_in_its_own_words_and_in_time(tmp_path: Path) -> None:
    async def stall(path: str, answer: Any) -> Any:
        await asyncio.sleep(300)

    async def course(server: Server, engine: ServerEngine, policy: Policy) -> None:
        loop = asyncio.get_running_loop()
        server.twist = lambda path, answer: 500
        with pytest.raises(SyncError, match="500 planted"):
            await engine.at(0)
        server.twist = lambda path, answer: stall(path, answer)
        begun, engine.sync_timeout = loop.time(), 0.3
        with pytest.raises(SyncError, match="no answer within 0.3 s"):
            await engine.at(0)
        server.twist, engine.sync_timeout = None, 100.0
        await engine.at(0)
        server.twist = lambda path, answer: stall(path, answer)
        engine.timeout = 0.3
        with pytest.raises(LMError, match="no answer within 0.3 s") as error:
            await engine.complete(ASK)
        assert error.value.kind == "timeout" and loop.time() - begun < 200
        engine.timeout = 100.0
        server.twist = lambda path, answer: 429
        with pytest.raises(LMError) as limited:
            await engine.complete(ASK)
        assert (limited.value.kind, limited.value.retry_after) == ("rate_limit", 7.0)

    with_server(tmp_path, course, timeout=100.0, sync_timeout=100.0)


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [("model", "p-v7", "bad_body"), ("token_ids", [5], "bad_body"), ("prompt_token_ids", [1], "bad_body"),
     ("logprobs", None, "bad_body")],
)  # fmt: skip
def test_an_answer_of_another_version_or_with_other_tokens_is_refused(
    tmp_path: Path, field: str, value: Any, kind: str
) -> None:
    async def course(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)

        def twist(path: str, answer: dict[str, Any]) -> dict[str, Any]:
            if field in answer:
                return {**answer, field: value}
            return {**answer, "choices": [{**answer["choices"][0], field: value}]}

        server.twist = twist
        with pytest.raises(LMError) as error:
            await engine.complete(ASK)
        assert error.value.kind == kind

    with_server(tmp_path, course)


def test_a_version_that_the_server_has_dropped_is_unsupported(tmp_path: Path) -> None:
    async def course(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        server.adapters.clear()
        with pytest.raises(LMError, match="does not exist") as error:
            await engine.complete(ASK)
        assert error.value.kind == "unsupported"

    with_server(tmp_path, course)


def test_a_server_that_is_not_there_is_a_connection_error(tmp_path: Path) -> None:
    async def run() -> None:
        policy = Policy(str(save(tmp_path / "base", 1)), lora=Lora(rank=2), device="cpu")
        engine = ServerEngine("http://127.0.0.1:9", "p", policy, tmp_path / "adapters")
        try:
            with pytest.raises(SyncError, match="did not take version 0"):
                await engine.at(0)
        finally:
            await engine.aclose()

    asyncio.run(run())


def test_a_server_needs_an_adapter() -> None:
    with pytest.raises(ValueError, match="lora"):
        GRPO(server="http://127.0.0.1:8000")
