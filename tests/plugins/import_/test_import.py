"""`workbench data import`: what other tools wrote becomes a workflow that validates; what is left out is named."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.plugins.import_.imports import imported, refused, rows_of

from workbench.errors import SpecError
from workbench_import.imported import Wishes, import_path

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


@pytest.mark.slow
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
