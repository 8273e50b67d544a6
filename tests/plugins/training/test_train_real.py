"""The commands that train a real model on a GPU, and measure it there, run with tiny weights on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.forking import start_file

ROOT = Path(__file__).parents[3]
DATA = next((p for p in (ROOT / "shared/data", ROOT.parent / "shared/data") if p.is_dir()), None)


def run(*command: str) -> str:
    file, *words = command
    job = start_file(file, *words)
    out, err = job.communicate(280)
    assert job.returncode == 0, err[-2000:]
    return out


@pytest.mark.skipif(DATA is None, reason="the shared data are not here")
@pytest.mark.parametrize(
    ("task", "flags"), [pytest.param("bfcl", ["--resets"], marks=pytest.mark.long), ("gsm8k", ["--minutes", "0.05"])]
)
def test_both_sides_train_and_are_scored(task: str, flags: list[str], tmp_path: Path) -> None:
    run(
        "contrib/bench/training/train_real.py",
        "--toy",
        "--data",
        str(DATA),
        "--out",
        str(tmp_path / "out.jsonl"),
        "--work",
        str(tmp_path / "work"),
        "--tasks",
        task,
        *flags,
    )
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert {name: len(scores) for name, scores in row["scores"].items()} == dict.fromkeys(
        ("base", "sft", "ours", "trl"), 4
    )
    drawn = [step["rollouts"] for step in row["told"] if "rollouts" in step]
    if "--minutes" in flags:
        assert len(row["trl_curve"]) >= 1 and row["seconds"]["ours"] < 60, "time ends it: a million steps are allowed"
    else:
        assert drawn == [4.0] * 4 and len(row["trl_curve"]) == 4  # both sides: four steps of four rollouts
    assert row["resets"] >= 2 if "--resets" in flags else row["resets"] == 0


@pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:FutureWarning")
def test_trl_runs_as_it_ships_with_its_own_engine(tmp_path: Path) -> None:
    """Its settings are made here; that its engine draws needs a GPU."""
    pytest.importorskip("trl")
    sys.path.insert(0, str(ROOT / "contrib" / "bench" / "training"))
    from argparse import Namespace

    import train_real

    options = Namespace(vllm=True, memory=0.4, minutes=None, rate=1e-6)
    made = train_real.trl_config(tmp_path, train_real.TOY, options, 0, cuda=False)
    assert made.use_vllm and made.vllm_mode == "colocate" and made.vllm_gpu_memory_utilization == 0.4
    assert made.gradient_checkpointing and made.num_generations == train_real.TOY.rollouts
    large = train_real.trl_config(tmp_path, train_real.REAL["gsm8k"], options, 0, cuda=False)
    assert (large.per_device_train_batch_size, large.gradient_accumulation_steps) == (32, 4), "128 rows a step, as ours"
    assert large.generation_batch_size == 128
    options.vllm = False
    assert not train_real.trl_config(tmp_path, train_real.TOY, options, 0, cuda=False).use_vllm


@pytest.mark.long
def test_the_figures_of_a_gpu_are_told_beside_trl() -> None:
    """With a GPU's number of rollouts, short answers and no GPU: so no memory, and next to nothing of its peak."""
    pytest.importorskip("trl")
    told = run(
        "contrib/bench/training/trl_speed.py",
        "--case",
        "llama",
        "--lengths",
        "ragged",
        "--steps",
        "2",
        "--toy",
    )
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    assert found["steps"] == 2 and found["gpu"] == "none" and found["weights"] > 2_000_000
    assert found["tokens"] > 16 * 8 and all(speed > 0 for speed in found["drawn_per_second"])
    assert found["mfu_update"] < 0.01 and found["our_update"] > 0 and found["max_gib"] == [{}, {}]


def test_memory_is_counted_and_an_update_is_made_to_measure_it() -> None:
    found = json.loads(run("contrib/bench/training/memory.py", "--toy"))
    assert found["measured"] == {"learned": True} and found["counted"]["most"] > found["counted"]["resting"] > 0


@pytest.mark.long
def test_what_a_gpu_computes_is_compared_with_the_cpu() -> None:
    """Here the CPU with itself: nothing is captured, and bfloat16 is off."""
    told = run("contrib/bench/training/gpu_check.py", "--device", "cpu").splitlines()
    assert len(told) == 28 and all(line.startswith("ok ") for line in told)


def test_the_speed_of_drawing_is_measured_here_and_on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    server, here = map(json.loads, run("contrib/bench/training/draw_speed.py", "--toy").splitlines())
    assert (server["where"], server["transfer"], here["where"]) == ("server", "reload", "process")
    assert min(server["tokens_per_second"], here["tokens_per_second"], server["start"], *server["sync"]) > 0
    assert len(server["sync"]) == len(server["sleep"]) == 2
