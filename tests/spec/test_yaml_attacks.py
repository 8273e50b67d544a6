"""Workflow files that mean harm, beyond those of test_yaml_source: each is refused at its place within a second."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from workbench.errors import SpecError
from workbench.spec import check_spec, load_yaml, load_yaml_file

HEAD = (
    "name: w\nlm: openai/x\ndata: {file: rows.jsonl}\nmetric: exact_match(label)\n"
    "nodes: {c: {predict: text -> label}}\n"
)
REFUSED = {
    "an alias to what holds it": ("search: &s {x: *s}", "aliases", 6),
    "twenty thousand anchors": ("".join(f"a{n}: &a{n} x\n" for n in range(20_000)), "anchors", 6),
    "a key twice, once escaped": ('budget: {calls: 5, "c\\x61lls": 5000}', "second time", 6),
    "a wide letter": ("ｂudget: {calls: 5}", "unknown key", 6),
    "an invisible letter": ("bud\u200bget: {calls: 5}", "unknown key", 6),
    "a letter of another alphabet": ("ѕeed: 1", "unknown key", 6),
    "a key of half a megabyte": ("k" * 500_000 + ": 1", "", 6),
    "a tag by its address": ("seed: !<tag:yaml.org,2002:python/name:os.system> x", "tag", 6),
    "a tag by a handle": ("---\nseed: !e!x 5", "", None),
    "a key that is a block of text": ("? |\n  seed\n: 5", "", 6),
    "the end of the file in its middle": ("...\nbudget: {calls: 5}", "", None),
    "threads beyond reason": ("concurrency: 1000000000", "4096", 6),
}


def test_the_file_without_an_attack_is_taken() -> None:
    assert check_spec(load_yaml(HEAD, "w.yaml"))[0].name == "w"


@pytest.mark.fault("hostile-yaml")
def test_a_file_that_means_harm_is_refused_at_its_place(subtests: pytest.Subtests) -> None:
    for name in REFUSED:
        with subtests.test(name=name):
            text, words, line = REFUSED[name]
            begun = time.process_time()
            tracemalloc.start()
            try:
                with pytest.raises(SpecError) as caught:
                    check_spec(load_yaml(HEAD + text + "\n", "w.yaml"))
                assert tracemalloc.get_traced_memory()[1] < 100_000_000
            finally:
                tracemalloc.stop()
            error = caught.value
            assert words in error.message and error.file == "w.yaml" and (line is None or error.line == line), error
            assert time.process_time() - begun < 5 and len(str(error)) < 1000


def test_two_nodes_whose_names_look_alike_are_two_or_refused() -> None:
    """A letter with its mark, and the same written as two: composed on reading, or kept apart, but never one lost."""
    nodes = "nodes:\n  caf\u00e9: {predict: text -> label}\n  cafe\u0301: {predict: text -> label}\n"
    try:
        spec, _ = check_spec(load_yaml(HEAD.rpartition("nodes:")[0] + nodes, "w.yaml"))
        assert len(spec.nodes) == 2
    except SpecError as error:
        assert error.line in (6, 7)


@pytest.mark.timeout(60)
def test_a_pipe_is_no_workflow_file_and_hangs_no_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.yaml")
    with pytest.raises(SpecError, match="is a pipe"):
        load_yaml_file(tmp_path / "w.yaml")


def test_a_pipe_of_the_shell_is_read() -> None:
    """As in `workbench validate <(...)`."""
    reader, writer = os.pipe()
    try:
        os.write(writer, b"name: w\n")
        os.close(writer)
        assert load_yaml_file(f"/dev/fd/{reader}").value == {"name": "w"}
    finally:
        os.close(reader)
