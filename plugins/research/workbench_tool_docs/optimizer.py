"""Rewrites what an agent sees of its tools: plainer descriptions, and wrappers that show less of their results.

Sources: ALIGN (arXiv 2505.21055): a model writes wrappers around an environment's interface from failed trajectories,
and they are checked before they are kept. AgentOccam (arXiv 2410.13825): simpler actions and observations alone are
worth much. Departures: a wrapper runs in the sandbox and sees only results, never the label; it must work on every
result seen before it costs a call of the task; and a rewrite that does not help on val is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.base.text import short
from workbench.errors import SpecError
from workbench.workflow import learnable_addresses, node_at, setting_at
from workbench_kit.acting import Tool, describe_tool
from workbench_kit.prompting import Batches, Proposer, describe, room_for, show_results

_TASK = """\
A language model uses a tool, and does not use it well. You may write two things, both or one of them:
- "description": what the model is told of the tool, in one line: what it does, when to use it, what to pass.
- "wrapper": Python that defines wrap(result, arguments) and returns what the model is to see in place of the tool's result:
  what matters, short and clear. A failed call has the result {"error": text}: say what to do instead. Only the standard library; no files, no network.
Answer with one JSON object and nothing else: {"description": text or null, "wrapper": text or null}"""  # noqa: E501


#: Answers of the proposer for one proposal, if the first cannot be used.
ATTEMPTS = 2
#: Characters of results and examples in a prompt.
CHARS = 4000


def _places(workflow: Workflow) -> list[str]:
    """The addresses of agents."""
    return [address.rpartition(".")[0] for address in learnable_addresses(workflow, "wrappers")]


class ToolDocs(Optimizer):
    """Has a language model (role `proposer`) rewrite tool descriptions, and wrappers of tool results."""

    rounds: int = Field(2, ge=1, le=100, description="proposals for each tool")
    batch: int = Field(
        12, ge=1, le=256, description="training rows on which a proposal is compared with the current version"
    )
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer")

    def reads_search(self) -> bool:
        return False

    async def ready(self, study: Study) -> None:
        if learnable_addresses(study.workflow, "wrappers"):
            await study.open_sandbox()

    def missing(self, workflow: Workflow) -> str | None:
        return None if any(self._tools(workflow, place) for place in _places(workflow)) else "an agent with tools"

    async def optimize(self, study: Study) -> Workflow:
        places = _places(study.workflow)
        ask, batches = Proposer(study, self.temperature, max_tokens=800), Batches(study, self.batch)
        for number in range(self.rounds):
            for index, place in enumerate(places):
                for tool in list(self._tools(study.best, place).values()):
                    if not study.train or not await self._round(study, ask, batches, place, tool, number * 100 + index):
                        return study.best
        return study.best

    def _tools(self, workflow: Workflow, place: str) -> dict[str, Tool]:
        return dict(getattr(node_at(workflow, f"{place}.tools"), "tools", {}))

    async def _round(self, study: Study, ask: Proposer, batches: Batches, place: str, tool: Tool, replica: int) -> bool:
        """A proposal for one tool; whether the budget allows another."""
        batch, best = batches.draw(), study.best
        if not study.affords(best, [*batch, *batch]) or not room_for(study, 2 * len(batch)):
            return False
        before = await study.evaluate(best, batch, traces=True)
        seen = self._seen(before, place, tool.name)
        candidate = await self._proposed(study, ask, best, place, tool, seen, before, replica)
        if candidate is None or candidate == best:
            return True
        after = await study.evaluate(candidate, batch)
        if after.score > before.score and study.affords(candidate):
            await study.evaluate(candidate, race=True)
        return True

    def _seen(self, evaluation: Evaluation, place: str, tool: str) -> list[dict[str, Any]]:
        """Calls of a tool in traces: {arguments, result, shown}, each once: what the tool gave, {"error": text} for a
        failure, and what the model saw of it. Results too long for a trace are left out."""
        path, found = place.removeprefix("nodes."), dict[str, dict[str, Any]]()
        for result in evaluation.results:
            for span in result.trace.spans if result.trace else ():
                for call in span.notes.get("tools", []) if span.node == path else ():
                    if call["name"] == tool and "value" in call:
                        key = short([call["arguments"], call["value"]], 10_000)
                        found[key] = {"arguments": call["arguments"], "result": call["value"], "shown": call["result"]}
        return list(found.values())

    async def _proposed(
        self,
        study: Study,
        ask: Proposer,
        best: Workflow,
        place: str,
        tool: Tool,
        seen: Sequence[dict[str, Any]],
        before: Evaluation,
        replica: int,
    ) -> Workflow | None:
        """A candidate whose wrapper works on all results seen, or None."""
        messages = [
            {"role": "system", "content": _TASK},
            {"role": "user", "content": self._request(best, place, tool, seen, before)},
        ]
        for attempt in range(ATTEMPTS):
            text = await ask.ask(messages, replica=replica * 10 + attempt)
            if text is None:
                return None
            try:
                values = self._read(text)
                if source := values.get("wrapper"):
                    await self._check(study, source, seen)
                changed = {"descriptions": "description", "wrappers": "wrapper"}
                patch = {
                    f"{place}.{key}": {**(setting_at(best, f"{place}.{key}") or {}), tool.name: values[name]}
                    for key, name in changed.items()
                    if values.get(name)
                }
                return best.patched(Patch(patch, note=f"{tool.name}: {' and '.join(k for k in values if values[k])}"))
            except (SpecError, ValueError) as error:
                messages += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": f"{error}. Try again."},
                ]
        return None

    def _read(self, text: str) -> dict[str, str]:
        """Parse the proposer's answer. Raises ValueError, with a message for the proposer."""
        start = text.find("{")
        try:
            body = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else None
        except json.JSONDecodeError as error:
            raise ValueError(f"that is not JSON: {error.msg}") from None
        if not isinstance(body, dict):
            raise ValueError("there is no JSON object in the answer")
        allowed = ("description", "wrapper")
        found = {k: str(body[k]).strip() for k in allowed if body.get(k) and str(body[k]).strip()}
        if not found:
            raise ValueError(f"write {' or '.join(allowed)}")
        if "description" in found:
            found["description"] = " ".join(found["description"].split())[:1000]
        return found

    async def _check(self, study: Study, source: str, seen: Sequence[dict[str, Any]]) -> None:
        """Raises ValueError where the wrapper fails on a result that was seen."""
        failures = [call for call in seen if isinstance(call["result"], dict) and "error" in call["result"]]
        for call in [*seen, *([] if failures else [{"arguments": {}, "result": {"error": "it failed"}}])]:
            found = await study.sandboxed(source, "wrap", {"result": call["result"], "arguments": call["arguments"]})
            if found["kind"] != "ok":
                raise ValueError(f"on the result {short(call['result'], 200)} the wrapper fails: {found['message']}")
            if found["value"] in (None, ""):
                raise ValueError(f"on the result {short(call['result'], 200)} the wrapper gives nothing")

    def _request(
        self, best: Workflow, place: str, tool: Tool, seen: Sequence[dict[str, Any]], before: Evaluation
    ) -> str:
        wrapper = (setting_at(best, f"{place}.wrappers") or {}).get(tool.name)
        parts = [describe(node_at(best, f"{place}.tools")), f"The tool as the model sees it:\n{describe_tool(tool)}"]
        if wrapper:
            parts.append(f"Its wrapper now:\n{wrapper}")
        lines = [
            f"{short(c['arguments'], 200)} gave {short(c['result'], 500)}, seen as {short(c['shown'], 200)}"
            for c in seen
        ]
        parts.append("Calls and what the model saw:\n" + ("\n".join(lines)[: CHARS // 2] or "it was never called"))
        parts.append(f"How tasks ended:\n{show_results(before.results, CHARS // 2)}")
        return "\n\n".join(parts)
