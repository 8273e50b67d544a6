"""Every type that a table stores, and every metric: the right answer scores 1, however the label is stored."""

from __future__ import annotations

import asyncio
import csv
import datetime
import decimal
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import openpyxl
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from workbench.api import _write_rows  # pyright: ignore[reportPrivateUsage]
from workbench.lm import Response
from workbench.plugins import plugins
from workbench.task import Example, read_rows
from workbench.workflow import Span, Trace

DAY, NOON = datetime.date(2024, 1, 5), datetime.datetime(2024, 1, 5, 12)
NUMBERS = ["exact_match", "normalized_match", "contains", "f1", "numeric", "json_match"]
WORDS = ["exact_match", "normalized_match", "contains", "f1"]
VALUES = ["exact_match", "json_match"]
#: By what a column stores: its type in Arrow, a value, the right answer, and the metrics that can compare it.
ARROW: dict[str, tuple[Any, Any, Any, list[str]]] = {
    **{kind: (getattr(pyarrow, kind)(), 7, 7, NUMBERS) for kind in ("int8", "int16", "int32", "int64")},
    **{kind: (getattr(pyarrow, kind)(), 7, 7, NUMBERS) for kind in ("uint8", "uint16", "uint32", "uint64")},
    "float16": (pyarrow.float16(), numpy.float16(0.1), 0.1, NUMBERS),
    "float32": (pyarrow.float32(), 0.1, 0.1, NUMBERS),
    "float64": (pyarrow.float64(), 0.1, 0.1, NUMBERS),
    "whole float32": (pyarrow.float32(), 7.0, 7, ["exact_match", "numeric", "json_match"]),
    "decimal": (pyarrow.decimal128(6, 2), decimal.Decimal("0.25"), 0.25, NUMBERS),
    "bool": (pyarrow.bool_(), True, True, ["exact_match", "normalized_match", "contains", "f1", "json_match"]),
    "string": (pyarrow.string(), "yes", "yes", WORDS),
    "large string": (pyarrow.large_string(), "yes", "yes", WORDS),
    "binary": (pyarrow.binary(), b"yes", "yes", WORDS),
    "dictionary": (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), "yes", "yes", WORDS),
    "date": (pyarrow.date32(), DAY, "2024-01-05", WORDS),
    "timestamp": (pyarrow.timestamp("ms"), NOON, "2024-01-05 12:00:00", WORDS),
    "nanoseconds": (pyarrow.timestamp("ns"), NOON, "2024-01-05 12:00:00", WORDS),
    "list": (pyarrow.list_(pyarrow.float32()), [0.1, 2.5], [0.1, 2.5], ["json_match"]),
    "list of choices": (pyarrow.list_(pyarrow.float32()), [0.1, 2.5], 2.5, ["exact_match", "numeric", "f1"]),
    "struct": (pyarrow.struct({"a": pyarrow.float16(), "b": pyarrow.string()}),
               {"a": numpy.float16(0.1), "b": "x"}, {"a": 0.1, "b": "x"}, VALUES),
    "list of structs": (pyarrow.list_(pyarrow.struct({"a": pyarrow.float32()})), [{"a": 0.3}], [{"a": 0.3}], VALUES),
    "map": (pyarrow.map_(pyarrow.string(), pyarrow.float32()), [("a", 0.1)], {"a": 0.1}, VALUES),
    "null": (pyarrow.null(), None, None, [*NUMBERS]),
    "null int": (pyarrow.int64(), None, None, [*NUMBERS]),
}  # fmt: skip
#: Values as users give them in Python, alone and as a column of a DataFrame.
GIVEN: dict[str, tuple[Any, Any, list[str]]] = {
    **{f"numpy {kind}": (getattr(numpy, kind)(7), 7, NUMBERS) for kind in ("int8", "int64", "uint8")},
    **{f"numpy {kind}": (getattr(numpy, kind)(0.1), 0.1, NUMBERS) for kind in ("float16", "float32", "float64")},
    "numpy bool": (numpy.bool_(True), True, VALUES),
    "numpy str": (numpy.str_("yes"), "yes", WORDS),
    "numpy array": (numpy.array([0.1, 2.5], "float32"), [0.1, 2.5], ["json_match"]),
    "numpy objects": (numpy.array([{"a": numpy.float32(0.1)}], object), [{"a": 0.1}], VALUES),
    "numpy time": (numpy.datetime64("2024-01-05T12", "ns"), "2024-01-05 12:00:00", WORDS),
    "nested": ({"a": [numpy.float32(0.1), numpy.int64(2)]}, {"a": [0.1, 2]}, VALUES),
    "decimal": (decimal.Decimal("0.25"), 0.25, NUMBERS),
    "timestamp": (pandas.Timestamp(NOON), "2024-01-05 12:00:00", WORDS),
    "date": (DAY, "2024-01-05", WORDS),
    "not a time": (pandas.NaT, None, VALUES),
    "not available": (pandas.NA, None, VALUES),
    "none": (None, None, NUMBERS),
}
#: Values of files of text: what is written, the right answer, metrics.
WRITTEN: dict[str, tuple[Any, Any, list[str]]] = {
    "int": (7, 7, NUMBERS),
    "float": (0.1, 0.1, NUMBERS),
    "whole float": (7.0, 7, ["numeric", "json_match"]),
    "bool": (True, True, ["exact_match", "normalized_match", "contains", "f1"]),
    "text": ("yes", "yes", WORDS),
    "digits": ("007", "007", WORDS),
    "spaces": (" yes\u200b ", "yes", WORDS),
}


def stored(folder: Path) -> Iterator[tuple[str, Any, Any, list[str]]]:
    """(how it is stored, label as read, right answer, metrics) of each cell."""
    for name, (kind, value, right, metrics) in ARROW.items():
        table = pyarrow.table({"text": ["a"], "label": pyarrow.array([value], kind)})
        pyarrow.parquet.write_table(table, folder / "rows.parquet")
        yield f"parquet {name}", read_rows("rows.parquet", folder, {})[0]["label"], right, metrics
    for name, (value, right, metrics) in GIVEN.items():
        rows = [{"text": "a", "label": value}]
        for how, given in (("rows", rows), ("frame", pandas.DataFrame(rows))):
            path = _write_rows(given, folder / "runs.db")
            yield f"{how} {name}", read_rows(str(path), folder, {})[0]["label"], right, metrics
    for kind in ("Float32", "float32", "float16", "Int64", "category", "string", "datetime64[ns]"):
        value = "yes" if kind in ("category", "string") else NOON if "time" in kind else 7 if kind == "Int64" else 0.1
        column = pandas.Series([value, None] if kind != "float16" else [value, float("nan")], dtype=kind)
        path = _write_rows(pandas.DataFrame({"text": ["a", "b"], "label": column}), folder / "runs.db")
        one, other = (row["label"] for row in read_rows(str(path), folder, {}))
        yield f"column {kind}", one, str(value) if value is NOON else value, ["exact_match", "f1"]
        yield f"missing in column {kind}", other, None, NUMBERS
    for name, (value, right, metrics) in WRITTEN.items():
        with (folder / "rows.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["text", "label"], ["a", value]])
        (folder / "rows.jsonl").write_text(json.dumps({"text": "a", "label": value}) + "\n")
        book = openpyxl.Workbook()
        for line in (["text", "label"], ["a", value]):
            book.worksheets[0].append(line)
        book.save(folder / "rows.xlsx")
        for kind in ("csv", "jsonl", "xlsx"):
            yield f"{kind} {name}", read_rows(f"rows.{kind}", folder, {})[0]["label"], right, metrics


def answers(right: Any) -> list[Any]:
    """The right answer as an output of its type, and as one that is a text."""
    return [right, str(right)] if isinstance(right, int | float) and not isinstance(right, bool) else [right]


@pytest.mark.slow
def test_the_right_answer_scores_1_whatever_type_stores_the_label(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for how, label, right, names in stored(tmp_path):
        for name in names:
            metric = plugins().get("metrics", name)("label")
            for answer in answers(right):
                with subtests.test(how=how, metric=name, answer=answer):
                    assert metric(Example("1", {"label": label}), {"label": answer}).value == 1.0, repr(label)


@pytest.mark.slow
def test_a_wrong_answer_scores_0_whatever_type_stores_the_label(tmp_path: Path) -> None:
    for how, label, _, names in stored(tmp_path):
        for name in names:
            metric = plugins().get("metrics", name)("label")
            assert metric(Example("1", {"label": label}), {"label": 3141}).value == 0.0, f"{how}, {name}"


@pytest.mark.slow
def test_metrics_of_structures_see_the_value_whatever_type_stores_it(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """In expected calls, in checks, which columns of structs store with nulls for what they lack, and by a judge."""
    shown = list[str]()

    async def lm(messages: list[dict[str, str]], **_: Any) -> Response:
        shown.append(messages[-1]["content"])
        return Response("10", "stop", 1, 1, 0.0)

    async def sandbox(*_: Any) -> None:
        raise AssertionError

    match, judge, checklist = (plugins().get("metrics", n) for n in ("tool_call_match", "judge", "checklist"))
    for how, label, right, _ in stored(tmp_path):
        if how.startswith("csv") and not isinstance(right, str):
            continue  # calls and checks stand there as JSON, which has types of its own
        expected = {"name": "f", "arguments": {"x": label, "absent": None}}
        checks = [
            {"called": "f", "arguments": {"x": label, "absent": None}, "regex": None, "not": None, "if": None},
            {"contains": "yes", "called": None, "arguments": None, "if": {"contains": "y", "arguments": None}},
        ]
        row = Example("1", {"label": label, "calls": [expected], "checks": checks})
        for given, score in ((right, 1.0), (3141, 0.0)):
            with subtests.test(how=how, given=given):
                said = {"answer": [{"name": "f", "arguments": {"x": given}}]}
                assert match("answer", target="calls")(row, said).value == score
                trace = Trace("1")
                trace.spans.append(Span("n", "agent", {}))
                trace.spans[0].notes["tools"] = [{"name": "f", "arguments": {"x": given}, "result": "done"}]
                found = asyncio.run(checklist("answer")(row, {"answer": "yes"}, trace, sandbox=sandbox))
                assert found.value == (1 + score) / 2, found
        with subtests.test(how=how, metric="judge"):
            asyncio.run(judge("answer", target="label")(row, {"answer": "yes"}, None, lm=lm))
            reference = shown[-1].removeprefix("Reference: ").partition("\nAnswer: ")[0]
            texts = {str(label), str(right), json.dumps(right), json.dumps(label)}
            assert reference in texts and "0000001" not in reference and "9997" not in reference
