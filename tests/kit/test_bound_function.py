"""Arguments of Python tools: bound by the signature, converted and checked by pydantic."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_core import core_schema

from workbench.errors import NodeError
from workbench.spec import PolicySpec
from workbench_kit.acting import BoundFunction, Tool, as_rules_see, fit_values, told_arguments


class Item(BaseModel):
    name: str
    qty: int


class Colour(enum.Enum):
    red = "r"
    blue = "b"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Unknown:
    """A class that pydantic cannot look into."""


def add(a: int, b: int = 1) -> int:
    return a + b


def order(items: list[Item], gift: Item | None = None) -> Any:
    return items, gift


def placed(a: int, b: int = 2, c: int = 3, /, *, d: int = 4) -> Any:
    return a, b, c, d


def joined(separator: str, *parts: float, end: str = "") -> Any:
    return separator, parts, end


def options(first: int, /, **rest: int) -> Any:
    return first, rest


def of_types(colour: Colour, point: Point, way: Literal["in", "out"], day: datetime.date) -> Any:
    return colour, point, way, day


def of_others(code: str, ratio: float | None, sure: bool, thing: Unknown, run: Callable[[], int], late: "Nowhere"):  # type: ignore[name-defined]  # noqa: F821, UP037
    return code, ratio, sure, thing, run, late


def bare(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(bare(function))


class Adder:
    def __call__(self, a: int) -> int:
        return a + 1

    def method(self, a: int) -> int:
        return a + 2


CALLED: list[Any] = [
    (add, {"a": "2", "b": "3"}, 5),
    (add, {"a": 2.0}, 3),
    (order, {"items": [{"name": "x", "qty": "2"}]}, ([Item(name="x", qty=2)], None)),
    (order, {"items": '[{"name": "x", "qty": 2}]', "gift": "null"}, ([Item(name="x", qty=2)], None)),
    (order, {"items": "[{'name': 'x', 'qty': 2}]", "gift": "None"}, ([Item(name="x", qty=2)], None)),
    (add, {"a": 1, "b": None}, 2),
    (order, {"items": [], "gift": {"name": "y", "qty": 1}}, ([], Item(name="y", qty=1))),
    (
        of_types,
        {"colour": "b", "point": {"x": "1"}, "way": "in", "day": "2024-02-29"},
        (Colour.blue, Point(1), "in", datetime.date(2024, 2, 29)),
    ),
    (
        of_others,
        {"code": 12345, "ratio": "0.5", "sure": "true", "thing": {"a": 1}, "run": 5, "late": [1]},
        ("12345", 0.5, True, {"a": 1}, 5, [1]),
    ),
    (options, {"first": "1", "x": "2", "self": 3}, (1, {"x": 2, "self": 3})),
    (placed, {"a": "1"}, (1, 2, 3, 4)),
    (placed, {"a": 1, "c": "9", "d": 8}, (1, 2, 9, 8)),
    (joined, {"separator": "-", "parts": ["1", 2], "end": "!"}, ("-", (1.0, 2.0), "!")),
    (joined, {"separator": "-"}, ("-", (), "")),
    (bare(add), {"a": 1, "b": 5}, 6),
    (wrapped(add), {"a": "1", "b": "5"}, 6),
    (math.prod, {"iterable": [2, 3], "start": 2}, 12),
    (math.fsum, {"seq": [2, 3]}, 5.0),
    (functools.partial(add, 1), {"b": "4"}, 5),
    (Adder(), {"a": "1"}, 2),
    (Adder().method, {"a": "1"}, 3),
    (Point, {"x": "1"}, Point(1)),
]


def test_arguments_are_bound_and_converted(subtests: pytest.Subtests) -> None:
    for function, arguments, result in CALLED:
        with subtests.test(f"{function} {arguments}"):
            bound = BoundFunction(function)
            found = bound(bound.read("f", arguments))
            assert found == result and [*map(type, found if isinstance(found, tuple) else [found])] == [
                *map(type, result if isinstance(result, tuple) else [result])
            ]


@pytest.mark.parametrize(
    ("function", "arguments", "told"),
    [
        pytest.param(add, {"a": "x"}, "f: the argument 'a' is 'x'. Input should be a valid integer", id="T2"),
        pytest.param(add, {"a": None}, "the argument 'a' is None", id="T2-null"),
        pytest.param(order, {"items": [{"name": "x"}]}, "the argument 'items[0].qty' is missing", id="T3"),
        pytest.param(order, {"items": [], "gift": "two"}, "the argument 'gift' is 'two'", id="T-sibling-text"),
        pytest.param(order, {"items": "two"}, "the argument 'items' is 'two'. Input should", id="T3-text"),
        pytest.param(options, {"first": 1, "x": "y"}, "the argument 'x' is 'y'", id="T5-kwargs"),
        pytest.param(add, {"a": 1, "z": 2}, "f takes no argument 'z'", id="unknown"),
        pytest.param(add, {}, "f needs the argument 'a'", id="missing"),
        pytest.param(placed, {"b": 1}, "f needs the argument 'a'", id="T5-positional"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_is_told_by_argument(function: Any, arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(NodeError) as caught:
        BoundFunction(function).read("f", arguments)
    assert caught.value.kind == "tool" and told in str(caught.value)


def test_t4_references_are_seen_from_the_root_of_the_schema() -> None:
    schema = BoundFunction(order).schema
    assert schema["properties"]["items"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert [*schema["$defs"]] == ["Item"] and schema["required"] == ["items"] and schema["type"] == "object"
    assert told_arguments(schema)["items"] == [{"name": "string", "qty": "integer"}]


def test_t4_two_classes_of_one_name_have_two_definitions() -> None:
    class Item(BaseModel):
        other: float

    def both(a: Any, b: Any) -> None: ...

    both.__annotations__ = {"a": globals()["Item"], "b": Item}
    schema = BoundFunction(both).schema
    found = {schema["properties"][name]["$ref"] for name in "ab"}
    assert found == {f"#/$defs/{name}" for name in schema["$defs"]} and len(found) == 2


def test_t5_the_model_is_told_that_other_arguments_are_taken() -> None:
    assert told_arguments(BoundFunction(options).schema) == {"first": "integer", "...": "any"}
    assert BoundFunction(bare(add)).schema["additionalProperties"] is True


def test_what_annotations_say_of_an_argument_is_told() -> None:
    def cups(count: Annotated[int, Field(ge=1, description="how many\ncups")]) -> int:
        return count

    cups.__annotations__["count"] = Annotated[int, Field(ge=1, description="how many\ncups")]
    bound = BoundFunction(cups)
    assert told_arguments(bound.schema) == {"count": "integer, how many cups"}
    with pytest.raises(NodeError, match="greater than or equal to 1"):
        bound.read("cups", {"count": "0"})


def test_converted_arguments_are_json_for_the_rules_of_a_policy() -> None:
    bound = BoundFunction(of_types)
    given = {"colour": "b", "point": {"x": "1"}, "way": "in", "day": "2024-02-29"}
    assert bound.as_json(bound.read("f", given)) == {**given, "point": {"x": 1, "y": 0}}


SCHEMA = {
    "$defs": {"Count": {"type": "integer"}},
    "properties": {
        "count": {"$ref": "#/$defs/Count"},
        "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "sure": {"type": "boolean"},
        "text": {"type": ["string", "integer"]},
        "parts": {"type": "array"},
        "any": {},
    },
}


@pytest.mark.parametrize(
    ("given", "fitting"),
    [
        ({"count": "2", "ratio": "1e-3"}, {"count": 2, "ratio": 0.001}),
        ({"sure": "True", "parts": "[1]"}, {"sure": True, "parts": [1]}),
        ({"count": "2.5", "ratio": "two", "sure": "yes", "parts": "{}"}, None),
        ({"text": "2", "any": "2", "other": "2", "count": None}, None),
        ({"count": "9" * 5000, "parts": "[" * 5000}, None),
    ],
)  # fmt: skip
def test_t2_numbers_written_as_text_fit_the_schema_of_a_server(given: dict[str, Any], fitting: Any) -> None:
    assert fit_values(SCHEMA, given) == (given if fitting is None else fitting)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"enum": ["a", 1]}, '"a" or 1'),
        ({"type": ["string", "null"]}, "string or null"),
        ({"$ref": "#/$defs/Loop"}, {"next": {"next": {"next": {"next": {"next": "any"}}}}}),
        ({"$ref": "#/nowhere"}, "any"),
        ({"type": "string", "description": "IANA name,\n e.g. Europe/Rome"}, "string, IANA name, e.g. Europe/Rome"),
        (True, "any"),
    ],
)
def test_a_schema_is_told_in_words(schema: Any, told: Any) -> None:
    whole = {"properties": {"a": schema}, "$defs": {"Loop": {"properties": {"next": {"$ref": "#/$defs/Loop"}}}}}
    assert told_arguments(whole) == {"a": told}


def test_types_that_hold_themselves_are_told_as_deep_as_is_short() -> None:
    node = {"type": "object", "properties": {f"part{i}": {"$ref": "#/$defs/Node"} for i in range(12)}}
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    told = told_arguments(schema)["n"]
    assert told["part0"]["part11"] == "any" and len(str(told)) < 5000
    pair = {"type": "object", "properties": {"left": {"$ref": "#/$defs/Pair"}, "value": {"type": "integer"}}}
    told = told_arguments({"properties": {"n": {"$ref": "#/$defs/Pair"}}, "$defs": {"Pair": pair}})["n"]
    assert told["left"]["left"]["left"]["left"]["value"] == "any", "what is short is told whole"


class Mode(enum.Enum):
    READ = "read"
    WRITE = "write"


class Opaque:
    """Made of a text; JSON cannot hold it."""

    def __init__(self, text: str):
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())


def change(place: Opaque, mode: Mode = Mode.WRITE) -> str:
    return f"{mode} {place.text}"


@pytest.mark.parametrize(
    ("when", "given", "verdict"),
    [
        ({"mode": "write"}, {}, "deny"),
        ({"mode": "write"}, {"mode": "write"}, "deny"),
        ({"mode": "write"}, {"mode": "read"}, "allow"),
        ({"mode": "read"}, {}, "allow"),
        ({"place": "here"}, {}, "deny"),
        ({"place": {"one_of": ["here"]}}, {}, "deny"),
        ({"place": None}, {}, "deny"),
    ],
)
def test_a_rule_that_denies_is_not_got_round_by_defaults_and_types_of_python(
    when: dict[str, Any], given: dict[str, Any], verdict: str
) -> None:
    bound = BoundFunction(change)
    tool = Tool("change", "", bound.schema, bound, defaults=bound.defaults)
    policy = PolicySpec.model_validate({"rules": [{"deny": "change", "when": when}]})
    seen = {**tool.all_defaults, **as_rules_see(tool, {"place": "here", **given})}
    assert policy.verdict("change", seen)[0] == verdict


def test_words_beside_a_type_describe_the_argument() -> None:
    def weather(city: Annotated[str, "the name of a city"], days: Annotated[int, Field(ge=1)] = 1) -> None: ...

    told = BoundFunction(weather).schema["properties"]
    assert told["city"] == {"type": "string", "description": "the name of a city"}
    assert told["days"] == {"type": "integer", "minimum": 1}
