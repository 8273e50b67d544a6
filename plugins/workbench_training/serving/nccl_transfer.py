"""All weights to a server on GPUs of its own, here or on other machines: vLLM's weight-transfer backend `nccl`.

The training process and each GPU of the server form one group, in which the training process is the first member. The
routes are those of `IpcTransfer`; while the server answers `/update_weights`, it receives the tensors that this process
broadcasts, one after the other. The protocol is that of vLLM's documentation ("Weight Transfer", "NCCL Engine", read in
0.25 to 0.33). The group itself is vLLM's, so that vLLM must be installed here, too.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import torch

from workbench.base.concurrency import run_in_thread
from workbench.errors import LMError, PluginError
from workbench_training.model.policy import Policy
from workbench_training.serving.vllm_client import SyncError, VLLMClient
from workbench_training.serving.vllm_server import free_port
from workbench_training.serving.weight_transfer import (
    WeightTransfer,
    check_transfer,
    describe_weights,
    find_gpus,
    list_weights,
)


class Group(Protocol):
    """This process's end of a group with all GPUs of a server."""

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Send a tensor to all others; returns before it has arrived."""
        ...

    def close(self) -> None: ...


#: Makes the group, of (address and port of this process, members, GPU of the weights). Returns once all have joined.
Join = Callable[[str, int, int, torch.device], Group]


class NcclTransfer(WeightTransfer):
    """Broadcasts the weights from the GPU of training to those of the server."""

    in_place = True
    since = "0.25"

    def __init__(self, policy: Policy, join: Join | None = None):
        """join: by default vLLM's. Raises PluginError without a GPU, and without vLLM."""
        if join is None:
            check_transfer("nccl", policy.generator.device)
        self.policy, self._join = policy, join or join_with_vllm
        self._group: Group | None = None

    async def connect(self, client: VLLMClient, timeout: float) -> None:
        """Join a group with all GPUs of the server."""
        members = 1 + (await client.get("/get_world_size", timeout))["world_size"]
        address = _own_address(client.url)
        port = free_port(address)
        info = {"master_address": address, "master_port": port, "rank_offset": 1, "world_size": members}
        self._group = await _at_once(
            client.post("/init_weight_transfer_engine", {"init_info": info}, timeout),
            partial(self._join, address, port, members, self.policy.generator.device),
            timeout,
        )

    async def send(self, client: VLLMClient, label: str, timeout: float) -> None:
        named = list_weights(self.policy)
        await client.post("/start_weight_update", None, timeout)
        await _at_once(
            client.post("/update_weights", {"update_info": describe_weights(named)}, timeout),
            partial(self._broadcast, [t for _, t in named]),
            timeout,
        )
        await client.post("/finish_weight_update", {"weight_version": label}, timeout)

    def _broadcast(self, tensors: list[torch.Tensor]) -> None:
        group, device = self._group, self.policy.generator.device
        assert group is not None, "connected first"
        on_gpu = device.type == "cuda"
        with torch.cuda.device(device) if on_gpu else nullcontext():  # a thread's own device is the first one
            if on_gpu:
                torch.cuda.synchronize()  # what computes the weights must have ended
            for tensor in tensors:
                group.broadcast(tensor)
            if on_gpu:
                torch.cuda.synchronize()  # the next update may change them

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.close()


async def _at_once(request: Awaitable[Any], work: Callable[[], Any], timeout: float) -> Any:
    """Return the result of `work` in a thread, while the server answers the request: both wait for one another.

    Where one fails, the other is not waited for. Raises LMError, SyncError.
    """
    asked, working = asyncio.ensure_future(request), asyncio.ensure_future(run_in_thread(work, timeout))
    try:
        await asyncio.wait([asked, working], return_when=asyncio.FIRST_EXCEPTION)
        if asked.done():
            asked.result()  # the server's own words come first
        return await working
    except TimeoutError:
        raise LMError("timeout", f"the server's GPUs did not take part within {timeout:g} s") from None
    except (LMError, SyncError):
        raise
    except Exception as error:  # of vLLM, NCCL or the network
        raise SyncError(f"NCCL did not reach the server's GPUs: {type(error).__name__}: {error}") from error
    finally:
        for task in (asked, working):
            task.cancel()
        await asyncio.gather(asked, working, return_exceptions=True)


class _VLLMGroup:
    """vLLM's communicator."""

    def __init__(self, communicator: Any):
        self._communicator = communicator

    def broadcast(self, tensor: torch.Tensor) -> None:
        self._communicator.broadcast(tensor, src=0)

    def close(self) -> None:
        if destroy := getattr(self._communicator, "destroy", None):
            destroy()


def join_with_vllm(address: str, port: int, members: int, device: torch.device) -> Group:
    """The group as vLLM's workers make it. Raises SyncError where NCCL is not there, which vLLM passes over."""
    from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator  # type: ignore[import-not-found]
    from vllm.distributed.utils import StatelessProcessGroup  # type: ignore[import-not-found]

    with torch.cuda.device(device):
        group = StatelessProcessGroup.create(host=address, port=port, rank=0, world_size=members)
        communicator = PyNcclCommunicator(group, device=torch.device("cuda", torch.cuda.current_device()))
    if communicator.disabled:
        raise SyncError("vLLM finds no NCCL library in this environment")
    return _VLLMGroup(communicator)


def leave_gpus(device: str | None) -> dict[str, str]:
    """The variable by which a server that is started here takes the GPUs that training leaves: NCCL has no group in
    which a GPU is twice. device: as the optimizer's setting. Raises PluginError where none is left."""
    given, number = find_gpus(device)
    seen = given or [str(place) for place in range(torch.cuda.device_count())]
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # torchrun's, each with a GPU
    taken = {number} if number is not None else set(range(processes))
    left = [name for place, name in enumerate(seen) if place not in taken]
    if not left:
        raise PluginError(
            f"`server: {{transfer: nccl}}` needs a GPU beside that of training, and {len(seen)} is visible here: write "
            "`transfer: ipc`, which shares one"
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(left)}


def _own_address(url: str) -> str:
    """This machine's address on the way to a server, for vLLM's group in IPv4. Nothing is sent."""
    place = urlsplit(url)
    found = socket.getaddrinfo(place.hostname, place.port or 80, socket.AF_INET, socket.SOCK_DGRAM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect(found[0][4])
        return way.getsockname()[0]
