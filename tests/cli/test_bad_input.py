"""Wrong YAML, data and plugins: each ends with exit code 2, names the place, and says what to write instead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.cli import main

GOOD = """\
name: good
lm: bundled/nano
data: {file: rows.jsonl, split: {train: 3, val: 3, test: 3}}
metric: exact_match(label)
nodes:
  sort:
    predict: "text -> label: Literal['a', 'b']"
    instructions: Sort it.
search:
  nodes.sort.instructions: [Sort it., Label it.]
optimize:
  - random: {trials: 3}
budget: {calls: 100}
"""
ROW = '{"text": "x", "label": "a"}\n'
LAUGHS = 'a: &a ["lol"]\nb: &b [*a, *a]\n'


def swap(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


#: name: (workflow file, place "line:column" or None, part of the message, part of the hint)
YAML = {
    "unknown top-level key": (swap("metric:", "metrics:"), "4:1", "unknown key 'metrics'", "metric"),
    "key of another place": (
        swap("lm: bundled/nano", "calls: 3"),
        "2:1",
        "unknown key 'calls'",
        "or budget: {calls: ...}",
    ),
    "unknown data key": (swap("{file: rows.jsonl,", "{fil: rows.jsonl,"), "3:8", "unknown key 'fil'", "file"),
    "unknown lm key": (
        swap("lm: bundled/nano", "lm: {model: bundled/nano, temp: 1}"),
        "2:27",
        "unknown key 'temp'",
        "attempts",
    ),
    "unknown budget key": (swap("{calls: 100}", "{call: 100}"), "13:10", "unknown key 'call'", "calls"),
    "metric missing": (swap("metric: exact_match(label)\n", ""), "1:1", "'metric' is missing", "exact_match"),
    "nodes missing": ("data: {file: rows.jsonl}\nmetric: exact_match(label)\n", "1:1", "'nodes' is missing", "predict"),
    "data missing": (
        swap("data: {file: rows.jsonl, split: {train: 3, val: 3, test: 3}}\n", ""),
        "1:1",
        "'data' is missing",
        "file",
    ),
    "no node kind": (swap("predict:", "predictt:"), "7:5", "no node kind", "predict"),
    "two node kinds": (swap("    instructions", "    tool: x\n    instructions"), "6:3", "one kind", None),
    "unknown node setting": (
        swap("    instructions: Sort", "    instruction: Sort"),
        "8:5",
        "unknown key 'instruction'",
        "instructions",
    ),
    "node setting of wrong type": (swap("Sort it.\nsearch", "3\nsearch"), "8:5", "must be text", None),
    "samples as text": (swap("    instructions", "    samples: many\n    instructions"), "8:5", "whole number", None),
    "node is no mapping": (
        swap("  sort:\n    predict: \"text -> label: Literal['a', 'b']\"\n    instructions: Sort it.", "  sort: hello"),
        "6:3",
        "mapping",
        None,
    ),
    "bad node name": (swap("  sort:\n", "  1 sort:\n"), "6:3", "cannot name a node", "letters"),
    "duplicate key": (swap("budget:", "name: again\nbudget:"), "13:1", "second time", "Remove"),
    "alias": (LAUGHS + GOOD, "1:4", "aliases", "Write the value out"),
    "unsafe tag": (swap("name: good", "name: !!python/object/apply:os.system [ls]"), "1:7", "tag", "plain value"),
    "own tag": (swap("name: good", "name: !thing good"), "1:7", "tag", "plain value"),
    "merge key": (swap("name: good", "<<: {a: 1}"), "1:1", "merge", "Write"),
    "deep nesting": ("a: " + "[" * 5000 + "]" * 5000, None, "levels of nesting", "Nest less"),
    "huge file": ("# " + "x" * 2_000_000, "1:1", "bytes", "data"),
    "tab": (swap("    instructions", "\tinstructions"), None, "YAML", None),
    "unclosed bracket": (swap("{calls: 100}", "{calls: 100"), None, "not YAML", "brackets"),
    "unclosed quote": (swap('"text', "'text"), None, "not YAML", None),
    "colon in text": (swap("Sort it.\nsearch", "Sort: it: now\nsearch"), "8:23", "not YAML", "quotes"),
    "empty file": ("", "1:1", "empty", "init"),
    "list on top": ("- a\n- b\n", "1:1", "mapping", None),
    "two documents": (GOOD + "---\na: 1\n", "14:1", "second document", None),
    "control character": (swap("good", "go\x07od"), "1:9", "control character", "Remove"),
    "huge integer": (swap("calls: 100", "calls: " + "9" * 5000), "13:10", "digits", None),
    "not a number": (swap("calls: 100", "usd: .nan"), "13:10", "not a usable number", None),
    "calls as text": (swap("calls: 100", "calls: lots"), "13:10", "whole number", "calls"),
    "calls zero": (swap("calls: 100", "calls: 0"), "13:10", "greater", None),
    "usd negative": (swap("calls: 100", "usd: -1"), "13:10", "greater", None),
    "seed as text": (swap("budget:", "seed: now\nbudget:"), "13:1", "whole number", None),
    "no such data file": (swap("rows.jsonl", "row.jsonl"), "3:8", "no file", "rows.jsonl"),
    "data of unknown kind": (swap("rows.jsonl", "rows.ods"), "3:8", "no reader", None),
    "empty data": (swap("rows.jsonl", "empty.jsonl"), None, "no rows", None),
    "split too large": (swap("train: 3", "train: 300"), "3:26", "the file has", "fewer"),
    "shares above one": (swap("train: 3, val: 3, test: 3", "train: 0.5, val: 0.5, test: 0.5"), "3:26", "above 1", None),
    "file and train": (swap("{file: rows.jsonl,", "{file: rows.jsonl, train: rows.jsonl,"), "3:1", "exclude", None),
    "input not in data": (swap("text -> label", "txt -> label"), "6:3", "reads 'txt'", "text"),
    "unknown metric": (swap("exact_match(label)", "exact_mach(label)"), "4:1", "unknown metric", "exact_match"),
    "metric is no call": (swap("exact_match(label)", "exact match"), "4:1", "cannot read", "exact_match(label)"),
    "metric argument": (swap("exact_match(label)", "exact_match(label, tolerance=3)"), "4:1", "does not take", None),
    "metric of unwritten field": (swap("exact_match(label)", "exact_match(lable)"), "4:1", "no node writes", "label"),
    "target not in data": (
        swap("exact_match(label)", "exact_match(label, target=gold)"),
        "4:1",
        "is not a column of the data",
        None,
    ),
    "metric file missing": (swap("exact_match(label)", "python:nope.py:f"), "4:1", "no file", None),
    "metric function missing": (swap("exact_match(label)", "python:good.py:g"), "4:1", "no function 'g'", "f"),
    "metric file with syntax error": (
        swap("exact_match(label)", "python:broken.py:f"),
        "4:1",
        "broken.py:2",
        "Correct",
    ),
    "signature without arrow": (swap("text -> label: Literal['a', 'b']", "text label"), "7:5", "'->'", "Write"),
    "signature with unknown type": (swap("Literal['a', 'b']", "Text"), "7:5", "unknown type", "types"),
    "signature with bad literal": (swap("Literal['a', 'b']", "Literal[a, b]"), "7:5", "quoted", None),
    "signature with output twice": (swap("label: Literal['a', 'b']", "label, label"), "7:5", None, None),
    "signature without output": (
        swap("text -> label: Literal['a', 'b']", "text ->"),
        "7:5",
        "at least one output",
        None,
    ),
    "unknown needs": (
        swap("    instructions", "    needs: srt\n    instructions"),
        "8:5",
        "unknown node 'srt'",
        "sort",
    ),
    "cycle": (
        swap(
            "search:",
            "  two: {predict: 'label -> text', needs: sort}\n  three: {predict: 'text -> other', needs: two}\nsearch:",
        ).replace("    instructions", "    needs: three\n    instructions"),
        None,
        "cycle",
        "Remove",
    ),
    "everything disabled": (
        swap("    instructions", "    enabled: false\n    instructions"),
        "5:1",
        "no node is enabled",
        None,
    ),
    "unknown search address": (
        swap("nodes.sort.instructions:", "nodes.sort.instruction:"),
        "10:3",
        None,
        "instructions",
    ),
    "search of unknown node": (
        swap("nodes.sort.instructions:", "nodes.srt.instructions:"),
        "10:3",
        "no setting",
        "nodes.sort",
    ),
    "two domains": (swap("[Sort it., Label it.]", "{int: [1, 2], float: [0, 1]}"), "10:3", "exactly one", None),
    "bounds swapped": (
        swap("nodes.sort.instructions: [Sort it., Label it.]", "nodes.sort.samples: {int: [5, 1]}"),
        "10:3",
        "above",
        None,
    ),
    "value that the node refuses": (
        swap("nodes.sort.instructions: [Sort it., Label it.]", "nodes.sort.samples: {int: [0, 3]}"),
        "10:3",
        "samples",
        None,
    ),
    "when on unknown address": (
        swap("[Sort it., Label it.]", "{choice: [a, b], when: {nodes.sort.sample: 1}}"),
        "10:3",
        None,
        None,
    ),
    "unknown optimizer": (swap("random:", "randon:"), "12:5", "unknown optimizer 'randon'", "random"),
    "unknown parameter": (swap("trials:", "trial:"), "12:14", "unknown key 'trial'", "trials"),
    "parameter of wrong type": (swap("trials: 3", "trials: few"), "12:14", "whole number", None),
    "two optimizers in one entry": (
        swap("random: {trials: 3}", "random: {trials: 3}\n    optuna: {}"),
        None,
        "one optimizer",
        None,
    ),
    "unknown language model": (swap("bundled/nano", "nano"), "2:1", "no LM provider", "provider/model"),
    "optional is no word": (
        swap("    instructions: Sort it.", "    instructions: Sort it.\n    optional: yess"),
        "9:5",
        "optional must be true or false",
        None,
    ),
    "enabled in quotes": (
        swap("    instructions: Sort it.", "    instructions: Sort it.\n    enabled: 'no'"),
        "9:5",
        "enabled must be true or false",
        None,
    ),
    "a file that holds itself": (
        swap("    instructions: Sort it.", "    instructions: Sort it.\n  more: {workflow: bad.yaml}"),
        "9:3",
        "hold each other",
        "Write the nodes out",
    ),
    "mistyped model of a node": (
        swap("    instructions: Sort it.", "    instructions: Sort it.\n    lm: openi/gpt"),
        "9:5",
        "no LM provider 'openi'",
        "openai/gpt",
    ),
    "unknown bundled model": (swap("bundled/nano", "bundled/micro"), "2:1", "bundled", "nano"),
    "bad address of a server": (
        swap("lm: bundled/nano", "lm: {model: openai/x, api_base: 'localhost:80'}"),
        "2:1",
        "address",
        "http://",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text(ROW * 5 + ROW.replace('"a"', '"b"') * 4)
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "good.py").write_text("def f(example, prediction):\n    return 1.0\n")
    (tmp_path / "broken.py").write_text("def f(example):\n    return return\n")
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, float]:
    """Exit code, what was printed, and seconds of the processor."""
    begun = time.process_time()
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    seconds = time.process_time() - begun
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err, seconds


def test_the_good_file_is_good(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "validate", "good.yaml")
    assert code == 0, text


@pytest.mark.parametrize("name", YAML)
def test_wrong_yaml(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, place, message, hint = YAML[name]
    (folder / "bad.yaml").write_text(text)
    code, said, seconds = run(capsys, "validate", "bad.yaml")
    assert code == 2, said
    assert seconds < 1.0, seconds
    pattern = rf"(bad\.yaml|empty\.jsonl):{place or r'[0-9]+:[0-9]+'}: "
    assert re.search(pattern, said), f"{name}: no place {place} in: {said}"
    for part in filter(None, (message, hint)):
        assert part in said, f"{name}: '{part}' is not in: {said}"
    assert "Traceback" not in said


DATA = {
    "bad json": ("rows.jsonl", ROW * 8 + '{"text": }\n', "9:10", "not JSON"),
    "row is a list": ("rows.jsonl", ROW * 8 + "[1, 2]\n", "9:1", "must be an object"),
    "nan": ("rows.jsonl", ROW * 8 + '{"text": NaN, "label": "a"}\n', "9:10", "NaN"),
    "not utf-8": ("rows.jsonl", ROW.encode() * 8 + b'{"text": "\xff"}\n', "9:11", "UTF-8"),
    "cells too many": ("rows.csv", "text,label\n" + "x,a\n" * 8 + "x,y,a\n", "10:1", "3 cells"),
    "column twice": ("rows.csv", "text,text\nx,a\n", "1:1", "twice"),
    "quote open": ("rows.csv", "text,label\n" + "x,a\n" * 8 + '"x,a\n', None, "table"),
    "json is not a list": ("rows.json", '{"a": 1}', "1:1", "list of objects"),
    "no rows": ("rows.csv", "text,label\n", "1:1", "no rows"),
}


@pytest.mark.parametrize("name", DATA)
def test_wrong_data(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, place, message = DATA[name]
    (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "bad.yaml").write_text(swap("rows.jsonl", file))
    code, said, _ = run(capsys, "validate", "bad.yaml")
    assert code == 2 and message in said, said
    assert re.search(rf"{re.escape(file)}:{place or '[0-9]+:[0-9]+'}: ", said), said
    assert said.count("\n") >= 2, f"no hint in: {said}"


@pytest.mark.parametrize(("sign", "written"), [(";", "';'"), ("\t", '"\\t"'), ("|", "'|'")])
def test_friction_46_another_delimiter_is_guessed_and_the_setting_named(
    sign: str, written: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.csv").write_text(f"text{sign}label\n" + f"x{sign}a\n" * 9)
    (folder / "bad.yaml").write_text(swap("rows.jsonl", "rows.csv"))
    code, said, _ = run(capsys, "validate", "bad.yaml")
    setting = f"{{delimiter: {written}}}"
    assert code == 2 and f"data: {{options: {setting}}}" in said, said
    (folder / "good.yaml").write_text(swap("rows.jsonl,", f"rows.csv, options: {setting},"))
    assert run(capsys, "validate", "good.yaml")[0] == 0


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("exact_match", "needs the field to compare (field)"),
        ("exact_match(label, a, b)", "it takes at most 2 without a name, and 3 are given"),
        ("exact_match(label, tolerance=3)", "it knows no 'tolerance'"),
        ("exact_match(3)", "name the field to compare"),
    ],
)
def test_friction_48_wrong_arguments_of_a_metric_are_told_without_our_names(
    metric: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.yaml").write_text(swap("exact_match(label)", metric))
    code, said, _ = run(capsys, "validate", "bad.yaml")
    assert code == 2 and words in said and "__init__" not in said, said


COMMANDS = {
    "no file": (["validate", "nope.yaml"], "there is no file nope.yaml", "good.yaml"),
    "unknown command": (["optimise", "good.yaml"], "No such command", "optimize"),
    "set without value": (["validate", "good.yaml", "--set", "seed"], "ADDRESS=VALUE", None),
    "set of unknown key": (["validate", "good.yaml", "--set", "sed=3"], "unknown key 'sed'", "seed"),
    "set into a text": (["validate", "good.yaml", "--set", "name.first=3"], "is not a setting", None),
    "set of wrong type": (["validate", "good.yaml", "--set", "seed=soon"], "flag --set seed: must be a whole", None),
    "budget of zero": (["optimize", "good.yaml", "--budget-calls", "0"], "0", None),
    "no database": (["show", "last"], "no run database", "--db"),
    "input missing": (["run", "good.yaml", "--input", "txt=3"], "'text' is missing", "--input text="),
    "example out of range": (["run", "good.yaml", "--example", "99"], "has no row 99", None),
    "bad name of a plugin": (["plugin", "new", "1st"], "is not a valid plugin name", "Use letters"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_commands(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message, hint = COMMANDS[name]
    code, said, _ = run(capsys, *arguments)
    assert code == 2, said
    assert message in said and (hint is None or hint in said), said


BROKEN = {
    "raises at import": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "exits at import": ("raise SystemExit(3)", "SystemExit: 3"),
    "misspelt hook": ("@hookimpl\ndef register_optimisers(register): ...", "register_optimizers"),
    "wrong argument": ("@hookimpl\ndef register_optimizers(registry): ...", "registry"),
    "name taken": ("@hookimpl\ndef register_optimizers(register): register('random', 'x:y')", "registered already"),
    "raises in a hook": ("@hookimpl\ndef register_optimizers(register): 1 / 0", "ZeroDivisionError"),
}


@pytest.mark.fault("hostile-plugins")
@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugin_is_named_and_set_aside(name: str, folder: Path) -> None:
    code, reason = BROKEN[name]
    (folder / "sick_plugin.py").write_text(f"from workbench import hookimpl\n{code}\n")
    info = folder / "sick_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sick-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[workbench]\nzick = sick_plugin\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    cli = [sys.executable, "-c", "from workbench.cli import main; main()"]
    listed = subprocess.run([*cli, "plugin", "list"], env=env, capture_output=True, text=True, cwd=folder)
    assert listed.returncode == 0, listed.stderr
    line = next(line for line in listed.stdout.splitlines() if line.startswith("zick "))
    assert "sick-plugin 1.0" in line and "set aside" in line and reason in line, line
    (folder / "bad.yaml").write_text(swap("random:", "hill:"))
    bad = subprocess.run([*cli, "validate", "bad.yaml"], env=env, capture_output=True, text=True, cwd=folder)
    assert bad.returncode == 2 and "zick" in bad.stderr, bad.stderr


def test_of_two_distributions_with_one_plugin_name_the_second_is_set_aside_and_both_are_named(folder: Path) -> None:
    for dist in ("first", "second"):
        info = folder / f"{dist}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[workbench]\nsame = json\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", "from workbench.cli import main; main()", "plugin", "list"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "first" in done.stdout and "second" in done.stdout, done.stderr
    assert "has a plugin of this name already" in done.stdout
