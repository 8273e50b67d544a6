"""What saves memory changes no number: layers and logits that are computed twice, in every combination."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.tiny_lm import make_model, save  # noqa: E402
from tests.plugins.training.test_learner import ADVANTAGES, learner, some_rows  # noqa: E402
from tests.plugins.training.test_logprobs import rows_with_shared_prompts  # noqa: E402

from workbench.errors import PluginError  # noqa: E402
from workbench_training.model import layer_checkpointing, logprobs  # noqa: E402
from workbench_training.model.layer_checkpointing import LayerCheckpointing  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.rollouts.token_rows import collate  # noqa: E402
from workbench_training.settings import Lora  # noqa: E402
from workbench_training.step_loss import StepLoss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = 56  # of the vocabulary of tests


def llama() -> Any:
    return make_model(3)


def small(kind: str, **more: Any) -> Any:
    """A random model of another type: biases, norms of queries and keys, sliding windows, heads that are not tied."""
    import transformers

    torch.manual_seed(3)
    shape = {
        "vocab_size": WORDS,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": None,
    }
    config = getattr(transformers, f"{kind}Config")(**shape, **more)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


MODELS: dict[str, Callable[[], Any]] = {
    "llama": llama,
    "qwen2": lambda: small("Qwen2", tie_word_embeddings=False),
    "qwen3": lambda: small("Qwen3", head_dim=16),
    "mistral": lambda: small("Mistral", sliding_window=8),
}


def computed(
    monkeypatch: pytest.MonkeyPatch, model: Any, *, checkpointing: bool, chunks: bool, single: bool = False
) -> tuple[Any, Any, list[Any]]:
    """(log-probabilities, entropies, gradients) of rows that share prompts."""
    batch = collate(rows_with_shared_prompts())
    if chunks:
        monkeypatch.setattr(logprobs, "LOGITS", 7 * WORDS)
    with LayerCheckpointing(model).enabled(checkpointing):
        logp, entropy = logprobs.log_probabilities(model, batch, single=single, temperature=0.7)
    (logp * torch.linspace(-1, 1, logp.numel()).reshape(logp.shape)).sum().backward()
    monkeypatch.undo()
    return logp.detach(), entropy, [p.grad for p in model.parameters()]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(("checkpointing", "chunks"), [(True, False), (False, True), (True, True)])
def test_recomputation_changes_no_gradient(
    monkeypatch: pytest.MonkeyPatch, kind: str, single: bool, checkpointing: bool, chunks: bool
) -> None:
    plain = computed(monkeypatch, MODELS[kind](), checkpointing=False, chunks=False)
    found = computed(monkeypatch, MODELS[kind](), checkpointing=checkpointing, chunks=chunks, single=single)
    for a, b in zip(found[:2], plain[:2], strict=True):
        assert (a - b).abs().max() < 1e-5 and b.abs().max() > 1.0
    assert all(a is not None and (a - b).abs().max() < 1e-5 for a, b in zip(found[2], plain[2], strict=True))
    assert max(float(g.abs().max()) for g in plain[2]) > 1e-2


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("again", [False, True])
def test_packing_changes_no_gradient(monkeypatch: pytest.MonkeyPatch, kind: str, again: bool) -> None:
    """Here torch's attention keeps the rows apart, by a mask that transformers makes of the positions."""
    plain = computed(monkeypatch, MODELS[kind](), checkpointing=False, chunks=False)
    monkeypatch.setattr(logprobs, "PACKS", ("sdpa",))
    monkeypatch.setattr(logprobs, "_shares", lambda model, batch: False)
    model, passed = MODELS[kind](), list[tuple[int, ...]]()
    decoder = model.get_decoder()
    real = decoder.forward

    def counted(*args: Any, **more: Any) -> Any:
        passed.append(tuple(more["input_ids"].shape))
        return real(*args, **more)

    monkeypatch.setattr(decoder, "forward", counted)
    found = computed(monkeypatch, model, checkpointing=again, chunks=again)
    rows = rows_with_shared_prompts()
    assert passed == [(1, sum(len(r.prompt_ids) + len(r.token_ids) - 1 for r in rows))], "no padding"
    assert (found[0] - plain[0]).abs().max() < 1e-5 < plain[0].abs().max()
    assert all((a - b).abs().max() < 1e-5 for a, b in zip(found[2], plain[2], strict=True))


def test_an_attention_that_is_not_here_is_refused_by_name(tmp_path: Path) -> None:
    base = str(save(tmp_path / "base", 1))
    with pytest.raises(
        PluginError, match=r"`learning: \{attention: flash_attention_2\}` cannot be had: .*FlashAttention2"
    ):
        Policy(base, device="cpu", attention="flash_attention_2")
    assert "attention eager" in Policy(base, device="cpu", attention="eager").describe()


def kept_for_backward(monkeypatch: pytest.MonkeyPatch, *, checkpointing: bool, chunks: bool) -> list[Any]:
    """The shapes of what autograd keeps, without weights."""
    model, shapes = make_model(3, layers=4), []
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    if chunks:
        monkeypatch.setattr(logprobs, "LOGITS", 7 * WORDS)

    def pack(t: Any) -> Any:
        if t.untyped_storage().data_ptr() not in weights:
            shapes.append(tuple(t.shape))
        return t

    with (
        LayerCheckpointing(model).enabled(checkpointing),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
    ):
        logprobs.log_probabilities(model, collate(rows_with_shared_prompts()))
    monkeypatch.undo()
    return shapes


def test_no_tensor_as_wide_as_the_vocabulary_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(shape[-1] == WORDS for shape in kept_for_backward(monkeypatch, checkpointing=False, chunks=False))
    for checkpointing in (False, True):
        shapes = kept_for_backward(monkeypatch, checkpointing=checkpointing, chunks=True)
        assert not any(WORDS in shape[-1:] for shape in shapes), shapes


def test_a_checkpointed_layer_keeps_nothing_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No activation of the MLP, which is twice as wide as the states, and none of attention."""
    plain = kept_for_backward(monkeypatch, checkpointing=False, chunks=True)
    few = kept_for_backward(monkeypatch, checkpointing=True, chunks=True)
    assert any(shape[-1:] == (128,) for shape in plain) and not any(shape[-1:] == (128,) for shape in few)
    assert len(few) < len(plain) / 4


def test_without_gradients_nothing_is_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **more: Any) -> Any:
        raise AssertionError("recomputed")

    monkeypatch.setattr(layer_checkpointing, "checkpoint", never)
    monkeypatch.setattr(logprobs, "checkpoint", never)
    monkeypatch.setattr(logprobs, "LOGITS", 7 * WORDS)
    model = make_model(3)
    with torch.no_grad(), LayerCheckpointing(model).enabled(True):
        logprobs.log_probabilities(model, collate(rows_with_shared_prompts()))
    with pytest.raises(AssertionError, match="recomputed"), LayerCheckpointing(model).enabled(True):
        logprobs.log_probabilities(model, collate(rows_with_shared_prompts()))


def test_dropout_stays_off_where_layers_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the same numbers, though the configuration asks for dropout."""
    found = [
        computed(monkeypatch, small("Qwen2", attention_dropout=0.5), checkpointing=on, chunks=on)[0]
        for on in (True, False)
    ]
    assert (found[0] - found[1]).abs().max() < 1e-5


def test_large_models_are_checkpointed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = LayerCheckpointing(make_model(3))
    assert not layers.resolve("auto") and layers.resolve(True) and not layers.resolve(False)
    monkeypatch.setattr(layer_checkpointing, "AUTO_ABOVE", layers.weights - 1)
    assert layers.resolve("auto") and not layers.resolve(False)
    layers.layers = []
    assert not layers.resolve("auto")
    with pytest.raises(PluginError, match="models of the type llama mark no layers"):
        layers.resolve(True)


def test_an_adapter_stays_in_place_until_the_backward_pass_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another policy on the base wants to draw in between: it waits, and the gradient is what it would be alone."""
    pytest.importorskip("peft")
    base = str(save(tmp_path / "base", 1))

    def step(intruding: bool) -> dict[str, Any]:
        monkeypatch.setattr("workbench_training.learner.MAX_NORM", 1e9)
        made = learner(base, lora=Lora(rank=2), checkpointing=True)
        other = Policy(base, device="cpu", lora=Lora(rank=2), name="other", beside=made.policy)
        real, entered = StepLoss.compute, threading.Event()

        def intrude() -> None:
            with other.active():
                entered.set()

        def loss(*args: Any) -> Any:
            if intruding:
                threading.Thread(target=intrude).start()
                assert not entered.wait(0.2)
            return real(*args)

        monkeypatch.setattr(StepLoss, "compute", loss)
        made.optimizer = torch.optim.SGD(list(made.policy.trained.values()), lr=1.0)
        made.step(some_rows(), ADVANTAGES, 0)
        assert entered.wait(10) or not intruding
        monkeypatch.undo()
        return made.policy.snapshot()

    alone, beside = step(False), step(True)
    assert all(torch.equal(alone[name], beside[name]) for name in alone)
