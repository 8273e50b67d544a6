"""Micro-batches: split in any way they give one gradient, also where memory runs out in the middle of one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file  # noqa: E402
from tests.helpers.forking import start_python  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402
from tests.plugins.training import test_learner  # noqa: E402
from tests.plugins.training.test_learner import ADVANTAGES, some_rows  # noqa: E402

from workbench.errors import PluginError  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.model import logprobs, micro_batches, split_pass  # noqa: E402
from workbench_training.model.micro_batches import MicroTokens, split_rows  # noqa: E402
from workbench_training.rollouts.token_rows import collate  # noqa: E402
from workbench_training.settings import Learning, Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1))


@pytest.fixture(autouse=True)
def unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip of the gradient would hide a wrong size."""
    monkeypatch.setattr("workbench_training.learner.MAX_NORM", 1e9)


def learner(base: str, algorithm: str = "dapo", **learning: Any) -> Learner:
    return test_learner.learner(base, algorithm, **learning)


def gradients(made: Learner) -> dict[str, Any]:
    """The gradient of one step, as what SGD takes off the weights."""
    made.optimizer = torch.optim.SGD(list(made.policy.trained.values()), lr=1.0)
    made.rate, before = 1.0, made.policy.snapshot()
    made.step(some_rows(), ADVANTAGES, 0)
    return {name: before[name] - p.detach() for name, p in made.policy.trained.items()}


def apart(a: dict[str, Any], b: dict[str, Any]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a)


# Splitting


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("size", [24, 7, 1])
@pytest.mark.parametrize("algorithm", ["dapo", "gspo", "rloo", "trpa"])
def test_split_groups_and_rows_give_the_same_gradient(
    base: str, algorithm: str, size: int, checkpointing: bool
) -> None:
    """24 tokens: groups are split; 7: long rows, too; 1: each token passes by itself."""
    plain = gradients(learner(base, algorithm))
    split = gradients(learner(base, algorithm, micro_tokens=size, checkpointing=checkpointing))
    assert apart(plain, split) < 1e-5 and max(float(g.abs().max()) for g in plain.values()) > 1e-3


@pytest.mark.parametrize("size", [7, 1])
def test_split_rows_give_the_same_gradient_to_an_adapter(base: str, size: int) -> None:
    pytest.importorskip("peft")
    lora = Lora(rank=2)
    plain = gradients(learner(base, "gspo", lora=lora))
    split = gradients(learner(base, "gspo", lora=lora, micro_tokens=size, checkpointing=True))
    assert apart(plain, split) < 1e-5 and max(float(g.abs().max()) for g in plain.values()) > 1e-3


def test_what_later_stretches_say_of_earlier_keys_counts(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: without it the gradient is another one."""
    plain = gradients(learner(base))
    monkeypatch.setattr(split_pass, "_leaf", lambda t, end: t[:, :, :end].detach())
    assert apart(plain, gradients(learner(base, micro_tokens=7))) > 1e-4


def test_no_pass_has_more_tokens_than_the_limit(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, sizes = learner(base, "trpa", micro_tokens=7), list[int]()
    decoder = made.policy.model.get_decoder()
    real = decoder.forward

    def counted(*args: Any, **more: Any) -> Any:
        sizes.append(more["input_ids"].numel())
        return real(*args, **more)

    monkeypatch.setattr(decoder, "forward", counted)
    made.step(some_rows(), ADVANTAGES, 0)
    assert max(sizes) == 7 and len(sizes) > 10


def test_log_probabilities_of_a_split_row_are_those_of_the_whole(base: str) -> None:
    made, rows = learner(base, "trpa"), some_rows()
    whole = made._log_probabilities(collate(rows), rows)
    made.micro.limit = 3
    assert (made._log_probabilities(collate(rows), rows) - whole).abs().max() < 1e-5 < whole.abs().max()


def test_micro_batches_hold_every_row_once() -> None:
    rng = random.Random(0)
    for _ in range(50):
        lengths = [rng.randrange(1, 30) for _ in range(12)]
        chosen = rng.sample(range(12), 9)
        parts = split_rows(lengths, chosen, 40)
        assert sorted(i for part in parts for i in part) == sorted(chosen)
        assert all(len(part) * max(lengths[i] for i in part) <= 40 for part in parts)


# Memory that runs out


class Exhausted:
    """Passes of more tokens than `room` run out of memory: in the backward pass, when the gradients of the last layer
    and of the head are there, or in the forward pass."""

    def __init__(self, made: Learner, room: int, monkeypatch: pytest.MonkeyPatch, *, backward: bool):
        self.room, self.failed, self.tokens = room, 0, 0
        model = made.policy.inner
        decoder = model.get_decoder()
        real = decoder.forward

        def counted(*args: Any, **more: Any) -> Any:
            self.tokens = more["input_ids"].numel()
            if not backward:
                self.run_out(None)
            return real(*args, **more)

        monkeypatch.setattr(decoder, "forward", counted)
        if backward:
            first = next(p for name, p in made.policy.trained.items() if "layers.0.mlp" in name)
            first.register_post_accumulate_grad_hook(self.run_out)

    def run_out(self, p: Any) -> None:
        if self.tokens > self.room:
            self.failed += 1
            raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("algorithm", "room"), [("dapo", 40), ("dapo", 9), ("trpa", 12), ("rloo", 6)])
def test_memory_that_runs_out_halves_micro_batches_and_counts_no_gradient_twice(
    base: str, monkeypatch: pytest.MonkeyPatch, algorithm: str, room: int, backward: bool
) -> None:
    monkeypatch.setattr(micro_batches, "MIN", 2)
    monkeypatch.setitem(logprobs.PASS_TOKENS, "cpu", 10**9)  # one pass of a micro-batch
    plain = gradients(learner(base, algorithm))
    made = learner(base, algorithm)
    exhausted = Exhausted(made, room, monkeypatch, backward=backward)
    assert apart(plain, gradients(made)) < 1e-5
    failed = exhausted.failed
    assert failed >= 1 and made.micro.limit <= 2 * room
    made.step(some_rows(), ADVANTAGES, 1)
    assert exhausted.failed == failed, "the smaller size is kept"


def test_one_of_two_processes_may_run_out_of_memory(base: str, tmp_path: Path) -> None:
    """It tries again by itself: what all do together, they do once."""
    code = f"""
import sys
import pytest
import torch
import torch.distributed as dist
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from safetensors.torch import save_file
from tests.plugins.training.test_micro_batches import Exhausted, gradients, learner
from workbench_training import learner as module
from workbench_training.model import logprobs, micro_batches
module.MAX_NORM = 1e9
rank, base, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{{out}}/meet", rank=rank, world_size=2)
made, micro_batches.MIN, logprobs.PASS_TOKENS["cpu"] = learner(base, shared=True), 2, 10**9
exhausted = Exhausted(made, 9 if rank else 10**9, pytest.MonkeyPatch(), backward=True)
save_file(gradients(made), f"{{out}}/{{rank}}.safetensors")
assert exhausted.failed == 0 if rank == 0 else exhausted.failed > 1
"""
    jobs = [start_python(code, str(rank), base, str(tmp_path)) for rank in (0, 1)]
    assert [job.wait(timeout=200) for job in jobs] == [0, 0]
    plain = gradients(learner(base))
    for rank in (0, 1):
        assert apart(plain, load_file(tmp_path / f"{rank}.safetensors")) < 1e-5


def test_a_row_that_cannot_fit_is_refused_with_the_setting_that_helps(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    for lora, checkpointing, hint in (
        (None, False, "checkpointing: true"),
        (None, True, "lora: {}"),
        (Lora(rank=2), True, "max_tokens"),
    ):
        made = learner(base, lora=lora, checkpointing=checkpointing)
        Exhausted(made, 0, monkeypatch, backward=False)
        with pytest.raises(PluginError, match=f"a row does not fit in the memory .*{hint}"):
            made.step(some_rows(), ADVANTAGES, 0)


def test_processes_with_shares_are_told_the_size_that_fits() -> None:
    def fail() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    micro = MicroTokens(Learning.model_validate({}), fixed=True)
    assert micro.takes(10**6)
    with pytest.raises(PluginError, match=r"a pass of 1000000 tokens .* `learning: \{micro_tokens: 8192\}`"):
        micro.attempt(fail)


# Sizes by measurement


class Device:
    """A device on which a pass takes 1,000 bytes and 10 for each token."""

    def __init__(self, memory: int):
        self.memory, self.tokens = memory, 0

    def room(self) -> int:
        return self.memory

    def restart(self) -> None:
        self.tokens = 0

    def most(self) -> int:
        return 1000 + 10 * self.tokens


def updated(micro: MicroTokens, device: Device, gradients: int = 0) -> int:
    micro.resize(gradients)
    limit = micro.limit
    for tokens in (limit // 3, limit, limit // 2):
        with micro.measured(tokens, 0):
            device.tokens = tokens
    return limit


def test_the_size_of_micro_batches_follows_the_memory() -> None:
    device = Device(200_000)
    micro = MicroTokens(Learning.model_validate({}), device)
    found = [updated(micro, device) for _ in range(6)]
    assert found[0] == 16384 and found[1] == int(0.85 * 200_000 / ((1000 + 163840) / 16384))
    assert 0.83 * device.memory < found[-1] * 10 + 1000 < 0.87 * device.memory
    device.memory = 100_000
    assert updated(micro, device) < 0.6 * found[-1]
    device.memory = 10**9
    sizes = [updated(micro, device) for _ in range(3)]
    assert sizes[1] == 2 * sizes[0] and micro.limit <= micro_batches.MAX


def test_a_size_that_is_given_is_kept() -> None:
    device = Device(10**9)
    micro = MicroTokens(Learning.model_validate({"micro_tokens": 16384}), device)
    assert [updated(micro, device) for _ in range(3)] == [16384] * 3


def test_gradients_are_no_part_of_what_a_token_takes() -> None:
    device = Device(200_000)
    micro = MicroTokens(Learning.model_validate({}), device)
    with micro.measured(1000, gradients=5000):
        device.tokens = 1000  # 11,000 bytes, of which 5,000 are gradients
    micro.resize(100_000)
    assert micro.limit == int(0.85 * 100_000 / 6.0)


def test_after_running_out_the_size_does_not_grow_again() -> None:
    device = Device(10**9)
    micro = MicroTokens(Learning.model_validate({}), device)

    def fail() -> None:
        assert micro.takes(10_000)
        raise torch.OutOfMemoryError("CUDA out of memory")

    assert micro.attempt(fail) is None and micro.limit == 5000
    assert [updated(micro, device) for _ in range(3)] == [5000] * 3
