"""Workflows drawn as Mermaid flowcharts: what is drawn is the graph, and nothing that a file says can break the
text."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.forking import run_module
from tests.helpers.scripted import make_workflow

from workbench.workflow import mermaid

ROOT = Path(__file__).parents[2]

BOX = re.compile(r'\s+(n\d+)(?:\["|\("|\(\(")([^"]*)(?:"\)\)|"\)|"\])')
FRAME = re.compile(r'\s+subgraph (n\d+)\["([^"]*)"\]')
ARROW = re.compile(r'\s+(n\d+) -->(?:\|"([^"]*)"\|)? (n\d+)')


def read(text: str) -> tuple[dict[str, str], set[tuple[str, str, str]], dict[str, str]]:
    """(label by identifier, edges (label, label, words), label of the frame by identifier) of a flowchart.

    Fails on a line that is none of those that Mermaid reads.
    """
    first, *lines = text.splitlines()
    assert first == "flowchart TD"
    labels, edges, frames, parents = {}, [], [], {}
    for line in lines:
        if line.strip() == "end":
            frames.pop()
        elif found := FRAME.fullmatch(line) or BOX.fullmatch(line):
            assert found[1] not in labels
            labels[found[1]] = found[2]
            parents[found[1]] = labels[frames[-1]] if frames else ""
            frames += [found[1]] if "subgraph" in line else []
        elif found := ARROW.fullmatch(line):
            edges.append((found[1], found[3], found[2] or ""))
        else:
            raise AssertionError(line)
    assert not frames and all(a in labels and b in labels for a, b, _ in edges)
    return labels, {(labels[a], labels[b], words) for a, b, words in edges}, parents


PREDICT = {"predict": "text -> label"}


def test_nodes_and_the_fields_between_them_are_drawn(tmp_path: Path) -> None:
    workflow = make_workflow(
        {
            "sort": PREDICT,
            "reply": {"predict": "text, label -> answer"},
            "log": {"predict": "text -> note", "needs": "reply"},
            "off": {"predict": "text -> more", "enabled": False},
        },
        tmp_path,
    )
    labels, edges, _ = read(mermaid(workflow))
    assert sorted(labels.values()) == ["example", "log: predict", "reply: predict", "sort: predict"]
    assert edges == {
        ("example", "sort: predict", "text"),
        ("example", "reply: predict", "text"),
        ("example", "log: predict", "text"),
        ("sort: predict", "reply: predict", "label"),
        ("reply: predict", "log: predict", ""),
    }
    assert len([e for e in edges if e[0] != "example"]) == workflow.graph.number_of_edges()


def test_a_field_that_is_written_anew_comes_from_its_writer_alone(tmp_path: Path) -> None:
    nodes = {"clean": {"predict": "text -> text"}, "sort": {"predict": "text -> label"}}
    _, edges, _ = read(mermaid(make_workflow(nodes, tmp_path)))
    assert edges == {("example", "clean: predict", "text"), ("clean: predict", "sort: predict", "text")}


def test_nodes_inside_nodes_are_drawn_in_frames_at_any_depth(tmp_path: Path) -> None:
    inner = {"on": "lang", "cases": {"de": PREDICT, "fr": {"ensemble": PREDICT, "samples": 3}}}
    branch = {"branch": inner.pop("on"), **inner}
    workflow = make_workflow({"vote": {"ensemble": branch, "samples": 2}}, tmp_path)
    labels, edges, parents = read(mermaid(workflow))
    assert sorted((labels[i], p) for i, p in parents.items()) == [
        ("cases.de", "of"),
        ("cases.fr", "of"),
        ("example", ""),
        ("of", "cases.fr"),
        ("of", "vote: ensemble"),
        ("vote: ensemble", ""),
    ]
    assert edges == {("example", "vote: ensemble", "lang, text")}


def machine() -> dict[str, Any]:
    return {
        "states": {
            "one": {
                "next": [
                    {"when": {"regex": 'a "b" | `c` <d> ; #e'}, "to": "end"},
                    {"when": "error", "to": "end"},
                    "two",
                ]
            },
            "two": {"next": "end"},
        },
        "signature": "text -> label",
        "start": "one",
    }


def test_a_machine_is_drawn_with_its_states_and_conditions(tmp_path: Path) -> None:
    workflow = make_workflow({"m": machine(), "example": {"predict": "label -> end"}}, tmp_path)
    text = mermaid(workflow)
    labels, edges, parents = read(text)
    assert {labels[i] for i, p in parents.items() if p == "m: states"} == {"start", "one", "two", "end"}
    assert ("start", "one", "") in edges and ("one", "two", "otherwise") in edges and ("two", "end", "") in edges
    words = next(w for a, b, w in edges if (a, b) == ("one", "end"))
    assert re.sub(r"#(\d+);", lambda m: chr(int(m[1])), words) == 'observation matches a "b" | `c` <d> ; #e / error'
    assert ("m: states", "example: predict", "label") in edges


@pytest.mark.slow
def test_the_winner_of_a_run_is_drawn_and_a_file_without_the_flag_is_explained(tmp_path: Path) -> None:
    file = str(ROOT / "workflows/quickstart.yaml")

    def workbench(*words: str) -> subprocess.CompletedProcess[str]:
        return run_module("workbench", *words, cwd=tmp_path, timeout=100)

    made = workbench("optimize", file, "--budget-calls", "20", "--allow-unproved")
    assert made.returncode == 0, made.stderr
    drawn, drawn_file, refused = (workbench("show", *args) for args in (["--mermaid"], ["--mermaid", file], [file]))
    assert drawn.returncode == 0 and drawn.stdout == drawn_file.stdout, drawn.stderr
    assert refused.returncode == 2 and f"workbench show --mermaid {file}" in refused.stderr
    missing = workbench("show", "--mermaid", "no.yaml")
    assert missing.returncode == 2 and "there is no file no.yaml" in missing.stderr
