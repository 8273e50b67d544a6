"""What training keeps in memory: nothing twice, and nothing on the device that only the host needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_worlds import bandit, sevens  # noqa: E402
from tests.helpers.tiny_lm import make_model, make_tokenizer, save  # noqa: E402
from tests.plugins.training.test_learner import ADVANTAGES, learner, some_rows  # noqa: E402

from workbench.lm import Request  # noqa: E402
from workbench_engine import generation  # noqa: E402
from workbench_engine.generation import Generator  # noqa: E402
from workbench_engine.running_batch import as_computed  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.model.policy import Policy, merge_adapter  # noqa: E402
from workbench_training.serving.policy_lm import LocalEngine  # noqa: E402
from workbench_training.settings import Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1))


def drawn(seed: int = 0, cache: Any = None) -> tuple[list[Any], set[Any]]:
    """(tokens and log-probabilities of some rows, types of the keys that were kept), under autocast."""
    generator, kinds = Generator(make_model(2), make_tokenizer()), set()

    class Watched(cache or generation.GrowingCache):
        def update(self, *args: Any, **more: Any) -> Any:
            found = super().update(*args, **more)
            kinds.add(self.layers[0].keys.dtype)
            return found

    rows = [generation.Row([5 + i, 9, 11, 20 + i], 12, 1.0, 1.0, (), 100 + i) for i in range(4)]
    real, generation.GrowingCache = generation.GrowingCache, Watched  # type: ignore[misc]
    try:
        with torch.autocast("cpu", torch.bfloat16):
            generator.generate(rows)
    finally:
        generation.GrowingCache = real  # type: ignore[misc]
    return [(row.ids, row.logprobs) for row in rows], kinds


def test_keys_and_values_are_kept_in_half_of_the_bytes_and_the_draw_is_the_same() -> None:
    from transformers import DynamicCache

    ours, kinds = drawn()
    plain, before = drawn(cache=DynamicCache)
    assert kinds == {torch.bfloat16} and before == {torch.float32}
    assert ours == plain and len({tuple(ids) for ids, _ in ours}) == 4


def test_without_autocast_keys_and_values_stay_as_they_are() -> None:
    t = torch.ones(2, 2)
    assert as_computed(t) is t


def test_best_weights_are_kept_in_the_host_and_only_for_a_rollback(tmp_path: Path) -> None:
    schedule = {"evaluate_every": 1}
    assert bandit(tmp_path, sevens, steps=2, schedule=schedule, checkpoints="told").best_weights == {}
    made = bandit(tmp_path, sevens, steps=2, schedule={**schedule, "on_alarm": "rollback"})
    (kept,) = made.best_weights.values()
    trained = made.learners[""].policy.trained
    assert kept.keys() == trained.keys() and all(t.device.type == "cpu" for t in kept.values())
    assert not any(kept[n].untyped_storage().data_ptr() == p.untyped_storage().data_ptr() for n, p in trained.items())


@pytest.mark.parametrize("several", [False, True])
def test_a_merged_adapter_has_the_bits_of_pefts_own_merge(base: str, several: bool) -> None:
    import copy

    pytest.importorskip("peft")
    made = learner(base, lora=Lora(rank=2))
    if several:  # a second adapter on the base of the first
        other = Policy(base, device="cpu", lora=Lora(rank=3), name="other", beside=made.policy)
        made = Learner(other, made.objective, made.learning)
    name = made.policy.name
    for version in range(2):
        made.step(some_rows(), ADVANTAGES, version)
    before = {n: p.clone() for n, p in made.policy.model.named_parameters()}
    found = merge_adapter(made.policy.inner, name)
    whole = copy.deepcopy(made.policy.model).merge_and_unload(adapter_names=[name])
    expected = dict(whole.named_parameters())
    assert found.keys() == expected.keys() and all(torch.equal(found[n], p) for n, p in expected.items())
    assert any(not torch.equal(found[n], p) for n, p in make_model(1).named_parameters())
    assert all(torch.equal(before[n], p) for n, p in made.policy.model.named_parameters()), "the policy is as it was"


def test_a_candidate_of_an_adapter_copies_no_base(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import copy

    pytest.importorskip("peft")
    made = learner(base, lora=Lora(rank=2))
    made.step(some_rows(), ADVANTAGES, 0)

    def never(model: Any, *args: Any) -> Any:
        assert not isinstance(model, torch.nn.Module), "a model is copied"
        return real(model, *args)

    real = copy.deepcopy
    monkeypatch.setattr(copy, "deepcopy", never)
    folder = made.policy.save(tmp_path)
    assert sorted(p.stem for p in folder.glob("*.safetensors")) == ["model"]
    again = Generator.load(str(folder), device="cpu").model
    assert all(torch.equal(p, merge_adapter(made.policy.inner, "default")[n]) for n, p in again.named_parameters())


def test_drawing_is_halved_where_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    engine, real = LocalEngine(Generator(make_model(2), make_tokenizer())), Generator.generate
    requests = [Request(({"role": "user", "content": "abc"},), 1.0, 6, replica=k) for k in range(5)]

    async def answers() -> list[Any]:
        return [r.token_ids for r in await asyncio.gather(*map(engine.complete, requests))]

    def generate(self: Generator, rows: list[Any], refill: Any) -> None:
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        real(self, rows, refill)

    async def schedule() -> tuple[list[Any], list[Any]]:
        whole = await answers()
        monkeypatch.setattr(Generator, "generate", generate)
        halved = await answers()
        await engine.aclose()
        return whole, halved

    whole, halved = asyncio.run(schedule())
    assert whole == halved and len(set(whole)) > 1
