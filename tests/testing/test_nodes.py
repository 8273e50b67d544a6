"""`check_node`: each check finds the fault that it is about, and no other check does (friction 30)."""

from __future__ import annotations

import random
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from tests.helpers.conformance import broken

from workbench.errors import LMError, NodeError, SpecError, WorkbenchError
from workbench.spec import load_user_code
from workbench.workflow import NodeConfig, NodeKind
from workbench_testing import NodeCase, check_node, node_checks


class AskConfig(NodeConfig):
    """Settings."""

    ask: str = Field(description="the field to ask about")


class Ask(NodeKind):
    """Asks the model about a field, and writes `said`."""

    Config, primary = AskConfig, "ask"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.config.ask,)

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("said",)

    @property
    def max_calls(self) -> int:
        return 1

    def prompt(self, inputs: Any) -> list[dict[str, Any]]:
        return [{"role": "user", "content": str(inputs[self.config.ask])}]

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        response = await ctx.complete(self.prompt(inputs))
        if response.finish != "stop":
            raise NodeError("empty", "no answer")
        return {"said": response.text}


class Bare(Ask):
    __doc__ = None


class Undescribed(Ask):
    """Its setting has no description."""

    class Config(NodeConfig):  # type: ignore[assignment]
        ask: str


class Starts(Ask):
    """Starts a program of its own accord."""

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        subprocess.run(["true"])
        return await super().run(inputs, ctx)


class Connects(Ask):
    """Asks a server."""

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        with socket.socket() as to, suppress(OSError):
            to.connect(("127.0.0.1", 1))
        return await super().run(inputs, ctx)


class Nameless(Ask):
    """Its primary is no setting."""

    primary = "asks"


class Misdeclared(Ask):
    """Declares a list of inputs."""

    inputs = ["text"]  # type: ignore[assignment]


class WritesMore(Ask):
    """Writes a field that it does not declare."""

    async def run(self, inputs, ctx):
        return {**await super().run(inputs, ctx), "more": 1}


class WritesLess(Ask):
    """Declares a field that it does not write."""

    @property
    def outputs(self):
        return ("said", "more")


class ReadsMore(Ask):
    """Looks for a field that it does not declare."""

    async def run(self, inputs, ctx):
        inputs.get("label")
        return await super().run(inputs, ctx)


class ChangesItsInputs(Ask):
    """Appends to a list that it reads."""

    async def run(self, inputs, ctx):
        found = await super().run(inputs, ctx)
        if len(inputs["text"]) < 3:
            inputs["text"].append("more")
        return found


class Random(Ask):
    """Adds a random number to its output."""

    async def run(self, inputs, ctx):
        return {"said": random.random() if await super().run(inputs, ctx) else None}


class Counting(Ask):
    """Its prompts differ between processes that replay: they count all nodes ever run."""

    runs = 0

    def prompt(self, inputs):
        Counting.runs += 1
        return [{"role": "user", "content": f"{inputs[self.config.ask]} {Counting.runs}"}]


class Stateful(Ask):
    """Remembers in self."""

    async def run(self, inputs, ctx):
        self.seen = getattr(self, "seen", 0) + 1
        return {"said": f"{await super().run(inputs, ctx)} {self.seen}"}


class AsksMore(Ask):
    """Sends two requests, and declares one."""

    async def run(self, inputs, ctx):
        await ctx.complete([{"role": "user", "content": "another question"}])
        return await super().run(inputs, ctx)


class Trusting(Ask):
    """Believes that each answer has a first word."""

    async def run(self, inputs, ctx):
        response = await ctx.complete(self.prompt(inputs))
        return {"said": response.text.split()[0]}


class CatchesAll(Ask):
    """Catches what ends a run."""

    async def run(self, inputs, ctx):
        try:
            return await super().run(inputs, ctx)
        except WorkbenchError as error:
            raise NodeError("empty", str(error)) from error


class Loads(Ask):
    """Loads Python whoever makes it."""

    def __init__(self, name, config, base):
        super().__init__(name, config, base)
        (base / "tools.py").write_text("def look(text): return text")
        load_user_code("python:tools.py:look", base)


class LoadsLater(Ask):
    """Loads Python where somebody asks for its fields."""

    @property
    def inputs(self):
        (self.base / "later.py").write_text("def look(text): return text")
        load_user_code("python:later.py:look", self.base)
        return super().inputs


class CatchesItsOwn(Ask):
    """Catches what it may."""

    async def run(self, inputs, ctx):
        try:
            return await super().run(inputs, ctx)
        except (LMError, NodeError):
            return {"said": ""}


def case(kind: type[NodeKind], folder: Path) -> NodeCase:
    return NodeCase(kind, {"ask": "text"}, {"text": ["one", "two"]}, folder=folder)


def test_a_kind_that_loads_code_while_it_is_made_is_refused_where_code_is_looked_at(tmp_path: Path) -> None:
    for code in ("unread", "outlined"):
        with pytest.raises(SpecError, match="is not loaded to look at a workflow"):
            case(Loads, tmp_path).make(code)
    assert case(Loads, tmp_path).make("loaded").inputs == ("text",)


@pytest.mark.parametrize("kind", [Ask, CatchesItsOwn])
def test_a_node_that_keeps_its_contract_passes(kind: type[NodeKind], tmp_path: Path) -> None:
    check_node(kind, {"ask": "text"}, {"text": "one"}, folder=tmp_path)


def test_a_fault_is_found_by_its_check_alone(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (kind, check, said) in enumerate(
        [
            (Bare, "is_documented", "docstring"),
            (Undescribed, "is_documented", "'ask' needs a description"),
            (Starts, "passes_doors", "passes no door before it acts (subprocess.Popen: 'true'"),
            (Connects, "passes_doors", "passes no door before it acts (socket.connect"),
            (Nameless, "is_documented", "'asks', which is not a setting"),
            (Misdeclared, "declares_its_fields", "must be a tuple of names"),
            (Loads, "runs_no_code_to_be_drawn", "give `self.code` to what reads it"),
            (LoadsLater, "runs_no_code_to_be_drawn", "give `self.code` to what reads it"),
            (WritesMore, "writes_what_it_declares", "writes 'more'"),
            (WritesLess, "writes_what_it_declares", "declares the output 'more'"),
            (ReadsMore, "reads_what_it_declares", "reads 'label'"),
            (ChangesItsInputs, "leaves_its_inputs_unchanged", "copy it before"),
            (Counting, "replays", "new requests when it was replayed"),
            (Stateful, "keeps_no_state", "no state in self"),
            (AsksMore, "keeps_to_its_calls", "sent 2 requests, but max_calls says 1"),
            (Trusting, "survives_failing_calls", "the answer is empty"),
            (CatchesAll, "lets_the_budget_end_a_run", "never WorkbenchError"),
        ]
    ):
        with subtests.test(kind=kind):
            folder = tmp_path / str(number)
            folder.mkdir()
            found = broken(node_checks(), case(kind, folder))
            assert list(found) == [f"check_node_{check}"], found
            assert said in found[f"check_node_{check}"]


def test_a_node_that_uses_global_randomness_is_found(tmp_path: Path) -> None:
    """It differs at each run, so the checks of replay and state see it, too."""
    found = broken(node_checks(), case(Random, tmp_path))
    assert "random.Random" in found["check_node_needs_no_global_random"]
    assert set(found) == {f"check_node_{name}" for name in ("replays", "needs_no_global_random", "keeps_no_state")}
