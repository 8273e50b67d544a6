"""One value: what a row holds is the same for all who read it, and nothing is one value."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.counting_agent import call_tools
from tests.helpers.scripted import Script

from workbench.evaluation import EvalOptions, evaluate
from workbench.run import prepare
from workbench.task import Example

WORDS = ["", "NULL", "null", "None", "NaN", "NA", "N/A", "n/a", "nil", "#N/A", "<NA>", "(null)"]


def workflow(folder: Path, rows: list[dict[str, Any]], signature: str, metric: str) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    third = len(rows) // 3
    data = {"file": "rows.jsonl", "split": {"train": third, "val": third, "test": third}}
    made = {
        "name": "t",
        "lm": {"model": "openai/m", "api_base": "http://127.0.0.1:9/v1"},
        "data": data,
        "metric": metric,
        "nodes": {"sort": {"predict": signature, "instructions": "Sort."}},
        "budget": {"calls": 500},
    }
    (folder / "w.yaml").write_text(json.dumps(made))
    return folder / "w.yaml"


def test_a_change_of_a_row_is_seen_by_nobody_else_C12() -> None:
    row = Example("1", {"tags": ["a"], "deep": {"list": [{"n": 1}]}, "text": "x"})
    row["tags"].pop()
    row["deep.list"][0]["n"] = 2
    row.fields["tags"].append("b")
    dict(row)["deep"].clear()
    next(iter(row.values())).clear()
    assert dict(row) == {"tags": ["a"], "deep": {"list": [{"n": 1}]}, "text": "x"} == row.fields
    assert pickle.loads(pickle.dumps(row)) == row and json.dumps(row["deep"]) and isinstance(row["tags"], list)
    with pytest.raises(AttributeError):
        row.id = "2"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Example("1", {"text": "x"}).fields["text"] = "y"  # type: ignore[index]


def scored(path: Path, say: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> float:
    lm = Script(say)
    monkeypatch.setattr("workbench.lm.pool.LMPool.get", lambda self, spec: lm)
    return evaluate(path, options=EvalOptions(**options), database=path.with_name("r.db")).score


def test_a_metric_that_pops_scores_each_repeat_alike_C12(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.py").write_text(
        "def metric(example, prediction, trace):\n"
        "    tags = example['tags']\n"
        "    want = tags.pop() if tags else 'none'\n"
        "    return float(prediction['label'] == want)\n"
    )
    rows = [{"text": f"t{n}", "tags": ["technical"]} for n in range(9)]
    path = workflow(tmp_path, rows, "text -> label", "python:m.py:metric")
    assert scored(path, lambda request: "technical", monkeypatch, repeats=3) == 1.0


def test_a_function_node_that_changes_its_input_changes_it_for_itself_C12(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.py").write_text(
        "def cut(tags: list) -> str:\n    return tags.pop(0)\n\n"
        "def last(tags: list, names: list) -> str:\n    return tags.pop() + names.pop()\n"
    )
    rows = [{"tags": ["a", "b"], "label": "a", "name": "by"} for n in range(9)]
    path = workflow(tmp_path, rows, "tags -> label", "exact_match(label)")
    spec = json.loads(path.read_text())
    spec["nodes"] = {
        "sort": {"tool": "python:f.py:cut", "output": "label"},
        "more": {"tool": "python:f.py:last", "constants": {"names": ["x", "y"]}, "output": "name"},
    }
    spec["metric"] = ["exact_match(label)", "exact_match(name)"]
    path.write_text(json.dumps(spec))
    assert scored(path, lambda request: "", monkeypatch, repeats=2) == 1.0


#: Code of a user that empties each list that it is given, and writes down how long the list was.
EMPTIES = """
from pathlib import Path

import dspy
from workbench_kit.acting import Environment, Step


def empty(tags):
    with open("SEEN", "a") as file:
        file.write(f"{len(tags)}\\n")
    tags.clear()


def tool(tags: list) -> str:
    "Say a."
    empty(tags)
    return "a"


def verify(tags, label):
    empty(tags)
    return 0.5


def judge(inputs, position):
    empty(inputs["tags"])
    return 0.5


class World(Environment):
    def reset(self, task):
        empty(task["tags"])
        self.state = {"moves": 0}
        return "a place"

    def step(self, action):
        self.state["moves"] += 1
        return Step("a place", self.state["moves"] == 3)

    def score(self):
        return 0.5


class Module(dspy.Module):
    signature = "tags: list -> label"

    def forward(self, tags):
        empty(tags)
        return dspy.Prediction(label="a")


def one(example, prediction):
    empty(example["tags"])
    return 1.0


def two(example, prediction):
    empty(example["tags"])
    return 1.0
"""

#: How the code is reached, by the node that reads `tags`.
REACHED: dict[str, dict[str, Any]] = {
    "tool": {"tool": "python:u.py:tool", "output": "label"},
    "constants": {"tool": "python:u.py:tool", "constants": {"tags": ["x", "y"]}, "output": "label"},
    "verifier": {"reflect": {"predict": "tags: list -> label"}, "rounds": 2, "verifier": "python:u.py:verify"},
    "agent": {"agent": "tags: list -> label", "tools": ["python:u.py:tool"]},
    "external": {"external": "tags: list -> label", "python": "u.py:tool"},
    "dspy": {"dspy": "python:u.py:Module"},
    "environment": {"tree_search": "python:u.py:World", "task": {"tags": "tags"}, "samples": 2, "evaluations": 3},
    "judge": {
        "tree_search": "python:u.py:World",
        "task": {"tags": "tags"},
        "value": "python:u.py:judge",
        "show": ["tags"],
        "samples": 2,
        "evaluations": 3,
    },
    "metrics": {"predict": "tags: list -> label"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REACHED)
def test_code_that_empties_its_lists_is_given_whole_ones_C12(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the code is reached, in each repeat, and after other code."""
    (tmp_path / "u.py").write_text(EMPTIES.replace("SEEN", str(tmp_path / "seen.txt")))
    rows = [{"tags": [f"a{n}", "b"], "label": "a"} for n in range(9)]
    metric = ["python:u.py:one", "python:u.py:two"] if kind == "metrics" else "python:u.py:one"
    path = workflow(tmp_path, rows, "tags -> label", "exact_match(label)")
    path.write_text(json.dumps({**json.loads(path.read_text()), "metric": metric, "nodes": {"n": REACHED[kind]}}))

    def say(request: Any) -> Any:
        if kind == "agent" and not any(message["role"] == "tool" for message in request.messages):
            return call_tools(("tool", {"tags": ["x", "y"]}))
        return "a"

    assert scored(path, say, monkeypatch, repeats=2) == 1.0
    lengths = (tmp_path / "seen.txt").read_text().split()
    assert {*lengths} == {"2"} and len(lengths) >= 12, lengths


@pytest.mark.parametrize("kind", ["Optional[int]", "Optional[str]", "int | None", "Optional[Literal['7', 'x']]"])
def test_nothing_is_one_value_in_all_spellings_C11(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": f"row {n} {word}", "label": word} for n, word in enumerate(WORDS * 2)]
    rows += [{"text": f"row {n} 7", "label": "7"} for n in range(24, 48)]
    path = workflow(tmp_path, rows, f"text -> label: {kind}", "exact_match(label)")
    task = prepare(path)[2]
    assert not any("no answer can be right" in warning for warning in task.dataset.warnings)

    def say(request: Any) -> str:
        text = str(request.messages[-1]["content"])
        return "7" if "7" in text.split("row ")[-1].split(" ", 1)[1] else "null"

    assert scored(path, say, monkeypatch) == 1.0


@pytest.mark.parametrize("kind", ["Optional[str]", "Optional[Literal['unknown', 'undefined', '-', '...', 'FR']]"])
def test_words_that_people_use_as_labels_are_not_nothing_C11(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": f"row {n} <{w}>", "label": w} for n, w in enumerate(["unknown", "undefined", "-", "FR"] * 6)]
    path = workflow(tmp_path, rows, f"text -> label: {kind}", "exact_match(label)")
    assert prepare(path)[2].dataset.val[0]["label"] is not None

    def say(request: Any) -> str:
        return str(request.messages[-1]["content"]).rpartition("<")[2].partition(">")[0]

    assert scored(path, say, monkeypatch) == 1.0


@pytest.mark.parametrize("kind", ["Optional[int]", "Optional[bool]", "Optional[Literal['1', '2']]"])
@pytest.mark.parametrize("word", ["unknown", "-"])
def test_a_word_for_nothing_is_one_in_labels_and_answers_of_no_text_C11(
    kind: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workflow(
        tmp_path,
        [{"text": f"row {n}", "label": word} for n in range(12)],
        f"text -> label: {kind}",
        "exact_match(label)",
    )
    assert [scored(path, lambda request, answer=answer: answer, monkeypatch) for answer in (word, "null")] == [1.0, 1.0]


@pytest.mark.parametrize(("label", "kind"), [(1e-07, "float"), (12345678901234567890, "int"), ([], "list[int]")])
def test_a_number_in_any_notation_can_be_right_I11(label: Any, kind: str, tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "label": label} for n in range(12)]
    warnings = prepare(workflow(tmp_path, rows, f"text -> label: {kind}", "exact_match(label)"))[2].dataset.warnings
    assert not any("no answer can be right" in warning for warning in warnings)


def test_a_word_that_an_optional_number_cannot_be_is_warned_of_C11(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "label": "many" if n % 2 else "1"} for n in range(12)]
    for kind in ("Optional[int]", "Optional[Literal['1', '2']]", "Optional[bool]"):
        warnings = prepare(workflow(tmp_path, rows, f"text -> label: {kind}", "exact_match(label)"))[2].dataset.warnings
        assert any(warning.startswith("no answer can be right in") for warning in warnings), kind


@pytest.mark.parametrize(
    ("kind", "label", "answers"),
    [
        ("list[Optional[str]]", ["a", "NULL"], ['["a", null]', '["a", "N/A"]', '["a", ""]']),
        ("list[Optional[int]]", [1, ""], ["[1, null]", '[1, "none"]']),
        ("dict[str, Optional[str]]", {"x": "NA", "y": "b"}, ['{"x": null, "y": "b"}', '{"x": "None", "y": "b"}']),
        ("Optional[list[str]]", "NaN", ["null", "N/A"]),
        ("dict[str, list[Optional[str]]]", {"x": ["nil"]}, ['{"x": [null]}', '{"x": ["n/a"]}']),
    ],
)
@pytest.mark.parametrize("metric", ["exact_match", "json_match"])
def test_nothing_is_one_value_inside_lists_and_objects_C11(
    metric: str, kind: str, label: Any, answers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = [label] if isinstance(label, list) and metric == "exact_match" else label  # of accepted values
    rows = [{"text": f"row {n}", "label": label} for n in range(9)]
    path = workflow(tmp_path, rows, f"text -> label: {kind}", f"{metric}(label)")
    for answer in answers:
        assert scored(path, lambda request, answer=answer: answer, monkeypatch) == 1.0, answer


def test_words_that_are_labels_stay_texts_C11(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "label": label} for n, label in enumerate(["NA", "None", "FR"] * 4)]
    for kind in ("str", "Literal['NA', 'None', 'FR']", "Optional[Literal['NA', 'None', 'FR']]"):
        dataset = prepare(workflow(tmp_path, rows, f"text -> label: {kind}", "exact_match(label)"))[2].dataset
        labels = {row["label"] for part in (dataset.train, dataset.val, dataset.test.open()) for row in part}
        assert labels == {"NA", "None", "FR"}, kind


@pytest.mark.parametrize("kind", ["int", "str", "Literal['a', 'b']"])
def test_an_output_that_may_not_be_nothing_is_warned_of_C11(kind: str, tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "label": "" if n % 2 else "1"} for n in range(12)]
    warnings = prepare(workflow(tmp_path, rows, f"text -> label: {kind}", "exact_match(label)"))[2].dataset.warnings
    assert any(warning.startswith("no answer can be right in") for warning in warnings)


def test_a_split_with_one_label_is_warned_of_C15(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "label": "billing"} for n in range(36)]
    warnings = prepare(workflow(tmp_path, rows, "text -> label", "exact_match(label)"))[2].dataset.warnings
    assert any("all 12 val rows have the label 'billing'" in warning for warning in warnings)


def test_limit_of_a_sorted_file_has_all_labels_C15(tmp_path: Path) -> None:
    rows = [{"text": f"row {n}", "label": "billing" if n < 100 else "technical"} for n in range(200)]
    path = workflow(tmp_path, rows, "text -> label", "exact_match(label)")
    spec = json.loads(path.read_text())
    spec["data"] = {"file": "rows.jsonl", "limit": 40}
    path.write_text(json.dumps(spec))
    dataset = prepare(path)[2].dataset
    assert {row["label"] for row in dataset.val} == {"billing", "technical"}
