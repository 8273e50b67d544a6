"""The files of workflows/synthesis for tool calls: calls run for real, and only what hangs together is kept."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script

from workbench.errors import SpecError
from workbench.lm import Request
from workbench_synthesize.synthesize import Found, synthesize, write_rows

FILES = Path(__file__).parents[3] / "workflows" / "synthesis"
sys.path.insert(0, str(FILES))
import calls as checks  # noqa: E402

TOOLS = checks.read_tools("shop_tools.jsonl")


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def ref(text: Any) -> dict[str, Any]:
    return {"$ref": text}


def said(question: str, *plan: Any) -> dict[str, Any]:
    return {"question": question, "plan": [*plan]}


def found_in(folder: Path, kind: str, *rows: Any, verdict: str = "yes", **changes: Any) -> tuple[Found, Script]:
    """What is kept of one answer with these rows."""

    def say(request: Request) -> str:
        if "You write" not in str(request.messages[0]["content"]):
            return verdict
        return json.dumps(rows if len(script.requests) == 1 else [])

    script = Script(say)
    changes = {"synthesize.rows": 9, "lm.model": "openai/scripted", "concurrency": 1, "budget.calls": 12, **changes}
    database = str(folder / f"{len(list(folder.glob('*.db')))}.db")
    return synthesize(FILES / f"calls_{kind}.yaml", database=database, pool=script, changes=changes), script


ANNA = said("where is the order of anna", call("find_order", name="anna"))
CANCEL = said(
    "cancel what anna bought, it broke",
    call("find_order", name="anna"),
    call("cancel", order_id=ref("1.order.id"), reason="broke"),
)


def test_a_call_is_kept_if_it_has_the_form_runs_and_is_approved(tmp_path: Path) -> None:
    rows = [
        said("no such tool", call("drop")),
        said("a number for a word", call("weather", city=3)),
        said("city lacks", call("weather")),
        said("one too much", call("weather", city="x", age=2)),
        said("two where one is asked for", call("weather", city="x"), call("weather", city="y")),
        said("truth for a number", call("cancel", order_id=True, reason="x")),
        said("an order of somebody who has none", call("find_order", name="nobody")),
        ANNA,
        said("please tell me about parcels for anna soon", call("find_order", name="anna")),
    ]
    found, script = found_in(tmp_path, "simple", *rows)
    (row,) = found.rows
    assert row["calls"] == ANNA["plan"] and row["results"][0]["order"] == {"id": 4, "open": True}
    assert {tool["name"] for tool in row["tools"]} == {"find_order", "cancel", "weather"}
    assert found.rejected == {"tool": 7, "duplicate": 1}
    assert len([r for r in script.requests if "Does this call" in str(r.messages)]) == 2, "what fails costs no judge"
    refused, _ = found_in(tmp_path, "simple", ANNA, verdict="no")
    assert not refused.rows and refused.rejected["keep: verdict == 'yes'"] == 1


def test_the_policy_refuses_calls_that_a_model_wrote(tmp_path: Path) -> None:
    rows = [said(f"stop order {n} which broke{n}", call("cancel", order_id=n, reason=f"b{n}")) for n in (5, 500)]
    found, _ = found_in(tmp_path, "simple", *rows)
    assert [row["results"] for row in found.rows] == [["cancelled 5"]] and found.rejected == {"policy": 1}


def test_a_chain_keeps_its_calls_with_values_and_with_references(tmp_path: Path) -> None:
    found, script = found_in(tmp_path, "chain", CANCEL)
    (row,) = found.rows
    assert row["calls"] == [call("find_order", name="anna"), call("cancel", order_id=4, reason="broke")]
    assert row["plan"] == CANCEL["plan"] and row["results"][1] == "cancelled 4"
    pairs = [json.loads(str(r.messages[1]["content"]).split("pair: ")[1].splitlines()[0]) for r in script.requests[::2]]
    assert pairs[0] in (["find_order", "cancel"], ["find_order", "weather"], ["weather", "find_order"])
    assert 'results: [{"order": {"id": 4' in str(script.requests[1].messages[1]["content"]), "the judge sees them"


WRONG = [
    (said("anna", call("find_order", name="anna")), "there must be 2 to 3 calls"),
    (said("anna", call("find_order", name="anna"), {"name": "cancel"}), "call 2: the arguments are not an object"),
    (said("anna", call("find_order", name="anna"), call("pay", id=ref("1"))), "call 2 names 'pay'"),
    (said("4 anna", call("find_order", name="anna"), call("cancel", order_id=4, reason="anna")), "nothing to do with"),
    (
        said("anna", call("cancel", order_id=ref("2.order.id"), reason="anna"), call("find_order", name=ref("1"))),
        "call 1 refers to '2.order.id', no earlier call",
    ),
    (said("anna", call("find_order", name="anna"), call("weather", city=ref("order.id"))), "refers to 'order.id'"),
    (said("anna", call("find_order", name="anna"), call("weather", city=ref("1.order.no"))), "returned no order.no"),
    (
        said("anna", call("find_order", name="anna"), call("cancel", order_id=ref("1.items.0.sku"), reason="anna")),
        "order_id.*is .ANNA..*valid integer",
    ),
    (
        said("anna", call("find_order", name="anna"), call("cancel", order_id=4, reason=ref("1.items.0.sku"))),
        'order_id is 4, which the question does not say: write "1.order.id"',
    ),
    (
        said("a" * 91, call("find_order", name="a" * 91), call("cancel", order_id=ref("1.order.id"), reason="a")),
        "call 2: cancel: ValueError: too late",
    ),
]


def test_what_is_wrong_with_a_chain_is_said(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for row, why in WRONG:
        with subtests.test(why=why):
            found, _ = found_in(tmp_path, "chain", row, CANCEL, **{"policy.default": "allow", "policy.rules": []})
            assert len(found.rows) == 1 and found.rejected.total() == 1, "the right one after it is kept"
            assert re.search(why, next(iter(found.examples.values()))), found.examples


def test_tools_are_paired_by_types_and_words_of_their_documents() -> None:
    by_name = {tool["name"]: tool for tool in map(json.loads, (FILES / "shop_tools.jsonl").read_text().splitlines())}
    assert checks.can_follow(by_name["find_order"], by_name["cancel"])
    assert not checks.can_follow(by_name["find_order"], by_name["weather"])
    assert not checks.can_follow(by_name["weather"], by_name["cancel"]), "a text without a name could be anything"
    one = by_name["cancel"]
    beside = [by_name["weather"], by_name["find_order"]]
    assert checks.find_pair(one["name"], one["parameters"], one["returns"], beside) == ["find_order", "cancel"]
    assert checks.words("orderId") == checks.words("order_id") == {"order", "id"}


@pytest.mark.parametrize(
    ("arguments", "question", "wrong"),
    [
        ({"city": "paris"}, "where anna is", "city"),  # a part of that name came back
        ({"city": "paris"}, "Paris, where anna is", None),
        ({"stay": {"home_town": ["rome"]}}, "where anna is", "home_town"),  # the value came back
        ({"count": 7}, "where anna is", "count"),
        ({"count": 7}, "7 nights where anna is", None),
        ({"count": 8}, "where anna is", None),  # nobody knows whence: the judge must see
        ({"mode": "rome"}, "where anna is", None),  # one of a few values: no result is needed to choose
        ({"count": True, "city": {"$ref": "1.city"}}, "where anna is", None),
    ],
)
def test_values_that_should_be_references(arguments: Any, question: str, wrong: str | None) -> None:
    names = {"city": {}, "count": {}, "stay": {}, "mode": {"enum": ["rome", "other"]}}
    tools = [{"name": n, "parameters": {"properties": p}} for n, p in (("trip", names), ("look", {}))]
    plan, made = [call("look"), call("trip", **arguments)], [call("look"), call("trip")]
    results = [{"city": "rome", "nights": [7], "paid": True}, "gone"]
    if wrong is None:
        assert checks.check_values(question, plan, made, results, tools)
    else:
        with pytest.raises(ValueError, match=f"^{wrong} is .* which the question does not say"):
            checks.check_values(question, plan, made, results, tools)


@pytest.mark.parametrize(
    ("value", "schema", "reason"),
    [
        ({"a": 1}, {"properties": {"a": {"type": "integer"}}}, None),
        ({"a": True}, {"properties": {"a": {"type": "integer"}}}, "arguments.a must be of type integer, not true"),
        ({"a": ["x", 1]}, {"properties": {"a": {"items": {"type": "string"}}}}, "arguments.a[1] must be"),
        ({"a": "c"}, {"properties": {"a": {"enum": ["a", "b"]}}}, "must be one of"),
        ({}, {"properties": {"a": {}}, "required": ["a"]}, "arguments lacks 'a'"),
        ({"b": 1}, {"properties": {"a": {}}}, "arguments has an unknown 'b'"),
        ({"a": None}, {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, None),
        ({"a": 2}, {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "of type string"),
        ({"a": {"b": 1}}, {"properties": {"a": {"properties": {"b": {"type": "string"}}}}}, "arguments.a.b"),
    ],
)
def test_arguments_are_checked_against_the_schema(value: Any, schema: Any, reason: str | None) -> None:
    found = checks.find_misfit(value, schema)
    assert (found is None) == (reason is None) and (reason or "") in (found or "")


def test_independent_calls_are_the_same_in_any_order(tmp_path: Path) -> None:
    rome, oslo = call("weather", city="rome"), call("weather", city="oslo")
    rows = [
        said("weather of rome and of oslo", rome, oslo),
        said("is it nicer up north or down south", oslo, rome),
        said("both twice", rome, rome),
        said("just one", rome),
        said("skies over rome, and the things of ed", rome, call("find_order", name="ed")),
    ]
    found, _ = found_in(tmp_path, "parallel", *rows)
    assert [row["calls"] for row in found.rows] == [[rome, oslo], [rome, call("find_order", name="ed")]]
    assert found.rejected == {"duplicate": 1, "tool": 2}


@pytest.mark.parametrize(("verdict", "kept"), [("no", 1), ("yes", 0)])
def test_a_request_that_no_tool_answers_is_for_a_judge(tmp_path: Path, verdict: str, kept: int) -> None:
    found, _ = found_in(tmp_path, "none", "who wrote faust", verdict=verdict)
    assert [row["calls"] for row in found.rows] == [[]] * kept


def test_the_rows_are_data_of_a_workflow(tmp_path: Path) -> None:
    rows = [said(f"order{n} of p{n} q{n} r{n}", call("find_order", name=f"p{n}")) for n in range(9)]
    found, _ = found_in(tmp_path, "simple", *rows)
    write_rows(found.rows, tmp_path / "rows.jsonl")
    spec = {
        "data": {"file": "rows.jsonl", "split": {"train": 3, "val": 3, "test": 3}},
        "metric": "tool_call_match(calls)",
        "nodes": {"call": {"predict": "question, tools -> calls"}},
    }
    (tmp_path / "workflow.yaml").write_text(json.dumps(spec))
    from workbench.run import prepare

    task = prepare(tmp_path / "workflow.yaml")[2]
    assert task.inputs == ("question", "tools") and task.dataset.warnings == ()


def test_failures_need_a_run(tmp_path: Path) -> None:
    changes = {"synthesize.run": None, "synthesize.from": "shop_tools.jsonl"}
    with pytest.raises(SpecError, match="failures are those of a run"):
        synthesize(FILES / "calls_failed.yaml", database=str(tmp_path / "a.db"), pool=Script(str), changes=changes)
