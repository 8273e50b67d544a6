"""The settings of an `external` node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.workflow import NodeConfig
from workbench_kit.acting import Forged

#: The place of a slot's text in the requests of an agent, or in its folder.
Place = Literal["system", "user", "turn", "tool", "parameter", "field", "file"]


class Slot(NodeConfig):
    """A text of the agent that the gateway may replace. Found by `workbench agent slots`, or at the start of a run."""

    in_: Place = Field(
        alias="in",
        description="system: a system or developer message; user: a user message with an input; turn: a "
        "message of an example; tool, parameter: a description; field: a description in the schema of the answer; "
        "file: a file in the agent's folder",
    )
    match: str = Field("", description="the text as the agent sends it; {{1}}, {{question}}: parts that vary")
    text: str | None = Field(None, description="what takes its place; parts that vary and are left out are appended")
    name: str = Field("", description="of the tool or the schema, or path of the file")
    part: bool = Field(False, description="`match` is a part of what is sent, with other words around it")
    of: str = Field("", description="of a part: one name for all parts of its message")
    parameter: str = Field("", description="of the tool; field of the schema, none: the schema itself")
    lm: str | dict[str, Any] | None = Field(None, description="for system: the model of the calls with this message")
    temperature: float | None = Field(None, ge=0, le=2, description="for system: the same")
    max_tokens: int | None = Field(None, ge=1, description="for system: the same")


class ExternalConfig(NodeConfig):
    """Settings of an `external` node."""

    signature: str = Field(description='what goes in and comes out, e.g. "question -> answer"')
    command: list[str] | None = Field(
        None, min_length=1, description="program and arguments; {question} is the value of an input"
    )
    image: str | None = Field(
        None, description="container image that `command` is run in, by docker or podman; never pulled"
    )
    url: str | None = Field(None, description="address of an HTTP service: one POST a row, JSON in and out")
    a2a: str | list[str] | None = Field(
        None,
        description="address of an agent that speaks A2A, below which its card stands; a list: of several, and the "
        "input `agent` is the name on the card of the one to ask",
    )
    headers: dict[str, str] = Field(
        default_factory=dict,
        description="of a2a: headers of each request; $NAME: from our environment",
    )
    processes: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="maximum number of concurrent programs; default: 16, or 4 for url or a2a with command, which then "
        "contain {port}, a free port",
    )
    start: float = Field(60.0, gt=0, description="of url or a2a with command: seconds until it listens")
    python: str | None = Field(
        None, description="file.py:NAME or module:NAME of a function, or a class with `run`, called in its own process"
    )
    mcp: str | None = Field(None, description="COMMAND#TOOL: a tool of an MCP server, started for each row")
    stdin: Literal["json", "text", "none"] = Field("json", description="how `command` gets the inputs")
    output: str = Field(
        "text",
        description="place of the answer: text (all that is printed), line (the last one), json, "
        "json:PATH (dotted), or file:NAME; cards: of a2a, the agents' cards as documents for `search`, "
        "and none is asked",
    )
    folder: str | None = Field(None, description="copied for each row as its working directory; else an empty one")
    state: Literal["fresh", "kept"] | None = Field(
        None,
        description="fresh: nothing outlives a row, a service of ours is started anew for each; kept: it has your home "
        "and may remember, so that no gain is shown; left out: fresh, but a service lives for many rows",
    )
    env: dict[str, str] = Field(
        default_factory=dict,
        description="additional environment variables; $NAME: from our environment, $OPENAI_BASE_URL: the gateway's",
    )
    timeout: float = Field(300.0, gt=0, description="seconds for a row")
    calls: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="maximum number of model calls per row; more are refused; default: 16, in a search about twice the "
        "maximum observed at its start",
    )
    lm: str | dict[str, Any] | None = Field(None, description="the model that answers, whatever the agent names")
    models: dict[str, str | dict[str, Any]] = Field(
        default_factory=dict,
        description="other models, by the name that the agent requests; `*`: any; as-named: the model of that name",
    )
    embedder: str | dict[str, Any] | None = Field(None, description="the model that embeds texts for it")
    max_tokens: int = Field(4096, ge=1, description="for requests that name no number of tokens")
    temperature: float | None = Field(None, ge=0, le=2, description="instead of the agent's own")
    instructions: str = Field("", description="appended to the first system message of each request")
    demos: list[dict[str, Any]] = Field(
        default_factory=list, description="worked examples, placed before the message with the inputs"
    )
    functions: list[Forged] = Field(
        default_factory=list,
        description="tools written as source: offered to its models by the gateway, which runs them",
    )
    vendor: bool = Field(False, description="also find slots in texts of the framework, which are not in its source")
    slots: dict[str, Slot] | None = Field(
        None, description="texts that may be replaced, by name; default: found at the start of a search"
    )

    @property
    def addresses(self) -> Sequence[str]:
        """Return its HTTP addresses; none for a program that is started for each row."""
        named = self.a2a if self.a2a is not None else self.url
        return [] if named is None else [named] if isinstance(named, str) else named

    @property
    def is_stranger(self) -> bool:
        """Return True for a running agent that calls models of its own. None of its calls is seen here."""
        return self.a2a is not None and self.command is None

    @model_validator(mode="after")
    def _one_way(self) -> ExternalConfig:
        ways = [name for name in ("command", "url", "a2a", "python", "mcp") if getattr(self, name) is not None]
        if len(ways) != 1 and ways not in (["command", "url"], ["command", "a2a"]):
            raise ValueError(f"name one of command, url, a2a, python and mcp, not {' and '.join(ways) or 'none'}")
        if self.headers and self.a2a is None:
            raise ValueError("headers are those of requests to an agent that a2a names")
        if len({function.name for function in self.functions}) < len(self.functions):
            raise ValueError("two functions have the same name: rename one of them")
        if self.image is not None and ways != ["command"]:
            raise ValueError("image needs command alone: the program that is started in it for each row")
        if self.image is not None and not re.fullmatch(r"[A-Za-z0-9][\w./:@-]*", self.image):
            raise ValueError(f"image '{self.image}' is not a name of an image; write one as docker and podman list it")
        return self
