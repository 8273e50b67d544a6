"""A file with several faults: all are said at once, each at its place, and no section is blamed for another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.test_bad_input import GOOD, ROW, swap

from workbench.cli import main


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In nodes and optimizers, each at its place; a key that is missing beside an unknown one is that one, mistyped."""
    (tmp_path / "rows.jsonl").write_text(ROW * 9)
    text = swap(
        "    instructions: Sort it.", "    samples: many\n    demoes: []\n  two: {predict: 'text -> more', lm: 3}"
    )
    text = text.replace("trials: 3", "trials: 0, x: 1").replace("budget:", "  - nothing\nbudget:")
    (tmp_path / "w.yaml").write_text(text)
    found = _validate(tmp_path, capsys)
    assert found == {
        "9:5": "unknown key 'demoes'",
        "8:5": "nodes.sort.samples: must be a whole number, not 'many'",
        "10:34": "nodes.two.lm: must be text, not 3",
        "14:25": "unknown key 'x'",
        "14:14": "optimize.0.random.trials: must be greater than or equal to 1, not 0",
        "15:5": "unknown optimizer 'nothing'.",
    }
    (tmp_path / "w.yaml").write_text(swap("metric:", "metrics:").replace("calls: 100", "calls: many"))
    assert list(_validate(tmp_path, capsys)) == ["4:1", "13:10"]


def test_a_broken_section_hides_no_fault_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the schema finds it broken (budget, policy) or what is made of it does (the model, nodes, metric,
    data)."""
    (tmp_path / "rows.jsonl").write_text(ROW * 9)
    wrong = {
        "lm: bundled/nano": "lm: bundled/nan",
        "rows.jsonl": "row.jsonl",
        "exact_match(": "exact_math(",
        "    instructions: Sort it.\n": "    instruction: Sort it.\n",
        "trials: 3": "trial: 3",
    }
    text = GOOD
    for old, new in wrong.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "w.yaml").write_text(text)
    found = _validate(tmp_path, capsys)
    assert [place.partition(":")[0] for place in found] == ["2", "8", "4", "3", "12"]
    (tmp_path / "w.yaml").write_text(text.replace("{calls: 100}", "{call: 100}") + "policy: {rule: 3}\n")
    both = _validate(tmp_path, capsys)
    assert [place.partition(":")[0] for place in both] == ["13", "14", "2", "8", "4", "3", "12"]
    assert found.items() <= both.items()


def test_no_node_and_no_domain_of_the_search_hides_the_fault_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text(ROW * 9)
    text = swap(
        "    instructions: Sort it.\n",
        "    instructions: Sort it.\n  2nd: {predict: 'text -> more'}\n  third: {predictt: 'text -> more'}\n",
    )
    (tmp_path / "w.yaml").write_text(text)
    assert [place.partition(":")[0] for place in _validate(tmp_path, capsys)] == ["9", "10"]
    text = swap("[Sort it., Label it.]", "[3]\n  nodes.sort.sample: [1, 2]\n  nodes.none.samples: [1, 2]")
    (tmp_path / "w.yaml").write_text(text)
    assert [place.partition(":")[0] for place in _validate(tmp_path, capsys)] == ["10", "11", "12"]
    text = swap(
        "    instructions: Sort it.\n", "    lm: bundled/nan\n  more: {predict: 'text -> more', lm: bundled/nnao}\n"
    )
    (tmp_path / "w.yaml").write_text(text)
    assert [place.partition(":")[0] for place in _validate(tmp_path, capsys)] == ["8", "9"]


def test_a_section_is_not_blamed_for_what_another_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fields of data that cannot be read are not missed, nor roles that are written wrongly."""
    (tmp_path / "rows.jsonl").write_text(ROW * 9)
    judged = swap("metric: exact_match(label)", "metric: exact_match(label)\nroles: {judge: {modl: x}}")
    for text, place in (
        (swap("rows.jsonl,", "row.jsonl,"), "3:8"),
        (judged, "5:17"),
        (swap("metric:", "metrics:"), "4:1"),
    ):
        (tmp_path / "w.yaml").write_text(text)
        assert list(_validate(tmp_path, capsys)) == [place]


def _validate(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(folder / "w.yaml"), "--json"])
    assert ended.value.code == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    return {f"{e['line']}:{e['column']}": e["message"].split(" Known: ")[0] for e in errors}
