"""A rehearsal: a workflow runs on a few rows without a model, so that an estimate sees the prompts that it builds.

Nothing leaves the process, nothing is started and nothing is stored. An effect of a node fails, and a node that fails
gives its least outputs, so that the nodes after it run, too.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, cast

from workbench.base.concurrency import run_in_loop
from workbench.errors import NodeError
from workbench.ledger import estimate_prompt
from workbench.lm import LMPool, Request, Response, prompt_text
from workbench.runtime import Begun, Context, Draw, Program, Run, Vector, ends_run
from workbench.spec import BudgetSpec, LMSpec
from workbench.task import Task
from workbench.workflow import NodeKind, Signature, Workflow

#: The most calls and seconds of a rehearsal.
CALLS, SECONDS = 200, 60.0
#: Stands for a free text in an answer. A prompt that contains it has room for a real one.
ANSWER = "~answer~"
_ASKING: ContextVar[_Context] = ContextVar("_ASKING")


class Prompt(NamedTuple):
    """A prompt. answers: earlier answers in it. turns: the most calls of its node. weight: of its row, in a mean."""

    tokens: float
    answers: int = 0
    turns: int = 1
    weight: int = 1


class Rehearsal(LMPool):
    """The only model of a rehearsal. prompts: by node of the workflow. rows: begun so far. acts: a node has effects."""

    identity, concurrency, reads_images = "rehearsal", 8, True

    def __init__(self, workflow: Workflow):
        super().__init__()
        self.prompts = defaultdict[str, list[Prompt]](list)
        self.rows, self.weight, self.acts = 0, 1, any(node.tool_names() for node in workflow.walk())

    @property
    def context(self) -> type[Context]:
        return _Context

    def get(self, spec: LMSpec) -> Any:
        return self

    async def complete(self, request: Request) -> Response:
        asking, answers = _ASKING.get(), prompt_text(request).count(ANSWER)
        prompt = Prompt(estimate_prompt(request), answers, asking.turns, self.weight)
        self.prompts[asking.node.partition(".")[0]].append(prompt)
        return Response(asking.answer, "stop", 0, 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def run(self, task: Task, workflow: Workflow, rows: Mapping[int, int]) -> None:
        """Run rows, by their place when sorted by length, each with its weight."""
        data = task.dataset.val or task.dataset.train
        by_length = sorted(data, key=lambda row: sum(len(str(row[n])) for n in task.inputs if n in row))
        ceiling = BudgetSpec.model_validate({"calls": CALLS})
        async with asyncio.timeout(SECONDS), Run.in_memory("rehearsal", task.spec, pool=self, budget=ceiling) as run:
            program = Program(workflow, run.runtime)
            for quartile, self.weight in rows.items():
                self.rows += 1
                await program.run(by_length[quartile * (len(by_length) - 1) // 4], Draw(variation=self))


def rehearse(task: Task, workflow: Workflow, longest: bool = False) -> Rehearsal:
    """Run a workflow on five rows of val, the shortest and the longest among them, and record its prompts.

    Ends early with whatever would end a run. Without permission to run the file's code, nothing is run. longest: run
    the longest row alone.
    """
    made = Rehearsal(workflow)
    if workflow.code == "loaded":
        with suppress(Exception):
            run_in_loop(made.run(task, workflow, {4: 1} if longest else {4: 1, 0: 1, 2: 2, 1: 2, 3: 2}))
    return made


class _Context(Context):
    """Gives each node its least outputs as the answer, and runs the nodes inside it that it did not run itself."""

    answer, turns = ANSWER, 1

    async def _outputs_of(self, node: NodeKind, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        outputs, top = _least_outputs(node), self.program.nodes[self.node.partition(".")[0]]
        self.turns = node.max_calls or top.max_calls  # a call of a foreign program may repeat all before it
        lines = (f"{name}: {v if isinstance(v, str) else json.dumps(v)}" for name, v in outputs.items())
        self.answer = "\n".join(lines) or ANSWER
        try:
            outputs = await super()._outputs_of(node, inputs)
        except (Exception, SystemExit) as error:
            if ends_run(error, self.program.runtime.ledger):
                raise
        for name, child in node.children().items():
            if all(span.node != f"{self.node}.{name}" for span in self.trace.spans):
                with suppress(NodeError):
                    await self.run_child(child, name, {n: inputs.get(n, ANSWER) for n in child.inputs})
        return outputs

    async def _ask(self, begun: Begun, *given: Any) -> Response:
        _ASKING.set(self)
        return await super()._ask(begun, *given)

    async def embed(self, texts: Sequence[str], lm: LMSpec, role: str = "task") -> list[Vector]:
        return [(1.0,)] * len(texts)

    async def effect(self, *given: Any, **named: Any) -> Any:
        cast(Rehearsal, self.program.runtime.pool).acts = True
        raise NodeError("environment", "a rehearsal has no effects")

    shared = shared_effect = effect


def _least_outputs(node: NodeKind) -> dict[str, Any]:
    signature = getattr(node, "signature", None)
    fields = {f.name: f for f in signature.outputs} if isinstance(signature, Signature) else {}
    closed = {name: (*field.allowed, 1)[0] for name, field in fields.items() if field.closed}
    lists = {name: [ANSWER] for name, field in fields.items() if str(field.type).startswith("list")}
    return {**dict.fromkeys(node.outputs, ANSWER), **lists, **closed}
