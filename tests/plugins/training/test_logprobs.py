"""Fewer tokens, the same numbers: prompts computed once, passes of like length, equal prompts drawn from together."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.tiny_lm import make_model, make_tokenizer  # noqa: E402

from workbench_engine import generation as generate  # noqa: E402
from workbench_training.model import logprobs as forward  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def rows_with_shared_prompts(seed: int = 0) -> list[Row]:
    """Three prompts for ten rows, answers of 1 to 30 tokens with holes in their masks, in no order."""
    rng = random.Random(seed)
    prompts = [tuple(rng.randrange(5, 40) for _ in range(n)) for n in (3, 17, 9)]
    made = []
    for i in range(10):
        n = [1, 30, 2, 7, 29, 12, 1, 28, 5, 8][i]
        mask = tuple(int(j != 2) for j in range(n))
        made.append(
            Row(
                prompts[rng.randrange(3)], tuple(rng.randrange(5, 40) for _ in range(n)), mask, (-1.0,) * n, 1.0, "t", i
            )
        )
    return made


def computed(monkeypatch: pytest.MonkeyPatch, rows: list[Row], *, share: bool, overhead: int) -> tuple[Any, Any, int]:
    """(log-probabilities, gradients, tokens that went through the decoder)."""
    monkeypatch.setitem(forward.PASS_TOKENS, "cpu", overhead)
    if not share:
        monkeypatch.setattr(forward, "_shares", lambda model, batch: False)
    model, tokens = make_model(3), 0
    decoder = model.get_decoder()
    real = decoder.forward

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal tokens
        tokens += more["input_ids"].numel()
        return real(*args, **more)

    monkeypatch.setattr(decoder, "forward", counted)
    logp, _ = forward.log_probabilities(model, collate(rows))
    weights = torch.linspace(-1, 1, logp.numel()).reshape(logp.shape)
    (logp * weights).sum().backward()
    monkeypatch.undo()
    return logp.detach(), [p.grad for p in model.parameters()], tokens


@pytest.mark.parametrize("overhead", [0, 64, 10**9])
def test_sharing_and_splitting_change_no_number(monkeypatch: pytest.MonkeyPatch, overhead: int) -> None:
    rows = rows_with_shared_prompts()
    plain, wanted, most = computed(monkeypatch, rows, share=False, overhead=10**9)
    for share in (False, True):
        found, gradients, tokens = computed(monkeypatch, rows, share=share, overhead=overhead)
        assert (found - plain).abs().max() < 1e-6 * max(1.0, float(plain.abs().max()))
        assert all((a - b).abs().max() < 1e-5 for a, b in zip(gradients, wanted, strict=True))
        assert tokens < most or (not share and overhead == 10**9)
    assert max(float(g.abs().max()) for g in wanted) > 1e-2


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_log_probabilities_are_those_at_the_temperature_that_was_drawn_with(temperature: float) -> None:
    rows, model = rows_with_shared_prompts(), make_model(3)
    with torch.no_grad():
        found, entropies = forward.log_probabilities(model, collate(rows), temperature=temperature)
        for i, row in enumerate(rows):
            logits = model(torch.tensor([row.prompt_ids + row.token_ids])).logits[0, len(row.prompt_ids) - 1 : -1]
            scores = torch.log_softmax(logits / temperature, -1)
            mask, n = torch.tensor(row.mask), len(row.token_ids)
            wanted = scores[range(n), row.token_ids] * mask
            assert (found[i, :n] - wanted).abs().max() < 1e-4
            assert (entropies[i, :n] + (scores.exp() * scores).sum(-1) * mask).abs().max() < 1e-4


def test_gradients_of_shared_prompts_have_the_same_bits_on_several_threads() -> None:
    """A resumed training computes steps anew whose candidates are known by their bits. Added up by whichever thread
    comes first, 12 of 12 passes differed here."""
    prompt, batch_of = tuple(5 + i % 30 for i in range(120)), range(48)
    rows = [
        Row(prompt, tuple(5 + i * r % 30 for i in range(12)), (1,) * 12, (-1.0,) * 12, 0.0, "t", r) for r in batch_of
    ]
    model, batch, found, threads = make_model(3, positions=512), collate(rows), list[Any](), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in range(6):
            model.zero_grad()
            logp, _ = forward.log_probabilities(model, batch)
            (logp * torch.linspace(-1, 1, logp.numel()).reshape(logp.shape)).sum().backward()
            found.append([p.grad.clone() for p in model.parameters()])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_a_prompt_of_another_row_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: with the numbers of the prompts mixed up, the log-probabilities differ."""
    rows = rows_with_shared_prompts()
    batch = collate(rows)
    model = make_model(3)
    right, _ = forward.log_probabilities(model, batch)
    batch.prompts = torch.zeros_like(batch.prompts)
    wrong, _ = forward.log_probabilities(model, batch)
    assert (right - wrong).abs().max() > 1e-2


def test_passes_hold_every_row_once_and_cost_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against all ways of cutting the sorted lengths."""
    monkeypatch.setitem(forward.PASS_TOKENS, "cpu", 10)
    rng = random.Random(4)
    for _ in range(20):
        lengths = [rng.choice((0, 1, 5, 9, 20, 31, 32)) for _ in range(rng.randrange(1, 8))]
        found = forward._passes(torch.tensor(lengths), "cpu")
        assert sorted(i for part in found for i in part.tolist()) == list(range(len(lengths)))
        ranked = sorted(lengths)
        cuts = [c for n in range(len(ranked)) for c in itertools.combinations(range(1, len(ranked)), n)]
        costs = [
            sum(ranked[b - 1] * (b - a) + 10 for a, b in itertools.pairwise((0, *cut, len(ranked)))) for cut in cuts
        ]
        assert sum(max(lengths[i] for i in part) * len(part) + 10 for part in found) == min(costs)


def test_equal_prompts_are_drawn_from_together_and_as_they_would_be_alone() -> None:
    """The same tokens and log-probabilities whether a prompt's rows are in one batch or by themselves."""
    generator = generate.Generator(make_model(2), make_tokenizer())
    rng = random.Random(1)
    prompts = [[rng.randrange(5, 40) for _ in range(n)] for n in (4, 11)]

    def drawn(chosen: list[int]) -> list[generate.Row]:
        rows = [generate.Row(prompts[i % 2], 12, 1.0, 1.0, (), 100 + i) for i in chosen]
        generator.generate(rows)
        return rows

    together = drawn(list(range(6)))
    for i, row in enumerate(together):
        (alone,) = drawn([i])
        assert row.ids == alone.ids and row.text == alone.text
        assert row.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
    assert len({tuple(row.ids) for row in together}) == 6
