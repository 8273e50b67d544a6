"""Who forgets to close a loaded workflow: the interpreter ends without a word, and nothing is kept."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from tests.helpers.scripted import Script

import workbench
from workbench.base.concurrency import BackgroundLoop

NODES = {"sort": {"predict": "text -> label: Literal['billing', 'shipping']"}}
SCRIPTS = {
    "a call": "print(wf(text='Parcel late').ok)",
    "a batch that is left": "print(next(wf.batch([{'text': f'Parcel {n} is late.'} for n in range(9)])).ok)",
    "in a loop": "import asyncio\nprint(asyncio.run(wf.acall(text='Parcel late')).ok)",
    "a call at exit": "import atexit\natexit.register(lambda: print(wf(text='Parcel late').ok))",
    "a thread that outlives main": "from threading import Thread as T\n"
    "T(target=lambda: print(wf(text='Parcel late').ok)).start()",
    "without a name": "print(workbench.load(sys.argv[1])(text='Parcel late').ok)",
}


def write(folder: Path, lm: str) -> Path:
    path = folder / "w.yaml"
    path.write_text(yaml.safe_dump({"lm": lm, "nodes": NODES}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_u10_a_script_ends_without_a_word(script: str, tmp_path: Path) -> None:
    program = f"import sys, workbench\nwf = workbench.load(sys.argv[1])\n{script}\n"
    command = [sys.executable, "-W", "default", "-c", program, str(write(tmp_path, "bundled/nano"))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("True\n", "", 0)


@pytest.mark.parametrize("threads_start", [True, False], ids=["python 3.11", "python 3.12"])
def test_u10_a_loop_works_when_pythons_threads_have_shut_down(
    threads_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`concurrent.futures` takes nothing from the end of the main thread on; Python 3.12 then starts no thread."""

    async def blocks() -> tuple[str, str]:
        with pytest.raises(KeyError):
            await asyncio.to_thread({}.__getitem__, "missing")
        found = await asyncio.get_running_loop().getaddrinfo("localhost", 1)
        return await asyncio.to_thread(str, 1), str(found[0][4][0])

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    loop = BackgroundLoop("test")
    loop.submit(asyncio.sleep(0)).result()
    with monkeypatch.context() as patch:
        patch.setattr(concurrent.futures.thread, "_shutdown", True)
        if not threads_start:
            patch.setattr(threading.Thread, "start", refuse)
        try:
            assert loop.submit(blocks()).result() in (("1", "127.0.0.1"), ("1", "::1"))
        finally:
            loop.close()


@pytest.mark.slow
def test_u10_the_last_reference_ends_the_thread(tmp_path: Path) -> None:
    def running() -> int:
        return sum(thread.name == "workbench-calls" for thread in threading.enumerate())

    before = running()
    path, pool = write(tmp_path, "openai/scripted"), Script(lambda request: "billing")
    assert workbench.load(path, pool=pool)(text="x").label == "billing"
    gc.collect()
    assert running() == before
