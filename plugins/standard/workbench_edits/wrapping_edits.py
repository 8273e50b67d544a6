"""Edits that wrap a node in another one, or unwrap it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field

from workbench.errors import SpecError
from workbench.workflow import Patch, Tree, Workflow
from workbench_edits.common import find_answering_nodes, has_kind, split_settings
from workbench_kit.searching import Edit, Menu, places, tree_at

#: Makes several answers differ: at temperature 0 they would all be the same.
_TEMPERATURE = 0.7
_WRAPPERS = ("ensemble", "reflect")


def _wrapped(workflow: Workflow, address: str, kind: str, **settings: Any) -> Patch:
    inner, place = split_settings(tree_at(workflow, address))
    if inner["kind"] == kind:
        raise SpecError(f"'{address}' is a node of the kind {kind} already")
    return Patch({address: {"kind": kind, "of": inner, **settings, **place}})


def _unwrapped_answers(workflow: Workflow, kind: str) -> Iterator[str]:
    """Yield addresses of nodes that a model answers and that are not inside a node of this kind."""
    if not has_kind(kind):
        return
    for address, _ in find_answering_nodes(workflow):
        holders = [address.rsplit(".", n)[0] for n in range(1, address.count("."))]
        if not any(isinstance(h := workflow.get(a, None), dict) and _kind(h) == kind for a in holders):
            yield address


def _kind(raw: Mapping[str, Any]) -> str | None:
    return raw.get("kind") or next((k for k in _WRAPPERS if k in raw), None)


def _drawn(tree: Tree) -> Tree:
    """Return a node whose answers differ from draw to draw."""
    if tree["kind"] == "predict":
        decoding = dict(tree.get("decoding") or {})
        return {**tree, "decoding": {**decoding, "temperature": decoding.get("temperature") or _TEMPERATURE}}
    return {**tree, "temperature": tree.get("temperature") or _TEMPERATURE} if tree["kind"] == "agent" else tree


class Ensemble(Edit):
    """Sample a node several times; the most frequent answer counts."""

    samples: int = Field(default=3, ge=2, le=16, description="answers drawn")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        return [cls(node=a, samples=n) for a in _unwrapped_answers(workflow, "ensemble") for n in (3, 5)]

    def changed(self, workflow: Workflow) -> Patch:
        patch = _wrapped(workflow, self.node, "ensemble", samples=self.samples)
        wrapper = patch.set[self.node]
        return Patch({self.node: {**wrapper, "of": _drawn(wrapper["of"])}})


class Refine(Edit):
    """Have an answer criticised and improved."""

    rounds: int = Field(default=1, ge=1, le=4, description="rounds of criticising and improving")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        return [cls(node=a) for a in _unwrapped_answers(workflow, "reflect")]

    def changed(self, workflow: Workflow) -> Patch:
        return _wrapped(workflow, self.node, "reflect", rounds=self.rounds)


class Verify(Edit):
    """Draw several answers and keep the one with the best verifier score."""

    verifier: str | dict[str, Any] = Field(description="python:module.function, or a node that gives `score`")
    samples: int = Field(default=3, ge=2, le=16, description="answers drawn")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        addresses = list(_unwrapped_answers(workflow, "reflect"))
        return [cls(node=a, verifier=v if isinstance(v, str) else dict(v)) for a in addresses for v in menu.verifiers]

    def brings(self) -> Menu:
        return Menu(verifiers=[self.verifier])

    def changed(self, workflow: Workflow) -> Patch:
        settings = {"samples": self.samples, "rounds": 0, "critic": "", "verifier": self.verifier}
        patch = _wrapped(workflow, self.node, "reflect", **settings)
        wrapper = patch.set[self.node]
        return Patch({self.node: {**wrapper, "of": _drawn(wrapper["of"])}})


class Unwrap(Edit):
    """Replace an ensemble or reflect node by the node inside it."""

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        found = [(a, workflow.get(a, None)) for a, node in places(workflow) if node.children()]
        return [cls(node=a) for a, raw in found if isinstance(raw, dict) and _kind(raw) in _WRAPPERS]

    def changed(self, workflow: Workflow) -> Patch:
        tree = tree_at(workflow, self.node)
        if tree["kind"] not in _WRAPPERS or not isinstance(tree.get("of"), dict):
            raise SpecError(f"'{self.node}' holds no single node that could take its place")
        return Patch({self.node: {**tree_at(workflow, f"{self.node}.of"), **split_settings(tree)[1]}})
