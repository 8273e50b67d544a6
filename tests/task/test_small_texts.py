"""Words of errors that friction 48 names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import SpecError
from workbench.plugins import plugins
from workbench.run import prepare
from workbench.task import read_rows


def refusal(folder: Path, **changes: Any) -> str:
    (folder / "rows.jsonl").write_text("".join(f'{{"q": "{i}", "a": "{i}"}}\n' for i in range(9)))
    spec = {
        "name": "x",
        "lm": "bundled/nano",
        "data": {"file": "rows.jsonl"},
        "metric": "exact_match(a)",
        "nodes": {"n": {"predict": "q -> a"}},
    }
    (folder / "w.yaml").write_text(json.dumps({**spec, **changes}))
    with pytest.raises(SpecError) as caught:
        prepare(folder / "w.yaml")
    return str(caught.value)


def test_a_metric_without_its_field_says_so_in_words_friction_48(tmp_path: Path) -> None:
    said = refusal(tmp_path, metric="exact_match")
    assert "the metric 'exact_match' needs the field to compare" in said
    assert "metric: exact_match(label)" in said and "__init__" not in said


def test_a_value_of_the_search_that_a_setting_does_not_take_is_addressed_once_friction_48(tmp_path: Path) -> None:
    said = refusal(tmp_path, search={"nodes.n.reasoning": ["maybe", True]})
    assert said.count("nodes.n.reasoning") == 1 and "must be true or false, not 'maybe'" in said


def test_a_suffix_without_a_reader_names_the_plugins_that_were_set_aside_friction_48(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plugins().set_aside, "minutes", "ImportError: no")
    with pytest.raises(SpecError) as caught:
        read_rows("a.minutes", tmp_path, {})
    assert "Plugins that failed to load: minutes" in (caught.value.hint or "")


def test_the_reference_prints_defaults_as_they_are_written_friction_48() -> None:
    page = Path(__file__).parents[2] / "plugins/standard/workbench_optuna/README.md"
    row = next(line for line in page.read_text(encoding="utf-8").splitlines() if "settings to search" in line)
    assert '`{"max_demos": {"int": [1, 16], "log": true}}`' in row
