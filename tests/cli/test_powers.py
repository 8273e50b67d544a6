"""What a stranger's file may do is what its things declare, in every form in which the loader takes them; and what was
asked about is what runs. Numbers are those of the security review."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.strangers import enter_with_programs, invoke, write

from workbench.cli.trust.powers import file_powers
from workbench.inference import read_workflow
from workbench.plugins import plugins
from workbench.spec import declared_powers
from workbench.workflow import Workflow, node_class


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a stranger's files. Nothing is trusted."""
    return enter_with_programs(tmp_path, monkeypatch)


def found_in(**changes: Any) -> str:
    return "\n".join(file_powers(write(**changes)).lines())


# 1: every form


EVIL = {"kind": "tool", "tool": "mcp:evil#t"}
LEAK = {"model": "x/y", "api_base": "http://e.org", "api_key_env": "K"}
#: The settings of nodes that do something, by kind, and what that is.
NODES: dict[str, tuple[dict[str, Any], str]] = {
    "agent": ({"signature": "text -> a", "tools": ["python:p1.py:f"]}, "python:p1.py:f"),
    "branch": ({"on": "text", "cases": {"x": {"kind": "tool", "tool": "python:p1.py:f"}}}, "python:p1.py:f"),
    "browse": ({"corpus": "../secret.jsonl"}, "../secret.jsonl"),
    "calls": ({"calls": "plan -> made, results", "tools": ["mcp:evil#t"]}, "evil"),
    "dspy": ({"module": "python:p1.py:f", "signature": "a -> b"}, "python:p1.py:f"),
    "dylan": ({"of": {"agent": "a -> b", "tools": ["mcp:evil#t"]}, "members": {"a": ""}}, "evil"),
    "ensemble": ({"of": [{"kind": "tool", "tool": "python:p1.py:f"}]}, "python:p1.py:f"),
    "external": ({"signature": "text -> a", "python": "p1.py:f"}, "p1.py:f"),
    "loop": ({"of": {"kind": "tool", "tool": "python:p1.py:f"}, "gather": {"all": "result"}}, "python:p1.py:f"),
    "map": ({"over": "a", "nodes": {"x": {"kind": "tool", "tool": "mcp:evil#t"}}, "of": None}, "evil"),
    "tree": ({"carry": {"a": ""}, "judge": {"kind": "tool", "tool": "python:p1.py:f"}}, "python:p1.py:f"),
    "play": ({"play": "python:p1.py:World", "of": {"predict": "observation -> action"}}, "python:p1.py:World"),
    "predict": ({"signature": "text -> a", "types": {"T": "p1.py:T"}}, "p1.py:T"),
    "program": (
        {"signature": "text -> a", "lm": {"model": "x/y", "api_base": "http://e.org", "api_key_env": "K"}},
        "K to",
    ),
    "recall": (
        {"signature": "a -> b", "embedder": {"model": "x/y", "api_base": "http://e.org", "api_key_env": "K"}},
        "K to",
    ),
    "reflect": ({"of": {"predict": "a -> b"}, "verifier": "python:p1.py:f"}, "python:p1.py:f"),
    "route": ({"candidates": {"a": {"kind": "tool", "tool": "mcp:evil#t"}}}, "evil"),
    "search": ({"corpus": "/etc"}, "/etc"),
    "selforg": ({"of": {"kind": "tool", "tool": "mcp:evil#t"}, "members": {"a": ""}}, "evil"),
    "simulated_search": ({"lm": LEAK}, "K to e.org"),
    "states": (
        {"states": {"a": {"run": "python:p1.py:f", "next": "end"}}, "signature": "a -> b", "start": "a"},
        "p1.py",
    ),
    "tool": ({"tool": "python:p1.py:f"}, "python:p1.py:f"),
    "tree_search": ({"environment": "gymnasium", "settings": {"id": "p1:World-v0"}}, "p1:World-v0"),
    "workflow": ({"nodes": {"x": {"kind": "external", "signature": "a -> b", "mcp": "touch RAN#tool"}}}, "touch RAN"),
}
#: Kinds whose settings lead nowhere.
HARMLESS = {"code", "remember"}


def short(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    primary = node_class(kind).primary
    rest = {key: value for key, value in settings.items() if key != primary}
    return {kind: settings.get(primary, "a -> b"), **rest}


@pytest.mark.parametrize("kind", NODES)
def test_finding_1_both_forms_of_a_node_have_the_same_powers(folder: Path, kind: str) -> None:
    settings, said = NODES[kind]
    forms = [
        {"kind": kind, **settings},
        short(kind, settings),
        {"kind": kind, **short(kind, settings)},
    ]
    lines = [found_in(nodes={"n": form}) for form in forms]
    assert said in lines[0] and len(set(lines)) == 1
    inside = {"kind": "ensemble", "of": forms[0]}
    assert said in found_in(nodes={"n": inside}) and said in found_in(nodes={"n": {"ensemble": [forms[1]]}})
    searched = {"nodes.sort": {"any_of": {"other": forms[0]}}}
    assert said in found_in(search=searched)
    assert not Path("RAN").exists()


#: The setting of a kind that `search:` alone gives, where it is not the last one in the table.
SEARCHED = {"play": "play", "program": "lm", "reflect": "verifier", "tree_search": "settings"}
#: What keeps an option of a kind from doing anything before the setting is searched, by setting.
QUIET: dict[str, Any] = {"tools": [], "of": {"predict": "text -> a"}, "cases": {}, "candidates": {}, "states": {}}


def searched_setting(kind: str) -> str:
    settings, _ = NODES[kind]
    declared = declared_powers("node_kinds", kind)
    named = [name for name in settings if isinstance(declared, dict) and name in declared and settings[name]]
    return SEARCHED.get(kind) or named[0]


@pytest.mark.parametrize("kind", NODES)
def test_a_power_counts_wherever_the_loader_may_put_it(folder: Path, kind: str) -> None:
    """Each kind and its power: both written, the setting searched, the kind chosen as well, and all of it nested."""
    settings, said = NODES[kind]
    name = searched_setting(kind)
    quiet = {"kind": kind, **settings, name: QUIET.get(name)}
    plain = {"predict": "text -> label"}
    slot = {"any_of": {"other": quiet}}
    assert said not in found_in(nodes={"n": quiet})
    ways: dict[str, dict[str, Any]] = {
        "searched": {"nodes": {"n": quiet}, "search": {f"nodes.n.{name}": [settings[name]]}},
        "chosen": {"nodes": {"n": plain}, "search": {"nodes.n": slot, f"nodes.n.{name}": [settings[name]]}},
        "chosen if": {
            "nodes": {"n": plain},
            "search": {f"nodes.n.{name}": {"choice": [settings[name]], "when": {"nodes.n": "other"}}, "nodes.n": slot},
        },
        "chosen inside": {
            "nodes": {"n": {"ensemble": plain}},
            "search": {"nodes.n.of": slot, f"nodes.n.of.{name}": [settings[name]]},
        },
        "chosen twice": {
            "nodes": {"n": plain},
            "search": {
                "nodes.n": {"any_of": {"vote": {"ensemble": plain}}},
                "nodes.n.of": slot,
                f"nodes.n.of.{name}": [settings[name]],
            },
        },
        "in a workflow": {
            "nodes": {"n": {"kind": "workflow", "nodes": {"in": plain}}},
            "search": {"nodes.n.nodes.in": slot, f"nodes.n.nodes.in.{name}": [settings[name]]},
        },
        "kind searched": {
            "nodes": {"n": plain},
            "search": {"nodes.n.kind": [kind], **{f"nodes.n.{key}": [value] for key, value in settings.items()}},
        },
    }
    if kind != "tree_search":  # whose environment is in the file that is read
        search = {f"nodes.n.nodes.x.{name}": [settings[name]]}
        ways["into a node of a file"] = {"nodes": {"n": {"workflow": "in.yaml"}}, "search": search}
    for way, changes in ways.items():
        assert said in found_in(**json.loads(json.dumps(changes))), way


def test_every_node_kind_stands_in_the_table_above() -> None:
    assert {*NODES} | HARMLESS == {*plugins().names("node_kinds")}


def test_finding_1_no_command_runs_the_normal_form_unasked(folder: Path) -> None:
    for name, way in {"a.yaml": {"python": "p1.py:f"}, "b.yaml": {"mcp": "touch RAN#tool"}}.items():
        write(name, nodes={"agent": {"kind": "external", "signature": "text -> label", **way}})
        for words in (["run", name, "--input", "text=x"], ["eval", name], ["optimize", name], ["agent", "slots", name]):
            assert "is not trusted yet" in str(invoke(*words).exception), words
    assert not Path("RAN").exists()


#: Other ways to the same: what the loader takes, and the old reading of texts did not see.
SIBLINGS: dict[str, tuple[dict[str, Any], str]] = {
    "both keys": ({"nodes": {"n": {"kind": "external", "external": "a -> b", "python": "p1.py:f"}}}, "p1.py:f"),
    "two kinds": ({"nodes": {"n": {"predict": "a -> b", "external": "a -> b", "python": "p1.py:f"}}}, "p1.py:f"),
    "setting that is searched": (
        {"nodes": {"n": {"external": "a -> b", "command": ["x"]}}, "search": {"nodes.n.python": ["p1.py:f"]}},
        "p1.py:f",
    ),
    "setting in a setting": (
        {"nodes": {"n": {"ensemble": {"agent": "a -> b"}}}, "search": {"nodes.n.of.tools": [["mcp:evil#t"]]}},
        "evil",
    ),
    "item that is searched": (
        {
            "nodes": {"n": {"agent": "a -> b", "tools": ["sandbox:session"]}},
            "search": {"nodes.n.tools.0": ["mcp:evil#t"]},
        },
        "evil",
    ),
    "two that are searched": (
        {
            "nodes": {"n": {"tree_search": "grid"}},
            "search": {"nodes.n.environment": ["gymnasium"], "nodes.n.settings.id": ["p1:W-v0"]},
        },
        "p1:W-v0",
    ),
    "key and server that are searched": (
        {"lm": "openai/x", "search": {"lm.api_base": ["http://e.org"], "lm.api_key_env": ["K"]}},
        "K to e.org",
    ),
    "image that is searched": (
        {"nodes": {"n": {"external": "a -> b", "command": ["x"]}}, "search": {"nodes.n.image": {"choice": ["evil:1"]}}},
        "evil:1",
    ),
    "nodes of a configuration": ({"configurations": [{"nodes": {"n": EVIL}}]}, "evil"),
    "optimizer in an optimizer": ({"optimize": [{"fgo": {"optimizer": {"mcts": {"tools": ["mcp:evil#t"]}}}}]}, "evil"),
    "optimizer that is tuned": (
        {"optimize": [{"tune": {"optimizer": "mcts", "search": {"verifiers": [["python:p1.py:f"]]}}}]},
        "p1.py:f",
    ),
    "server of a training": ({"optimize": [{"sft": {"server": {}}}]}, "vllm serve"),
    "address of a training": ({"optimize": [{"dpo": {"server": "http://10.0.0.1:8000"}}]}, "10.0.0.1"),
    "rows of a training": ({"optimize": [{"sft": {"mixture": "../chats.jsonl"}}]}, "../chats.jsonl"),
    "file of a metric": ({"metric": {"induced": {"file": "../m.yaml"}}}, "../m.yaml"),
    "second metric": ({"metric": ["exact_match(label)", "python:p1.py:f"]}, "p1.py:f"),
    "labels of the proof": ({"proof": {"labels": "../labels.jsonl"}}, "../labels.jsonl"),
    "credentials of a model": (
        {"lm": {"model": "litellm/vertex_ai/x", "extra": {"vertex_credentials": "/etc/hostname"}}},
        "/etc/hostname",
    ),
    "type": ({"types": {"T": "p1.py:T"}}, "p1.py:T"),
    "demo that looks like a node": (
        {"nodes": {"n": {"predict": "a -> b", "demos": [{"kind": "agent", "functions": ["in.yaml"]}]}}},
        "p1.py:f",
    ),
    "model of a slot": (
        {"nodes": {"n": {"external": "a -> b", "command": ["x"], "slots": {"s": {"in": "system", "lm": LEAK}}}}},
        "K to e.org",
    ),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_finding_1_siblings(folder: Path, name: str) -> None:
    """Attacks of the kind "a guard that reads the file a second time by its own rules"."""
    Path("in.yaml").write_text(yaml.safe_dump({"nodes": {"n": {"tool": "python:p1.py:f"}}}))
    changes, said = SIBLINGS[name]
    assert said in found_in(**changes)
    for words in (["eval", "workflow.yaml"], ["optimize", "workflow.yaml"]):
        assert "is not trusted yet" in str(invoke(*words).exception)
    assert not Path("RAN").exists()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"each": {"a": EVIL}}, "evil"),
        ({"explode": {"a": "b"}, "each": {"a": {"ensemble": [EVIL]}}}, "evil"),
        ({"keep": "python:p1.py:f"}, "python:p1.py:f"),
        ({"keep": ["a == 'b'", {"induced": {"file": "../m.yaml"}}]}, "../m.yaml"),
        ({"synthesize": "../secret.jsonl"}, "../secret.jsonl"),
        ({"synthesize": {"from": "../secret.jsonl", "as": "trajectories"}}, "../secret.jsonl"),
    ],
)
def test_what_a_file_of_synthesize_does_is_asked_about(folder: Path, own: dict[str, Any], said: str) -> None:
    Path("seeds.jsonl").write_text('{"text": "a"}')
    file = {"lm": "bundled/nano", "nodes": {"t": {"predict": "text -> a"}}, "synthesize": "seeds.jsonl", **own}
    Path("s.yaml").write_text(yaml.safe_dump(file))
    refused = str(invoke("data", "synthesize", "s.yaml", "--out", "out.jsonl").exception)
    assert "is not trusted yet" in refused and said in refused
    Path("s.yaml").write_text(yaml.safe_dump({**file, "keep": "a == 'b'", "each": {}, "synthesize": "seeds.jsonl"}))
    assert "is not trusted yet" not in str(invoke("data", "synthesize", "s.yaml", "--out", "out.jsonl").exception)


def test_a_search_too_large_to_look_through_is_asked_about_and_costs_little(folder: Path) -> None:
    nodes = {"n": {"predict": "a -> b", "instructions": "x" * 50_000}}
    search = {"nodes.n.name": [f"text {i}" for i in range(5000)]}
    path, begun = write(nodes=nodes, search=search), time.process_time()
    assert "more values under `search:` than are looked at" in "\n".join(file_powers(path).lines())
    assert time.process_time() - begun < 30


# 2: nodes made later


@pytest.mark.parametrize("code", ["unread", "outlined"])
def test_finding_2_a_workflow_that_was_read_without_code_runs_none_later(folder: Path, code: Any) -> None:
    nodes = {
        "t": {"tool": "python:p1.py:f", "arguments": {"text": "text"}, "output": "r"},
        "e": {"ensemble": {"agent": "text -> label", "tools": ["python:other.py:f"]}},
    }
    tree = {"nodes": {"t": {"kind": "tool", **nodes["t"]}, "e": {"kind": "ensemble", "of": nodes["e"]["ensemble"]}}}
    workflow = Workflow(tree, folder, code=code)
    for made in (workflow, workflow.with_tree(tree)):
        for node in made.walk():
            _ = [*node.children(), *node.tool_names(), node.max_calls, node.inputs]
        _ = made.hash, made.max_calls, made.patched({"nodes.e.of.instructions": "x"}).max_calls
    assert not Path("RAN").exists()


def test_finding_2_apply_asks_about_a_strangers_file(folder: Path) -> None:
    nodes = {"t": {"tool": "python:p1.py:f"}, "a": {"predict": "text, result -> label"}}
    refused = invoke("agent", "apply", str(write(nodes=nodes)), "--to", ".")
    assert "is not trusted yet" in str(refused.exception)
    assert invoke("trust", "workflow.yaml").exit_code == 0
    assert "No text of an agent was changed." in invoke("agent", "apply", "workflow.yaml", "--to", ".").output
    assert not Path("RAN").exists(), "apply looks at texts alone"


# 15: addresses


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.org/ask", "asks an address: https://example.org/ask"),
        ("http://127.0.0.1:18801/admin", "a service of this machine"),
        ("http://localhost.:1/", "a service of this machine"),
        ("http://2130706433/", "a service of this machine"),
        ("http://0x7f.1/", "a service of this machine"),
        ("http://[::ffff:127.0.0.1]/", "a service of this machine"),
        ("http://0.0.0.0:1/", "a service of this machine"),
        ("http://169.254.169.254/latest", "as clouds have for its keys"),
        ("http://[fe80::1]/", "as clouds have for its keys"),
        ("http://192.168.1.1/", "in a private network"),
    ],
)
def test_finding_15_an_address_that_is_no_models_is_asked_about(folder: Path, url: str, said: str) -> None:
    for head in ({"external": "text -> seen"}, {"kind": "external", "signature": "text -> seen"}):
        assert said in found_in(nodes={"a": {**head, "url": url}})
    assert "is not trusted yet" in str(invoke("run", "workflow.yaml", "--input", "text=x").exception)


def test_finding_15_a_models_address_beside_the_machine_is_asked_about(folder: Path) -> None:
    assert "169.254.169.254" in found_in(lm={"model": "openai/x", "api_base": "http://169.254.169.254/v1"})
    assert found_in(lm={"model": "openai/x", "api_base": "http://127.0.0.1:8000/v1"}) == ""


def test_a_workflow_read_for_a_look_keeps_the_names_of_its_classes(folder: Path) -> None:
    write(nodes={"n": {"external": "text -> label", "command": ["true"]}})
    node = next(iter(read_workflow(Path("workflow.yaml"), (), "unread")[2].enabled_nodes.values()))
    assert isinstance(node, node_class("external"))
    assert (type(node).__name__, type(node).__module__) == ("External", "workbench_external.node")
    assert os.path.basename(str(node.base)) == "found"
