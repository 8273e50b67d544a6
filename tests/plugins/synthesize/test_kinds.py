"""`workbench data synthesize`, rows of several calls: chains are run for real, and only what hangs together is kept."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script

from workbench.errors import SpecError
from workbench.lm import Request
from workbench_synthesize.synthesize import Found, synthesize, write_rows

TOOLS = '''
def find_order(name: str) -> dict:
    """The order of a person."""
    if name == "nobody":
        raise ValueError("no such person")
    return {"order": {"id": len(name), "open": True}, "items": [{"sku": name.upper()}]}

def cancel(order_id: int, reason: str) -> str:
    """Cancel an order."""
    if order_id > 90:
        raise ValueError("too late")
    return f"cancelled {order_id}"

def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"
'''


def write(folder: Path, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tools.py").write_text(TOOLS)
    spec = {
        "name": "orders",
        "tools": [f"python:tools.{n}" for n in ("find_order", "cancel", "weather")],
        "rows": 50,
        "each": 4,
        "concurrency": 1,
        "budget": {"calls": 1},
        "policy": {"default": "allow"},
        **settings,
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return folder / "spec.yaml"


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def ref(text: Any) -> dict[str, Any]:
    return {"$ref": text}


def said(question: str, *calls: Any) -> str:
    return json.dumps({"question": question, "calls": calls})


def found_in(folder: Path, *lines: str, verdict: str = "yes", **settings: Any) -> tuple[Found, Script]:
    """What is kept of one answer of these lines."""

    def say(request: Request) -> str:
        if "verdict:" in str(request.messages[0]["content"]):
            return f"verdict: {verdict}"
        return "\n".join(lines)

    script = Script(say)
    calls = 2 if settings.get("judge") else 1
    path = write(folder, budget={"calls": calls}, **settings)
    return synthesize(path, database=str(folder / "a.db"), pool=script), script


CANCEL = said(
    "cancel what anna bought, it broke",
    call("find_order", name="anna"),
    call("cancel", order_id=ref("1.order.id"), reason="broke"),
)


def test_a_chain_keeps_its_calls_with_values_and_with_references(tmp_path: Path) -> None:
    found, script = found_in(tmp_path, CANCEL, kinds=["chain"])
    (row,) = found.rows
    assert row["calls"] == [call("find_order", name="anna"), call("cancel", order_id=4, reason="broke")]
    assert row["template"][1]["arguments"]["order_id"] == {"$ref": "1.order.id"}
    assert row["results"] == [{"order": {"id": 4, "open": True}, "items": [{"sku": "ANNA"}]}, "cancelled 4"]
    assert row["source"]["kind"] == "chain" and row["source"]["checks"] == ["format", "execution"]
    assert "one after the other" in str(script.requests[0].messages[0]["content"])


def test_what_is_wrong_with_a_chain_is_said(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (line, reason, why) in enumerate(
        [
            (said("cancel order of anna", call("find_order", name="anna")), "format", "two to 3 calls, not 1"),
            (
                said("cancel order of anna", call("find_order", name="anna"), {"name": "cancel"}),
                "format",
                "call 2: the arguments are not an object",
            ),
            (said("cancel order of anna", call("find_order", name="anna"), "cancel"), "format", "no list of calls"),
            (
                said("cancel order of anna", call("find_order", name="anna"), call("pay", id=ref("1"))),
                "format",
                'call 2: the call names "pay"',
            ),
            (
                said(
                    "cancel order 4 of anna", call("find_order", name="anna"), call("cancel", order_id=4, reason="anna")
                ),
                "format",
                "no call takes a value",
            ),
            (
                said("anna", call("find_order", name="anna"), call("cancel", order_id=ref("1.order.id"), reason=3)),
                "format",
                "of type string",
            ),
            (
                said(
                    "anna", call("cancel", order_id=ref("2.order.id"), reason="anna"), call("find_order", name=ref("1"))
                ),
                "format",
                "call 1 refers to call 2, which is none before it",
            ),
            (
                said(
                    "anna", call("find_order", name=ref("1")), call("cancel", order_id=ref("1.order.id"), reason="anna")
                ),
                "format",
                "call 1 refers to call 1",
            ),
            (
                said("anna", call("find_order", name="anna"), call("cancel", order_id=ref("9.id"), reason="anna")),
                "format",
                "refers to call 9",
            ),
            (
                said("anna", call("find_order", name="anna"), call("cancel", order_id=ref("order.id"), reason="anna")),
                "format",
                "a reference is written",
            ),
            (
                said("anna", call("find_order", name="anna"), call("cancel", order_id=ref(1), reason="anna")),
                "format",
                "a reference is written",
            ),
            (
                said(
                    "anna in rome",
                    call("find_order", name="anna"),
                    call("cancel", order_id=ref("1.order.id"), reason="anna"),
                    call("weather", city="rome"),
                ),
                "format",
                "call 3 has nothing to do",
            ),
            (
                said(
                    "anna",
                    call("find_order", name="anna"),
                    call("cancel", order_id=ref("1.order.number"), reason="anna"),
                ),
                "reference",
                "call 1 returned no order.number",
            ),
            (
                said(
                    "anna",
                    call("find_order", name="anna"),
                    call("cancel", order_id=ref("1.items.1.sku"), reason="anna"),
                ),
                "reference",
                "no items.1.sku",
            ),
            (
                said(
                    "anna",
                    call("find_order", name="anna"),
                    call("cancel", order_id=ref("1.items.0.sku"), reason="anna"),
                ),
                "reference",
                'order_id must be of type integer, not "ANNA"',
            ),
            (
                said("anna", call("find_order", name="anna"), call("cancel", order_id=4, reason=ref("1.items.0.sku"))),
                "reference",
                'order_id is 4, which the question does not say: write {"$ref": "1.order.id"}',
            ),
            (
                said(
                    "anna",
                    call("find_order", name="anna"),
                    call("weather", city=ref("1.items.0.sku")),
                    call("cancel", order_id=ref("1.order.id"), reason="rain in ANNA"),
                ),
                "reference",
                'which the question does not say: write {"$ref": "2"}',
            ),
            (
                said(
                    "a" * 91, call("find_order", name="a" * 91), call("cancel", order_id=ref("1.order.id"), reason="a")
                ),
                "failed",
                "call 2, .*too late",
            ),
            (
                said(
                    "nobody",
                    call("find_order", name="nobody"),
                    call("cancel", order_id=ref("1.order.id"), reason="nobody"),
                ),
                "failed",
                "call 1, .*no such person",
            ),
            (
                said(
                    "too deep",
                    call("find_order", name="anna"),
                    call("cancel", order_id=ref("1"), reason=json.loads("[" * 60 + "]" * 60)),
                ),
                "format",
                "nested too deeply",
            ),
        ]
    ):
        with subtests.test(line=line):
            folder = tmp_path / str(number)
            folder.mkdir()
            found, _ = found_in(folder, line, CANCEL, kinds=["chain"])
            assert len(found.rows) == 1, "the right one after it is kept"
            assert {r: n for r, n in found.rejected.items() if n} == {reason: 1}
            assert re.search(why.replace("{", r"\{").replace("$", r"\$"), found.examples[reason]), found.examples[
                reason
            ]


def test_duplicates_are_whole_lists_of_calls(tmp_path: Path) -> None:
    same = said("please stop the parcel for anna since it broke", *json.loads(CANCEL)["calls"])
    written = said(
        "void purchase of otto due to rain, as wished",
        call("find_order", name="otto"),
        call("weather", city=ref("1.items.0.sku")),
    )
    # The first call alone is known, the list is not.
    other = said(
        "anna wonders about skies where her parcel lies",
        call("find_order", name="anna"),
        call("weather", city=ref("1.items.0.sku")),
    )
    found, _ = found_in(tmp_path, CANCEL, same, written, other, kinds={"chain": 2.0}, rows=9)
    assert [r["calls"][0]["arguments"]["name"] for r in found.rows] == ["anna", "otto", "anna"]
    assert found.rejected["duplicate"] == 1 and found.examples["duplicate"].startswith("please stop")


def test_parallel_calls_answer_one_question(tmp_path: Path) -> None:
    rome, oslo = call("weather", city="rome"), call("weather", city="oslo")
    found, script = found_in(
        tmp_path,
        said("weather of rome and of oslo", rome, oslo),
        said("is it nicer up north or down south", oslo, rome),
        said("both twice", rome, rome),
        said("one and what follows", rome, call("weather", city=ref("1"))),
        said("just one", rome),
        said("rome and somebody's things", rome, call("find_order", name="nobody")),
        said("skies over rome, and the things of ed", rome, call("find_order", name="ed")),
        kinds=["parallel"],
    )
    assert [row["calls"] for row in found.rows] == [[rome, oslo], [rome, call("find_order", name="ed")]]
    assert found.rows[0]["results"] == ["rain in rome", "rain in oslo"] and "template" not in found.rows[0]
    assert {r: n for r, n in found.rejected.items() if n} == {"duplicate": 1, "format": 3, "failed": 1}
    assert "two to 3 calls answer together" in str(script.requests[0].messages[0]["content"])


def test_parallel_rows_of_tools_that_are_only_described_are_not_marked_as_run(tmp_path: Path) -> None:
    (tmp_path / "apis.json").write_text(json.dumps({"song": {"parameters": {"title": {"type": "str"}}}}))
    line = said("play yesterday, and weather of rome", call("song", title="yesterday"), call("weather", city="rome"))
    found, _ = found_in(tmp_path, line, kinds=["parallel"], apis="apis.json", tools=["python:tools.weather"])
    assert found.rows[0]["source"]["checks"] == ["format"] and "results" not in found.rows[0]


@pytest.mark.parametrize(("verdict", "kept"), [("no", 1), ("yes", 0), ("unsure", 0)])
def test_a_request_that_no_tool_answers_needs_a_judge(tmp_path: Path, verdict: str, kept: int) -> None:
    lines = [said("weather in rome", call("weather", city="rome")), json.dumps({"question": "who wrote faust"})]
    found, script = found_in(tmp_path, *lines, verdict=verdict, kinds=["none"], judge=True)
    assert len(found.rows) == kept and found.rejected["judge"] == 1 - kept and found.rejected["format"] == 1
    assert "Can it be answered by calling these tools" in str(script.requests[1].messages[0]["content"])
    if kept:
        assert found.rows[0]["calls"] == [] and found.rows[0]["source"]["checks"] == ["format", "judge"]


def test_a_judge_sees_all_calls_and_results_of_a_chain(tmp_path: Path) -> None:
    found, script = found_in(tmp_path, CANCEL, kinds=["chain"], judge=True, verdict="no")
    asked = str(script.requests[1].messages[1]["content"])
    assert not found.rows and found.rejected["judge"] == 1
    assert 'Call 2: {"name":"cancel","arguments":{"order_id":4,' in asked and 'Result 2: "cancelled 4"' in asked


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["none"]}, "set judge: true, or leave none out"),
        ({"kinds": ["serial"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"kinds": {"chain": 0.0}}, "the share of chain must be above 0"),
        (
            {"kinds": ["chain"], "apis": "apis.json"},
            r"'song' cannot run\n.*`source` in apis.json.*python:FILE.py:song",
        ),
        ({"kinds": ["chain"], "tools": ["python:tools.now"]}, "no tool takes an argument"),
        ({"kinds": ["chain"], "most": 1}, "most"),
    ],
)
def test_what_cannot_be_checked_is_refused_before_a_call(tmp_path: Path, settings: Any, message: str) -> None:
    path, script = write(tmp_path, **settings), Script(lambda request: "")
    (tmp_path / "apis.json").write_text(json.dumps({"song": {"parameters": {"title": {"type": "str"}}}}))
    (tmp_path / "tools.py").write_text(TOOLS + "\ndef now() -> str: return 'noon'\n")
    with pytest.raises(SpecError, match=message) as raised:
        synthesize(path, database=str(tmp_path / "a.db"), pool=script)
    assert not script.requests and (raised.value.line or 0) > 0


def chatter(request: Request) -> str:
    """Rows of the kind and about the tools that a request names, by its number: right ones, wrong ones, one that
    fails."""
    system, n = str(request.messages[0]["content"]), request.replica
    if "verdict:" in system:
        return "verdict: no" if "Can it be answered" in system else "verdict: yes"
    own, name = f"x{n} y{n} z{n}", "a" * n
    find, skies = call("find_order", name=name), call("weather", city=own)
    stop = call("cancel", order_id=ref("1.order.id"), reason=own)
    if "one after the other" in system:
        return "\n".join(
            [
                said(f"stop {name} {own}", find, stop),
                said(f"drop {name} {own} q{n}", find, {**stop, "arguments": {"order_id": n, "reason": own}}),
                said(f"check {name} w{n} v{n}", find, call("weather", city=ref("1.order"))),
            ]
        )
    if "answer together" in system:
        return said(f"both {name} and {own}", find, skies)
    if "no tool helps" in system:
        return json.dumps({"question": f"sing {own}"})
    tool = system.split("tool `")[1].split("`")[0]
    arguments = {"find_order": {"name": name}, "weather": {"city": f"c{n}"}, "cancel": {"order_id": n, "reason": own}}
    return json.dumps({"question": f"only {own} {tool}", "name": tool, "arguments": arguments[tool]})


MIXED = {
    "kinds": {"simple": 1, "parallel": 1, "chain": 2, "none": 1},
    "judge": True,
    "each": 1,
    "rows": 10,
    "budget": {"calls": 60},
}


def test_kinds_share_the_requests_by_their_weights(tmp_path: Path) -> None:
    script = Script(chatter)
    found = synthesize(write(tmp_path, **MIXED), database=str(tmp_path / "a.db"), pool=script)
    assert found.status == "finished" and found.as_dict()["kinds"] == {
        "chain": 4,
        "simple": 2,
        "parallel": 2,
        "none": 2,
    }
    write_rows(found.rows, tmp_path / "rows.jsonl")
    spec = {
        "data": {"file": "rows.jsonl", "split": {"train": 4, "val": 3, "test": 3}},
        "metric": "tool_call_match(calls)",
        "nodes": {"call": {"predict": "question, tools -> calls"}},
    }
    (tmp_path / "workflow.yaml").write_text(json.dumps(spec))
    from workbench.run import prepare

    assert prepare(tmp_path / "workflow.yaml")[2].inputs == ("question", "tools")


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.plugins.synthesize.test_kinds import chatter
from tests.helpers.scripted import Script
from workbench_synthesize.synthesize import synthesize
def say(request):
    if len(script.requests) > {after}:
        os._exit(9)
    return chatter(request)
script = Script(say)
synthesize(Path({path!r}), database={db!r}, pool=script)
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [2, 9])
def test_killed_with_several_kinds_it_ends_with_the_same_rows(tmp_path: Path, after: int) -> None:
    path, db = write(tmp_path, **MIXED), str(tmp_path / "killed.db")
    whole = synthesize(path, database=str(tmp_path / "whole.db"), pool=Script(chatter))
    code = KILLED.format(root=str(Path(__file__).parents[3]), path=str(path), db=db, after=after)
    done = subprocess.run([sys.executable, "-c", code], timeout=200, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 9
    script = Script(chatter)
    again = synthesize(path, database=db, pool=script)
    assert again.rows == whole.rows and again.rejected == whole.rejected
    assert any(row["source"]["kind"] == "chain" for row in whole.rows) and whole.rejected["reference"] > 0
    assert len(script.requests) == whole.spent["calls"] - after


def test_a_chain_runs_in_the_sandbox(tmp_path: Path) -> None:
    apis = {
        "find_order": {
            "parameters": {"name": {"type": "str"}},
            "source": "def find_order(name): return {'order': {'id': len(name)}}",
        },
        "cancel": {
            "parameters": {"order_id": {"type": "int"}, "reason": {"type": "str"}},
            "source": "def cancel(order_id, reason): return order_id + 1",
        },
    }
    (tmp_path / "apis.json").write_text(json.dumps(apis))
    found, _ = found_in(tmp_path, CANCEL, kinds=["chain"], apis="apis.json", tools=[])
    assert found.rows[0]["results"] == [{"order": {"id": 4}}, 5]


def test_requests_for_chains_tell_what_was_seen_of_results(tmp_path: Path) -> None:
    script = Script(lambda request: CANCEL)
    synthesize(write(tmp_path, kinds=["chain"], budget={"calls": 8}), database=str(tmp_path / "a.db"), pool=script)
    asked = [str(request.messages) for request in script.requests]
    pairs = [re.findall(r"first `(\w+)`, later `(\w+)`", text)[0] for text in asked]
    assert "not known in detail" in asked[0] and ("find_order", "cancel") in pairs[1:]
    # Nothing that an order has is called a city, and what cancel returns has no name: it is as good as unknown.
    assert ("find_order", "weather") not in pairs[1:]
    seen = {
        "find_order": "order.id: integer, order.open: boolean, items.0.sku: string",
        "cancel": "(the whole result): string",
    }
    for pair, text in list(zip(pairs, asked, strict=True))[1:]:
        assert seen.get(pair[0], "not known in detail") in text


def test_a_chain_that_passed_proves_its_tools(tmp_path: Path) -> None:
    line = said("skies where anna lives", call("find_order", name="anna"), call("weather", city=ref("1.items.0.sku")))
    script = Script(lambda request: line)
    synthesize(write(tmp_path, kinds=["chain"], budget={"calls": 9}), database=str(tmp_path / "a.db"), pool=script)
    pairs = {re.findall(r"first `(\w+)`, later `(\w+)`", str(r.messages[0]["content"]))[0] for r in script.requests[1:]}
    assert ("find_order", "weather") in pairs, "though no part of an order is called a city"


def test_chains_whose_values_were_met_before_are_duplicates(tmp_path: Path) -> None:
    """Other references, the same calls once they are run."""
    one = said("skies where anna lives", call("find_order", name="anna"), call("weather", city=ref("1.items.0.sku")))
    two = said(
        "tell me more about ANNA rather than order",
        call("find_order", name="anna"),
        call("weather", city="ANNA"),
        call("weather", city=ref("2")),
    )
    three = said(
        "whatever there may be for who bought it",
        call("find_order", name="anna"),
        call("weather", city=ref("1.items.0.tag")),
    )
    tools = TOOLS.replace('"sku": name.upper()', '"sku": name.upper(), "tag": name.upper()')
    path = write(tmp_path, kinds=["chain"])
    (tmp_path / "tools.py").write_text(tools)
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=Script(lambda request: f"{one}\n{two}\n{three}"))
    assert len(found.rows) == 1 and found.rejected["format"] == 1 and found.rejected["duplicate"] == 1
