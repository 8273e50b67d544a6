"""Checks of a node kind's contract. Each runs a node on one row and raises AssertionError with a remedy.

One file: one suite of checks.
"""

from __future__ import annotations

import asyncio
import copy
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.type_guards import walk
from workbench.errors import BudgetSpent, LMError, NodeError, SpecError, WorkbenchError
from workbench.lm import LMPool, Request, Response
from workbench.runtime import Context, Program, Run
from workbench.spec import PREFIX, USER_MODULES, BudgetSpec, Code, lm_spec, parse_address
from workbench.store import Store, add_run
from workbench.workflow import NodeKind, Trace, Workflow
from workbench_testing.case import assert_documented, checks_in, run_all, seeded, through_doors

Say = Callable[[Request], "str | Response"]


@dataclass(frozen=True)
class NodeCase:
    """A node and one row to run it on.

    Args:
        kind: the class.
        settings: of the node, as in a workflow file, but without its name: {"signature": "text -> label"}.
        row: a value for each field that the node reads.
        say: the model's answer to a request; most nodes are content with the default.
        folder: of the workflow file, where the settings name others.
    """

    kind: type[NodeKind]
    settings: Mapping[str, Any]
    row: Mapping[str, Any]
    say: Say = field(default=lambda request: "yes")
    folder: Path = field(default_factory=Path.cwd)

    def make(self, code: Code = "loaded") -> NodeKind:
        """A new node of these settings. code: the state of the user code that they name."""
        return self.kind.make("checked", self.kind.Config.model_validate(dict(self.settings)), self.folder, code)


def check_node(kind: type[NodeKind], settings: Mapping[str, Any], row: Mapping[str, Any], **more: Any) -> None:
    """Run all checks on a node; the arguments are those of NodeCase. Raises AssertionError that says what to fix."""
    run_all(node_checks(), NodeCase(kind, settings, row, **more))


def node_checks() -> list[Callable[[NodeCase], None]]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


class _Watched(Mapping[str, Any]):
    """The inputs of a node; records the names that it asks for."""

    def __init__(self, values: Mapping[str, Any]):
        self.values_by_name, self.asked = values, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return self.values_by_name[name]

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return name in self.values_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


class _Pool(LMPool):
    """A model that answers as the case says. It counts requests."""

    identity, concurrency, reads_images = "simulated", 8, True

    def __init__(self, say: Say):
        super().__init__()
        self.say, self.requests = say, 0

    def get(self, spec: Any) -> Any:
        return self

    async def complete(self, request: Request) -> Response:
        self.requests += 1
        said = self.say(request)
        return said if isinstance(said, Response) else Response(said, "stop", 5, 1, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


class _Alone(Program):
    """A program without nodes of its own: the checked one need not be registered."""

    def __init__(self, workflow: Workflow, runtime: Any):
        self.workflow, self.runtime = workflow, runtime


@dataclass
class _Outcome:
    outputs: Any
    error: BaseException | None
    requests: int
    inputs: _Watched


def _run(
    case: NodeCase,
    node: NodeKind | None = None,
    *,
    say: Say | None = None,
    budget: dict[str, Any] | None = None,
    times: int = 1,
) -> _Outcome:
    """The last of `times` runs with one journal, by the real runtime."""
    pool = _Pool(say or case.say)

    async def run_once(store: Store, run: int) -> _Outcome:
        made, given = node or case.make(), _Watched(copy.deepcopy(case.row))
        spec = lm_spec({"model": "openai/simulated", "attempts": 1})
        ceiling = BudgetSpec.model_validate(budget or {"calls": 1000})
        outputs = error = None
        before = pool.requests
        roles = dict.fromkeys(made.roles, spec)
        async with Run(store, run, "checked", spec, roles=roles, budget=ceiling, pool=pool) as opened:
            program = _Alone(Workflow({"nodes": {}}, case.folder), opened.runtime)
            try:
                outputs = await Context(program, "row", Trace("row"), made.name).run_node(made, given)
            except (WorkbenchError, ValueError, TypeError) as raised:
                error = raised
        return _Outcome(outputs, error, pool.requests - before, given)

    async def main(database: Path) -> _Outcome:
        with Store(database) as store:
            run = add_run(store, run="checked", name="checked", status="run", spec="", options="{}")
            found = [await run_once(store, run) for _ in range(times)]
            return found[-1]

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(main(Path(folder) / "run.db"))


def _name(case: NodeCase) -> str:
    return case.kind.__name__


def _outputs(case: NodeCase, **more: Any) -> Any:
    outcome = _run(case, **more)
    assert outcome.error is None, (
        f"{_name(case)} failed on the row of the case: {type(outcome.error).__name__}: {outcome.error}. Correct the "
        "node, or give the case a row and answers (`say`) that it can use."
    )
    return outcome.outputs


def check_node_is_documented(case: NodeCase) -> None:
    """The class has a docstring, each setting a description; `primary` and `learnable` name settings."""
    kind = case.kind
    assert isinstance(kind, type) and issubclass(kind, NodeKind), f"{kind} must be a subclass of workbench.NodeKind"
    assert kind.__doc__ != NodeKind.__doc__, f"{_name(case)} needs a docstring of its own"
    assert_documented(kind, _name(case))
    fields = kind.Config.model_fields
    for name, info in fields.items():
        assert info.description, f"the setting '{name}' needs a description: Field(..., description='...')"
    names = {info.alias or name for name, info in fields.items()} | set(fields)
    assert kind.primary in names, (
        f"{_name(case)}.primary is '{kind.primary}', which is not a setting: it is the one that `kind: VALUE` fills"
    )
    for name in kind.learnable:
        assert name.split(".")[0] in {*names, *kind.groups}, f"learnable names '{name}', which is not a setting"


def check_node_passes_doors(case: NodeCase) -> None:
    """Nothing acts for a file that nobody was asked about."""
    with through_doors(_name(case)):
        _run(case)


def check_node_declares_its_fields(case: NodeCase) -> None:
    """`inputs` and `outputs` are names, the same at each call, and the row of the case has a value for each input."""
    node = case.make()
    for what in ("inputs", "outputs"):
        names = getattr(node, what)
        assert isinstance(names, tuple) and all(isinstance(name, str) for name in names), (
            f"{_name(case)}.{what} must be a tuple of names, not {names!r}"
        )
        assert names == getattr(case.make(), what), f"{_name(case)}.{what} differs between two nodes of equal settings"
        assert len(set(names)) == len(names), f"{_name(case)}.{what} names a field twice: {names}"
    missing = [name for name in node.inputs if name not in case.row]
    assert not missing, f"the row of the case lacks the input '{missing[0] if missing else ''}'"


def check_node_runs_no_code_to_be_drawn(case: NodeCase) -> None:
    """Made without its code, as for a look at a stored run or a check of a file, it runs none of the Python that its
    settings name."""
    texts = [part for part in walk(case.settings) if isinstance(part, str) and part.startswith(PREFIX)]
    named = {parse_address(text).module for text in texts} - sys.modules.keys()
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if name.startswith(USER_MODULES)}
    ran = list[str]()
    try:
        for code in ("unread", "outlined"):
            with suppress(SpecError):  # refused, as it asked for code while it was made
                node = case.make(code)
                _ = node.inputs, node.outputs, node.max_calls, [*node.walk()]
                continue
            ran.append(code)
        ran += [name for name in sys.modules if name.startswith(USER_MODULES) or name in named]
    finally:
        sys.modules.update(before)
    assert not ran, (
        f"{_name(case)} loads the Python of its settings when it is only drawn: give `self.code` to what reads it, as "
        "read_user_code(address, base, self.code)"
    )


def check_node_writes_what_it_declares(case: NodeCase) -> None:
    """`run` returns a value for each name in `outputs`, and no other."""
    outputs, declared = _outputs(case), case.make().outputs
    missing = [name for name in declared if name not in outputs]
    assert not missing, f"{_name(case)} declares the output '{missing[0]}' and does not write it"
    further = [name for name in outputs if name not in declared]
    assert not further, (
        f"{_name(case)} writes '{further[0]}', which `outputs` does not name: a later node of a workflow cannot be "
        "checked against it"
    )


def check_node_reads_what_it_declares(case: NodeCase) -> None:
    """`run` asks for no field that `inputs` does not name: the runtime passes it none."""
    outcome, declared = _run(case), case.make().inputs
    further = sorted(name for name in outcome.inputs.asked if name not in declared)
    assert not further, f"{_name(case)} reads '{further[0]}', which `inputs` does not name, so it is never given it"


def check_node_leaves_its_inputs_unchanged(case: NodeCase) -> None:
    """Rows are shared by all candidates: a node changes none of the values that it reads."""
    assert _run(case).inputs.values_by_name == case.row, (
        f"{_name(case)} changed a value of its inputs: copy it before you change it"
    )


def check_node_replays(case: NodeCase) -> None:
    """Run again with the journal of the first time, it sends nothing and writes the same."""
    first, again = _outputs(case), _run(case, times=2)
    assert again.requests == 0, (
        f"{_name(case)} sent {again.requests} new requests when it was replayed: a request may depend on settings, "
        "inputs and earlier answers alone, not on time or randomness"
    )
    assert again.outputs == first, (
        f"{_name(case)} wrote {again.outputs!r} when it was replayed, and {dict(first)!r} before: what has an effect "
        "or differs goes through ctx.effect"
    )


def check_node_needs_no_global_random(case: NodeCase) -> None:
    """It writes the same whatever the global random states are."""
    found = []
    for seed in (1, 2, 3):
        with seeded(seed):
            found.append(_outputs(case))
    assert found[0] == found[1] == found[2], (
        f"{_name(case)} depends on Python's or numpy's global random state: seed a random.Random from the inputs, or "
        "draw with ctx.complete(..., replica=...)"
    )


def check_node_keeps_no_state(case: NodeCase) -> None:
    """A node runs many rows at once: a second run of it writes what the first of a new one does."""
    node = case.make()
    first, second = _outputs(case, node=node), _outputs(case, node=node)
    assert first == second == _outputs(case), (
        f"{_name(case)} writes something else at its second run: `run` must keep no state in self"
    )


def check_node_keeps_to_its_calls(case: NodeCase) -> None:
    """A run sends no more requests than `max_calls` says: budgets and estimates rest on it."""
    sent, most = _run(case).requests, case.make().max_calls
    assert isinstance(most, int) and most >= 0, f"{_name(case)}.max_calls must be a number from 0, not {most!r}"
    assert sent <= most, f"{_name(case)} sent {sent} requests, but max_calls says {most}"


def check_node_survives_failing_calls(case: NodeCase) -> None:
    """Where a call fails, or the answer is empty, refused or not what was asked for, it gives outputs or a failure of a
    kind, never an error of its own code."""

    def broken(request: Request) -> Response:
        raise LMError("server", "simulated server error")

    answers: dict[str, Say] = {
        "a call fails": broken,
        "the answer is empty": lambda request: Response("", "empty", 5, 0, 0.0),
        "the model refuses": lambda request: Response("", "refusal", 5, 1, 0.0),
        "the answer is cut": lambda request: Response("ye", "length", 5, 1, 0.0),
        "the answer is something else": lambda request: "}{ \x00 ```",
    }
    for when, say in answers.items():
        error = _run(case, say=say).error
        assert error is None or (isinstance(error, NodeError) and error.kind != "code"), (
            f"{_name(case)} raised {type(error).__name__} when {when}: {error}. Raise NodeError(kind, message) for an "
            "answer that cannot be used"
        )


def check_node_lets_the_budget_end_a_run(case: NodeCase) -> None:
    """At the ceiling, BudgetSpent passes through it."""
    if _run(case).requests == 0:
        return
    error = _run(case, budget={"tokens": 1}).error
    assert isinstance(error, BudgetSpent), (
        f"{_name(case)} caught BudgetSpent: catch LMError or NodeError, never WorkbenchError or Exception"
    )
