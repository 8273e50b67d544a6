"""Batches in fixed shape, with which a GPU replays its steps: the same draws, in tensors that keep their places."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.counting_generator import CountingGenerator  # noqa: E402
from tests.helpers.tiny_lm import make_model, make_tokenizer  # noqa: E402
from tests.kit.test_generation import LENGTHS, alone, refill, rows_of, same  # noqa: E402

from workbench_engine import fixed_batch  # noqa: E402
from workbench_engine.fixed_batch import FixedBatch, attend_in_groups  # noqa: E402
from workbench_engine.generation import Generator, Row  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FixedBatch]:
    """Shapes are fixed on the CPU, from the first step on. Holds the batches that were."""
    found = list[FixedBatch]()
    begin = FixedBatch.__init__

    def watched(self: FixedBatch, *given: Any) -> None:
        begin(self, *given)
        found.append(self)

    monkeypatch.setattr(FixedBatch, "__init__", watched)
    for name, value in {"DEVICES": ("cpu",), "AFTER": 0, "MIN": 1, "GRAIN": 1, "COLUMNS": 16}.items():
        monkeypatch.setattr(fixed_batch, name, value)
    return found


@pytest.mark.parametrize("columns", [1, 5, 256])
def test_rows_of_a_fixed_batch_are_drawn_as_alone(
    made: list[FixedBatch], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """With few free columns it is made again and again. Rows leave from its middle, and others join: shorter ones in
    free places, longer ones not."""
    monkeypatch.setattr(fixed_batch, "COLUMNS", columns)
    rows, given, generator = rows_of(LENGTHS), list[Row](), CountingGenerator()
    generator.generate(rows[:5], refill(rows[5:], 5, given))
    used = len(made)
    monkeypatch.setattr(fixed_batch, "DEVICES", ())
    same(rows, alone(rows_of(LENGTHS)))
    assert len(made) == used and used >= {1: 30, 5: 7, 256: 2}[columns]
    assert sorted(map(id, given)) == sorted(map(id, rows)), "each is given once"


def test_tensors_of_a_fixed_batch_keep_their_places(made: list[FixedBatch]) -> None:
    """A graph reads and writes where it did when it was captured, also after rows left and joined."""
    generator, places = CountingGenerator(), dict[int, set[tuple[int, ...]]]()
    real = FixedBatch._pass

    def watched(self: FixedBatch) -> None:
        tensors = [self._ids, self._mask, self._positions, self._column]
        tensors += [t for layer in self._cache.layers for t in (layer.keys, layer.values)]
        places.setdefault(id(self), set()).add(tuple(t.data_ptr() for t in tensors))
        real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FixedBatch, "_pass", watched)
        rows = rows_of([(9, 15), (3, 4), (9, 6), (4, 9), (5, 15), (2, 3), (6, 5)])
        generator.generate(rows[:5], refill(rows[5:], 5, []))
    assert len(made) == 1 and [len(found) for found in places.values()] == [1]
    assert len(made[0].rows) == 0 and made[0].places == 5


def test_a_batch_that_shrank_is_made_smaller(made: list[FixedBatch]) -> None:
    CountingGenerator().generate(rows_of([(4, 15), *[(4, 5)] * 7]))
    assert [batch.places for batch in made] == [8, 1]


def test_a_batch_that_is_made_again_is_only_as_wide_as_its_longest_row(made: list[FixedBatch]) -> None:
    """Here without the 200 columns of the first prompt."""
    rows = rows_of([(200, 2), (5, 30), (6, 30), (7, 30)])
    CountingGenerator().generate(rows)
    assert [batch.columns for batch in made] == [200 + 16, 7 + 16 + 13]


def test_places_of_rows_that_left_run_along_within_the_positions_of_the_model(made: list[FixedBatch]) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=60, n_positions=32, n_embd=32, n_layer=1, n_head=2, pad_token_id=0, eos_token_id=1)
    rows = rows_of([(3, 25), (20, 12)])
    CountingGenerator(GPT2LMHeadModel(config).eval()).generate(rows)
    assert [len(row.ids) for row in rows] == [25, 12] and made[0].places == 2


def test_adapters_and_bfloat16_change_no_draw_of_a_fixed_batch(
    made: list[FixedBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(make_model(2), LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    generator, found = Generator(model.get_base_model(), make_tokenizer()), []
    for devices in (("cpu",), ()):
        monkeypatch.setattr(fixed_batch, "DEVICES", devices)
        rows = rows_of([(9, 12), (3, 12), (6, 12)], temperature=0.0)
        with torch.autocast("cpu", torch.bfloat16):
            generator.generate(rows)
        found.append(rows)
    assert len(made) == 1 and made[0]._loose.layers[0].keys is None
    gaps = [abs(a - b) for x, y in zip(*found, strict=True) for a, b in zip(x.logprobs, y.logprobs, strict=True)]
    assert [row.ids for row in found[0]] == [row.ids for row in found[1]] and max(gaps) < 0.02


@pytest.mark.parametrize(
    "change", [{"_attn_implementation": "eager"}, {"alibi": True}, {"device": "elsewhere"}, {"static": False}]
)
def test_what_cannot_be_fixed_grows(
    made: list[FixedBatch], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    generator = CountingGenerator()
    ((name, value),) = change.items()
    if name == "device":
        monkeypatch.setattr(fixed_batch, "DEVICES", (value,))
    elif name == "static":
        monkeypatch.setattr(type(generator.model), "_can_compile_fullgraph", value)
    else:
        monkeypatch.setattr(generator.model.config, name, value, raising=False)
    rows = rows_of(LENGTHS[:3])
    generator.generate(rows)
    assert made == [] and all(row.finish for row in rows)


class Stream:
    """The current stream, which a capture that fails leaves at the one that captures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: bool):
        self.current, self.captured, self.replayed, self.fails = "main", 0, 0, fails
        outer = self

        class Graph:
            def replay(self) -> None:
                outer.replayed += 1
                outer.batch._pass()

        @contextmanager
        def graph(made: Graph, capture_error_mode: str) -> Any:
            """Nothing runs in a capture: what it would change is put back."""
            assert isinstance(made, Graph) and capture_error_mode == "thread_local"
            outer.current, outer.captured = "capture", outer.captured + 1
            changed = [outer.batch._column, outer.batch._positions, outer.batch._mask]
            kept = [t.clone() for t in changed]
            yield
            for t, before in zip(changed, kept, strict=True):
                t.copy_(before)
            if outer.fails:
                raise RuntimeError("operation not permitted when stream is capturing")
            outer.current = "main"

        played = {
            "CUDAGraph": Graph,
            "graph": graph,
            "current_stream": lambda: self.current,
            "set_stream": lambda stream: setattr(self, "current", stream),
            "device": lambda device: contextmanager(lambda: iter([None]))(),
        }
        for name, value in played.items():
            monkeypatch.setattr(torch.cuda, name, value)
        begin = FixedBatch.__init__

        def watched(batch: FixedBatch, *given: Any) -> None:
            begin(batch, *given)
            batch._captures, self.batch = True, batch

        monkeypatch.setattr(FixedBatch, "__init__", watched)


@pytest.mark.parametrize("fails", [False, True])
def test_the_second_step_is_captured_and_the_others_are_replays(
    made: list[FixedBatch], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A model that cannot be captured takes its steps one by one, on the stream of before."""
    stream = Stream(monkeypatch, fails)
    rows, generator = rows_of([(9, 12), (3, 12), (6, 7)]), CountingGenerator()
    generator.generate(rows)
    assert (stream.captured, stream.replayed, stream.current) == (1, 0 if fails else 10, "main")
    monkeypatch.setattr(fixed_batch, "DEVICES", ())
    same(rows, alone(rows_of([(9, 12), (3, 12), (6, 7)])))


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_attention_in_groups_equals_attention_with_copied_keys(shared: int) -> None:
    torch.manual_seed(0)
    query = torch.randn(3, 4, 1, 8)
    key, value = torch.randn(3, shared, 6, 8), torch.randn(3, shared, 6, 8)
    mask = torch.rand(3, 1, 1, 6) > 0.3
    mask[..., 0] = True
    module = SimpleNamespace(num_key_value_groups=4 // shared, is_causal=True)
    found, _ = attend_in_groups(module, query, key, value, mask, scaling=0.3, sliding_window=None)
    copied = (t.repeat_interleave(4 // shared, 1) for t in (key, value))
    wanted = torch.nn.functional.scaled_dot_product_attention(query, *copied, attn_mask=mask, scale=0.3)
    assert found.shape == (3, 1, 4, 8) and torch.allclose(found, wanted.transpose(1, 2), atol=1e-6)
