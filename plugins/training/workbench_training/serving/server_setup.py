"""From the settings `server: ...` to a running server, and to the engines that draw on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench_training.model.policy import Policy
from workbench_training.rollouts.study_rollouts import LONGEST_CALL, TrainedPolicy
from workbench_training.serving.vllm_engine import CONCURRENCY, Limits, ServerEngine
from workbench_training.serving.vllm_server import ALLOCATOR, ManagedServer, require_one_base
from workbench_training.serving.weight_transfer import (
    AdapterTransfer,
    IpcTransfer,
    Kind,
    ReloadTransfer,
    WeightTransfer,
    list_options,
    resolve_transfer,
)
from workbench_training.settings import ServerSettings


async def start_server(
    settings: ServerSettings,
    roles: Sequence[TrainedPolicy],
    log: Path,
    device: str | None,
    report: Callable[[str], None] = lambda message: None,
) -> ManagedServer:
    """A server that draws for these policies, ready. Raises SyncError, PluginError; then nothing is left running."""
    report(f"starting a server; its log is {log}")
    if warning := warn_of_allocator(settings, roles[0], device):
        report(warning)
    base = require_one_base([role.lm.weights for role in roles])
    kind = _kind(settings, roles[0], device)
    rank = max((role.lora.rank for role in roles if role.lora), default=0)
    options, environment = list_options(kind, sleep=settings.sleep, rank=rank, adapters=len(roles))
    extra = roles[0].spec.extra
    if kind == "ipc":
        environment |= show_gpu(device or extra.get("device"))
    options += [part for name in ("dtype", "revision") if name in extra for part in (f"--{name}", str(extra[name]))]
    server = ManagedServer(base, settings, log, options, environment)
    try:
        await server.start()
    except BaseException:
        await server.aclose()
        raise
    return server


def warn_of_allocator(settings: ServerSettings, role: TrainedPolicy, device: str | None) -> str:
    """Warn of an allocator in this process with which weights travel slowly by CUDA IPC; "" where it has none. The
    server's own environment is without it."""
    given = next((name for name in ALLOCATOR if "expandable_segments:True" in os.environ.get(name, "")), None)
    if given is None or _kind(settings, role, device) != "ipc":
        return ""
    return (
        f"{given} asks for expandable segments, with which weights travel by CUDA IPC several times slower, as vLLM "
        "says: unset it, or write `transfer: reload`"
    )


def show_gpu(device: str | None) -> dict[str, str]:
    """The variable by which a server takes the GPU of a training on `cuda:1`: it takes the first that it sees."""
    number = (device or "").partition(":")[2]
    if not number.isdecimal():
        return {}
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": seen[int(number)] if int(number) < len(seen) else number}


def make_engine(
    settings: ServerSettings, url: str, role: TrainedPolicy, folder: Path, device: str | None
) -> ServerEngine:
    """The engine that draws for one policy. folder: for weights on their way. Raises PluginError."""
    kind = _kind(settings, role, device)
    given = "timeout" in role.spec.model_fields_set
    limits = Limits(
        timeout=role.spec.timeout if given else LONGEST_CALL,
        concurrency=role.spec.concurrency or CONCURRENCY,
    )
    return ServerEngine(
        url,
        role.key,
        role.policy,
        make_transfer(kind, role.policy, role.key, folder),
        limits,
        seeds=settings.seeds,
        sleep=settings.sleep,
        candidates=settings.candidates,
    )


def make_transfer(kind: Kind, policy: Policy, name: str, folder: Path) -> WeightTransfer:
    """Raises PluginError where it cannot work here."""
    match kind:
        case "adapter":
            return AdapterTransfer(policy, name, folder)
        case "ipc":
            return IpcTransfer(policy)
        case "reload":
            return ReloadTransfer(policy, folder)


def _kind(settings: ServerSettings, role: TrainedPolicy, device: str | None) -> Kind:
    return resolve_transfer(settings, lora=role.lora is not None, device=device or role.spec.extra.get("device"))
