"""Meta Agent Search: a model writes agents as code, learning from an archive of earlier ones.

Source: ADAS (Hu et al., arXiv 2408.08435, and its public code): seven seed agents; then each generation a new agent,
which is reviewed, repaired where it fails, and archived.

Departures:

- A few parents, drawn by score, are shown. The original shows the whole archive, which was measured to be worse than
  showing none (arXiv 2510.06711).
- A failed generation is repeated. The original's `n -= 1` inside a for loop has no effect.
- Code runs only in the sandbox; the original executes it in its own process.
- Only agents that ran on training rows without an error and scored enter the archive, and val decides at the end.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.errors import SpecError, suggest
from workbench.workflow import NodeKind, Signature
from workbench_adas.node import check_source
from workbench_adas.seeds import SEEDS
from workbench_kit.acting import describe_tool, know_tools
from workbench_kit.answers import find_code
from workbench_kit.prompting import Proposer, describe, finalists, room_for, show_results

_CONTRACT = """\
You design agents that answer a task by asking a language model, and write them as code:

def agent(task, inputs):
    answer = yield task
    return answer

`task` is the task as text, which ends where the answer is to follow; `inputs` is a dict of its fields. Each `yield` of a
text asks the model and gives its answer as text; it does not remember earlier prompts. Yield a list to ask several at
once and get a list; yield {"prompt": text, "temperature": 0.8} to sample.TOOLS Return the answer. At most CALLS prompts. Only
the standard library; no files, no network; the same inputs must lead to the same prompts."""  # noqa: E501
_TOOLS = """ Yield {"tool": NAME, "arguments": {...}} to call one of these
tools, or {"node": NAME, "inputs": {...}} for a step of the workflow, and get its result; a failure is a ToolError:
"""
_ANSWER = (
    "Answer with a line `name: ...`, a line `thought: ...` that says why this should do better, and the whole code "
    "in one ```python block."
)
_REVIEW = """\
Look at your agent again. Is it different from those above? Does it use what the model gave? Is there a bug: a name that is
not defined, an answer that is thrown away, a return without a value, more prompts than allowed? """  # noqa: E501


_PLAINEST = "def agent(task, inputs):\n    return (yield task)\n"


@dataclass(frozen=True)
class Entry:
    """A member of the archive: code that ran, and its evaluation on the training rows."""

    name: str
    thought: str
    source: str
    workflow: Workflow
    evaluation: Evaluation


#: Archived agents are drawn with p ~ exp(score / temperature). Ours: the paper shows the whole archive.
SELECTION_TEMPERATURE = 0.1
#: Archived agents that the proposer is shown, and characters of the results of the best of them.
SHOWN, CHARS = 3, 3000
#: Attempts to repair a failing agent, and generations that replace a lost one.
ATTEMPTS = 3


class Adas(Optimizer):
    """Has a language model (role `proposer`) write whole agents as code, for one node (Meta Agent Search)."""

    node: str = Field("", description="the node to rewrite; default: the first one with a signature")
    rounds: int = Field(10, ge=0, le=1000, description="agents to write after the seeds")
    rows: int = Field(24, ge=1, le=10_000, description="training rows on which each agent is scored")
    seeds: bool = Field(True, description="start with the seven agents of the paper")
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer")

    def reads_search(self) -> bool:
        return False

    async def ready(self, study: Study) -> None:
        self._target(study.workflow)
        await study.open_sandbox()

    async def optimize(self, study: Study) -> Workflow:
        name, node = self._target(study.workflow)
        rows = list(study.train)[: self.rows]
        if not rows:
            return study.best
        archive: list[Entry] = []
        for title, (thought, source) in SEEDS.items() if self.seeds else ():
            candidate = self._candidate(study.best, name, node, source, title)
            if not study.affords(candidate, rows) or not room_for(study, len(rows)):
                break
            archive.append(Entry(title, thought, source, candidate, await study.evaluate(candidate, rows)))
        ask = Proposer(study, temperature=self.temperature, max_tokens=1500)
        number = lost = 0
        while number < self.rounds and lost < ATTEMPTS * max(1, self.rounds):
            entry, paid = await self._generation(study, ask, name, node, archive, rows, number + lost)
            if not paid:
                break
            number, lost = (number + 1, lost) if entry else (number, lost + 1)
            archive += [entry] if entry else []
        return await self._finals(study, archive)

    def _target(self, workflow: Workflow) -> tuple[str, NodeKind]:
        """The node to rewrite. Raises SpecError if there is none, or none of the given name."""
        fit = {
            n: node
            for n, node in workflow.enabled_nodes.items()
            if isinstance(getattr(node, "signature", None), Signature)
        }
        if self.node and self.node not in fit:
            raise SpecError(
                f"adas: there is no node '{self.node}' with a signature",
                hint=suggest(self.node, list(fit)),
                path=("node",),
            )
        if not fit:
            raise SpecError("adas has nothing to write: no node has a signature", hint="It takes e.g. predict, agent.")
        name = self.node or next(iter(fit))
        return name, fit[name]

    def _candidate(self, workflow: Workflow, name: str, node: NodeKind, source: str, title: str) -> Workflow:
        """The workflow with the node as a program. Raises SpecError for invalid code."""
        check_source(source)
        old: dict[str, Any] = workflow.nodes[name]
        of_agent = ("tools", "env", "nodes", "calls") if old["kind"] in ("agent", "program") else ()
        kept = {k: old[k] for k in ("needs", "optional", "lm", *of_agent) if k in old}
        tree = {
            "kind": "program",
            "signature": old.get("signature") or old.get("states"),
            "source": source,
            "instructions": str(getattr(node.config, "instructions", "")),
            **kept,
        }
        return workflow.patched(Patch({f"nodes.{name}": tree}, note=f"agent: {title}"[:200]))

    async def _contract(self, workflow: Workflow, name: str, node: NodeKind) -> str:
        """The words for the proposer on agents, with the tools and nodes that they may use."""
        made: Any = self._candidate(workflow, name, node, _PLAINEST, "").enabled_nodes[name]
        tools = [*made.tools.values(), *(found.tool for found in made.node_tools.values())]
        await know_tools(tools)
        told = _TOOLS + "\n".join(map(describe_tool, tools)) + "\n" if tools else ""
        return _CONTRACT.replace("CALLS", str(made.config.calls)).replace("TOOLS", told)

    async def _generation(
        self, study: Study, ask: Proposer, name: str, node: NodeKind, archive: list[Entry], rows: Any, number: int
    ) -> tuple[Entry | None, bool]:
        """(a new member of the archive or None, whether the budget allows another generation)."""
        messages = [
            {"role": "system", "content": await self._contract(study.best, name, node)},
            {"role": "user", "content": self._request(study, node, archive)},
        ]
        text = await ask.ask(messages, replica=number * 100)
        if text is not None:
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": _REVIEW + _ANSWER}]
            text = await ask.ask(messages, replica=number * 100 + 1) or text
        for attempt in range(ATTEMPTS):
            if text is None:
                return None, True
            title, thought, source = read_agent(text)
            wrong = None
            try:
                candidate = self._candidate(study.best, name, node, source, title)
            except SpecError as error:
                wrong = f"{error.message}. {error.hint or ''}"
            else:
                if any(e.workflow == candidate for e in archive):
                    return None, True
                if not study.affords(candidate, rows) or not room_for(study, len(rows)):
                    return None, False
                trial = await study.evaluate(candidate, rows[:2])
                broken = [r for r in trial.results if r.failure in ("code", "steps", "empty")]
                if broken:
                    wrong = f"on a task it fails: {broken[0].message}"
                else:
                    found = await study.evaluate(candidate, rows)
                    if found.score > 0.01:
                        return Entry(title, thought, source, candidate, found), True
                    wrong = f"all its answers are wrong:\n{show_results(found.results, 600)}"
            if attempt < ATTEMPTS - 1:
                messages += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": f"{wrong}\nMend the agent. {_ANSWER}"},
                ]
                text = await ask.ask(messages, replica=number * 100 + 50 + attempt)
        return None, True

    def _request(self, study: Study, node: NodeKind, archive: list[Entry]) -> str:
        parts = [describe(node), f"Its instructions: {getattr(node.config, 'instructions', '') or 'none'}"]
        chosen = self._drawn(study, archive)
        if chosen:
            best = max(chosen, key=lambda e: e.evaluation.score)
            parts.append(
                "Agents so far, with their scores:\n\n"
                + "\n\n".join(
                    f"name: {e.name}\nscore: {e.evaluation.score:.2f}\nthought: {e.thought}\n```python\n{e.source}```"
                    for e in chosen
                )
            )
            parts.append(f"How the agent '{best.name}' did:\n{show_results(best.evaluation.results, CHARS)}")
        parts.append(f"Write a new agent that does better. {_ANSWER}")
        return "\n\n".join(parts)

    def _drawn(self, study: Study, archive: list[Entry]) -> list[Entry]:
        """Up to SHOWN distinct members, drawn without replacement with p ~ exp(score / temperature)."""
        left, chosen = list(archive), list[Entry]()
        while left and len(chosen) < SHOWN:
            top = max(e.evaluation.score for e in left)
            weights = [math.exp((e.evaluation.score - top) / SELECTION_TEMPERATURE) for e in left]
            entry = study.rng.choices(left, weights)[0]
            chosen.append(entry)
            left.remove(entry)
        return sorted(chosen, key=lambda e: e.evaluation.score)

    async def _finals(self, study: Study, archive: list[Entry]) -> Workflow:
        """Evaluate the best of the archive on val, best first."""
        order = sorted(archive, key=lambda e: -e.evaluation.score)
        for entry in order[: finalists(study)]:
            if not study.affords(entry.workflow):
                break
            await study.evaluate(entry.workflow, race=True)
        return study.best


def read_agent(text: str) -> tuple[str, str, str]:
    """(name, thought, source) of an answer. Without a code block the whole text counts as code."""
    name = re.search(r"(?im)^[^\w\n]*+name[^\w\n]*:\s*(.+)$", text)
    thought = re.search(r"(?im)^[^\w\n]*+thought[^\w\n]*:\s*(.+)$", text)
    source = max(find_code(text), key=len, default=text).strip() + "\n"
    return (
        name.group(1).strip()[:80] if name else "unnamed",
        thought.group(1).strip()[:600] if thought else "",
        source,
    )
