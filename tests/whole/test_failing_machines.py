"""A machine that fails: rights, room, clock, other processes, no sandbox, and long runs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from tests.helpers import lm_faults
from tests.helpers.journal import FakeLM, ask, journal, reply, spec
from tests.helpers.lm_faults import ChatServer
from tests.helpers.sqlite import connect
from tests.helpers.stored_runs import StoredLM, restore, write

from workbench.base import files
from workbench.base.files import disk_warnings
from workbench.cli import cli
from workbench.errors import StoreError, WorkbenchError
from workbench.run import Options, optimize
from workbench.runtime import SandboxChoice
from workbench.store import Store
from workbench_sandbox import linux

CLI = [sys.executable, "-c", "from workbench.cli import main; main()"]
NOBODY = 65534


# Room and rights


@pytest.mark.fault("full-disk")
def test_little_room_is_warned_of_before_anything_is_paid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: SimpleNamespace(free=34_000_000))
    heard: list[tuple[str, Any]] = []
    file, options = write("bootstrap", tmp_path), Options(out=str(tmp_path / "o.yaml"))
    optimize(file, options=options, database=tmp_path / "run.db", pool=StoredLM(), listener=lambda *e: heard.append(e))
    assert heard[0][0] == "run_started"
    assert any("only 34 MB are free" in w and "can be resumed" in w for w in heard[0][1]["warnings"])


@pytest.mark.fault("several-processes")
@pytest.mark.parametrize(
    ("kind", "warned"), [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("tmpfs", False)]
)
def test_a_network_file_system_is_warned_of(
    kind: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "my runs"
    place.mkdir()
    mounts = (
        "24 1 8:1 / / rw - ext4 /dev/x rw",
        f"30 24 0:9 / {str(place).replace(' ', chr(92) + '040')} rw - {kind} h:/x rw",
    )
    (tmp_path / "mountinfo").write_text("\n".join(mounts))
    monkeypatch.setattr(files, "_MOUNTS", tmp_path / "mountinfo")
    found = disk_warnings(place / "deeper" / "run.db")
    assert ([kind] == [w.partition("(")[2].partition(")")[0] for w in found if "network" in w]) is warned
    assert not any("network" in w for w in disk_warnings(tmp_path / "run.db"))


@contextmanager
def as_another_user() -> Iterator[Path]:
    """A folder that belongs to nobody, and the rights of nobody, whom permissions bind even where tests run as root."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name) / "d"
        folder.mkdir()
        restore("bootstrap", folder)
        Store(folder / "run.db").close()
        root = os.geteuid() == 0
        if root:
            for path in (folder.parent, folder, *folder.iterdir()):
                os.chown(path, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o700)


@pytest.mark.fault("no-rights")
@pytest.mark.parametrize("case", ["file", "folder", "unreadable", "foreign folder"])
def test_a_database_that_cannot_be_written_is_refused_with_its_path_and_the_way_out(case: str) -> None:
    with as_another_user() as folder:
        path = folder / "run.db"
        if case == "file":
            path.chmod(0o400)
        elif case == "folder":
            folder.chmod(0o500)
            path = folder / "new.db"
        elif case == "unreadable":
            path.chmod(0)
        else:
            path = Path("/usr/lib/run.db")
        with pytest.raises(StoreError) as caught:
            Store(path).execute("update runs set status = 'changed'")
        words = str(caught.value)
        assert str(path) in words and "name another database with --db" in words and "\n" not in words
        if case == "file":
            shown = CliRunner().invoke(cli, ["show", "--db", str(path)])
            assert shown.exit_code == 0 and "candidates:" in shown.output


# Several processes


WRITER = """
import asyncio, sys
from workbench.store import Store
store = Store(sys.argv[1])
async def main():
    for n in range(250):
        await asyncio.gather(*[store.write("insert into events (run_id, at, kind, data) values (1, '', ?, ?)",
                                           sys.argv[2], str(n * 10 + k)) for k in range(10)])
asyncio.run(main())
store.close()
"""
READER = """
import sys, time
from workbench.store import ReadOnlyStore
most = 0
while most < 5000:
    store = ReadOnlyStore(sys.argv[1])
    seen = store.row("select count(*) as n from events where kind in ('a', 'b')")["n"]
    store.close()
    assert seen >= most and seen % 10 == 0, (seen, most)
    most = seen
"""


@pytest.mark.fault("several-processes")
@pytest.mark.slow
def test_two_writers_of_5000_rows_and_a_reader_see_no_lock(tmp_path: Path) -> None:
    path = restore("bootstrap", tmp_path)
    Store(path).close()
    words = [(WRITER, "a"), (WRITER, "b"), (READER, "")]
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], stderr=subprocess.PIPE, text=True)
        for code, name in words
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], errors
    base = connect(path)
    for name in "ab":
        rows = base.execute("select data from events where kind = ? order by id", (name,)).fetchall()
        assert [int(data) for (data,) in rows] == list(range(2500)), "each writer's rows are there in its order"
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)


# The clock


JUMPS = (0, -3600, 3600, -86400, 86400, -1_700_000_000)  # the last to 1970 and the years after


@pytest.mark.fault("clock-jumps")
def test_a_clock_that_jumps_by_hours_days_and_decades_changes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(folder: Path) -> Any:
        options = Options(out=str(folder / "o.yaml"))
        return optimize(write("bootstrap", folder), options=options, database=folder / "run.db", pool=StoredLM())

    plain, real, asked = go(tmp_path / "plain"), time.time, [0]

    def jumping() -> float:
        asked[0] += 1
        return max(0.0, real() + JUMPS[asked[0] % len(JUMPS)])

    stamp = time.gmtime
    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(time, "gmtime", lambda seconds=None: stamp(jumping() if seconds is None else seconds))
    begun = time.monotonic()
    found = go(tmp_path / "jumps")
    lasted = time.monotonic() - begun
    assert asked[0] >= len(JUMPS)
    for key in ("winner", "best", "gain", "candidates"):
        one, two = (r.as_dict().get(key) for r in (found, plain))
        assert without_times(one) == without_times(two), key
    assert 0 <= found.spent["seconds"] <= lasted
    database = tmp_path / "jumps" / "run.db"
    base = connect(database)
    assert base.execute("select min(seconds) from calls").fetchone()[0] >= 0
    assert len({at for (at,) in base.execute("select at from events")}) > 2, "the clock was asked and jumped"
    second = optimize(
        tmp_path / "jumps" / "workflow.yaml",
        options=Options(out=str(tmp_path / "jumps" / "o2.yaml")),
        database=database,
        pool=StoredLM(),
    )
    store = Store(database)
    assert store.find_run("last")["run"] == second.run, "the newest run is the last one, whatever its date"
    store.close()


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: without_times(v)
            for k, v in value.items()
            if k not in ("latency", "p95_latency", "seconds", "run", "workflow")
        }
    return [without_times(v) for v in value] if isinstance(value, list) else value


# Keys


@pytest.mark.fault("leaked-keys")
@pytest.mark.slow
def test_no_byte_of_a_run_holds_a_key(tmp_path: Path) -> None:
    """Of its files, its output and what it shows. The server writes the keys back in every answer and error."""
    key, tenant = "sk-canary+0123456789/abc", "tenant-canary-9876543210"
    forms = [
        form
        for secret in (key, tenant)
        for form in (secret, quote(secret, safe=""), secret.encode().hex(), base64.b64encode(secret.encode()).decode())
    ]
    forms += [base64.b64encode(f"Bearer {key}".encode()).decode()]
    echoed = " and ".join(forms)
    rows = "".join(json.dumps({"text": f"t{n}", "label": "a"}) + "\n" for n in range(36))
    (tmp_path / "rows.jsonl").write_text(rows)
    lm_faults.BODIES["leak"] = lm_faults.answer(echoed)

    class Leaking(ChatServer):
        kind = property(lambda self: ("leak", "500", "leak", "400")[self.requests % 4], lambda self, kind: None)

    try:
        with Leaking(message=echoed) as server:
            file = {
                "name": "leak",
                "data": {"file": "rows.jsonl", "split": {"train": 12, "val": 12, "test": 12}},
                "budget": {"calls": 120},
                "lm": {
                    "model": "openai/m",
                    "api_base": server.base,
                    "api_key_env": "MY_KEY",
                    "extra": {"headers": {"X-Tenant": "$TENANT"}},
                },
                "metric": "exact_match(label)",
                "nodes": {"sort": {"predict": "text -> label", "instructions": "Sort."}},
                "search": {"nodes.sort.instructions": ["Sort.", "Sort well."]},
                "optimize": [{"random": {"trials": 2}}],
            }
            (tmp_path / "w.yaml").write_text(json.dumps(file))
            env = {**os.environ, "MY_KEY": key, "TENANT": tenant}
            said = b""
            for words in (
                ["optimize", "w.yaml", "--json"],
                ["show", "--calls", "200"],
                ["show", "--failures"],
                ["run", "w.yaml", "--input", "text=x", "--traceback"],
                ["doctor"],
                ["export", "--out", "exported.yaml"],
            ):
                done = subprocess.run([*CLI, *words], cwd=tmp_path, env=env, capture_output=True, timeout=120)
                said += done.stdout + done.stderr
            assert server.headers[0]["Authorization"] == f"Bearer {key}" and server.headers[0]["X-Tenant"] == tenant
    finally:
        del lm_faults.BODIES["leak"]
    held = said + b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"***" in held and (tmp_path / "workbench.db").exists() and (tmp_path / "exported.yaml").exists()
    leaks = [form for form in forms if form.encode().lower() in held.lower()]
    assert not leaks, leaks


# No sandbox


CODE = "def f(label):\n    return label"
ABSENT = ("no bubblewrap", "no user namespaces", "an old kernel", "nothing")


def take_away(what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine one that lacks a part of its sandbox."""
    tools = folder / "bin"
    tools.mkdir()
    if what == "no user namespaces":
        (tools / "bwrap").write_text("#!/bin/sh\necho bwrap: No permissions to create a new namespace >&2\nexit 1\n")
        (tools / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    if what in ("an old kernel", "nothing"):
        old = folder / "confine.py"
        shutil.copyfile(linux.CONFINE, old)
        missing = ("landlock", "seccomp") if what == "nothing" else ("landlock",)
        old.write_text(old.read_text() + "".join(f"\ndef {name}(*readable):\n    return False\n" for name in missing))
        old.chmod(0o644)
        monkeypatch.setattr(linux, "CONFINE", old)


@pytest.mark.fault("no-sandbox")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a sandbox of Linux")
@pytest.mark.parametrize("what", ABSENT)
def test_where_the_sandbox_is_absent_code_is_refused_or_said_to_run_unheld(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # the zygote reads it as another user
        folder = Path(name)
        folder.chmod(0o755)
        file = write("bootstrap", folder)
        value = json.loads(file.read_text())
        value["nodes"]["same"] = {"code": "label -> same", "source": CODE}
        value["optimize"] = [{"random": {"trials": 1}}]
        value["search"] = {"nodes.sort.instructions": ["Sort it.", "Sort it carefully."]}
        file.write_text(json.dumps(value))
        take_away(what, folder, monkeypatch)
        out, database = str(folder / "o.yaml"), folder / "run.db"

        def go(unsafe: bool) -> Any:
            sandbox = SandboxChoice("linux", allow_limits_only=unsafe)
            return optimize(file, options=Options(out=out, sandbox=sandbox), database=database, pool=StoredLM())

        held = what in ("no bubblewrap", "no user namespaces")
        if not held:
            with pytest.raises(WorkbenchError, match="code is not run here, since no sandbox would confine it"):
                go(False)
        report = go(not held)
        level = "kernel" if held else "limits-only"
        line = f"Code ran in the sandbox linux, level {level}" + ("." if held else ", which does not contain hostile")
        assert any(line in text for text in report.lines())
        shown = CliRunner().invoke(cli, ["show", report.run, "--db", str(database)]).output
        assert line in " ".join(shown.split())
        events = connect(database).execute("select data from events where kind = 'sandbox'").fetchall()
        assert json.loads(events[-1][0]) == {"name": "linux", "level": level}


# Long runs


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.fault("many-calls")
@pytest.mark.parametrize("calls", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_calls_leave_no_memory_descriptors_or_threads(calls: int, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    marks: list[tuple[int, int, int]] = []
    largest_log = 0

    async def answer(request: Any) -> Any:
        await asyncio.sleep(0)
        return reply("an answer of some words " * 10, 120, 60)

    async def main() -> None:
        nonlocal largest_log
        with journal(path, calls=2 * calls) as ledger:
            lm = FakeLM(answer, concurrency=8)
            for block in range(10):
                texts = (f"question {block} {n} " + "of some length " * 20 for n in range(calls // 10))
                rows = iter(texts)

                async def worker(rows: Iterator[str] = rows) -> None:
                    for text in rows:
                        assert (await ledger.call(lm, ask(text), "task", spec())).error is None

                await asyncio.gather(*(worker() for _ in range(8)))
                lm.requests.clear()
                largest_log = max(largest_log, Path(f"{path}-wal").stat().st_size)
                marks.append((resident(), len(os.listdir("/proc/self/fd")), threading.active_count()))
            assert ledger.spent.calls == calls

    asyncio.run(main())
    assert max(m[1] for m in marks[5:]) <= max(m[1] for m in marks[:5]) + 16, "descriptors are flat"
    assert len({m[2] for m in marks[1:]}) == 1, "threads are flat"
    grown = marks[-1][0] - marks[2][0]
    assert grown < 12 << 20, f"{grown >> 20} MB in {calls * 7 // 10} calls"
    assert largest_log < 64 << 20
