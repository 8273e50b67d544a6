"""Evaluations: what is kept, resumed, compared and removed; images and objects in rows and answers."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

ROOM = "core/workbench/evaluation/"
RUN_TESTS, COMPARE_TESTS = "tests/evaluation/test_eval_run.py", "tests/evaluation/test_compare.py"
PRICES = "tests/run/test_prices.py"
COMMANDS = "tests/cli/test_eval_command.py"
EVALUATED: list[Mutant] = [
    *changes_of(
        f"{ROOM}eval_run.py",
        RUN_TESTS,
        ('raise StoreError(f"the data of run', 'pass  # (f"the data of run', "other rows are resumed"),
        ("        self.evaluator.check_metric(n)\n", "", "a metric that never works on few rows is not told"),
        ("            self.ledger.bill.forget_unanswered()\n", "", "a dead server's failures stay"),
        ("Draw(replica=replica)", "Draw()", "repeats draw nothing anew"),
        ("further=task.further_metrics", "further=()", "only the first metric is shown"),
        ('status, raised = "budget", spent', 'status, raised = "finished", None', "a part is taken for the whole"),
    ),
    *changes_of(
        f"{ROOM}matrix.py",
        PRICES,
        ("_check_cells(source, chosen, pool or LMPool())", "pass", "a cell is paid for before the next is found wrong"),
    ),
    *changes_of(
        f"{ROOM}eval_run.py",
        PRICES,
        ("return [s.model for s, lm in models if", "return [s.model for s, lm in () if", "what has no price is free"),
    ),
    *changes_of(
        "core/workbench/run/preflight.py",
        PRICES,
        (
            "in task.spec.roles.items() if role in roles)",
            "in task.spec.roles.items())",
            "eval wants what a search needs",
        ),
    ),
    *changes_of(
        "core/workbench/spec/settings.py",
        PRICES,
        ('price = now.pop("price", None)', "price = None", "a model is billed at the price of another"),
    ),
    *changes_of(
        "core/workbench/run/cost_estimate.py",
        PRICES,
        ("max(most / calls, role)", "most / calls", "a dear proposer costs no more"),
        ("searched=True, roles=True)", "searched=True)", "a role without a price is not named"),
    ),
    *changes_of(
        f"{ROOM}eval_run.py",
        "tests/proof/test_reuse.py",
        ("self.sealed_tests.add_row(", "print(", "an evaluation on test is no look"),
    ),
    *changes_of(
        f"{ROOM}eval_report.py",
        RUN_TESTS,
        ("len(rows) * (whole - 1)", "len(rows) * whole", "the variance within rows is too small"),
        ("of_means - within / whole", "of_means", "the variance between rows holds that within them"),
    ),
    *changes_of(
        f"{ROOM}compare.py",
        COMPARE_TESTS,
        ("plain[index].p * left", "plain[index].p", "several comparisons are not adjusted"),
        ("adjusted = max(adjusted, ", "adjusted = min(1.0, ", "Holm's steps may fall"),
        ("[a.cluster for a, _ in rows]", "[a.example for a, _ in rows]", "rows of a cluster count each"),
        (
            "evidence and proof.lowest > -margin,",
            "evidence and proof.diff > -margin,",
            "a loss by chance is taken for none",
        ),
        (
            "asked = [*first.rows] if lacking else shared",
            "asked = shared",
            "rows left out help",
        ),
        ('key = same[0]["row_key"]', 'key = f"id {example}"', "rows are paired by their place"),
        ('return "loss" if self.p < LEVEL and', 'return "" if self.p < LEVEL and', "a loss is never called one"),
    ),
    *changes_of(
        f"{ROOM}matrix.py",
        COMMANDS,
        ("ceiling - used[name])", "ceiling)", "each cell has the whole budget"),
        ('if address != "lm" or', "if True or", "another model loses its server"),
        ('if sign == "," and not depth and not quote:', 'if sign == ",":', "a comma in quotes ends a value"),
    ),
    *changes_of(
        "core/workbench/cli/eval_commands.py",
        COMMANDS,
        ("if compared and not compared[0]:", "if False:", "a gate that is missed passes"),
        ("< (min_score or 0.0):", "< 0.0:", "a low score passes"),
    ),
    *changes_of(
        "core/workbench/store/runs.py",
        "tests/cli/test_runs.py",
        (
            'for table in ("evaluations", "candidates"',
            'for table in ("sealed_tests", "evaluations", "candidates"',
            "a removed run takes its looks with it",
        ),
        ("not in (select value from json_each(?)))", "is not null)", "prune takes the rows of the winner"),
    ),
    *changes_of(
        "plugins/workbench_training/state/checkpoints.py",
        "tests/cli/test_runs.py",
        ("and not any(folder.name in text for text in kept)", "", "the winner's weights are pruned"),
        ("unused = int(record[1]) in runs", "unused = True", "records of other runs are pruned"),
    ),
    *changes_of(
        "core/workbench/kit/prompting/images.py",
        "tests/plugins/predict/test_images.py",
        ("if not path.is_relative_to(folder):", "if False:", "a row sends any file of this machine"),
        ("    if kind is None or len(content) > LARGEST:", "    if len(content) > LARGEST:", "any file is an image"),
        ("    if size > LARGEST:", "    if False:", "a file of any size is read"),
    ),
    *changes_of(
        "core/workbench/store/journal.py",
        "tests/plugins/predict/test_images.py",
        (
            "if not is_list(content):\n            return message",
            "if True:\n            return message",
            "each call has it",
        ),
    ),
    *changes_of(
        "core/workbench/runtime/runtime.py",
        "tests/plugins/predict/test_images.py",
        ("if not self.reads_images(spec) and any(", "if any(", "no model gets images"),
    ),
    *changes_of(
        "core/workbench/kit/answers/typed.py",
        "tests/plugins/predict/test_types.py",
        (
            'return (adapter.dump_python(adapter.validate_python(value), mode="json"),)',
            "return (value,)",
            "nothing is validated",
        ),
    ),
    *changes_of(
        "core/workbench/kit/answers/shapes.py",
        "tests/plugins/predict/test_types.py",
        ("    if depth > 6:", "    if False:", "a type that holds itself has no end"),
    ),
    *changes_of(
        "core/workbench/base/concurrency.py",
        "tests/api/test_api.py",
        (
            "        watch.cancel()\n        with suppress(Exception):",
            "        with suppress(Exception):",
            "cancelling does nothing",
        ),
    ),
    *changes_of(
        "core/workbench/evaluation/compare.py",
        "tests/evaluation/test_compare.py",
        ("if not self.evidence:", "if False:", "a candidate is better on the rows that it was chosen by"),
        (
            "return found.evidence and proof.lowest",
            "return proof.lowest",
            "a gate passes on rows that a side was chosen by",
        ),
        ("kept = [key for key in asked if key not in runs]", "kept = asked", "rows that chose a side count"),
        ('if found["data_hash"] == data_hash:', "if False:", "rows of train that an optimizer saw count"),
    ),
    *changes_of(
        "core/workbench/store/candidates.py",
        "tests/evaluation/test_compare.py",
        ("c.optimizer, '') != 'baseline'", "c.optimizer, '') != ''", "a baseline was chosen by its rows"),
        ("where e.split = 'train') ", "where e.split = 'none') ", "an optimizer does not look at train"),
    ),
]
