"""Batches that rows join while they run: each row is drawn as if it were alone, and the batch does not wait for its
longest one."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.counting_generator import CountingGenerator  # noqa: E402

from workbench.errors import LMError  # noqa: E402
from workbench_engine.generation import Refill, Row, _pick, free_device_memory, generate_within_memory  # noqa: E402
from workbench_engine.running_batch import cache_argument  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

torch.set_num_threads(1)


def rows_of(lengths: Sequence[tuple[int, int]], temperature: float = 1.0) -> list[Row]:
    """A row for each (tokens of the prompt, tokens of the answer)."""
    return [
        Row([5 + (7 * i + j) % 40 for j in range(prompt)], most, temperature * (i % 3 > 0), 1.0, (), 100 + i)
        for i, (prompt, most) in enumerate(lengths)
    ]


def alone(rows: Sequence[Row], model: Any | None = None) -> list[tuple[list[int], list[float]]]:
    generator = CountingGenerator(model)
    for row in rows:
        generator.generate([row])
    return [(row.ids, row.logprobs) for row in rows]


def refill(waiting: list[Row], most: int, given: list[Row]) -> Refill:
    """Rows that wait, in their order, for a batch of at most so many."""

    def take(running: int) -> list[Row]:
        found = waiting[: max(0, most - running)]
        del waiting[: len(found)]
        return found

    return Refill(take, given.append)


#: Prompts longer and shorter than the batch that they join; the first outlives all others.
LENGTHS = [(9, 40), (3, 2), (9, 5), (30, 8), (2, 12), (4, 1), (120, 6), (5, 9), (5, 9), (60, 3)]


def same(rows: Sequence[Row], expected: list[tuple[list[int], list[float]]]) -> None:
    for row, (ids, logprobs) in zip(rows, expected, strict=True):
        assert row.ids == ids and row.logprobs == pytest.approx(logprobs, abs=1e-4)


@pytest.mark.slow
def test_a_nucleus_beside_it_changes_no_draw_of_a_row() -> None:
    rows = [Row([5 + i, 6], 12, 1.0, 0.5 if i % 4 == 1 else 1.0, (), 300 + i) for i in range(8)]
    expected = alone(rows)
    for row in rows:
        row.restart()
    CountingGenerator().generate(rows)
    same(rows, expected)


def test_rows_that_join_a_batch_are_drawn_as_alone() -> None:
    rows, given, generator = rows_of(LENGTHS), list[Row](), CountingGenerator()
    generator.generate(rows[:3], refill(rows[3:], 3, given))
    same(rows, alone(rows_of(LENGTHS)))
    assert sorted(map(id, given)) == sorted(map(id, rows)), "each is given once"
    assert max(generator.steps) == 3 and len(generator.steps) == 40 - 1


def test_a_batch_is_only_as_wide_as_its_longest_row() -> None:
    """Columns of rows that left are dropped when others join: here the 200 tokens of the first prompt."""
    rows, generator, widths = rows_of([(200, 2), (5, 30), (6, 30), (7, 3)]), CountingGenerator(), list[int]()
    real = generator._logits

    def watched(ids: Any, mask: Any, *more: Any) -> Any:
        widths.append(mask.shape[1])
        return real(ids, mask, *more)

    generator._logits = watched  # type: ignore[method-assign]
    generator.generate(rows[:2], refill(rows[2:], 2, []))
    assert max(widths[:2]) >= 200 and max(widths[4:]) <= 40
    same(rows, alone(rows_of([(200, 2), (5, 30), (6, 30), (7, 3)])))


def test_a_model_whose_cache_forgets_tokens_takes_no_further_rows() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    model = MistralForCausalLM(
        MistralConfig(
            vocab_size=60,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            sliding_window=8,
            eos_token_id=1,
            pad_token_id=0,
        )
    ).eval()
    rows, waiting = rows_of(LENGTHS[:2]), rows_of(LENGTHS[2:])
    left = list(waiting)
    CountingGenerator(model).generate(rows, refill(left, 3, []))
    assert len(left) == len(waiting)


class Cramped(CountingGenerator):
    """Has memory for a number of rows."""

    most = 2

    def _logits(self, ids: Any, mask: Any, *more: Any) -> Any:
        if len(ids) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super()._logits(ids, mask, *more)


@pytest.mark.parametrize("most", [2, 1])
def test_rows_that_joined_begin_anew_where_memory_runs_out(most: int) -> None:
    lengths = LENGTHS[:6]
    rows, given, generator = rows_of(lengths), list[Row](), Cramped()
    generator.most = most
    waiting = rows[2:]
    generate_within_memory(generator, rows[:2], refill(waiting, 4, given))
    while waiting:  # after a lack of memory none joins
        generate_within_memory(generator, [waiting.pop()], Refill(give=given.append))
    same(rows, alone(rows_of(lengths)))
    assert sorted(map(id, given)) == sorted(map(id, rows)), "each is given once"


def test_a_row_without_memory_gets_an_error_alone() -> None:
    rows, given, generator = rows_of(LENGTHS[:3]), list[Row](), Cramped()
    generator.most = 0
    generate_within_memory(generator, rows, refill([], 4, given))
    assert given == rows and all(isinstance(row.error, LMError) for row in rows)


@pytest.mark.slow
def test_memory_is_given_back_once_rings_of_references_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose layers hold bound methods of each other is no longer used, and yet not freed."""

    class Part:
        other: Any

    ring, alive = Part(), list[bool]()
    ring.other, seen = ring, weakref.ref(ring)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(seen() is not None))
    del ring
    free_device_memory()
    assert alive == [], "a process that has not used a GPU does not begin to"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    free_device_memory()
    assert alive == [False]


def test_the_largest_random_number_picks_a_token_that_has_a_probability() -> None:
    torch.manual_seed(0)
    probabilities = torch.rand(200, 50) * (torch.rand(200, 50) > 0.5)
    probabilities[:, 45:] = 0.0
    picks = _pick(probabilities, torch.full((200,), 1 - 2**-53, dtype=torch.double))
    assert (probabilities.gather(1, picks[:, None]) > 0).all()
    assert picks.tolist() == [int(row.nonzero().max()) for row in probabilities]
    nothing = torch.full((1, 50), float("nan"))
    assert _pick(nothing, torch.zeros(1, dtype=torch.double)).tolist() == [49], "a token of the vocabulary"


def test_a_model_is_given_its_cache_by_the_name_that_its_version_of_transformers_has() -> None:
    """Those that know both names warn of the first, and then do without it."""

    class Old:
        def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...

    class New:
        def forward(self, input_ids: Any, cache: Any = None, use_cache: Any = None) -> None: ...

    assert (cache_argument(Old()), cache_argument(New())) == ("past_key_values", "cache")
