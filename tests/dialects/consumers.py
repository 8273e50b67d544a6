"""The parts of the product that ask language models, each on the planted task behind one dialect.

Each is a coroutine function (dialect, lab, folder) that asserts what has to come out, or raises what the product
raises.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.dialects.dialect import Count, Dialect
from tests.dialects.planted import DESKS, INSTRUCTION, ROWS
from tests.dialects.server import Lab
from workbench.errors import LMError, NodeError
from workbench.ledger import Ledger
from workbench.lm import LMPool, Request, split_reasoning, split_thoughts
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, Spec, lm_spec
from workbench.store import IN_MEMORY, Store, add_run
from workbench.study import Evaluator, Progress, Study
from workbench.task import Example
from workbench.workflow import ExampleRun, Workflow, node_tree
from workbench_external.gateway import Gateway
from workbench_external.served import ServedSession
from workbench_kit.prompting import Proposer, rewrite_request
from workbench_metrics.judge import Judge
from workbench_training.rollouts.sft_data import extract_examples

LABEL = "label: Literal['billing','technical']"
TOOLS = """
DESKS = {"INV-7": "billing", "APP-3": "technical"}


def look(code: str) -> str:
    "Looks up the desk of a ticket."
    return f"The desk of {code} is {DESKS[code]}"
"""
NODES: Mapping[str, dict[str, Any]] = {
    "predict": {"predict": f"text -> {LABEL}", "instructions": "Sort the ticket."},
    "agent-text": {
        "agent": f"text -> {LABEL}",
        "instructions": "Sort the ticket.",
        "tools": ["python:mytools.py:look"],
    },
    "agent-native": {
        "agent": f"text -> {LABEL}",
        "instructions": "Sort the ticket.",
        "tools": ["python:mytools.py:look"],
        "native": True,
    },
    "states": {
        "signature": f"text -> {LABEL}",
        "instructions": "Sort the ticket.",
        "start": "look",
        "states": {
            "look": {"tools": ["python:mytools.py:look"], "next": [{"when": {"regex": "desk of"}, "to": "say"}]},
            "say": {"instructions": "Give the label alone.", "next": {"when": "always", "keep": "label", "to": "end"}},
        },
    },
}
EXAMPLES = [Example(str(n), {"text": text, "label": label}) for n, (text, label) in enumerate(ROWS.items())]
Consumer = Callable[[Dialect, Lab, Path], Coroutine[Any, Any, None]]


@asynccontextmanager
async def running(dialect: Dialect, lab: Lab) -> AsyncIterator[Runtime]:
    """A runtime whose language model speaks the dialect, with a ledger that records nothing on disk."""
    store = Store(IN_MEMORY)
    run = add_run(store, run="lab", name="lab", status="running", spec="", options="{}")
    ledger = Ledger(store, run, BudgetSpec.model_validate({"calls": 100}))
    runtime = Runtime(ledger, lm_spec(dialect.lm(lab.address)), {}, LMPool())
    try:
        yield runtime
    finally:
        await runtime.aclose()
        store.close()


def workflow_of(consumer: str, folder: Path) -> Workflow:
    (folder / "mytools.py").write_text(TOOLS)
    workflow = Workflow({"nodes": {"sort": node_tree(NODES[consumer])}}, folder)
    workflow.check()
    return workflow


async def run_row(runtime: Runtime, workflow: Workflow, text: str) -> ExampleRun:
    """One run of a workflow. Raises what its node failed with."""
    outcome = await Program(workflow, runtime).run(Example("1", {"text": text}))
    if outcome.failure is not None:
        raise NodeError(outcome.failure, outcome.message or "")
    return outcome


def _node(consumer: str) -> Consumer:
    async def consume(dialect: Dialect, lab: Lab, folder: Path) -> None:
        workflow, count = workflow_of(consumer, folder), Count()
        async with running(dialect, lab) as runtime:
            for text, label in ROWS.items():
                outcome = await run_row(runtime, workflow, text)
                assert outcome.prediction == {"label": label}
                calls = [call for span in outcome.trace.spans for call in span.calls]
                for call in calls:
                    assert (call.response.prompt_tokens, call.response.completion_tokens) == (
                        count.prompt,
                        count.answer,
                    )
                    assert call.response.cached == (count.cached if dialect.cached else 0)
                    assert call.response.cache_write == (count.written if dialect.written else 0)
                    assert not call.response.estimated
                assert len(calls) == (1 if consumer == "predict" else 2)

    return consume


async def demos(dialect: Dialect, lab: Lab, folder: Path) -> None:
    """An agent with native tools that is shown what it did on another row, as bootstrap shows it."""
    workflow, ((shown, _), (text, label)) = workflow_of("agent-native", folder), ROWS.items()
    async with running(dialect, lab) as runtime:
        (span,) = (await run_row(runtime, workflow, shown)).trace.spans
        taught = workflow.patched({"nodes.sort.demos": [workflow.enabled_nodes["sort"].demo(span)]})
        taught.check()
        (span,) = (await run_row(runtime, taught, text)).trace.spans
        assert span.outputs == {"label": label} and len(span.calls) == 2
        assert len(span.calls[0].messages) == 6


async def judge(dialect: Dialect, lab: Lab, folder: Path) -> None:
    async with running(dialect, lab) as runtime:
        metric: Any = Judge(rubric="The label names the right desk.")
        found = await Evaluator(runtime, metric, 2).evaluate(workflow_of("predict", folder), EXAMPLES)
        assert [(one.score, one.feedback) for one in found.results] == [(1.0, "The desk is right.")] * 2


async def propose(dialect: Dialect, lab: Lab, folder: Path) -> None:
    workflow = workflow_of("predict", folder)
    async with running(dialect, lab) as runtime:
        study = Study(
            workflow,
            EXAMPLES,
            EXAMPLES,
            Evaluator(runtime, has_right_label, 2),
            runtime.ledger,
            _progress(),
            random.Random(0),
        )
        request = rewrite_request(workflow, "nodes.sort.instructions")
        found = await study.lm("proposer")(request, max_tokens=500, temperature=0.8)
        assert found.text.strip() == f"<prompt>\n{INSTRUCTION}\n</prompt>"
        assert await Proposer(study).prompt(request, workflow, "nodes.sort.instructions") == INSTRUCTION


def has_right_label(example: Example, prediction: Mapping[str, Any], trace: Any) -> float:
    return float(prediction["label"] == example["label"])


def _progress() -> Progress:
    async def ignore(evaluation: Any) -> None:
        pass

    return Progress(lambda workflow, name: None, ignore)


async def teach(dialect: Dialect, lab: Lab, folder: Path) -> None:
    """A teacher's rollouts, from which `sft` learns both turns: thoughts in its text too, and none beside it."""
    workflow = workflow_of("agent-text", folder)
    async with running(dialect, lab) as runtime:
        for text, label in ROWS.items():
            lessons = extract_examples((await run_row(runtime, workflow, text)).trace, {"sort"})
            learned = [lesson.messages[place]["content"] for lesson in lessons for place in sorted(lesson.learned)]
            call, answer = (split_thoughts(split_reasoning(said, str)[1])[1].strip() for said in learned)
            assert json.loads(call.removeprefix("call: "))["arguments"] == {"code": text.partition(" ")[0]}
            assert answer == f"label: {label}"


async def probabilities(dialect: Dialect, lab: Lab, folder: Path) -> None:
    """What rollouts of the model in training need: log-probabilities of the tokens that were drawn, and their numbers
    from vLLM."""
    async with running(dialect, lab) as runtime:
        lm = runtime.pool.get(runtime.lm)
        text = next(iter(ROWS))
        found = await lm.complete(Request(({"role": "user", "content": text},), logprobs=True, temperature=1.0))
        assert found.without_thoughts().text.strip() == ROWS[text]
        assert found.logprobs == ((-0.5,) if dialect.logprobs else None)
        assert found.token_ids == ((7,) if dialect.model.startswith("hosted_vllm/") else None)


# Agents behind the gateway: they send their messages in the standard form alone, as stock clients do

TOOL = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
Post = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


def _gateway(talk: Callable[[Post, str, bool], Awaitable[str]]) -> Consumer:
    async def consume(dialect: Dialect, lab: Lab, folder: Path) -> None:
        tree = {"external": f"text -> {LABEL}", "command": ["true"]}
        workflow = Workflow({"nodes": {"agent": node_tree(tree)}}, folder)
        file = {"name": "t", "lm": dialect.lm(lab.address), "data": {"file": "x"}, "metric": "exact_match(label)"}
        spec = Spec.model_validate({**file, "nodes": {"agent": tree}})
        async with running(dialect, lab) as runtime:
            node: Any = workflow.enabled_nodes["agent"]
            gateway = await Gateway.open()
            try:
                secret = gateway.admit(ServedSession(node, workflow, spec, runtime, lambda text: None))
                async with aiohttp.ClientSession() as session:

                    async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
                        url = f"{gateway.address}/s/{secret}/v1/{path}"
                        async with session.post(url, json={"model": "agent", **body}) as answer:
                            found = await answer.json()
                            if answer.status != 200:
                                raise LMError("bad_request", json.dumps(found), status=answer.status)
                            return found

                    for text, label in ROWS.items():
                        assert (await talk(post, text, not dialect.no_tools)).strip() == label
            finally:
                await gateway.aclose()

    return consume


def _look(arguments: Any) -> str:
    code = (json.loads(arguments) if isinstance(arguments, str) else arguments)["code"]
    return f"The desk of {code} is {DESKS[code]}"


async def _chat(post: Post, text: str, tools: bool) -> str:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Sort the ticket."},
        {"role": "user", "content": text},
    ]
    offered = {"tools": [{"type": "function", "function": {"name": "look", "parameters": TOOL}}]} if tools else {}
    while True:
        body = await post("chat/completions", {"messages": messages, **offered, "temperature": 0})
        choice = body["choices"][0]
        said = choice["message"]
        if choice["finish_reason"] != "tool_calls":
            # Thoughts in the text pass as without a gateway: an agent of such a server reads past them.
            return split_thoughts(split_reasoning(said["content"], str)[1])[1]
        unset = dict.fromkeys(("refusal", "annotations", "audio", "function_call"))  # as OpenAI's client has it
        messages.append({"role": "assistant", "content": said["content"], "tool_calls": said["tool_calls"], **unset})
        for call in said["tool_calls"]:
            result = _look(call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def _responses(post: Post, text: str, tools: bool) -> str:
    items: list[dict[str, Any]] = [{"role": "user", "content": text}]
    offered = {"tools": [{"type": "function", "name": "look", "parameters": TOOL}]} if tools else {}
    while True:
        asked = {"instructions": "Sort the ticket.", "input": items, "store": False, **offered}
        output = (await post("responses", asked))["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return output[-1]["content"][0]["text"]
        items += output
        for call in calls:
            result = _look(call["arguments"])
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})


async def _messages(post: Post, text: str, tools: bool) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    offered = {"tools": [{"name": "look", "input_schema": TOOL}]} if tools else {}
    while True:
        asked = {"system": "Sort the ticket.", "messages": messages, "max_tokens": 1000, **offered}
        answer = await post("messages", asked)
        calls: Sequence[Any] = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not calls:
            return answer["content"][-1]["text"]
        results = [{"type": "tool_result", "tool_use_id": c["id"], "content": _look(c["input"])} for c in calls]
        messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]


#: How each of `dialect.CONSUMERS` is run.
RUNS: Mapping[str, Consumer] = {
    "predict": _node("predict"),
    "agent-text": _node("agent-text"),
    "agent-native": _node("agent-native"),
    "agent-demos": demos,
    "states": _node("states"),
    "judge": judge,
    "proposer": propose,
    "rollouts": teach,
    "gateway-chat": _gateway(_chat),
    "gateway-responses": _gateway(_responses),
    "gateway-messages": _gateway(_messages),
    "probabilities": probabilities,
}
