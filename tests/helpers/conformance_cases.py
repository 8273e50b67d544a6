"""A case of each thing that the bundled plugins register, for the suites of `workbench_testing`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.external_agents import SORTER
from workbench.plugins import plugins
from workbench.spec import lm_spec
from workbench.workflow import node_class
from workbench_testing import LMCase, MetricCase, NodeCase, ReaderCase

_CALL = '[{"name": "f", "arguments": {"x": 1}}]'


def _metric(name: str, right: str, wrong: str, label: str, **options: Any) -> MetricCase:
    metric = plugins().get("metrics", name)("a", **options)
    return MetricCase(metric, {"a": label}, {"a": right}, {"a": wrong}, judge=_grade)


def _grade(messages: Any) -> str:
    return "Right.\nscore: 9" if "Answer: x" in messages[-1]["content"] else "Wrong.\nscore: 0"


METRICS = {
    "exact_match": _metric("exact_match", "x", "y", "x"),
    "normalized_match": _metric("normalized_match", "the X", "y", "x"),
    "contains": _metric("contains", "an x", "y", "x"),
    "f1": _metric("f1", "x y", "y z", "x y"),
    "numeric": _metric("numeric", "it is 3", "4", "3"),
    "json_match": _metric("json_match", '{"x": 1}', "[]", '{"x":1}', partial=True),
    "tool_call_match": _metric("tool_call_match", _CALL, "[]", _CALL),
    "judge": _metric("judge", "x", "y", "x"),
    "checklist": MetricCase(
        plugins().get("metrics", "checklist")("a", ask=True),
        {"checks": [{"contains": "x"}, {"regex": "^x"}, {"ask": "Is it x?"}, {"called": "f", "not": True}]},
        {"a": "x"},
        {"a": "y"},
        judge=lambda messages: f"score: {int('Answer: x' in messages[-1]['content'])}",
    ),
    "findings_f1": _metric("findings_f1", "- x is y", "- z", "x is y"),
    "list_format": _metric("list_format", "\n".join(f"- {c}{c} {c}x" for c in "abcdefghij"), "", ""),
}


def _parquet() -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2], "b": ["x", "y"]}), sink)
    return sink.getvalue()


def _xlsx() -> bytes:
    import openpyxl

    book, sink = openpyxl.Workbook(), io.BytesIO()
    for line in (["a", "b"], [1, "x"]):
        book.worksheets[0].append(line)
    book.save(sink)
    return sink.getvalue()


def _reader(name: str, good: bytes, broken: bytes, line: int | None) -> ReaderCase:
    return ReaderCase(plugins().get("readers", name), name, good, broken, line)


READERS = {
    "jsonl": _reader("jsonl", b'{"a": 1}\n{"a": [null, NaN]}\n', b'{"a": 1}\n\n{"a": }\n', 3),
    "ndjson": _reader("ndjson", b'{"a": 1}\n', b'{"a": 1}\n\n{"a": }\n', 3),
    "json": _reader("json", b'[{"a": NaN}]', b'[{"a": 1},\n{"a": }]', 2),
    "csv": _reader("csv", b"a,b\n1,2\n", b'a,b\n1,2\n"3\n', 3),
    "tsv": _reader("tsv", b"a\tb\n1\t2\n", b"a\tb\n1\t2\n3\n", 3),
    "tab": _reader("tab", b"a\tb\n1\t2\n", b"a\tb\n1\t2\n3\n", 3),
    "agentif": _reader(
        "agentif",
        b'[{"input": [{"role": "user", "content": "a"}], "constraints": []}]',
        b'[{"input": [], "constraints": []},\n{"a": }]',  # rows are read one at a time: the first one is right
        2,
    ),
    "gta": _reader(
        "gta",
        b'{"0": {"tools": [], "files": [], "dialogs": [{"role": "user", "content": "a"}], "gt_answer": null}}',
        b'{"0":\n{"tools": }}',
        2,
    ),
    "xlsx": _reader("xlsx", _xlsx(), _xlsx()[:-20], None),
    "parquet": _reader("parquet", _parquet(), _parquet()[:-20], None),
}


def _lm(prefix: str, model: str, key: str | None = None) -> LMCase:
    def make(address: str) -> Any:
        settings = {"model": model, "api_base": address, **({"api_key_env": key} if key else {})}
        name = model if prefix == "*" else model.partition("/")[2]
        return plugins().get("lms", prefix)(name, lm_spec(settings))

    return LMCase(make, key_variable=key)


LMS = {
    "openai": _lm("openai", "openai/m", "OPENAI_API_KEY"),
    "hosted_vllm": _lm("hosted_vllm", "hosted_vllm/m", "HOSTED_VLLM_API_KEY"),
    "ollama": _lm("ollama", "ollama/m"),
    "local": _lm("local", "local/m"),
    "litellm": _lm("litellm", "litellm/openai/m", "OPENAI_API_KEY"),
    "bundled": _lm("bundled", "bundled/nano"),
    "templates": _lm("templates", "templates/instructions"),
}
_SORT = {"predict": "text -> label: Literal['yes', 'no']"}


def _node(
    kind: str, settings: dict[str, Any], row: dict[str, Any], files: dict[str, str] | None = None, **more: Any
) -> Any:
    def make(folder: Path) -> NodeCase:
        for name, text in (files or {}).items():
            (folder / name).write_text(text, encoding="utf-8")
        return NodeCase(node_class(kind), settings, row, folder=folder, **more)

    return make


_TOOLS = {"tools.py": 'def shout(text: str) -> str:\n    """In capitals."""\n    return text.upper()\n'}
_CORPUS = {"c.jsonl": '{"text": "x y"}\n{"text": "z"}\n'}
_AGENT = {"agent.py": SORTER}
NODES: dict[str, Callable[[Path], NodeCase]] = {
    "external": _node(
        "external",
        {"signature": "text -> label", "command": ["python", "agent.py"], "calls": 2},
        {"text": "a"},
        _AGENT,
    ),
    "predict": _node("predict", {"signature": "text -> label: Literal['yes', 'no']", "samples": 3}, {"text": "a"}),
    "agent": _node("agent", {"signature": "text -> label", "tools": ["python:tools.py:shout"]}, {"text": "a"}, _TOOLS),
    "tool": _node("tool", {"tool": "python:tools.py:shout", "output": "loud"}, {"text": "a"}, _TOOLS),
    "calls": _node(
        "calls",
        {"calls": "plan -> made, results", "tools": ["python:tools.py:shout"]},
        {"plan": [{"name": "shout", "arguments": {"text": "a"}}]},
        _TOOLS,
    ),
    "code": _node(
        "code", {"code": "x: int -> y: int", "source": "def f(x):\n    return x + 1", "function": "f"}, {"x": 1}
    ),
    "ensemble": _node("ensemble", {"of": _SORT, "samples": 3}, {"text": "a"}),
    "branch": _node("branch", {"on": "kind", "cases": {"a": _SORT}, "default": _SORT}, {"kind": "a", "text": "a"}),
    "loop": _node(
        "loop",
        {"of": {"predict": "item, notes -> notes"}, "over": "items", "carry": {"notes": ""}},
        {"items": ["a", "b"]},
    ),
    "tree": _node(
        "tree",
        {"of": {"predict": "text -> label"}, "carry": {"label": ""}, "judge": {"predict": "label -> score: bool"}},
        {"text": "a"},
    ),
    "remember": _node("remember", {"signature": "text -> note"}, {"text": "a"}),
    "map": _node("map", {"of": _SORT, "over": "items", "as": "text"}, {"items": ["a", "b"]}),
    "search": _node("search", {"corpus": "c.jsonl"}, {"query": "x"}, _CORPUS),
    "browse": _node("browse", {"corpus": "c.jsonl"}, {"document": "1"}, _CORPUS),
    "simulated_search": _node(
        "simulated_search", {"lm": "openai/m", "knows": ["text"], "noise": 0.5}, {"query": "x", "text": "a"}
    ),
    "navigate": _node(
        "navigate", {"signature": "hard: int, text -> block: Literal['go', 'stop']"}, {"hard": 1, "text": "a"}
    ),
    "route": _node("route", {"candidates": {"small": _SORT, "large": _SORT}}, {"text": "a"}),
}
_SPECIAL = "its own tests run it with what it needs"
#: What has no case, and why.
WITHOUT: dict[str, dict[str, str]] = {
    "metrics": {
        "python": "loads a function of the user, to whom the contract applies",
        "tool_n1": _SPECIAL,
        "assertions": _SPECIAL,
        "induced": _SPECIAL,
        "query_diversity": "reads the trace, and no field",
        "world": "reads the score that a world gave itself, and nothing of the row",
    },
    "readers": {
        "hf": "reads folders of `datasets`, and no file",
        **dict.fromkeys(
            "agentdojo bfcl browsergym intercode pddlgym scienceworld tau2 textworld".split(),
            "lists the tasks of a package: tests/plugins/worlds",
        ),
    },
    "lms": {
        "anthropic": "speaks Messages: tests/plugins/external/gateway and the matrix of dialects ask it",
        "gemini": "speaks generateContent: tests/plugins/external/gateway/test_gemini.py asks it",
        "*": "the same as litellm",
        "hf": "needs weights",
        "llm": "needs a model of the package llm",
        "policy": "made by training",
    },
    "node_kinds": dict.fromkeys(
        "dspy dylan play program recall reflect selforg states tree_search workflow".split(),
        _SPECIAL,
    ),
}
