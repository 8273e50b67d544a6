"""The engine of a policy in this process: answers join the running batch, in the places of complete ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.counting_generator import CountingGenerator  # noqa: E402
from tests.helpers.tiny_lm import make_tokenizer  # noqa: E402

from workbench.errors import LMError  # noqa: E402
from workbench.lm import Request, Response  # noqa: E402
from workbench_engine.generation import Generator, Row  # noqa: E402
from workbench_training.serving.policy_lm import Conversations, LocalEngine  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

torch.set_num_threads(1)


async def converse(engine: LocalEngine, rollout: int, turns: Sequence[int]) -> list[tuple[int, ...]]:
    """A rollout of several turns, each of so many tokens."""
    messages: tuple[dict[str, Any], ...] = ()
    found = []
    for most in turns:
        messages = (*messages, {"role": "user", "content": "ab"})
        answer = await engine.complete(Request(messages, 1.0, most, replica=rollout))
        messages = (*messages, {"role": "assistant", "content": answer.text})
        found.append(answer.token_ids or ())
    return found


def drawn(
    turns: Sequence[Sequence[int]], most: int, generator: Generator, continuous: bool | None = True
) -> list[list[tuple[int, ...]]]:
    async def schedule() -> list[Any]:
        engine = LocalEngine(generator, 0, most, continuous=continuous)
        try:
            return await asyncio.gather(*(converse(engine, i, each) for i, each in enumerate(turns)))
        finally:
            await engine.aclose()

    return asyncio.run(schedule())


def test_turns_of_rollouts_do_not_wait_for_the_longest_turn_of_another() -> None:
    """One rollout with one turn of 60 tokens beside seven of ten turns of 6: in little more than 60 steps, of 104."""
    turns = [[60], *([6] * 10 for _ in range(7))]
    generator = CountingGenerator()
    found = drawn(turns, 8, generator)
    assert [list(map(len, answers)) for answers in found] == [list(each) for each in turns]
    assert len(generator.steps) <= 90, "60, and some more where a loaded machine lets calls join late"
    static = CountingGenerator()
    assert drawn(turns, 8, static, None) == found, "on a CPU batches are static"
    assert len(static.steps) >= 59 + 9 * 5


def test_a_static_batch_answers_all_its_calls_together() -> None:
    """So that what follows them shares a batch again, whatever is faster."""

    async def schedule() -> int:
        generator = CountingGenerator()
        engine = LocalEngine(generator, 0, 4, continuous=False)
        calls = [asyncio.create_task(converse(engine, i, [most])) for i, most in enumerate((2, 200))]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        steps = len(generator.steps)
        await asyncio.gather(*calls)
        await engine.aclose()
        return steps

    assert asyncio.run(schedule()) == 199


def test_no_more_rows_are_in_a_batch_than_the_engine_may_draw() -> None:
    generator = CountingGenerator()
    drawn([[1 + i] for i in range(12)], 3, generator)
    assert max(generator.steps) <= 3


class Broken(CountingGenerator):
    def _decode(self, row: Row) -> None:
        if row.max_tokens == 3:
            raise ValueError("this cannot be decoded")
        super()._decode(row)


def test_an_error_of_the_model_reaches_all_that_wait_for_the_batch_and_nobody_else() -> None:
    async def schedule() -> tuple[list[Any], Any]:
        engine = LocalEngine(Broken(), 0, 4, continuous=True)
        lost = await asyncio.gather(
            *(converse(engine, i, [most]) for i, most in enumerate((1, 3, 9))), return_exceptions=True
        )
        after = await converse(engine, 9, [2])
        await engine.aclose()
        return lost, after

    (first, second, third), after = asyncio.run(schedule())
    assert len(first[0]) == 1 and isinstance(second, ValueError) and isinstance(third, ValueError)
    assert len(after[0]) == 2


def test_a_model_whose_cache_forgets_tokens_draws_in_batches_that_nobody_joins() -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = MistralForCausalLM(
        MistralConfig(vocab_size=60, num_key_value_heads=1, sliding_window=8, eos_token_id=1, pad_token_id=0, **shape)
    ).eval()
    turns = [[2 + i, 9] for i in range(5)]
    together = CountingGenerator(model)
    assert drawn(turns, 3, together) == drawn(turns, 1, CountingGenerator(model))
    assert max(together.steps) == 3


# The limit of a conversation


def said(*texts: str) -> Request:
    roles = ("user", "assistant")
    return Request(tuple({"role": roles[i % 2], "content": text} for i, text in enumerate(texts)), max_tokens=20)


@pytest.mark.parametrize("from_journal", [False, True])
def test_a_conversation_is_limited_by_what_follows_its_first_prompt(from_journal: bool) -> None:
    """`<u>abc<end><a>` are 6 tokens, the answer with its end 3, `<u>no<end><a>` 5: 8 after the first prompt."""
    tokenizer = make_tokenizer()
    generator = CountingGenerator()
    known = Conversations(tokenizer, {1}, generator.encode)
    first, second = said("abc"), said("abc", "xy", "no")
    prompt = tuple(generator.encode([dict(m) for m in first.messages]))
    answer = tuple(tokenizer("xy<end>")["input_ids"])
    if not from_journal:
        assert tuple(known.prompt_ids(first)) == prompt
    known.remember(first, Response("xy", "stop", 6, 3, prompt_ids=prompt, token_ids=answer))
    then = known.prompt_ids(second)
    assert len(then) - len(prompt) == 8
    assert known.max_tokens(second, then) == 20
    known.limit = 9
    assert (known.max_tokens(first, prompt), known.max_tokens(second, then)) == (9, 1)
    known.limit = 8
    with pytest.raises(LMError, match="straggler_cut: the conversation has 8 tokens, of 8 at most"):
        known.max_tokens(second, then)
    other = said("abc", "zz", "no")  # this answer is none of ours: it is part of the first prompt
    assert known.max_tokens(other, known.prompt_ids(other)) == 8


def test_an_answer_ends_at_the_limit() -> None:
    async def schedule() -> Any:
        engine = LocalEngine(CountingGenerator(), 0, 4, continuous=True)
        engine.conversations.limit = 7
        found = await asyncio.gather(*(converse(engine, i, [most]) for i, most in enumerate((3, 30))))
        await engine.aclose()
        return [len(answer) for (answer,) in found]

    assert asyncio.run(schedule()) == [3, 7]
