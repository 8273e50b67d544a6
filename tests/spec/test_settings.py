"""Settings from outside: flag, environment, file, config, default; what is wrong names where it came from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from workbench.errors import SpecError
from workbench.spec import (
    ENVIRONMENT,
    BudgetSpec,
    Source,
    apply_overrides,
    check_spec,
    config_settings,
    environment_settings,
    load_yaml,
    parse_value,
)

TEXT = """name: good
lm: openai/a
data: {file: rows.jsonl, split: {train: 1, val: 1, test: 1}}
metric: exact_match(label)
nodes:
  sort: {predict: "text -> label", instructions: Sort., demos: [{text: a, label: b}]}
optimize:
  - random: {trials: 3}
budget: {calls: 10}
seed: 1
"""


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for variable in ENVIRONMENT:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("WORKBENCH_CONFIG", str(tmp_path / "config.yaml"))
    return tmp_path / "config.yaml"


def source() -> Source:
    return load_yaml(TEXT, "good.yaml")


def applied(*flags: tuple[str, Any]) -> Any:
    return apply_overrides(source(), flags).value


def test_the_file_itself_is_not_touched() -> None:
    parsed = source()
    before = copy.deepcopy(parsed.value)
    apply_overrides(parsed, [("nodes.sort.demos.0.label", "x"), ("budget.calls", 5), ("lm.temperature", 0.5)])
    assert parsed.value == before == applied()


def test_flags_reach_every_place_of_the_file() -> None:
    value = applied(
        ("budget.calls", 5),
        ("budget.usd", 0.5),
        ("nodes.sort.demos.0.label", "x"),
        ("optimize.0", {"random": {"trials": 4}}),
        ("nodes.sort.decoding.temperature", 0.2),
        ("optimize.0.random.trials", 9),
        ("seed", 7),
        ("nodes.new.predict", "text -> label"),
        ("rounds", 2),
    )
    assert value["budget"] == {"calls": 5, "usd": 0.5} and value["seed"] == 7 and value["rounds"] == 2
    assert value["nodes"]["sort"]["demos"] == [{"text": "a", "label": "x"}]
    assert value["nodes"]["sort"]["decoding"] == {"temperature": 0.2}
    assert value["nodes"]["new"] == {"predict": "text -> label"}
    assert value["optimize"] == [{"random": {"trials": 9}}], "of two flags for one place the last holds"
    assert applied(("budget.calls", 5), ("budget.calls", 9))["budget"]["calls"] == 9


def test_a_model_given_by_its_name_takes_settings_all_the_same() -> None:
    assert applied(("lm.temperature", 0.5))["lm"] == {"model": "openai/a", "temperature": 0.5}
    assert applied(("lm", "openai/b"))["lm"] == "openai/b"


def test_a_node_written_short_takes_settings_of_the_node_inside_it() -> None:
    node = {"ensemble": {"loop": {"predict": "a -> b"}, "rounds": 2}, "samples": 3}
    value = applied(("nodes.new", node), ("nodes.new.of.of.instructions", "Do it."), ("nodes.new.of.rounds", 4))
    inner = {"kind": "loop", "of": {"predict": "a -> b", "instructions": "Do it."}, "rounds": 4}
    assert value["nodes"]["new"] == {"kind": "ensemble", "of": inner, "samples": 3}


def test_flag_environment_file_config_default(monkeypatch: pytest.MonkeyPatch, nothing_outside: Path) -> None:
    nothing_outside.write_text("lm: openai/config\nconcurrency: 3\nname: not from here\n")
    assert applied()["lm"] == "openai/a" and applied()["concurrency"] == 3 and applied()["name"] == "good"
    monkeypatch.setenv("WORKBENCH_LM", "openai/environment")
    monkeypatch.setenv("WORKBENCH_CONCURRENCY", "4")
    monkeypatch.setenv("WORKBENCH_BUDGET_CALLS", "20")
    value = applied()
    assert (value["lm"], value["concurrency"], value["budget"]["calls"]) == ("openai/environment", 4, 20)
    value = applied(("lm", "openai/flag"), ("budget.calls", 30))
    assert (value["lm"], value["concurrency"], value["budget"]["calls"]) == ("openai/flag", 4, 30)
    assert [s.origin for s in config_settings()] == [f"config {nothing_outside}"] * 2
    assert {s.address for s in environment_settings()} == {"lm", "concurrency", "budget.calls"}
    spec, _ = check_spec(apply_overrides(source(), []))
    assert spec.lm.model == "openai/environment" and spec.rounds == 1


@pytest.mark.parametrize(
    ("address", "value", "words"),
    [
        ("budgett.calls", 5, "flag --set budgett.calls: unknown key 'budgett'\n  Did you mean 'budget'?"),
        ("budget.call", 5, "flag --set budget.call: unknown key 'call'\n  Did you mean 'calls'?"),
        ("nme", "x", "flag --set nme: unknown key 'nme'\n  Did you mean 'name'?"),
        ("lm.temprature", 1, "flag --set lm.temprature: unknown key 'temprature'\n  Did you mean 'temperature'?"),
        ("nodes.srt.instructions", "x", "there is no node 'srt'\n  Did you mean 'sort'?"),
        ("seed", "soon", "flag --set seed: must be a whole number, not 'soon'"),
        ("seed.x", 1, "flag --set seed.x: 'seed' is not a setting that has others inside\n  Addresses look like"),
        ("nodes.sort.demos.4.label", "x", "'4' is not a place in a list of 1\n  Places count from 0."),
        ("optimize.first", {}, "'first' is not a place in a list of 1"),
    ],
)
def test_wrong_flags_are_named_with_a_suggestion(address: str, value: Any, words: str) -> None:
    with pytest.raises(SpecError) as raised:
        check_spec(apply_overrides(source(), [("rounds", 1), (address, value)]))
    assert words in str(raised.value) and "good.yaml" not in str(raised.value)


def test_wrong_variables_and_configs_are_named_too(monkeypatch: pytest.MonkeyPatch, nothing_outside: Path) -> None:
    monkeypatch.setenv("WORKBENCH_SEED", "soon")
    with pytest.raises(SpecError, match="^environment WORKBENCH_SEED: seed: must be a whole number, not 'soon'"):
        check_spec(apply_overrides(source(), []))
    monkeypatch.delenv("WORKBENCH_SEED")
    nothing_outside.write_text("concurrency: many\n")
    with pytest.raises(SpecError, match=r"^config .*config\.yaml: concurrency: must be a whole number"):
        check_spec(apply_overrides(source(), []))


def test_mistakes_of_the_file_keep_their_place() -> None:
    parsed = load_yaml(TEXT.replace("seed: 1", "seed: soon"), "bad.yaml")
    with pytest.raises(SpecError, match=r"^bad\.yaml:10:1: seed: must be a whole number"):
        check_spec(apply_overrides(parsed, [("budget.calls", 5)]))
    parsed = load_yaml(TEXT.replace("calls: 10", "call: 10"), "bad.yaml")
    with pytest.raises(SpecError, match=r"^bad\.yaml:9:\d+: unknown key 'call'"):
        check_spec(apply_overrides(parsed, [("budget.usd", 0.5)]))
    parsed = load_yaml(TEXT.replace("split: {train: 1, val: 1, test: 1}", "val: v"), "bad.yaml")
    with pytest.raises(SpecError, match=r"^bad\.yaml:3:\d+: data: "):
        check_spec(apply_overrides(parsed, [("data.limit", 5)]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("[1, 2]", [1, 2]),
        ("{a: 1}", {"a": 1}),
        ("", None),
        ("plain text", "plain text"),
        ("a: b: c", "a: b: c"),
        ("[1, 2", "[1, 2"),
        ("no", "no"),
        ("1e3", 1000.0),
    ],
)
def test_values_are_read_as_the_file_would(text: str, value: Any) -> None:
    assert parse_value(text) == value and type(parse_value(text)) is type(value)


@given(st.text(max_size=30))
def test_any_text_is_a_value(text: str) -> None:
    parse_value(text)


@given(st.text("abc.0123 ", max_size=12), st.one_of(st.none(), st.integers(), st.lists(st.integers(), max_size=2)))
def test_any_address_sets_something_or_is_refused(address: str, value: Any) -> None:
    try:
        found = apply_overrides(source(), [(address, value)])
    except SpecError as error:
        assert str(error).startswith("flag --set")
        return
    assert found.value != source().value
    with pytest.raises(SpecError, match="^flag --set"):
        check_spec(found)


@pytest.mark.parametrize(
    "budget", [{"usd": float("inf")}, {"usd": float("nan")}, {"minutes": float("inf")}, {"usd": 0}]
)
def test_a_ceiling_is_a_number(budget: dict[str, float]) -> None:
    """security 15: a form or a flag takes what Python's float takes."""
    with pytest.raises(ValidationError, match="finite number|greater than 0"):
        BudgetSpec.model_validate(budget)
