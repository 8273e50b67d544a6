"""Workflows are values: equal content, equal hash; a patch makes a new one and leaves the old one as it was."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st
from tests.helpers.scripted import make_workflow

from workbench.base.hashing import canonical, digest
from workbench.errors import PluginError, SpecError
from workbench.plugins import plugins
from workbench.run import prepare
from workbench.workflow import Patch, Workflow, learnable_addresses, mermaid, setting_at
from workbench.workflow.tree import edit_tree, leaves_of
from workbench.workflow.workflow import _make_node, node_tree
from workbench_mcts.graph_hash import graph_hash

_leaf = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=4))
_key = st.text("abcdef", min_size=1, max_size=3)
_json = st.recursive(
    _leaf, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_key, inner, max_size=3)), max_leaves=8
)
_tree = st.dictionaries(_key, _json, min_size=1, max_size=4)


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value with the keys of all mappings in another order."""
    if isinstance(value, dict):
        items = [(k, shuffled(v, rng)) for k, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [shuffled(v, rng) for v in value] if isinstance(value, list) else value


def addresses(tree: Any, prefix: str = "") -> list[str]:
    """Every address in a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    found = []
    for key, value in items:
        here = f"{prefix}.{key}" if prefix else str(key)
        found += [here, *addresses(value, here)]
    return found


def plain(tree: Any) -> Workflow:
    """Any values, as settings of no node: nodes have a hash only where they can be made."""
    return Workflow({"lm": tree, "nodes": {}}, Path("/"))


# Hashes


@given(tree=_tree, seed=st.integers(0, 9))
def test_the_order_of_keys_does_not_change_the_hash(tree: Any, seed: int) -> None:
    other = shuffled(tree, random.Random(seed))
    assert plain(tree).hash == plain(other).hash and plain(tree) == plain(other)
    assert len({plain(tree), plain(other)}) == 1


@given(one=_tree, two=_tree)
def test_other_content_is_another_hash(one: Any, two: Any) -> None:
    assert (canonical(one) == canonical(two)) == (plain(one).hash == plain(two).hash)


@given(tree=_tree, data=st.data(), value=_json)
def test_any_change_of_content_changes_the_hash(tree: Any, data: st.DataObject, value: Any) -> None:
    workflow = plain(tree)
    address = "lm." + data.draw(st.sampled_from(addresses(tree)))
    assume(canonical(workflow.get(address)) != canonical(value))
    changed = Workflow(edit_tree(workflow.tree, address.split("."), value, address), Path("/"))
    assert changed.hash != workflow.hash and changed.get(address) == value
    back = Workflow(edit_tree(changed.tree, address.split("."), workflow.get(address), address), Path("/"))
    assert back.hash == workflow.hash


def test_name_folder_and_lineage_are_no_content() -> None:
    tree = {"nodes": {"n": {"kind": "predict", "signature": "a -> b"}}}
    same = [
        Workflow({**tree, "name": "a"}, Path("/")),
        Workflow({**tree, "name": "b"}, Path("/tmp")),
        Workflow(tree, Path("/"), "parent", Patch({"nodes.n.kind": "predict"})),
    ]
    assert len(set(same)) == 1
    assert Workflow({**tree, "lm": "openai/a"}, Path("/")) != same[0]
    assert same[0] != "something else" and plain({"a": 1}) != plain({"a": True}) != plain({"a": 1.0})


WRITERS = {
    "draft": {"kind": "predict", "signature": "text -> label"},
    "final": {"kind": "predict", "signature": "text -> label", "instructions": "Think."},
    "thank": {"kind": "predict", "signature": "label -> thanks"},
    "greet": {"kind": "predict", "signature": "text -> greeting"},
}


def ordered(*names: str) -> Workflow:
    return Workflow({"name": "w", "nodes": {name: WRITERS[name] for name in names}})


def test_the_order_of_nodes_counts_where_it_decides_who_reads_what() -> None:
    given = ordered("draft", "final", "thank", "greet")
    assert given == ordered("greet", "draft", "final", "thank"), (
        "who only writes what nobody else does may stand anywhere"
    )
    assert ordered("draft", "thank", "greet") == ordered("greet", "thank", "draft"), "one writer is read from anywhere"
    for other in (ordered("final", "draft", "thank", "greet"), ordered("draft", "thank", "final", "greet")):
        assert dict(other.graph.nodes["thank"]["sources"]) != dict(given.graph.nodes["thank"]["sources"])
        assert other != given and other.tree == given.tree


def test_the_order_of_nodes_in_a_sub_workflow_counts() -> None:
    def inner(*names: str) -> Workflow:
        return Workflow({"name": "w", "nodes": {"all": {"kind": "workflow", "nodes": dict(ordered(*names).nodes)}}})

    assert inner("draft", "final") != inner("final", "draft")


def test_undoing_puts_a_node_back_where_it_stood() -> None:
    given = ordered("draft", "final", "thank")
    patch = Patch(unset=("nodes.draft",))
    undone = given.patched(patch).patched(patch.inverse(given))
    assert undone == given and list(undone.nodes) == list(given.nodes)
    turned = ordered("final", "draft", "thank")
    assert given.patched(Patch.between(given, turned)) == turned


def test_hashes_stay_what_they_are() -> None:
    """They are in databases: a change here makes old runs unreadable."""
    assert digest({"b": [1, 2.5, None], "a": "ü"}) == digest(json.loads('{"a": "ü", "b": [1, 2.5, null]}'))
    assert Workflow({"nodes": {"n": {"kind": "predict", "signature": "a -> b"}}}).hash == "95e1829b2fc6fb9b"
    assert digest("half \ud800") != digest("half \ud801"), "lone surrogates are hashed, not refused"


RECORDED = json.loads((Path(__file__).parents[1] / "data" / "workflow_hashes.json").read_text(encoding="utf-8"))
FILES = Path(__file__).parents[2] / "workflows"


def test_a_node_written_short_inside_others_has_addresses_as_the_normal_form_has() -> None:
    inner = {"map": {"predict": "x -> y"}, "over": "xs", "as": "x"}
    workflow = make_workflow({"n": {"ensemble": inner, "samples": 2}}, Path.cwd())
    addresses = [a for a in learnable_addresses(workflow, "text") if a.endswith("instructions")]
    assert addresses == ["nodes.n.of.of.instructions"]
    changed = workflow.patched({addresses[0]: "Do it.", "nodes.n.of.of.decoding.temperature": 0.5})
    assert changed.get(addresses[0]) == setting_at(changed, addresses[0]) == "Do it."
    assert changed.get("nodes.n.of")["map"]["decoding"] == {"temperature": 0.5} and "of" not in changed.get(
        "nodes.n.of"
    )
    assert changed.patched(changed.patch.inverse(workflow)) == workflow
    assert changed.patched(Patch(unset=(addresses[0],))).get(addresses[0], None) is None
    assert changed.get("nodes.n.of.on", None) is None and changed.get("nodes.n.samples.of", None) is None


def test_the_name_of_a_kind_may_be_a_setting_of_another_kind() -> None:
    source = "def agent(task, inputs): return (yield task)"
    assert node_tree({"program": "a -> b", "source": source, "calls": 2})["kind"] == "program"
    assert node_tree({"calls": "plan -> results", "tools": []})["kind"] == "calls"
    with pytest.raises(SpecError, match="this one names predict, calls"):
        node_tree({"predict": "a -> b", "calls": 2})


#: Files that train: their optimizers import torch.
TRAINED = {"grpo.yaml", "tool_calls.yaml"}


@pytest.mark.parametrize("names", [RECORDED.keys() - TRAINED, pytest.param(TRAINED, marks=pytest.mark.training)])
def test_hashes_of_the_gallery_stay_what_they_are(names: set[str], subtests: pytest.Subtests) -> None:
    """They were recorded at commit 80e7844. Databases and journals know the workflows by them."""
    for name in sorted(names):
        with subtests.test(name=name):
            workflow = prepare(FILES / name)[2].workflow
            assert {"hash": workflow.hash, "graph": graph_hash(workflow)} == RECORDED[name]


def test_a_workflow_has_no_hash_without_the_plugins_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one workflow had two hashes: one where the plugin is there, one where it is not."""
    whole = ordered("draft", "final", "thank", "greet")
    expected = whole.hash
    _make_node.cache_clear()
    with monkeypatch.context() as without:
        without.delitem(plugins()._tables["node_kinds"], "predict")
        with pytest.raises(PluginError, match="unknown node kind 'predict'"):
            _ = ordered("draft", "final", "thank", "greet").hash
    assert ordered("draft", "final", "thank", "greet").hash == expected


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"n": {"kind": "predict", "signature": "a - b"}}, "a - b"),
        ({"n": {"kind": "predict"}}, "signature"),
        ({"n": 1}, "names no kind"),
        ({"n": {}}, "names no kind"),
        ([1], "must be a mapping"),
    ],
)
def test_nodes_that_cannot_be_made_have_no_hash(nodes: Any, words: str) -> None:
    workflow = Workflow({"nodes": nodes, "name": "w"})
    with pytest.raises(SpecError, match=words):
        _ = workflow.hash
    assert repr(workflow) == "<Workflow w >", "a repr raises nothing"


def test_a_workflow_runs_no_code_to_be_known_and_drawn(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("raise AssertionError('this file was run')\ndef look(text): return text\n")
    nodes = {
        "look": {"kind": "tool", "tool": "python:tools.py:look"},
        "ask": {"kind": "agent", "signature": "text -> label", "tools": ["python:tools.py:look"]},
    }
    workflow = Workflow({"nodes": nodes}, tmp_path)
    assert len(workflow.graph) == 2 and workflow.output_fields == ["result", "label"]
    assert workflow == workflow.with_code("outlined") and "ask" in mermaid(workflow)
    assert workflow.input_fields == ["text"] == workflow.with_code("outlined").input_fields
    changed = workflow.patched({"nodes.ask.instructions": "Look first."})
    assert changed != workflow and changed.code == "unread"
    with pytest.raises(SpecError, match="this file was run"):
        workflow.with_code("loaded").check()


def test_a_node_that_is_off_need_not_be_made_for_the_hash() -> None:
    on = {"n": {"kind": "predict", "signature": "a -> b"}}
    assert (
        Workflow({"nodes": {**on, "off": {"kind": "strange", "enabled": False}}}).hash != Workflow({"nodes": on}).hash
    )


def test_a_graph_is_built_once(workflow: Workflow) -> None:
    fresh = Workflow(workflow.tree, workflow.base)
    assert "graph" not in vars(fresh), "and only when it is asked for"
    fresh.check()
    assert fresh.graph is fresh.graph == vars(fresh)["graph"]


# Patches


@pytest.fixture
def workflow(tmp_path: Path) -> Workflow:
    node = {
        "predict": "text -> label",
        "instructions": "Sort.",
        "decoding": {"temperature": 0.5},
        "demos": [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}],
    }
    return make_workflow({"sort": node, "again": {"predict": "label -> label"}}, tmp_path)


def test_a_patch_makes_a_child_and_leaves_its_parent(workflow: Workflow) -> None:
    before, hash_ = copy.deepcopy(workflow.tree), workflow.hash
    patch = Patch(
        {
            "nodes.sort.instructions": "Sort well.",
            "nodes.sort.demos.1.label": "z",
            "nodes.again.decoding.temperature": 0.1,
        },
        ("nodes.sort.decoding",),
        "why",
    )
    child = workflow.patched(patch)
    assert workflow.tree == before and workflow.hash == hash_ and "hash" in vars(workflow)
    assert (child.parent, child.patch, child.base) == (hash_, patch, workflow.base)
    assert child.diff(workflow) == [
        ("nodes.again.decoding.temperature", 0.1, None),
        ("nodes.sort.decoding.temperature", None, 0.5),
        ("nodes.sort.demos", child.get("nodes.sort.demos"), before["nodes"]["sort"]["demos"]),
        ("nodes.sort.instructions", "Sort well.", "Sort."),
    ]
    assert child.get("nodes.sort.demos.1.label") == "z" and workflow.get("nodes.sort.demos.1.label") == "y"
    assert workflow.patched({}) == workflow and workflow.patched({"nodes.sort.samples": 3}, "n").patch.note == "n"  # type: ignore[union-attr]


def test_a_patch_keeps_no_hand_on_the_values_that_it_was_given(workflow: Workflow) -> None:
    demos = [{"text": "c", "label": "x"}]
    child = workflow.patched({"nodes.sort.demos": demos})
    demos[0]["label"] = "changed later"
    demos.append({})
    assert child.get("nodes.sort.demos") == [{"text": "c", "label": "x"}]


@pytest.mark.parametrize(
    "patch",
    [
        Patch({"nodes.srt.instructions.deep": "x"}),
        Patch({"nodes.sort.demos.7.label": "x"}),
        Patch({"nodes.sort.demos.first": {}}),
        Patch({"nodes.sort.instructions.deep": 1}),
        Patch(unset=("nodes.sort.samples",)),
        Patch(unset=("nodes.sort.decoding.top_p",)),
        Patch(unset=("nodes.x.y.z",)),
    ],
)
def test_addresses_that_lead_nowhere_are_key_errors(patch: Patch, workflow: Workflow) -> None:
    before = canonical(workflow.tree)
    with pytest.raises(KeyError) as error:
        workflow.patched(patch)
    assert error.value.args == (*patch.set, *patch.unset), "the address is named"
    assert canonical(workflow.tree) == before


@pytest.mark.parametrize(
    ("address", "value", "words"),
    [
        ("nodes.sort.instruction", "x", "instruction"),
        ("nodes.sort.samples", "many", "samples"),
        ("nodes.sort.samples", 0, "samples"),
        ("nodes.sort.needs", "nobody", "needs unknown node 'nobody'"),
        ("nodes.sort.needs", "again", "form a cycle"),
    ],
)
def test_values_that_a_node_does_not_take_are_refused(address: str, value: Any, words: str, workflow: Workflow) -> None:
    with pytest.raises(SpecError, match=words):
        workflow.patched({address: value})


def test_disabling_and_removing_nodes(workflow: Workflow) -> None:
    assert list(workflow.graph.edges) == [("sort", "again")]
    assert list(workflow.patched({"nodes.again.enabled": False}).graph.nodes) == ["sort"]
    assert list(workflow.patched(Patch(unset=("nodes.again",))).nodes) == ["sort"]
    with pytest.raises(SpecError, match="no node is enabled"):
        workflow.patched({"nodes.again.enabled": False, "nodes.sort.enabled": False})


@given(tree=_tree, data=st.data(), value=_json)
def test_an_edit_touches_only_its_address(tree: Any, data: st.DataObject, value: Any) -> None:
    before = copy.deepcopy(tree)
    everywhere = addresses(tree)
    address = data.draw(st.sampled_from(everywhere))
    edited = edit_tree(tree, address.split("."), value, address)
    assert tree == before
    for other in everywhere:
        if not (f"{other}.").startswith(f"{address}.") and not (f"{address}.").startswith(f"{other}."):
            assert Workflow(edited).get(other) == Workflow(tree).get(other)


@given(one=_tree, two=_tree)
def test_a_diff_names_what_differs_and_nothing_else(one: Any, two: Any) -> None:
    here, there = Workflow(one), Workflow(two)
    changes = here.diff(there)
    assert here.diff(here) == [] and [(a, y, x) for a, x, y in changes] == there.diff(here)
    same = dict(leaves_of(one)).keys() & dict(leaves_of(two)).keys() - {a for a, _, _ in changes}
    assert all(here.get(a, None) == there.get(a, None) for a in same)


def test_get(workflow: Workflow) -> None:
    assert workflow.get("nodes.sort.demos.0.text") == "a" and workflow.get("nodes.sort.samples", 7) == 7
    for address in ("nodes.none", "nodes.sort.demos.9", "nodes.sort.instructions.x", "nodes.sort.demos.x"):
        with pytest.raises(KeyError, match=address):
            workflow.get(address)
