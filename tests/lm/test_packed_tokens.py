"""Tokens of answers as bytes: read back to the bit, small, and refused where they are not what was written."""

from __future__ import annotations

import asyncio
import json
import math
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from workbench.errors import StoreError
from workbench.lm import Native, Request, Response, split_tokens, unpack_native, unpack_tokens
from workbench.store import Journal, Store, add_run, remove_unused_texts

IDS = st.lists(st.integers(0, 2**32 - 1), max_size=20).map(tuple)
FLOATS = st.floats(allow_nan=False)
NARROW = st.floats(width=32, allow_nan=False)


@given(IDS, IDS, st.one_of(st.lists(FLOATS, max_size=20), st.lists(NARROW, max_size=20)).map(tuple))
def test_what_is_read_is_what_was_written(prompt: Any, ids: Any, logprobs: Any) -> None:
    values, packed = split_tokens(Response("x", prompt_ids=prompt, token_ids=ids, logprobs=logprobs))
    wanted = {"prompt_ids": prompt, "token_ids": ids, "logprobs": logprobs}
    assert values == {"text": "x", "finish": "stop"}
    found = {} if packed is None else unpack_tokens(packed)
    assert found == {name: value for name, value in wanted.items() if value}
    assert [math.copysign(1, x) for x in found.get("logprobs", ())] == [math.copysign(1, x) for x in logprobs]


@pytest.mark.parametrize("ids", [(2**32,), (-1,), ("12",), (1.5,)])
def test_ids_that_do_not_fit_stay_in_the_json(ids: Any) -> None:
    values, packed = split_tokens(Response("x", token_ids=ids))
    assert packed is None and values["token_ids"] == list(ids)


def test_a_long_answer_takes_a_third_of_its_json() -> None:
    """Log-probabilities of a model in float32, ids of a vocabulary of 150,000 words drawn by Zipf's law."""
    rng = random.Random(0)

    def narrow(x: float) -> float:
        return struct.unpack("f", struct.pack("f", x))[0]

    ids = tuple(int(150_000 ** rng.random()) for _ in range(4000))
    logprobs = tuple(narrow(-rng.expovariate(2)) for _ in range(4000))
    response = Response("x", prompt_ids=ids[:2000], token_ids=ids, logprobs=logprobs)
    _, packed = split_tokens(response)
    assert packed is not None and 3 * len(packed) < len(json.dumps(response.as_dict()))


WHOLE = split_tokens(Response("x", token_ids=(1, 2, 3), logprobs=(-0.5, -0.25, -1.0)))[1] or b""


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        WHOLE[:8],
        WHOLE[:-1],
        b"\x02" + WHOLE[1:],
        WHOLE[:1] + b"\x03" + WHOLE[2:],
        WHOLE[:14] + zlib.compress(b"\0" * 23, 1),
        WHOLE[:14] + zlib.compress(b"\0" * 25, 1),
        struct.pack("<BBIII", 1, 4, 0, 2**31, 0) + zlib.compress(bytes(10**6), 9),
    ],
)
def test_other_bytes_are_refused(packed: bytes) -> None:
    with pytest.raises(StoreError, match="the tokens of a call are damaged"):
        unpack_tokens(packed)


def test_h11_a_streamed_answer_is_packed_and_a_damaged_one_is_told() -> None:
    raw = 'data: {"choices": [{"delta": {"content": "\u00fc\\ud83d"}}]}\n\n' * 1000
    values, _ = split_tokens(Response("a", native={"raw": raw, "headers": {"x-request-id": "r"}}))
    assert len(str(values)) < len(raw) / 50
    assert unpack_native(values["native"]) == {"raw": raw, "headers": {"x-request-id": "r"}}
    short = {"raw": "{}", "headers": {}}
    assert split_tokens(Response("a", native=short))[0]["native"] == short == unpack_native(short)
    for packed in ("x", "", None, values["native"]["packed"][:-8], "eA=="):
        with pytest.raises(StoreError, match="damaged"):
            unpack_native({"packed": packed})


def test_h11_a_conversation_that_passes_is_kept_turn_by_turn(tmp_path: Path) -> None:
    """Each call holds all turns and tools: kept whole, a conversation grew with the square of its turns."""
    store = Store(tmp_path / "run.db")
    journal = Journal(store, add_run(store, run="t", name="t", status="running", spec="", options="{}"))
    tools = [{"type": "function", "function": {"name": f"f{n}", "parameters": {"n": n}}} for n in range(40)]
    said = [{"role": "user", "content": f"turn {n} " + "word " * 80} for n in range(20)]

    async def main() -> None:
        for n in range(1, 21):
            request = Request((), native=Native("chat", {"messages": said[:n], "tools": tools}))
            counts: dict[str, Any] = dict.fromkeys(
                ("prompt_tokens", "completion_tokens", "usd", "seconds", "queued"), 0
            )
            await journal.add_call(
                f"{n:032d}",
                role="task",
                lm="m",
                request=request,
                response=None,
                outcome="ok",
                message=None,
                attempts=1,
                **counts,
            )

    asyncio.run(main())
    kept = [len(row["request"]) for row in store.rows("select request from calls order by key")]
    remove_unused_texts(store)  # none of these is
    texts = [json.loads(row["text"]) for row in store.rows("select text from texts")]
    store.close()
    assert kept[-1] < 50 * 20 + 300 and len(texts) == 21
    assert tools in texts and all(turn in texts for turn in said)
