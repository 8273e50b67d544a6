"""All weights to a server's own GPUs: broadcasts in a group of all of them, over gloo here, where no GPU is."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.helpers.gloo_group import join_over_gloo  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402
from tests.helpers.vllm_stand_in import Refused, Server, serving  # noqa: E402

from workbench.errors import PluginError  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.serving import nccl_transfer, weight_transfer  # noqa: E402
from workbench_training.serving.nccl_transfer import (  # noqa: E402
    Join,
    NcclTransfer,
    join_with_vllm,
    leave_gpus,
)
from workbench_training.serving.vllm_client import SyncError  # noqa: E402
from workbench_training.serving.vllm_engine import Limits, ServerEngine  # noqa: E402
from workbench_training.serving.weight_transfer import check_transfer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

TrainingSchedule = Callable[[Server, ServerEngine, Policy], Awaitable[None]]


def play(
    folder: Path, schedule: TrainingSchedule, *, gpus: int = 1, join: Join = join_over_gloo, patience: float = 20.0
) -> None:
    async def run() -> None:
        base = str(save(folder / "base", 1))
        policy, server = Policy(base, device="cpu"), Server(base, gpus=gpus)
        async with serving(server) as url:
            engine = ServerEngine(url, "p", policy, NcclTransfer(policy, join), Limits(sync_timeout=patience))
            try:
                await schedule(server, engine, policy)
            finally:
                await engine.aclose()
                for group in server.groups:
                    group.close()

    asyncio.run(run())


def test_every_gpu_of_a_server_receives_each_version(tmp_path: Path) -> None:
    """The group is made once: of this process, which listens, and two GPUs."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        for version in range(2):
            with torch.no_grad():
                for p in policy.trained.values():
                    p.add_(0.3 * torch.randn_like(p))
            await engine.at(version)
            own = dict(policy.generator.model.named_parameters())
            assert all(torch.equal(p, own[name]) for name, p in server.model.named_parameters())
        (asked,) = (body["init_info"] for body in server.asked if body["path"] == "/init_weight_transfer_engine")
        assert asked.pop("master_port") > 0
        assert asked == {"master_address": "127.0.0.1", "rank_offset": 1, "world_size": 3}
        finished = [body["weight_version"] for body in server.asked if body["path"] == "/finish_weight_update"]
        assert finished == ["v0", "v1"]
        assert [group.sent for group in server.groups] == [2 * len(own)] * 2

    play(tmp_path, schedule, gpus=2)


def test_a_server_that_refuses_is_not_waited_for_in_the_group(tmp_path: Path) -> None:
    """Its own words, at once: the thread that waits for its GPUs is given up."""
    waiting: list[Any] = []

    def join(*given: Any) -> Any:
        waiting.append(given)
        time.sleep(15)

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        async def refuse(**given: Any) -> Any:
            raise Refused("no such backend")

        server.join = refuse  # type: ignore[method-assign]
        began = time.monotonic()
        with pytest.raises(SyncError, match="did not take version 0: /init_weight.*: 500 .*no such backend"):
            await engine.at(0)
        assert time.monotonic() - began < 10 and len(waiting) == 1 and engine.version == -1

    play(tmp_path, schedule, join=join)


def test_gpus_that_take_no_part_and_a_group_that_breaks_end_the_update(tmp_path: Path) -> None:
    async def silent(server: Server, engine: ServerEngine, policy: Policy) -> None:
        server.join = lambda **given: asyncio.sleep(15)  # type: ignore[assignment,method-assign]
        with pytest.raises(SyncError, match="did not take version 0: .*within 1 s"):
            await engine.at(0)

    play(tmp_path / "a", silent, join=lambda *_: time.sleep(15), patience=1.0)  # type: ignore[arg-type,return-value]

    class Broken:
        def broadcast(self, tensor: Any) -> None:
            raise RuntimeError("unhandled system error")

        def close(self) -> None:
            closed.append(True)

    closed: list[bool] = []

    def join(*given: Any) -> Any:
        join_over_gloo(*given)
        return Broken()

    async def broken(server: Server, engine: ServerEngine, policy: Policy) -> None:
        with pytest.raises(SyncError, match="NCCL did not reach the server's GPUs: RuntimeError: unhandled system"):
            await engine.at(0)
        assert engine.version == -1 and server.updating

    play(tmp_path / "b", broken, join=join)
    assert closed == [True]


def test_weights_that_a_group_swallows_are_found_out(tmp_path: Path) -> None:
    """vLLM's communicator does nothing where it is disabled: an update that arrives nowhere must not pass."""

    async def schedule(server: Server, engine: ServerEngine, policy: Policy) -> None:
        async def unchanged(**told: Any) -> dict[str, Any]:
            return {}

        server.received = unchanged  # type: ignore[method-assign]
        with torch.no_grad():
            for p in policy.trained.values():
                p.add_(0.3 * torch.randn_like(p))
        with pytest.raises(SyncError, match="answers as other weights would"):
            await engine.at(0)

    class Nothing:
        def broadcast(self, tensor: Any) -> None: ...

        def close(self) -> None: ...

    def join(*given: Any) -> Any:
        join_over_gloo(*given)
        return Nothing()

    play(tmp_path, schedule, join=join)


@pytest.mark.parametrize("disabled", [False, True])
def test_the_group_is_made_as_vllms_workers_make_it(monkeypatch: pytest.MonkeyPatch, disabled: bool) -> None:
    """Names and arguments of vLLM 0.33. Where it finds no NCCL, it would send nothing and say nothing."""
    called: list[Any] = []

    class Group:
        @staticmethod
        def create(**given: Any) -> str:
            called.append(given)
            return "metadata"

    class Communicator:
        def __init__(self, group: Any, device: Any):
            called.append((group, device))
            self.disabled = disabled

        def broadcast(self, tensor: Any, src: int) -> None:
            called.append((tensor, src))

        def destroy(self) -> None:
            called.append("destroyed")

    names = ("vllm", "vllm.distributed", "vllm.distributed.device_communicators")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(
        sys.modules,
        "vllm.distributed.utils",
        SimpleNamespace(StatelessProcessGroup=Group),  # type: ignore[arg-type]
    )
    monkeypatch.setitem(
        sys.modules,
        "vllm.distributed.device_communicators.pynccl",
        SimpleNamespace(PyNcclCommunicator=Communicator),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(nccl_transfer.torch.cuda, "device", lambda device: torch.device("cpu"))
    if disabled:
        with pytest.raises(SyncError, match="finds no NCCL library"):
            join_with_vllm("10.0.0.7", 1234, 5, torch.device("cuda:1"))
        return
    group = join_with_vllm("10.0.0.7", 1234, 5, torch.device("cuda:1"))
    tensor = torch.zeros(1)
    group.broadcast(tensor)
    group.close()
    assert called == [
        {"host": "10.0.0.7", "port": 1234, "rank": 0, "world_size": 5},
        ("metadata", torch.device("cuda:1")),
        (tensor, 0),
        "destroyed",
    ]


def test_what_it_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PluginError, match="transfer: nccl.*on cpu: write `transfer: reload`"):
        check_transfer("nccl", torch.device("cpu"))
    monkeypatch.setattr(weight_transfer.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PluginError, match=r"not installed beside workbench: .*vllm.*, or write `transfer: reload`"):
        check_transfer("nccl", torch.device("cuda"))
    check_transfer("ipc", torch.device("cuda"))
    monkeypatch.setattr(weight_transfer.importlib.util, "find_spec", lambda name: object())
    check_transfer("nccl", torch.device("cuda"))


@pytest.mark.parametrize(
    ("device", "seen", "processes", "left"),
    [
        (None, None, None, "1,2,3"),
        (None, None, "2", "2,3"),
        ("cuda:1", None, None, "0,2,3"),
        ("cuda:1", "4,6,7", None, "4,7"),
        (None, "GPU-aa,GPU-bb", None, "GPU-bb"),
        (None, "4", None, None),
        (None, None, "4", None),
    ],
)
def test_a_server_takes_the_gpus_that_training_leaves(
    device: str | None,
    seen: str | None,
    processes: str | None,
    left: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for name, value in (("CUDA_VISIBLE_DEVICES", seen), ("LOCAL_WORLD_SIZE", processes)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    if left is None:
        with pytest.raises(PluginError, match="needs a GPU beside that of training.*write `transfer: ipc`"):
            leave_gpus(device)
    else:
        assert leave_gpus(device) == {"CUDA_VISIBLE_DEVICES": left}
