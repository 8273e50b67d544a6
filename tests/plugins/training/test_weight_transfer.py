"""All weights into a running server, in place: a stand-in that refuses each step out of order, and what would mix the
tokens of two versions in one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.helpers.tiny_lm import save  # noqa: E402
from tests.helpers.vllm_stand_in import Server, serving  # noqa: E402

from workbench.errors import LMError, PluginError  # noqa: E402
from workbench.lm import Request  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402
from workbench_training.serving.policy_lm import FileEngine  # noqa: E402
from workbench_training.serving.vllm_client import SyncError  # noqa: E402
from workbench_training.serving.vllm_engine import Limits, ServerEngine  # noqa: E402
from workbench_training.serving.weight_transfer import (  # noqa: E402
    AdapterTransfer,
    IpcTransfer,
    ReloadTransfer,
)
from workbench_training.settings import Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ASK = Request(({"role": "user", "content": "abc"},), temperature=1.0, max_tokens=8)
RELOAD = ["/pause?mode=wait", "/collective_rpc", "/reset_prefix_cache", "/resume"]
IPC = [
    "/pause?mode=wait",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/reset_prefix_cache",
    "/resume",
]

TrainingSchedule = Callable[[Server, ServerEngine, Policy], Awaitable[None]]


def play(
    folder: Path,
    schedule: TrainingSchedule,
    *,
    transfer: str = "reload",
    lora: Lora | None = None,
    gpus: int = 1,
    **how: Any,
) -> None:
    async def run() -> None:
        base = str(save(folder / "base", 1))
        policy, server = Policy(base, lora=lora, device="cpu"), Server(base, gpus=gpus)
        if lora is not None:
            sender: Any = AdapterTransfer(policy, "p", folder / "sent")
        else:
            sender = {"reload": ReloadTransfer, "ipc": _ipc}[transfer](policy, folder / "sent")
        limits = Limits(**{name: how.pop(name) for name in ("timeout", "sync_timeout", "concurrency") if name in how})
        async with serving(server) as url:
            engine = ServerEngine(url, "p", policy, sender, limits, **how)
            try:
                await schedule(server, engine, policy)
            finally:
                await engine.aclose()

    asyncio.run(run())


def _ipc(policy: Policy, folder: Path) -> IpcTransfer:
    """Handles that are files: a CPU has no CUDA IPC. Everything else is as on a GPU."""
    folder.mkdir()

    def export(tensor: torch.Tensor) -> tuple[str, tuple[Any, ...]]:
        place = folder / f"{len(list(folder.iterdir()))}.pt"
        torch.save(tensor, place)
        return "the GPU", (str(place),)

    return IpcTransfer(policy, export)


def change(policy: Policy, seed: int = 5) -> None:
    """Another version of the weights."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in policy.trained.values():
            p.add_(0.3 * torch.randn_like(p))


def own_log_probabilities(policy: Policy, prompt: Any, ids: Any) -> list[float]:
    row = Row(tuple(prompt), tuple(ids), (1,) * len(ids), (0.0,) * len(ids), 0.0, "t")
    return policy.sampling_log_probabilities(collate([row]))[0].tolist()


@pytest.mark.parametrize(("transfer", "steps"), [("reload", RELOAD), ("ipc", IPC)])
def test_each_version_replaces_the_servers_weights_in_order(tmp_path: Path, transfer: str, steps: list[str]) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        change(policy)
        await engine.at(0)
        started = ["/v1/models"] + (
            ["/version", "/get_world_size", "/init_weight_transfer_engine"] if transfer != "reload" else []
        )
        assert server.routes == [*started, *steps]
        first = await engine.complete(ASK)
        assert own_log_probabilities(policy, first.prompt_ids, first.token_ids) == pytest.approx(
            first.logprobs, abs=1e-5
        )
        change(policy, 6)
        await engine.at(1)
        assert server.routes == [*started, *steps, *steps] and engine.version == 1
        second = await engine.complete(ASK)
        assert own_log_probabilities(policy, second.prompt_ids, second.token_ids) == pytest.approx(
            second.logprobs, abs=1e-5
        )
        if transfer == "reload":
            assert [path.name for path in (tmp_path / "sent").iterdir()] == ["v1"]

    play(tmp_path, schedule, transfer=transfer)


@pytest.mark.parametrize("version", ["0.25.0", "0.30.9", "0.10.2.post1"])
def test_training_8_a_server_that_is_too_old_is_told_before_any_weight_is_sent(tmp_path: Path, version: str) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        server.version = version
        with pytest.raises(SyncError, match=rf"is vLLM {version}, and IpcTransfer needs 0.31 or newer: pip install"):
            await engine.at(1)
        assert not any("weight" in route for route in server.routes) and engine.version == -1

    play(tmp_path, schedule, transfer="ipc")


@pytest.mark.parametrize(
    ("transfer", "version"),
    [
        ("ipc", "0.31.0"),
        ("ipc", "0.31.0rc2.dev7+gabc"),
        ("ipc", "0.1.dev9+gabc"),
        ("ipc", "unknown"),
        ("ipc", None),
        ("reload", "0.10.2"),
    ],
)
def test_training_8_other_servers_are_tried(tmp_path: Path, transfer: str, version: str | None) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        server.version = version
        if version is None:
            server.missing = {"/version"}
        await engine.at(1)
        assert engine.version == 1

    play(tmp_path, schedule, transfer=transfer)


def test_only_where_it_is_asked_a_request_has_a_seed(tmp_path: Path) -> None:
    """Seeds send vLLM to sampling row by row; without them a run is repeated from its journal."""

    async def without(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        await engine.complete(ASK)
        assert "seed" not in server.asked[-1] and server.asked[-1]["model"] == server.base

    async def seeded(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        one, two = await engine.complete(ASK), await engine.complete(ASK)
        assert one.token_ids == two.token_ids
        seed = server.asked[-1]["seed"]
        await engine.at(1)
        await engine.complete(ASK)
        assert server.asked[-1]["seed"] != seed  # another version tries other answers

    play(tmp_path / "a", without)
    play(tmp_path / "b", seeded, seeds=True)


def test_an_answer_is_of_one_version_whatever_is_in_flight(tmp_path: Path) -> None:
    """The update waits for the draw that is under way, and a draw that began before and ended after it is refused."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        begun, go = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            begun.set()
            await go.wait()

        server.pace = slow
        draw = asyncio.create_task(engine.complete(ASK))
        await begun.wait()
        kept = {name: p.detach().clone() for name, p in policy.trained.items()}
        change(policy)
        update = asyncio.create_task(engine.at(1))
        await asyncio.sleep(0.2)
        assert server.routes[-1] == "/pause?mode=wait" and engine.version == -1
        with pytest.raises(LMError, match="holds no weights to draw with"):
            await engine.complete(ASK)
        go.set()
        answer = await draw
        await update
        with policy.having(kept):
            old = own_log_probabilities(policy, answer.prompt_ids, answer.token_ids)
        assert old == pytest.approx(answer.logprobs, abs=1e-5)

    play(tmp_path, schedule)


def test_an_answer_that_spans_an_update_is_refused(tmp_path: Path) -> None:
    """Of a server that says that it is paused, and is not."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        begun, go, real = asyncio.Event(), asyncio.Event(), server.manage

        async def slow() -> None:
            begun.set()
            await go.wait()

        async def lying(path: str, query: Any, body: dict[str, Any]) -> dict[str, Any]:
            if path == "/pause":
                server.running.clear()
                server.drawing = 0
                return {}
            if path == "/resume":
                server.pace = lambda: asyncio.sleep(0)
            return await real(path, query, body)

        server.pace, server.manage = slow, lying  # type: ignore[method-assign]
        draw = asyncio.create_task(engine.complete(ASK))
        await begun.wait()
        change(policy)
        await engine.at(1)
        go.set()
        with pytest.raises(LMError, match="replaced while this was drawn") as error:
            await draw
        assert error.value.kind == "broken"

    play(tmp_path, schedule)


@pytest.mark.parametrize(
    ("transfer", "path"),
    [(transfer, path) for transfer, paths in (("reload", RELOAD), ("ipc", IPC)) for path in paths],
)
def test_a_step_that_fails_ends_the_update_in_the_servers_words(tmp_path: Path, transfer: str, path: str) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        server.twist = lambda at, answer: 500 if at == path.partition("?")[0] else answer
        with pytest.raises(SyncError, match=rf"did not take version 1: {path.partition('?')[0]}.*500 planted"):
            await engine.at(1)
        assert engine.version == -1 and server.routes[-1] == path
        with pytest.raises(LMError, match="holds no weights"):
            await engine.complete(ASK)

    play(tmp_path, schedule, transfer=transfer)


def test_a_step_that_stalls_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        server.twist = lambda path, answer: asyncio.sleep(300) if path == "/collective_rpc" else answer
        engine.limits.sync_timeout = 0.3
        with pytest.raises(SyncError, match="/collective_rpc: no answer within 0.3 s"):
            await engine.at(1)

    play(tmp_path, schedule)


def test_keys_and_values_of_old_weights_that_stay_are_an_error(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        server.twist = lambda path, answer: {"success": False} if path == "/reset_prefix_cache" else answer
        with pytest.raises(SyncError, match="the weights before are still held"):
            await engine.at(0)

    play(tmp_path, schedule)


def test_weights_that_did_not_arrive_are_found_out(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        change(policy)
        server.put = lambda weights: None  # type: ignore[method-assign]
        with pytest.raises(SyncError, match="answers as other weights would: log-probabilities of version 1"):
            await engine.at(1)
        assert engine.version == -1

    play(tmp_path, schedule)


def test_a_server_without_the_route_is_told_what_it_needs(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        server.missing = {"/pause"}
        with pytest.raises(SyncError, match="/pause.*404.*VLLM_SERVER_DEV_MODE=1"):
            await engine.at(0)

    play(tmp_path, schedule)


@pytest.mark.parametrize("transfer", ["reload", "ipc"])
def test_a_server_that_sleeps_wakes_for_weights_then_for_drawing(tmp_path: Path, transfer: str) -> None:
    """Between two versions it has neither weights nor keys and values."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        await engine.rest()
        await engine.rest()  # asleep already
        assert server.routes.count("/sleep?level=2&mode=wait") == 1
        assert not server.awake and engine.version == -1 and not any(p.any() for p in server.model.parameters())
        with pytest.raises(LMError, match="holds no weights"):
            await engine.complete(ASK)
        server.routes.clear()
        await engine.at(1)
        taken = [step for step in (RELOAD if transfer == "reload" else IPC) if "pause" not in step]
        assert server.routes == ["/wake_up?tags=weights", *taken[:-2], "/wake_up?tags=kv_cache", *taken[-2:]]
        assert (await engine.complete(ASK)).token_ids and engine.version == 1

    play(tmp_path, schedule, transfer=transfer, sleep=True)


def test_an_adapters_base_stays_in_memory_while_the_server_sleeps(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        await engine.rest()
        await engine.at(1)
        assert server.routes[-4:] == [
            "/sleep?level=1&mode=wait",
            "/wake_up",
            "/v1/load_lora_adapter",
            "/v1/unload_lora_adapter",
        ]

    play(tmp_path, schedule, lora=Lora(rank=2), sleep=True)


def test_a_server_that_cannot_sleep_says_so(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        server.sleeps = False
        with pytest.raises(SyncError, match="does not sleep: /sleep.*Sleep mode is not enabled"):
            await engine.rest()

    play(tmp_path, schedule, sleep=True)


def test_as_many_draws_are_in_flight_as_the_concurrency_says(tmp_path: Path) -> None:
    """aiohttp's own pool would hold 100 back, within their deadlines."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        server.pace = lambda: asyncio.sleep(0.5)
        few = Request(ASK.messages, temperature=1.0, max_tokens=1)
        await asyncio.gather(*(engine.complete(few) for _ in range(130)))
        assert server.most_drawing == min(130, engine.concurrency)

    play(tmp_path / "a", schedule, concurrency=130)
    play(tmp_path / "b", schedule, concurrency=7)


def test_an_answer_fits_in_the_servers_context(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        long = Request(({"role": "user", "content": "a" * 110},), max_tokens=64)
        await engine.complete(long)
        sent = server.asked[-1]
        assert len(sent["prompt"]) + sent["max_tokens"] == 128 == policy.generator.context
        with pytest.raises(LMError, match="the model's context 128") as error:
            await engine.complete(Request(({"role": "user", "content": "a" * 128},)))
        assert error.value.kind == "too_long"

    play(tmp_path, schedule)


def test_a_candidate_is_drawn_with_its_weights_and_no_version_with_them(tmp_path: Path) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        await engine.at(0)
        change(policy)
        await engine.hold_candidate(1)
        assert engine.version == -1
        greedy = Request(ASK.messages, max_tokens=8)
        answer = await engine.answer(greedy)
        assert server.asked[-1]["temperature"] == 0.0
        assert own_log_probabilities(policy, answer.prompt_ids, answer.token_ids) == pytest.approx(
            answer.logprobs, abs=1e-5
        )
        with pytest.raises(LMError, match="holds no weights"):
            await engine.complete(ASK)
        await engine.at(1)
        await engine.complete(ASK)

    play(tmp_path, schedule)


def test_handles_are_sent_once_the_gpu_of_the_weights_has_computed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that sends has another device of its own, where training is not on the first GPU."""
    policy, waited = Policy(str(save(tmp_path / "base", 1)), device="cpu"), list[Any]()
    policy.generator.device = torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    held, update = _ipc(policy, tmp_path / "sent")._exported()
    assert waited == [torch.device("cuda:1")] and len(held) == len(update["names"])


def test_ipc_needs_a_gpu_and_one_that_the_whole_server_is_on(tmp_path: Path) -> None:
    policy = Policy(str(save(tmp_path / "base", 1)), device="cpu")
    with pytest.raises(PluginError, match="needs weights on a GPU, and they are on cpu: write `transfer: reload`"):
        IpcTransfer(policy)

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        with pytest.raises(SyncError, match="over 2 GPUs.*`transfer: reload`"):
            await engine.at(0)

    play(tmp_path / "b", schedule, transfer="ipc", gpus=2)


@pytest.mark.parametrize(
    ("how", "sends"), [({}, True), ({"transfer": "ipc"}, False), ({"lora": Lora.model_validate({})}, True)]
)
def test_weights_are_on_disk_on_their_way_unless_they_travel_by_ipc(
    how: dict[str, Any], sends: bool, tmp_path: Path
) -> None:
    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        assert isinstance(engine, FileEngine) and engine.sends_files is sends

    play(tmp_path, schedule, **how)
