"""Nothing of a stranger's file acts before the user was asked: what the loader may make of it passes a door first, and
what did not pass one is refused when it would act. Numbers are those of the security reviews."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.strangers import PAYLOAD, enter_with_programs, invoke, write

from workbench.cli import trust
from workbench.cli.trust.needs import collect_needs
from workbench.errors import PluginError, SpecError
from workbench.inference import read_workflow
from workbench.plugins import plugins
from workbench.run import prepare
from workbench.spec import (
    Consent,
    allow,
    collecting,
    guard,
    lm_spec,
    load_user_code,
    read_outside,
    read_user_code,
    unguard,
)
from workbench.task import check_lms
from workbench.workflow import Workflow, node_class
from workbench_kit.acting import tools_at


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a stranger's files. Nothing is trusted."""
    found = enter_with_programs(tmp_path, monkeypatch)
    Path("in.yaml").write_text(yaml.safe_dump({"nodes": {"n": {"tool": "python:p1.py:f", "output": "label"}}}))
    Path("../docs").mkdir()
    Path("../docs/a.txt").write_text("a")
    Path("docs.jsonl").write_text('{"id": "1", "text": "a"}\n')
    return found


def found_in(**changes: Any) -> str:
    return "\n".join(collect_needs(write(**changes)).lines())


def is_valid(**changes: Any) -> bool:
    """Return True if the loader takes the file where all doors are open."""
    try:
        prepare(write(**changes), (), "outlined")
        return True
    except (SpecError, PluginError):
        return False


def assert_refused(*commands: list[str]) -> None:
    for words in commands:
        result = invoke(*words)
        assert isinstance(result.exception, SpecError) and result.exit_code, (words, result.output)
        assert not Path("RAN").exists(), words


RUNS = (["eval", "workflow.yaml"], ["optimize", "workflow.yaml", "--allow-unproved"])
PLAIN = {"predict": "text -> label"}
TOOL = {"tool": "python:p1.py:f", "arguments": {"text": "text"}, "output": "label"}
SOURCE = "def agent(task, inputs):\n    yield task\n    return {'label': 'a'}\n"
LEAK = {"model": "openai/y", "api_base": "http://e.org", "api_key_env": "K"}
#: Valid nodes that pass a door, by kind, and what is asked about.
NODES: dict[str, tuple[dict[str, Any], str]] = {
    "agent": ({"agent": "text -> label", "tools": ["python:p1.py:f"]}, "runs Python: python:p1.py:f"),
    "agent of mcp": ({"agent": "text -> label", "tools": ["mcp:touch RAN#t"]}, "starts a program: touch RAN"),
    "agent of functions": ({"agent": "text -> label", "functions": ["../far.yaml"]}, "../far.yaml"),
    "branch": ({"branch": "text", "cases": {"x": TOOL}, "default": PLAIN}, "python:p1.py:f"),
    "browse": ({"browse": "../secret.jsonl"}, "../secret.jsonl"),
    "calls": ({"calls": "text -> made, results", "tools": ["mcp:touch RAN#t"]}, "touch RAN"),
    "dspy": ({"dspy": "python:p1.py:f", "signature": "text -> label"}, "python:p1.py:f"),
    "dylan": ({"dylan": {"agent": "text -> label", "tools": ["mcp:touch RAN#t"]}, "members": {"a": ""}}, "touch RAN"),
    "ensemble": ({"ensemble": [TOOL, PLAIN]}, "python:p1.py:f"),
    "external": ({"external": "text -> label", "python": "p1.py:f"}, "runs Python: p1.py:f"),
    "external command": ({"external": "text -> label", "command": ["touch", "RAN"]}, "starts a program: touch RAN"),
    "external mcp": ({"external": "text -> label", "mcp": "touch RAN#tool"}, "touch RAN"),
    "external image": ({"external": "text -> label", "command": ["x"], "image": "evil:1"}, "container image evil:1"),
    "external folder": ({"external": "text -> label", "command": ["x"], "folder": "ag"}, "in the folder ag"),
    "external models": ({"external": "text -> label", "command": ["x"], "models": {"m": LEAK}}, "K to e.org"),
    "loop": ({"loop": TOOL, "until": "label == 'a'"}, "python:p1.py:f"),
    "map": ({"map": {**TOOL, "arguments": {"text": "text"}}, "over": "text"}, "python:p1.py:f"),
    "play": ({"play": "python:p1.py:World", "of": {"predict": "observation -> action"}}, "python:p1.py:World"),
    "predict": ({"predict": "text -> label: T", "types": {"T": "python:p1.py:T"}}, "python:p1.py:T"),
    "predict of a model": ({"predict": "text -> label", "lm": LEAK}, "K to e.org"),
    "program": ({"program": "text -> label", "source": SOURCE, "tools": ["python:p1.py:f"]}, "python:p1.py:f"),
    "recall": ({"kind": "recall", "signature": "text -> label", "embedder": LEAK}, "K to e.org"),
    "reflect": ({"reflect": {"predict": "text -> label"}, "verifier": "python:p1.py:f"}, "python:p1.py:f"),
    "route": ({"route": {"a": TOOL, "b": PLAIN}}, "python:p1.py:f"),
    "search": ({"search": "../docs", "query": "text"}, "../docs"),
    "selforg": (
        {"selforg": {"agent": "text -> label", "tools": ["mcp:touch RAN#t"]}, "members": {"a": ""}},
        "touch RAN",
    ),
    "simulated_search": ({"kind": "simulated_search", "lm": LEAK}, "K to e.org"),
    "states": (
        {
            "states": {"a": {"instructions": "x", "tools": ["python:p1.py:f"], "next": "end"}},
            "signature": "text -> label",
            "start": "a",
        },
        "python:p1.py:f",
    ),
    "tool": (TOOL, "python:p1.py:f"),
    "tool of mcp": ({**TOOL, "tool": "mcp:touch RAN#t"}, "touch RAN"),
    "tool of variables": ({**TOOL, "tool": "mcp:x#t", "env": {"A": "$KEY"}}, "KEY to a program, as A"),
    "tree": ({"tree": PLAIN, "carry": {"label": ""}, "judge": {**TOOL, "output": "score"}}, "python:p1.py:f"),
    "tree_search": ({"tree_search": "gymnasium", "settings": {"id": "p1:World-v0"}}, "p1:World-v0"),
    "workflow": ({"workflow": "in.yaml"}, "python:p1.py:f"),
}
#: Kinds without a setting that leads out.
HARMLESS = {"code", "remember", "navigate"}


@pytest.mark.parametrize("name", NODES)
def test_each_kind_is_asked_about_in_every_place_that_the_loader_takes(folder: Path, name: str) -> None:
    node, said = NODES[name]
    ways: dict[str, dict[str, Any]] = {
        "written": {"nodes": {"n": node}},
        "disabled": {"nodes": {"m": PLAIN, "n": {**node, "enabled": False}}},
        "inside": {"nodes": {"n": {"ensemble": [node]}}},
        "in a workflow": {"nodes": {"n": {"workflow": None, "nodes": {"x": node}}}},
        "chosen": {"nodes": {"n": PLAIN}, "search": {"nodes.n": {"any_of": {"o": node}}}},
        "chosen inside": {"nodes": {"n": {"ensemble": PLAIN}}, "search": {"nodes.n.of": {"any_of": {"o": node}}}},
    }
    missed = [way for way, changes in ways.items() if said not in found_in(**json.loads(json.dumps(changes)))]
    assert [way for way in missed if way == "written" or is_valid(**ways[way])] == []
    assert not Path("RAN").exists()


@pytest.mark.parametrize("name", NODES)
def test_no_command_runs_it_unasked(folder: Path, name: str) -> None:
    write(nodes={"n": NODES[name][0]})
    assert_refused(*RUNS, ["run", "workflow.yaml", "--input", "text=x"], ["agent", "slots", "workflow.yaml"])


def test_every_node_kind_stands_in_the_table_above() -> None:
    kinds = {name.split()[0] for name in NODES}
    assert kinds | HARMLESS == {*plugins().names("node_kinds")}


#: A node, a setting of it, and a value that only `search:` gives.
SEARCHED: dict[str, tuple[dict[str, Any], str, Any, str]] = {
    "agent": ({"agent": "text -> label", "tools": []}, "tools", ["python:p1.py:f"], "python:p1.py:f"),
    "agent of mcp": ({"agent": "text -> label", "tools": []}, "tools", ["mcp:touch RAN#t"], "touch RAN"),
    "ensemble": ({"ensemble": PLAIN}, "of", {"kind": "tool", **TOOL}, "python:p1.py:f"),
    "external": ({"external": "text -> label", "command": ["x"]}, "image", "evil:1", "container image evil:1"),
    "external env": ({"external": "text -> label", "command": ["x"]}, "env", {"PATH": "."}, "with PATH=."),
    "dspy": ({"dspy": "python:other.py:f", "signature": "text -> label"}, "module", "python:p1.py:f", "python:p1.py:f"),
    "predict": (PLAIN, "lm", LEAK, "K to e.org"),
    "program": ({"program": "text -> label", "source": SOURCE}, "lm", LEAK, "K to e.org"),
    "reflect": ({"reflect": PLAIN}, "verifier", "python:p1.py:f", "python:p1.py:f"),
    "search": ({"search": "docs.jsonl", "query": "text"}, "corpus", "../docs", "../docs"),
    "states": (
        {
            "states": {"a": {"instructions": "x", "tools": [], "next": "end"}},
            "signature": "text -> label",
            "start": "a",
        },
        "states.a.tools",
        ["python:p1.py:f"],
        "python:p1.py:f",
    ),
    "tool": ({**TOOL, "tool": "python:other.py:f"}, "tool", "python:p1.py:f", "python:p1.py:f"),
    "workflow": (
        {"workflow": None, "nodes": {"x": {"agent": "text -> label", "tools": []}}},
        "nodes.x.tools",
        ["python:p1.py:f"],
        "python:p1.py:f",
    ),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_finding_1_a_setting_that_only_search_gives_is_asked_about(folder: Path, name: str) -> None:
    """And its kind only by `any_of`, with and without `when`."""
    quiet, setting, value, said = SEARCHED[name]
    slot = {"any_of": {"other": quiet}}
    ways: dict[str, dict[str, Any]] = {
        "written": {"nodes": {"n": quiet, "m": PLAIN}, "search": {f"nodes.n.{setting}": [value]}},
        "chosen": {"nodes": {"n": PLAIN, "m": PLAIN}, "search": {"nodes.n": slot, f"nodes.n.{setting}": [value]}},
        "chosen if": {
            "nodes": {"n": PLAIN},
            "search": {f"nodes.n.{setting}": {"choice": [value], "when": {"nodes.n": "other"}}, "nodes.n": slot},
        },
        "inside": {
            "nodes": {"n": {"ensemble": PLAIN}},
            "search": {"nodes.n.of": slot, f"nodes.n.of.{setting}": [value]},
        },
        "kind searched": {
            "nodes": {"n": PLAIN},
            "search": {"nodes.n.kind": [next(iter(quiet))], f"nodes.n.{setting}": [value]},
        },
    }
    taken = 0
    for way, changes in ways.items():
        changes = json.loads(json.dumps(changes))
        valid = is_valid(**changes)
        taken += valid
        assert not valid or said in found_in(**changes), way
        write(**changes)
        if said in found_in(**changes):
            assert_refused(*RUNS)
    assert taken >= 2, "the loader takes some of these"


#: Other sections that lead out.
SECTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "optimizer in an optimizer": (
        {"optimize": [{"fgo": {"optimizer": {"mcts": {"tools": ["mcp:touch RAN#t"]}}}}]},
        "touch RAN",
    ),
    "optimizer that is tuned": (
        {"optimize": [{"tune": {"optimizer": "mcts", "search": {"verifiers": [["python:p1.py:f"]]}}}]},
        "python:p1.py:f",
    ),
    "models of an optimizer": ({"optimize": [{"route": {"lms": [LEAK]}}]}, "K to e.org"),
    "storage of an optimizer": ({"optimize": [{"optuna": {"storage": "postgresql://u@10.0.0.1/d"}}]}, "10.0.0.1"),
    "server of a training": ({"optimize": [{"sft": {"server": {}}}]}, "vllm serve"),
    "address of a training": ({"optimize": [{"dpo": {"server": "http://10.0.0.1:8000"}}]}, "10.0.0.1"),
    "rows of a training": ({"optimize": [{"sft": {"mixture": "../chats.jsonl"}}]}, "../chats.jsonl"),
    "file of a metric": ({"metric": {"induced": {"file": "../m.yaml"}}}, "../m.yaml"),
    "second metric": ({"metric": ["exact_match(label)", "python:p1.py:f"]}, "python:p1.py:f"),
    "labels of the proof": ({"proof": {"labels": "../labels.jsonl"}}, "../labels.jsonl"),
    "attacks": ({"attacks": "../attacks.yaml"}, "../attacks.yaml"),
    "credentials of a model": (
        {"lm": {"model": "litellm/vertex_ai/x", "extra": {"vertex_credentials": "/etc/hostname"}}},
        "/etc/hostname",
    ),
    "key and server that are searched": (
        {"lm": "openai/x", "search": {"lm.api_base": ["http://e.org"], "lm.api_key_env": ["K"]}},
        "K to e.org",
    ),
    "address beside the machine": (
        {"lm": {"model": "openai/x", "api_base": "http://169.254.169.254/v1"}},
        "as clouds have for its keys",
    ),
    "nodes of a configuration": (
        {"configurations": [{"score": 1, "latency": 1, "p95_latency": 1, "nodes": {"n": TOOL}}]},
        "python:p1.py:f",
    ),
    "tasks of a world": ({"data": "tau2:retail"}, "the world tau2"),
    "settings of ray": (
        {"executor": {"ray": {"address": "ray://10.0.0.9:1", "env": ["KEY"], "runtime_env": {"pip": ["evil"]}}}},
        "ray://10.0.0.9:1",
    ),
    "variables of workers": ({"executor": {"slurm": {"env": ["KEY"]}}}, "KEY to the workers"),
    **{
        f"executor {name}": ({"executor": name}, f"workers of the executor '{name}'")
        for name in plugins().names("executors")
    },
    **{f"tracker {name}": ({"track": [name]}, f"the tracker '{name}'") for name in plugins().names("trackers")},
}


@pytest.mark.parametrize("name", SECTIONS)
def test_findings_1_and_2_other_sections_are_asked_about(folder: Path, name: str) -> None:
    changes, said = SECTIONS[name]
    assert said in found_in(**changes)
    assert_refused(*RUNS)


def test_what_stays_here_is_not_asked_about(folder: Path) -> None:
    assert found_in(executor="local", track=[]) == ""
    assert found_in(lm={"model": "openai/x", "api_base": "http://127.0.0.1:8000/v1"}) == ""
    assert found_in(nodes={"n": {"search": "docs.jsonl", "query": "text"}}) == ""
    assert found_in(nodes={"n": {"predict": "a -> b", "demos": [{"kind": "agent", "tools": ["python:p1.py:f"]}]}}) == ""


# The guard


def test_what_was_not_asked_about_is_refused_when_it_would_act(folder: Path) -> None:
    """For a node kind that did not announce it, too: the doors themselves refuse."""
    Path("other.py").write_text("def f(text): ...\n")
    with collecting(folder) as passed:
        read_user_code("python:other.py:f", folder, "outlined")
        read_user_code("python:later:f", folder, "unread")
    guard(Consent(folder, {one.key for one in passed}))
    try:
        with pytest.raises(SpecError, match="it runs Python: python:p1.py:f, and this was not asked about"):
            load_user_code("python:p1.py:f", folder)
        with pytest.raises(SpecError, match="it starts a program: touch RAN, and this was not asked about"):
            tools_at("mcp:touch RAN", folder)
        assert not Path("RAN").exists()
        load_user_code("python:other.py:f", folder)
        Path("later.py").write_text(PAYLOAD)  # where an installed module was named
        with pytest.raises(SpecError, match="it runs Python: python:later:f"):
            load_user_code("python:later:f", folder)
        assert not Path("RAN").exists()
    finally:
        unguard()


@pytest.mark.parametrize("way", ["tool", "mcp", "external", "external python", "world"])
def test_what_was_approved_acts(folder: Path, way: str) -> None:
    """The text that is asked about is the one that acts."""
    ran = folder / "RAN"
    code = f"open({str(ran)!r}, 'w').close()"
    Path("act.py").write_text(f"def f(text: str) -> str:\n    {code}\n    return text\n")
    Path("world.py").write_text(f"{code}\nclass World: ...\n")
    nodes: dict[str, dict[str, Any]] = {
        "tool": {**TOOL, "tool": "python:act.py:f"},
        "mcp": {**TOOL, "tool": f"mcp:touch {ran}#t"},
        "external": {"external": "text -> label", "command": ["touch", str(ran)]},
        "external python": {"external": "text -> label", "python": "act.py:f"},
        "world": {"play": "python:world.py:World", "of": {"predict": "observation, text -> action"}},
    }
    write(nodes={"n": nodes[way]})
    words = ["run", "workflow.yaml", "--input", "text=x"]
    assert_refused(words)
    invoke("trust", "workflow.yaml")
    result = invoke(*words)
    assert ran.exists() and "was not asked" not in result.output + str(result.exception)


def test_a_trusted_file_is_bundled(folder: Path) -> None:
    write(nodes={"n": TOOL, "m": {"search": "docs.jsonl", "query": "text"}})
    words = ["export", "workflow.yaml", "--format", "bundle", "--out", "out"]
    assert_refused(words)
    invoke("trust", "workflow.yaml")
    result = invoke(*words)
    assert result.exit_code == 0, result.exception
    assert Path("out/p1.py").exists() and not Path("RAN").exists()


def test_weights_elsewhere_are_read_if_the_command_wrote_them(folder: Path) -> None:
    spec = lm_spec({"model": "bundled/nano", "extra": {"path": str(folder.parent / "docs")}})
    guard(Consent(folder))
    try:
        with pytest.raises(SpecError, match="it reads outside its folder: .*docs, and this was not asked about"):
            check_lms(spec)
        with collecting(folder.parent) as passed:
            read_outside(str(folder.parent / "docs"), folder)
        allow(passed)
        with suppress(SpecError):  # these are no weights
            check_lms(spec)
    finally:
        unguard()


def test_a_loader_that_announces_nothing_gets_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.cli.trust.needs.pass_sections", lambda *given, **named: None)
    for node in (
        TOOL,
        {"agent": "text -> label", "tools": ["mcp:touch RAN#t"]},
        {"external": "text -> label", "python": "p1.py:f"},
    ):
        write(nodes={"n": node})
        for words in RUNS:
            assert "was not asked about" in str(invoke(*words).exception), words
    assert not Path("RAN").exists()


def test_the_users_own_settings_pass_unasked(folder: Path) -> None:
    """Those of a flag, also where the file itself was asked about."""
    Path("own.py").write_text("def f(example, prediction, trace=None):\n    return 1.0\n")
    write()
    flag = ["--set", "metric=python:own.py:f"]
    assert invoke("eval", "workflow.yaml", *flag).exit_code == invoke("validate", "workflow.yaml", *flag).exit_code == 0
    write(metric=["python:p1.py:f"])
    assert "is not trusted yet" in str(invoke("eval", "workflow.yaml", *flag).exception)


@pytest.mark.parametrize("node", [TOOL, {**TOOL, "tool": "mcp:touch RAN#t"}], ids=lambda node: node["tool"])
def test_a_file_that_only_a_flag_makes_valid_is_asked_about(folder: Path, node: dict[str, Any]) -> None:
    write(nodes={"n": node}, budget={"calls": "many"})
    flag = ["--set", "budget.calls=40"]
    for words in RUNS:
        assert "is not trusted yet" in str(invoke(*words, *flag).exception)
    invoke("trust", "workflow.yaml")  # which shows nothing of it
    for words in RUNS:
        assert "since it was trusted" in str(invoke(*words, *flag).exception)
    assert not Path("RAN").exists()


# Synthesize


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"explode": {"a": "b"}, "each": {"a": TOOL}}, "python:p1.py:f"),
        ({"explode": {"a": "b"}, "each": {"a": {"ensemble": [{**TOOL, "tool": "mcp:touch RAN#t"}]}}}, "touch RAN"),
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
    assert "is not trusted yet" in refused and said in refused and not Path("RAN").exists()
    Path("s.yaml").write_text(yaml.safe_dump({**file, "keep": "a == 'b'", "each": {}, "synthesize": "seeds.jsonl"}))
    assert "is not trusted yet" not in str(invoke("data", "synthesize", "s.yaml", "--out", "out.jsonl").exception)


# Nodes made later, and addresses


@pytest.mark.parametrize("code", ["unread", "outlined"])
def test_a_workflow_that_was_read_without_code_runs_none_later(folder: Path, code: Any) -> None:
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


def test_apply_asks_about_a_strangers_file(folder: Path) -> None:
    nodes = {"t": {"tool": "python:p1.py:f"}, "a": {"predict": "text, result -> label"}}
    refused = invoke("agent", "apply", str(write(nodes=nodes)), "--to", ".")
    assert "is not trusted yet" in str(refused.exception)
    assert invoke("trust", "workflow.yaml").exit_code == 0
    assert "No text of an agent was changed." in invoke("agent", "apply", "workflow.yaml", "--to", ".").output
    assert not Path("RAN").exists(), "apply looks at texts alone"


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
def test_an_address_that_is_no_models_is_asked_about(folder: Path, url: str, said: str) -> None:
    for head in ({"external": "text -> seen"}, {"kind": "external", "signature": "text -> seen"}):
        assert said in found_in(nodes={"a": {**head, "url": url}})
    assert_refused(["run", "workflow.yaml", "--input", "text=x"])


def test_a_workflow_read_for_a_look_keeps_the_names_of_its_classes(folder: Path) -> None:
    write(nodes={"n": {"external": "text -> label", "command": ["true"]}})
    node = next(iter(read_workflow(Path("workflow.yaml"), (), "unread")[2].enabled_nodes.values()))
    assert isinstance(node, node_class("external"))
    assert (type(node).__name__, type(node).__module__) == ("External", "workbench_external.node")
    assert os.path.basename(str(node.base)) == "found"


def test_the_question_needs_nothing_of_what_it_is_about(folder: Path) -> None:
    """A model without its library, a missing folder, Python without the name: it is asked about, and told later."""
    write(nodes={"n": {"external": "text -> label", "command": ["touch", "RAN"], "folder": "gone"}})
    assert "starts a program: in the folder gone, touch RAN" in str(invoke("eval", "workflow.yaml").exception)
    invoke("trust", "workflow.yaml")
    assert "there is no folder" in str(invoke("eval", "workflow.yaml").exception)
    assert trust.require_trust(Path("workflow.yaml")).value["nodes"]
