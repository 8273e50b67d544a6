"""Servers that a run starts itself: a program that speaks vLLM's routes, started, drawn from and stopped by `grpo`."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.sqlite import connect

pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.helpers.forking import start_python
from tests.helpers.grpo_runs import write
from tests.helpers.processes import end, start_two
from tests.helpers.tiny_lm import save

from workbench.run import Options, optimize
from workbench_training.serving.server_log import describe_log, find_cause
from workbench_training.serving.vllm_client import SyncError
from workbench_training.serving.vllm_server import ManagedServer

pytestmark = pytest.mark.filterwarnings("ignore")

ROOT = Path(__file__).parents[3]
STAND_IN = f"{sys.executable} -m tests.helpers.vllm_stand_in"


def optimized(folder: Path, *, optimizer: str = "grpo", lora: bool = True, **server: Any) -> tuple[Any, list[str]]:
    """A run that trains on a server of its own; its report, and what was told."""
    folder.mkdir(parents=True, exist_ok=True)
    base = save(folder / "base", 1, positions=512)
    for name in ("train", "val", "test"):
        rows = [{"text": f"{name} {i}", "label": "ab"[i % 2]} for i in range(6 if name == "test" else 4)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {"schedule": {"steps": 2, "tasks": 2, "rollouts": 2, "evaluate_every": 2}}
    if optimizer == "sft":
        own = {"rounds": 2, "epochs": 2, "rollouts": 2, "tasks": 2}
    settings = {
        "rewards": [{"kind": "length", "tokens": 1}],
        "guards": ["empty"],
        **({"lora": {"rank": 2}} if lora else {}),
        **own,
        "learning": {"rate": 1e-2},
        "device": "cpu",
        "server": server if "url" in server else {"command": STAND_IN, "start": 120, **server},
    }
    spec = {
        "name": "t",
        "lm": f"hf:{base}",
        "metric": "exact_match(label)",
        "optimize": [{optimizer: settings}],
        "budget": {"calls": 500},
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "nodes": {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 6}}},
    }
    (folder / "w.yaml").write_text(json.dumps(spec))
    told: list[str] = []
    report = optimize(
        folder / "w.yaml",
        database=folder / "run.db",
        options=Options(out=str(folder / "o.yaml")),
        listener=lambda event, data: told.append(data["message"]) if event == "optimizer_told" else None,
    )
    return report, told


def log_of(folder: Path) -> str:
    (log,) = folder.glob("run-weights/run-*/server.log")
    return log.read_text()


def wait_until_open(port: int) -> None:
    for _ in range(600):
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not listen")


def running(folder: Path) -> bool:
    return subprocess.run(["pgrep", "-f", f"vllm_stand_in {folder}"], capture_output=True).returncode == 0


def test_a_run_starts_a_server_draws_from_it_and_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    report, told = optimized(tmp_path, arguments=["--max-model-len", "512"])
    assert report.status == "finished", report.error
    first, *routes = log_of(tmp_path).splitlines()
    found = json.loads(first)
    assert found == {
        "environment": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
        "arguments": [
            "--enable-lora",
            "--max-lora-rank",
            "8",
            "--max-loras",
            "2",
            "--gpu-memory-utilization",
            "0.45",
            "--max-model-len",
            "512",
        ],
    }
    steps = [message for message in told if message.startswith("step ")]
    assert len(steps) == 2 and any("starting a server" in message for message in told)
    assert routes.count("/v1/load_lora_adapter") == 3  # of two steps and a candidate
    assert not running(tmp_path)


def test_a_server_starts_with_all_memory_that_this_process_can_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its share of what is free, and torch keeps what the baseline's model had."""
    from workbench_engine import generation
    from workbench_hf import provider
    from workbench_training.serving import server_setup

    seen: list[Any] = []

    def free() -> None:
        seen.append([key for key in provider._ENGINES if str(tmp_path) in str(key)])

    monkeypatch.setattr(generation, "free_device_memory", free)

    async def start(*_: Any) -> Any:
        seen.append("started")
        raise SyncError("no server")

    monkeypatch.setattr(server_setup, "start_server", start)
    with pytest.raises(SyncError):
        optimized(tmp_path)
    assert seen == [[], "started"], "freed once no engine is left, before the server starts"


def test_all_weights_are_trained_on_a_server_that_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing, sleep, update, and the candidate drawn on the server: this process never draws with a checkpoint."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    from workbench_hf import provider

    loaded: list[str] = []
    real = provider._Engine._load
    monkeypatch.setattr(provider._Engine, "_load", lambda self: loaded.append(self._source) or real(self))
    report, _ = optimized(tmp_path, lora=False, sleep=True)
    assert report.status == "finished", report.error
    _, *lines = log_of(tmp_path).splitlines()
    taken = ["/collective_rpc", "/wake_up?tags=kv_cache", "/reset_prefix_cache", "/resume"]
    slept = ["/sleep?level=2&mode=wait", "/wake_up?tags=weights"]
    first = ["/v1/models", "/pause?mode=wait", "/collective_rpc", "/reset_prefix_cache", "/resume"]
    assert [line for line in lines if line.startswith("/") and line != "/v1/completions"] == [
        *first,
        *(*slept, *taken),
        *(*slept, *taken),  # for the candidate
    ]
    after = lines[len(lines) - 1 - lines[::-1].index("/resume") :]
    assert after.count("/v1/completions") == 1 + 4  # the probe, and val
    assert loaded.count(str(tmp_path / "base")) >= 1 and len(set(loaded) - {str(tmp_path / "base")}) <= 1  # the test


def test_rounds_of_sft_draw_between_their_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch's candidate is drawn on the server, and the next round begins with its weights."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    report, _ = optimized(tmp_path, optimizer="sft", lora=False, sleep=True)
    assert report.status == "finished", report.error
    routes = log_of(tmp_path).splitlines()[1:]
    assert routes.count("/collective_rpc") == 2 + 4  # rounds, candidates
    assert routes.count("/sleep?level=2&mode=wait") == 2


def test_candidates_score_alike_on_the_server_and_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At temperature 0 and in float32 they draw the same tokens, and the journal has them under the same keys."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = []
    for name, candidates in (("a", True), ("b", False)):
        report, _ = optimized(tmp_path / name, lora=False, seeds=True, candidates=candidates)
        assert report.status == "finished", report.error
        asked = log_of(tmp_path / name).splitlines().count("/v1/completions")
        with connect(tmp_path / name / "run.db") as db:
            calls = db.execute("select key, response from calls where lm like 'hf:%' order by key").fetchall()
        rows = [(key, {**json.loads(answer), "logprobs": None}) for key, answer in calls]
        found.append((asked, rows, {name: value for name, value in report.best.items() if name != "cost"}))
    (asked, rows, best), (fewer, others, same) = found
    assert asked == fewer + 1 + 4  # a probe, and val
    assert rows == others and best == same and len(rows) >= 8


def test_a_server_that_cannot_start_ends_the_run_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was paid for until then is kept, and no server is left."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with pytest.raises(SyncError, match="ended with exit code 1; it said: .*no GPU is here"):
        optimized(tmp_path / "a", arguments=["--fail"])
    with pytest.raises(SyncError, match=r"not ready after 0.3 s; .*its log: .*server\.log"):
        optimized(tmp_path / "b", start=0.3)
    cause = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    with pytest.raises(SyncError, match="its first error: torch.OutOfMemoryError: CUDA out of memory") as caught:
        optimized(tmp_path / "c", arguments=["--die", cause])
    assert "Engine core initialization failed" in str(caught.value), "and the last lines"
    assert str(caught.value).endswith("server.log") and "flash_attn" not in str(caught.value)
    assert not running(tmp_path)


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["INFO 11-26 12:00:00 [a.py:1] Error handling is on", "ValueError: no GPU", "bye"], "ValueError: no GPU"),
        (
            ["usage: vllm serve", "vllm: error: unrecognized arguments: --flag", "ERROR: no such model"],
            "vllm: error: unrecognized arguments: --flag",
        ),
        (
            [
                "(EngineCore_DP0 pid=7) ERROR 11-26 12:00:00 [core.py:7] EngineCore failed to start.",
                "(EngineCore_DP0 pid=7) ERROR 11-26 12:00:00 [core.py:7] Traceback (most recent call last):",
                '(EngineCore_DP0 pid=7) ERROR 11-26 12:00:00 [core.py:7]   File "a.py", line 1, in ErrorHandler',
                "(EngineCore_DP0 pid=7) ERROR 11-26 12:00:00 [core.py:7]     raise Unsupported('x')",
                "(EngineCore_DP0 pid=7) ERROR 11-26 12:00:00 [core.py:7] torch._dynamo.exc.Unsupported: no graph",
                "(EngineCore_DP0 pid=7) Process EngineCore_DP0:",
                "(EngineCore_DP0 pid=7) Traceback (most recent call last):",
                '(EngineCore_DP0 pid=7)   File "a.py", line 1, in f',
                "(EngineCore_DP0 pid=7) torch._dynamo.exc.Unsupported: no graph, told again",
                "RuntimeError: Engine core initialization failed. See root cause above.",
            ],
            "torch._dynamo.exc.Unsupported: no graph",
        ),
        (
            [
                "(APIServer pid=7) Traceback (most recent call last):",
                '(APIServer pid=7)   File "a.py", line 1, in f',
                "(APIServer pid=7) pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
                "(APIServer pid=7)   Value error, max_model_len (99999) is greater than 2048",
                *["bye"] * 9,
            ],
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig "
            "Value error, max_model_len (99999) is greater than 2048",
        ),
        (["Traceback (most recent call last):", "a.b.MyException", "RuntimeError: later"], "a.b.MyException"),
        (["RuntimeError: Engine core initialization failed. See root cause above."], ""),
        (["all is well"], ""),
        ([], ""),
    ],
)
def test_the_first_error_of_a_log_is_found(lines: list[str], cause: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("\n".join(["OSError: of an earlier start", *lines]))
    start = len("OSError: of an earlier start\n")
    told = describe_log(log, start)
    assert told.endswith(f"its log: {log}") and "earlier start" not in told
    assert find_cause(lines) == cause and cause in told


def test_a_server_does_not_inherit_the_allocator_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("HF_HOME", "/models")
    found = ManagedServer.inherited()
    assert found["HF_HOME"] == "/models" and not any("ALLOC_CONF" in name for name in found)


def test_a_program_that_is_not_there_is_found_before_anything_is_paid(tmp_path: Path) -> None:
    report, _ = optimized(tmp_path, command="no-such-server serve")
    assert report.status == "failed" and report.spent["calls"] == 0
    assert re.search(r"no program 'no-such-server' to start .*\[vllm\]", report.error or "")
    assert report.lines()[-1].startswith("Nothing paid for is lost. Resume it with: workbench resume")


def test_weights_spread_over_two_processes_are_drawn_on_a_server(tmp_path: Path) -> None:
    """The first process sends the copy that it keeps for drawing; the probe compares it with what the server says."""
    grpo = {
        "schedule": {"steps": 2, "tasks": 2, "rollouts": 2, "evaluate_every": 2},
        "device": "cpu",
        "guards": ["empty", "repeated"],
        "rewards": [{"kind": "length", "tokens": 8}],
        "learning": {"rate": 1e-2, "fsdp": True},
        "server": {"command": STAND_IN, "sleep": True},
    }
    nodes = {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 6}}}
    lm = f"hf:{save(tmp_path / 'base', 1, positions=512)}"
    file = write(tmp_path, lm=lm, nodes=nodes, rows=(4, 3, 6), optimizers=[{"grpo": grpo}])
    where = ("--db", str(tmp_path / "run.db"), "--out", str(tmp_path / "out.yaml"), "--json")
    jobs = start_two("-m", "workbench", "optimize", str(file), *where, env={"PYTHONPATH": str(ROOT)})
    (code, told, wrong), (other, _, _) = map(end, jobs)
    assert (code, other) == (0, 0), wrong[-3000:]
    assert json.loads(told.strip().splitlines()[-1])["status"] == "finished"
    routes = log_of(tmp_path).splitlines()[1:]
    # Two steps and a candidate, each with its probe.
    assert routes.count("/collective_rpc") == 3 and routes.count("/sleep?level=2&mode=wait") == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child that its parent died")
def test_a_killed_run_takes_its_server_along(tmp_path: Path) -> None:
    base = save(tmp_path / "base", 1)
    code = f"""
import asyncio, os
from pathlib import Path
from workbench_training.serving.vllm_server import ManagedServer
from workbench_training.settings import ServerSettings
async def main():
    server = ManagedServer({str(base)!r}, ServerSettings(command={STAND_IN!r}), Path({str(tmp_path / "log")!r}), [], {{}})
    await server.start()
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""  # noqa: E501
    assert start_python(code, env={"PYTHONPATH": str(ROOT)}).wait(200) == -9
    for _ in range(100):
        if not running(tmp_path):
            return
        time.sleep(0.1)
    raise AssertionError("the server outlived the run")
