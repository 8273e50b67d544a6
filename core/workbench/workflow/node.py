"""The contract of a node, one step of a workflow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from workbench.errors import Defect
from workbench.spec import Code, LMSpec, Powers, lm_spec, refused_unless
from workbench.workflow.signature import Signature
from workbench.workflow.trace import Span

if TYPE_CHECKING:
    import networkx

    Drawing = networkx.DiGraph[str]


#: Key of a demo: the messages between its inputs and its answer, e.g. calls of tools and their results.
EXCHANGE = "_exchange"


@dataclass(frozen=True)
class Surroundings:
    """The rest of the file, for a node's own check (`NodeKind.defects`).

    lm: the model of the workflow, for nodes that name none. names: of all nodes and fields of the file. values:
    by field that only nodes write, the values that it can have, where all its writers list them.
    """

    lm: LMSpec
    names: Collection[str] = ()
    values: Mapping[str, Collection[Any]] = field(default_factory=dict[str, Collection[Any]])


class TextRole(NamedTuple):
    """The role of a learnable text of a node, for who writes a better one.

    what: e.g. `the description of the tool look_up of an agent`. instructs: it says what to do, and may say it in
    other words and at any length. parts: of the message that it is one part of, all learnable parts by their setting
    in the order in which they stand, itself among them; what `queries.text_role` returns has their addresses.
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
    example, with a kind) or any other error (recorded as a failure under the error's type).
    """

    Config: ClassVar[type[NodeConfig]] = NodeConfig
    #: What a node may do besides asking its models, by setting (`workbench.spec`). A kind that does not say is not
    #: run from an untrusted file.
    powers: ClassVar[Powers]
    primary: ClassVar[str] = ""  # the field that `kind: VALUE` fills
    #: The settings that optimizers may change, and what each is: text, demos, int, float, choice, nodes, tools.
    #: One whose settings decide that sets it on itself.
    learnable: Mapping[str, str] = {}
    #: Whether what it runs names a temperature of its own, which its setting `temperature` replaces.
    names_temperature: ClassVar[bool] = False
    #: Whether a program that is not ours makes the requests: a change of the settings acts in those that carry it, and
    #: in nothing else.
    foreign: ClassVar[bool] = False
    #: Asks what the node does, for the model of an agent that has it as a tool, where that shows only when it runs,
    #: e.g. on the card of a stranger. One whose settings decide that sets it on itself.
    introduce: Callable[[Any], Awaitable[str]] | None = None
    #: The command that puts an improved file with such a node to use, where calling the file is not how it is used; its
    #: first place is the file.
    applied_by: ClassVar[str] = ""
    #: Settings that hold groups of settings by name, and that addresses lead into where the file leaves them out.
    groups: ClassVar[Sequence[str]] = ()
    #: The state of the user code that the settings name: only a node with `loaded` code may run it. Set before
    #: `__init__`, which passes it on to what it reads and to the nodes inside.
    code: Code = "loaded"

    def __init__(self, name: str, config: Any, base: Path):
        self.name, self.config, self.base = name, config, base

    @classmethod
    def make(cls, name: str, config: Any, base: Path, code: Code) -> Self:
        """Make a node with its user code in this state. Raises SpecError."""
        node = cls.__new__(cls)
        node.code = code
        with refused_unless(code):
            node.__init__(name, config, base)
        return node

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the fields that it reads."""
        return ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the fields that it writes."""
        return ()

    @property
    def max_calls(self) -> int:
        """The most LM calls that one run can make, without retries."""
        return 0

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles other than the task whose models the node asks; the file must name a model for each."""
        return ()

    def warnings(self) -> list[str]:
        """List warnings for `validate` and `estimate` about these settings, e.g. that they cost more than they save."""
        return []

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        """Find defects for `validate --deep`: settings that are valid but cannot work. Not of nodes inside.

        It must call, load and start nothing, and be certain: a finding in a workflow that works is a bug.
        """
        return ()

    def tool_names(self) -> Collection[str]:
        """The tools that the node may call, by the names that the rules of `policy:` use. `*`: others, which show when
        it runs."""
        return ()

    @property
    def row_inputs(self) -> Collection[str]:
        """The inputs that come from the row where the node is a tool of an agent; the agent's model fills the others
        and never sees these."""
        return ()

    @property
    def tool_description(self) -> str:
        """Describe the node in a line for the model of an agent that has it as a tool. Never its instructions."""
        return f"Gives {', '.join(self.outputs)}." if self.outputs else ""

    @property
    def input_types(self) -> Mapping[str, Any]:
        """The types of the inputs, as far as they are known."""
        return {}

    @property
    def file_inputs(self) -> Collection[str]:
        """The inputs that a row holds by a path, an address or their bytes, such as images."""
        return ()

    def resolve_input(self, name: str, value: Any, folder: Path) -> Any:
        """Return one of `file_inputs` of a row in the form in which `run` reads it. Called before anything is sent.

        folder: of the row's file, beside which a path may lead. Raises NodeError("data") for what cannot be read.
        """
        return value

    def text_role(self, name: str) -> TextRole:
        """Say what a text is that optimizers may change. name: of the setting, as in `learnable`."""
        return TextRole()

    def children(self) -> Mapping[str, NodeKind]:
        """The nodes inside this one, by the address of the setting that holds them."""
        return {}

    def walk(self) -> Iterator[NodeKind]:
        """This node and all nodes inside it."""
        yield self
        for child in self.children().values():
            yield from child.walk()

    def observe(self, runs: Sequence[Sequence[Span]]) -> Mapping[str, Any] | None:
        """Settings that show only when the node runs, e.g. the prompts of a program that it starts.

        Called once before a search, for a node that may be `observed`. runs: for each of some training rows, the spans
        of the node. Returns the settings to add, which must change nothing that the node does; raises SpecError if the
        runs show that a search would be in vain.
        """
        return None

    @property
    def kept_state(self) -> str | None:
        """Describe state that outlives a row by these settings, as part of a sentence: "the agent keeps its state from
        row to row". Where something does, the report shows no gain. Not of nodes inside."""
        return None

    @property
    def observed(self) -> bool:
        """Return True if `observe` is to be called: the file leaves out what it would add."""
        return False

    def external_inputs(self) -> Any:
        """Return what the node has read from other workflow files, as plain JSON values; None if nothing. A run is not
        resumed once that has changed."""
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
        """A training example for fine-tuning, as a chat.

        The messages are those that the node sends for these inputs; the last one is the answer that it would read as
        these outputs.

        Args:
            values: the inputs and outputs, by field.

        Returns:
            The messages; None if a value is missing, or if the node does not ask a model in this form.
        """
        return None

    def demo(self, span: Span) -> dict[str, Any]:
        """Make a demo of the node from a run of it: its inputs and outputs. A node that calls tools adds the messages
        in between, under the key EXCHANGE: without them the demo would teach to answer without tools."""
        return {**span.inputs, **span.outputs}

    async def run(self, inputs: Mapping[str, Any], ctx: Any) -> Mapping[str, Any]:
        """Run the node on one example. Returns a value for every name in `outputs`.

        Everything with an effect goes through ctx, a `workbench.Context`: so it is paid, journalled and traced.
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
        """The node's own language model; None if it uses that of the workflow."""
        chosen = getattr(self.config, "lm", None)
        return lm_spec(chosen) if chosen is not None else None
