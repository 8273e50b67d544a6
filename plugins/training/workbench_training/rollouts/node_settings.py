"""Settings of a workflow's nodes that training reads or changes, by their addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from workbench import Workflow
from workbench.errors import SpecError
from workbench.runtime import call_tokens, max_tokens
from workbench.spec import LMSpec
from workbench.workflow import NodeKind


def set_max_steps(workflow: Workflow, most: int | None) -> dict[str, Any]:
    """Changes that let all nodes that take steps take at most these; none where it is None."""
    return {} if most is None else dict.fromkeys(_step_settings(workflow), most)


def draw_one_action(workflow: Workflow) -> dict[str, Any]:
    """Changes by which agents draw one answer at a step: that several agree is for use, not for what is learned."""
    return {place: 1 for place, node in find_settings(workflow, ("actions",)) if node.config.actions > 1}


def check_max_steps(workflow: Workflow, wanted: Iterable[tuple[tuple[str | int, ...], int]]) -> None:
    """Each number of steps, with its place among the settings, must be one that some node takes. Raises SpecError."""
    for place, most in wanted:
        if not _step_settings(workflow):
            raise SpecError(
                "no node of the workflow takes steps, so that max_steps has no effect",
                path=place,
                hint="An agent does, states, and tree_search. Leave it out, or add one of these.",
            )
        try:
            workflow.patched(set_max_steps(workflow, most))
        except SpecError as error:
            raise SpecError(f"{most} steps: {error.message}", hint=error.hint, path=place) from None


def _step_settings(workflow: Workflow) -> list[str]:
    """The addresses of the most steps that nodes take, those inside others too."""
    return [place for place, _ in find_settings(workflow, ["max_steps"])]


def find_settings(workflow: Workflow, names: Sequence[str]) -> list[tuple[str, NodeKind]]:
    """(address, node) of the settings with one of these names that nodes take, those inside others too."""
    found: list[tuple[str, NodeKind]] = []

    def walk(prefix: str, node: NodeKind) -> None:
        fields = type(node.config).model_fields
        found.extend((f"{prefix}.{name}", node) for name in names if name in fields)
        for name, child in node.children().items():
            walk(f"{prefix}.{name}", child)

    for name, node in workflow.enabled_nodes.items():
        walk(f"nodes.{name}", node)
    return found


def find_call_limit(workflow: Workflow, address: str, spec: LMSpec) -> int:
    """The output tokens that a call of the LM at an address has at most, over all nodes that ask it."""
    asking = [node for place, node in find_settings(workflow, ("lm",)) if _asked_by(place, node, address)]
    return max([call_tokens(node, spec) for node in asking], default=max_tokens(spec, None))


def _asked_by(place: str, node: NodeKind, address: str) -> bool:
    """True if the node whose setting `lm` is at a place asks the LM at an address."""
    if getattr(node.config, "lm", None) is not None or address == place:
        return address == place
    return address == "lm" or place.startswith(address.removesuffix("lm"))


def find_decoding(tree: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """(address, key) of every temperature and top_p that stands in the nodes."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key in ("temperature", "top_p") and isinstance(value, int | float):
                yield f"{prefix}.{key}", key
            elif key not in ("demos", "lm", "user"):  # a simulated user stays as it is
                yield from find_decoding(value, f"{prefix}.{key}")
