"""Each row once, in groups that no split cuts; files of any size; faults with their line."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st
from tests.plugins.traces.samples import chat, genai_messages, imported, otel_span, otlp, read, run, write

from workbench.errors import SpecError
from workbench.run import prepare
from workbench_traces.read_files import read_turns
from workbench_traces.rows import cut_by_time, group_rows


def row(conversation: str = "", user: str = "", time: str | None = None, *said: str) -> dict[str, Any]:
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    return {
        "conversation": conversation,
        "user": user,
        "time": time,
        "messages": messages[:-1],
        "input": said[-2] if len(said) > 1 else conversation + user + str(time),
        "output": said[-1] if said else "out",
    }


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "c", "d"]), st.sampled_from(["", "x", "y", "z"])), max_size=30),
    st.sampled_from(["conversation", "user", "time"]),
)
def test_rows_of_one_conversation_or_user_are_of_one_group(names: list[tuple[str, str]], by: str) -> None:
    rows = [{**row(talk, user), "input": f"q{n}", "output": f"a{n}"} for n, (talk, user) in enumerate(names)]
    groups = group_rows(rows, by)
    for (one, first), (other, second) in itertools.combinations(zip(rows, groups, strict=True), 2):
        if one["conversation"] and one["conversation"] == other["conversation"]:
            assert first == second
        if by == "user" and one["user"] and one["user"] == other["user"]:
            assert first == second
    if by != "user":
        alone = [g for r, g in zip(rows, groups, strict=True) if not r["conversation"]]
        assert len(set(alone)) == len(alone)


def test_users_link_conversations_that_they_share() -> None:
    rows = [row("a", "x"), row("a", "y"), row("b", "y"), row("c", "z")]
    assert group_rows(rows, "user") == ["group-1", "group-1", "group-1", "group-2"]
    assert group_rows(rows, "conversation") == ["group-1", "group-1", "group-2", "group-3"]


def test_a_chat_that_was_recorded_turn_by_turn_is_one_conversation() -> None:
    talk = ["hello", "hi", "how?", "so", "why?", "because"]
    rows = [row("", "", None, *talk[:2]), row("", "", None, *talk[:4]), row("", "", None, *talk)]
    other = row("", "", None, "hello", "good day", "how?", "so")
    assert group_rows([*rows, other], "conversation") == ["group-1"] * 3 + ["group-2"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=40))
def test_what_is_cut_by_time_is_in_its_order_and_cuts_no_conversation(made: list[tuple[int, int]]) -> None:
    rows = [{**row(f"talk{talk}", "", f"2026-01-01T00:{at:02}"), "n": n} for n, (talk, at) in enumerate(made)]
    groups = group_rows(rows, "time")
    parts = cut_by_time(rows, groups, (0.25, 0.25, 0.5))
    assert sorted(r["n"] for part in parts for r in part) == list(range(len(rows)))
    talks = [{r["conversation"] for r in part} for part in parts]
    assert not (talks[0] & talks[1] or talks[0] & talks[2] or talks[1] & talks[2])
    began = {talk: min(r["time"] for r in rows if r["conversation"] == talk) for part in talks for talk in part}
    for earlier, later in itertools.combinations(talks, 2):
        assert not earlier or not later or max(began[t] for t in earlier) <= min(began[t] for t in later)


def test_no_user_is_in_two_splits_of_the_workflow(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", *(chat(n, user=f"u{n % 9}", ok=1) for n in range(60)))
    out = tmp_path / "o" / "rows.jsonl"
    rows, said = imported(out, file, "--split", "user")
    data = prepare(out.with_name("workflow.yaml"))[2].dataset
    users = [{r["user"] for r in part} for part in (data.train, data.val, data.test.open())]
    assert sum(map(len, users)) == 9 == len(set.union(*users)) and "60 rows in 9 groups" in said
    assert len({r["group"] for r in rows}) == 9


def test_the_newest_conversations_are_the_test(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", *(chat(n, ok=1, time=1_700_000_000 + (n * 7) % 40) for n in range(40)))
    out = tmp_path / "o" / "rows.jsonl"
    done = run(out, file, "--split", "time")
    assert done.exit_code == 0, done.output
    parts = [read(out.with_name(f"rows.{name}.jsonl")) for name in ("train", "val", "test")]
    assert list(map(len, parts)) == [10, 10, 20] and not out.exists()
    assert max(r["time"] for r in parts[1]) < min(r["time"] for r in parts[2])
    tree = yaml.safe_load(out.with_name("workflow.yaml").read_text())
    assert tree["data"] == {name: f"rows.{name}.jsonl" for name in ("train", "val", "test")}
    again = run(out, file, "--split", "time")
    assert isinstance(again.exception, SpecError) and "nothing is overwritten" in str(again.exception)


def test_duplicates_are_counted_and_the_labelled_one_is_kept(tmp_path: Path) -> None:
    loud = chat(1, ok=1)
    loud["messages"][1]["content"] = "what IS 1 plus one"
    other = chat(1)
    other["messages"][2]["content"] = "3"
    file = write(tmp_path / "c.jsonl", chat(1), chat(1), loud, other, *(chat(n) for n in range(2, 6)))
    rows, said = imported(tmp_path / "o" / "rows.jsonl", file)
    assert len(rows) == 6 and rows[0]["score"] == 1 and rows[0]["input"] == "what IS 1 plus one"
    assert "1 left out: duplicates\n" in said and "1 left out: duplicates except for case" in said
    assert [r["output"] for r in rows][:2] == ["2", "3"]  # another answer is another row


def test_ids_are_the_same_at_the_next_import_and_differ_from_each_other(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", *map(chat, range(6)))
    first, second = (imported(tmp_path / name / "rows.jsonl", file)[0] for name in "ab")
    assert [r["id"] for r in first] == [r["id"] for r in second] and len({r["id"] for r in first}) == 6


def test_labelled_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", *(chat(n, ok=n % 2) for n in range(12)))
    rows, _ = imported(tmp_path / "o" / "rows.jsonl", file, "--labelled")
    assert len(rows) == 6 and all(r["answer"] == r["output"] for r in rows)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (b"{", "line 2"),
        (b'{"a": "\x00"}', "line 2"),
        (b'{"a": "\xff"}', "line 2"),
        (b"[" * 100_000, "line 2"),
        (b'{"n": ' + b"9" * 5000 + b"}", "line 2"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(second: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_bytes(json.dumps(chat(1)).encode() + b"\n" + second + b"\n" + json.dumps(chat(2)).encode())
    done = run(tmp_path / "o" / "rows.jsonl", file)
    assert isinstance(done.exception, SpecError) and done.exception.line == 2 and done.exception.hint, done.exception
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no traces in a known format"),
        ('{"a": 1}', "no traces in a known format"),
        ("[1, 2]", "no traces in a known format"),
        ("{\n", "not JSON"),
        ('{"messages": []}', "there are only 0 groups"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [3]}]}]}', "span 0 has no attributes"),
    ],
)
def test_files_without_traces_are_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(content)
    done = run(tmp_path / "o" / "rows.jsonl", tmp_path / "c.json")
    assert isinstance(done.exception, SpecError) and words in str(done.exception), done.exception
    missing = run(tmp_path / "o" / "rows.jsonl", tmp_path / "none.json")
    assert isinstance(missing.exception, SpecError)


def test_a_file_on_many_lines_is_one_value(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps([chat(n) for n in range(5)], indent=2))
    rows, _ = imported(tmp_path / "o" / "rows.jsonl", tmp_path / "c.json")
    assert len(rows) == 5


def test_a_large_file_is_read_a_line_at_a_time(tmp_path: Path) -> None:
    """40 MB of spans, most of whose text no row needs."""
    tool = "z" * 100_000
    with (tmp_path / "big.jsonl").open("w") as file:
        for n in range(400):
            work = otel_span(n, trace=f"t{n % 40}", parent="p", gen_ai__operation__name="execute_tool", noise=tool)
            file.write(json.dumps(otlp(work)) + "\n")
            file.write(json.dumps(otlp(otel_span(n, trace=f"t{n % 40}", parent="p", **genai_messages(n)))) + "\n")
    tracemalloc.start()
    turns = read_turns([tmp_path / "big.jsonl"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(turns) == 40 and turns[0].output == "Answer 360." and peak < 6_000_000
