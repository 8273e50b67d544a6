"""Traces made into rows, groups that no split cuts, labels, and a judge that they correct."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

JUDGED, LABEL = "tests/proof/test_judged.py", "tests/plugins/label/test_label.py"
ROWS_, REDACT = "tests/plugins/traces/test_rows.py", "tests/plugins/traces/test_redact.py"
FORMATS = "tests/plugins/traces/test_formats.py"
SPLITS = nodes_of("tests/task/test_splits.py", "test_no_group_is_in_two_splits", "test_a_file_is_split_by_a_field")
RUN = "tests/run/test_judged_run.py"
AUTHORS = nodes_of(JUDGED, "test_ppi_plus_plus_is_that_of_its_authors")

LABELLED: list[Mutant] = [
    *changes_of(
        "core/workbench/task/dataset.py",
        SPLITS,
        ("if max(lacking) > 0:", "if True:", "groups go to splits that are full"),
        (
            'groups[f"row {number}" if value is None else f"value {canonical(value)}"].append(example)',
            'groups[f"row {number}"].append(example)',
            "rows of one group go to several splits",
        ),
    ),
    *changes_of(
        "core/workbench/proof/prediction_powered.py",
        AUTHORS,
        ("shared / ((1 + n / others_n) * every)", "shared / every", "the judge's weight forgets how few its rows are"),
        (
            "weight = min(1.0, max(0.0, shared / ((1 + n / others_n) * every))) if every > 0 else 0.0",
            "weight = 1.0",
            "the judge is used in full (PPI without power tuning)",
        ),
        ("min(1.0, max(0.0, shared", "min(1.0, max(-9.0, shared", "a judge that contradicts people gets a weight"),
        (
            "variance += weight**2 * _variance(others) / others_n",
            "pass",
            "the judge's own scatter does not count",
        ),
        ("return [y - weight * f for", "return [y - f for", "the judge's errors are taken out in full"),
    ),
    *changes_of(
        "core/workbench/proof/prediction_powered.py",
        (JUDGED,),
        (
            "for weight in {0.0, found.weight})[1]",
            "for weight in {0.0, found.weight})[1] + 1",
            "few labels rule out all",
        ),
        ("-1 - weight * max(0.0, *scores, *others)", "-0.1", "a ruin that no label holds is no ruin"),
    ),
    *changes_of(
        "core/workbench/proof/judged.py",
        (JUDGED,),
        ("return replace(proof, shown=False, lowest=-1.0), check", "return proof, check", "a judge proves its opinion"),
        ("replace(proof, shown=False, lowest=-1.0)", "replace(proof, shown=False)", "a judge rules out a loss"),
        ("_mean_difference([row.people for row in members]), judge))", "judge, judge))", "no label is read"),
        (
            "scored = all(None not in row.people",
            "scored = any(None not in row.people",
            "a cluster is labelled by one of its rows",
        ),
        (
            "(n * value + sided * end) / (n + sided)",
            "value",
            "rows that one side left out do not count against a judged gain",
        ),
        ("lowest = bounded(min(below, ", "lowest = bounded(max(1.0, ", "few labels rule all out"),
        ("if missing is None and scored:", "if scored:", "who leaves out labels chooses what they show"),
        ("elif missing is None and all(row.is_seen", "elif all(False", "a skipped answer ends the draw"),
        ("for end in (-1.0, 1.0))", "for end in (0.0, 0.0))", "skipped answers are like the others"),
        ("sorted(rows, key=lambda row: row.place)", "rows", "the draw is the order of the file"),
        ("found.p < proof.alpha and lowest > 0", "found.p < 0.05", "a judged gain has the level of a first test"),
        (
            "found.pop(key, None)\n            found[key] = label",
            "found.setdefault(key, label)",
            "the first label counts",
        ),
    ),
    *changes_of(
        "core/workbench/proof/findings.py",
        (RUN,),
        ('if not getattr(task.metric, "needs_lm", False):', "if True:", "nobody asks whether a judge scored"),
    ),
    *changes_of(
        "core/workbench/proof/judged.py",
        (RUN,),
        ("answer_key(side.prediction, field))", 'answer_key({"": ""}, field))', "labels are of no answer"),
        ('level_after([*earlier, *["labels"] * looks])', "level_after(earlier)", "looks at labels are free"),
        ("if labels not in known:", "if True:", "the same labels are a further look"),
        ("place_in_draw(cluster),", '"",', "the report follows another draw than the labellers"),
    ),
    *changes_of(
        "core/workbench/task/write.py",
        (RUN,),
        (
            'if spec.proof.labels is not None:\n        tree["proof"]',
            'if False:\n        tree["proof"]',
            "labels stay behind",
        ),
    ),
    *changes_of(
        "core/workbench/kit/labels/items.py",
        (LABEL,),
        ('digest([0, "answer", item.row, item.key])', "0", "the baseline's answer comes first"),
        ("name not in _HIDDEN and name != field", "name != field", "the labeller sees what others think"),
        ("(place_in_draw(cluster), ", "(cluster, ", "rows are labelled in an order of their own"),
        ("if name != field}", "}", "the labeller sees the label where the workflow reads it"),
        ('one["cluster"] or one["example"], side,', 'one["cluster"] or one["example"], 0,', "both sides are one"),
    ),
    *changes_of(
        "core/workbench/kit/labels/label_file.py",
        (LABEL,),
        ("os.truncate(path, end)", "pass", "a label after one that was cut short is lost"),
    ),
    *changes_of(
        "core/workbench/kit/labels/agreement.py",
        (LABEL,),
        ("_squares(unit) / (len(unit) - 1)", "_squares(unit) / len(unit)", "alpha is not Krippendorff's"),
        ("errors = [judge - people for", "errors = [judge for", "that long answers are better is called a bias"),
    ),
    *changes_of(
        "plugins/workbench_traces/rows.py",
        (ROWS_,),
        ('yield "conversation", row["conversation"]', "pass", "a conversation crosses splits"),
        ('if by == "user" and row["user"]:', "if False:", "a user crosses splits"),
        ('yield "opening", digest(said[:2])', "pass", "a chat recorded turn by turn crosses splits"),
        ("parts[sum(middle > end for end in ends)].extend(of)", "parts[2].extend(of)", "nothing is left to learn from"),
        (
            "if _is_labelled(row) and not _is_labelled(kept[key]):",
            "if False:",
            "a duplicate without an outcome is kept before one with it",
        ),
    ),
    *changes_of(
        "plugins/workbench_traces/rows.py",
        (REDACT,),
        ('row["answer"] = redactor.text(turn.edit)', 'row["answer"] = turn.edit', "an edit is written as it was"),
        (
            'row["comment"] = redactor.text(',
            'row["comment"] = str(',
            "a comment is written as it was",
        ),
        ('"source": source,', '"source": turn.source,', "the name of a file is written as it was"),
        ('"user": names.name("user", turn.user),', '"user": turn.user,', "a user is written as they were"),
    ),
    *changes_of(
        "plugins/workbench_traces/redact.py",
        (REDACT,),
        ('if unicodedata.category(char) != "Cf"]', "]", "an invisible character hides an address"),
        ("doubled) % 10 == 0 and", "doubled) % 10 < 9 and", "any row of digits is a card"),
        (
            "return _whole(text) if enough and not _DATE.match(text) else None",
            "return None",
            "no phone number is found",
        ),
        ("self._named(str(name), inner)", "self.value(inner)", "a password under its name is written"),
    ),
    *changes_of(
        "plugins/workbench_traces/spans.py",
        (FORMATS,),
        (
            'str(note.get("annotator_kind", "HUMAN")).upper() == "HUMAN"',
            "True",
            "what a model wrote is a human's comment",
        ),
        ("for name, inside in span.events if name in _ROLES]", "for name, inside in ()]", "older events are not read"),
        ('or _numbered(a, "llm.input_messages")', "or []", "messages of OpenInference are not read"),
    ),
]
