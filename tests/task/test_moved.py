"""A file that is written elsewhere leads where the first one led (issue 34 point 1: paths are declared)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench.cli.trust.needs import collect_needs
from workbench.task.moved import move_tree

AGENT = {"external": "text -> label"}

#: Words that happen to be names of files, and a folder that is not there.
SAID = {
    **AGENT,
    "command": ["x"],
    "instructions": "docs",
    "env": {"A": "docs"},
    "folder": "gone",
    "slots": {"s": {"in": "file", "name": "docs", "text": "sub.yaml"}},
}
#: What a file beside `agent/`, `docs/` and `sub.yaml` says, and what one in `results/` says for the same.
MOVED: dict[str, tuple[Any, Any]] = {
    "a folder of an agent": (
        {**AGENT, "command": ["python", "main.py"], "folder": "agent"},
        {**AGENT, "command": ["python", "main.py"], "folder": "../agent"},
    ),
    "a program beside the file": (
        {**AGENT, "command": ["python", "-u", "agent/main.py", "--as", "{text}"]},
        {**AGENT, "command": ["python", "-u", "../agent/main.py", "--as", "{text}"]},
    ),
    "a function": ({**AGENT, "python": "agent/main.py:answer"}, {**AGENT, "python": "../agent/main.py:answer"}),
    "a module": ({**AGENT, "python": "helper:answer"}, {**AGENT, "python": "../helper.py:answer"}),
    "a tool of a server": (
        {**AGENT, "mcp": "python helper.py docs#ask"},
        {**AGENT, "mcp": "python ../helper.py ../docs#ask"},
    ),
    "the normal form": (
        {"kind": "external", "signature": "text -> label", "command": ["agent/main.py"]},
        {"kind": "external", "signature": "text -> label", "command": ["../agent/main.py"]},
    ),
    "within another": (
        {"ensemble": [{**AGENT, "command": ["agent/main.py"]}]},
        {"ensemble": [{**AGENT, "command": ["../agent/main.py"]}]},
    ),
    "a tool": ({"tool": "mcp:python helper.py#look"}, {"tool": "mcp:python ../helper.py#look"}),
    "tools": (
        {"agent": "text -> label", "tools": ["mcp:./helper.py --at=docs#look", "mcp:npx -y server#look"]},
        {"agent": "text -> label", "tools": ["mcp:../helper.py --at=../docs#look", "mcp:npx -y server#look"]},
    ),
    "a verifier": (
        {"reflect": {"predict": "text -> label"}, "verifier": "python:helper.py:check"},
        {"reflect": {"predict": "text -> label"}, "verifier": "python:../helper.py:check"},
    ),
    "states": (
        {
            "states": {"a": {"run": "mcp:python helper.py#look", "tools": ["python:helper.py:f"], "next": "end"}},
            "signature": "text -> label",
            "start": "a",
        },
        {
            "states": {"a": {"run": "mcp:python ../helper.py#look", "tools": ["python:../helper.py:f"], "next": "end"}},
            "signature": "text -> label",
            "start": "a",
        },
    ),
    "a type": (
        {"predict": "text -> label: T", "types": {"T": "python:helper.py:T"}},
        {"predict": "text -> label: T", "types": {"T": "python:../helper.py:T"}},
    ),
    "a model": (
        {"predict": "text -> label", "lm": {"model": "bundled/nano", "extra": {"path": "./results"}}},
        {"predict": "text -> label", "lm": {"model": "bundled/nano", "extra": {"path": "./."}}},
    ),
    "rows to search": (
        {"search": "text -> passages", "corpus": "docs"},
        {"search": "text -> passages", "corpus": "../docs"},
    ),
    "a workflow file": ({"workflow": "sub.yaml"}, {"workflow": "../sub.yaml"}),
    "what is only said": (SAID, SAID),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("base")
    for name in ("agent", "docs", "results"):
        (base / name).mkdir()
    for name in ("agent/main.py", "helper.py"):
        (base / name).write_text("")
    (base / "sub.yaml").write_text("lm: openai/m\nnodes: {a: {predict: text -> label}}\n")
    return base


@pytest.mark.parametrize("name", MOVED)
def test_1_what_a_node_leans_on_is_written_as_the_other_folder_has_it(name: str, base: Path) -> None:
    here, there = ({"nodes": {"n": node}} for node in MOVED[name])
    assert move_tree(here, base, base / "results") == there
    assert move_tree(here, base, base) == here


@pytest.mark.parametrize("name", [name for name, (here, there) in MOVED.items() if here != there])
def test_1_a_moved_result_does_nothing_that_its_file_does_not(name: str, base: Path) -> None:
    """So that the result of a trusted file is trusted, in whatever folder it is written."""
    for place, node in zip(("here.yaml", "results/there.yaml"), MOVED[name], strict=True):
        (base / place).write_text(yaml.safe_dump({"lm": "openai/m", "nodes": {"n": node}}))
    assert collect_needs(base / "here.yaml").covers(collect_needs(base / "results/there.yaml"))
