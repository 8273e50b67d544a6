"""Copies of rows: what is the same row in other words, and what is another row of the same template."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant

from workbench.errors import SpecError
from workbench.run import Options, optimize, prepare
from workbench.task import Example, Repeats, copies as copies_module, describe_rows, normalised_inputs, tokenize
from workbench.task.copies import Copies, RowRule, Words, are_near, group_copies, number_fields

LONG = "the parcel that I ordered two weeks ago has not come and nobody answers my mails"


def row(text: str, label: str = "a", **more: object) -> Example:
    return Example(text[:12], {"text": text, "label": label, **more})


def test_a_copy_is_found_whatever_its_case_spaces_and_stops(subtests: pytest.Subtests) -> None:
    for other, copied in [
        (LONG, "exact"),
        (LONG.upper(), "exact"),
        (LONG + " .", "exact"),
        (f"  {LONG}!!", "exact"),
        (LONG.replace("ordered", "bought"), "near"),
        (LONG.replace(" my mails", " mails"), "near"),
        (LONG.replace("two", "2").replace("come", "arrived"), None),
        (LONG.replace("ordered", "bought").removesuffix(" mails"), None),
        (LONG.replace("my mails", "mails my"), None),
        ("my invoice is wrong and nobody answers my mails", None),
        (f"order 4711 and 12: {LONG}", None),
        (f"somebody from the office over there wrote that {LONG}", None),
        (LONG + " so please send it at once or give me my money back", None),
    ]:
        with subtests.test(other=other):
            copies = Copies([("train", row("something else")), ("train", row(LONG))], RowRule(("text",), ("label",)))
            found = copies.find(row(other))
            assert (None if found is None else "near" if found[2] else "exact") == copied
            if found:
                assert found[:2] == ("train", row(LONG))


def test_rows_of_one_template_are_rows_of_their_own() -> None:
    """One token differs, and it is what matters: a number, or a word that changes the label."""
    asked = "a train goes {} miles an hour for three hours without a stop how far does it come"
    copies = Copies([("train", row(asked.format(60), "180"))], RowRule(("text",), ("label",)))
    assert copies.find(row(asked.format(50), "180")) is None and copies.find(row(asked.format(60), "180"))
    other = Copies([("train", row(LONG, "shipping"))], RowRule(("text",), ("label",)))
    assert other.find(row(LONG.replace("parcel", "refund"), "billing")) is None
    assert Copies([("train", row("3 + 4 - 2"))], RowRule(("text",))).find(row("3 - 4 + 2")) is None, (
        "signs are no punctuation"
    )
    assert Copies([("train", row("capital of France"))], RowRule(("text",))).find(row("capital of Spain")) is None


def test_a_number_beside_the_text_makes_no_other_row() -> None:
    texts = [f"{LONG} and this is case {word}" for word in ("one", "two", "three", "four")]
    rows = [row(text, user=f"u{i}") for i, text in enumerate(texts)]
    assert number_fields(rows, ["user", "text"]) == ["user"]
    copies = Copies([("train", r) for r in rows], RowRule(("text",), ("label",), numbered=True))
    assert copies.find(row(texts[2].upper(), user="u99")) is not None
    assert copies.find(row(texts[2], label="b", user="u99")) is None
    sums = [Example(str(i), {"a": i, "b": i % 2}) for i in range(9)]
    assert number_fields(sums, ["a", "b"]) == [], "nothing is left that tells rows apart"


def test_many_rows_are_searched_in_no_time() -> None:
    rows = [
        ("train", row(f"row {i} of a template that all of the rows have in common with each other"))
        for i in range(3000)
    ]
    copies = Copies(rows, RowRule(("text",)))
    assert (
        sum(
            copies.find(row(f"row {i} of a template that all of the rows have in common with each other!")) is not None
            for i in range(0, 6000, 2)
        )
        == 1500
    )


def test_words_and_signs_are_compared() -> None:
    assert tokenize("Ähnlich, 3+4 = ７!") == ["ähnlich", "3", "+", "4", "=", "7"]
    assert tokenize(" ?! ") == ["?!"] and tokenize("  ") == []
    assert normalised_inputs(row("A b.", n=[1, {"c": "D"}]), ["text", "n"]) == "a b 1 d"


def test_repeats_see_through_words_put_between_and_respect_what_is_fair() -> None:
    filled = " ".join(f"{word} um" if i % 2 else word for i, word in enumerate(LONG.split()))
    for text in (f"Remember: {LONG}.", f"Remember: {filled}."):
        assert Repeats({"a": text}, []).find(tokenize(LONG)) == "a"
    assert Repeats({"a": "Sort by what the customer wants, my parcel, the mails"}, []).find(tokenize(LONG)) is None
    assert Repeats({"a": LONG}, [tokenize(LONG + " today")]).find(tokenize(LONG)) is None, "train says it as well"
    assert Repeats({"a": "sums: 3 + 4 - 2 is 5"}, []).find(tokenize("3 + 4 - 2")) == "a"
    assert Repeats({"a": "sums: 3 + 4 and 2"}, []).find(tokenize("3 - 4 + 2")) is None
    scattered = " ".join(f"{word} and then some other words" for word in LONG.split())
    assert Repeats({"a": scattered}, []).find(tokenize(LONG)) is None, "they do not stand together"
    assert Repeats({"a": "3 and 4 + more"}, []).find(tokenize("3 + 4")) is None, "a short row must stand there in order"


def copied_rows(folder: Path, change: str = "{}", share: int = 1) -> None:
    """Test rows whose every share-th text is a train row's."""
    train = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    test = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    for i in range(0, len(test), share):
        test[i] = {**train[i % len(train)], "text": change.format(train[i % len(train)]["text"])}
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in test))


@pytest.mark.parametrize("change", ["{}", "{} .", " {}!"])
def test_copies_are_left_out_of_the_test_and_counted_by_rows(change: str, tmp_path: Path) -> None:
    """P3. 40 test rows, of which 20 are copies of 20 train rows."""
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400, proof={"when_unchanged": "test"})
    copied_rows(tmp_path, change, 2)
    task = prepare(tmp_path / "workflow.yaml")[2]
    assert len(task.dataset.test) == 20
    assert task.dataset.warnings[0].startswith(
        "20 of the 40 test rows have the same inputs as a train or val row (e.g. "
    )
    lm = PlantedLM(lambda r: 0.5)
    report = optimize(
        tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=lm, options=Options(out=str(tmp_path / "o.yaml"))
    )
    (told,) = [line for line in report.lines() if "left out of the test" in line]
    assert report.test_rows == 20 and "{cluster: false}" not in told


def test_a_test_of_copies_alone_shows_nothing(tmp_path: Path) -> None:
    """Train is test: a workflow that remembers its demos is right on all of it."""
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    copied_rows(tmp_path)
    space = {"nodes.sort.instructions": ["Plain.", "Better."]}
    report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=PlantedLM(lambda r: 0.99 if "Better" in str(r.messages[0]) else 0.3),
        options=Options([("search", space)], str(tmp_path / "o.yaml"), allow_unproved=True),
    )
    assert report.changes and report.proof is None and not report.proved
    assert "The gain is not shown: no test rows are left." in report.headline()


def test_rows_of_a_cluster_count_once_in_a_run(tmp_path: Path) -> None:
    """P2: six rows, ten times each, by default; and `cluster: part`."""
    space = {"nodes.sort.instructions": ["Plain.", "Better."]}
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 2}}, calls=900, rows=(20, 20, 60), search=space)
    lines = [
        {"text": f"row {i % 6} topic1 word1: a a-thing" + "!" * (i // 6), "label": "a", "part": i % 20}
        for i in range(60)
    ]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lm = PlantedLM(lambda r: 1.0 if "Better" in str(r.messages[0]) else 0.0)

    def run(*sets: tuple[str, object]) -> object:
        report = optimize(
            tmp_path / "workflow.yaml",
            database=tmp_path / f"{len(sets)}.db",
            pool=lm,
            options=Options(list(sets), str(tmp_path / f"{len(sets)}.yaml")),
        )
        assert report.changes and report.proof is not None
        return report.proof.n, report.proof.n_rows, report.as_dict()["gain"]["rows"]

    assert run() == (6, 60, 60)
    assert run(("data.cluster", "part")) == (20, 60, 60)


def test_long_rows_with_one_header_are_told_apart_by_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of thousands of tokens are aligned only if they have nearly the same ones."""
    aligned: list[int] = []
    whole = copies_module._within

    def watched(a: Words, b: Words, edits: int) -> bool:
        aligned.append(edits)
        return whole(a, b, edits)

    monkeypatch.setattr(copies_module, "_within", watched)
    header = " ".join(f"h{i}" for i in range(100))
    documents = [f"{header} " + " ".join(f"w{n}x{i}" for i in range(2000)) for n in range(20)]
    found = Copies([("train", row(text)) for text in documents[:10]], RowRule(("text",)))
    assert [found.find(row(text)) for text in documents[10:]] == [None] * 10 and not aligned
    near = found.find(row(documents[3].replace("h50", "x").replace(" h70", "")))
    assert near is not None and near[1]["text"] == documents[3] and near[2] and len(aligned) == 1


def test_a_cluster_field_that_no_row_has_is_refused(tmp_path: Path) -> None:
    """Else each row would count by itself, which shows gains that are not there."""
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=200)
    path = tmp_path / "workflow.yaml"
    with pytest.raises(SpecError, match="no test row has the field 'labl'") as found:
        prepare(path, [("data.cluster", "labl")])
    assert "label" in (found.value.hint or "")
    prepare(path, [("data.cluster", "label")])


PASSAGE = " ".join(f"word{i} of the contract" for i in range(50))


def test_ten_questions_on_one_passage_are_ten_rows_D1() -> None:
    """The passage is the same, and the question is what is asked: rows are copies if each of their fields is."""
    rows = [
        Example(str(i), {"context": PASSAGE, "question": f"Who signs page {w}?"}) for i, w in enumerate("abcdefghij")
    ]
    assert group_copies(rows, ["context", "question"]) == list(range(10))
    copies = Copies([("train", row) for row in rows[:5]], RowRule(("context", "question")))
    assert [copies.find(row) for row in rows[5:]] == [None] * 5
    assert copies.find(Example("x", {"context": PASSAGE + " amended", "question": "who signs page C"})) is not None
    asked = ("the first page", "what nobody read aloud", "for all heirs of the house", "where it was lost")
    inlined = [Example(w, {"text": f"{PASSAGE} Question: who signs {w} and what follows?"}) for w in asked]
    assert group_copies(inlined, ["text"]) == list(range(4)), "nor if they stand in one field"
    turns = [
        Example(
            str(i), {"messages": [{"role": "system", "content": PASSAGE}, {"role": "user", "content": f"Page {w}?"}]}
        )
        for i, w in enumerate("abcdef")
    ]
    assert group_copies(turns, ["messages"]) == list(range(6)), "nor does a long system text make one row of all"


@pytest.mark.parametrize(
    "other",
    [
        LONG.replace("ordered", "bought"),
        LONG.replace("parcel", "par\u200bcel"),
        LONG.replace("weeks", "wee\u00adks"),
        LONG.replace("parcel", "pаrсel"),  # two Cyrillic letters
        LONG.replace("come", "cóme").replace("mails", "maíls").replace("two", "twô"),
        "please " + LONG,
        "Hi there, one quick question: " + LONG,
        f"{LONG}'s",
        LONG.upper().replace(" ", "  "),
    ],
)
def test_a_change_that_nobody_reads_makes_no_other_row(other: str) -> None:
    assert group_copies([row(LONG), row("something else"), row(other)], ["text"], "label") == [0, 1, 0]


def test_names_in_another_order_empty_texts_and_whole_floats_make_no_other_row() -> None:
    """As the same table has them in another format."""
    one = Example("1", {"x": {"text": LONG, "prio": 1, "note": None}})
    two = Example("2", {"x": {"note": "", "prio": 1.0, "text": LONG}})
    three = Example("3", {"x": {"text": LONG, "prio": 2, "note": None}})
    assert group_copies([one, three, two], ["x"], "label") == [0, 1, 0]
    assert describe_rows([one], ["x"])[0][0] == describe_rows([two], ["x"])[0][0]


def test_scripts_without_spaces_are_compared_by_their_characters() -> None:
    text = "我昨天在你们的网站上订购的包裹还没有送到请问什么时候能送到"
    assert group_copies(
        [row(text), row(text.replace("昨天", "昨日")), row(text.replace("包裹", "冰箱坏了"))], ["text"]
    ) == [
        0,
        0,
        2,
    ]


def test_copies_of_copies_are_one_group_and_labels_keep_groups_apart() -> None:
    chain = [LONG, LONG.replace("parcel", "packet"), LONG.replace("parcel", "packet").replace("nobody", "noone")]
    assert group_copies([row(text) for text in chain], ["text"], "label") == [0, 0, 0]
    assert group_copies([row(chain[0], "a"), row(chain[1], "b")], ["text"], "label") == [0, 1]


def test_a_number_makes_another_row_unless_the_labels_show_that_it_does_not_matter() -> None:
    asked = "a customer writes that the order with the number {} has not come to his house yet"
    numbered = [asked.format(4000 + 7 * i) for i in range(6)]
    assert group_copies([row(text) for text in numbered], ["text"], "label") == [0] * 6
    assert group_copies([row(text, "ab"[i % 2]) for i, text in enumerate(numbered)], ["text"], "label") == list(
        range(6)
    )
    assert group_copies([row(text) for text in numbered[:3]], ["text"], "label") == [0, 1, 2], "three may be chance"


def test_many_copies_of_one_row_are_one_group() -> None:
    """Their common words are in more rows than a template's."""
    rows = [row(f"{LONG} {word}") for word in (f"{a}{b}" for a in "bcdfghklmnpr" for b in "aeiouaeiouaeiouaeiouaeiou")]
    assert len({*group_copies(rows, ["text"], "label")}) == 1


@pytest.mark.slow
def test_rows_of_a_hundred_thousand_words_are_compared_with_bounded_work_D2() -> None:
    words = [str(i % 9973) for i in range(120_000)]
    rows = []
    for place in range(6):
        order = list(words)
        random.Random(place).shuffle(order)
        rows.append(row(" ".join(order)))
    begun = time.process_time()
    assert group_copies([*rows, row(rows[2]["text"] + " one more word")], ["text"], "label") == [0, 1, 2, 3, 4, 5, 2]
    assert time.process_time() - begun < 60


def test_texts_are_near_by_the_edit_distance(subtests: pytest.Subtests) -> None:
    """Against the whole table of Levenshtein."""
    for seed in range(20):
        with subtests.test(seed=seed):
            rng = random.Random(seed)
            a = tuple(rng.choice("abcdef") * 2 for _ in range(rng.randrange(12, 40)))
            b = list(a)
            for _ in range(rng.randrange(6)):
                place = rng.randrange(len(b))
                b[place : place + rng.randrange(2)] = [rng.choice("abcdef") * 2] * rng.randrange(2)
            table = [list(range(len(b) + 1))]
            for i, word in enumerate(a, start=1):
                line = [i]
                for j, other in enumerate(b, start=1):
                    line.append(min(table[-1][j - 1] + (word != other), table[-1][j] + 1, line[-1] + 1))
                table.append(line)
            distance, longest = table[-1][-1], max(len(a), len(b))
            start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            end = next(
                (i for i, (x, y) in enumerate(zip(a[::-1], b[::-1], strict=False)) if x != y), min(len(a), len(b))
            )
            middle = longest - start - min(end, min(len(a), len(b)) - start)
            assert are_near(a, tuple(b)) == (distance <= min(longest // 10, max(3, middle // 10)))


def test_a_word_or_two_beside_the_text_make_no_other_row() -> None:
    rows = [Example(str(i), {"text": LONG, "note": w, "label": "a"}) for i, w in enumerate(("one", "two words", "x9"))]
    assert group_copies(rows, ["text", "note"], "label") == [0, 0, 0]
    asked = [Example(str(i), {"text": LONG, "question": q}) for i, q in enumerate(("who is it", "what has come"))]
    assert group_copies(asked, ["text", "question"]) == [0, 1]


def test_markup_is_not_read() -> None:
    marked = f"<p>{LONG.replace('nobody', '<b>nobody</b>')}</p><br>"
    assert group_copies([row(LONG), row(marked), row(LONG.replace("has", "h&#97;s"))], ["text"], "label") == [0, 0, 0]
    assert tokenize("3 < 4 & 5 > 2") == ["3", "<", "4", "5", ">", "2"], "signs are no tags"


def test_rows_with_other_references_are_other_rows_whatever_the_metric_reads() -> None:
    asked = "please tell me in one short sentence what a good {} is and where it can be bought"
    things = ("lamp", "chair", "horse", "violin")
    rows = [Example(t, {"text": asked.format(t), "reference": f"a {t} that lasts, in a shop for {t}s"}) for t in things]
    assert group_copies(rows, ["text"]) == [0, 1, 2, 3]
    numbered = [Example(t, {"text": asked.format(t), "row_id": f"r-{i}"}) for i, t in enumerate(things)]
    assert group_copies(numbered, ["text"]) == [0, 0, 0, 0]


def test_who_says_that_rows_are_independent_keeps_near_copies_in_the_test(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=200)
    for name, word in (("train", "today"), ("test", "again")):
        lines = [{"text": f"{LONG} {word} {i * 7}", "label": "a"} for i in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = tmp_path / "workflow.yaml"
    near, kept = (prepare(file, sets)[2].dataset for sets in ([], [("data.cluster", False)]))
    assert [len(near.test), len(kept.test)] == [0, 10]
    assert "data: {cluster: false} leaves out exact copies alone" in near.warnings[0]
    lines = [{"text": f"{LONG} today {i * 7}!", "label": "a"} for i in range(10)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(prepare(file, [("data.cluster", False)])[2].dataset.test) == 0, "equal rows are no test"


def test_d2_the_search_for_near_copies_has_a_bound_on_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """CANDIDATES comparisons a row, once for all fields and once for each input; each of tokens that grow with the
    texts, and not with their square. The work is counted, in rows of like vocabulary."""
    rng, known = random.Random(1), [f"w{n}" for n in range(300)]

    def work(rows: int, words: int) -> tuple[int, int]:
        compared, tokens, steps = 0, 0, 0
        near, run = copies_module.are_near, copies_module._run

        def count_near(a: Any, b: Any) -> bool:
            nonlocal compared, tokens
            compared, tokens = compared + 1, tokens + len(a) + len(b)
            return near(a, b)

        def count_run(a: Any, b: Any, i: int, j: int) -> int:
            nonlocal steps
            steps += 1
            return run(a, b, i, j)

        with monkeypatch.context() as patch:
            patch.setattr(copies_module, "are_near", count_near)
            patch.setattr(copies_module, "_run", count_run)
            made = [
                Example(str(n), {name: " ".join(rng.choice(known) for _ in range(words)) for name in ("text", "more")})
                for n in range(rows)
            ]
            group_copies(made, ["text", "more"])
        assert compared <= rows * copies_module.CANDIDATES * 2 * (1 + 2) and tokens <= compared * 2 * words
        assert steps <= compared * (2 + 3 * copies_module.MAX_EDITS**2)
        return compared, tokens

    assert work(12, 4000)[0] <= 12 * 12 * 3 and work(12, 2000)[0] <= 12 * 12 * 3
    assert work(60, 500)[0] < 60 * 60 * 3


def test_rows_that_many_annotators_rated_are_compared_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is compared with one of its copies, and not with all of them."""
    rng, known, compared = random.Random(1), [f"w{n}" for n in range(300)], [0]
    near = copies_module.are_copies

    def count(a: Any, b: Any) -> bool:
        compared[0] += 1
        return near(a, b)

    monkeypatch.setattr(copies_module, "are_copies", count)
    pairs = [{name: " ".join(rng.choices(known, k=80)) for name in ("article", "summary")} for _ in range(20)]
    for inputs in (["article", "summary"], ["article", "summary", "annotator"]):
        work = list[int]()
        for times in (5, 10):
            rated = [{**pair, "annotator": f"by {time}"} for time in range(times) for pair in pairs]
            compared[0] = 0
            groups = group_copies([Example(str(n), fields) for n, fields in enumerate(rated)], inputs)
            assert groups == [n % 20 for n in range(20 * times)]
            work.append(compared[0])
        assert work[1] <= 2.5 * work[0], work
