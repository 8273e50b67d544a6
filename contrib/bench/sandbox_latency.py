"""What a call of the sandbox costs: one after the other, and many at once.

python contrib/bench/sandbox_latency.py
"""

from __future__ import annotations

import asyncio
import statistics
import time

from workbench.sandbox import SandboxError
from workbench_sandbox.linux import LinuxSandbox

SOURCE = "def f(x):\n    return x + 1"


async def measure(level: str) -> str:
    sandbox = LinuxSandbox(level)
    begun = time.perf_counter()
    try:
        await sandbox.start()
    except SandboxError as error:
        return f"{level}: {error}"
    started = time.perf_counter() - begun
    times = []
    for i in range(500):
        begun = time.perf_counter()
        assert (await sandbox.call(SOURCE, "f", {"x": i})).value == i + 1
        times.append(1000 * (time.perf_counter() - begun))
    begun = time.perf_counter()
    found = await asyncio.gather(*(sandbox.call(SOURCE, "f", {"x": i}) for i in range(1000)))
    rate = len(found) / (time.perf_counter() - begun)
    assert [o.value for o in found] == list(range(1, 1001))
    await sandbox.aclose()
    quarters = statistics.quantiles(times, n=20)
    return (f"{level}: start {started * 1000:.0f} ms, a call {statistics.median(times):.2f} ms (median of 500), "
            f"95% {quarters[18]:.2f} ms; 1,000 at once: {rate:.0f} a second")  # fmt: skip


def main() -> None:
    for level in ("strong", "kernel", "limits-only"):
        print(asyncio.run(measure(level)), flush=True)


if __name__ == "__main__":
    main()
