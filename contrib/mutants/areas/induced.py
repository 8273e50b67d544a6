"""Metrics from comments: evidence, held-out traces, the number of metrics, measures, and metrics that read a file."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

HERE, TESTS = "plugins/workbench_feedback/", "tests/plugins/feedback/"
INDUCED: list[Mutant] = [
    *changes_of(
        HERE + "answers.py",
        TESTS + "test_answers.py",
        ("        if found < 0:\n            return False", "        pass", "any words are a quote"),
        ("place = found + len(part)", "place = 0", "the parts of a quote are in no order"),
        ('if response.finish == "length":', "if False:", "a list that was cut is a shorter one"),
        ('if response.finish == "refusal":', "if False:", "a refusal is read as an answer"),
        ("heat = SECOND_TEMPERATURE if attempt else 0.0", "heat = 0.0", "the second answer is the first one"),
        (
            "                raise\n            raise Unreadable(error.kind",
            "                pass\n            raise Unreadable(error.kind",
            "a server that is down is an unread answer",
        ),
    ),
    *changes_of(
        HERE + "grounding.py",
        TESTS + "test_answers.py",
        ("elif not find_quote(log, aspect.step, aspect.quote):", "elif False:", "an aspect needs no evidence"),
        ('.replace("\\n", "\\n    ")', "", "a comment passes for a step"),
    ),
    *changes_of(
        HERE + "clustering.py",
        TESTS + "test_answers.py",
        (" and n - 1 not in seen]", "]", "an aspect is in two groups"),
        ("best = max(range", "best = min(range", "what was left out joins the farthest group"),
        ("if not groups or len(left) > len(aspects) / 2:", "if not groups:", "groups of a few are groups of all"),
    ),
    *changes_of(
        HERE + "clustering.py",
        TESTS + "test_induce.py",
        ("n_clusters=n)", "n_clusters=2)", "there are always two groups"),
        ("squareform(1.0 - similarities(aspects)", "squareform(similarities(aspects)", "what differs is grouped"),
    ),
    *changes_of(
        HERE + "inducing.py",
        TESTS + "test_answers.py",
        ("[a for a in chosen if a.sign == sign]", "chosen", "a bad behaviour is a good example"),
        ("step=aspect.step,", "step=9,", "an example leads to another step"),
        ("while name in names:", "while False:", "two metrics have one name"),
    ),
    *changes_of(
        HERE + "judging.py",
        TESTS + "test_answers.py",
        ("if rating and not find_quote(log, step, quote):", "if False:", "a trait needs no evidence"),
        ("if len(ratings) < n:", "if False:", "what is not rated is neither good nor bad"),
        (" or metric in ratings:", ":", "a metric is rated twice"),
    ),
    *changes_of(
        HERE + "coverage.py",
        TESTS + "test_answers.py",
        ("len(traits) - len(set(alike))", "len(traits) - len(alike)", "a trait that two aspects match counts twice"),
        ("if t and aspects[a - 1].sign == traits[t - 1].rating]", "if t]", "praise matches blame"),
    ),
    *changes_of(
        HERE + "coverage.py",
        TESTS + "test_induce.py",
        (
            "return 2 * coverage * useful / (coverage + useful) if coverage + useful else 0.0",
            "return coverage",
            "redundancy does not count",
        ),
        ("[part / largest for part, _ in pairs]", "[part / whole for part, whole in pairs]", "an interval of shares"),
        ("[*order[1:], order[0]]", "order", "the control is the trace itself"),
    ),
    *changes_of(
        HERE + "induce.py",
        TESTS + "test_induce.py",
        (
            "made_of = [a for a in aspects if a.trace not in held]",
            "made_of = aspects",
            "nothing is held out",
        ),
        (
            "{a.trace for a in aspects if a.trace in held}",
            "{a.trace for a in aspects}",
            "known comments are measured",
        ),
        ("{t: left[others[t]] for t in traces}", "left", "the control has the right comments"),
        (
            "(round(t.agreement.balance, 9), -len(t.metrics))",
            "-len(t.metrics)",
            "the fewest metrics are the best",
        ),
        ("(round(t.agreement.balance, 9), -len(", "(round(t.agreement.balance, 9), len(", "of equals the most metrics"),
        ("min(len(order) - 1, max(1,", "min(len(order), max(0,", "all traces are held out, or none"),
        (
            "        except BudgetSpent as error:",
            "        except ZeroDivisionError as error:",
            "the budget is an error",
        ),
        (
            "found = await asyncio.gather(*jobs, return_exceptions=True)",
            "found = await asyncio.gather(*jobs)",
            "an error does not wait for what is in flight",
        ),
    ),
    *changes_of(
        HERE + "metric.py",
        TESTS + "test_metric.py",
        ("(1 + ratings.get(n, 0)) / 2", "max(0, ratings.get(n, 0))", "neither is bad"),
        (" Wanted: {metric.definition}", "", "feedback does not say what is wanted"),
        ("if metric.name in only]", "]", "all metrics count"),
        ('path_options: ClassVar = ("file",)', "path_options: ClassVar = ()", "the file is sought where one stands"),
    ),
    *changes_of(
        HERE + "comments.py",
        TESTS + "test_comments.py",
        ("if not place.is_relative_to(folder):", "if False:", "comments lead to any file"),
        ("if key not in self.known:", "if True:", "each comment has a trace of its own"),
    ),
    *changes_of(
        HERE + "commands.py",
        TESTS + "test_command.py",
        ("run = require_trust_in_run(read.runs[0], db)", "run = read.runs[0]", "an untrusted run names the model"),
        ("if any(log.sealed for log in read.traces):", "if False:", "sealed rows are not warned of"),
        ("sys.exit(0 if found.stopped is None else 1)", "sys.exit(0)", "a budget that did not last is a success"),
        ("(found.shuffled.coverage or 0.0) >=", "1.0 <", "nobody says that the control is as good"),
    ),
    *changes_of(
        "core/workbench/kit/logs/stored_logs.py",
        TESTS + "test_comments.py",
        ('            or [r for r in found if r["example"].endswith(ends)]\n', "", "the end of an id names no row"),
    ),
    *changes_of(
        "core/workbench/task/metric.py",
        TESTS + "test_metric.py",
        ("str(base / v) if k in paths", "v if k in paths", "a metric's file is sought in the working folder"),
        ("else os.path.relpath(base / path, folder)", "else path", "a metric's file is lost when the file moves"),
        (
            "        if isinstance(written, str):\n            check_no_path",
            "        if False:\n            check_no_path",
            "a path in a call is seen by nobody",
        ),
    ),
    *changes_of(
        "core/workbench/task/load.py",
        TESTS + "test_metric.py",
        ("*further, *read])", "*further])", "a run goes on with other metrics"),
    ),
]
