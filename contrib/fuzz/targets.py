"""What is fuzzed: functions of bytes that must end soon, and with nothing but the errors that they promise.

They need no fuzzer: `tests/whole/test_fuzz_targets.py` runs each on its seeds.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.helpers.stored_runs import restore

from workbench.cli import cli
from workbench.errors import LMError, NodeError, PluginError, SpecError, StoreError
from workbench.lm import Request, split_thoughts
from workbench.spec import Spec, check_spec, load_yaml
from workbench.workflow import parse_signature
from workbench_kit.answers import answer_text, correction, find_code, parse, read_grade, read_objects, read_text
from workbench_kit.lms.bounded_http import BodyError, BodyReader
from workbench_kit.prompting import read_prompt
from workbench_kit.wire import allowed_tokens, kind_of_error, refused_setting
from workbench_openai import wire

ROOT = Path(__file__).parents[2]

# Workflow files


def spec_file(data: bytes) -> None:
    """A workflow file is a `Spec`, or an error with the line and column of the fault."""
    text = data.decode("utf-8", "replace")
    try:
        spec, source = check_spec(load_yaml(text, "w.yaml"))
    except SpecError as error:
        assert error.line and error.column, f"without a place: {error!r}"
        assert len(str(error)) < 100_000
        return
    assert isinstance(spec, Spec) and isinstance(source.value, dict)
    for node in spec.nodes.values():
        with suppress(SpecError):
            parse_signature(str(node.get("predict", "")) if isinstance(node, Mapping) else "")


# Run databases


@cache
def _stored_run() -> bytes:
    """A whole run database, as bytes."""
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(restore("bootstrap", Path(folder)))) as made:
        return made.serialize()


@cache
def _columns() -> list[tuple[str, str]]:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(_stored_run())
    names = ("runs", "candidates", "evaluations", "results", "calls", "attempts", "events")
    found = [(table, row[1]) for table in names for row in connection.execute(f"pragma table_info({table})")]
    connection.close()
    return found


def _patched(data: bytes) -> bytes:
    """The database with some of its bytes replaced: three bytes of an address, one of a length, then the new ones."""
    image, place = bytearray(_stored_run()), 0
    while place + 4 <= len(data):
        address, length = int.from_bytes(data[place : place + 3], "big") % len(image), data[place + 3] % 32 + 1
        new = data[place + 4 : place + 4 + length]
        image[address : address + len(new)] = new[: len(image) - address]
        place += 4 + length
    return bytes(image)


def _crafted(data: bytes) -> bytes:
    """The database with other contents in one column, without checksums, as its maker may write it."""
    table, column = _columns()[(data[0] if data else 0) % len(_columns())]
    kind, rest = (data[1] if len(data) > 1 else 0) % 4, data[2:]
    value: Any = (rest.decode("utf-8", "replace"), rest, int.from_bytes(rest[:7], "big", signed=True), None)[kind]
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(_stored_run())
        with suppress(sqlite3.Error):  # a constraint
            connection.execute(f"update {table} set {column} = ?", (value,))
            for with_checksum in ("runs", "candidates", "calls"):
                connection.execute(f"update {with_checksum} set checksum = null")
            connection.execute("update runs set spec_checksum = null")
        connection.commit()
        return connection.serialize()
    finally:
        connection.close()


def database(data: bytes) -> None:
    """Looking at a run database shows what is in it, or ends with an error that names the place."""
    image = _crafted(data[1:]) if data[:1] and data[0] % 2 else _patched(data[1:])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        path.write_bytes(image)
        _look(path)
        assert path.read_bytes() == image, "a look changes nothing"


#: The commands that look, each of which prints, or ends with a StoreError, or with one that a tree is to blame for.
_COMMANDS = [
    ["runs", "list"],
    ["show"],
    ["show", "--tree"],
    ["show", "--mermaid"],
    ["show", "--calls", "9"],
    ["compare", "last"],
]


def _look(path: Path) -> None:
    for words in _COMMANDS:
        done = CliRunner().invoke(cli, [*words, "--db", str(path)])
        if not isinstance(done.exception, StoreError | SpecError | PluginError | SystemExit | None):
            raise done.exception


# Answers of servers and of models

_REQUEST = Request(({"role": "user", "content": "hello"},), stop=("\nq:",), logprobs=True)
_SIGNATURES = [
    parse_signature(text)
    for text in (
        "q -> a: str",
        "q -> a: Literal['yes', 'no'], b: int",
        "q -> a: list[int], b: dict[str, float], c: str",
        "q -> a: bool, b: float",
    )
]
_TOOLS = {"look": ["x", "y"], "say": ["text"]}


def server_answer(data: bytes) -> None:
    """What a server or a model answers is read, or is one typed error."""
    if not data:
        return
    kind, data = data[0] % 7, data[1:]
    text = data.decode("utf-8", "replace")
    with suppress(LMError, NodeError, BodyError):
        if kind == 0:
            response = wire.parse_body(data, _REQUEST, lambda *tokens: 0.0)
            json.dumps([response.text, list(response.tool_calls), response.logprobs]).encode()
            assert response.prompt_tokens >= 0 and response.completion_tokens >= 0
        elif kind == 1:
            wire.parse_vectors(data, 1)
        elif kind == 2:
            kind_of_error(None, wire.body_of(data))
            allowed_tokens(400, wire.body_of(data))
            refused_setting(400, wire.body_of(data))
            headers = {"Retry-After": text[:50], "retry-after-ms": text[50:60]}
            assert wire.error_for(400 + len(data) % 200, headers, data).kind
        elif kind == 3:
            reader = BodyReader(("gzip", "deflate", "identity")[len(data) % 3])
            for piece in reader.feed(data):
                assert piece
            reader.finish()
        elif kind == 4:
            for signature in _SIGNATURES:
                with suppress(NodeError):
                    values, _ = parse(signature, text, cut=len(data) % 2 == 1)
                    assert values.keys() == {field.name for field in signature.outputs}
        elif kind == 5:
            reading = read_text(text, _TOOLS, ("a",), cut=len(data) % 2 == 1)
            assert not (reading.calls and reading.fault)
            if reading.fault:
                assert correction(reading, _TOOLS)
            answer_text(text, ("a",))
        else:
            thoughts, answer = split_thoughts(text)
            assert len(thoughts) + len(answer) <= len(text)
            find_code(answer)
            grade = read_grade(answer, 10)
            assert grade is None or 0 <= grade[0] <= 1
            read_prompt(text)
            for found in read_objects(text):
                json.dumps(found)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "spec_file": spec_file,
    "database": database,
    "server_answer": server_answer,
}
