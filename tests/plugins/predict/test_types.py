"""Answers that are objects: parts named in the signature, and classes of pydantic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script, make_workflow, run_rows

import workbench
from workbench.cli import cli
from workbench.errors import SpecError
from workbench.lm import Request
from workbench.workflow import parse_signature, with_inputs
from workbench_kit.answers import object_shape

MODELS = """
from pydantic import BaseModel, Field, field_validator
from pathlib import Path
Path(__file__).with_name("RAN").touch()

class Item(BaseModel):
    name: str = Field(description="as on the bill")
    price: float

class Bill(BaseModel):
    seller: str
    items: list[Item]

    @field_validator("items")
    @classmethod
    def some(cls, items):
        if not items:
            raise ValueError("a bill has items")
        return items

nothing = 3
"""
PERSON = "text -> person: {name: str, age: Optional[int], tags: list[{word: str}]}"
SAID = {"name": "Ann", "tags": [{"word": "x"}]}


def test_objects_with_named_parts_nest_and_are_shown_to_the_model(tmp_path: Path) -> None:
    workflow = make_workflow({"read": {"predict": PERSON, "instructions": "Read."}}, tmp_path)
    script = Script(lambda request: f"```json\n{json.dumps(SAID)}\n```")
    (run,) = run_rows(workflow, [{"text": "Ann, x"}], script, tmp_path / "a.db")
    assert run.prediction == {"person": SAID}, run.message
    shape = "person: JSON {name: string, age?: integer or null, tags: [{word: string}, ...]}"
    assert script.requests[0].messages[0]["content"] == f"Read.\n{shape}"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"name": "Ann"}, "tags: Field required"),
        ({"name": "Ann", "tags": [{"word": 3}]}, "tags.0.word: Input should be a valid string"),
        ({"name": None, "tags": []}, "name: Input should be a valid string"),
    ],
)
def test_an_answer_of_another_shape_says_which_part_is_wrong(tmp_path: Path, said: Any, why: str) -> None:
    workflow = make_workflow({"read": {"predict": PERSON}}, tmp_path)
    (run,) = run_rows(workflow, [{"text": "Ann"}], Script(lambda request: json.dumps(said)), tmp_path / "a.db")
    assert run.failure == "unparsed" and why in str(run.message)


@pytest.mark.parametrize(
    "text", ["a -> b: {}", "a -> b: {1: str}", "a -> b: {x: str, x: int}", "a -> b: {x: Person}", "a -> b: {x: 3}"]
)
def test_objects_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="signature"):
        parse_signature(text)


def test_equal_objects_are_one_type_and_inputs_are_added_around_them() -> None:
    first, second = (parse_signature(text).outputs[0].type for text in (PERSON, f"other, {PERSON}"))
    assert first is second
    assert with_inputs(PERSON, add=["facts: list[str]"]).startswith("text, facts: list[str] -> person: {")
    assert with_inputs("text -> bill: Bill", add=["more"]) == "text, more -> bill: Bill"


def write(folder: Path, **more: Any) -> Path:
    (folder / "models.py").write_text(MODELS)
    content = {
        "lm": {"model": "openai/scripted", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
        "data": "rows.jsonl",
        "metric": "exact_match(seller)",
        "types": {"Bill": "python:models.py:Bill"},
        "nodes": {"read": {"predict": "text -> bill: Bill, seller"}},
        **more,
    }
    (folder / "rows.jsonl").write_text('{"text": "t", "seller": "Ann"}\n' * 3)
    (folder / "w.yaml").write_text(json.dumps(content))
    return folder / "w.yaml"


def test_friction_45_a_class_of_pydantic_is_a_type_and_its_validators_hold(tmp_path: Path) -> None:
    bill = {"seller": "Ann", "items": [{"name": "a", "price": "2.5"}]}
    script = Script(lambda request: f"{json.dumps(bill)}\nseller: Ann")
    with workbench.load(write(tmp_path), pool=script) as wf:
        found = wf(text="t")
        assert found["bill"] == {"seller": "Ann", "items": [{"name": "a", "price": 2.5}]}
        shown = script.requests[0].messages[0]["content"]
        assert "bill: JSON {seller: string, items: [{name: string (as on the bill), price: number}, ...]}" in shown
        bill["items"] = []
        with pytest.raises(workbench.PredictionError, match="a bill has items"):
            wf(text="other")


def test_looking_at_a_file_runs_no_class_and_a_run_asks_for_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    done = CliRunner().invoke(cli, ["validate", str(path), "--json"])
    assert done.exit_code == 0 and not (tmp_path / "RAN").exists(), done.output
    assert any("python:models.py:Bill" in line for line in json.loads(done.output)["trust"])
    monkeypatch.delenv("WORKBENCH_TRUST")
    refused = CliRunner().invoke(cli, ["eval", str(path), "--db", str(tmp_path / "a.db")])
    assert "not trusted" in str(refused.exception) and not (tmp_path / "RAN").exists()


@pytest.mark.parametrize(
    ("types", "why"),
    [
        ({"Bill": "python:models.py:Bil"}, "Did you mean 'Bill'"),
        ({"Bill": "python:models.py:nothing"}, "has no function 'nothing'"),
        ({"Bill": "models.Bill"}, "is not a class"),
        ({}, "unknown type 'Bill'"),
    ],
)
def test_a_type_that_is_none_is_refused_with_its_place(tmp_path: Path, types: Any, why: str) -> None:
    with pytest.raises(SpecError) as caught:
        workbench.load(write(tmp_path, types=types))
    assert why in str(caught.value) and caught.value.line == 1


def test_inner_nodes_know_the_types_of_the_file(tmp_path: Path) -> None:
    nodes = {"vote": {"ensemble": [{"predict": "text -> bill: Bill"}, {"predict": "text -> bill: Bill"}]}}
    path = write(tmp_path, nodes=nodes)
    try:
        wf = workbench.load(path)
    except SpecError as error:
        assert "unknown type" not in str(error), error
    else:
        wf.close()


def test_dspys_adapters_take_the_same_types(tmp_path: Path) -> None:
    content = {"nodes": {"read": {"predict": "text -> bill: Bill", "adapter": "json"}}}
    seen: list[Request] = []

    def say(request: Request) -> str:
        seen.append(request)
        return json.dumps({"bill": {"seller": "Ann", "items": [{"name": "a", "price": 1}]}})

    with workbench.load(write(tmp_path, **content), pool=Script(say)) as wf:
        assert wf(text="t")["bill"]["items"] == [{"name": "a", "price": 1.0}]


def test_the_shape_of_a_type_that_holds_itself_ends() -> None:
    from pydantic import BaseModel

    class Tree(BaseModel):
        name: str
        children: list[Tree] = []

    assert object_shape(Tree).count("name") < 10 and object_shape(list[str]) == ""
