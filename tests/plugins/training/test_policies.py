"""Several policies in one training: credit, separate weights, one candidate, kills; and one training on two
processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.helpers.sqlite import connect

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "contrib" / "bench" / "training"))

from tests.helpers.forking import start_python  # noqa: E402
from tests.helpers.grpo_runs import assert_equal_weights, kill_after, needs_torch, run  # noqa: E402

from workbench_training.grpo import GRPO  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

NODES = {
    "hint": {"predict": "text -> hint", "decoding": {"max_tokens": 4}, "optional": True},
    "sort": {"predict": "text -> label: Literal['billing', 'technical']", "decoding": {"max_tokens": 6}},
}
COURSE = {"steps": 3, "tasks": 2, "rollouts": 4, "evaluate_every": 2, "save_every": 1}


def settings(lora: bool, **more: Any) -> dict[str, Any]:
    extra = {"lora": {"rank": 2}} if lora else {}
    return {
        "schedule": COURSE,
        "device": "cpu",
        "learning": {"rate": 1e-2},
        "guards": ["empty", "repeated"],
        "rewards": [{"kind": "length", "tokens": 8}],
        "policies": {
            "first": {"address": "nodes.hint.lm", **extra},
            "second": {
                "address": "nodes.sort.lm",
                "rewards": [{"kind": "length", "tokens": 4, "weight": -1.0}],
                "learning": {"rate": 5e-3},
                **extra,
            },
        },
        **more,
    }


def base(folder: Path) -> str:
    from tests.helpers.tiny_lm import save

    return f"hf:{save(folder / 'base', 0, positions=512) if not (folder / 'base').exists() else folder / 'base'}"


def trained(folder: Path) -> list[dict[str, Any]]:
    """The LM of each node in every candidate but the baseline, in order."""

    with connect(folder / "run.db") as db:
        trees = [
            json.loads(text)
            for (text,) in db.execute(
                "select c.tree from candidates c join evaluations e on e.run_id = c.run_id and e.candidate = c.hash "
                "and e.split = 'val' order by c.seq"
            )
        ]
    return [
        {name: Path((node.get("lm") or {"model": ""})["model"]).name for name, node in tree["nodes"].items()}
        for tree in trees[1:]
    ]


def test_wrong_policies_are_refused() -> None:
    with pytest.raises(ValidationError, match="two policies have the address lm"):
        GRPO.model_validate({"policies": {"a": {"address": "lm"}, "b": {"address": "lm"}}})
    with pytest.raises(ValidationError, match="not a name for a policy"):
        GRPO.model_validate({"policies": {"a.b": {"address": "lm"}}})
    with pytest.raises(ValidationError, match="either `address` or `policies`"):
        GRPO.model_validate({"address": "nodes.x.lm", "policies": {"a": {"address": "lm"}}})


@pytest.mark.long
def test_two_policies_learn_their_parts_of_a_relay_each_from_its_own_reward() -> None:
    """The first learns to pass a digit on, the second to repeat it. With what the other earned (the control), neither
    learns its part. Few steps: the success of both together is on its way, not at its end."""
    needs_torch()
    from train_worlds import train

    learned = train("relay", "policies", 0, 3e-3)
    swapped = train("relay", "swapped", 0, 3e-3)
    print({"policies": learned[::5], "swapped": swapped[::5]})
    assert sum(learned[-5:]) / 5 > 0.35
    assert sum(swapped[-5:]) / 5 < 0.15


@pytest.mark.parametrize("lora", [True, False])
def test_one_candidate_changes_all_policies_and_each_learns_from_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: bool
) -> None:
    needs_torch()
    from workbench_training.learner import Learner

    seen: dict[int, list[Any]] = {}
    learners: dict[int, Any] = {}
    real = Learner.step

    def watched(self: Learner, rows: Any, *args: Any, **more: Any) -> dict[str, float]:
        seen.setdefault(id(self), []).extend(rows)
        learners[id(self)] = self
        return real(self, rows, *args, **more)

    monkeypatch.setattr(Learner, "step", watched)
    heard: list[Any] = []
    report = run(
        tmp_path, lm=base(tmp_path), nodes=NODES, optimizers=[{"grpo": settings(lora)}], rows=(8, 3, 3), heard=heard
    )
    assert report.status == "finished"
    agents = {name: {(r.agent, r.policy) for r in rows} for name, rows in seen.items()}
    assert sorted(next(iter(found)) for found in agents.values()) == [("hint", "first"), ("sort", "second")]
    assert all(len(found) == 1 for found in agents.values())
    # Rewards are those of the role: longer is better for the first, and worse for the second.
    for rows in seen.values():
        assert all(r.reward >= 0 if r.policy == "first" else r.reward <= 0 for r in rows)
        assert any(r.reward for r in rows)
    first, second = learners.values()
    assert (first.policy.model is second.policy.model) == lora
    assert {first.rate, second.rate} == {1e-2, 5e-3}
    steps = [figures for message, figures in heard if message.startswith("step ")]
    assert all(
        {"first.grad_norm", "second.grad_norm", "first.off_policy_gap", "second.off_policy_gap"} <= set(f)
        for f in steps
    )
    assert all(
        max(f["first.off_policy_gap"], f["second.off_policy_gap"]) < 1e-3 for f in steps
    )  # each was drawn with its own weights
    folders = trained(tmp_path)
    assert len(folders) == 2 and all(c["hint"] and c["sort"] and c["hint"] != c["sort"] for c in folders)
    assert folders[0]["hint"] != folders[1]["hint"] and folders[0]["sort"] != folders[1]["sort"]


KILLED = """
import sys
sys.path[:0] = [{root!r}]
import torch
torch.set_num_threads(1)
from pathlib import Path
from tests.plugins.training.test_policies import NODES, base, run, settings
folder = Path({folder!r})
run(folder, again={again}, lm=base(folder.parent), nodes=NODES, optimizers=[{{"grpo": settings(True)}}], rows=(8, 3, 3))
"""


@pytest.mark.timeout(1200)  # it starts Python and torch several times
def test_two_policies_that_were_killed_end_with_the_same_weights(tmp_path: Path) -> None:
    needs_torch()
    common: dict[str, Any] = {
        "lm": base(tmp_path),
        "nodes": NODES,
        "optimizers": [{"grpo": settings(True)}],
        "rows": (8, 3, 3),
    }
    run(tmp_path / "whole", **common)
    killed, again = tmp_path / "killed", False
    for calls in (5, 40):  # 16 to a step: within the first and the last
        code = KILLED.format(root=str(ROOT), folder=str(killed), again=again)
        kill_after(calls, start_python(code), killed, seconds=300)
        again = True
    run(killed, again=True, **common)
    found = [trained(folder) for folder in (killed, tmp_path / "whole")]
    assert len(found[0]) == len(found[1]) == 2
    for node in NODES:
        names = [(one[node], two[node]) for one, two in zip(*found, strict=True)]
        assert_equal_weights(killed, tmp_path / "whole", names)


@pytest.mark.timeout(900)
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    """`torchrun -m workbench optimize`: one run, one journal; weights as with one process, up to rounding."""
    needs_torch()
    from safetensors.torch import load_file
    from tests.helpers.grpo_runs import write

    grpo = {
        "schedule": COURSE,
        "device": "cpu",
        "learning": {"rate": 1e-3},
        "guards": ["empty", "repeated"],
        "rewards": [{"kind": "length", "tokens": 8}],
    }
    common: dict[str, Any] = {"lm": base(tmp_path), "nodes": NODES, "optimizers": [{"grpo": grpo}], "rows": (8, 3, 6)}
    file = write(tmp_path / "two", **common)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
        "-m",
        "workbench",
        "optimize",
        str(file),
        "--db",
        str(tmp_path / "two/run.db"),
        "--out",
        str(tmp_path / "two/out.yaml"),
        "--json",
    ]
    job = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert job.returncode == 0, job.stderr[-3000:]
    two = json.loads(job.stdout.strip().splitlines()[-1])
    one = run(tmp_path / "one", **common).as_dict()
    assert two["spent"]["calls"] == one["spent"]["calls"] and two["best"]["val"] == one["best"]["val"]
    assert len(job.stdout.strip().splitlines()) == 1  # one process reports
    found = [
        sorted((f / "run-weights").glob("[0-9a-f]" * 16), key=lambda p: p.stat().st_mtime)
        for f in (tmp_path / "one", tmp_path / "two")
    ]
    assert len(found[0]) == len(found[1]) == 2
    start = load_file(tmp_path / "base/model.safetensors")
    for a, b in zip(*found, strict=True):
        one_, two_ = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
        apart = sum(float((one_[k] - two_[k]).abs().sum()) for k in one_)
        moved = sum(float((one_[k] - start[k]).abs().sum()) for k in one_)
        assert moved > 1.0 and apart < 0.01 * moved, (apart, moved)
