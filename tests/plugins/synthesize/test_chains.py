"""Chains of calls by themselves: references, values that should have been some, and which tools follow one another."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from workbench_synthesize.apis import Api, load_apis
from workbench_synthesize.chains import Links, find_made_up, read_reference, resolve_reference, split_name


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def ref(text: Any) -> dict[str, Any]:
    return {"$ref": text}


def link(**documents: Any) -> Links:
    """Tools by their documents: {tool: (arguments, result)}."""
    return Links(
        [Api(name, "", {"properties": takes}, "x", returns=gives) for name, (takes, gives) in documents.items()]
    )


def test_tools_are_linked_by_documents_and_by_what_was_seen() -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    links = link(
        login=({"password": text}, {"properties": {"token": text}}),
        pay=({"token": text, "sum": number}, None),
        rain=({"city": text}, {"properties": {"forecast": text}}),
    )
    assert links.rank("login", "pay") == 2 and links.rank("login", "rain") == 0 and links.rank("pay", "rain") == 1
    assert {links.pair("pay", random.Random(s)) for s in range(20)} == {("login", "pay")}
    links.see("login", {"session": "s", "user_city": "rome"})  # results go before the document
    assert links.rank("login", "pay") == 0 and links.rank("login", "rain") == 2
    links.see("pay", 3)
    assert links.rank("pay", "rain") == 0, "a number is not text"
    links.see("rain", "wet")
    assert links.rank("rain", "login") == 1, "a text without a name could be anything"
    links.prove(["login", "pay"], [call("login"), call("pay", token=ref("1.session"))])
    assert links.rank("login", "pay") == 2
    assert "session: string" in links.told("login")
    alone = link(half=({"n": number}, None))
    assert alone.pair("half", random.Random(0)) == ("half", "half")
    still = link(now=({}, None), half=({"n": number}, None))
    assert still.pair("now", random.Random(0)) == still.pair("half", random.Random(0)) == ("now", "half")


def test_references_are_looked_up_in_results() -> None:
    def one(text: str) -> Any:
        found = read_reference(ref(text))
        assert found is not None
        return resolve_reference(found, [{"a": [{"b": 5}], "c": None}])

    assert one("1.a.0.b") == 5 and one("1.c") is None and one("1")["c"] is None
    with pytest.raises(LookupError):
        one("1.a.b")
    assert split_name("orderId") == split_name("order_id") == {"order", "id"}


def test_results_of_the_documents_are_read(tmp_path: Path) -> None:
    forms = {
        "a": {"returns": {"type": "str"}},
        "b": {"response": {"properties": {"id": {"type": "int"}}}},
        "c": {"output_parameters": {"token": {"type": "str"}}},
        "d": {"returns": "a number"},
        "e": {},
    }
    (tmp_path / "apis.json").write_text(json.dumps(forms))
    read = {api.name: api.returns for api in load_apis("apis.json", [], tmp_path)}
    assert read["a"] == {"type": "string"} and read["b"] == {"properties": {"id": {"type": "integer"}}}
    assert read["c"] == {"type": "object", "properties": {"token": {"type": "string"}}}
    assert read["d"] is None and read["e"] is None


@pytest.mark.parametrize(
    ("arguments", "question", "wrong"),
    [
        ({"city": "paris"}, "where anna is", "city"),  # a part of that name came back
        ({"city": "paris"}, "Paris, where anna is", None),
        ({"stay": {"home_town": ["rome"]}}, "where anna is", "stay.home_town"),  # the value came back
        ({"count": 7}, "where anna is", "count"),
        ({"count": 7}, "7 nights where anna is", None),
        ({"count": 8}, "where anna is", None),  # nobody knows whence: the judge must see
        ({"mode": "rome"}, "where anna is", None),  # one of a few values: no result is needed to choose
        ({"count": True, "city": {"$ref": "1.city"}}, "where anna is", None),
    ],
)
def test_values_that_should_be_references(arguments: Any, question: str, wrong: str | None) -> None:
    api = Api("trip", "", {"properties": {"city": {}, "count": {}, "stay": {}, "mode": {"enum": ["rome", "other"]}}})
    found = find_made_up(call("trip", **arguments), api, question, [{"city": "rome", "nights": [7], "paid": True}])
    assert (found or "None").startswith(f"{wrong}{' is' if wrong else ''}")
