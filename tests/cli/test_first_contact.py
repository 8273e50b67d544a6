"""What new users ran into: keys in the wrong place, places that cannot be written, words that say too little."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import workbench
from workbench.cli import cli, main
from workbench.cli.output import Output
from workbench.cli.progress import listener
from workbench.errors import SpecError
from workbench.spec import lm_spec


@pytest.mark.parametrize(
    "key",
    [
        "sk-abcdef0123456789abcdef",
        "sk_live_51HabcdefGHIJKL0123",
        "AIzaSyA1234567890abcdefghij",
        "hf_AbCdEfGhIjKlMnOp0123",
        "a b",
        "",
    ],
)
@pytest.mark.parametrize("form", ["lm", "role", "set"])
def test_u16_a_key_in_place_of_its_variable_is_refused_and_not_told(key: str, form: str, tmp_path: Path) -> None:
    lm: Any = {"model": "openai/m", "api_key_env": key}
    spec: dict[str, Any] = {
        "metric": "exact_match(label)",
        "nodes": {"a": {"predict": "text -> label"}},
        "data": "r.csv",
    }
    spec |= {"lm": lm} if form == "lm" else {"lm": "openai/m", "roles": {"proposer": lm}} if form == "role" else {}
    (tmp_path / "w.yaml").write_text(json.dumps(spec))
    words = ["--set", f"lm={json.dumps(lm)}"] if form == "set" else []
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "w.yaml"), *words])
    said = f"{done.output}{done.exception}"
    assert "not the name of an environment variable" in said and (len(key) < 4 or key not in said)


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "my_azure_openai_key_2024", "K2", "_x"])
def test_u16_names_of_variables_are_taken(name: str) -> None:
    assert lm_spec({"model": "openai/m", "api_key_env": name}).api_key_env == name


@pytest.mark.parametrize(
    "words",
    [
        ["init", "/proc/x"],
        ["plugin", "new", "some_name", "--into", "/proc/x"],
        ["eval", "w.yaml", "--log-file", "/proc/x/y.log"],
    ],
    ids=lambda words: words[0],
)
def test_u17_a_place_that_cannot_be_written_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(
        "lm: bundled/nano\nmetric: exact_match(b)\ndata: {val: r.csv}\nnodes: {a: {predict: a -> b}}\n"
    )
    (tmp_path / "r.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capfd.readouterr().err
    assert ended.value.code == 2 and "Traceback" not in said and said.count("\n") <= 3


def test_u17_a_log_makes_its_folder(tmp_path: Path) -> None:
    with listener(Output(quiet=True, log_file=tmp_path / "new" / "x.log")):
        assert (tmp_path / "new" / "x.log").exists()


@pytest.mark.parametrize("rows", [[1, 2], 5, [{"a": 1}, "b"]])
def test_u17_rows_that_are_none_are_told(rows: Any, tmp_path: Path) -> None:
    content = {"lm": "bundled/nano", "metric": "exact_match(b)", "nodes": {"a": {"predict": "a -> b"}}}
    with pytest.raises(SpecError, match="a row of data is (int|str), not a mapping"):
        workbench.evaluate(content, settings={"data": rows}, database=tmp_path / "x.db")


def test_u19_what_only_the_code_tells_is_not_called_nothing(tmp_path: Path) -> None:
    module = "import dspy\n\n\nclass Sort(dspy.Module):\n    signature = 'text -> label'\n\n"
    module += "    def __init__(self):\n        self.sort = dspy.Predict(self.signature)\n\n"
    (tmp_path / "m.py").write_text(module + "    def forward(self, text):\n        return self.sort(text=text)\n")
    (tmp_path / "r.csv").write_text("text,label\n1,2\n3,4\n5,6\n")
    spec = {"lm": "openai/m", "metric": "exact_match(label)", "data": {"val": "r.csv"}}
    (tmp_path / "w.yaml").write_text(json.dumps({**spec, "nodes": {"a": {"dspy": "python:m.py:Sort"}}}))
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "w.yaml")])
    assert "Learnable: none that shows without --run-code\n" in done.output, (done.output, done.exception)


def test_what_can_be_learned_is_listed_by_node(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("text,label\n1,2\n3,4\n5,6\n")
    nodes = {"plan": {"predict": "text -> plan"}, "sort": {"predict": "text, plan -> label"}}
    spec = {"lm": "openai/m", "metric": "exact_match(label)", "data": {"val": "r.csv"}, "nodes": nodes}
    (tmp_path / "w.yaml").write_text(json.dumps(spec))
    lines = CliRunner().invoke(cli, ["validate", str(tmp_path / "w.yaml")]).output.splitlines()
    found = [line.partition(": ") for line in lines if line.startswith("Learnable")]
    assert [head for head, _, _ in found] == ["Learnable in nodes.plan", "Learnable in nodes.sort"]
    assert found[0][2] == found[1][2] and found[0][2].startswith("instructions, demos, ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"nodes": {"a": {"predict": "text -> label", "temperature": 1}}},
            "`temperature` goes under `decoding`: write",
        ),
        ({"search": {"nodes.a.instructions": []}}, "at least one item"),
        ({"metric": "exact_match(label, target=gold)"}, "'gold', which is not a column of the data"),
        ({"metric": "checklist(label)"}, "the metric reads 'checks', which is not a column of the data"),
        ({"metric": {"judge": {"rubric_field": "rubrik"}}}, "the metric reads 'rubrik', which is not a column"),
    ],
    ids=["a setting elsewhere", "an empty list", "no column", "no checks", "no rubrics"],
)
def test_u_sentences_say_what_to_do(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("text,label\na,b\nc,d\ne,f\n")
    spec = {"lm": "openai/m", "data": "r.csv", "metric": "exact_match(label)"}
    (tmp_path / "w.yaml").write_text(json.dumps({**spec, "nodes": {"a": {"predict": "text -> label"}}, **change}))
    done = CliRunner().invoke(cli, ["validate", str(tmp_path / "w.yaml")])
    assert said in str(done.exception)


MISPLACED = [
    ({"predict": "text -> label"}, (), "max_tokens", 20),
    ({"predict": "text -> label"}, (), "top_p", 0.5),
    ({"agent": "text -> label", "user": {"knows": ["label"]}}, ("user",), "tools", ["python:math.prod"]),
]


@pytest.mark.parametrize(("node", "inside", "key", "value"), MISPLACED, ids=[one[2] for one in MISPLACED])
def test_p6_a_remedy_for_a_key_elsewhere_loads(
    node: dict[str, Any], inside: tuple[str, ...], key: str, value: Any, tmp_path: Path
) -> None:
    """The file is written as the hint says: it has to be right then, and a key without a home has no such hint."""
    (tmp_path / "r.csv").write_text("text,label\na,b\nc,d\ne,f\n")

    def validate(change: dict[str, Any]) -> str:
        changed = {**node, **{name: {**node[name], **change} for name in inside}, **({} if inside else change)}
        spec = {"lm": "openai/m", "data": "r.csv", "metric": "exact_match(label)", "nodes": {"a": changed}}
        (tmp_path / "w.yaml").write_text(json.dumps(spec))
        done = CliRunner().invoke(cli, ["validate", str(tmp_path / "w.yaml")])
        return f"{done.output}{done.exception or ''}"

    said = validate({key: value})
    assert f"unknown key '{key}'" in said
    home = re.search(r"write (\w+): \{", said)
    assert (home is None) == bool(inside)
    if home is not None:
        assert "valid" in (again := validate({home[1]: {key: value}})) and "unknown key" not in again


def test_thirty_settings_and_five_optimizers_are_enough_to_start_with() -> None:
    from workbench.cli.file_schema import BASICS, json_schema

    schema = json_schema()
    every = {"Spec": schema, **{one.get("title", name): one for name, one in schema["$defs"].items()}}
    marked = {(title, key) for title, one in every.items() for key, p in one.get("properties", {}).items()
              if "(advanced)" in p.get("description", "")}  # fmt: skip
    basic = {(title, key) for title, keys in BASICS.items() for key in keys if key in every[title]["properties"]}
    assert len(basic) == 30 and not basic & marked and len(marked) > 60
    assert {title for title, _ in basic} == BASICS.keys()
    optimizers = {name for name in schema["$defs"] if name.startswith("optimizer_")}
    start = {name for name in optimizers if "(advanced)" not in schema["$defs"][name]["description"]}
    assert start == {f"optimizer_{name}" for name in ("bootstrap", "optuna", "textgrad", "forge", "sft")}
