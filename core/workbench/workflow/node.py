"""A node: the contract for one step of a workflow, and what it may use while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from workbench.lm import Message, Response
from workbench.spec import LMSpec, PolicySpec, lm_spec
from workbench.workflow.signature import Signature
from workbench.workflow.trace import Span

if TYPE_CHECKING:
    import networkx


#: Key of a demo: the messages between its inputs and its answer, e.g. calls of tools and their results.
EXCHANGE = "_exchange"


class NodeContext(Protocol):
    """What a running node may use: everything with an effect goes through here, so that it is paid, journalled and
    traced.

    `workbench.Context` is one. Raises of each method: see there.
    """

    node: str  # its path, e.g. `vote.of`

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        lm: LMSpec | None = None,
        replica: int = 0,
        role: str = "task",
        **settings: Any,
    ) -> Response:
        """Ask the node's language model. Another replica is a fresh sample, where there is sampling."""
        ...

    async def embed(self, texts: Sequence[str], lm: LMSpec, role: str = "task") -> list[Sequence[float]]:
        """A vector for each text."""
        ...

    async def effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a tool or another effect once for this place in this example; its result must be JSON."""
        ...

    async def sandboxed(
        self, source: str, function: str, arguments: Mapping[str, Any], *, timeout: float = 5.0
    ) -> dict[str, Any]:
        """Call a function of a source in the sandbox."""
        ...

    async def run_child(
        self,
        node: NodeKind,
        name: str,
        inputs: Mapping[str, Any],
        replica: int = 0,
        agent: str | None = None,
        policy: PolicySpec | None = None,
    ) -> Mapping[str, Any]:
        """Run a node inside this one."""
        ...

    def note(self, **values: Any) -> None:
        """Record something on the span, e.g. that a fallback read the answer."""
        ...

    def step(self, state: str, earned: float) -> None:
        """Say of the latest call that it was a step in an environment: the state it was taken in, and what it
        earned."""
        ...


class NodeConfig(BaseModel):
    """Base of a kind's settings: unknown keys are refused, every field has a description."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NodeKind:
    """One step of a workflow. Subclass it, set `Config` and `primary`, and write `run`.

    A node is made once for each distinct setting and then shared, so `run` keeps no state in self. It may raise
    NodeError (a typed failure of this example) or anything else (recorded as a failure with its type).
    """

    Config: ClassVar[type[NodeConfig]] = NodeConfig
    primary: ClassVar[str] = ""  # the field that `kind: VALUE` fills
    #: settings that optimizers may change, and what they are: text, demos, int, float, choice, nodes, tools
    learnable: ClassVar[Mapping[str, str]] = {}

    def __init__(self, name: str, config: Any, base: Path):
        self.name, self.config, self.base = name, config, base

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
        """The most LM calls that one run of it makes, retries not counted."""
        return 0

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles besides the task's whose model it asks; the file must name one for each."""
        return ()

    def advice(self) -> list[str]:
        """What `validate` and `estimate` should tell about these settings, e.g. that they cost more than they save."""
        return []

    def called(self) -> Collection[str]:
        """Names of the tools that it may call, as the rules of `policy:` know them."""
        return ()

    def children(self) -> Mapping[str, NodeKind]:
        """Nodes inside this one, by the setting that holds them."""
        return {}

    def referred(self) -> Any:
        """What it has read from other workflow files and its settings do not hold, as plain JSON values; None for
        nothing. A run in which that has changed is not resumed."""
        return None

    def diagram(self) -> networkx.DiGraph | None:
        """What is inside, as `workbench show --mermaid` draws it; None for a node that is one box.

        A vertex that is a key of `children` is drawn as that node, with what is inside it. Attributes of vertices:
        label, and shape: box, round or circle. Of edges: label. By default the children, without edges.
        """
        import networkx

        if not self.children():
            return None
        graph = networkx.DiGraph()
        graph.add_nodes_from(self.children())
        return graph

    def worked(self, values: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """A worked example as a chat: what the node asks for these inputs and, as the last message, an answer that it
        reads as these outputs. Fine-tuning learns from it. None where a value is missing, or where the node does not
        ask a model exactly so."""
        return None

    def demo(self, span: Span) -> dict[str, Any]:
        """One of the node's `demos`, made from a run of it: the inputs and the outputs. A node that calls tools on the
        way adds what was said in between, under the key EXCHANGE: without it the demo would teach to answer without
        them."""
        return {**span.inputs, **span.outputs}

    async def run(self, inputs: Mapping[str, Any], ctx: NodeContext) -> Mapping[str, Any]:
        """Give a value for every name in `outputs`."""
        raise NotImplementedError


class SignatureNode(NodeKind):
    """A node whose fields are those of its `signature`, which the subclass sets; with `lm` among its settings,
    maybe."""

    signature: Signature

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.outputs)

    @cached_property
    def lm(self) -> LMSpec | None:
        """The node's own language model; None for that of the workflow."""
        chosen = getattr(self.config, "lm", None)
        return lm_spec(chosen) if chosen is not None else None
