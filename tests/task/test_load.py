"""A file that is made into a task, or refused at its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.helpers.planted import plant

from workbench.cli import cli, main
from workbench.errors import SpecError
from workbench.run import prepare

HEAD = "name: l\ndata: {file: rows.jsonl, split: {train: 3, val: 3, test: 3}}\nmetric: exact_match(label)\nnodes:\n"
PROGRAM = "  c: {code: 'text -> label', source: \"def f(text):\\n    return 'SOMETHING'\"}\n"


@pytest.mark.parametrize(("key", "meant"), [("optinal", "optional"), ("enabld", "enabled"), ("need", "needs")])
def test_a_mistyped_key_of_a_node_is_known_whatever_its_kind(key: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(f"{HEAD}  c: {{predict: 'text -> label', {key}: true}}\n")
    with pytest.raises(SpecError, match=f"unknown key '{key}'") as raised:
        prepare(tmp_path / "w.yaml")
    assert raised.value.hint == f"Did you mean '{meant}'?"


def test_the_providers_that_are_named_are_those_that_one_can_write(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(f"{HEAD}{PROGRAM}lm: zzzz\n")
    with pytest.raises(SpecError, match="no LM provider serves 'zzzz'") as raised:
        prepare(tmp_path / "w.yaml")
    known = str(raised.value.hint).partition("Known: ")[2].rstrip(".").split(", ")
    assert "bundled" in known and "openai" in known and not {"*", "policy"} & set(known)


def test_references_hold_inside_a_workflow_of_another_file(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    outer, inner, library = tmp_path / "outer.yaml", deep / "inner.yaml", deep / "library.yaml"
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "{i}", "label": "a"}}\n' for i in range(9)))
    library.write_text(HEAD + PROGRAM)
    inner.write_text(HEAD + "  sort: {agent: 'text -> label', functions: library.yaml#nodes.c}\n")
    outer.write_text(HEAD + "  all: {workflow: deep/inner.yaml}\n")
    done = CliRunner().invoke(cli, ["validate", str(outer)])
    assert done.exit_code == 0, done.exception
    inner.with_name("ring.yaml").write_text(HEAD + "  sort: {agent: 'text -> label', functions: other.yaml#nodes.c}\n")
    inner.with_name("other.yaml").write_text(HEAD + "  c: {agent: 'text -> label', functions: ring.yaml#nodes.sort}\n")
    outer.write_text(HEAD + "  all: {workflow: deep/ring.yaml}\n")
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(outer)])
    assert ended.value.code == 2


def test_a_linked_workflow_has_the_folder_that_it_lies_in(tmp_path: Path) -> None:
    """The links of functions and the check of trust start from there, too."""
    for place in ("real", "seen"):
        (tmp_path / place).mkdir()
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "{i}", "label": "a"}}\n' for i in range(9)))
    (tmp_path / "real/inner.yaml").write_text(HEAD + "  all: {workflow: deep.yaml}\n")
    (tmp_path / "real/deep.yaml").write_text(HEAD + PROGRAM)
    (tmp_path / "seen/deep.yaml").write_text(HEAD + "  c: {tool: 'python:evil.py:f'}\n")
    (tmp_path / "seen/inner.yaml").symlink_to("../real/inner.yaml")
    (tmp_path / "outer.yaml").write_text(HEAD + "  all: {workflow: seen/inner.yaml}\n")
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "outer.yaml")])
    assert done.exit_code == 0, done.exception


@pytest.mark.parametrize(
    "metric", ["{python: 'm.py:f'}", "{python: {address: 'm.py:f'}}", "python('m.py:f')", "ｐython(address='m.py:f')"]
)
def test_python_is_written_with_its_prefix_or_not_loaded(tmp_path: Path, metric: str) -> None:
    """What is asked before it is run is found by the prefix."""
    (tmp_path / "m.py").write_text("def f(example, prediction): return 1.0\n")
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"text": "{i}", "label": "a"}}\n' for i in range(9)))
    text = HEAD.replace("exact_match(label)", metric) + PROGRAM
    (tmp_path / "w.yaml").write_text(text)
    with pytest.raises(SpecError, match="'python' is not a metric by itself") as raised:
        prepare(tmp_path / "w.yaml")
    assert raised.value.hint == "Write metric: python:file.py:function."
    (tmp_path / "w.yaml").write_text(text.replace(metric, "python:m.py:f"))
    prepare(tmp_path / "w.yaml")


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("opnai/gpt-4.1-mini", "openai/gpt-4.1-mini"),
        ("olama/x", "ollama/x"),
        ("vllm/x", ""),
        ("anthropic/x", ""),
        ("litellm/opnai/x", ""),
    ],
)
def test_a_mistyped_provider_is_told_where_it_stands(model: str, meant: str, tmp_path: Path) -> None:
    """What LiteLLM serves is nobody's typo."""
    from workbench.spec import load_spec
    from workbench.task import check_lms

    (tmp_path / "w.yaml").write_text(f"{HEAD}{PROGRAM}lm: bundled/nano\nroles:\n  proposer: {model}\n")
    spec, source = load_spec(tmp_path / "w.yaml")
    if not meant:
        return check_lms(spec.lm, spec.roles)
    with pytest.raises(SpecError, match="there is no LM provider") as raised, source.locating():
        check_lms(spec.lm, spec.roles)
    assert f"Did you mean '{meant}'" in str(raised.value.hint)
    assert (raised.value.line, raised.value.column) == (8, 3)


def test_rows_without_a_field_are_told_wherever_they_stand(tmp_path: Path) -> None:
    from workbench.run import prepare

    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    for name, odd in (("val", 0), ("test", 5)):
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        del rows[odd]["label"]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    warnings = prepare(tmp_path / "workflow.yaml")[2].dataset.warnings
    assert [w.partition(' "')[0] for w in warnings] == [
        "1 of the 24 val rows have no field 'label': val.jsonl:1",
        "1 of the 40 test rows have no field 'label': test.jsonl:6",
    ]
