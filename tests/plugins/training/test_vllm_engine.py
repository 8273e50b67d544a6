"""Drawing on a server: a stand-in that speaks vLLM's routes (no vLLM runs here), with its weights, stalls and lies; and
servers that a run starts itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.helpers.lm_faults import ChatServer  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402
from tests.helpers.vllm_stand_in import Server  # noqa: E402

from workbench.errors import LMError  # noqa: E402
from workbench.lm import Request  # noqa: E402
from workbench.run import Options, optimize  # noqa: E402
from workbench_training.grpo import GRPO  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.serving.vllm_engine import ServerEngine, SyncError  # noqa: E402
from workbench_training.settings import Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


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


def test_a_probe_is_compared_by_its_mean_and_its_divergence(tmp_path: Path) -> None:
    """In bfloat16 single tokens of a probe are apart by 0.4 and more, and yet the weights are the same."""

    def twist(by: float, tokens: int) -> Any:
        def twisted(path: str, answer: Any) -> Any:
            for choice in answer.get("choices", ()) if isinstance(answer, dict) else ():
                found = choice["logprobs"]["token_logprobs"]
                choice["logprobs"]["token_logprobs"] = [p - by * (i < tokens) for i, p in enumerate(found)]
            return answer

        return twisted

    async def course(server: Server, engine: ServerEngine, policy: Policy) -> None:
        server.twist = twist(0.5, 1)
        await engine.at(0)
        server.twist = twist(0.3, 8)
        with pytest.raises(SyncError, match="differ by 0.3 on average"):
            await engine.at(1)
        server.twist = twist(1.5, 1)  # on average 0.19, but nearly five times as likely
        with pytest.raises(SyncError, match="with a divergence of 0.2"):
            await engine.at(2)

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


def test_a_version_that_the_server_has_dropped_is_a_bad_request(tmp_path: Path) -> None:
    async def course(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        server.adapters.clear()
        with pytest.raises(LMError, match="does not exist") as error:
            await engine.complete(ASK)
        assert error.value.kind == "bad_request"

    with_server(tmp_path, course)


def test_a_body_without_an_end_is_read_to_its_bound(tmp_path: Path) -> None:
    async def run(base: str) -> None:
        policy = Policy(str(save(tmp_path / "base", 1)), lora=Lora(rank=2), device="cpu")
        engine = ServerEngine(base, "p", policy, tmp_path / "adapters")
        try:
            with pytest.raises(LMError, match="a body over 33554432 bytes") as caught:
                await engine._post("/v1/completions", {"messages": []}, 20)
            assert caught.value.kind == "bad_body"
        finally:
            await engine.aclose()

    with ChatServer("endless") as server:
        asyncio.run(run(server.base))
    assert 0 < server.sent < 48 << 20


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


# Servers of a run's own

ROOT = Path(__file__).parents[3]
STAND_IN = f"{sys.executable} -m tests.helpers.vllm_stand_in"


def optimized(folder: Path, **server: Any) -> tuple[Any, list[str]]:
    """A run of `grpo` that draws on a server of its own; its report, and what was told."""
    folder.mkdir(parents=True, exist_ok=True)
    base = save(folder / "base", 1, positions=512)
    for name in ("train", "val", "test"):
        rows = [{"text": f"{name} {i}", "label": "ab"[i % 2]} for i in range(4)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    grpo = {
        "rewards": [{"kind": "length", "tokens": 1}],
        "guards": {"truncated": "keep", "repeated": 1.0},
        "lora": {"rank": 2},
        "course": {"steps": 2, "tasks": 2, "rollouts": 2, "evaluate_every": 2},
        "learning": {"rate": 1e-2},
        "device": "cpu",
        "server": {"command": STAND_IN, "start": 120, **server},
    }
    spec = {
        "name": "t",
        "lm": f"hf:{base}",
        "metric": "exact_match(label)",
        "optimize": [{"grpo": grpo}],
        "budget": {"calls": 500},
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "nodes": {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 6}}},
    }
    (folder / "w.yaml").write_text(json.dumps(spec))
    told: list[str] = []
    report = optimize(
        folder / "w.yaml",
        database=folder / "run.db",
        options=Options(out=str(folder / "o.yaml")),
        listener=lambda event, data: told.append(data["message"]) if event == "optimizer_told" else None,
    )
    return report, told


def log_of(folder: Path) -> str:
    (log,) = folder.glob("run-weights/run-*/server.log")
    return log.read_text()


def running(folder: Path) -> bool:
    return subprocess.run(["pgrep", "-f", f"vllm_stand_in {folder}"], capture_output=True).returncode == 0


def test_a_run_starts_a_server_draws_from_it_and_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    report, told = optimized(tmp_path, arguments=["--max-model-len", "512"])
    assert report.status == "finished", report.error
    first, *_others = log_of(tmp_path).splitlines()
    found = json.loads(first)
    assert found == {
        "updating": "True",
        "arguments": [
            "--enable-lora",
            "--max-lora-rank",
            "8",
            "--max-loras",
            "2",
            "--gpu-memory-utilization",
            "0.45",
            "--max-model-len",
            "512",
        ],
    }
    steps = [message for message in told if message.startswith("step ")]
    assert len(steps) == 2 and any("starting a server" in message for message in told)
    assert not running(tmp_path)


def test_a_server_that_cannot_start_ends_the_run_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was paid for until then is kept, and no server is left."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(SyncError, match="ended with exit code 1; it said: .*no GPU is here"):
        optimized(tmp_path / "a", arguments=["--fail"])
    with pytest.raises(SyncError, match="not ready after 0.3 s"):
        optimized(tmp_path / "b", start=0.3)
    assert not running(tmp_path)


def test_a_program_that_is_not_there_is_found_before_anything_is_paid(tmp_path: Path) -> None:
    report, _ = optimized(tmp_path, command="no-such-server serve")
    assert report.status == "failed" and report.spent["calls"] == 0
    assert re.search(r"no program 'no-such-server' to start .*\[vllm\]", report.error or "")
    assert report.lines()[-1].startswith("Nothing paid for is lost. Resume it with: workbench resume")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child that its parent died")
def test_a_killed_run_takes_its_server_along(tmp_path: Path) -> None:
    base = save(tmp_path / "base", 1)
    code = f"""
import asyncio, os
from pathlib import Path
from workbench_training.serving.vllm_server import ManagedServer
from workbench_training.settings import ServerSettings
async def main():
    server = ManagedServer({str(base)!r}, ServerSettings(command={STAND_IN!r}), Path({str(tmp_path / "log")!r}), rank=2, adapters=1)
    await server.start()
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""  # noqa: E501
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=200
    )
    assert done.returncode == -9
    for _ in range(100):
        if not running(tmp_path):
            return
        time.sleep(0.1)
    raise AssertionError("the server outlived the run")
