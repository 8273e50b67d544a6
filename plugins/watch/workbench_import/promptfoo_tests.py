"""Tests of promptfoo as rows: their variables, and the conditions on an answer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.base.data_files import read_data
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench.spec import Pattern
from workbench_import.assertions import CHECKS
from workbench_import.imported import Imported, as_list, read_table, read_value

_TEST_FILES = (".yaml", ".yml", ".json", ".jsonl", ".csv", ".tsv", ".xlsx")
#: The types of assertions that a table cell may begin with, and the short forms of some.
_TYPES = """answer-relevance bleu classifier contains contains-all contains-any contains-html contains-json contains-sql
    contains-xml context-faithfulness context-recall context-relevance conversation-relevance cost equals factuality
    finish-reason g-eval gleu guardrails human icontains icontains-all icontains-any is-html is-json is-refusal is-sql
    is-valid-function-call is-valid-openai-function-call is-valid-openai-tools-call is-xml javascript latency
    levenshtein llm-rubric meteor model-graded-closedqa model-graded-factuality moderation perplexity
    perplexity-score pi python regex rouge-l rouge-n rouge-s ruby select-best similar similar:cosine similar:dot
    similar:euclidean skill-used starts-with tool-call-f1 trace-error-spans trace-span-count trace-span-duration
    webhook""".split()
_SHORT = {"grade": "llm-rubric", "fn": "javascript", "eval": "javascript"}
_ASSERTION = re.compile(
    rf"(?P<negated>not-)?(?P<type>{'|'.join(map(re.escape, sorted([*_TYPES, *_SHORT], key=len, reverse=True)))})"
    r"(?:\([\d.]+\))?\s*(?::(?P<value>.*))?",
    re.DOTALL,
)
_CODE_FILE = re.compile(r"file://\S+\.(?:[cm]?[jt]s|py|rb)(?::\S+)?$")
VARIABLE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
#: Maximum rows from the lists among the variables of one test.
_MAX = 10_000
#: Keys of a test that are read, or that change nothing.
_TEST_KEYS = ("vars", "assert", "description")
_RUBRICS = ("llm-rubric", "model-graded-closedqa", "g-eval")


@dataclass
class Tests:
    """Rows, the field of a row with the conditions on its answer, and their kind: an expected text (`equal`), a rubric,
    or a list of assertions."""

    rows: list[dict[str, Any]]
    field: str
    equal: bool = False
    rubrics: bool = False


def safe_file(text: str, folder: Path, suffixes: tuple[str, ...], found: Imported) -> Path | None:
    """Return the file named by a `file://`, if it is a data file in the folder; else None, and it is left out."""
    name = text.removeprefix("file://")
    try:
        path = (folder / name).resolve()
    except (OSError, RuntimeError, ValueError):
        found.left.append(f"{text}: no path")
        return None
    if not path.is_relative_to(folder.resolve()):
        found.left.append(f"{text}: outside the folder of the configuration")
    elif path.suffix.lower() not in suffixes:
        found.left.append(f"{text}: code, or of a kind that is not read")
    elif not path.is_file():
        found.left.append(f"{text}: there is no such file")
    else:
        return path
    return None


def expand_tests(config: Mapping[str, Any], folder: Path, found: Imported) -> Tests:
    """Return the tests of a configuration. Raises SpecError if none of their assertions can be mapped."""
    shared = config.get("defaultTest")
    if isinstance(shared, str):
        file = safe_file(shared, folder, (".yaml", ".yml", ".json"), found)
        shared = read_value(file) if file else None
    shared = shared if is_dict(shared) else {}
    leave_keys(found, "defaultTest", shared, _TEST_KEYS)
    rows: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for test in _tests(config.get("tests"), folder, found):
        leave_keys(found, "a test", test, _TEST_KEYS)
        for variables in _combinations({**_vars(shared), **_vars(test)}, folder, found):
            asserts = [*as_list(shared.get("assert")), *as_list(test.get("assert"))]
            rows.append((variables, list(_assertions(asserts, variables, found))))
    rows = _named(rows, found)
    kinds = [[a["type"] for a in asserts] for _, asserts in rows]
    if rows and all(k and set(k) <= {"rubric"} for k in kinds):
        name = _free("rubric", rows)
        told = [{**v, name: "\n".join(str(a["value"]) for a in asserts)} for v, asserts in rows]
        return Tests(told, name, rubrics=True)
    if any("rubric" in k for k in kinds):
        found.left.append("rubrics of tests that are also checked by rules; for a judge alone see the metric `judge`")
    checked = [(v, [a for a in asserts if a["type"] != "rubric"]) for v, asserts in rows]
    without = sum(not asserts for _, asserts in checked)
    if without:
        found.left.append(f"{without} test(s) without an assertion that can be mapped")
    checked = [(v, asserts) for v, asserts in checked if asserts]
    if not checked:
        raise SpecError("no test has an assertion that can be mapped", hint=f"Left out: {'; '.join(found.left)}.")
    if all(len(asserts) == 1 and asserts[0]["type"] == "equals" for _, asserts in checked):
        name = _free("expected", rows)
        return Tests([{**v, name: asserts[0]["value"]} for v, asserts in checked], name, equal=True)
    name = _free("asserts", rows)
    return Tests([{**v, name: asserts} for v, asserts in checked], name)


def _free(name: str, rows: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> str:
    """Return a name that no variable has."""
    while any(name in variables for variables, _ in rows):
        name += "_"
    return name


def _tests(value: Any, folder: Path, found: Imported) -> Iterator[Mapping[str, Any]]:
    """Yield each test, including those of files in the folder."""
    for test in as_list(value):
        if is_dict(test):
            yield test
        elif isinstance(test, str) and (file := safe_file(test, folder, _TEST_FILES, found)) is not None:
            if file.suffix.lower() in (".csv", ".tsv", ".xlsx"):
                rows = read_table(file)
                if others := sorted({n for row in rows for n in row if n.startswith("__") and n[:10] != "__expected"}):
                    found.left.append(f"columns of {file.name}: {', '.join(others)}")
                yield from map(_table_test, rows)
            else:
                more = read_table(file) if file.suffix.lower() == ".jsonl" else read_value(file)
                yield from (t for t in as_list(more) if is_dict(t))


def _table_test(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table as a test: `__expected` columns are assertions, columns without `__` variables."""
    cells = [str(cell).strip() for name, cell in row.items() if name.startswith("__expected")]
    variables = {k: v for k, v in row.items() if not k.startswith("__")}
    return {"vars": variables, "assert": [_written_assertion(cell) for cell in cells if cell]}


def _written_assertion(cell: str) -> dict[str, Any]:
    """Parse the assertion in a cell: `TYPE: VALUE`, `TYPE(THRESHOLD): VALUE`, a file with code, or else a text to
    equal."""
    found = _ASSERTION.fullmatch(cell)
    if found is None or (found["value"] is None and "-" not in found["type"]):  # a single word may be an answer
        code = _CODE_FILE.match(cell)
        return {"type": "code" if code else "equals", "value": cell}
    kind = _SHORT.get(found["type"], found["type"])
    value = {} if found["value"] is None else {"value": found["value"].strip()}
    return {"type": f"{found['negated'] or ''}{kind}", **value}


def _vars(test: Mapping[str, Any]) -> dict[str, Any]:
    variables = test.get("vars")
    return dict(variables) if is_dict(variables) else {}


def _combinations(variables: dict[str, Any], folder: Path, found: Imported) -> Iterator[dict[str, Any]]:
    """Yield the combinations of variables. A list makes a row for each of its values."""
    for name, value in variables.items():
        if isinstance(value, str) and value.startswith("file://"):
            file = safe_file(value, folder, (".txt", ".md", ".json", ".yaml", ".yml"), found)
            variables[name] = read_data(file).decode(errors="replace") if file else ""
    lists = [v if is_list(v) else [v] for v in variables.values()]
    for count, values in enumerate(itertools.product(*lists)):
        if count >= _MAX:
            found.left.append(f"combinations of variables after the first {_MAX:,}")
            return
        yield dict(zip(variables, values, strict=True))


def _assertions(asserts: list[Any], variables: Mapping[str, Any], found: Imported) -> Iterator[dict[str, Any]]:
    """Yield the assertions that can be mapped, with variables in their values filled in."""
    for one in asserts:
        kind, value = (str(one.get("type", "")), one.get("value")) if is_dict(one) else ("", None)
        if kind in _RUBRICS and isinstance(value, str):
            leave_keys(found, f"an assertion '{kind}'", one, ("type", "value"))
            yield {"type": "rubric", "value": _filled(value, variables)}
        elif kind.removeprefix("not-") not in CHECKS or (value is None and not kind.endswith("is-json")):
            _leave(found, f"assertion '{kind or one}'", value)
        elif isinstance(value, str) and value.startswith("file://"):
            _leave(found, f"assertion '{kind}'", value)
        elif kind.endswith("regex") and (fault := _regex_fault(str(_filled(value, variables)))):
            _leave(found, f"assertion '{kind}' ({fault})", value)
        elif kind.endswith("is-json") and value is not None:
            _leave(found, "the schema of an assertion 'is-json'", None)
            leave_keys(found, f"an assertion '{kind}'", one, ("type", "value"))
            yield {"type": kind}
        else:
            leave_keys(found, f"an assertion '{kind}'", one, ("type", "value"))
            yield {"type": kind, **({} if value is None else {"value": _filled(value, variables)})}


def _leave(found: Imported, what: str, value: Any) -> None:
    line = what if value is None else f"{what}: {str(value)[:80]}"
    if line not in found.left:
        found.left.append(line)


def leave_keys(found: Imported, what: str, value: Any, read: Collection[str]) -> None:
    """Name the settings of something that are not in `read`."""
    for key, inner in value.items() if is_dict(value) else ():
        if key not in read:
            names = [f"{key}.{name}" for name in inner] if is_dict(inner) and inner else [str(key)]
            for name in names:
                _leave(found, f"'{name}' of {what}", None)


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    if is_list(value):
        return [_filled(v, variables) for v in value]
    if not isinstance(value, str):
        return value
    return VARIABLE.sub(lambda m: str(variables.get(m[1], m[0])), value)


def _regex_fault(pattern: str) -> str | None:
    """Return why a pattern is not used: it is not valid in Python."""
    try:
        Pattern(pattern)
        return None
    except ValueError as error:
        return f"no pattern of Python: {error}"


def _named(
    rows: list[tuple[dict[str, Any], list[dict[str, Any]]]], found: Imported
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return rows without variables whose names cannot be names of fields."""
    wrong = sorted({name for variables, _ in rows for name in variables if not name.isidentifier()})
    if wrong:
        found.left.append(f"variables that are not names: {', '.join(wrong)}")
    return [({k: v for k, v in variables.items() if k not in wrong}, asserts) for variables, asserts in rows]
