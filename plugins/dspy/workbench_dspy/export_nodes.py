"""Nodes as modules of an exported DSPy program: each as an object, for its state, and as source that creates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench.runtime import make_request
from workbench.spec import PREFIX, LMSpec, Spec, parse_address
from workbench.workflow import NodeKind, Schedule, Signature, node_class
from workbench_dspy.exported import agent, flow, predictor
from workbench_dspy.tool_files import ToolFiles
from workbench_kit.acting import Tool as WorkbenchTool, describe_tool
from workbench_kit.prompting import default_instructions

#: Maximum characters of an expression on one line.
_LINE = 100
_PLAIN_TYPES = (str, int, float, bool, list, dict)
#: Node kinds that have a counterpart; `Converter` has a method for each.
_KINDS = ("predict", "agent", "tool", "branch", "ensemble", "reflect", "workflow", "dspy")
#: Settings of an agent that only workbench supports.
_AGENT_ONLY_HERE = (
    "types",
    "functions",
    "wrappers",
    "user",
    "native",
    "nearest",
    "queries",
    "first_thought",
    "screens",
)


@dataclass(frozen=True)
class Made:
    """A part of a program: the object, and the expression that creates it."""

    value: Any
    source: str


def call(name: str, function: Any, *places: Any, **arguments: Any) -> Made:
    """Call a function, and return its result with the call as source. Arguments are parts or plain values."""
    made = {k: v if isinstance(v, Made) else literal(v) for k, v in arguments.items()}
    first = [p if isinstance(p, Made) else literal(p) for p in places]
    written = [*(m.source for m in first), *(f"{k}={m.source}" for k, m in made.items())]
    value = function(*(m.value for m in first), **{k: m.value for k, m in made.items()})
    return Made(value, _wrapped(f"{name}(", written, ")"))


def _wrapped(begin: str, parts: Sequence[str], end: str) -> str:
    """Return an expression on one line, or, if that is too long, with one part per line."""
    line = f"{begin}{', '.join(parts)}{end}"
    if "\n" not in line and len(line) <= _LINE:
        return line
    return f"{begin}\n{indent(''.join(f'{part},{chr(10)}' for part in parts), '    ')}{end}"


def literal(value: Any) -> Made:
    """Return a part for a plain value, or for a list or mapping that may contain parts."""
    if isinstance(value, Mapping):
        parts = {k: v if isinstance(v, Made) else literal(v) for k, v in value.items()}
        shown = [f"{k!r}: {m.source}" for k, m in parts.items()]
        return Made({k: m.value for k, m in parts.items()}, _wrapped("{", shown, "}"))
    if isinstance(value, list | tuple):
        listed = [v if isinstance(v, Made) else literal(v) for v in value]
        return Made([m.value for m in listed], _wrapped("[", [m.source for m in listed], "]"))
    return Made(value, repr(value))


def refuse(where: str, what: str, hint: str = "") -> SpecError:
    """Return the error for something that a DSPy program cannot have. where: the address of the node."""
    return SpecError(f"{where}: {what} cannot be exported to DSPy", hint=hint or "Export it with --format yaml.")


class Converter:
    """Converts nodes to modules. Raises SpecError that names anything without a counterpart.

    Args:
        spec: the file, for its language models.
        lm: the task's language model, with the changes of the workflow.
    """

    def __init__(self, spec: Spec, lm: LMSpec):
        self.spec, self.lm, self.files = spec, lm, ToolFiles()

    def convert(self, node: NodeKind, where: str) -> Made:
        return getattr(self, f"_{self.check(node, where)}")(node, where)

    def check(self, node: NodeKind, where: str) -> str:
        """Return the kind of a node. Raises SpecError if it has no counterpart. Runs no code."""
        names = plugins().names("node_kinds")
        named = next((kind for kind in names if isinstance(node, node_class(kind))), type(node).__name__)
        if named not in _KINDS:
            raise refuse(where, f"the node kind '{named}'", f"These can: {', '.join(_KINDS)}.")
        return named

    def _predict(self, node: Any, where: str) -> Made:
        config = node.config
        if config.types:
            raise refuse(where, "the setting 'types'")
        if node.images:
            raise refuse(where, f"the image '{node.images[0]}'")
        optional: dict[str, Any] = {"samples": config.samples, "retrieve": config.retrieve}
        optional |= {"show_values": config.show_values, "form": config.adapter}
        defaults = {"samples": 1, "retrieve": 0, "show_values": True, "form": "plain"}
        settings = self._settings(node, node.settings)
        text = config.instructions or default_instructions(node.asked)
        made = call(
            "Predictor",
            predictor.Predictor,
            self._signature(node.asked, text, config.descriptions, where),
            text,
            **{k: v for k, v in optional.items() if v != defaults[k]},
            **self._own_lm(node, where),
            **settings,
        )
        made.value.demos = [dict(demo) for demo in config.demos]
        return made

    def _agent(self, node: Any, where: str) -> Made:
        config = node.config
        for name in _AGENT_ONLY_HERE:
            if getattr(config, name):
                raise refuse(where, f"the setting '{name}'")
        if config.actions > 1:
            raise refuse(where, "the setting 'actions'")
        if config.register_ != "all":
            raise refuse(where, "the setting 'register: lazy'")
        text = config.instructions or default_instructions(node.signature)
        made = call(
            "Agent",
            agent.Agent,
            self._signature(node.signature, text, {}, where),
            text,
            [self._made_tool(tool, node, where) for tool in node.tools.values()],
            max_steps=config.max_steps,
            **self._own_lm(node, where),
            **self._settings(node, {"temperature": config.temperature, "max_tokens": config.max_tokens}),
        )
        made.value.demos = [dict(demo) for demo in config.demos]
        return made

    def _tool(self, node: Any, where: str) -> Made:
        tool = self._made_tool(node.tool, node, where)
        return call("ToolCall", agent.ToolCall, tool, node.config.output, node.arguments, node.config.constants)

    def _dspy(self, node: Any, where: str) -> Made:
        if node.config.lm is not None:
            raise refuse(where, "the setting 'lm'", "Leave it out, and configure that model in DSPy.")
        name = self.files.add(parse_address(node.config.module), node.base, where)
        arguments = [f"{key}={value!r}" for key, value in node.config.arguments.items()]
        made = Made(node.program, _wrapped(f"{name}(", arguments, ")"))
        return call("Module", flow.Module, made, list(node.inputs), node.config.adapter)

    def _branch(self, node: Any, where: str) -> Made:
        cases = {v: self.convert(node.nodes[f"cases.{v}"], f"{where}.cases.{v}") for v in node.config.cases}
        default = self.convert(node.nodes["default"], f"{where}.default") if "default" in node.nodes else None
        return call("Branch", flow.Branch, node.config.on, cases, **({"default": default} if default else {}))

    def _ensemble(self, node: Any, where: str) -> Made:
        run = [member for member in node.members if member.name in node.weights]
        members = [self.convert(member, f"{where}.{member.name}") for member in run]
        config, more = node.config, dict[str, Any]()
        if config.weights:
            more["weights"] = [*node.weights.values()]
        if config.decide == "judge":
            role = self.spec.roles.get("judge")
            more |= {"judge": config.judge, "settings": self._given(role or self.lm, {"max_tokens": 16})}
            if role is not None:
                more["judge_lm"] = self._language_model(role, f"{where}: the role judge")
        return call("Ensemble", flow.Ensemble, members, config.samples, config.field or node.outputs[-1], **more)

    def _reflect(self, node: Any, where: str) -> Made:
        config = node.config
        check = node.verifier
        return call(
            "Reflect",
            flow.Reflect,
            self.convert(node.node, f"{where}.of"),
            self.convert(node.improver, f"{where}.of"),
            rounds=config.rounds,
            samples=config.samples,
            verifier=self.convert(check, f"{where}.verifier") if check is not None else None,
            critic=config.critic,
            outputs=list(node.outputs),
            **self._own_lm(node.node, where),
            settings=self._settings(node.node, {}),
        )

    def _workflow(self, node: Any, where: str) -> Made:
        if node.config.file is not None and node.read[1].restricts:
            raise refuse(where, f"the policy of {node.config.file}")
        modules = {name: self.convert(inner, f"{where}.nodes.{name}") for name, inner in node.nodes.items()}
        names = attribute_names(node.nodes)
        return call(
            "Flow",
            flow.Flow,
            steps(node.schedule, node.trees, names),
            {names[name]: made for name, made in modules.items()},
            node.config.rename,
            **file_order(node.schedule, node.nodes),
        )

    def _signature(self, signature: Signature, text: str, descriptions: Mapping[str, str], where: str) -> Made:
        both = {f.name for f in signature.inputs} & {f.name for f in signature.outputs}
        if both:
            raise refuse(where, f"the field '{min(both)}', which is both read and written,", "Rename the output.")
        sides = [
            {f.name: Made(f.type, type_source(f.type)) for f in side} for side in (signature.inputs, signature.outputs)
        ]
        try:
            return call("signature", predictor.signature, *sides, text, *([descriptions] if descriptions else []))
        except (ValueError, TypeError, NameError) as error:
            raise refuse(where, f"its signature ({error})") from None

    def _made_tool(self, tool: WorkbenchTool, node: Any, where: str) -> Made:
        if not tool.source.startswith(PREFIX):
            raise refuse(where, f"the tool '{tool.source}'", "Only python: tools can.")
        parsed = parse_address(tool.source)
        function = Made(None, self.files.add(parsed, node.base, where))
        return call("Tool", agent.Tool, tool.name, function, describe_tool(tool))

    def _settings(self, node: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        return self._given(getattr(node, "lm", None) or self.lm, settings)

    @staticmethod
    def _given(lm: LMSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of each call, with all defaults filled in (`workbench.runtime.make_request`), without
        stops that a right answer may begin with (`workbench.lm.make_body`)."""
        request = make_request(lm, (), 0, settings)
        given: dict[str, Any] = {"temperature": request.temperature, "max_tokens": request.max_tokens}
        if request.top_p != 1.0:
            given["top_p"] = request.top_p
        if stops := [stop for stop in request.stop if stop.strip()]:
            given["stop"] = stops
        return given

    def _own_lm(self, node: Any, where: str) -> dict[str, Made]:
        own = getattr(node, "lm", None)
        return {} if own is None else {"lm": self._language_model(own, where)}

    def _language_model(self, lm: LMSpec, where: str) -> Made:
        model = model_name(lm)
        if model is None or lm.extra:
            raise refuse(where, f"the language model {lm.model}{' with `extra`' if model else ''}")
        more = {"api_base": lm.api_base, "api_key_env": lm.api_key_env}
        given = {k: v for k, v in more.items() if v}
        return call("language_model", predictor.language_model, model, **given)


def model_name(lm: LMSpec) -> str | None:
    """Return a model's name in DSPy; None if only workbench serves it."""
    prefix, slash, rest = lm.model.partition("/")
    if prefix == "litellm" and slash:
        return rest
    known = set(plugins().names("lms")) - {"openai", "*"}
    return lm.model if slash and prefix not in known and ":" not in prefix else None


def type_source(annotation: Any) -> str:
    """Return a field's type as source."""
    return annotation.__name__ if annotation in _PLAIN_TYPES else repr(annotation)


def attribute_names(names: Sequence[str] | Mapping[str, Any]) -> dict[str, str]:
    """Return the attribute of the program for each node: its name, unless Python or DSPy use that name."""
    import dspy

    taken = {*dir(dspy.Module), *dir(flow.Flow), "steps", "order", "rename", "callbacks", "history"}
    found: dict[str, str] = {}
    for name in names:
        base = "".join(c if c.isalnum() else "_" for c in name)
        base = base if base.isidentifier() else f"node_{base}"
        while base in taken or base in found.values():
            base += "_"
        found[name] = base
    return found


def steps(schedule: Schedule, trees: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> list[Made]:
    """Return the flow of data as steps, in the order in which they run."""
    return [
        call(
            "Step",
            flow.Step,
            name,
            names[name],
            schedule.sources[name],
            **({"optional": True} if trees[name].get("optional") else {}),
        )
        for name in schedule.order
    ]


def file_order(schedule: Schedule, nodes: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the order of the nodes in the file, if it differs from the order of execution."""
    return {} if list(nodes) == schedule.order else {"order": list(nodes)}
