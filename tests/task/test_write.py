"""What is written back as YAML can be read again, whatever a search made of the workflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, strategies as st

from workbench.errors import SpecError
from workbench.run import prepare
from workbench.spec import load_yaml
from workbench.task import dump_yaml, workflow_tree, write_workflow
from workbench.workflow import Patch

FILE = """
name: shop
lm: bundled/nano
data: {file: rows.jsonl, split: {train: 2, val: 2, test: 2}}
metric: exact_match(label)
nodes:
  sum: {predict: "text -> summary"}
  sort: {predict: "text, summary -> label"}
search:
  nodes.sum: optional
  nodes.sum.instructions: {choice: [Sum up., Shorten.], when: {nodes.sum: as_written}}
  nodes.sort.demos: {demos: 4}
  nodes.sort.samples: [1, 3]
budget: {calls: 100}
"""


def task_in(folder: Path):
    rows = [{"text": f"a {i}", "label": "x"} for i in range(6)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "shop.yaml").write_text(FILE)
    return prepare(folder / "shop.yaml")[2]


def searched(tmp_path: Path, patch: Patch) -> list[str]:
    """The addresses under `search:` after a patch; the file is written, and read again."""
    task = task_in(tmp_path)
    made = task.workflow.patched(patch)
    out = tmp_path / "elsewhere" / "best.yaml"
    write_workflow(task, made, out)
    assert prepare(out)[2].workflow == made
    assert list(yaml.safe_load(out.read_text()).get("search", {})) == list(
        workflow_tree(task, made, out.parent).get("search", {})
    )
    return list(yaml.safe_load(out.read_text()).get("search", {}))


def test_a_search_space_is_kept_where_the_structure_is(tmp_path: Path) -> None:
    every = ["nodes.sum", "nodes.sum.instructions", "nodes.sort.demos", "nodes.sort.samples"]
    assert searched(tmp_path, Patch({"nodes.sort.instructions": "Sort."})) == every


def test_addresses_that_an_edit_took_away_leave_the_search_space(tmp_path: Path) -> None:
    wrapped = {"nodes.sort": {"kind": "ensemble", "of": {"predict": "text, summary -> label"}, "samples": 3}}
    assert searched(tmp_path, Patch(wrapped)) == ["nodes.sum", "nodes.sum.instructions", "nodes.sort.samples"]


def test_the_way_to_rows_is_kept_when_they_are_gone(tmp_path: Path) -> None:
    task = task_in(tmp_path)
    (tmp_path / "rows.jsonl").unlink()
    tree = workflow_tree(task, task.workflow, tmp_path / "elsewhere")
    assert tree["data"]["file"] == "../rows.jsonl"


def test_a_node_that_was_removed_leaves_it_with_its_settings(tmp_path: Path) -> None:
    patch = Patch({"nodes.sort": {"kind": "predict", "signature": "text -> label"}}, unset=("nodes.sum",))
    assert searched(tmp_path, patch) == ["nodes.sort.demos", "nodes.sort.samples"]


def test_a_fault_in_the_file_of_a_sub_workflow_is_told_with_its_place_there(tmp_path: Path) -> None:
    task_in(tmp_path)
    (tmp_path / "inner.yaml").write_text(FILE + "policy: {defualt: deny}\n")
    outer = FILE.partition("nodes:")[0] + "nodes:\n  all: {workflow: inner.yaml}\n"
    (tmp_path / "outer.yaml").write_text(outer)
    with pytest.raises(SpecError) as raised:
        prepare(tmp_path / "outer.yaml")
    assert str(raised.value).startswith(f"{tmp_path / 'outer.yaml'}:7:9: {tmp_path / 'inner.yaml'}:15:10: ")


_NUMBERS = st.text("0123456789eE.+-_:xob", min_size=1, max_size=16)


@given(_NUMBERS | st.sampled_from(["12e34567", "1e5", "0e123456", ".inf", "~", "null", "True", "yes", "on", "1_000"]))
def test_texts_that_look_like_numbers_stay_texts(text: str) -> None:
    """Such as the name of a run, of hexadecimal digits: 12e34567 is a number to us, and a text to YAML 1.1."""
    assert load_yaml(dump_yaml({"run": text, text: 1}), "f").value == {"run": text, text: 1}
