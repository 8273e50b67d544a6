"""Mutants of the reader of answers, and of judges whose calls fail."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

HERE = "core/workbench/kit/answers/"
TESTS = "tests/kit/answers/"

ANSWERS: list[Mutant] = [
    *changes_of(
        HERE + "choices.py",
        TESTS + "test_parse.py",
        ("and not _is_denied(text, start, end):", "and True:", "a value that is denied counts"),
        ("if not part.endswith(_ASKED)", "if True", "a value that is asked about counts"),
        (
            "if not stated or any(one != stated[0] for one in stated):",
            "if not stated:",
            "the first of several values is taken",
        ),
        (
            "return found[:1] if all(one == found[0] for one in found) else []",
            "return found[:1]",
            "values listed count",
        ),
    ),
    *changes_of(
        HERE + "numbers.py",
        TESTS + "test_parse.py",
        ("for conclusion in find_conclusions(bare, field):", "for conclusion in ():", "the last number is the answer"),
        ('value = float(value) ** power if found["ten"] in', "value = float(value) if found", "powers are not read"),
    ),
    *changes_of(
        HERE + "numbers.py",
        TESTS + "test_habits.py",
        ("return None if _OPEN.search(bare) else", "return None if False else", "one of two values is taken"),
        ("if begins and _ALONE.match(rest) and", "if False and", "an explanation hides the value before it"),
    ),
    *changes_of(
        HERE + "typed.py",
        TESTS + "test_habits.py",
        ("    if rows := find_rows(text):\n", "    if rows := []:\n", "tables are not read"),
    ),
    *changes_of(
        HERE + "json_text.py",
        "tests/whole/test_long_answers.py",
        ("and spent < 2 * len(text) + 200_000:", "and True:", "work on brackets that do not end is not bounded"),
    ),
    *changes_of(
        HERE + "code.py",
        TESTS + "test_code.py",
        ("(?:^[ \\t]*(?P=marks)|\\Z)", "(?:(?P=marks)|\\Z)", "a string of marks ends a block"),
        ("textwrap.dedent(body)", "body", "code in a list is indented"),
    ),
    *changes_of(
        "plugins/workbench_training/judge_calls.py",
        "tests/plugins/training/test_judge_calls.py",
        ("        if error.kind == FailureKind.AUTH:\n", "        if True:\n", "a call that fails ends the run"),
        ("and not self.answered and failed >= _PATIENCE:", "and False:", "a judge that never answers is waited for"),
    ),
    *changes_of(
        "plugins/workbench_attribute/judges.py",
        "tests/plugins/attribute/test_methods.py",
        ("            if error.kind.infrastructure:\n", "            if False:\n", "a coin stands in for a dead judge"),
        ("if lost and (not answered or", "if lost and (False or", "coins alone are a finding"),
        ("+ 0.5**f.coins", "+ 1", "coins weigh as much as answers"),
    ),
]
