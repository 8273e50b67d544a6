"""`workbench import`: what other tools wrote becomes a workflow that validates; what is left out is named."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.task import Example
from workbench_import.assertions import Assertions
from workbench_import.imported import Wishes, import_path


def run_import(path: Path, out: Path, *flags: str) -> Result:
    return CliRunner().invoke(cli, ["import", str(path), "--out", str(out), *flags])


def imported(path: Path, out: Path, *flags: str) -> tuple[dict[str, Any], str]:
    """(workflow file, what was printed); the file validates."""
    done = run_import(path, out, *flags)
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(cli, ["validate", str(out / "workflow.yaml")])
    assert checked.exit_code == 0, checked.output
    return yaml.safe_load((out / "workflow.yaml").read_text(encoding="utf-8")), done.output


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def refused(path: Path, out: Path, *flags: str) -> str:
    done = run_import(path, out, *flags)
    assert isinstance(done.exception, SpecError) and not (out / "workflow.yaml").exists(), done.exception
    return str(done.exception)


@pytest.fixture
def program(tmp_path: Path) -> Any:
    """A DSPy program of two predictors, with demos."""
    import dspy

    class Answerer(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.topic = dspy.Predict("question -> topic")
            self.answer = dspy.ChainOfThought("question, topic -> answer")

    made = Answerer()
    made.topic.signature = made.topic.signature.with_instructions("Name the topic.")
    made.topic.demos = [dspy.Example(question="What is rain?", topic="weather", augmented=True)]
    made.answer.predict.demos = [{"question": "q", "topic": "t", "reasoning": "r", "answer": "a"}]
    made.set_lm(dspy.LM("openai/gpt-4.1-mini", temperature=0.3, max_tokens=99, api_base="http://evil.example/v1"))
    return made


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("question,answer\n" + "".join(f"q{i},a{i}\n" for i in range(8)), encoding="utf-8")
    return path


def test_friction_29_a_saved_dspy_program_becomes_a_workflow(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    tree, said = imported(tmp_path / "program.json", tmp_path / "out", "--data", str(rows))
    assert tree["lm"] == "openai/gpt-4.1-mini"
    assert tree["nodes"]["topic"] == {
        "predict": "question -> topic",
        "instructions": "Name the topic.",
        "demos": [{"question": "What is rain?", "topic": "weather"}],
        "adapter": "chat",
        "decoding": {"temperature": 0.3, "max_tokens": 99},
    }
    assert tree["nodes"]["answer"]["predict"] == "question, topic -> reasoning, answer"
    assert tree["nodes"]["answer"]["demos"] == [{"question": "q", "topic": "t", "reasoning": "r", "answer": "a"}]
    assert tree["metric"] == "exact_match(answer)" and tree["data"]["split"] == {"train": 2, "val": 2, "test": 4}
    assert "evil" not in json.dumps(tree) and "Left out: api_base of openai/gpt-4.1-mini" in said
    assert "Left out: forward()" in said and "Guessed: topic: question -> topic" in said


def test_an_imported_program_sends_the_prompts_that_dspy_sends(program: Any, rows: Path, tmp_path: Path) -> None:
    import dspy
    from tests.helpers.exported import Answers, as_sent
    from tests.helpers.scripted import Script, run_rows

    from workbench.lm import Request
    from workbench.run import prepare

    def say(request: Request) -> str:
        names = ("topic", "reasoning", "answer") if "`reasoning`" in str(request.messages) else ("topic",)
        return "\n\n".join(f"[[ ## {name} ## ]]\nsome {name}" for name in names) + "\n\n[[ ## completed ## ]]"

    program.save(tmp_path / "program.json")
    imported(tmp_path / "program.json", tmp_path / "out", "--data", str(rows))
    workflow = prepare(tmp_path / "out/workflow.yaml")[2].workflow
    here, there = Script(say), Answers(say)
    outcome = run_rows(workflow, [{"question": "Why?"}], here, tmp_path / "run.db")[0]
    program.set_lm(there.lm())
    with dspy.context(disable_history=True):
        topic = program.topic(question="Why?", config={"temperature": 0.3, "max_tokens": 99}).topic
        found = program.answer(question="Why?", topic=topic, config={"temperature": 0.3, "max_tokens": 99})
    assert outcome.prediction["answer"] == found.answer == "some answer"
    assert [r["messages"] for r in as_sent(here.requests)] == [r["messages"] for r in as_sent(there.requests)]


def test_a_signature_that_the_user_gives_replaces_the_guess(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    given = "topic=question -> topic: Literal['weather', 'other']"
    flags = ("--data", str(rows), "--signature", given)
    tree, said = imported(tmp_path / "program.json", tmp_path / "out", *flags)
    assert tree["nodes"]["topic"]["predict"] == given.removeprefix("topic=")
    assert "Guessed: topic" not in said
    flags = ("--data", str(rows), "--signature", "tpic=a -> b")
    assert "--signature names 'tpic'" in refused(tmp_path / "program.json", tmp_path / "other", *flags)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize("as_folder", [True, False])
def test_a_pickle_is_not_read_without_run_code(as_folder: bool, tmp_path: Path) -> None:
    import pickle

    mark, folder = tmp_path / "boom", tmp_path / "saved"
    folder.mkdir()
    (folder / "program.pkl").write_bytes(pickle.dumps(Bomb(mark)))
    said = refused(folder if as_folder else folder / "program.pkl", tmp_path / "out")
    assert "to read it is to run what its author put in it" in said and "--run-code" in said
    assert not mark.exists()


def test_a_whole_program_with_run_code_tells_types(rows: Path, tmp_path: Path) -> None:
    import dspy

    made = dspy.Predict("question, n: int -> label: Literal['a', 'b'], answer: list[str]")
    made.save(tmp_path / "saved", save_program=True)
    tree, _ = imported(
        tmp_path / "saved",
        tmp_path / "out",
        "--run-code",
        "--data",
        str(_with_n(tmp_path)),
        "--metric",
        "exact_match(answer)",
    )
    node = tree["nodes"]["answer"]
    assert node["predict"] == "question, n: int -> label: Literal['a', 'b'], answer: list[str]"


def _with_n(folder: Path) -> Path:
    path = folder / "n.jsonl"
    lines = [json.dumps({"question": f"q{i}", "n": i, "answer": ["x"]}) for i in range(4)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_program_without_rows_asks_for_them(program: Any, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    assert "--data rows.jsonl" in refused(tmp_path / "program.json", tmp_path / "out")


def test_what_makes_no_workflow_is_told_and_leaves_no_folder(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    said = refused(tmp_path / "program.json", tmp_path / "out", "--data", str(rows), "--metric", "nope(x)")
    assert "unknown metric 'nope'" in said and said.endswith("\n  Nothing was written.")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(program: Any, rows: Path, tmp_path: Path) -> None:
    program.save(tmp_path / "program.json")
    (tmp_path / "out").mkdir()
    said = refused(tmp_path / "program.json", tmp_path / "out", "--data", str(rows))
    assert "nothing is overwritten" in said and list((tmp_path / "out").iterdir()) == []


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


def test_several_prompts_and_providers_become_a_search(tmp_path: Path) -> None:
    providers = ["openai:chat:gpt-4o", {"id": "anthropic:messages:c", "config": {"temperature": 0.5, "apiKey": "sk-1"}}]
    prompts = ["Translate to {{language}}: {{input}}", "Say {{input}} in {{language}}."]
    tree, said = imported(promptfoo(tmp_path, providers=providers, prompts=prompts), tmp_path / "out")
    assert tree["search"] == {
        "nodes.answer.instructions": ["Translate to <language>: <input>", "Say <input> in <language>."],
        "nodes.answer.lm": ["openai/gpt-4o", {"model": "anthropic/c", "temperature": 0.5}],
    }
    assert "sk-1" not in (tmp_path / "out/workflow.yaml").read_text() and "apiKey of provider" in said


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("(a|aa)+$", False),
        ("(a?a)*$", False),
        ("(a{1,50}){1,50}$", False),
        ("{{p}}", False),
        (r"^\d+(\.\d+)?$", True),
        ("(foo|bar) [a-z]+", True),
        ("([ab]|c)+x", True),
        ("(ab)*", True),
    ],
)
def test_a_pattern_that_may_take_for_ever_is_left_out(tmp_path: Path, pattern: str, taken: bool) -> None:
    tests = [
        {"vars": {"input": f"in {i}", "language": "fr", "p": "(a+)+$"}, "assert": [{"type": "is-json"}]}
        for i in range(4)
    ]
    tests[0]["assert"] = [{"type": "is-json"}, {"type": "regex", "value": pattern}]
    _, said = imported(promptfoo(tmp_path, tests=tests), tmp_path / "out")
    assert [a["type"] for a in rows_of(tmp_path / "out")[0]["asserts"]] == ["is-json"] + ["regex"] * taken
    assert ("a repetition of repetitions or alternatives" in said) != taken


def test_assertions_of_every_kind_are_taken_or_named(tmp_path: Path) -> None:
    asserts = [
        {"type": "icontains", "value": "BON"},
        {"type": "not-contains", "value": "{{input}}"},
        {"type": "regex", "value": "^B"},
        {"type": "regex", "value": "(a+)+$"},
        {"type": "javascript", "value": "output.length < 9"},
        {"type": "python", "value": "file://check.py"},
        {"type": "llm-rubric", "value": "is polite"},
    ]
    path = promptfoo(tmp_path, defaultTest={"assert": asserts})
    tree, said = imported(path, tmp_path / "out")
    assert tree["metric"] == "assertions(output, asserts=asserts)"
    row = rows_of(tmp_path / "out")[0]
    assert [a["type"] for a in row["asserts"]] == ["icontains", "not-contains", "regex", "equals"]
    assert row["asserts"][1]["value"] == "Hello 0"
    for name in (
        "assertion 'javascript'",
        "assertion 'python'",
        "a repetition of repetitions or alternatives",
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


SAMPLES: list[dict[str, Any]] = [
    {"id": i, "input": f"How many? {i}", "target": str(i), "metadata": {"level": "low"}} for i in range(5)
]


def test_friction_29_samples_of_inspect_become_rows(tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi?"}]}]
    path.write_text(
        json.dumps([*SAMPLES, {"input": chat, "target": ["a", "b"], "sandbox": "docker"}]), encoding="utf-8"
    )
    tree, said = imported(path, tmp_path / "out")
    assert tree["nodes"]["answer"]["predict"] == "input -> answer" and tree["metric"] == "normalized_match(answer)"
    rows = rows_of(tmp_path / "out")
    assert rows[1] == {"input": "How many? 1", "answer": "1", "id": "1", "metadata": {"level": "low"}}
    assert rows[5] == {"input": "system: Be brief.\nuser: Hi?", "answer": ["a", "b"]}
    assert "Left out: sandbox of 1 samples" in said and "Left out: solvers" in said


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_choices_of_inspect_become_letters(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"samples.{suffix}"
    if suffix == "csv":
        lines = ["input,target,choices", *(f'q{i},B,"[""x"", ""y"", ""z""]"' for i in range(4))]
    else:
        lines = [json.dumps({"input": f"q{i}", "target": "B", "choices": ["x", "y", "z"]}) for i in range(4)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    tree, _ = imported(path, tmp_path / "out")
    assert tree["nodes"]["answer"]["predict"] == "input, choices -> answer: Literal['A', 'B', 'C']"
    assert rows_of(tmp_path / "out")[0] == {"input": "q0", "answer": "B", "choices": "A) x\nB) y\nC) z"}
    assert tree["metric"] == "exact_match(answer)"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.json", '{"a": 1}', "Say which it is with --from"),
        ("x.json", "[" * 100_000, "cannot be read as JSON"),
        ("x.csv", "a,b\n1,2\n", "no samples with `input`"),
        ("x.jsonl", '{"input": "q", "target": "a"}\n', "train, val and test need one each"),
        ("x.yaml", "prompts: []\ntests: []\n", "no prompt can be taken"),
    ],
)
def test_what_cannot_be_imported_is_said(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert words in refused(tmp_path / name, tmp_path / "out")


def test_strange_content_of_a_state_is_refused_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    for signature in ({"fields": "x"}, {"fields": [1, {"prefix": "a"}]}, {"instructions": 5}):
        path.write_text(json.dumps({"p": {"signature": signature, "demos": "x", "lm": 3}}), encoding="utf-8")
        with pytest.raises(SpecError):
            import_path(path, None, Wishes())


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


_WORDS = [
    "",
    "a",
    "b c",
    "{{a}}",
    "{{",
    "openai:x",
    "equals",
    "not-regex",
    "llm-rubric",
    "(a",
    "file://x",
    "../x",
    "[{",
]
_TEXTS = st.sampled_from([*_WORDS, "\ud800", "${a}", "Given the fields `a`, produce the fields `b`.", "x" * 300])
_LEAVES = st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats(allow_nan=False) | _TEXTS
_ANY = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3), max_leaves=8
)


def lists(of: Any) -> Any:
    return st.lists(of, max_size=5) | _ANY


def mappings(**parts: Any) -> Any:
    return st.fixed_dictionaries({}, optional=parts) | _ANY


_ASSERT = mappings(type=_TEXTS, value=_ANY)
_TEST = mappings(vars=mappings(a=_ANY, b=_ANY), **{"assert": lists(_ASSERT)})
_PREDICTOR = mappings(
    signature=mappings(instructions=_TEXTS, fields=lists(mappings(prefix=_TEXTS, description=_TEXTS))),
    demos=lists(mappings(a=_ANY, b=_ANY)),
    lm=mappings(model=_TEXTS, temperature=_ANY, api_base=_ANY),
    traces=_ANY,
)
_SAMPLE = mappings(input=_ANY, target=_ANY, choices=_ANY, id=_ANY, metadata=_ANY)
_FILES = st.one_of(
    st.tuples(
        st.just("promptfoo"),
        mappings(prompts=lists(_TEXTS), providers=lists(_ANY), tests=lists(_TEST), defaultTest=_TEST),
    ),
    st.tuples(st.just("dspy"), st.dictionaries(_TEXTS, _PREDICTOR, max_size=3)),
    st.tuples(st.just("inspect"), lists(_SAMPLE)),
)


@given(file=_FILES)
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
def test_any_content_is_imported_or_refused_with_a_reason(file: tuple[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.json"
        path.write_text(json.dumps(file[1]), encoding="utf-8")
        with contextlib.suppress(SpecError):
            import_path(path, file[0], Wishes(data=path.with_name("no.csv"))).write(Path(folder) / "out")
        with contextlib.suppress(SpecError):
            import_path(path, file[0], Wishes()).write(Path(folder) / "out")
