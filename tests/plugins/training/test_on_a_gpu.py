"""Branches that only a GPU takes, with the device played on the CPU: bfloat16, the meter of memory, IPC handles."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.tiny_lm import save  # noqa: E402
from tests.plugins.training.test_learner import ADVANTAGES, some_rows  # noqa: E402
from tests.plugins.training.test_logprobs import rows_with_shared_prompts  # noqa: E402
from transformers import PreTrainedModel  # noqa: E402

from workbench.lm import Request  # noqa: E402
from workbench_engine.generation import Generator  # noqa: E402
from workbench_training import learner as learner_module  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.model import logprobs  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402
from workbench_training.serving.policy_lm import LocalEngine  # noqa: E402
from workbench_training.serving.weight_transfer import export_cuda_tensor  # noqa: E402
from workbench_training.settings import Learning, Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1))


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Products in bfloat16, as on a GPU. Holds what each pass said of the copies of weights."""
    passes = list[bool]()

    def mixed(self: Policy, cached: bool = True) -> Any:
        passes.append(cached)
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=cached)

    monkeypatch.setattr(Policy, "mixed", mixed)
    return passes


def gradients(base: str, rows: list[Row], algorithm: str = "dapo", **more: Any) -> Any:
    """The gradient of a step over all weights, in one vector."""
    policy = Policy(base, device="cpu", seed=0, **more)
    made = Learner(policy, make_objective(algorithm), Learning.model_validate({"rate": 1e-2}))
    found = list[Any]()
    made.optimizer = SimpleNamespace(
        step=lambda: found.extend(p.grad.clone() for p in policy.trained.values()),
        zero_grad=lambda *given, **how: [setattr(p, "grad", None) for p in policy.trained.values()],
        param_groups=made.optimizer.param_groups,
    )
    made.step(rows, [*ADVANTAGES, 1.0, -1.0][: len(rows)], 0)
    return torch.cat([grad.flatten() for grad in found])


def test_a_gpu_multiplies_in_bfloat16_and_a_cpu_does_not(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, asked = Policy(base, device="cpu", seed=0), list[Any]()
    monkeypatch.setattr(torch, "autocast", lambda *given, **how: asked.append((*given, how["enabled"])))
    policy.mixed()
    monkeypatch.setattr(Policy, "device", torch.device("cuda"))
    policy.mixed()
    assert asked == [("cpu", torch.bfloat16, False), ("cuda", torch.bfloat16, True)]


@pytest.mark.parametrize("tokens", [16, 64])
@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["all weights", "adapter"])
def test_drawing_and_training_agree_in_bfloat16(
    base: str, bfloat16: list[bool], monkeypatch: pytest.MonkeyPatch, tokens: int, lora: Lora | None
) -> None:
    """tokens: of a pass; the longest prompts are split."""
    monkeypatch.setitem(logprobs.PASS_TOKENS, "cpu", tokens)
    policy = Policy(base, device="cpu", seed=0, lora=lora)

    async def draw() -> Any:
        engine = LocalEngine(policy.generator, 0, 4)
        asked = [Request(({"role": "user", "content": "ab" * (i + 1)},), 1.0, 12, replica=i) for i in range(6)]
        try:
            return await asyncio.gather(*map(engine.complete, asked))
        finally:
            await engine.aclose()

    drawn = asyncio.run(draw())
    rows = [
        Row(tuple(r.prompt_ids), tuple(r.token_ids), (1,) * len(r.token_ids), tuple(r.logprobs), 1.0, "t", i)
        for i, r in enumerate(drawn)
    ]
    batch = collate(rows)
    found = policy.sampling_log_probabilities(batch)
    gaps = [abs(float(found[i, j]) - row.logprobs[j]) for i, row in enumerate(rows) for j in range(len(row.token_ids))]
    assert len(bfloat16) >= 2 and len(gaps) > 20
    assert sum(gaps) / len(gaps) < 0.01 and max(gaps) > 0.0, "the mean gap of sampler and trainer, in nats"


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("algorithm", ["dapo", "gspo"])
def test_gradients_in_bfloat16_point_where_those_in_float32_do(base: str, algorithm: str, checkpointing: bool) -> None:
    shared = [replace(row, logprobs=(-4.0,) * len(row.mask)) for row in rows_with_shared_prompts()]  # within the clip
    for rows in (some_rows(), shared):
        exact = gradients(base, rows, algorithm, checkpointing=checkpointing)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Policy, "mixed", lambda self, cached=True: torch.autocast("cpu", torch.bfloat16))
            rounded = gradients(base, rows, algorithm, checkpointing=checkpointing)
        cosine = float(torch.nn.functional.cosine_similarity(exact, rounded, dim=0))
        assert cosine > 0.999 and not torch.equal(exact, rounded), cosine


def test_a_learner_on_a_gpu_has_a_meter_of_its_memory(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    metered = list[Any]()

    class Meter:
        def __init__(self, device: Any):
            metered.append(device)

    monkeypatch.setattr(learner_module, "CudaMeter", Meter)
    policy = Policy(base, device="cpu", seed=0)
    assert Learner(policy, make_objective("dapo"), Learning()).micro.meter is None
    monkeypatch.setattr(Policy, "device", torch.device("cuda"))
    made = Learner(policy, make_objective("dapo"), Learning())
    assert isinstance(made.micro.meter, Meter) and metered == [torch.device("cuda")]
    assert made.optimizer.defaults["fused"], "its step needs no further copy of the weights"


def test_on_a_gpu_attention_is_not_cudnns(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.11 asks cuDNN first on an H100, which makes a plan for each new shape."""
    said = list[bool]()
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", said.append)
    monkeypatch.setattr(PreTrainedModel, "to", lambda self, place: self)
    Generator.load(base, device="cpu")
    assert said == []
    Generator.load(base, device="cuda")
    assert said == [False]


def test_an_ipc_handle_is_under_the_name_of_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.33 looks handles up by `str(uuid)` of the device that it is on (`ipc_engine.py`)."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="GPU-7f"))
    monkeypatch.setattr("torch.multiprocessing.reductions.reduce_tensor", lambda tensor: (None, ("rebuild", 3)))
    assert export_cuda_tensor(torch.zeros(2)) == ("GPU-7f", ("rebuild", 3))
