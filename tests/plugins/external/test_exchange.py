"""How an agent's output is read: once, bounded, and as the outputs that it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.helpers.external_agents import CLIENT, write_agent
from tests.helpers.said import Reply, saying

from workbench.errors import NodeError
from workbench.run import prepare
from workbench.workflow import parse_signature
from workbench_external import exchange
from workbench_external.config import ExternalConfig, Slot
from workbench_external.observed import observe_file
from workbench_testing.simulated import SimulatedLM, SimulatedPool

LETTER = "text -> label: Literal['a', 'b']"


def read(printed: str, output: str = "text", signature: str = LETTER) -> dict[str, Any]:
    config = ExternalConfig.model_validate({"signature": signature, "command": ["x"], "output": output})
    return exchange.read_answer(config, parse_signature(signature), printed.encode())


@pytest.mark.parametrize(
    "line",
    ["[1,1,1,1,", "[", '{"a": [1,1,', '{"a": 1,', "[1,", '{"a": "', "[[1],", "[1] [", '"x" ', "NaN"],
)
@pytest.mark.parametrize("end", ["", "]", "}", "1", '"'])
def test_security_5_what_no_json_is_is_read_in_vain_only_so_far(
    line: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """14 MB of lines at which JSON begins; counted is what the decoder read."""
    printed = f"{line}\n" * (14_000_000 // (len(line) + 1)) + end
    real, tried = exchange._DECODER.raw_decode, list[int]()

    class Counting:
        def raw_decode(self, text: str, start: int) -> tuple[Any, int]:
            tried.append(len(text) if line.startswith("[[[") else 0)
            try:
                value, stop = real(text, start)
            except json.JSONDecodeError as error:
                tried[-1] = error.pos - start
                raise
            tried[-1] = stop - start
            return value, stop

    monkeypatch.setattr(exchange, "_DECODER", Counting())
    try:
        exchange.json_of(printed)
    except NodeError as error:
        assert "not JSON" in str(error)
    assert len(tried) <= 410 and sum(tried) <= 4 << 20


def test_json_is_found_behind_what_was_printed_before() -> None:
    pretty = json.dumps({"label": "a", "of": [{"x": 1}, {"x": 2}]}, indent=2)
    for before in ("", "INFO started\n", "{not json\n[1,\n", "x" * (3 << 20) + "\n"):
        assert read(before + pretty + "\n", "json") == {"label": "a"}
        assert read(f"{before}{pretty}", "json:of.1.x", "text -> n: int") == {"n": 2}
    for scalar in ('"a"', '  "a"  '):
        assert read(f"INFO\n{scalar}\n", "json") == {"label": "a"}
    with pytest.raises(NodeError, match="the answer is not JSON: Error"):
        read("Error", "json")
    with pytest.raises(NodeError, match="not JSON in its last 1048576 characters"):
        read(json.dumps(["x"] * (1 << 20)), "json")


@pytest.mark.parametrize(
    "printed",
    [
        '{"label": "a"}',
        ' {"label": "a", "why": "so"}\n',
        '```json\n{"label": "a"}\n```',
        '```json\r\n{"label": "a"}\r\n```\r\n',
        'Here:\n```json\n{"label": "a"}\n```\nDone.',
        'INFO [1]\n{"label": "a"}\nINFO {"calls": 1}\n{"usage": 3}\n',
        '{"label": "b"}\n{\n  "label": "a"\n}\n[done]',
        '\ufeff{"label": "a"}\r\n',
        "{'label': 'a'}",
        '{"Label": "a"}',
    ],
)
@pytest.mark.parametrize("output", ["text", "line", "json"])
def test_5_an_object_of_the_outputs_is_read_as_such(printed: str, output: str) -> None:
    """Without `output: json` such an agent scored 0.000, in silence."""
    for signature in (LETTER, "text -> label"):
        before = "INFO started\n" if output == "line" and printed[0] != "\ufeff" else ""
        several = "\n" in printed.strip() and output == "line"
        assert several or read(before + printed, output, signature) == {"label": "a"}


def test_5_other_words_stay_what_they_are() -> None:
    for printed in ('{"other": "a"}', 'label: {"label": "a"}', "{a}", '{"label": "a"} {"label": "b"}'):
        assert read(printed, signature="text -> label") == {"label": printed}


def test_11_rows_without_a_call_are_told_wherever_they_happen(tmp_path: Any) -> None:
    from click.testing import CliRunner

    from workbench.cli import cli

    slots = {"system": Slot.model_validate({"in": "system", "match": "You sort the post."}).model_dump(by_alias=True)}
    path = write_agent(tmp_path, "print('a')", rows=(2, 3, 2), slots=slots)
    found = CliRunner().invoke(
        cli, ["eval", str(path), "--db", str(tmp_path / "r.db"), "--set", "lm=templates/instructions"]
    )
    assert "Warning: 'agent': in all rows (3 of 3) the agent asked no model through the gateway" in found.output
    assert "not counted. It must read OPENAI_BASE_URL" in found.output
    with pytest.raises(Exception, match="made no call through the gateway"):
        observe_file(
            prepare(write_agent(tmp_path, "print('a')"))[2], path, tmp_path / "o.db", 2, SimulatedPool(SimulatedLM())
        )


FALLS_BACK = CLIENT + (
    "try:\n    chat([{'role': 'user', 'content': row['text']}])\nexcept Exception:\n    pass\nprint('a')"
)


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (401, 1, "auth"),
        (500, 1, "server"),
        (400, 0, "in all rows (3 of 3) the agent went on without a model, and what it said is scored: it asked 1 time"),
    ],
)
def test_an_agent_that_catches_errors_is_scored_by_its_fallback_only_where_they_are_its_own(
    status: int, code: int, told: str, tmp_path: Any
) -> None:
    """The key, and the server, are no fault of the agent; and the warning says what happened."""
    from click.testing import CliRunner

    from workbench.cli import cli

    slots = {"system": Slot.model_validate({"in": "system", "match": "You sort the post."}).model_dump(by_alias=True)}
    with saying(lambda asked: Reply({"error": {"message": "no"}}, status)) as server:
        lm = {"model": "local/m", "api_base": server.base, "attempts": 1}
        path = write_agent(tmp_path, FALLS_BACK, rows=(2, 3, 2), slots=slots)
        words = ["eval", str(path), "--db", str(tmp_path / "r.db"), "--set", f"lm={json.dumps(lm)}"]
        found = CliRunner().invoke(cli, words)
        assert found.exit_code == code and told in found.output and "asked no model" not in found.output, found.output
        if status == 400:
            bare = write_agent(tmp_path, FALLS_BACK)
            with pytest.raises(
                Exception, match="no request of the agent was answered.* it asked 1 time and was refused"
            ):
                observe_file(prepare(bare, [("lm", lm)])[2], bare, tmp_path / "o.db", 2)
