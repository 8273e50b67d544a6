"""pydantic's complaints in our words: one for each place, and none of a union's members hides another place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field, ValidationError, model_validator

from workbench.errors import SpecError
from workbench.spec import Strict, spec_error
from workbench.spec.data import SplitSpec


class Server(Strict):
    port: int
    host: str


class Settings(Strict):
    server: str | Server = ""
    names: list[str] | str = ""
    size: int = 0
    share: int | float = 0
    pair: list[int] = Field([1, 2], min_length=2, max_length=2)


def complaints(**given: Any) -> list[SpecError]:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(given)
    error = spec_error(caught.value, Settings, ("outer",))
    return [error, *error.more]


def test_the_members_of_a_union_complain_once() -> None:
    (error,) = complaints(server={"prot": 1})
    assert error.message == "unknown key 'prot'" and error.path[:2] == ("outer", "server")
    (error,) = complaints(share="half")
    assert error.path == ("outer", "share") and error.message == "outer.share: must be a whole number, not 'half'"


def test_what_a_member_says_of_a_mapping_that_it_reads_is_not_hidden_by_one_that_reads_none() -> None:
    class Closed(Strict):
        port: int

        @model_validator(mode="after")
        def _open(self) -> Closed:
            raise ValueError("this port is closed")

    class Listed(Strict):
        server: str | Closed = ""

    for given, message in (
        ({"port": 1}, "server: this port is closed"),
        ({"port": "x"}, "server.port: must be a whole number, not 'x'"),
    ):
        with pytest.raises(ValidationError) as caught:
            Listed.model_validate({"server": given})
        error = spec_error(caught.value, Listed)
        assert error.message == message and not error.more


def test_places_complain_by_themselves() -> None:
    found = complaints(server=3, size="x", names=[1, 2])
    assert {error.path for error in found} == {
        ("outer", "server"),
        ("outer", "size"),
        ("outer", "names", 0),
        ("outer", "names", 1),
        ("outer", "names"),
    }


def test_all_missing_keys_are_named() -> None:
    with pytest.raises(ValidationError) as caught:
        Server.model_validate({})
    error = spec_error(caught.value, Server)
    assert [one.message for one in (error, *error.more)] == ["'port' is missing", "'host' is missing"]


def test_a_list_of_the_wrong_length_is_said_once() -> None:
    (error,) = complaints(pair=[1, 2, 3])
    assert error.message == "outer.pair: must have at most 2 items, not [1, 2, 3]"
    (error,) = complaints(pair=[1])
    assert error.message == "outer.pair: must have at least 2 items, not [1]"


def test_a_mapping_in_place_of_either_kind_of_number_is_one_complaint() -> None:
    with pytest.raises(ValidationError) as caught:
        SplitSpec.model_validate({"train": {}, "val": 60, "test": 200})
    error = spec_error(caught.value, SplitSpec)
    assert error.path == ("train",) and error.message.endswith("not {}") and not error.more
