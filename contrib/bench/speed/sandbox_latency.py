"""What a call of the sandbox costs: one after the other, and many at once.

python contrib/bench/speed/sandbox_latency.py [LEVEL ...]     levels: strong, kernel, limits-only, wasm; default: all

Seconds of processor time are those of all processes together: they say the same on a busy machine.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from typing import Any

from workbench.errors import SandboxError
from workbench_sandbox.attacks import ATTACKS, JAVASCRIPT, self_test
from workbench_sandbox.linux import LinuxSandbox
from workbench_sandbox.wasm import prepare_sandbox
from workbench_sandbox.watch import read_resident

SOURCE = "def f(x):\n    return x + 1"
CALLS = {"wasm": (30, 20)}  # one after the other, at once; a process for each takes half a second


async def measure(level: str) -> str:
    begun = time.perf_counter()
    try:
        sandbox: Any = LinuxSandbox(level) if level != "wasm" else await prepare_sandbox()
        await sandbox.start()
    except SandboxError as error:
        return f"{level}: {error}"
    started = time.perf_counter() - begun
    one_by_one, at_once = CALLS.get(level, (500, 1000))
    times, used = [], _used()
    for i in range(one_by_one):
        if level == "wasm":  # a call as it is where the next one is not made at once
            await asyncio.gather(*sandbox._ready)
        begun = time.perf_counter()
        assert (await sandbox.call(SOURCE, "f", {"x": i}, timeout=60)).value == i + 1
        times.append(1000 * (time.perf_counter() - begun))
    used = (_used() - used) / one_by_one
    begun = time.perf_counter()
    found = await asyncio.gather(*(sandbox.call(SOURCE, "f", {"x": i}, timeout=60) for i in range(at_once)))
    rate = len(found) / (time.perf_counter() - begun)
    assert [o.value for o in found] == list(range(1, at_once + 1))
    quarters = statistics.quantiles(times, n=20)
    text = (
        f"{level}: start {started * 1000:.0f} ms, a call {statistics.median(times):.2f} ms (median of {one_by_one}), "
        f"95% {quarters[18]:.2f} ms; {at_once} at once: {rate:.1f} a second"
    )
    if level == "wasm":
        guest = (await asyncio.gather(*sandbox._ready))[0]
        held = await read_resident(guest.process.pid) >> 20
        text += f"; {used:.2f} s of processor time a call; {held} MB for each process"
    if level != "limits-only":
        attacks = [*ATTACKS, *JAVASCRIPT] if level == "wasm" else ATTACKS
        begun = time.perf_counter()
        missed = await self_test(sandbox, attacks)
        stopped = len(attacks) - len(missed)
        text += f"; self-test {time.perf_counter() - begun:.1f} s, {stopped} of {len(attacks)} attacks stopped"
    await sandbox.aclose()
    return text


def _used() -> float:
    """Processor time of the children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    for level in sys.argv[1:] or ("strong", "kernel", "limits-only", "wasm"):
        print(asyncio.run(measure(level)), flush=True)


if __name__ == "__main__":
    main()
