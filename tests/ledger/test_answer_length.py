"""An answer that is far longer than what was asked for is no answer, and is not kept."""

from __future__ import annotations

import pytest

from workbench.errors import LMError
from workbench.lm import Request, Response, check_length

REQUEST = Request(({"role": "user", "content": "x"},), max_tokens=100)


def test_an_answer_within_what_was_asked_for_is_taken() -> None:
    check_length(Response("x" * (16 * 100 + (1 << 16))), REQUEST)


@pytest.mark.parametrize(
    "response",
    [
        Response("x" * (16 * 100 + (1 << 16) + 1)),
        Response("", "tool_calls", tool_calls=({"id": "", "name": "f", "arguments": {"a": "x" * 100_000}},)),
        Response("x", thoughts="x" * 100_000),
        Response("x", message={"content": "x", "signature": "x" * 300_000}),
    ],
)
def test_a_longer_one_is_a_bad_body(response: Response) -> None:
    with pytest.raises(LMError, match="an answer of .* to a request for 100 tokens") as caught:
        check_length(response, REQUEST)
    assert caught.value.kind == "bad_body"
