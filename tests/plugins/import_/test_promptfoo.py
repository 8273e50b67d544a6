"""`workbench data import` of configurations of promptfoo, and their assertions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.plugins.import_.imports import imported, refused, rows_of

from workbench.task import Example
from workbench_import.assertions import Assertions, meets
from workbench_import.imported import Imported
from workbench_import.promptfoo_tests import expand_tests

PROMPTFOO: dict[str, Any] = {
    "prompts": ["Translate to {{language}}: {{input}}"],
    "providers": ["openai:gpt-4o-mini"],
    "tests": [
        {"vars": {"language": "French", "input": f"Hello {i}"}, "assert": [{"type": "equals", "value": f"Bonjour {i}"}]}
        for i in range(4)
    ],
}


def promptfoo(folder: Path, **changes: Any) -> Path:
    path = folder / "promptfooconfig.yaml"
    path.write_text(yaml.safe_dump({**PROMPTFOO, **changes}, sort_keys=False), encoding="utf-8")
    return path


def test_friction_29_tests_of_promptfoo_with_equal_texts_are_rows_with_exact_match(tmp_path: Path) -> None:
    tree, said = imported(promptfoo(tmp_path), tmp_path / "out")
    assert tree["metric"] == "exact_match(output, target=expected)" and tree["lm"] == "openai/gpt-4o-mini"
    assert tree["nodes"]["answer"] == {
        "predict": "language, input -> output",
        "instructions": "Translate to <language>: <input>",
    }
    assert rows_of(tmp_path / "out")[0] == {"language": "French", "input": "Hello 0", "expected": "Bonjour 0"}
    assert "search" not in tree and "Taken: 4 test(s) as rows" in said


@pytest.mark.parametrize("tests", [1, 2])
def test_u13_one_or_two_tests_can_be_evaluated(tests: int, tmp_path: Path) -> None:
    tree, said = imported(promptfoo(tmp_path, tests=PROMPTFOO["tests"][:tests]), tmp_path / "out")
    assert tree["data"] == {"val": "rows.jsonl"} and len(rows_of(tmp_path / "out")) == tests
    assert f"enough for `eval` only: there are {tests}, and optimize needs at least 3" in said


def test_several_prompts_and_providers_become_a_search(tmp_path: Path) -> None:
    providers = ["openai:chat:gpt-4o", {"id": "anthropic:messages:c", "config": {"temperature": 0.5, "apiKey": "sk-1"}}]
    prompts = ["Translate to {{language}}: {{input}}", "Say {{input}} in {{language}}."]
    tree, said = imported(promptfoo(tmp_path, providers=providers, prompts=prompts), tmp_path / "out")
    assert tree["search"] == {
        "nodes.answer.instructions": ["Translate to <language>: <input>", "Say <input> in <language>."],
        "nodes.answer.lm": ["openai/gpt-4o", {"model": "anthropic/c", "temperature": 0.5}],
    }
    assert "sk-1" not in (tmp_path / "out/workflow.yaml").read_text() and "apiKey of provider" in said


def test_a_pattern_that_never_ends_fails_its_assertion_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """security 4: of an imported file or of a row; with `not-` as well, and an ordinary one is met as ever."""
    monkeypatch.setattr("workbench.spec.patterns.SECONDS", 0.05)
    answer, slow = "a" * 400 + "!", ["(a|aa)+$", "(a+)+b$", "(.*?a){25}P"]
    asserts = [{"type": kind, "value": p} for p in slow for kind in ("regex", "not-regex")]
    scorer = Assertions("output")
    for one in asserts:
        score = scorer(Example("1", {"asserts": [one]}), {"output": answer})
        ends = one["type"] == "not-regex" and "took more than" not in str(score.feedback)  # searched to its end
        assert score.value == float(ends), one
    assert any(
        "took more than 0.05 s" in str(scorer(Example("1", {"asserts": [a]}), {"output": answer})) for a in asserts
    )
    assert meets(answer, {"type": "regex", "value": r"^a+!$"})


def test_assertions_of_every_kind_are_taken_or_named(tmp_path: Path) -> None:
    asserts = [
        {"type": "icontains", "value": "BON"},
        {"type": "not-contains", "value": "{{input}}"},
        {"type": "regex", "value": "^B"},
        {"type": "regex", "value": "(a+)+$"},
        {"type": "regex", "value": "(a"},
        {"type": "javascript", "value": "output.length < 9"},
        {"type": "python", "value": "file://check.py"},
        {"type": "llm-rubric", "value": "is polite"},
    ]
    path = promptfoo(tmp_path, defaultTest={"assert": asserts})
    tree, said = imported(path, tmp_path / "out")
    assert tree["metric"] == "assertions(output, asserts=asserts)"
    row = rows_of(tmp_path / "out")[0]
    assert [a["type"] for a in row["asserts"]] == ["icontains", "not-contains", "regex", "regex", "equals"]
    assert row["asserts"][1]["value"] == "Hello 0"
    for name in (
        "assertion 'javascript'",
        "assertion 'python'",
        "no pattern of Python",
        "rubrics of tests",
    ):
        assert f"Left out: {name}" in said or name in said, name


def test_rubrics_alone_become_a_judge(tmp_path: Path) -> None:
    tests = [
        {"vars": {"language": "fr", "input": str(i)}, "assert": [{"type": "llm-rubric", "value": f"says {i}"}]}
        for i in range(3)
    ]
    tree, _ = imported(promptfoo(tmp_path, tests=tests), tmp_path / "out")
    assert tree["metric"]["judge"]["target"] == "rubric" and tree["roles"] == {"judge": "openai/gpt-4o-mini"}
    assert rows_of(tmp_path / "out")[2]["rubric"] == "says 2"


def test_files_of_the_folder_are_read_and_none_outside(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("a secret {{input}}", encoding="utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "prompt.txt").write_text("One {{input}}\n---\nTwo {{input}}", encoding="utf-8")
    (folder / "tests.csv").write_text("input,__expected\n" + "x,icontains: y\n" * 3 + "z,plain\n", encoding="utf-8")
    (folder / "gen.py").write_text("raise SystemExit", encoding="utf-8")
    prompts = [
        "file://prompt.txt",
        "file://../secret.txt",
        "file://link.txt",
        str(tmp_path / "secret.txt"),
        "file://gen.py",
    ]
    tree, said = imported(promptfoo(folder, prompts=prompts, tests="file://tests.csv"), tmp_path / "out")
    assert tree["search"]["nodes.answer.instructions"] == ["One <input>", "Two <input>"]
    assert "secret {{" not in said and "a secret" not in (tmp_path / "out/workflow.yaml").read_text()
    assert said.count("outside the folder") == 3 and "gen.py: code" in said
    assert rows_of(tmp_path / "out")[3]["asserts"] == [{"type": "equals", "value": "plain"}]


def test_lists_among_variables_make_a_row_for_each_value(tmp_path: Path) -> None:
    tests = [{"vars": {"language": ["fr", "de"], "input": ["a", "b"]}, "assert": [{"type": "is-json"}]}]
    imported(promptfoo(tmp_path, tests=tests), tmp_path / "out")
    assert [(r["language"], r["input"]) for r in rows_of(tmp_path / "out")] == [
        ("fr", "a"),
        ("fr", "b"),
        ("de", "a"),
        ("de", "b"),
    ]


def test_a_configuration_without_a_usable_assertion_is_refused(tmp_path: Path) -> None:
    tests = [{"vars": {"language": "fr", "input": "a"}, "assert": [{"type": "javascript", "value": "1"}]}]
    assert "no test has an assertion that can be mapped" in refused(promptfoo(tmp_path, tests=tests), tmp_path / "out")


def test_a_variable_named_as_our_field_is_kept(tmp_path: Path) -> None:
    tests = [{"vars": {"expected": str(i)}, "assert": [{"type": "equals", "value": f"v{i}"}]} for i in range(3)]
    tree, _ = imported(promptfoo(tmp_path, prompts=["Repeat {{expected}}"], tests=tests), tmp_path / "out")
    assert rows_of(tmp_path / "out")[1] == {"expected": "1", "expected_": "v1"}
    assert tree["metric"] == "exact_match(output, target=expected_)"


@pytest.mark.parametrize(
    ("assertion", "answer", "value"),
    [
        ({"type": "equals", "value": "a"}, " a ", 1.0),
        ({"type": "equals", "value": {"x": 1}}, '{"x":1}', 1.0),
        ({"type": "contains", "value": "B"}, "abc", 0.0),
        ({"type": "icontains", "value": "B"}, "abc", 1.0),
        ({"type": "not-icontains", "value": "B"}, "abc", 0.0),
        ({"type": "contains-any", "value": "x, b"}, "abc", 1.0),
        ({"type": "contains-all", "value": ["a", "x"]}, "abc", 0.0),
        ({"type": "starts-with", "value": "ab"}, "abc", 1.0),
        ({"type": "regex", "value": "b.$"}, "abc", 1.0),
        ({"type": "is-json"}, "{", 0.0),
    ],
)
def test_assertions_score_an_answer(assertion: dict[str, Any], answer: str, value: float) -> None:
    score = Assertions("output")(Example("r", {"asserts": [assertion]}), {"output": answer})
    assert score.value == value and bool(score.feedback) == (value == 0.0)


CODE = "assertion 'javascript'"


def test_cells_of_a_table_demand_what_promptfoo_reads_in_them_O3(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (cell, taken, left) in enumerate(
        [
            ("Paris", [{"type": "equals", "value": "Paris"}], ""),
            ("equals: Paris", [{"type": "equals", "value": "Paris"}], ""),
            ("Note: read it", [{"type": "equals", "value": "Note: read it"}], ""),
            ("well-known: yes", [{"type": "equals", "value": "well-known: yes"}], ""),
            ("cost", [{"type": "equals", "value": "cost"}], ""),
            ("python", [{"type": "equals", "value": "python"}], ""),
            ("a (b): c", [{"type": "equals", "value": "a (b): c"}], ""),
            (" icontains : y ", [{"type": "icontains", "value": "y"}], ""),
            ("not-contains: y: z", [{"type": "not-contains", "value": "y: z"}], ""),
            ("contains-any: a, b", [{"type": "contains-any", "value": "a, b"}], ""),
            ("starts-with(0.5): y", [{"type": "starts-with", "value": "y"}], ""),
            ("regex: a:b", [{"type": "regex", "value": "a:b"}], ""),
            ("is-json", [{"type": "is-json"}], ""),
            ("not-is-json", [{"type": "not-is-json"}], ""),
            ("fn:output.length>2", [], f"{CODE}: output.length>2"),
            ("eval: output.length>2", [], f"{CODE}: output.length>2"),
            ("javascript: output\n.length", [], f"{CODE}: output\n.length"),
            ("python: len(output)", [], "assertion 'python': len(output)"),
            ("file://check.js", [], "assertion 'code': file://check.js"),
            ("file://check.py:get_assert", [], "assertion 'code': file://check.py:get_assert"),
            ("file://expected.txt", [], "assertion 'equals': file://expected.txt"),
            ("similar: y", [], "assertion 'similar': y"),
            ("similar(0.8): y", [], "assertion 'similar': y"),
            ("similar:cosine(0.8): y", [], "assertion 'similar:cosine': y"),
            ("not-similar(0.8): y", [], "assertion 'not-similar': y"),
            ("levenshtein(5): y", [], "assertion 'levenshtein': y"),
            ("factuality: y", [], "assertion 'factuality': y"),
            ("is-sql", [], "assertion 'is-sql'"),
            ("grade: is technical", [], "rubrics of tests that are also checked by rules"),
            ("llm-rubric: is technical", [], "rubrics of tests that are also checked by rules"),
        ]
    ):
        with subtests.test(cell=cell):
            folder = tmp_path / str(number)
            folder.mkdir()
            write_table(folder, [[f"x{n}", "icontains: z", cell] for n in range(4)])
            found = Imported({})
            tests = expand_tests({"tests": "file://tests.csv"}, folder, found)
            assert tests.rows[0][tests.field] == [{"type": "icontains", "value": "z"}, *taken]
            assert len(found.left) == bool(left) and left in "".join(found.left)


def write_table(folder: Path, rows: list[list[str]], *names: str) -> None:
    with (folder / "tests.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["input", "__expected1", *(names or ["__expected2"])], *rows])


def test_a_table_of_grades_makes_a_judge_O3(tmp_path: Path) -> None:
    write_table(tmp_path, [[f"x{n}", f"grade: is {n}", "be brief"] for n in range(4)], "__suffix")
    config = promptfoo(tmp_path, prompts=["Say {{input}}"], tests="file://tests.csv")
    tree, said = imported(config, tmp_path / "out")
    assert tree["metric"]["judge"]["target"] == "rubric" and rows_of(tmp_path / "out")[1]["rubric"] == "is 1"
    assert "columns of tests.csv: __suffix" in said and "suffix" not in rows_of(tmp_path / "out")[0]


def test_l9_every_setting_that_is_not_read_is_left_out_by_name(tmp_path: Path) -> None:
    tests = [
        {
            **json.loads(json.dumps(test)),
            "threshold": 0.5,
            "options": {"transform": "output.toUpperCase()", "prefix": "a"},
            "anything": 1,
            "assert": [{"type": "equals", "value": "Bonjour", "weight": 2, "metric": "tone"}],
        }
        for test in PROMPTFOO["tests"]
    ]
    providers = [{"id": "openai:gpt-4o-mini", "delay": 9, "config": {"temperature": 0, "top_p": 1}}]
    shared = {"options": {"provider": "openai:gpt-4o"}}
    file = promptfoo(tmp_path, tests=tests, defaultTest=shared, providers=providers, scenarios=[])
    _, said = imported(file, tmp_path / "out")
    keys = [f"'{key}' of a test" for key in ("threshold", "options.transform", "options.prefix", "anything")]
    keys += ["'weight' of an assertion 'equals'", "'metric' of an assertion 'equals'", "'scenarios'"]
    keys += ["'delay' of provider openai:gpt-4o-mini", "top_p of provider", "'options.provider' of defaultTest"]
    for left in keys:
        assert said.count(left) == 1, (left, said)
