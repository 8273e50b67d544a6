"""Node kinds: the contract for one step of a workflow, and the graph that the steps form."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.errors import PluginError, SpecError, suggest, together
from workbench.graph import build_graph, fields_from_outside
from workbench.lm import Message, Response
from workbench.plugins import plugins
from workbench.policy import PolicySpec
from workbench.signature import Signature
from workbench.spec import NODE_KEYS, LMSpec, spec_error
from workbench.workflow import Tree, Workflow

if TYPE_CHECKING:
    import networkx

    from workbench.trace import Span
    from workbench.yamlsource import Source

#: Key of a demo: the messages between its inputs and its answer, e.g. calls of tools and their results.
EXCHANGE = "_exchange"


class NodeContext(Protocol):
    """What a running node may use: everything with an effect goes through here, so that it is paid, journalled and traced.

    `workbench.Context` is one. Raises of each method: see there.
    """

    node: str  # its path, e.g. `vote.of`

    async def complete(self, messages: Sequence[Message], *, lm: LMSpec | None = None, replica: int = 0,
                       role: str = "task", **settings: Any) -> Response:  # fmt: skip
        """Ask the node's language model. Another replica is a fresh sample, where there is sampling."""
        ...

    async def embed(self, texts: Sequence[str], lm: LMSpec, role: str = "task") -> list[Sequence[float]]:
        """A vector for each text."""
        ...

    async def effect(self, kind: str, content: Any, run: Callable[[], Awaitable[Any]]) -> Any:
        """Run a tool or another effect once for this place in this example; its result must be JSON."""
        ...

    async def sandboxed(self, source: str, function: str, arguments: Mapping[str, Any], *,
                        timeout: float = 5.0) -> dict[str, Any]:  # fmt: skip
        """Call a function of a source in the sandbox."""
        ...

    async def run_child(self, node: NodeKind, name: str, inputs: Mapping[str, Any], replica: int = 0,
                        agent: str | None = None, policy: PolicySpec | None = None) -> Mapping[str, Any]:  # fmt: skip
        """Run a node inside this one."""
        ...

    def note(self, **values: Any) -> None:
        """Record something on the span, e.g. that a fallback read the answer."""
        ...

    def step(self, state: str, earned: float) -> None:
        """Say of the latest call that it was a step in an environment: the state it was taken in, and what it earned."""
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
        """What it has read from other workflow files and its settings do not hold, as plain JSON values; None for nothing. A
        run in which that has changed is not resumed."""
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
        """One of the node's `demos`, made from a run of it: the inputs and the outputs. A node that calls tools on the way adds
        what was said in between, under the key EXCHANGE: without it the demo would teach to answer without them."""
        return {**span.inputs, **span.outputs}

    async def run(self, inputs: Mapping[str, Any], ctx: NodeContext) -> Mapping[str, Any]:
        """Give a value for every name in `outputs`."""
        raise NotImplementedError


class SignatureNode(NodeKind):
    """A node whose fields are those of its `signature`, which the subclass sets; with `lm` among its settings, maybe."""

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
        from workbench.pool import lm_spec

        chosen = getattr(self.config, "lm", None)
        return lm_spec(chosen) if chosen is not None else None


def node_tree(raw: Mapping[str, Any], fail: Callable[[tuple[str | int, ...], str, str | None], Exception]) -> Tree:
    """A node as written (`{predict: ..., instructions: ...}`) in its normal form (`{"kind": "predict", ...}`).

    fail(path, message, hint) makes the error to raise.
    """
    known = plugins().names("node_kinds")
    if "kind" in raw:  # the normal form itself, as exported
        kinds = [raw["kind"]]
        rest = {k: v for k, v in raw.items() if k != "kind"}
    else:
        kinds = [key for key in raw if key in known]
        rest = dict(raw)
    if len(kinds) != 1 or kinds[0] not in known:
        if kinds:
            raise fail((), f"a node has one kind, this one names {', '.join(map(str, kinds))}", None)
        others = [k for k in raw if k not in NODE_KEYS]
        hint = suggest(str(others[0]), known) if others else f"Known: {', '.join(known)}."
        if others and plugins().set_aside:
            hint += f" Plugins that failed to load: {', '.join(sorted(plugins().set_aside))}."
        raise fail((others[0],) if others else (), "no node kind is named here", hint)
    for key in ("optional", "enabled"):
        if not isinstance(raw.get(key, True), bool):
            raise fail((key,), f"{key} must be true or false, not {raw[key]!r}", None)
    kind = kinds[0]
    cls = node_class(kind)
    if kind in rest:
        rest = {cls.primary: rest.pop(kind), **rest}
    return {"kind": kind, **rest}


def node_class(kind: str) -> type[NodeKind]:
    cls = plugins().get("node_kinds", kind)
    if not (isinstance(cls, type) and issubclass(cls, NodeKind)):
        raise PluginError(f"node kind '{kind}' is no subclass of workbench.NodeKind")
    return cls


def make_node(name: str, tree: Tree, base: Path) -> NodeKind:
    """The node for a normal-form tree; equal trees share one object. Raises pydantic's ValidationError."""
    # Not sorted: the order of what is inside (nodes of a sub-workflow, states) may have a meaning.
    return _make_node(name, json.dumps(tree, ensure_ascii=False, default=str), base)


@lru_cache(maxsize=4096)
def _make_node(name: str, text: str, base: Path) -> NodeKind:
    tree = json.loads(text)
    cls = node_class(tree["kind"])
    settings = {k: v for k, v in tree.items() if k != "kind" and k not in NODE_KEYS}
    return cls(name, cls.Config.model_validate(settings), base)


def check_nodes(workflow: Workflow, source: Source | None = None) -> networkx.DiGraph:
    """The graph of a workflow whose nodes can all be made, the disabled ones too.

    Raises SpecError, with its place in the file if source is given, and PluginError.
    """
    _made(workflow, workflow.nodes, source)

    def fail(path: tuple[str | int, ...], message: str, hint: str | None) -> SpecError:
        return SpecError(message, hint=hint, path=path) if source is None else source.error(path, message, hint)

    return build_graph(enabled(workflow), workflow.nodes, fail)


def made_nodes(workflow: Workflow) -> dict[str, NodeKind]:
    """The nodes that take part, of trees that nothing has checked yet. Raises SpecError and PluginError."""
    trees = workflow.nodes
    if not isinstance(trees, dict):
        raise SpecError("the nodes must be a mapping", hint="Write each node under its name.", path=("nodes",))
    for name, tree in trees.items():
        if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str):
            raise SpecError(
                f"node '{name}' names no kind", hint="Write e.g. {kind: predict, ...}.", path=("nodes", name)
            )
    return _made(workflow, {name: tree for name, tree in trees.items() if tree.get("enabled", True)}, None)


def _made(workflow: Workflow, trees: Tree, source: Source | None) -> dict[str, NodeKind]:
    made, wrong = dict[str, NodeKind](), list[SpecError]()
    for name, tree in trees.items():
        try:
            made[name] = make_node(name, tree, workflow.base)
        except ValidationError as error:
            cls = node_class(tree["kind"])
            wrong.append(spec_error(_Placed(source, tree, cls), error, cls.Config, ("nodes", name)))
        except SpecError as error:
            place = _Placed(source, tree, node_class(tree["kind"]))
            wrong.append(place.error(("nodes", name, *error.path), error.message, error.hint))
    if wrong:
        raise together(wrong)
    return made


class _Placed:
    """Errors about a node at their place in the file, or without place where there is no file."""

    def __init__(self, source: Source | None, tree: Tree, cls: type[NodeKind]):
        self.source, self.kind, self.primary = source, tree["kind"], cls.primary

    def error(self, path: tuple[str | int, ...], message: str, hint: str | None = None) -> SpecError:
        if self.source is None:
            return SpecError(message, hint=hint, path=path)
        if len(path) > 2 and path[2] == self.primary:  # written as `predict: ...`
            path = (*path[:2], self.kind, *path[3:])
        return self.source.error(path, message, hint)


def enabled(workflow: Workflow) -> dict[str, NodeKind]:
    """The nodes that take part, in the order of the file."""
    return {
        name: make_node(name, tree, workflow.base) for name, tree in workflow.nodes.items() if tree.get("enabled", True)
    }


def calls_of(workflow: Workflow) -> int:
    """The most LM calls for one example, retries not counted."""
    return sum(node.max_calls for node in enabled(workflow).values())


def input_fields(workflow: Workflow) -> list[str]:
    """The fields that the workflow reads from an example: read by a node, written by none before it."""
    return fields_from_outside(workflow.graph)


def learnable(workflow: Workflow, kind: str | None = None) -> dict[str, str]:
    """Addresses that optimizers may change and what each is; only those of one kind (e.g. "demos") if given."""
    found: dict[str, str] = {}

    def walk(prefix: str, node: NodeKind) -> None:
        found.update({f"{prefix}.{name}": what for name, what in node.learnable.items()})
        for name, child in node.children().items():
            walk(f"{prefix}.{name}", child)

    for name, node in enabled(workflow).items():
        walk(f"nodes.{name}", node)
    return {a: w for a, w in found.items() if kind is None or w == kind}


def all_nodes(workflow: Workflow) -> Iterator[NodeKind]:
    """The enabled nodes and those inside them."""
    return with_inner(enabled(workflow).values())


def with_inner(nodes: Iterable[NodeKind]) -> Iterator[NodeKind]:
    """Nodes and those inside them."""
    for node in nodes:
        yield node
        yield from with_inner(node.children().values())


def node_at(workflow: Workflow, address: str) -> NodeKind:
    """The innermost node whose setting an address names. Raises KeyError."""
    parts = address.split(".")
    if parts[0] != "nodes" or len(parts) < 2 or parts[1] not in workflow.nodes:
        raise KeyError(address)
    node, path = make_node(parts[1], workflow.nodes[parts[1]], workflow.base), parts[2:]
    while path:
        children = node.children()
        match = next((k for k in children if path[: len(k.split("."))] == k.split(".")), None)
        if match is None:
            break
        node, path = children[match], path[len(match.split(".")) :]
    return node


def setting(workflow: Workflow, address: str) -> Any:
    """The value in force at an address: as written, else the default of its node; None where there is neither."""
    value = workflow.get(address, None)
    if value is not None or not address.startswith("nodes."):
        return value
    name, config = address.rpartition(".")[2], node_at(workflow, address).config
    return next((getattr(config, n) for n, f in type(config).model_fields.items() if name in (n, f.alias)), None)


def text_at(workflow: Workflow, address: str) -> str:
    """The text in force at an address; empty where there is none."""
    return str(setting(workflow, address) or "")
