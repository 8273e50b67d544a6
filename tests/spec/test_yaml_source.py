"""YAML with positions, on PyYAML's C parser and on the pure Python one."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from workbench.errors import SpecError, collect_errors, errors_at
from workbench.spec import load_yaml, load_yaml_file


@pytest.fixture(params=["c", "python"])
def parser(request, monkeypatch):
    if request.param == "c":
        if not hasattr(yaml, "CSafeLoader"):
            pytest.skip("PyYAML was built without libyaml")
    else:
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    return request.param


def refused(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        load_yaml(text, "w.yaml")
    error = caught.value
    assert error.file == "w.yaml" and error.line and error.column, "every refusal names a place"
    assert error.hint, "every refusal says what to write instead"
    return error


SCALARS = [
    ("true", True),
    ("True", True),
    ("false", False),
    ("no", "no"),
    ("yes", "yes"),
    ("on", "on"),
    ("Off", "Off"),
    ("y", "y"),
    ("null", None),
    ("~", None),
    ("", None),
    ("1.10", 1.1),
    ("12", 12),
    ("-3", -3),
    ("+4", 4),
    ("0", 0),
    ("1e3", 1000.0),
    (".5", 0.5),
    ("1.", 1.0),
    ("1:30", "1:30"),
    ("190:20:30", "190:20:30"),
    ("010", "010"),
    ("0x1F", "0x1F"),
    ("0o17", "0o17"),
    ("1_000", "1_000"),
    ("2026-11-20", "2026-11-20"),
    ("1.2.3", "1.2.3"),
    ("'true'", "true"),
    ('"12"', "12"),
    ("'~'", "~"),
    ("|\n  12", "12"),
    (">-\n  no\n  yes", "no yes"),
    ("\u0661", "\u0661"),
    ("99999", 99999),
    ("9" * 18, int("9" * 18)),
    ("-" + "9" * 18, -int("9" * 18)),
]


def test_scalars_are_those_of_yaml_1_2(parser, subtests):
    for text, value in SCALARS:
        with subtests.test(text=text):
            found = load_yaml(f"a: {text}", "w.yaml").value["a"]
            assert found == value and type(found) is type(value)


TEXT = """\
name: triage
nodes:
  answer:
    predict: "q -> a"   # a comment
    tools: [one, {two: 2}]
  'second node':
  - x
  -   y
budget: {calls: 20, usd: 1.5}
"""


def test_positions(parser, subtests):
    for path, place in [
        ((), (1, 1)),
        (("name",), (1, 1)),
        (("nodes", "answer"), (3, 3)),
        (("nodes", "answer", "predict"), (4, 5)),
        (("nodes", "answer", "tools", 1), (5, 18)),
        (("nodes", "answer", "tools", 1, "two"), (5, 19)),
        (("nodes", "second node", 1), (8, 7)),
        (("budget", "usd"), (9, 21)),
        (("budget", "minutes"), (9, 1)),
        (("nodes", "answer", "tools", 7, "deep", 0), (5, 5)),
        (("absent", "far"), (1, 1)),
    ]:
        with subtests.test(path=path):
            source = load_yaml(TEXT, "w.yaml")
            assert source.position(path) == place


def test_error_names_the_place_and_renders(parser):
    error = SpecError("too much", hint="Write less.", path=("budget", "usd"))
    assert str(load_yaml(TEXT, "w.yaml").locate(error)) == "w.yaml:9:21: too much\n  Write less."
    assert error.path == ("budget", "usd")


def test_errors_are_located_once_and_together(parser):
    """Each gets the path of the blocks around it; an error of another file keeps its place."""

    def wrong(*path: str | int) -> None:
        raise SpecError("wrong", path=path)

    def foreign() -> None:
        raise SpecError("foreign", file="rows.csv", line=3)

    with pytest.raises(SpecError) as caught, load_yaml(TEXT, "w.yaml").locating():
        with errors_at("nodes", "answer"):
            collect_errors((lambda: wrong("tools", 1, "two"), foreign, lambda: wrong("predict")))
    assert str(caught.value) == "w.yaml:5:19: wrong\nrows.csv:3: foreign\nw.yaml:4:5: wrong"
    assert caught.value.path == ("nodes", "answer", "tools", 1, "two")
    assert load_yaml("other: 1", "other.yaml").locate(caught.value).file == "w.yaml"


def test_has_and_with_value(parser):
    source = load_yaml(TEXT, "w.yaml")
    assert source.has(("budget", "usd")) and not source.has(("budget", "minutes"))
    other = source.with_value({"name": "x"})
    assert other.value == {"name": "x"} and other.position(("budget",)) == (9, 1) and source.value["name"] == "triage"


LAUGHS = "a: &a [x, x]\n" + "".join(f"{n}: &{n} [*{p}, *{p}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True))

HOSTILE = {
    "laughs": (LAUGHS, "anchor", (1, 4)),
    "alias": ("a: *x", "aliases", (1, 4)),
    "merge": ("a:\n  <<: {b: 1}", "merge", (2, 3)),
    "python tag": ('a: !!python/object/apply:os.system ["x"]', "tag", (1, 4)),
    "own tag": ("a: !foo 1", "!foo", (1, 4)),
    "standard tag": ("a: !!str 1", "tag", (1, 4)),
    "tag on the top": ("!!map\na: 1", "tag", (1, 1)),
    "duplicate": ("budget: 5\nb: 1\nbudget: 5000", "line 1", (3, 1)),
    "duplicate in flow": ("a: {x: 1, y: 2, 'x': 3}", "line 1", (1, 17)),
    "deep flow": ("a: " + "[" * 60, "more than 40 levels of nesting", (1, 43)),
    "very deep flow": ("a: " + "[" * 5000, "more than 40 levels of nesting", None),
    "deep block": ("- " * 5000, "mapping", (1, 1)),
    "deep keys": ("a: {b: " + "{b: " * 5000, "nesting", None),
    "two documents": ("a: 1\n---\nb: 2", "second document", (2, 1)),
    "empty": ("", "empty", (1, 1)),
    "comment only": ("# nothing\n", "empty", (1, 1)),
    "empty document": ("---\n", "empty", None),
    "list": ("- a\n- b", "mapping", (1, 1)),
    "text": ("just text", "mapping", (1, 1)),
    "complex key": ("? [1, 2]\n: x", "key", (1, 3)),
    "tab": ("a:\n\tb: 1", "tab", (2, 1)),
    "tab later": ("a:\n  b: 1\n\tc: 1", "tab", (3, 1)),
    "colon": ("a: b: c", "mapping values", (1, 5)),
    "open bracket": ("a: [1, 2\nb: 3", "not YAML", None),
    "open quote": ("a: 'x\nb: 3", "not YAML", None),
    "long integer": ("a: 1\nb: " + "9" * 5000, "5,000 digits", (2, 1)),
    "19 digits": ("a: " + "9" * 19, "19 digits", (1, 1)),
    "nan": ("a: [1, .nan]", "usable", (1, 8)),
    "inf": ("a: -.inf", "usable", (1, 1)),
    "overflow": ("a: 1e999", "usable", (1, 1)),
    "nul": ("a: x\nb: \0", "U+0000", (2, 4)),
    "escape": ("a: \x1b[31m", "U+001B", (1, 4)),
    "c1": ("a: 1\nb: \x9b", "U+009B", (2, 4)),
    "surrogate": ("a: \ud800", "U+D800", (1, 4)),
    "not a character": ("a: \ufffe", "U+FFFE", (1, 4)),
    "too large": ("a: " + "x" * 1_000_000, "1,000,000 bytes", (1, 1)),
    "too large in bytes": ("a: " + "ü" * 500_001, "1,000,000 bytes", (1, 1)),
    "unknown directive handle": ("%TAG ! tag:x,2000:\n---\na: !b 1", "tag", (3, 4)),
}


@pytest.mark.fault("hostile-yaml")
def test_wrong_files_are_refused_at_once(parser, subtests):
    for name in HOSTILE:
        with subtests.test(name=name):
            text, message, place = HOSTILE[name]
            start = time.process_time()
            error = refused(text)
            assert time.process_time() - start < 1.0
            assert message in error.message
            if place:
                assert (error.line, error.column) == place


def test_a_mistake_at_the_end_of_a_large_file_is_found_in_time():
    if not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")
    text = "a:\n" + "".join(f"  key{i}: v\n" for i in range(60_000)) + "z: 1\nz: 2\n"
    start = time.process_time()
    for _ in yaml.parse(text, Loader=yaml.CSafeLoader):
        pass
    once = time.process_time() - start
    start = time.process_time()
    assert refused(text).line == 60_003
    assert time.process_time() - start < 1 + 20 * once


@pytest.mark.fault("hostile-yaml")
def test_hostile_files_cost_no_memory(parser):
    tracemalloc.start()
    try:
        refused(LAUGHS)
        refused("a: " + "[" * 500_000)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_keys_are_texts_as_written(parser):
    """A branch's cases are often `true:` and `1:`."""
    assert load_yaml("{true: 1, 2: x, no: y, 1.10: z}", "w").value == {"true": 1, "2": "x", "no": "y", "1.10": "z"}


def test_a_quoted_merge_key_is_a_text(parser):
    assert load_yaml('"<<": 1', "w").value == {"<<": 1}


def test_files(tmp_path, parser):
    path = tmp_path / "w.yaml"
    path.write_bytes("\ufeffa: ü\r\nb: 2\r\n".encode())
    source = load_yaml_file(path)
    assert source.value == {"a": "ü", "b": 2} and source.position(("b",)) == (2, 1)
    path.write_bytes(b"a: 1\n\xc3\xbc: 1\nb: \xc3\xbcx\xff\n")
    with pytest.raises(SpecError, match="UTF-8") as caught:
        load_yaml_file(path)
    assert (caught.value.line, caught.value.column) == (3, 6), "columns count characters"
    path.write_bytes(b"a: " + b"x" * 1_000_000)
    with pytest.raises(SpecError, match="1,000,000"):
        load_yaml_file(path)
    with pytest.raises(SpecError, match="no file") as caught:
        load_yaml_file(tmp_path / "v.yaml")
    assert caught.value.hint and "w.yaml" in caught.value.hint
    with pytest.raises(SpecError, match="cannot read"):
        load_yaml_file(tmp_path)


# No digits: PyYAML writes the text 1e3 without quotes, which is a number in YAML 1.2.
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Zl", "Zp", "Nd"]), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | words
    | st.floats(-1e6, 1e6).map(lambda f: round(f, 3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=12,
)


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, key))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(words, values, min_size=1, max_size=4), st.booleans())
def test_what_yaml_dumps_is_read_back_with_a_place_for_everything(value, flow):
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=flow, default_style='"' if flow else None)
    if "!!" in text or " &" in text or "*id" in text:
        return  # quoted numbers get explicit tags, equal objects get anchors
    source = load_yaml(text, "w.yaml")
    lines = text.splitlines()
    for path in places(value):
        assert source.has(path)
        line, column = source.position(path)
        assert 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1
    if not flow:
        assert source.value == value


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab:-[]{},'\"#&*!|>%@` \n\t0123.\\?~<"), max_size=40))
def test_any_text_is_read_or_refused_with_a_place(text):
    try:
        source = load_yaml(text, "w.yaml")
    except SpecError as error:
        assert error.line and error.column and error.hint
    else:
        assert isinstance(source.value, dict)


def test_importing_it_is_cheap():
    code = "import sys, workbench.spec.yaml_source; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", "PyYAML is imported when the first file is read"
