"""Which step decided a failure: methods, scorers, readers, sealed rows, and what a second call pays."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

HERE, TESTS = "plugins/workbench_attribute/", "tests/plugins/attribute/"
KIT = "core/workbench/kit/"
DIAGNOSED: list[Mutant] = [
    *changes_of(
        HERE + "judges.py",
        TESTS + "test_methods.py",
        (
            "(first, middle, said) if earlier",
            "(first, max(first, middle - 1), said) if earlier",
            "a half loses its last step",
        ),
        (
            "range(len(log.steps)), judge, vote)",
            "range(1, len(log.steps)), judge, vote)",
            "the first step is not judged",
        ),
        ("    if len(named) > 1:", "    if len(named) > 99:", "what several parts named is not compared"),
        ("if step.agent == proposed.agent]", "if step.agent]", "the hybrid checks the steps of all"),
        ("        if yes:\n", "        if not yes:\n", "a no is a yes"),
        (
            "            judge.unread += 1\n            unread = unread or error",
            "            unread = unread or error",
            "unread answers are not counted",
        ),
        ("    if unread is not None:\n", "    if False:\n", "an unread answer is a no"),
        ("judge.rng(log, -1).choice(tied)", "tied[0]", "ties go to the first"),
        ("most / len(findings)", "most / counts.total()", "votes without a result do not count"),
        ("coin.random() < 0.5", "True", "the coin has one side"),
        ("if error.kind == FailureKind.AUTH:", "if False:", "a rejected key is an unread answer"),
        ('if answer.finish == "refusal":', "if False:", "a refusal is read as an answer"),
    ),
    *changes_of(
        HERE + "prompts.py",
        TESTS + "test_methods.py",
        (
            "if ground_truth and log.ground_truth is not None:",
            "if log.ground_truth is not None:",
            "the right answer is always shown",
        ),
        ('_convert("step", numbers,', '_convert("step", range(10**3),', "a step that was not shown is named"),
        ("        if within:\n", "        if False:\n", "a word that begins a sentence is an answer"),
        ("        if used > room:\n            break", "        if False:\n            break", "a window has no end"),
    ),
    *changes_of(
        HERE + "score.py",
        TESTS + "test_score.py",
        ("abs(found.step - log.gold_step) <= distance", "str(log.gold_step) in str(found.step)", "1 is found in 10"),
        (
            "for d, log in zip(found, logs, strict=True) if log.has_gold]",
            "for d, log in zip(found, logs, strict=True) if log.has_gold and d.step is not None]",
            "what has no prediction is left out",
        ),
        ("str(log.gold_step) in str(found.step)", "log.gold_step == found.step", "the published score is ours"),
        ("one.strip().casefold() == other.strip().casefold()", "other in one", "a longer name is the same agent"),
    ),
    *changes_of(
        HERE + "baselines.py",
        TESTS + "test_score.py",
        ("at = number - 1 if number", "at = number if number", "lexical blames the terminal"),
        ("most_common(1)[0][0]", "most_common()[-1][0]", "majority is the minority"),
    ),
    *changes_of(
        KIT + "log_files.py",
        "tests/kit/test_log_files.py",
        ("or int(step) >= len(steps):", "or False:", "a mistake may be after the end"),
        ('entry.get("name") or entry.get("role")', 'entry.get("role")', "names are not read"),
        ("(text, int(part or 0))", "(text + part, 0)", "10 comes before 9"),
    ),
    *changes_of(
        KIT + "log_spans.py",
        "tests/kit/test_log_files.py",
        (
            "for span in sorted(spans, key=lambda s: s.start):\n        kind",
            "for span in spans:\n        kind",
            "steps are in the order of the file",
        ),
        ('if code in ("2", "ERROR", "STATUS_CODE_ERROR"):', "if False:", "a span never fails"),
        ("and span.id not in with_steps)", ")", "a span around steps is a step"),
    ),
    *changes_of(
        KIT + "stored_logs.py",
        TESTS + "test_command.py",
        ('SEALED = ("test", "all")', "SEALED = ()", "labels of sealed rows are read"),
        ("sealed=self.split in SEALED", "sealed=False", "a sealed row is none"),
        (
            "if sealed and message.startswith",
            "if message.startswith",
            "errors of the metric are hidden of open rows, too",
        ),
        ("sealed and message.startswith(METRIC_SAID)", "False", "errors of the metric are shown of sealed rows"),
        ('if r["score"] is None or r["score"] < 1]', "]", "rows that are right are failures"),
        (
            "{k: v for k, v in fields.items() if k not in inputs",
            "{k: v for k, v in fields.items() if k in inputs",
            "inputs are the right answer",
        ),
    ),
    *changes_of(
        KIT + "agent_log.py",
        TESTS + "test_methods.py",
        ('.replace("\\n", "\\n    ")', "", "the text of a step passes for a step"),
        (
            'return f"{step.content}\\nERROR: {step.error}" if step.error else step.content',
            "return step.content",
            "errors are not shown",
        ),
    ),
    *changes_of(
        KIT + "agent_log.py",
        TESTS + "test_command.py",
        ('if m.get("role") != "assistant"]', "]", "an answer is a result, too"),
    ),
    *changes_of(
        KIT + "asked_run.py",
        TESTS + "test_command.py",
        ("(command.working, command.done):", "(command.working,):", "a finished diagnosis is forgotten"),
        ("earlier_seconds=earlier, reuse=True)", "earlier_seconds=earlier)", "equal answers are paid twice"),
        ("            ledger.bill.forget_unanswered()", "            pass", "a server that was down stays down"),
        (
            "make_request(spec, messages, replica, settings)",
            "make_request(spec, messages, 0, settings)",
            "all votes are one",
        ),
    ),
    *changes_of(
        HERE + "attribute.py",
        TESTS + "test_command.py",
        (
            "            except BudgetSpent as error:",
            "            except ZeroDivisionError as error:",
            "the end of the budget loses what was found",
        ),
    ),
    *changes_of(
        HERE + "commands.py",
        TESTS + "test_command.py",
        ("store, require_trust_in_run(run, db))", "store, run)", "an untrusted run names the judge"),
        ("    return found.complete and any(", "    return any(", "a budget that did not last is a success"),
        ("one_line(why[:300])", "why[:300]", "evidence forges lines"),
    ),
]
