"""Rows that belong together, by a field that groups them or by being copies, and what the file is told of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant

from workbench.run import prepare
from workbench.task import Example
from workbench.task.clusters import cluster_rows
from workbench.task.groups import find_group_field


def rows_with(name: str, values: list[Any]) -> list[Example]:
    return [Example(str(i), {"text": f"text {i}", "label": "ab"[i % 2], name: v}) for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("conv", [i // 10 for i in range(200)]),
        ("conversation_id", [f"c{i % 20}" for i in range(200)]),
        ("sessionId", [f"{i % 12:08x}" for i in range(60)]),
        ("user", ["anna", "ben", "cora", "dan"] * 10),
        ("thread", [i % 3 for i in range(30)]),
        ("doc_uid", [f"d-{i // 4}" for i in range(80)]),
        ("ticket", [4000 + i // 3 for i in range(60)]),
        ("dlg", [float(i // 6) for i in range(60)]),
        ("topic_session", [i // 6 for i in range(60)]),
    ],
)
def test_a_field_that_groups_rows_is_found(name: str, values: list[Any]) -> None:
    assert find_group_field(rows_with(name, values), {"text", "label"}) == name
    nested = [Example(row.id, {"text": row["text"], "meta": {name: row[name]}}) for row in rows_with(name, values)]
    assert find_group_field(nested, {"text"}) == f"meta.{name}"


def test_a_field_that_sorts_or_numbers_rows_is_none(subtests: pytest.Subtests) -> None:
    for name, values in [
        ("topic", ["algebra", "biology", "law", "art"] * 20),
        ("level", [i % 5 for i in range(100)]),
        ("language", ["en", "de", "fr"] * 20),
        ("id", list(range(100))),
        ("year", [1990 + i % 20 for i in range(100)]),
        ("user", [f"u{i}" for i in range(99)] + ["u0"]),
        ("hops", [2 + i % 3 for i in range(60)]),
        ("flagged", [True, False] * 30),
        ("tone", ["formal", "rude", "kind", "flat"] * 9),
        ("category_id", [i % 7 for i in range(70)]),
        ("source", ["wiki", "news", "reddit"] * 100),
        ("template", [i % 4 for i in range(40)]),
        ("customer_segment", ["small", "large", "state"] * 20),
        ("conversation_length", [2 + i % 9 for i in range(90)]),
        ("source_language", [f"l{i % 12}" for i in range(60)]),
        ("created", [f"2024-01-{1 + i % 20:02}" for i in range(60)]),
        ("course", [f"CS1{i % 12:02}" for i in range(60)]),
        ("user_level", [i % 5 for i in range(60)]),
        ("conv_type", ["chat", "mail", "phone"] * 20),
        ("session", ["morning", "noon", "night"] * 60),
    ]:
        with subtests.test(name=name):
            assert find_group_field(rows_with(name, values), {"text", "label"}) is None


def test_of_several_fields_the_finest_groups_rows() -> None:
    rows = [Example(str(i), {"text": f"t{i}", "user": i // 20, "conv_id": f"c{i // 2}"}) for i in range(100)]
    assert find_group_field(rows, {"text"}) == "conv_id"


def test_inputs_and_labels_are_no_groups() -> None:
    """A passage that many rows share is a cluster only if the file says so."""
    rows = rows_with("passage", ["one", "two", "three", "four"] * 5)
    assert find_group_field(rows, {"text", "label", "passage"}) is None
    assert cluster_rows(rows, None, ["text", "passage"], "label").guessed is None
    assert len({*cluster_rows(rows, "passage", ["text", "passage"], "label").of.values()}) == 4


def test_a_group_and_copies_across_groups_are_one_cluster() -> None:
    long = "the parcel that I ordered two weeks ago has not come and nobody answers my mails"
    texts = [long, "first other text", "second other text", long.replace("come", "arrived"), "third", "fourth"]
    rows = [Example(str(i), {"text": t, "conv": f"c{i // 2}"}) for i, t in enumerate(texts)]
    found = cluster_rows(rows, None, ["text"], None)
    of = [found.of[row.id] for row in rows]
    assert of[0] == of[1] == of[2] == of[3] and of[4] == of[5] != of[0]
    assert found.guessed == "conv" and "1 of the 6 test rows are near copies" in found.notes[0]
    assert "e.g. 3 with 0" in found.notes[0] and "3 values of 'conv'" in found.notes[1]


def test_ids_that_name_a_conversation_and_a_turn_group_rows() -> None:
    turns = [Example(str(i), {"id": f"conv{i // 4}-turn{i % 4}", "text": f"text {i}"}) for i in range(48)]
    found = cluster_rows(turns, None, ["text"], None)
    assert (
        len({*found.of.values()}) == 12 and "the ids of the 48 test rows name 12 groups, e.g. conv0" in found.notes[0]
    )
    for field, end in (("turn_id", ""), ("utterance", "#"), ("key", "turn"), ("id", "utt")):
        ids = [f"c{i // 4}-{end}{i % 4}" for i in range(48)]
        rows = [Example(str(i), {field: name, "text": f"text {i}"}) for i, name in enumerate(ids)]
        found = cluster_rows(rows, None, ["text"], None)
        assert len({*found.of.values()}) == 12 and "name 12 groups, e.g. c0" in found.notes[0], field
    ids = [f"c{i // 4}-turn{i % 4}" for i in range(48)]
    asked = [Example(name, {"key": name, "text": f"text {i}"}) for i, name in enumerate(ids)]
    assert cluster_rows(asked, None, ["text", "key"], None).notes == (), "an input is no id"
    talks = [Example(name, {"conv": name[:2], "text": name}) for name in ids]
    assert cluster_rows(talks, None, ["text"], None).guessed == "conv"
    assert cluster_rows(talks, None, ["text", "conv"], None).guessed is None, "nor is it what rows have in common"
    prose = [Example(name, {"key": f"{name[:-6]}{' word' * 20}{name[-6:]}", "text": name}) for name in ids]
    assert cluster_rows(prose, None, ["text"], None).notes == (), "nor is a long text"
    turns = [Example(str(i), {"turn_id": i % 12, "qid": f"d{i // 4}-{i % 4}", "text": f"text {i}"}) for i in range(48)]
    assert cluster_rows(turns, None, ["text"], None).notes == (), "numbers of turns, and questions on one document"
    for name in ("gsm8k/train/{}", "algebra_{}", "row-{}", "{}", "9f3a{}", "2024-01-05-{}", "L3-{}"):
        rows = [Example(str(i), {"id": name.format(i), "text": f"text {i}"}) for i in range(48)]
        assert cluster_rows(rows, None, ["text"], None).notes == (), name
    kinds = "abcdefghijkl"
    subjects = [Example(str(i), {"id": f"mmlu/{kinds[i % 12]}law/{i}", "text": f"text {i}"}) for i in range(48)]
    assert cluster_rows(subjects, None, ["text"], None).notes == (), "kinds of tasks are no conversations"


def test_a_turn_whose_history_begins_with_an_earlier_one_belongs_to_it() -> None:
    talks = [[f"talk {t} says {'abc'[k]} {t * 7 + k} and waits for what comes" for k in range(3)] for t in range(5)]
    rows = []
    for number, talk in enumerate(talks):
        for k in range(3):
            said = [{"role": "system", "content": "You are kind."}]
            said += [{"role": "user", "content": text} for text in talk[: k + 1]]
            rows.append(Example(f"{number}.{k}", {"messages": said, "label": "ab"[k % 2]}))
    random.Random(0).shuffle(rows)
    found = cluster_rows(rows, None, ["messages"], "label")
    assert len({*found.of.values()}) == 5
    assert all(found.of[row.id] == found.of[f"{row.id.split('.')[0]}.0"] for row in rows)
    assert "10 of the 15 test rows begin with all of another row" in found.notes[0]
    assert cluster_rows(rows, False, ["messages"], "label").of == {}


def test_a_question_after_its_history_belongs_to_the_turns_before() -> None:
    """Of two fields, as chats are often kept, with the roles between them."""
    rows = []
    for talk in range(4):
        history: list[dict[str, str]] = []
        for turn in range(3):
            question = f"talk {talk} asks for the {'abc'[turn]} of its {talk * 7} parts"
            rows.append(Example(f"{talk}.{turn}", {"history": [*history], "question": question}))
            history += [{"role": "user", "content": question}, {"role": "assistant", "content": f"It is {turn}."}]
    found = cluster_rows(rows, None, ["history", "question"], None)
    assert len({*found.of.values()}) == 4


def test_what_many_rows_begin_with_is_a_template() -> None:
    start, words = "answer the question that follows in one word please", ("ab", "cd", "ef", "gh")
    rows = [Example(w, {"text": f"{start} {w} {w[::-1]} and the rest of {w * 2}"}) for w in words]
    assert len({*cluster_rows([Example("x", {"text": start}), *rows], None, ["text"], None).of.values()}) == 5


def conversations(folder: Path, **data: Any) -> tuple[list[str], int]:
    """(warnings, clusters of the test) of a file whose rows are turns of conversations."""
    plant(folder, lambda r: 0.5, {"random": {"trials": 1}}, calls=200)
    rng = random.Random(0)
    lines = [
        {"text": " ".join(rng.choice("abcdefghij") * 3 for _ in range(12)), "label": "a", "conv": i // 5}
        for i in range(40)
    ]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = json.loads((folder / "workflow.yaml").read_text())
    task = prepare(folder / "workflow.yaml", [("data", {**spec["data"], **data})])[2]
    clusters = {task.cluster_of(row) for row in task.dataset.test.open()}
    return [w for w in task.dataset.warnings if "values of 'conv'" in w], len(clusters)


def test_conversations_are_asked_about_and_count_once_until_the_file_says_otherwise(tmp_path: Path) -> None:
    warned, clusters = conversations(tmp_path / "a")
    assert clusters == 8 and "8 values of 'conv'" in warned[0] and "{cluster: conv}" in warned[0]
    assert conversations(tmp_path / "b", cluster="conv") == ([], 8)
    assert conversations(tmp_path / "c", cluster=False) == ([], 40)


def test_copies_within_the_test_are_told(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=200)
    long = "the parcel that I ordered two weeks ago has not come and nobody answers my mails"
    lines = [{"text": f"{long} {word}", "label": "a"} for word in ("today", "yet", "again", "still")]
    lines += [{"text": f"other {i}", "label": "b"} for i in range(6)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = prepare(tmp_path / "workflow.yaml")[2]
    assert any("3 of the 10 test rows are near copies of others" in w for w in task.dataset.warnings)
    assert len({task.cluster_of(row) for row in task.dataset.test.open()}) == 7
