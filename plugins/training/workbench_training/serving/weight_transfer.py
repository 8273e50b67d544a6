"""Transfer of a policy's weights to a running vLLM server, over its HTTP routes and without vLLM in this process.

- `AdapterTransfer`: an adapter from a folder, loaded under a name of its own beside the base.
- `IpcTransfer`: all weights in place, from the GPU that both processes use: the server opens CUDA IPC handles of the
  tensors, so that nothing is copied on this side (vLLM's weight-transfer backend `ipc`).
- `ReloadTransfer`: all weights in place, from a safetensors file that the server can read; also without a GPU.

`send` puts weights on a server that draws nothing meanwhile; that is the engine's concern.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import torch
from packaging.version import InvalidVersion, Version
from transformers.utils import logging as hf_logging

from workbench.base.distribution import pip_install
from workbench.errors import LMError, PluginError
from workbench_training.model.policy import Policy
from workbench_training.serving.vllm_client import SyncError, VLLMClient
from workbench_training.settings import ServerSettings, round_rank

#: `auto` of the setting `transfer` resolved, and an adapter.
Kind = Literal["adapter", "ipc", "reload"]
#: (UUID of the GPU that holds a tensor, what rebuilds the tensor in another process)
Handle = tuple[str, tuple[Any, ...]]


class WeightTransfer(ABC):
    """Weights of one policy on their way to one server. in_place: they replace the server's own, so that it must not
    draw meanwhile. in_files: they are on disk meanwhile. since: the first vLLM whose routes it speaks; empty for those
    of all."""

    in_place: bool
    in_files: bool = True
    since: str = ""

    async def check_version(self, client: VLLMClient, timeout: float) -> None:
        """Raise SyncError for a server that says it is too old. One that tells no version is tried."""
        if not self.since:
            return
        try:
            found = await client.get("/version", timeout)
            reported = Version(str(found["version"]))
        except (LMError, KeyError, TypeError, InvalidVersion):
            return
        built_from_source = reported.is_devrelease and reported.release[:2] == (
            0,
            1,
        )  # without the tags of its repository
        if reported.release < Version(self.since).release and not built_from_source:
            raise SyncError(
                f"the server at {client.url} is vLLM {reported}, and {type(self).__name__} needs {self.since} or "
                f"newer: {pip_install('training[vllm]')} where it runs, or write `transfer: reload`"
            )

    async def connect(self, client: VLLMClient, timeout: float) -> None:
        """Prepare the server, once. Raises LMError, SyncError."""
        return

    @abstractmethod
    async def send(self, client: VLLMClient, label: str, timeout: float) -> None:
        """Put the policy's weights there under this label. Raises LMError, SyncError."""


class AdapterTransfer(WeightTransfer):
    """Loads each version of an adapter as a model `NAME-LABEL`; the one before is unloaded and deleted."""

    in_place = False

    def __init__(self, policy: Policy, name: str, folder: Path):
        self.policy, self.name, self.folder = policy, name, folder
        self._label = ""

    async def send(self, client: VLLMClient, label: str, timeout: float) -> None:
        before, self._label = self._label, ""
        place = await asyncio.to_thread(self.policy.save_adapter, self.folder / label)
        if before == label:  # a server refuses a name that it holds
            await client.post("/v1/unload_lora_adapter", {"lora_name": f"{self.name}-{label}"}, timeout)
        body = {"lora_name": f"{self.name}-{label}", "lora_path": str(place.resolve())}
        await client.post("/v1/load_lora_adapter", body, timeout)
        self._label = label
        if before and before != label:
            await client.post("/v1/unload_lora_adapter", {"lora_name": f"{self.name}-{before}"}, timeout)
            await asyncio.to_thread(shutil.rmtree, self.folder / before, ignore_errors=True)


class ReloadTransfer(WeightTransfer):
    """Writes the weights into a folder, which the server's workers read in place of their own."""

    in_place = True

    def __init__(self, policy: Policy, folder: Path):
        self.policy, self.folder = policy, folder
        self._written: Path | None = None

    async def send(self, client: VLLMClient, label: str, timeout: float) -> None:
        before, place = self._written, self.folder / label
        await asyncio.to_thread(self._write, place)
        arguments = {"weights_path": str(place.resolve())}
        await client.post("/collective_rpc", {"method": "reload_weights", "kwargs": arguments}, timeout)
        self._written = place
        if before is not None and before != place:
            await asyncio.to_thread(shutil.rmtree, before, ignore_errors=True)

    def _write(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        hf_logging.disable_progress_bar()
        self.policy.generator.model.save_pretrained(place)


class IpcTransfer(WeightTransfer):
    """Sends CUDA IPC handles of the weights: the server copies from this process's tensors, on the GPU of both.

    The protocol is that of vLLM's documentation ("Weight Transfer", read in 0.32 and 0.33): once
    `/init_weight_transfer_engine`, then for each version `/start_weight_update`, `/update_weights` and
    `/finish_weight_update`. A handle is what `torch.multiprocessing` sends for a tensor; over HTTP they are pickled,
    which the server reads only with VLLM_ALLOW_INSECURE_SERIALIZATION.
    """

    in_place = True
    in_files = False
    since = "0.31"  # before it, `init_info` has no field, or there is no such route

    def __init__(self, policy: Policy, export: Callable[[torch.Tensor], Handle] | None = None):
        """export: makes the handle of a tensor; by default of CUDA IPC. Raises PluginError without a GPU."""
        if export is None:
            check_ipc(policy.generator.device)
        self.policy, self._export = policy, export or export_cuda_tensor

    async def connect(self, client: VLLMClient, timeout: float) -> None:
        found = await client.get("/get_world_size", timeout)
        if found["world_size"] != 1:
            raise SyncError(
                f"the server at {client.url} spreads the model over {found['world_size']} GPUs, and "
                "`transfer: ipc` reaches the one that training uses: write `transfer: reload`"
            )
        await client.post("/init_weight_transfer_engine", {"init_info": {"packed": False}}, timeout)

    async def send(self, client: VLLMClient, label: str, timeout: float) -> None:
        await client.post("/start_weight_update", None, timeout)
        held, update = await asyncio.to_thread(self._exported)
        await client.post("/update_weights", {"update_info": update}, timeout)
        await client.post("/finish_weight_update", {"weight_version": label}, timeout)
        del held  # handles keep nothing alive: until here the server could read these tensors
        if torch.cuda.is_available():
            torch.cuda.ipc_collect()

    def _exported(self) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """(the tensors, what the server needs to read them)"""
        named = list_weights(self.policy)
        handles = [dict([self._export(t)]) for _, t in named]
        if torch.cuda.is_available():  # what computes the weights must have ended before another process reads them
            torch.cuda.synchronize(self.policy.generator.device)  # a thread's own device is the first one
        pickled = base64.b64encode(pickle.dumps(handles)).decode()
        return [t for _, t in named], {**describe_weights(named), "ipc_handles_pickled": pickled}


def list_weights(policy: Policy) -> list[tuple[str, torch.Tensor]]:
    """Names and tensors, which are the policy's own wherever they lie in one piece."""
    return [(name, p.detach().contiguous()) for name, p in policy.generator.model.named_parameters()]


def describe_weights(named: list[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    """Describe weights that come for a server, in their order."""
    return {
        "names": [name for name, _ in named],
        "dtype_names": [str(t.dtype).removeprefix("torch.") for _, t in named],
        "shapes": [list(t.shape) for _, t in named],
    }


def export_cuda_tensor(tensor: torch.Tensor) -> Handle:
    """The CUDA IPC handle of a tensor."""
    from torch.multiprocessing.reductions import reduce_tensor

    _, arguments = reduce_tensor(tensor)
    return str(torch.cuda.get_device_properties(tensor.device).uuid), arguments


def check_ipc(device: torch.device) -> None:
    """Raises PluginError where weights cannot travel by CUDA IPC from this device."""
    if device.type != "cuda":
        raise PluginError(
            f"`server: {{transfer: ipc}}` needs weights on a GPU, and they are on {device}: write `transfer: reload`"
        )


def resolve_transfer(settings: ServerSettings, *, lora: bool, device: str | None) -> Kind:
    """The transfer that a server takes. device: as the optimizer's setting."""
    if lora:
        return "adapter"
    if settings.transfer != "auto":
        return settings.transfer
    on_gpu = resolve_device(device).type == "cuda"
    here = not settings.url or urlsplit(settings.url).hostname in ("127.0.0.1", "localhost", "::1")
    return "ipc" if on_gpu and here else "reload"


def resolve_device(device: str | None) -> torch.device:
    """The device of a setting; without one the GPU where there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def list_options(kind: Kind, *, sleep: bool, rank: int, adapters: int) -> tuple[list[str], dict[str, str]]:
    """(arguments, environment) that `vllm serve` needs for a transfer. adapters: policies that draw from it; each needs
    two while it changes its version."""
    arguments: list[str] = []
    environment = {} if kind == "adapter" and not sleep else {"VLLM_SERVER_DEV_MODE": "1"}
    if kind == "adapter":
        arguments += ["--enable-lora", "--max-lora-rank", str(round_rank(rank)), "--max-loras", str(2 * adapters)]
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
    elif kind == "ipc":
        arguments += ["--weight-transfer-config", '{"backend": "ipc"}']
        environment["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    return [*arguments, *(["--enable-sleep-mode"] if sleep else [])], environment
