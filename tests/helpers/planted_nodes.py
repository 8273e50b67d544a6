"""Nodes whose behaviour a test plants, and programs that run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.journal import FakeLM, journal, run, turns
from tests.helpers.scripted import make_workflow
from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.runtime import Context, Program, Runtime
from workbench.spec import LMSpec, lm_spec
from workbench.task import Example
from workbench.workflow import ExampleRun, NodeConfig, NodeKind


class PlantedConfig(NodeConfig):
    does: str
    reads: list[str] = []
    writes: list[str] = []


#: The functions of planted nodes by name: (inputs, context) -> outputs.
DOES: dict[str, Callable[[Any, Context], Any]] = {}


class Planted(NodeKind):
    Config = PlantedConfig
    primary = "does"
    inputs = property(lambda self: tuple(self.config.reads))  # type: ignore[assignment]
    outputs = property(lambda self: tuple(self.config.writes))  # type: ignore[assignment]
    max_calls = 1

    async def run(self, inputs: Any, ctx: Context) -> Any:
        return await DOES[self.config.does](inputs, ctx)


class OneLM(LMPool):
    def __init__(self, lm: FakeLM):
        super().__init__()
        self.lm = lm

    def get(self, spec: LMSpec) -> Any:
        return self.lm


def program(folder: Path, ledger: Ledger, nodes: dict[str, Any], lm: FakeLM | None = None, **settings: Any) -> Program:
    spec = lm_spec({"model": "openai/fake", **settings})
    return Program(make_workflow(nodes, folder), Runtime(ledger, spec, {}, OneLM(lm or FakeLM())))


def outcome(
    folder: Path, nodes: dict[str, Any], row: dict[str, Any] | None = None, lm: FakeLM | None = None, **settings: Any
) -> ExampleRun:
    async def main() -> ExampleRun:
        with journal(folder / "run.db", calls=100) as ledger:
            return await program(folder, ledger, nodes, lm, **settings).run(Example("1", row or {"x": 1}))

    return run(main)


def raising(error: BaseException) -> Callable[[Any, Context], Any]:
    async def does(inputs: Any, ctx: Context) -> Any:
        raise error

    return does


def giving(value: Any, wait: int = 0) -> Callable[[Any, Context], Any]:
    async def does(inputs: Any, ctx: Context) -> Any:
        await turns(wait)
        return value

    return does
