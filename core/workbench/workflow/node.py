"""The contract of a node, one step of a workflow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from workbench.errors import Defect
from workbench.lm import LM_KEYS, enter_model
from workbench.spec import Code, LMSpec, is_collecting, lm_spec, refused_unless
from workbench.workflow.signature import Signature
from workbench.workflow.trace import Span

if TYPE_CHECKING:
    import networkx

    Drawing = networkx.DiGraph[str]


#: Key of a demo for the messages between its inputs and its answer, e.g. tool calls and their results.
EXCHANGE = "_exchange"


@dataclass(frozen=True)
class Surroundings:
    """The rest of the workflow file, for a node's own check (`NodeKind.defects`).

    lm: the workflow's model, for nodes that name none. names: the names of all nodes and fields. values: by field, its
    possible values, if only nodes write it and all of its writers list them.
    """

    lm: LMSpec
    names: Collection[str] = ()
    values: Mapping[str, Collection[Any]] = field(default_factory=dict[str, Collection[Any]])


class TextRole(NamedTuple):
    """The role of a node's learnable text, for the model or optimizer that writes a better one.

    what: e.g. `the description of the tool look_up of an agent`. instructs: True if the text is an instruction, which
    may be rephrased at any length. parts: the learnable texts of the message that this one belongs to, itself included,
    by setting and in order. `queries.text_role` returns their addresses instead.
    """

    what: str = "the instruction of one step of a workflow"
    instructs: bool = True
    parts: Mapping[str, str] = {}


class NodeConfig(BaseModel):
    """Base of a kind's settings. Unknown keys are refused, and every field has a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NodeKind:
    """A step of a workflow. Subclass it, set `Config` and `primary`, and write `run`.

    Equal settings share one node, so `run` must keep no state in self. It may raise NodeError (a failure of this
    example, with a kind). Any other error is recorded as a failure under its type. `__init__` passes settings that lead
    to Python, programs, addresses or files through a door of `workbench.spec`, before it reads them.
    """

    Config: ClassVar[type[NodeConfig]] = NodeConfig
    primary: ClassVar[str] = ""  # the field that `kind: VALUE` fills
    #: Settings that optimizers may change, each with its kind: text, demos, int, float, choice, nodes, tools. Set it on
    #: the instance if it depends on other settings.
    learnable: Mapping[str, str] = {}
    #: True if the program that the node runs sets a temperature of its own, which the setting `temperature` replaces.
    names_temperature: ClassVar[bool] = False
    #: True if another program makes the requests. Changed settings then affect only requests that carry them.
    foreign: ClassVar[bool] = False
    #: Ask the node what it does, for the model of an agent that has it as a tool, if that is known only at run time,
    #: e.g. from the agent card of a remote agent. Set it on the instance if it depends on settings.
    introduce: Callable[[Any], Awaitable[str]] | None = None
    #: The command that puts an improved file with such a node to use, if calling the file does not. Its first argument
    #: is the file.
    applied_by: ClassVar[str] = ""
    #: Settings that hold named groups of settings. Addresses may lead into them even if the file leaves them out.
    groups: ClassVar[Sequence[str]] = ()
    #: The loading state of the user code that the settings name. Only a node with `loaded` code may run it. Set before
    #: `__init__`, which passes it on to what it reads and to the nodes inside.
    code: Code = "loaded"

    def __init__(self, name: str, config: Any, base: Path):
        self.name, self.config, self.base = name, config, base

    @classmethod
    def make(cls, name: str, config: Any, base: Path, code: Code) -> Self:
        """Make a node with its user code in this state. Raises SpecError."""
        node = cls.__new__(cls)
        node.code = code
        for key in LM_KEYS:
            enter_model(getattr(config, key, None), base, key)
        with refused_unless(code):
            node.__init__(name, config, base)
            if is_collecting():
                node.children()  # made here, whose place is known
        return node

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the fields that the node reads."""
        return ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the fields that the node writes."""
        return ()

    @property
    def max_calls(self) -> int:
        """Return the most LM calls that one run can make, without retries."""
        return 0

    @property
    def streams(self) -> bool:
        """Return True if the node's only output is the text of one model call, as the model writes it."""
        return False

    @property
    def roles(self) -> tuple[str, ...]:
        """List the roles other than `task` whose models the node asks. The file must name a model for each."""
        return ()

    def warnings(self) -> list[str]:
        """List warnings for `validate` and `estimate` about these settings, e.g. that they cost more than they save."""
        return []

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        """Find defects for `validate --deep`: settings that are valid but cannot work. Skip nodes inside this one.

        It must not call a model, load code or start anything. It must be certain: a finding in a workflow that works is
        a bug.
        """
        return ()

    def tool_names(self) -> Collection[str]:
        """List the tools that the node may call, by the names used in the rules of `policy:`. `*` stands for tools that
        are known only at run time."""
        return ()

    @property
    def row_inputs(self) -> Collection[str]:
        """List the inputs that come from the row if the node is a tool of an agent. The agent's model fills all other
        inputs and never sees these."""
        return ()

    @property
    def tool_description(self) -> str:
        """Describe the node in a line for the model of an agent that has it as a tool. Never its instructions."""
        return f"Gives {', '.join(self.outputs)}." if self.outputs else ""

    @property
    def input_types(self) -> Mapping[str, Any]:
        """Return the types of the inputs, as far as they are known."""
        return {}

    @property
    def file_inputs(self) -> Collection[str]:
        """List the inputs that a row gives as a path, an address or bytes, such as images."""
        return ()

    def resolve_input(self, name: str, value: Any, folder: Path) -> Any:
        """Return a row's value of one of `file_inputs` in the form that `run` reads. Called before anything is sent.

        folder: the folder of the row's file, for relative paths. Raises NodeError("data") for a value that cannot be
        read.
        """
        return value

    def text_role(self, name: str) -> TextRole:
        """Describe a text that optimizers may change. name: its setting, as in `learnable`."""
        return TextRole()

    def children(self) -> Mapping[str, NodeKind]:
        """Return the nodes inside this one, by the address of the setting that holds them."""
        return {}

    def walk(self) -> Iterator[NodeKind]:
        """Yield this node and all nodes inside it."""
        yield self
        for child in self.children().values():
            yield from child.walk()

    def observe(self, runs: Sequence[Sequence[Span]]) -> Mapping[str, Any] | None:
        """Return settings that are known only once the node runs, e.g. the prompts of a program that it starts.

        Called once before a search, for a node that is `observed`. runs: the spans of the node, for each of some
        training rows. The settings that are returned are added to the node, and must not change its behavior. Raises
        SpecError if the runs show that a search cannot help.
        """
        return None

    @property
    def kept_state(self) -> str | None:
        """Describe state that outlives a row with these settings, as part of a sentence: "the agent keeps its state
        from row to row". If any node has such state, the report shows no gain. Skip nodes inside this one."""
        return None

    @property
    def observed(self) -> bool:
        """Return True if `observe` should be called because the file leaves out the settings that it would add."""
        return False

    def external_inputs(self) -> Any:
        """Return the content that the node read from other workflow files, as plain JSON values; None if there is none.
        If it changes, a run cannot be resumed."""
        return None

    def diagram(self) -> Drawing | None:
        """Return the drawing inside the node for `workbench show --mermaid`; None for a plain box. By default the
        children.

        A vertex named like a key of `children` is drawn as that node. Vertices may have the attributes `label` and
        `shape` (box, round or circle), edges a `label`.
        """
        import networkx

        if not self.children():
            return None
        graph: Drawing = networkx.DiGraph()
        graph.add_nodes_from(self.children())
        return graph

    def training_chat(self, values: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Return a training example for fine-tuning, as a chat.

        The messages are those that the node sends for these inputs. The last one is the answer that it would parse into
        these outputs.

        Args:
            values: the inputs and outputs, by field.

        Returns:
            The messages; None if a value is missing, or if the node does not ask a model in this form.
        """
        return None

    def demo(self, span: Span) -> dict[str, Any]:
        """Make a demo from a run of the node: its inputs and outputs. For a node that calls tools, also keep the
        messages in between under the key EXCHANGE: without them the demo would teach the model to answer without
        tools."""
        return {**span.inputs, **span.outputs}

    async def run(self, inputs: Mapping[str, Any], ctx: Any) -> Mapping[str, Any]:
        """Run the node on one example. Returns a value for every name in `outputs`.

        Everything with an effect goes through ctx, a `workbench.Context`, which pays for, journals and traces it.
        """
        raise NotImplementedError


class SignatureNode(NodeKind):
    """A node whose fields are those of its `signature`, which the subclass sets. Its settings may include `lm`."""

    signature: Signature

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.outputs)

    @property
    def input_types(self) -> Mapping[str, Any]:
        return {f.name: f.type for f in self.signature.inputs}

    @cached_property
    def lm(self) -> LMSpec | None:
        """Return the node's own language model; None if it uses the workflow's."""
        chosen = getattr(self.config, "lm", None)
        return lm_spec(chosen) if chosen is not None else None
