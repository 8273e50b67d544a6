"""Settings of a `states` node, and the checks that make a machine sound: every state can be reached, and left."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workbench.errors import SpecError, suggest
from workbench.spec import check_pattern
from workbench.workflow import NodeConfig
from workbench_kit.acting import ENV, TOOLS

#: The target that ends the machine. It is no state.
END = "end"
#: All that an answer is told in a state without tools.
GO_ON = "Go on."
EMPTY = "error: the answer was empty"
CUT = "error: the answer was cut at max_tokens; give a shorter one"

_HINT = "Write error, always, or e.g. {regex: PATTERN}, {outcome: {FIELD: VALUE}}, {lm: QUESTION}."


class When(NodeConfig):
    """A condition: exactly one of error, always, regex, outcome, lm."""

    error: Literal[True] | None = Field(None, description="the last action failed")
    always: Literal[True] | None = Field(None, description="whatever happened")
    regex: str | None = Field(None, min_length=1, description="a pattern that is found in it, by the rules of Python")
    of: Literal["observation", "action"] = Field("observation", description="text that regex searches")
    outcome: dict[str, Any] | None = Field(None, min_length=1, description="fields of the tool's result: value or list")
    lm: str | None = Field(None, min_length=1, description="a question that the model answers with yes or no")

    @model_validator(mode="after")
    def _one(self) -> When:
        given = [n for n in ("error", "always", "regex", "outcome", "lm") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"a condition has exactly one of error, always, regex, outcome, lm. {_HINT}")
        if "of" in self.model_fields_set and given[0] != "regex":
            raise ValueError("'of' belongs to regex")
        return self

    _regex = field_validator("regex")(check_pattern)

    @property
    def words(self) -> str:
        """The condition as an edge of the diagram names it."""
        if self.regex is not None:
            return f"{self.of} matches {self.regex}"
        if self.outcome is not None:
            return ", ".join(f"{k} = {' or '.join(map(str, _listed(v)))}" for k, v in self.outcome.items())
        return self.lm or ("error" if self.error else "otherwise")


def _or_short(*short: dict[str, Any], listed: bool = False) -> Any:
    """The short forms of a setting, for editors: what the validators below accept stands in the schema too."""

    def extend(schema: dict[str, Any]) -> None:
        long = schema.pop("items") if listed else {"$ref": schema.pop("$ref")}
        forms = [*short, long]
        if listed:
            forms.append({"type": "array", "minItems": schema.pop("minItems"), "items": {"anyOf": forms[:]}})
            del schema["type"]
        schema["anyOf"] = forms

    return extend


class Transition(NodeConfig):
    """A way out of a state. The first one whose condition holds is taken."""

    when: When = Field(
        default_factory=lambda: When.model_validate({"always": True}),
        description="the condition (default: always)",
        json_schema_extra=_or_short({"enum": ["error", "always"]}),
    )
    to: str = Field(description="the next state, or end")
    keep: str | None = Field(None, description="the output field that gets the action that led here")

    @field_validator("when", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        if value in ("error", "always"):
            return {value: True}
        if not isinstance(value, dict | When):
            raise ValueError(f"{value!r} is not a condition. {_HINT}")
        return value


class StateConfig(NodeConfig):
    """A state: what the model is told in it, what it may do, and what comes next."""

    instructions: str = Field("", description="what to do in this state")
    tools: list[str] = Field(default_factory=list, description=TOOLS)
    run: str | None = Field(None, description="a tool that is run on every plain answer: it gets it as its argument")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this state")
    next: list[Transition] = Field(
        min_length=1,
        description="transitions in their order, or just the next state",
        json_schema_extra=_or_short({"type": "string"}, listed=True),
    )

    @field_validator("next", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        found = [value] if isinstance(value, str | dict) else value
        return [{"to": v} if isinstance(v, str) else v for v in found] if isinstance(found, list) else found


class StatesConfig(NodeConfig):
    """Settings of a `states` node."""

    states: dict[str, StateConfig] = Field(min_length=1, description="the states by name")
    signature: str = Field(description='inputs and outputs, e.g. "question -> answer"')
    start: str = Field(description="the first state")
    max_steps: int = Field(
        10, ge=1, le=100, description="maximum number of turns; without an answer by then the example fails"
    )
    instructions: str = Field("", description="what to do; precedes the instructions of every state")
    arguments: dict[str, str] = Field(
        default_factory=dict, description="tool argument: input field; filled in, and hidden from the model"
    )
    env: dict[str, str] = ENV
    chars: int = Field(2000, ge=10, description="characters of a tool's result that the model sees")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature")
    max_tokens: int = Field(512, ge=1, description="maximum tokens per answer")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def check_machine(config: StatesConfig, outputs: tuple[str, ...]) -> None:
    """Refuse machines that cannot work. Raises SpecError with the path of the fault inside the node."""
    for name in config.states:
        if not re.fullmatch(r"[A-Za-z_]\w{0,63}", name) or name == END:
            hint = "`end` is the end of the machine." if name == END else "Use letters, digits and _."
            raise SpecError(f"'{name}' cannot name a state", hint=hint, path=("states", name))
    for name, state in config.states.items():
        for i, step in enumerate(state.next):
            _check_transition(config, outputs, step, ("states", name, "next", i))
            if i and state.next[i - 1].when.always:
                raise SpecError(
                    "this transition is never taken: the one before it always is",
                    hint="Put it before that one, or remove it.",
                    path=("states", name, "next", i),
                )
    if config.start not in config.states:
        raise SpecError(
            f"there is no state '{config.start}' to start in",
            hint=suggest(config.start, config.states),
            path=("start",),
        )
    _check_paths(config)


def _check_transition(
    config: StatesConfig, outputs: tuple[str, ...], step: Transition, path: tuple[str | int, ...]
) -> None:
    if step.to != END and step.to not in config.states:
        raise SpecError(
            f"there is no state '{step.to}'", hint=suggest(step.to, [*config.states, END]), path=(*path, "to")
        )
    if step.keep is not None and step.keep not in outputs:
        raise SpecError(
            f"'{step.keep}' is not an output of the signature", hint=suggest(step.keep, outputs), path=(*path, "keep")
        )


def _check_paths(config: StatesConfig) -> None:
    import networkx

    graph = networkx.DiGraph([(name, step.to) for name, state in config.states.items() for step in state.next])
    graph.add_node(END)
    reached = networkx.descendants(graph, config.start) | {config.start}
    ending = networkx.ancestors(graph, END)
    way_out = f"Add a transition to the end, e.g. {{when: {{regex: (?i)done, of: action}}, to: {END}}}."
    if not ending:
        raise SpecError("no transition leads to the end", hint=way_out, path=("states",))
    for name in config.states:
        if name not in reached:
            raise SpecError(
                f"no path leads from '{config.start}' to the state '{name}'",
                hint=f"Add a transition to it, e.g. {{when: error, to: {name}}}, or remove it.",
                path=("states", name),
            )
        if name not in ending:
            raise SpecError(
                f"from the state '{name}' no path leads to the end",
                hint=way_out,
                path=("states", name, "next"),
            )
