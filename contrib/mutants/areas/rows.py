"""Rows, splits, and what a run does with them."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

SEALED, REUSE, COPIES_TESTS = "tests/run/test_sealed.py", "tests/proof/test_reuse.py", "tests/task/test_copies.py"
SPLITS = "tests/task/test_splits.py"
SESSION, START = "core/workbench/run/session.py", "core/workbench/run/start.py"
ROWS: list[Mutant] = [
    *changes_of(
        "core/workbench/task/dataset.py",
        SEALED,
        ("if self._sealed:", "if False:", "sealed rows can be read in a search"),
        ("self._sealed += 1", "pass", "rows are never sealed"),
        ("self._sealed -= 1", "pass", "rows stay sealed"),
    ),
    *changes_of(
        "core/workbench/task/dataset.py",
        SPLITS,
        ("order[train : train + val]", "order[train - 1 : train + val - 1]", "val has a row of train"),
        (
            "order[train + val : train + val + test]",
            "order[train + val - 1 : train + val + test - 1]",
            "test has a row of val",
        ),
        ('random.Random(f"split:{seed}")', 'random.Random("split")', "the seed of the split does nothing"),
        ("count = counts.get(id_, 0) + 1", "count = 1", "equal rows have one id"),
    ),
    *changes_of(
        "core/workbench/task/data.py",
        SPLITS,
        ("return n // 3, n // 3, n - 2 * (n // 3)", "return n // 3, n // 3, n // 3", "the rest of the rows is dropped"),
        ("if sum(sizes) > n:", "if False:", "a split may want more rows than there are"),
        ("if sum(shares) > 1 + 1e-9:", "if False:", "shares may add up to more than 1"),
    ),
    *changes_of(
        "core/workbench/task/load.py",
        SPLITS,
        (
            'warnings = [f"{shared} of the',
            'warnings = [][:0] and [f"{shared} of the',
            "rows that train and val share are not told",
        ),
        (
            '*(("val", row) for row in dataset.val)]',
            '*(("val", row) for row in ())]',
            "a test row that val has stays in the test",
        ),
    ),
    *changes_of(
        "core/workbench/task/data.py",
        SEALED,
        (
            "digest(contents), digest(contents[2])",
            "digest(contents[2]), digest(contents[2])",
            "the hash of the data knows the test alone",
        ),
    ),
    *changes_of(
        "core/workbench/task/load.py",
        COPIES_TESTS,
        (
            "replace(dataset, test=kept, warnings=(warning, *dataset.warnings))",
            "replace(dataset, test=kept)",
            "duplicates of train and test are not told",
        ),
        (
            "replace(dataset, test=kept, warnings=(warning, *dataset.warnings))",
            "replace(dataset, warnings=(warning, *dataset.warnings))",
            "copies stay in the test",
        ),
    ),
    *changes_of(
        "core/workbench/task/load.py",
        "tests/task/test_labels.py",
        ("if not isinstance(target, str) or data.label_as_input:", "if True:", "a workflow may read the right answer"),
    ),
    *changes_of(
        SESSION,
        SEALED,
        (
            "with self.task.dataset.test.sealed():\n                status",
            "with suppress():\n                status",
            "the search is not sealed",
        ),
        (
            "with self.task.dataset.test.sealed():\n                    found",
            "with suppress():\n                    found",
            "`ready` of an optimizer is not sealed",
        ),
    ),
    *changes_of(
        "core/workbench/run/result_files.py",
        SEALED,
        (
            "taken = report.proved or (options.keep_unproved and changed)",
            "taken = True",
            "what is not proved takes the place of the baseline",
        ),
        ("(not report.loss_shown or report.levels is not None)", "True", "a loser is offered"),
    ),
    *changes_of(
        "core/workbench/run/sealed_test.py",
        SEALED,
        (
            "rows[index] = tuple(found[side.hash] for side in sides)",
            "rows[index] = tuple(found[task.workflow.hash] for side in sides)",
            "the winner is compared with itself",
        ),
    ),
    *changes_of(
        SESSION,
        REUSE,
        ("self.ledger.reserve_for_proof()", "pass", "the proof may not use what was set aside for it"),
    ),
    *changes_of(
        "core/workbench/run/sealed_test.py",
        REUSE,
        (
            "record_test(ledger.store, ledger.run_id, sides[1].hash, described)",
            "pass",
            "a run does not remember its test",
        ),
    ),
    *changes_of(
        START, SEALED, ('if task.data_hash != row["data_hash"]:', "if False:", "a run goes on with other data")
    ),
    *changes_of(
        START,
        "tests/run/test_resume.py",
        (
            'if row["status"] == "finished" and options.sets:',
            "if False:",
            "a finished run may be proved again with other settings",
        ),
        (
            'same &= begins or stored.get("referred") == task.external_hash',
            "same &= True",
            "a run goes on with another metric",
        ),
    ),
]
