"""Measure the memory of another process and wait until it exceeds a limit.

For processes whose address space cannot be limited.
"""

from __future__ import annotations

import asyncio
import os
import sys


async def wait_until_exceeds(pid: int, most: int) -> int:
    """Wait until the process holds more than `most` bytes, and return how many. Does not return if it never does."""
    while True:
        held = await read_resident(pid)
        if held > most:
            return held
        await asyncio.sleep(0.02 if sys.platform == "linux" else 0.2)


async def read_resident(pid: int) -> int:
    """Return the bytes of memory that a process holds (resident set); 0 if it is gone."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0
    return await _resident_by_ps(pid)


async def _resident_by_ps(pid: int) -> int:
    process = await asyncio.create_subprocess_exec(
        "ps", "-o", "rss=", "-p", str(pid), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    said, _ = await process.communicate()
    return int(said or 0) * 1024
