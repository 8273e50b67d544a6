"""Workflow files made to cost time, memory or a traceback. Each is refused at its line, in few words, for little more
than it takes to read it."""

from __future__ import annotations

import re
import time
import tracemalloc
from functools import cache
from pathlib import Path

import pytest
import yaml

from workbench.cli import main
from workbench.errors import MAX_LISTED, SpecError, collect_errors, suggest
from workbench.spec import load_spec

HEAD = "name: w\nlm: bundled/nano\nmetric: exact_match(label)\ndata: {file: rows.jsonl}\n"
NODES = "nodes:\n  sort: {predict: 'text -> label'}\n"
LAUGHS = "a: &a [x, x]\n" + "".join(f"{n}: &{n} [*{p}, *{p}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True))


def keys(count: int, indent: str = "", value: str = "1") -> str:
    return "".join(f"{indent}k{n}: {value}\n" for n in range(count))


def rule(condition: str) -> str:
    return f"{HEAD}{NODES}policy:\n  rules:\n  - {{deny: pay, when: {{to: {condition}}}}}\n"


#: name: (file, line of the first fault, part of its message)
FILES = {
    "laughs": (LAUGHS + HEAD, 1, "anchors and aliases"),
    "too large": (HEAD + "#" * 1_000_000, 1, "larger than 1,000,000 bytes"),
    "depth 5,000": (HEAD + "nodes: " + "[" * 5000, 5, "levels of nesting"),
    "90,000 unknown keys": (HEAD + NODES + keys(90_000), 7, "unknown key 'k0'"),
    "80,000 unknown keys of lm": (
        HEAD.replace("lm: bundled/nano\n", "lm:\n  model: bundled/nano\n" + keys(80_000, "  ")) + NODES,
        4,
        "unknown key 'k0'",
    ),
    "60,000 empty nodes": (HEAD + NODES + keys(60_000, "  ", "{}"), 7, "no node kind"),
    "60,000 nodes of nothing": (HEAD + NODES + keys(60_000, "  ", ""), 7, "must be a mapping"),
    "60,000 unknown optimizers": (HEAD + NODES + f"optimize: [{'zz, ' * 60_000}]\n", 7, "unknown optimizer 'zz'"),
    "60,000 wrong rules": (HEAD + NODES + f"policy: {{rules: [{'{x: 1}, ' * 60_000}]}}\n", 7, "unknown key 'x'"),
    "a key twice after 90,000": (keys(90_000) + "z: 1\nz: 2\n", 90_002, "occurs here a second time"),
    "a pattern of 100,000 brackets": (rule("{matches: '" + "(" * 100_000 + "'}"), 9, "nested too deeply"),
    "a pattern that counts too far": (rule("{matches: 'a{99999999999999999999}'}"), 9, "counts too far"),
    "5,000 digits": (HEAD + NODES + "seed: " + "9" * 5000, 7, "5,000 digits"),
    "a tag of Python": (HEAD + NODES + "seed: !!python/object/apply:os.system [ls]\n", 7, "tag"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"text": "x", "label": "a"}\n' * 9)
    return tmp_path


def validate(text: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, float]:
    """What `validate` says of a file that it refuses, and its processor time in seconds."""
    Path("w.yaml").write_text(text)
    begun = time.process_time()
    with pytest.raises(SystemExit) as ended:
        main(["validate", "w.yaml"])
    seconds = time.process_time() - begun
    assert ended.value.code == 2
    return capsys.readouterr().err, seconds


@cache
def seconds_of_60_000_keys() -> float:
    """For PyYAML's C parser to read them, on this machine."""
    begun = time.process_time()
    for _ in yaml.parse("".join(f"key{n}: value\n" for n in range(60_000)), Loader=yaml.CSafeLoader):
        pass
    return time.process_time() - begun


#: As large as others, whose sections are read in the same way.
SLOW = {"80,000 unknown keys of lm", "60,000 empty nodes", "60,000 unknown optimizers", "60,000 wrong rules"}


@pytest.mark.fault("hostile-yaml")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in FILES])
def test_a_hostile_file_is_refused_at_its_line_in_few_lines(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, line, message = FILES[name]
    said, seconds = validate(text, capsys)
    assert re.match(rf"Error: w\.yaml:{line}:\d+: ", said) and message in said.splitlines()[0], said[:500]
    assert "Traceback" not in said and len(said) < 20_000 and said.count("w.yaml:") <= MAX_LISTED
    assert seconds < 1 + 20 * seconds_of_60_000_keys(), "it was 80 times as long for 90,000 keys"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "90,000 unknown keys",
        pytest.param("80,000 unknown keys of lm", marks=pytest.mark.slow),
        pytest.param("60,000 wrong rules", marks=pytest.mark.slow),
        "laughs",
    ],
)
def test_a_hostile_file_takes_little_memory(name: str, folder: Path) -> None:
    Path("w.yaml").write_text(FILES[name][0])
    tracemalloc.start()
    try:
        with pytest.raises(SpecError):
            load_spec("w.yaml")
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("count", "listed", "last"), [(20, 20, "k19"), (21, 20, "and up to 1 more"), (1, 1, "k0")])
def test_the_first_faults_are_listed_and_the_others_counted(
    count: int, listed: int, last: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said, _ = validate(HEAD + NODES + keys(count), capsys)
    assert len(re.findall("unknown key 'k", said)) == listed
    assert last in "".join(said.splitlines()[-2:])


def test_faults_of_several_sections_are_counted_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    optimizers = "optimize: [" + "zz, " * 30 + "]\n"
    said, _ = validate(HEAD + NODES + keys(5) + optimizers, capsys)
    assert said.count("unknown key") == 5 and said.count("unknown optimizer") == 15
    assert said.splitlines()[-1] == "and up to 15 more"


def test_after_many_errors_the_other_jobs_are_not_done() -> None:
    done: list[int] = []

    def wrong(number: int) -> None:
        done.append(number)
        raise SpecError(f"wrong {number}")

    with pytest.raises(SpecError) as caught:
        collect_errors((lambda number=number: wrong(number)) for number in range(1000))
    assert done == list(range(MAX_LISTED)) and caught.value.omitted == 1000 - MAX_LISTED
    assert str(caught.value).endswith("wrong 19\nand up to 980 more")


def test_a_hint_lists_no_more_than_a_hundred_names() -> None:
    names = [f"name{n:05}" for n in range(20_000)]
    assert suggest("other", names).endswith("name00099, and 19,900 more.")
    assert suggest("nam00001", names) == "Did you mean 'name00001'?"
    assert suggest("x" * 900_000, names).startswith("Known: ")
