"""Agents with native tool calls are trained: the policy's own tokens are kept, and tools' texts are masked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.sqlite import connect

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_runs import run  # noqa: E402
from tests.helpers.tiny_lm import make_model, make_tokenizer, save  # noqa: E402

from workbench.lm import Request, Response  # noqa: E402
from workbench_engine.generation import Generator  # noqa: E402
from workbench_kit.lms.native_calls import to_message  # noqa: E402
from workbench_training.rollouts.token_rows import build_rows  # noqa: E402
from workbench_training.serving import policy_lm  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

#: Shows tools before the first message, writes calls in its own JSON, and tools' results as turns of the user.
TEMPLATE = (
    "{% if tools %}<u>{% for t in tools %}{{ t.function.name }} {% endfor %}<end>{% endif %}"
    "{% for m in messages %}{{ '<a>' if m.role == 'assistant' else '<u>' }}"
    "{% if m.role == 'tool' %}result {% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}call {{ c.function | tojson }}{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
ADD = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}
SAID = '{"name":"add","arguments":{"a":1}}'  # without the spaces of the template's JSON


def tokenizer_with_tools() -> Any:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


class Scripted(Generator):
    """Draws given texts, a token a character."""

    def __init__(self, texts: list[str]):
        super().__init__(make_model(), tokenizer_with_tools())
        self.texts = texts

    def generate(self, rows: list[Any], refill: Any) -> None:
        for row in rows:
            row.text = self.texts.pop(0)
            row.ids = [*self.tokenizer(row.text, add_special_tokens=False)["input_ids"], 1]
            row.logprobs, row.finish = [-0.5] * len(row.ids), "stop"
            refill.give(row)


def test_a_conversation_with_calls_is_one_row_whose_tool_texts_are_masked() -> None:
    engine = policy_lm.LocalEngine(Scripted([SAID, "answer: 3"]))
    tokenizer = engine.generator.tokenizer

    async def schedule() -> tuple[Response, Response]:
        ask = ({"role": "user", "content": "1 + 2"},)
        first = await engine.complete(Request(ask, 1.0, 64, tools=(ADD,)))
        told = {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": "result: 3"}
        said = to_message(first)  # as an agent keeps it that names calls by ids of its own
        said["tool_calls"][0] |= {"id": "mine"}
        second = await engine.complete(Request((*ask, said, told), 1.0, 64, tools=(ADD,)))
        await engine.aclose()
        return first, second

    first, second = asyncio.run(schedule())
    assert first.finish == "tool_calls" and first.tool_calls[0]["name"] == "add"
    assert first.prompt_ids is not None and first.token_ids is not None and second.prompt_ids is not None
    assert tokenizer.decode(first.prompt_ids) == "<u>add <end><u>1 + 2<end><a>"
    drawn = first.prompt_ids + first.token_ids
    assert second.prompt_ids[: len(drawn)] == drawn, "the calls as they were drawn, not as the template writes them"
    assert tokenizer.decode(second.prompt_ids[len(drawn) :]) == "<u>result result: 3<end><a>"
    steps = [
        {"prompt_ids": r.prompt_ids, "token_ids": r.token_ids, "logprobs": r.logprobs, "turn": n, "agent": "a"}
        for n, r in enumerate((first, second))
    ]
    (row,) = build_rows(steps, reward=1.0, task="t", rollout=0, version=0)
    learned = tokenizer.decode([i for i, kept in zip(row.token_ids, row.mask, strict=True) if kept])
    assert learned == f"{SAID}<end>answer: 3<end>"


def test_calls_that_the_agent_changed_are_tokenized_as_they_stand() -> None:
    engine = policy_lm.LocalEngine(Scripted([SAID]))
    ask = ({"role": "user", "content": "1 + 2"},)

    async def schedule() -> tuple[Response, list[int]]:
        first = await engine.complete(Request(ask, 1.0, 64, tools=(ADD,)))
        said = to_message(first)
        said["tool_calls"][0]["function"]["arguments"] = '{"a": 2}'
        told = {"role": "tool", "tool_call_id": "x", "content": "3"}
        await engine.aclose()
        return first, engine.conversations.prompt_ids(Request((*ask, said, told), tools=(ADD,)))

    first, later = asyncio.run(schedule())
    assert first.prompt_ids is not None and first.token_ids is not None
    drawn = [*first.prompt_ids, *first.token_ids]
    assert later[: len(drawn)] != drawn and '"a": 2' in engine.generator.tokenizer.decode(later)


def test_an_agent_with_native_tools_is_trained_and_evaluated(tmp_path: Path) -> None:
    """A whole run on a tiny checkpoint, whose rollouts and candidates are asked with tools in its own template."""
    base = save(tmp_path / "base", 0, positions=2048)
    tokenizer_with_tools().save_pretrained(base)
    (tmp_path / "tools.py").write_text('def add(a: int, b: int) -> int:\n    """Adds."""\n    return a + b\n')
    agent = {
        "agent": "text -> label: Literal['billing', 'technical']",
        "tools": ["python:tools.py:add"],
        "native": True,
        "max_steps": 2,
        "max_tokens": 8,
    }
    schedule = {"steps": 1, "tasks": 2, "rollouts": 2, "evaluate_every": 1}
    settings = {"schedule": schedule, "device": "cpu", "guards": ["empty", "repeated"], "rewards": [{"kind": "length"}]}
    report = run(tmp_path, lm=f"hf:{base}", nodes={"solve": agent}, optimizers=[{"grpo": settings}], rows=(4, 2, 2))
    assert report.status == "finished"

    with connect(tmp_path / "run.db") as db:
        rows = db.execute("select lm, request, outcome from calls where kind = 'lm'").fetchall()
    assert any(lm.startswith("policy:") for lm, _, _ in rows) and {lm.split(":")[0] for lm, *_ in rows} == {
        "policy",
        "hf",
    }
    assert all(json.loads(request)["tools"] for _, request, _ in rows)
    assert not {outcome for *_, outcome in rows} & {"unsupported", "bad_request"}
