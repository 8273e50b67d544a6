"""Settings of an `agent` node."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from workbench.errors import SpecError, suggest
from workbench.workflow import NodeConfig
from workbench_kit.acting import ENV, TOOLS, Forged
from workbench_kit.prompting import NAMED_TYPES, NamedTypes
from workbench_tools.live_calls import LiveCalls
from workbench_tools.user import UserConfig

_LATER = ("actions", "first_thought", "nodes", "live", "screens", "given", "kept", "calls")


class AgentConfig(NodeConfig):
    """Settings of an `agent` node."""

    signature: str = Field(description='inputs and outputs, e.g. "question -> answer"')
    tools: list[str] = Field(default_factory=list, description=TOOLS)
    env: dict[str, str] = ENV
    nodes: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="tools that are nodes, by name, e.g. {search: {search: corpus.jsonl}}; their inputs are "
        "the arguments, and `describe` next to a node is its description for the model; an input named "
        "`earlier_calls` is the row's calls before",
    )
    screens: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="by tool, or `*`: a node that reads `result`, and withholds it where its `verdict` is not `clean`",
    )
    live: dict[str, LiveCalls] = Field(
        default_factory=dict,
        description="for tools that call a live service, by name: retries, and a cache by arguments; {}: defaults",
    )
    given: list[str] = Field(
        default_factory=list,
        description="inputs that are variables of the code (sandbox:session), and stand in no prompt",
    )
    kept: list[str] = Field(
        default_factory=list, description="outputs that are read from variables of the code, whole, with their types"
    )
    functions: list[Forged] = Field(default_factory=list, description="tools written as source, run in the sandbox")
    instructions: str = Field("", description="instructions for the model")
    demos: list[dict[str, Any]] = Field(
        default_factory=list,
        description="examples: inputs and outputs, and under _exchange the messages between them",
    )
    register_: Literal["all", "lazy"] = Field(
        "all",
        alias="register",
        description="lazy: show only names of tools; the model registers those that it needs",
    )
    nearest: int = Field(
        0,
        ge=0,
        le=1000,
        description="number of tools shown, nearest to the input first; with `register: lazy`, the others are shown "
        "by name; 0: all",
    )
    offer: Literal["all", "permitted"] = Field(
        "all",
        exclude_if=lambda offer: offer == "all",
        description="permitted: show only tools that `policy:` may allow at this point of the row",
    )
    queries: int = Field(
        0, ge=0, le=8, description="number of search queries for `nearest` that the model writes first, in one call"
    )
    asked: dict[str, list[str]] = Field(
        default_factory=dict, description="by tool: questions that it answers, for the search of `nearest`"
    )
    descriptions: dict[str, str] = Field(
        default_factory=dict, description="by tool: a description that replaces its own"
    )
    wrappers: dict[str, str] = Field(
        default_factory=dict,
        description="by tool: Python source of wrap(result, arguments), run in the sandbox; the model sees its result",
    )
    user: UserConfig | None = Field(None, description="a simulated user that the agent may talk to")
    max_steps: int = Field(6, ge=1, le=100, description="maximum number of answers of the model, tool calls included")
    calls: int = Field(
        8,
        ge=0,
        le=1000,
        description="where it writes code: calls of `nodes`, and of `screens`, that ask a model, for one example",
    )
    actions: int = Field(
        1,
        ge=1,
        le=32,
        description="number of answers sampled at each step; their calls are made, those that fail are dropped, and "
        "the most frequent result counts (self-consistent actions); at temperature 0.4 if none is given",
    )
    first_thought: bool = Field(
        False,
        description="the first answer goes on from the first step of an answer that the model gives without tools, in "
        "one more call",
    )
    native: bool = Field(False, description="pass tool definitions to the server instead of describing them in words")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature")
    max_tokens: int = Field(512, ge=1, description="maximum tokens per step")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")
    types: NamedTypes = NAMED_TYPES

    @model_serializer(mode="wrap")
    def _without_later(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit settings newer than the first stored runs at their defaults, so that hashes of workflows stay."""
        found = serialize(self)
        defaults = {k: type(self).model_fields[k].get_default(call_default_factory=True) for k in _LATER}
        return {k: v for k, v in found.items() if k not in _LATER or v != defaults[k]}


def check_names_differ(config: AgentConfig, tools: Collection[str]) -> None:
    """Raise SpecError if two tools have the same name. tools: those at addresses."""
    seen = set(tools)
    for name in (*(function.name for function in config.functions), *config.nodes):
        if name in seen:
            path = ("nodes", name) if name in config.nodes else ()
            raise SpecError(f"two tools are named '{name}'", hint="Rename one of them.", path=path)
        seen.add(name)


def check_tool_names(config: AgentConfig, tools: Collection[str], live: Collection[str]) -> None:
    """Raise SpecError for per-tool settings of an unknown tool. live: tools that may be called as live services."""
    for key in ("asked", "descriptions", "wrappers", "live"):
        for tool in getattr(config, key):
            if tool not in (live if key == "live" else tools):
                raise SpecError(f"there is no tool '{tool}'", hint=suggest(tool, list(tools)), path=(key, tool))


def check_settings(config: AgentConfig, outputs: Collection[str]) -> None:
    """Raise SpecError for settings that exclude each other."""
    if config.user and "say" in outputs:
        raise SpecError(
            "with `user`, no output may be named 'say'",
            hint="Rename it: the agent talks to the user by `say:`.",
            path=("agent",),
        )
    others = {"user": config.user is not None, "register": config.register_ == "lazy", "screens": bool(config.screens)}
    for name, other in others.items():
        if config.actions > 1 and other:
            raise SpecError(
                f"`actions` makes the calls of several answers at a step, which `{name}` does not bear",
                hint=f"Remove `actions` or `{name}`.",
                path=("actions",),
            )
    if config.actions > 1 and config.temperature == 0:
        raise SpecError(
            "at temperature 0 all `actions` of a step are the same one",
            hint="Remove the temperature, or write e.g. temperature: 0.4.",
            path=("actions",),
        )
    if config.queries and not config.nearest:
        raise SpecError(
            "`queries` needs `nearest`, the number of tools to find",
            hint="Write e.g. nearest: 5.",
            path=("queries",),
        )
