"""Learns functions as parameters.

Sources: AgentOptimizer (Zhang et al., arXiv 2402.11359, section 3: add, revise, remove, roll-back, early stop) for the
functions of `agent` nodes; sampling n programs and keeping the best on train (arXiv 2503.18809) for `code` nodes.

Departures, each of which repairs a fault of the original implementation:

- A step's functions are compared with the best ones on the same examples, and must then win on val, so that a lucky
  batch does not decide.
- TERMINATE ends the step.
- The functions and histories in a prompt are limited to a number of characters.
- Every function must pass its own example in the sandbox before it costs a call of the task.
- Every other program is a repair of the best one so far, whose mistakes the proposer sees: a small model repeats the
  same mistake in each of its samples.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.errors import SpecError
from workbench.workflow import learnable_addresses, node_at
from workbench_forge import prompts
from workbench_forge.actions import (
    Action,
    Function,
    Refused,
    apply_action,
    check_example,
    check_source,
    extract_python,
    find_solved_inputs,
    read_action,
    without_handlers,
)
from workbench_kit.credit import Blame, blame_nodes, node_of
from workbench_kit.prompting import Batches, Proposer

T = TypeVar("T")
#: A program: score on train, negative number, workflow with the program, and arguments of a row that it solved.
_Scored = tuple[float, int, Workflow, dict[str, Any] | None]

#: Maximum number of an agent's functions, and of their edits in a round.
MAX_FUNCTIONS, EDITS = 8, 3
#: Maximum number of proposer answers for one edit or program, until one is usable.
ATTEMPTS = 3
#: Number of programs, the best on train, that are evaluated on val.
FINALISTS = 2
#: Maximum number of characters of functions, failed lists and examples in a prompt, and again of unusable answers.
CHARS = 6000


class Forge(Optimizer):
    """Lets a language model (role `proposer`) write functions for agents, and programs for `code` nodes.

    Its code runs only in a sandbox, and is saved in the result file as source.
    """

    fills = ("functions",)
    kind: Literal["auto", "functions", "heuristic"] = Field(
        "auto", description="functions: of agent nodes; heuristic: programs of code nodes; auto: both, if present"
    )
    steps: int = Field(6, ge=1, le=100, description="for agents: rounds of edits")
    batch: int = Field(12, ge=1, le=256, description="for agents: training examples that judge a round")
    patience: int = Field(3, ge=1, le=100, description="for agents: rounds without success before it ends")
    samples: int = Field(8, ge=1, le=1000, description="for code nodes: programs to sample")
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer")
    guided: bool = Field(
        False, description="spend edits on the nodes that decide failures, found by repeating failed rows"
    )

    def reads_search(self) -> bool:
        return False

    async def ready(self, study: Study) -> None:
        if learnable_addresses(study.workflow, "functions") or learnable_addresses(study.workflow, "code"):
            await study.open_sandbox()

    def missing(self, workflow: Workflow) -> str | None:
        if any(self._written(workflow)):
            return None
        wanted = {"functions": "an agent or external node", "heuristic": "a code node"}
        return wanted.get(self.kind, "an agent, external or code node")

    def _written(self, workflow: Workflow) -> tuple[dict[str, str], dict[str, str]]:
        """Return the addresses of agents' functions and of programs, each with its node's name."""
        return (
            learnable_addresses(workflow, "functions") if self.kind != "heuristic" else {},
            learnable_addresses(workflow, "code") if self.kind != "functions" else {},
        )

    async def optimize(self, study: Study) -> Workflow:
        agents, programs = self._written(study.workflow)
        if self.guided and len(agents) + len(programs) > 1 and study.train:
            blame = await blame_nodes(study, study.best, study.train[: self.batch])
            agents, programs = _most_blamed(blame, agents), _most_blamed(blame, programs)
        for address in agents:
            await self._forge_functions(study, address)
        for address in programs:
            await self._sample_programs(study, address)
        return study.best

    # Functions of agents

    async def _forge_functions(self, study: Study, address: str) -> None:
        failures: list[prompts.Failure] = []
        batches = Batches(study, self.batch)
        misses = 0
        for step in range(self.steps):
            if misses >= self.patience or not study.train:
                return
            batch, best = batches.draw(), study.best
            if not study.affords(best, [*batch, *batch]):
                return
            before = await study.evaluate(best, batch, traces=True)
            functions = await self._edited(study, address, best, before, failures, step)
            if functions == best.get(address, []):
                misses += 1
                continue
            patch = Patch({address: functions}, note=f"forged: {', '.join(f['name'] for f in functions)}")
            try:
                candidate = best.patched(patch)
            except SpecError:  # the agent refuses them
                misses += 1
                continue
            after = await study.evaluate(candidate, batch)
            if after.score > before.score and study.affords(candidate):
                await study.evaluate(candidate, race=True)
            if study.best.hash == candidate.hash:
                failures, misses = [], 0
            else:  # roll-back: the next round starts from the best functions again
                failures.append(prompts.Failure(functions, after.score, before.score))
                failures = sorted(failures, key=lambda f: f.score - f.best_score)[-5:]
                misses += 1

    async def _edited(
        self,
        study: Study,
        address: str,
        best: Workflow,
        before: Evaluation,
        failures: Sequence[prompts.Failure],
        step: int,
    ) -> list[Function]:
        """Return the best functions after at most EDITS edits."""
        given: list[Function] = best.get(address, [])
        functions = list(given)
        tools = set(getattr(node_at(best, address), "tools", ())) - {f["name"] for f in functions}
        system = prompts.functions_system(MAX_FUNCTIONS)
        for slot in range(EDITS):
            task = prompts.functions_task(functions, given, before, failures, slot, EDITS, CHARS)
            messages = [{"role": "system", "content": system}, {"role": "user", "content": task}]
            action = await self._action(study, messages, functions, tools, replica=step * EDITS + slot)
            if action is None:
                continue
            if action.kind == "terminate":
                break
            functions = apply_action(action, functions)
        return functions

    async def _action(
        self,
        study: Study,
        messages: list[dict[str, str]],
        functions: Sequence[Function],
        tools: Collection[str],
        replica: int,
    ) -> Action | None:
        """Return a usable edit; None after ATTEMPTS unusable answers."""

        async def read(text: str) -> Action:
            action = read_action(text, functions, MAX_FUNCTIONS, tools)
            if action.kind in ("add", "revise"):
                await check_example(study, action)
            return action

        return await self._usable(study, messages, read, replica)

    async def _usable(
        self, study: Study, messages: list[dict[str, str]], read: Callable[[str], Awaitable[T]], replica: int
    ) -> T | None:
        """Return the result of `read` on an answer. If it raises Refused, send the reason to the proposer and ask
        again; None after ATTEMPTS answers."""
        said: list[tuple[str, str]] = []
        for _ in range(ATTEMPTS):
            asked = [*messages, *prompts.refused(said, ATTEMPTS, CHARS)]
            text = await Proposer(study, self.temperature, max_tokens=1500).ask(asked, replica)
            if text is None:
                return None
            try:
                return await read(text)
            except Refused as error:
                said.append((text, str(error)))
        return None

    # Programs of code nodes

    async def _sample_programs(self, study: Study, address: str) -> None:
        node: Any = node_at(study.workflow, address)
        here = address.rpartition(".")[0]
        own_test = f"{here}.example"
        scored = list[_Scored]()
        seen: set[str] = set()
        best: Evaluation | None = None
        for number in range(self.samples):
            repaired = best if number % 2 and best is not None and best.score < 1 else None
            messages = await self._asked(study, address, repaired)
            source = await self._program(study, messages, node.function, number)
            if source is None or source in seen:
                continue
            seen.add(source)
            unset = (own_test,) if study.best.get(own_test, None) is not None else ()
            # A node without `function` calls the last function in its source, which may be a helper here.
            program = Patch({address: source, f"{here}.function": node.function}, unset, note=f"program {number}")
            try:
                candidate = study.best.patched(program)
            except SpecError:
                continue  # it can be parsed, but is not a valid node
            if not study.affords(candidate, study.train):
                break
            found = await study.evaluate(candidate, study.train, traces=True)
            scored.append((found.score, -number, candidate, find_solved_inputs(found, address)))
            best = found if best is None or found.score > best.score else best
            if found.score == 1:  # a program that is right on train alone may be a list of its rows
                tested = await _with_test(study, address, node.function, scored[-1])
                if study.affords(tested) and (await study.evaluate(tested)).score == 1:
                    return
        for one in sorted(scored, key=lambda s: s[:2], reverse=True)[:FINALISTS]:
            if not study.affords(one[2]):
                return
            await study.evaluate(await _with_test(study, address, node.function, one), race=True)

    async def _asked(self, study: Study, address: str, repaired: Evaluation | None) -> list[dict[str, str]]:
        """Return a prompt for a program, or for a repair of one with these results on train."""
        node: Any = node_at(study.best, address)
        task = prompts.program(node, study.train, study.targets, CHARS)
        mistakes = prompts.find_mistakes(address, node, repaired, study.targets) if repaired is not None else []
        if repaired is None or not mistakes:
            return task
        source = repaired.workflow.get(address)
        return prompts.repair(task, source, [await _explain(study, source, node, one) for one in mistakes], CHARS)

    async def _program(self, study: Study, messages: list[dict[str, str]], function: str, replica: int) -> str | None:
        async def read(text: str) -> str:
            source = extract_python(text)
            check_source(source, function)
            return source

        return await self._usable(study, messages, read, replica)


async def _with_test(study: Study, address: str, function: str, scored: _Scored) -> Workflow:
    """Add a row of train that a program solved to it, as its own test."""
    _, number, candidate, arguments = scored
    if arguments is None:
        return candidate
    given = await study.sandboxed(candidate.get(address), function, arguments)
    if given["kind"] != "ok":
        return candidate
    test = {f"{address.rpartition('.')[0]}.example": {"arguments": arguments, "result": given["value"]}}
    return candidate.patched(Patch(test, note=f"program {-number}, with its test"))


async def _explain(study: Study, source: str, node: Any, mistake: prompts.Mistake) -> str:
    """Append to a wrong result the error that the program catches there, which would otherwise stay hidden."""
    if mistake.given is None or (bare := without_handlers(source)) is None:
        return mistake.text
    found = await study.sandboxed(bare, node.function, mistake.given)
    return mistake.text if found["kind"] == "ok" else f"{mistake.text}; it catches {found['message']} there"


def _most_blamed(blame: Blame, addresses: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of nodes that decide failures, the most blamed first; the others are tried after them."""
    return dict(sorted(addresses.items(), key=lambda item: -blame.decisive.get(node_of(item[0]), 0.0)))
