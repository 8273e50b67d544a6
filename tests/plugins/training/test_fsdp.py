"""Weights spread over two processes (`learning.fsdp`): the steps of one process, half of its memory, the same files."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from pydantic import ValidationError  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from tests.helpers.forking import Job  # noqa: E402
from tests.helpers.grpo_runs import calls_in, run, write  # noqa: E402
from tests.helpers.processes import end, start_two  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402
from tests.plugins.training.test_learner import ADVANTAGES, learner, some_rows  # noqa: E402

from workbench.errors import PluginError  # noqa: E402
from workbench_training.grpo import GRPO  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.model import logprobs  # noqa: E402
from workbench_training.model.policy import Policy, Weights, digest_of, last_checkpoint, write_checkpoint  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.scale import distributed as processes  # noqa: E402
from workbench_training.scale.orders import ProcessDied  # noqa: E402
from workbench_training.settings import Learning  # noqa: E402
from workbench_training.sft import SFT  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[3]
SGD = 0.1  # this rate means SGD: AdamW's first step is the gradient's sign, which would make noise of rounding large
NONE = [0.0] * 7
#: Algorithm, changes to its objective, learning, advantages of each step. Seven and nine rows for two processes.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], list[list[float]]]] = {
    "grpo": ("grpo", {"beta": 0.1}, {"epochs": 2, "minibatches": 3, "micro_tokens": 24}, [ADVANTAGES[:7]] * 2),
    "pairs": ("trpa", {}, {"epochs": 2}, [ADVANTAGES + ADVANTAGES[:1]] * 2),
    "few": ("dapo", {}, {"minibatches": 2}, [[0, 0, 1.0, 0, 0, 0, 0], ADVANTAGES[:7]]),
    "none": ("dapo", {}, {}, [ADVANTAGES[:7], NONE]),
    "recomputed": (
        "grpo",
        {"beta": 0.1},
        {"checkpointing": True, "minibatches": 3, "micro_tokens": 24},
        [ADVANTAGES[:7]] * 2,
    ),
}


# What the two processes do


def worker(base: str, out: str) -> None:
    """In the first process the schedule of `lead`; the other serves it, and notes what it sees."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    seen: dict[str, Any] = {"batches": [], "skipped": [], "bytes": {}}
    watch(seen, rank)
    processes.share(rank, 2, lambda: lead(base, Path(out), seen))
    note(seen, rank)


def note(seen: dict[str, Any], rank: int) -> None:
    Path(os.environ["SEEN"], f"seen-{rank}.json").write_text(json.dumps(seen))


#: Warm-ups by which the processes know what a step is for: to die in it, or to weigh what it holds.
DYING, WEIGHED = 7, 9


def watch(seen: dict[str, Any], rank: int) -> None:
    renew, batches, step = Learner.renew, Learner._micro_batches, Learner.step

    def renewed(self: Learner) -> None:
        renew(self)
        if self.rate == SGD:
            self.optimizer = torch.optim.SGD(list(self.policy.trained.values()), lr=SGD)

    def split(self: Learner, *args: Any) -> list[list[int]]:
        found = batches(self, *args)
        seen["batches"].append(len(found))
        if rank == 1 and self.learning.warmup == DYING:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    def stepped(self: Learner, *args: Any, **more: Any) -> dict[str, float]:
        logprobs.LOGITS = 7 * 56 if self.policy.checkpointing else 1 << 27  # else all logits are one chunk
        if self.learning.warmup == WEIGHED:
            seen["bytes"] = weigh(self, lambda: step(self, *args, **more))
            return {}
        figures = step(self, *args, **more)
        seen["skipped"].append(self.skipped)
        note(seen, rank)
        return figures

    Learner.renew, Learner._micro_batches, Learner.step = renewed, split, stepped  # type: ignore[method-assign]


def weigh(made: Learner, step: Callable[[], Any]) -> dict[str, int]:
    """Bytes of this process's shares, and of all tensors that are alive when the optimizer steps."""
    found, real = {}, made.optimizer.step

    def size(tensors: Any) -> int:
        storages = [t.to_local().untyped_storage() for t in tensors]  # gradients of a layer lie in one
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def watched(*args: Any) -> Any:
        result = real(*args)
        found["weights"] = size(made.policy.trained.values())
        found["gradients"] = size(p.grad for p in made.policy.trained.values())
        found["memory"] = size(t for s in made.optimizer.state.values() for t in s.values() if t.dim())
        alive = {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
            for t in gc.get_objects()
            if type(t) in (torch.Tensor, torch.nn.Parameter) and t.is_floating_point()
        }
        found["alive"] = sum(alive.values())
        return result

    made.optimizer.step = watched  # type: ignore[method-assign]
    gc.collect()
    step()
    return found


def sharded(base: str, algorithm: str, changes: dict[str, Any], **learning: Any) -> Learner:
    settings = Learning.model_validate({"rate": SGD, "fsdp": True, **learning})
    # In the schedule whose bytes are counted, a server would draw.
    policy = processes.make_policy(settings, base, device="cpu", everywhere=settings.warmup != WEIGHED)
    return processes.learner_for(policy, make_objective(algorithm, changes), settings)


def schedule(made: Learner, advantages: list[list[float]]) -> None:
    for version, values in enumerate(advantages):
        made.step(some_rows(len(values), seed=version), values, version)


def lead(base: str, out: Path, seen: dict[str, Any]) -> int:
    facts: dict[str, Any] = {}
    for name, (algorithm, changes, learning, advantages) in CASES.items():
        made = sharded(base, algorithm, changes, **learning)
        schedule(made, advantages)
        save_file(made.snapshot(), out / f"{name}.safetensors")
        made.close()
    made = sharded(base, "dapo", {}, rate=1e-2, warmup=WEIGHED)
    made.step(some_rows(), ADVANTAGES, 0)
    made.close()
    # A step that is not finite; the row is in one process alone.
    made = sharded(base, "dapo", {}, rate=1e-2)
    before = made.snapshot()
    figures = made.step(some_rows(), [math.inf, *ADVANTAGES[1:]], 0)
    facts["unmoved"] = equal(before, made.snapshot()) and "grad_norm" not in figures
    made.step(some_rows(), ADVANTAGES, 0)
    after = made.snapshot()
    facts["moved"] = not equal(before, after)
    made.step(some_rows(), [0.0] * 8, 0)  # nothing for anyone: AdamW's memory does not go on alone
    facts["still"] = equal(after, made.snapshot())
    # Back to earlier weights, and the copy that draws with them.
    made.go_back(before)
    facts["back"] = equal(before, made.snapshot()) and equal(before, drawing(made)) and not made.optimizer.state
    made.close()
    # A checkpoint holds all that the next step depends on.
    made, again = (sharded(base, "grpo", {"beta": 0.1}, rate=1e-2) for _ in range(2))
    schedule(made, [ADVANTAGES] * 2)
    write_checkpoint(out / "schedule", 2, made.tensors(), {"state": {}})
    saved = last_checkpoint(out / "schedule")
    assert saved is not None
    facts["parts"] = {part: sum(t.numel() for t in tensors.values()) for part, tensors in saved[1].items()}
    again.load(saved[1])
    facts["loaded"] = equal(made.snapshot(), again.snapshot()) and equal(made.snapshot(), drawing(again))
    for one in (made, again):
        one.step(some_rows(seed=9), ADVANTAGES, 2)
    facts["resumed"] = equal(made.snapshot(), again.snapshot()) and not equal(made.snapshot(), saved[1]["weights"])
    facts["drawing"] = equal(made.snapshot(), drawing(made))
    facts["folder"], facts["digest"] = str(made.save(out / "weights")), digest_of(made.snapshot())
    facts["kl"] = made.step(some_rows(), ADVANTAGES, 3)["kl"]
    made.reset_reference()
    facts["reset"] = made.step(some_rows(), ADVANTAGES, 4)["kl"]
    (out / "facts.json").write_text(json.dumps(facts))
    made = sharded(base, "dapo", {}, warmup=DYING)  # the other process dies within this step
    note(seen, 0)
    try:
        made.step(some_rows(), ADVANTAGES, 0)
    except ProcessDied as error:
        facts["death"] = str(error)
        (out / "facts.json").write_text(json.dumps(facts))
    return 0


def equal(a: Weights, b: Weights) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def drawing(made: Learner) -> Weights:
    """The weights of the copy that draws."""
    return {name: p.detach() for name, p in made.policy.generator.model.named_parameters()}


# Steps


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1))


@pytest.fixture(scope="module")
def out(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.plugins.training.test_fsdp import worker; worker({base!r}, {str(folder)!r})"  # noqa: E501
    jobs = start_two("-c", code, env={"SEEN": str(folder)})
    ends = [end(job) for job in jobs]
    assert ends[0][0] == 0, ends[0][2][-3000:]
    assert ends[1][0] == -signal.SIGKILL, ends[1][2][-3000:]
    return folder


@pytest.fixture(scope="module")
def facts(out: Path) -> dict[str, Any]:
    return json.loads((out / "facts.json").read_text())


@pytest.mark.parametrize("name", CASES)
def test_two_processes_with_half_of_the_weights_step_as_one_does(base: str, out: Path, name: str) -> None:
    algorithm, changes, learning, advantages = CASES[name]
    alone = learner(base, algorithm, changes=changes, rate=SGD, **learning)
    alone.optimizer = torch.optim.SGD(list(alone.policy.trained.values()), lr=SGD)
    schedule(alone, advantages)
    found = load_file(out / f"{name}.safetensors")
    apart = max(float((found[k] - p).abs().max()) for k, p in alone.policy.snapshot().items())
    moved = max(float((found[k] - p).abs().max()) for k, p in learner(base).policy.snapshot().items())
    assert apart < 1e-6 < 1e-3 < moved, (apart, moved)


def test_processes_have_unequal_numbers_of_micro_batches_in_these_steps(out: Path) -> None:
    """Else they would not show that the one with fewer goes along with the others."""
    first, second = (json.loads((out / f"seen-{rank}.json").read_text())["batches"] for rank in (0, 1))
    apart = {(a, b) for a, b in zip(first, second, strict=False)}
    assert {(2, 1), (1, 0), (0, 0)} <= apart, apart


def test_each_process_holds_half_of_weights_gradients_and_memory(base: str, out: Path) -> None:
    whole = 4 * sum(p.numel() for p in learner(base).policy.trained.values())
    held = [json.loads((out / f"seen-{rank}.json").read_text())["bytes"] for rank in (0, 1)]
    for part, times in (("weights", 1), ("gradients", 1), ("memory", 2)):
        assert all(h[part] < 0.52 * times * whole for h in held), (part, held)
        assert sum(h[part] for h in held) >= times * whole, (part, held)
    # Nothing else is alive, but for the copy that the first process draws with.
    print({"bytes per weight": [h["alive"] * 4 / whole for h in held]})
    assert held[1]["alive"] < 0.55 * 4 * whole and held[0]["alive"] < 0.55 * 4 * whole + whole, held


def test_a_step_that_is_not_finite_is_skipped_in_both(out: Path, facts: dict[str, Any]) -> None:
    assert facts["unmoved"] and facts["moved"] and facts["still"]
    for rank in (0, 1):
        assert 1 in json.loads((out / f"seen-{rank}.json").read_text())["skipped"]


def test_weights_come_back_and_go_on_as_they_were(base: str, facts: dict[str, Any]) -> None:
    assert facts["back"] and facts["loaded"] and facts["resumed"] and facts["drawing"]
    count = sum(p.numel() for p in learner(base).policy.trained.values())
    assert facts["parts"]["weights"] == facts["parts"]["reference"] == count < facts["parts"]["optimizer"] / 2
    assert facts["kl"] > 1e-4 > abs(facts["reset"])


def test_what_is_written_is_what_one_process_would_write(tmp_path: Path, facts: dict[str, Any]) -> None:
    folder = Path(facts["folder"])
    again = Policy(str(folder), device="cpu")
    assert folder.name == facts["digest"] == again.digest()
    alone = again.save(tmp_path)
    assert sorted(p.name for p in alone.iterdir()) == sorted(p.name for p in folder.iterdir())
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        assert (alone / name).read_bytes() == (folder / name).read_bytes()


def test_a_process_that_dies_within_a_step_ends_the_run(facts: dict[str, Any]) -> None:
    assert "no longer answers. `workbench resume`" in facts["death"]


# Settings


def test_adapters_imitation_and_a_single_process_are_refused() -> None:
    with pytest.raises(ValidationError, match="remove either `lora` or `fsdp`"):
        GRPO.model_validate({"lora": {}, "learning": {"fsdp": True}})
    with pytest.raises(ValidationError, match="remove either `lora` or `fsdp`"):
        GRPO.model_validate({"lora": {}, "policies": {"a": {"address": "lm", "learning": {"fsdp": True}}}})
    with pytest.raises(ValidationError, match="remove fsdp"):
        SFT.model_validate({"learning": {"fsdp": True}})
    with pytest.raises(PluginError, match="there is only one. Start the run by `torchrun"):
        processes.make_policy(Learning.model_validate({"fsdp": True}), "nowhere")


# Runs


def test_a_run_on_two_processes_is_that_of_one_and_survives_kill_9(tmp_path: Path) -> None:
    """One run as a whole; one whose first process is killed in its last step, and which is resumed."""
    torch.set_num_threads(1)
    nodes = {"sort": {"predict": "text -> label: Literal['billing', 'technical']", "decoding": {"max_tokens": 6}}}
    grpo = {
        "schedule": {"steps": 3, "tasks": 2, "rollouts": 4, "evaluate_every": 2, "save_every": 1},
        "device": "cpu",
        "guards": ["empty", "repeated"],
        "rewards": [{"kind": "length", "tokens": 8}],
        "beta": 0.01,
        "learning": {"rate": 1e-3, "minibatches": 2},
    }
    lm = f"hf:{save(tmp_path / 'base', 0, positions=512)}"
    common: dict[str, Any] = {"lm": lm, "nodes": nodes, "rows": (8, 3, 6)}
    spread = {**grpo, "learning": {**grpo["learning"], "fsdp": True}}

    def begin(name: str, *command: str) -> list[Job]:
        where = ("--db", str(tmp_path / name / "run.db"), "--out", str(tmp_path / name / "optimized.yaml"))
        return start_two("-m", "workbench", *command, *where, "--json")

    files = [str(write(tmp_path / name, **common, optimizers=[{"grpo": spread}])) for name in ("whole", "killed")]
    ends = [end(job) for job in begin("whole", "optimize", files[0])]
    assert [code for code, _, _ in ends] == [0, 0], ends[0][2][-3000:]
    jobs = begin("killed", "optimize", files[1])
    while calls_in(tmp_path / "killed") < 18 and jobs[0].poll() is None:  # 8 to a step: within the third
        time.sleep(0.002)
    jobs[0].kill()
    assert [end(job)[0] for job in jobs][1] > 0, "the other process hears it, and ends with an error"
    ended = [end(job) for job in begin("killed", "resume", "last")]
    assert [code for code, _, _ in ended] == [0, 0], ended[0][2][-3000:]
    one = run(tmp_path / "one", **common, optimizers=[{"grpo": grpo}]).as_dict()
    whole, resumed = (json.loads(found[0][1].strip().splitlines()[-1]) for found in (ends, ended))
    assert whole["spent"]["calls"] == one["spent"]["calls"] and whole["best"]["val"] == one["best"]["val"]
    assert ends[1][1] == ""  # one process reports
    # Candidates are named by their bits.
    found = {
        name: sorted((tmp_path / name / "run-weights").glob("[0-9a-f]" * 16), key=lambda p: p.stat().st_mtime)
        for name in ("one", "whole", "killed")
    }
    names = {name: [folder.name for folder in folders] for name, folders in found.items()}
    assert len(names["whole"]) == len(names["one"]) == 2 and names["killed"] == names["whole"] != names["one"]
    assert resumed["best"]["test"] == whole["best"]["test"]
    last = [load_file(found[name][-1] / "model.safetensors") for name in ("one", "whole")]
    start = load_file(tmp_path / "base/model.safetensors")
    apart = sum(float((last[0][k] - last[1][k]).abs().sum()) for k in start)
    moved = sum(float((last[0][k] - start[k]).abs().sum()) for k in start)
    assert moved > 1.0 and apart < 0.01 * moved, (apart, moved)
