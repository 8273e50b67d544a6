"""The settings `server: ...`: how weights travel, what a server is started with, deadlines, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.helpers.grpo_runs import write
from tests.helpers.tiny_lm import save

from workbench.run import find_obstacles, prepare
from workbench.spec import LMSpec
from workbench_training.grpo import GRPO
from workbench_training.model.policy import Policy
from workbench_training.model.preflight import make_plan
from workbench_training.rollouts.study_rollouts import TrainedPolicy
from workbench_training.serving.policy_lm import LIVE, policy as policy_lm
from workbench_training.serving.server_setup import make_engine, show_gpu
from workbench_training.serving.vllm_engine import ServerEngine
from workbench_training.serving.weight_transfer import list_options, resolve_transfer
from workbench_training.settings import Learning, Lora, ServerSettings


def test_the_transfer_and_what_a_server_is_started_with() -> None:
    def resolved(lora: bool = False, device: str = "cuda", **settings: Any) -> str:
        return resolve_transfer(ServerSettings.model_validate(settings), lora=lora, device=device)

    assert resolved(lora=True) == "adapter" and resolved() == "ipc" and resolved(device="cpu") == "reload"
    assert resolved(url="http://127.0.0.1:8000") == "ipc" and resolved(url="http://other:8000") == "reload"
    assert resolved(transfer="reload") == "reload" and resolved(url="http://other:1", transfer="ipc") == "ipc"
    assert list_options("reload", sleep=False, rank=0, adapters=1) == ([], {"VLLM_SERVER_DEV_MODE": "1"})
    arguments, environment = list_options("ipc", sleep=True, rank=0, adapters=1)
    assert arguments == ["--weight-transfer-config", '{"backend": "ipc"}', "--enable-sleep-mode"]
    assert environment == {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    assert list_options("adapter", sleep=False, rank=20, adapters=2) == (
        ["--enable-lora", "--max-lora-rank", "32", "--max-loras", "4"],
        {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
    )


def test_deadlines_and_connections_are_those_of_the_workflows_lm(tmp_path: Path) -> None:
    policy = Policy(str(save(tmp_path / "base", 1)), device="cpu")

    def made(spec: dict[str, Any], **settings: Any) -> ServerEngine:
        given = LMSpec.model_validate({"model": "hf:x", **spec})
        role = TrainedPolicy("", "lm", given, cast(Any, None), None, Learning(), key="p")  # type: ignore[call-arg]
        role.policy = policy
        return make_engine(ServerSettings.model_validate(settings), "http://127.0.0.1:9", role, tmp_path, None)

    plain, given = made({}), made({"timeout": 45, "concurrency": 9}, seeds=True, sleep=True, candidates=False)
    assert (plain.limits.timeout, plain.concurrency, plain.client.connections) == (600.0, 256, 256)
    assert (plain.seeds, plain.sleep, plain.candidates) == (False, False, True)
    assert (given.limits.timeout, given.concurrency, given.client.connections) == (45.0, 9, 9)
    assert (given.seeds, given.sleep, given.candidates) == (True, True, False)
    LIVE["p"] = plain
    try:
        assert policy_lm("p@0", LMSpec(model="policy:p@0")).concurrency == 256  # type: ignore[call-arg]
        assert policy_lm("p@0", LMSpec(model="policy:p@0", concurrency=5)).concurrency == 5  # type: ignore[call-arg]
    finally:
        del LIVE["p"]


def test_settings_that_cannot_work_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="`memory` is for a server that is started here"):
        ServerSettings.model_validate({"url": "http://127.0.0.1:8000", "memory": 0.3})


def test_a_transfer_that_cannot_work_here_is_refused_before_the_first_call(tmp_path: Path) -> None:
    settings = {"device": "cpu", "server": {"url": "http://127.0.0.1:9", "transfer": "ipc"}}
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": settings}]))
    (error,) = find_obstacles(task, optimizers)
    assert "`server: {transfer: ipc}` needs weights on a GPU, and they are on cpu" in str(error)
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": {**settings, "lora": {"rank": 2}}}]))
    assert not find_obstacles(task, optimizers), "an adapter travels as a file"


@pytest.mark.parametrize(
    ("settings", "lora", "share", "sleeps"),
    [
        ({}, False, 0.45, False),
        ({"sleep": True}, False, 0.45, True),
        ({}, True, 0.45, False),
        ({"url": "http://127.0.0.1:9", "sleep": True}, False, 0.0, False),
    ],
)
def test_a_server_with_gpus_of_its_own_leaves_training_the_whole_one(
    tmp_path: Path, settings: dict[str, Any], lora: bool, share: float, sleeps: bool
) -> None:
    base = str(save(tmp_path / "base", 1))
    lm = cast(Any, SimpleNamespace(weights=base))
    spec = LMSpec.model_validate({"model": f"hf:{base}"})
    role = TrainedPolicy("", "lm", spec, lm, Lora(rank=2) if lora else None, Learning())
    plan = make_plan([role], ServerSettings.model_validate(settings), reference=False, drawn=4)
    assert (plan.server, plan.sleeps, plan.drawn) == (share, sleeps, 0)


def test_all_weights_of_several_policies_cannot_share_a_server() -> None:
    both = {"a": {"address": "nodes.a.lm"}, "b": {"address": "nodes.b.lm"}}
    with pytest.raises(ValueError, match="a server has one set of weights, and a would replace"):
        GRPO.model_validate({"server": {}, "policies": both})
    GRPO.model_validate({"server": {}, "policies": both, "lora": {}})
    GRPO.model_validate({"server": {}, "learning": {"fsdp": True}})
    assert GRPO.model_validate({"server": "http://127.0.0.1:8000"}).server_settings == ServerSettings.model_validate(
        {"url": "http://127.0.0.1:8000"}
    )


@pytest.mark.parametrize(
    ("device", "seen", "shown"),
    [
        ("cuda:1", None, "1"),
        ("cuda:1", "4,6", "6"),
        ("cuda:1", "GPU-aa,GPU-bb", "GPU-bb"),
        ("cuda", "4,6", None),
        (None, None, None),
        ("cpu", None, None),
    ],
)
def test_a_server_that_shares_a_gpu_sees_the_one_of_the_training(
    device: str | None, seen: str | None, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert show_gpu(device).get("CUDA_VISIBLE_DEVICES") == shown
