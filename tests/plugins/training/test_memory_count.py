"""The memory of a training, counted before it begins: what fits on a GPU, what is refused, what would fit instead."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_runs import SMALL, run, write  # noqa: E402
from tests.helpers.tiny_lm import make_model  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from workbench.errors import SpecError  # noqa: E402
from workbench.run import find_obstacles, prepare  # noqa: E402
from workbench_training import base  # noqa: E402
from workbench_training.model import logprobs, memory_count, preflight  # noqa: E402
from workbench_training.model.memory_count import GIB, PolicyShape, count_critic, count_memory  # noqa: E402
from workbench_training.model.preflight import RESERVE, SLEEPING, Plan, check_memory  # noqa: E402
from workbench_training.objective import Critic  # noqa: E402
from workbench_training.settings import Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

PASS = {"rows": 1, "tokens": 64}
CARD = 80 * 10**9  # bytes
SERVER = 0.45


def qwen(hidden: int, heads: int, keys: int, inner: int, words: int, *, tied: bool, layers: int = 28) -> Any:
    from transformers import Qwen2Config

    return Qwen2Config(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        max_position_embeddings=32768,
        tie_word_embeddings=tied,
    )


def qwen_1_5b() -> Any:
    return qwen(1536, 12, 2, 8960, 151936, tied=True)


def qwen_7b() -> Any:
    return qwen(3584, 28, 4, 18944, 152064, tied=False)


def tiny(**shape: Any) -> Any:
    return make_model(0, **shape).config


# What fits


@pytest.mark.long
def test_all_weights_of_1_5b_fit_beside_a_server_with_16_rows_of_4096_tokens() -> None:
    """The step's rows pass in micro-batches of 16,384 tokens, which is the default."""
    pytest.importorskip("peft")
    shape = PolicyShape(qwen_1_5b())
    found = count_memory(shape, rows=4, tokens=4096)
    assert found.weights == 4 * 1_543_714_304 and found.optimizer == 2 * found.weights
    assert found.most == 4 * found.weights + found.whole < CARD * (1 - SERVER) - RESERVE
    print(found.describe(), f"{found.most / GIB:.1f} GiB")
    kept = count_memory(PolicyShape(qwen_1_5b(), checkpointing=False), rows=4, tokens=4096)
    assert kept.most > CARD * (1 - SERVER) and kept.activations > 8 * found.activations


@pytest.mark.long
def test_an_adapter_of_7b_fits_beside_a_server_with_a_row_of_16384_tokens() -> None:
    pytest.importorskip("peft")
    found = count_memory(PolicyShape(qwen_7b(), Lora()), rows=1, tokens=16384)
    assert 14 * GIB < found.base < 14.5 * GIB and found.weights < 0.2 * GIB
    assert found.most < CARD * (1 - SERVER) - RESERVE
    print(found.describe(), f"{found.most / GIB:.1f} GiB")


# The count itself


def test_bytes_are_counted_while_their_tensors_live() -> None:
    given = torch.zeros(100)
    with memory_count._Bytes([given]) as counted:
        a = given + 1  # 400
        b = torch.cat([a, a])  # 800
        given.view(10, 10)
        a.view(10, 10).t()
        assert counted.most == counted._now == 1200
        del a
        assert counted._now == 800
        b.add_(1)
        c = b.double()  # 1600
        assert counted.most == 2400
        del b, c
        assert counted._now == 0


def test_a_pass_with_numbers_takes_what_was_counted_without() -> None:
    """To a tenth, and never less. What autograd keeps, as its own hooks see it, is nearly all that lives on."""
    seen: dict[int, int] = {}

    def passed(model: Any) -> int:
        given = [*model.parameters(), *model.buffers()]
        known = {t.untyped_storage().data_ptr() for t in given if type(t).__name__ != "FakeTensor"}

        def pack(t: Any) -> Any:
            if type(t).__name__ != "FakeTensor" and t.untyped_storage().data_ptr() not in known:
                seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with memory_count._Bytes(given) as counted, torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            found = model.get_decoder()(input_ids=torch.zeros((2, 24), dtype=torch.long), use_cache=False)[0]
            held = counted._now
        assert found.shape == (2, 24, 64)
        return held

    real = passed(make_model(0, layers=3))
    with FakeTensorMode():
        fake = passed(make_model(0, layers=3))
    assert sum(seen.values()) <= real < 1.05 * sum(seen.values()) and real <= fake < 1.1 * real


def test_checkpointing_and_chunks_are_in_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(layers=8)
    kept, recomputed = (
        count_memory(PolicyShape(config, checkpointing=on), rows=4, tokens=64).activations for on in (False, True)
    )
    assert recomputed < kept / 3
    wide = PolicyShape(qwen(64, 4, 2, 128, 4096, tied=True, layers=2))
    whole = count_memory(wide, rows=4, tokens=64).logits
    monkeypatch.setattr(logprobs, "LOGITS", 16 * 4096)
    assert count_memory(wide, rows=4, tokens=64).logits < whole / 2


def test_logits_do_not_grow_with_the_tokens_of_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large vocabulary: what grows are the states, not what is as wide as the vocabulary."""
    monkeypatch.setattr(logprobs, "LOGITS", 64 * 4096)
    config = qwen(64, 4, 2, 128, 4096, tied=True, layers=2)
    few, many = (count_memory(PolicyShape(config), rows=1, tokens=n).logits for n in (256, 4096))
    assert many - few < 3 * 4 * 64 * 4096 < 4 * 4096 * 4096 / 10


def test_policies_that_take_turns_share_what_only_a_pass_needs() -> None:
    pytest.importorskip("peft")
    shape = PolicyShape(tiny(), Lora())
    one, two = Plan((shape,)).count(), Plan((shape, shape)).count()
    assert two.base == one.base and two.weights == 2 * one.weights and two.whole == one.whole
    full = PolicyShape(tiny(), reference=True)
    assert Plan((full, full)).count().reference == 2 * Plan((full,)).count().weights
    half = PolicyShape(tiny(), dtype="bfloat16")
    assert Plan((half,)).count().weights == Plan((full,)).count().weights / 2
    assert Plan((full,), drawn=8).count().cache > 2 * 2 * 2 * 2 * 16 * 8 * 128 > Plan((full,)).count().cache == 0


# Refusals


@pytest.mark.long
def test_what_does_not_fit_is_refused_with_the_settings_that_make_it_fit() -> None:
    pytest.importorskip("peft")
    config = qwen(1024, 8, 2, 4096, 8192, tied=True, layers=2)
    whole = Plan((PolicyShape(config, checkpointing=False),), tokens=4096, free_tokens=False)

    def hint(plan: Plan, room: int) -> str:
        with pytest.raises(SpecError, match="does not fit in the memory of the GPU: .* GiB are counted") as caught:
            check_memory(plan, int((room + RESERVE) / (1 - plan.server)))
        return caught.value.hint or ""

    def most(tokens: int, **more: Any) -> int:
        return Plan((PolicyShape(config, **more),), tokens=tokens).most

    told = check_memory(whole, most(4096, checkpointing=False) + RESERVE)
    assert (
        "GiB are counted for passes of 4096 tokens, and" in told and "are there for them (trained weights 0.1" in told
    )
    assert "micro_tokens: 2048}`, or leave" in hint(whole, most(2048, checkpointing=False))
    assert hint(whole, most(1024, checkpointing=True)) == "Write `learning: {checkpointing: true}`."
    assert hint(whole, most(1024, checkpointing=True, lora=Lora())).endswith(": true}` and `lora: {}`.")
    assert hint(whole, 10**8).startswith("No setting makes it fit")
    beside = Plan((PolicyShape(config, Lora(), True),), server=0.45)
    room = int(most(1024, checkpointing=True, lora=Lora()) * 0.9)
    assert hint(beside, room) == "Write `server: {memory: 0.3}`."


def test_a_server_takes_its_share_of_the_whole_gpu_whatever_others_hold() -> None:
    """80 GiB, of which 30 are free: 0.45 of all are 36, with which vLLM ends; before, 13.5 were counted."""
    shape = PolicyShape(qwen(256, 4, 2, 1024, 512, tied=True, layers=4), checkpointing=True)
    plan = Plan((shape,), tokens=1024, server=0.45, others=50 * GIB)
    for sleeps in (False, True):
        with pytest.raises(
            SpecError, match=r"takes 0.45 of the 80.0 GiB .* which are 36.0, and 30.0 are free"
        ) as caught:
            check_memory(replace(plan, sleeps=sleeps), 30 * GIB)
        assert caught.value.hint == "Write `server: {memory: 0.3}`, or free the GPU."
    assert plan.drawing_room(40 * GIB) == 40 * GIB - math.ceil(0.45 * 90 * GIB) - RESERVE
    told = check_memory(replace(plan, server=0.3), 30 * GIB)
    assert "the server 24.0, other processes 50.0" in told
    with pytest.raises(SpecError, match="would not start") as caught:
        check_memory(plan, 2 * GIB)
    assert (caught.value.hint or "").startswith("Free the GPU")
    assert check_memory(replace(plan, server=0.0), 30 * GIB), "without a server, only what is free counts"


def test_a_server_that_sleeps_leaves_an_update_the_whole_gpu() -> None:
    """What rests must fit beside the server while it draws; what an update needs, only beside what it keeps asleep."""
    shape = PolicyShape(qwen(256, 4, 2, 1024, 512, tied=True, layers=4), checkpointing=True)
    awake = Plan((shape,), tokens=8192, server=0.75)
    asleep = replace(awake, sleeps=True)
    memory = 2 * SLEEPING + 2 * RESERVE
    assert awake.room(memory) == memory // 4 - RESERVE == awake.drawing_room(memory)
    assert asleep.room(memory) == memory - SLEEPING - RESERVE and asleep.drawing_room(memory) == awake.room(memory)
    tight = 4 * (awake.resting + RESERVE)
    assert asleep.drawing_room(tight) == asleep.resting < asleep.most < asleep.room(tight)
    assert asleep.fits(tight) and not awake.fits(tight) and not asleep.fits(tight - 4)
    with pytest.raises(SpecError) as refused:
        check_memory(replace(awake, tokens=1024), tight)
    assert refused.value.hint == "Write `server: {sleep: true}`."
    assert "while it draws, when" in check_memory(asleep, tight)


def test_the_size_of_a_pass_that_fits_is_found() -> None:
    plan = Plan((PolicyShape(qwen(256, 4, 2, 1024, 512, tied=True, layers=4), checkpointing=False),), tokens=8192)
    sizes = {n: Plan(plan.policies, tokens=n).most for n in (8192, 4096, 2048, 1024)}
    assert sorted(sizes.values(), reverse=True) == list(sizes.values())
    for tokens, most in sizes.items():
        assert plan.fitting_tokens(most + RESERVE) == tokens
    assert plan.fitting_tokens(sizes[1024] + RESERVE - 1) == 0


@pytest.mark.parametrize("optimizer", ["grpo", "sft", pytest.param("dpo", marks=pytest.mark.long)])
def test_it_is_refused_before_the_first_call_or_told_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    monkeypatch.setattr(base, "version", lambda package: "9.9")
    monkeypatch.setattr(preflight, "gpu_memory", lambda device: (GIB, 0))
    settings: dict[str, Any] = {"learning": {"rate": 1e-3, "checkpointing": False}}
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{optimizer: settings}]))
    (error,) = find_obstacles(task, optimizers)
    assert isinstance(error, SpecError) and "does not fit in the memory of the GPU" in error.message
    assert error.path == ("optimize", 0, optimizer) and "No setting makes it fit" in (error.hint or "")
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{optimizer: {**settings, "device": "cpu"}}]))
    assert not find_obstacles(task, optimizers), "memory of the host is not counted"
    monkeypatch.setattr(preflight, "gpu_memory", lambda device: (4 * GIB, 0))
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{optimizer: settings}]))
    assert not find_obstacles(task, optimizers)


@pytest.mark.parametrize("optimizer", ["grpo", "sft", "dpo"])
@pytest.mark.parametrize(
    ("settings", "message", "place"),
    [
        ({"device": "gpu"}, "there is no device 'gpu'", ("device",)),
        ({"device": "cuda"}, "there is no cuda: torch finds no GPU here", ("device",)),
        ({"device": "cuda:3"}, "there is no cuda:3: torch finds no GPU here", ("device",)),
        (
            {"learning": {"attention": "flash_attention_2"}},
            "flash_attention_2 needs a GPU, and training would be on the CPU",
            ("learning", "attention"),
        ),
    ],
)
def test_a_device_or_an_attention_that_is_not_here_is_refused_before_the_first_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    optimizer: str,
    settings: dict[str, Any],
    message: str,
    place: tuple[str, ...],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{optimizer: settings}]))
    (error,) = find_obstacles(task, optimizers)
    assert isinstance(error, SpecError) and error.message == message
    assert error.path == ("optimize", 0, optimizer, *place)


def test_what_takes_the_memory_is_told_and_how_it_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "version", lambda package: "9.9")
    monkeypatch.setattr(preflight, "gpu_memory", lambda device: (4 * GIB, 0))
    heard: list[Any] = []
    run(tmp_path, heard=heard, optimizers=[{"grpo": {**SMALL, "schedule": {"steps": 1, "tasks": 2, "rollouts": 2}}}])
    told = [message for message, *_ in heard]
    assert any("GiB are counted for passes of" in m and "AdamW" in m and "keys and values" in m for m in told)
    assert any("trained weights on cpu, attention sdpa, activations kept for the backward pass" in m for m in told)


# A critic


def test_the_weights_of_a_critic_are_counted() -> None:
    """Heads of 64 numbers, 8 and one; beside them the policy's first weights, or a model of its own."""
    head = 4 * ((64 + 1) * 8 + (8 + 1))
    found = {
        of: count_critic(PolicyShape(tiny(), critic=Critic.model_validate({"of": of, "widths": [8]})), 1000, **PASS)
        for of in ("token", "turn")
    }
    assert (found["token"].weights, found["token"].optimizer) == (head, 2 * head)
    assert (found["token"].reference, found["turn"].reference) == (1000, 1000 + 4 * head)
    assert found["turn"].weights == 4 * head
    critic = Critic.model_validate({"widths": [8], "model": "there"})
    own = count_critic(PolicyShape(tiny(), critic=critic, trunk=tiny(layers=1)), 1000, **PASS)
    trunk = sum(4 * p.numel() for p in make_model(0, layers=1).parameters())
    assert (own.weights, own.optimizer, own.reference) == (trunk + head, 2 * (trunk + head), 0)
    assert own.activations > 0 and own.logits == 0


def test_a_critic_adds_to_what_a_training_takes() -> None:
    plain = PolicyShape(tiny())
    critic = Critic.model_validate({"model": "there", "widths": [8]})
    alone, beside = (Plan((shape,), tokens=64) for shape in (plain, replace(plain, critic=critic, trunk=tiny())))
    assert beside.resting >= 1.9 * alone.resting
