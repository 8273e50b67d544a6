"""The list of mutants fits the code, and a sample of them dies (contrib/mutants)."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "mutants"))

import run as mutants_run
from mutants import MUTANTS

ROOT = Path(__file__).parents[2]

#: Each with tests of a few seconds.
SAMPLE = (
    "search spends what is set aside for the proof",
    "a timeout costs nothing",
    "a gain is shown without its interval",
    "a permission holds in doubt",
    "the name is part of the hash",
)


@pytest.mark.slow
def test_each_mutant_changes_one_place_that_is_there() -> None:
    """What was rewritten is found here, and not when somebody runs them all."""
    wrong = []
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text()
        if text.count(mutant.old) != 1 or mutant.old == mutant.new:
            wrong.append(mutant.name)
            continue
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    assert not wrong, "\n".join(wrong)
    assert len(MUTANTS) >= 100


def test_each_has_a_name_of_its_own_and_tests_that_are_there() -> None:
    assert not [name for name, n in Counter(mutant.name for mutant in MUTANTS).items() if n > 1]
    for test in {test for mutant in MUTANTS for test in mutant.tests}:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).is_file(), test


def test_a_run_is_judged_by_how_its_tests_ended() -> None:
    assert mutants_run.judge(0, "1 passed")[0] == "survived"
    assert mutants_run.judge(None, "")[0] == "killed"
    assert mutants_run.judge(1, "E   assert 1 == 2\nFAILED tests/a.py::b") == ("killed", "FAILED tests/a.py::b")
    assert mutants_run.judge(1, "E   NameError: name 'x' is not defined")[0] == "broken"
    assert mutants_run.judge(2, "E   SyntaxError: invalid syntax")[0] == mutants_run.judge(4, "")[0] == "broken"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sample_dies() -> None:
    sample = [mutant for mutant in MUTANTS if mutant.why in SAMPLE]
    assert len(sample) == len(SAMPLE) == 5
    outcomes = mutants_run.run(sample)
    assert [o.mutant.name for o in outcomes if o.verdict != "killed"] == []
    assert len(outcomes) == 5
