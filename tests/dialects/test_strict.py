"""The lab refuses what the real servers refuse: no rule is for show, and keys and paths have to be right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.dialects.consumers import running
from tests.dialects.declared import DIALECTS
from tests.dialects.dialect import KEY_VARIABLE, Asked, Dialect, Json, Refused, Rule
from tests.dialects.planted import ROWS
from tests.dialects.rules import check_form
from tests.dialects.server import Lab
from workbench.errors import LMError
from workbench.lm import Request

USER = {"role": "user", "content": "hello"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "no id!", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOLD = {"role": "tool", "tool_call_id": "no id!", "content": "7"}


def said(content: Any = "hi", **more: Any) -> Json:
    return {"role": "assistant", "content": content, **more}


#: Conversations and settings, each of which some server refuses.
TALKS: Mapping[str, list[Json]] = {
    "a system": [SYSTEM, USER],
    "a system alone": [SYSTEM],
    "a late system": [USER, SYSTEM],
    "a turn twice": [USER, USER],
    "a last turn of the model": [USER, said()],
    "no text": [USER, said(""), USER],
    "a call": [USER, said("", tool_calls=[CALL]), TOLD],
    "a call with a foreign field": [USER, said("", tool_calls=[{**CALL, "extra_content": 1}]), TOLD],
    "thoughts without a call": [USER, said(reasoning_content="hm"), USER],
    "a foreign field": [USER, said(foreign=1), USER],
}
SETTINGS: list[Json] = [
    *(
        {name: 1}
        for name in ("foreign", "max_tokens", "logprobs", "top_logprobs", "logit_bias", "service_tier", "user")
    ),
    *({name: 2} for name in ("n", "presence_penalty", "frequency_penalty", "seed", "parallel_tool_calls")),
    *({"temperature": value} for value in (-1, 0, 0.5, 5)),
    *({"top_p": value} for value in (0, 0.5, 2)),
    {"stop": ["a"] * 9},
    {"logprobs": True},
    {"max_tokens": 10**6},
    {"reasoning_effort": "low"},
    {"tools": [{"type": "function", "function": {"name": "look"}}]},
    {"tools": [{"type": "function", "function": {"name": "look"}}], "response_format": {"type": "json_object"}},
]


def refusals(rule: Rule, dialect: Dialect) -> Iterator[str]:
    """What a rule says to each of the requests that it refuses."""
    asked = Asked("/", {}, {}, {"model": "m", "messages": [USER]}, {"no id!": '"c2lnbmVk"'})
    bodies = [{**asked.body, "messages": talk} for talk in TALKS.values()]
    for body in (asked.body, *bodies, *({**asked.body, **one} for one in SETTINGS)):
        try:
            rule(replace(asked, body=body))
        except Refused as refused:
            yield refused.message


def test_every_rule_refuses_some_requests_and_not_all(subtests: pytest.Subtests) -> None:
    for name in DIALECTS:
        with subtests.test(name=name):
            dialect, most = DIALECTS[name], 1 + len(TALKS) + len(SETTINGS)
            foreign = dialect.api is not None  # its requests have another form than those here
            for rule in dialect.rules:
                said = [*refusals(rule, dialect)]
                always = any(word in rule.__qualname__ for word in ("key_in", "wants_"))
                assert len(said) == most if always else 0 < len(said) < most + foreign, (rule.__qualname__, said)
                assert all(said) and not any("{" in one.replace("[{", "") for one in said), "placeholders are filled"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "judge", "content": "x"}],
        [{"role": "user", "content": None}],
        [USER, said(None, tool_calls=[CALL])],
        [USER, said(None, tool_calls=[CALL]), USER],
        [USER, {**TOLD, "tool_call_id": "other"}],
        [USER, said(None, tool_calls=[{**CALL, "id": ""}]), TOLD],
        [USER, said(None, tool_calls=[{**CALL, "function": {"name": "look", "arguments": {}}}]), TOLD],
    ],
)
def test_no_server_takes_messages_that_are_out_of_form(messages: list[Json]) -> None:
    with pytest.raises(Refused):
        check_form(Asked("/", {}, {}, {"messages": messages}, {}))


async def kind(dialect: Dialect, lab: Lab) -> str:
    async with running(dialect, lab) as runtime:
        with pytest.raises(LMError) as caught:
            await runtime.pool.get(runtime.lm).complete(Request(({"role": "user", "content": next(iter(ROWS))},)))
        return caught.value.kind


@pytest.mark.parametrize("name", [name for name, one in DIALECTS.items() if one.hosted and not one.slow])
def test_a_wrong_key_and_a_wrong_path_are_read_in_every_dialect(
    name: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = DIALECTS[name]
    path, _, query = dialect.base.partition("?")
    elsewhere = replace(dialect, base=f"{path}/elsewhere" + (f"?{query}" if query else ""))
    assert asyncio.run(kind(elsewhere, lab)) == "blocked"
    monkeypatch.setenv(KEY_VARIABLE, "sk-another-0123456789")
    assert asyncio.run(kind(dialect, lab)) == "auth"
