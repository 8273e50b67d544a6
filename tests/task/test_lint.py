"""What `workbench validate` remarks on a file that can run, and what it tells a program of a file that cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench.errors import SpecError

ROW = '{"text": "a", "label": "a", "note": "n"}\n'


def warnings_of(folder: Path, nodes: dict[str, Any], **more: Any) -> list[str]:
    (folder / "rows.jsonl").write_text("".join(ROW.replace('"a"', f'"{i}"', 1) for i in range(18)))
    (folder / "tools.py").write_text("def lookup(text: str): return text\ndef send_mail(text: str): return text\n")
    spec = {"name": "w", "data": {"file": "rows.jsonl"}, "metric": "exact_match(label)", "nodes": nodes, **more}
    (folder / "w.yaml").write_text(json.dumps(spec, indent=1))
    done = CliRunner().invoke(cli, ["validate", str(folder / "w.yaml"), "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["ok"] is True
    return summary["warnings"]


@pytest.mark.parametrize("kind", ["predict", "agent"])
@pytest.mark.parametrize(
    ("signature", "demo", "told"),
    [
        ("text -> label", {"tex": "a", "label": "a"}, "a demo has 'tex', which is not a field, and no 'text'"),
        (
            "text -> label: Literal['0', 'b']",
            {"text": "a", "label": "c"},
            "gives 'label' as 'c', which is none of 0, b",
        ),
        ("text -> label: bool", {"text": "a", "label": "perhaps"}, "gives 'label' as 'perhaps', which is not of type"),
        ("text -> label: int", {"text": "a", "label": "many"}, "gives 'label' as 'many', which is not of type int"),
        ("text -> label: int", {"text": "a", "label": "3"}, ""),
        ("text -> label: bool", {"text": "a", "label": True}, ""),
        ("text, note -> label", {"text": "a", "label": "b"}, ""),  # an input that was added to the signature
        ("text -> label", {"text": "a", "label": "b", "id": "1"}, ""),
    ],
)
def test_u12_a_demo_is_checked_against_the_signature(
    kind: str, signature: str, demo: Any, told: str, tmp_path: Path
) -> None:
    node = {kind: signature, "demos": [{"text": "x", "label": "0"}, demo]}
    more = {"tools": ["python:tools.py:lookup"]} if kind == "agent" else {}
    found = [w for w in warnings_of(tmp_path, {"sort": {**node, **more}}) if "demo" in w]
    assert [told in w for w in found] == [True] * bool(told) + [False] * (len(found) - 1 if told else 0)
    assert bool(found) == bool(told)


@pytest.mark.parametrize(("kind", "lost"), [("bool", 9), ("int", 0), ("float", 0)])
@pytest.mark.parametrize("label", ["'a'", "'3'"])
def test_u12_labels_of_another_type_are_told(kind: str, lost: int, label: str, tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(
        "".join(
            ROW.replace('"label": "a"', f'"label": {label}'.replace("'", '"')).replace('"a"', f'"{i}"', 1)
            for i in range(9)
        )
    )
    node = {"sort": {"predict": f"text -> label: {kind}"}}
    found = [w for w in warnings_of(tmp_path, node, data={"file": "data.jsonl"}) if "no answer can be right" in w]
    assert bool(found) == (label == "'a'" or bool(lost))


AGENT = {"sort": {"agent": "text -> label", "tools": ["python:tools.py:lookup", "python:tools.py:send_mail"]}}
INNER = {"all": {"workflow": "inner.yaml"}}


def test_a_rule_about_no_tool_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    rules = [{"deny": "send_mial"}, {"deny": "send_*"}, {"allow": "look?p"}, {"ask": "*"}]
    (told,) = warnings_of(tmp_path, AGENT, policy={"rules": rules})
    line = next(i for i, text in enumerate((tmp_path / "w.yaml").read_text().split("\n"), 1) if "send_mial" in text)
    assert told.startswith(f"line {line - 1}: the rule {{deny: send_mial}} is about no tool that a node can call")
    assert "Did you mean 'send_mail'?" in told and "forged later" in told


def test_tools_of_an_inner_file_and_of_environments_are_known(tmp_path: Path) -> None:
    warnings_of(tmp_path, AGENT)
    (tmp_path / "w.yaml").rename(tmp_path / "inner.yaml")
    assert warnings_of(tmp_path, INNER, policy={"rules": [{"deny": "send_mail"}]}) == []
    states = {
        "ask": {
            "states": {"a": {"instructions": "i", "run": "python:tools.py:lookup", "next": [{"to": "end"}]}},
            "start": "a",
            "signature": "text -> label",
        }
    }
    assert warnings_of(tmp_path, states, policy={"rules": [{"deny": "lookup"}]}) == []


FIRST = {"predict": "text -> why, topic, tone"}
LABEL = {"predict": "text, topic -> label"}


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ({"a": FIRST, "b": LABEL}, ["nothing reads 'tone' of node 'a'."]),
        ({"a": FIRST, "b": {"predict": "text, topic, tone -> label"}}, []),
        ({"a": {"predict": "text -> topic"}, "b": LABEL, "c": {"predict": "label -> thanks"}}, []),
        (
            {"a": {"predict": "text -> label"}, "b": {"predict": "text -> label"}},
            ["nothing reads 'label' of node 'a': 'b' writes the field again."],
        ),
        ({"a": {"predict": "text -> label"}, "b": {"predict": "text -> label", "optional": True}}, []),
        ({"a": {"predict": "text -> label"}, "b": {"predict": "text, label -> label"}}, []),
        ({"a": {"remember": "text -> note"}, "b": {"predict": "text -> label", "needs": "a"}}, []),
        ({"a": FIRST, "b": {**LABEL, "needs": "a"}}, ["nothing reads 'tone' of node 'a'."]),
    ],
    ids=["unread", "read", "output", "overwritten", "fallback", "refined", "needed", "needed in part"],
)
def test_a_field_that_nobody_reads_is_told(nodes: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    """Not what is written on the way to a field that is read, nor an output of the whole."""
    assert [line.partition(": ")[2] for line in warnings_of(tmp_path, nodes)] == told


def test_a_field_that_a_signature_in_the_search_reads_is_read(tmp_path: Path) -> None:
    search = {"nodes.b.signature": ["text, topic -> label", "text, topic, tone -> label"]}
    assert warnings_of(tmp_path, {"a": FIRST, "b": LABEL}, search=search) == []


def test_an_optional_node_that_cannot_be_done_without_is_told(tmp_path: Path) -> None:
    nodes = {"a": {"predict": "text -> topic", "optional": True}, "b": LABEL}
    (told,) = warnings_of(tmp_path, nodes)
    assert "node 'a' is optional, but 'b' cannot run without its 'topic'" in told
    assert warnings_of(tmp_path, {**nodes, "b": {**LABEL, "optional": True}}) == []
    assert warnings_of(tmp_path, {"sure": {"predict": "text -> topic"}, **nodes}) == [], "another one writes it, too"
    data_have_it = {"a": {"predict": "text -> note", "optional": True}, "b": {"predict": "text, note -> label"}}
    assert warnings_of(tmp_path, data_have_it) == []


def test_a_bad_file_is_told_as_json(tmp_path: Path) -> None:
    warnings_of(tmp_path, AGENT)
    file = tmp_path / "w.yaml"
    file.write_text(file.read_text().replace('"agent"', '"agnet"'))
    done = CliRunner().invoke(cli, ["validate", str(file), "--json"])
    assert isinstance(done.exception, SpecError), "which the command turns into exit code 2"
    told = json.loads(done.stdout)
    assert told["ok"] is False
    (error,) = told["errors"]
    assert error == {
        "file": str(file),
        "line": 9,
        "column": 4,
        "message": "no node kind is named here",
        "hint": "Did you mean 'agent'?",
    }
    missing = CliRunner().invoke(cli, ["validate", str(tmp_path / "none.yaml"), "--json"])
    assert json.loads(missing.stdout)["errors"][0]["line"] is None
