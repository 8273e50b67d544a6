"""Exports of an evaluation for continuous integration: JUnit XML and a table in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from workbench.base.files import write_whole
from workbench.base.text import visible
from workbench.errors import StoreError
from workbench.evaluation.compare import Compared
from workbench.evaluation.comparison_text import bar_lines
from workbench.evaluation.eval_report import EvalReport
from workbench.ledger import per_1000

#: Patterns for the start of our own files, which may be replaced by newer ones.
JUNIT, MARKDOWN = r'<\?xml version="1.0"\?>\n<testsuite ', r"\| workflow \| rows \| score \|"
#: Characters that XML 1.0 does not allow.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(report: EvalReport, rows: Sequence[Mapping[str, Any]], path: Path, apart: str = "") -> None:
    """Write an evaluation as JUnit XML: a test case for each row and repeat. A case fails if its score is below 1, and
    is an error if it has no result. An unfinished run is one more error. apart: tells the run from others of its name
    (`workbench.store.told_apart`). Raises StoreError."""
    name = _text(f"{report.name}.{report.split}" + (f" ({apart})" if apart else ""))
    cases = len(rows) + (not report.complete)
    suite = ElementTree.Element("testsuite", name=name, tests=str(cases))
    properties = ElementTree.SubElement(suite, "properties")
    without = sum(report.missing.values())
    facts = {"run": report.run, "score": report.score if report.n else "", "no_result": without, **report.scores}
    for key, value in facts.items():
        ElementTree.SubElement(properties, "property", name=_text(key), value=_text(value))
    failed = errors = 0
    for row in rows:
        named = _text(row["handle"] + (f" #{row['replica'] + 1}" if report.repeats > 1 else ""))
        seconds = float((row["cost"] or {}).get("seconds", 0.0))
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=named, time=f"{seconds:.3f}")
        if row["score"] is None:
            errors += 1
            ElementTree.SubElement(case, "error", type=_text(row["failure"]), message=_text(row["message"]))
        elif row["score"] < 1.0:
            failed += 1
            said = row["feedback"] or row["message"] or ""
            inner = ElementTree.SubElement(case, "failure", type=_text(row["failure"] or "score"), message=_text(said))
            inner.text = _text(f"score {row['score']:.3f}\nprediction: {row['prediction']}")
    if not report.complete:
        errors += 1
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=f"run {report.run}")
        ElementTree.SubElement(case, "error", type=report.status, message=_text(_why(report)))
    suite.set("failures", str(failed))
    suite.set("errors", str(errors))
    _write(path, ElementTree.tostring(suite, encoding="unicode", xml_declaration=False), '<?xml version="1.0"?>\n')


def write_markdown(reports: Sequence[EvalReport], path: Path, compared: Compared = None, *missed: str) -> None:
    """Write evaluations as a table in Markdown, as for the comment of a pull request, with the gate below it: the
    comparison with its bar, and what it missed else. Raises StoreError."""
    names = list(dict.fromkeys(name for report in reports for name in report.scores))
    head = ["workflow", "rows", "score", "95% interval", *names, "tokens/row", "$/1,000 rows", "failed", "no result"]
    lines = ["| " + " | ".join(map(_cell, head)) + " |", "|" + " --- |" * len(head)]
    for report in reports:
        low, high = report.ci95
        cells = [
            report.label or report.name,
            f"{report.n}" if report.n == report.of else f"{report.n} of {report.of}",
            f"{report.score:.3f}" if report.n else "-",
            f"{low:.3f} to {high:.3f}" if report.n else "-",
            *(report.describe_further(name) for name in names),
            f"{report.cost['tokens']:.0f}",
            per_1000(None if report.unpriced else report.cost["usd"]),
            str(sum(report.failures.values()) - sum(report.missing.values())),
            str(sum(report.missing.values())),
        ]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    for report in reports:
        if not report.complete:
            lines += ["", f"**{_cell(report.label or report.name)} did not finish** ({_cell(_why(report))})."]
    below = [*(bar_lines(*compared) if compared else ()), *missed]
    lines += [line for sentence in below for line in ("", _cell(sentence))]
    _write(path, "\n".join(lines) + "\n")


def _why(report: EvalReport) -> str:
    """Return the reason why a run is unfinished."""
    return report.error or f"{report.status}: {report.n} of {report.of} rows have a score"


def _cell(text: str) -> str:
    """Escape a text so that it neither ends its cell nor acts as markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#!])", r"\\\1", " ".join(visible(text).split()))


def _text(value: Any) -> str:
    return _NOT_XML.sub("?", "" if value is None else str(value))[:20_000]


def _write(path: Path, text: str, head: str = "") -> None:
    try:
        write_whole(path, head + text)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from None
