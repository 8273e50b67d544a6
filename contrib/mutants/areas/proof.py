"""The proof: statistics, earlier tests, leaks, copies, the report's text."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

STATISTICS = "core/workbench/proof/statistics.py"
STATS, BINARY = "tests/proof/test_statistics.py", "tests/proof/test_paired_binary.py"
REUSE, LEAKAGE = "tests/proof/test_reuse.py", "tests/proof/test_leakage.py"
SEALED = "tests/run/test_sealed.py"
COPIES_TESTS = "tests/task/test_copies.py"
BY_HAND = nodes_of(
    STATS,
    "test_binary_scores_have_the_unconditional_p_by_hand_made_counts",
    "test_shown_and_its_words",
    "test_five_wins_cannot_show_a_gain_and_six_can",
    "test_a_loss_is_never_shown",
    "test_infrastructure_failures_leave_both_sides",
    "test_bad_input_is_refused",
    "test_a_gain_needs_its_interval_above_zero_as_well_as_its_p",
    "test_a_smaller_level_shows_less",
    "test_rows_of_one_cluster_count_once",
    "test_rounding_of_binary_fractions_is_no_difference",
    "test_rows_that_one_side_alone_left_unanswered_count_against_a_gain",
    "test_interval_of_a_share_is_wilsons",
    "test_words_without_evidence",
)
GRADED = nodes_of(
    STATS,
    "test_graded_scores_are_tested_by_their_mean_and_the_interval_agrees",
    "test_a_test_of_graded_scores_looks_at_both_sides",
)
POWER = nodes_of(STATS, "test_power_at_the_smallest_gain_binary", "test_the_smallest_gain_of_few_rows_is_honest")
PROOF: list[Mutant] = [
    *changes_of(
        STATISTICS,
        BY_HAND,
        (
            "return self.diff > 0 and self.p < alpha and self.interval[0] > 0",
            "return self.diff > 0 and self.p < alpha",
            "a gain is shown without its interval",
        ),
        (
            "return self.diff > 0 and self.p < alpha and self.interval[0] > 0",
            "return self.diff > 0 and self.p < alpha and self.interval[1] > 0",
            "the wrong end of the interval is looked at",
        ),
        (
            "return self.diff > 0 and self.p < alpha and self.interval[0] > 0",
            "return self.diff > 0 and self.interval[0] > 0",
            "a gain is shown without its p-value",
        ),
        ("shown = shown and worst.is_beyond_chance(alpha)", "pass", "rows that one side left out do not count"),
        (
            "ends = ((highest, 0.0), (0.0, highest))",
            "ends = ((0.0, highest), (highest, 0.0))",
            "the best is taken for the worst",
        ),
        (
            "if a is not None and b is not None]",
            "if a is not None or b is not None]",
            "rows that one side answered count as pairs",
        ),
        (
            "found.setdefault(key, []).append((a, b))",
            "found.setdefault((key, len(found)), []).append((a, b))",
            "each row of a cluster counts",
        ),
        (
            "if not (0 <= a <= highest and 0 <= b <= highest):",
            "if not (0 <= a and 0 <= b):",
            "scores above the highest are taken",
        ),
        (
            "differences = [round(b - a, 12) for a, b in units]",
            "differences = [b - a for a, b in units]",
            "rounding makes wins of ties",
        ),
        (
            "share * (1 - share) / n + z * z / (4 * n * n))",
            "share * (1 - share) / n)",
            "Wilson's interval is too narrow",
        ),
        ("n_excluded=len(rows) - len(answered),", "n_excluded=0,", "rows that were left out are not told"),
    ),
    *changes_of(
        "core/workbench/proof/paired_binary.py",
        (*GRADED, BINARY, *BY_HAND),
        ("float(ndtri((1 + level) / 2))", "float(ndtri(level))", "Tango's interval is one of 90%"),
        ("b * b - 8 * n * c)", "b * b - 4 * n * c)", "Tango's share of losses is not the likeliest"),
        ("return min(1.0, 2 * _tail(", "return min(1.0, _tail(", "McNemar's test looks at one side"),
        ("float(max(chances @ tails", "float(min(chances @ tails", "the kindest share of differing rows is taken"),
        ("    return high\n\n\ndef score", "    return 1.96\n\n\ndef score", "the critical value is that of many rows"),
    ),
    *changes_of(
        "core/workbench/proof/savings.py",
        "tests/proof/test_savings.py",
        ("math.fsum(saved) > 0 and p < alpha and low > 0,", "math.fsum(saved) > 0,", "any saving is shown"),
        ("max([ceiling.most, *baseline, *winner])", "max([*baseline, *winner])", "no row is dearer than those seen"),
        ("return times * worst", "return worst", "a row makes one call"),
        ("if call.response.completion_tokens > call.max_tokens and", "if False and", "max_tokens bounds any server"),
        (
            "if most <= declared.get(name, -1.0):",
            "if name in declared:",
            "a declared ceiling holds though a row passed it",
        ),
        ("prompt_tokens + call.max_tokens", "prompt_tokens", "answers cost nothing at their worst"),
    ),
    *changes_of(
        "core/workbench/proof/sides.py",
        "tests/proof/test_sides.py",
        (".shuffle(order)", "", "the baseline runs first on each row"),
        ("if a.turn < b.turn else", "if True else", "the winner is taken for the second"),
        ("if 2 * sum(differ) > len(differ) or not differ:", "if True:", "a change that was not sent shows a gain"),
        ("return bool(after - before)", "return bool(after)", "any request carries the change"),
    ),
    *changes_of(
        "core/workbench/proof/bounded_mean.py",
        (*GRADED, "tests/proof/test_bounded_mean.py"),
        (
            "return min(1.0, 2 * min(mean_p(differences, -largest), mean_p([-d for d in differences], -largest)))",
            "return min(1.0, mean_p(differences, -largest))",
            "the test of graded scores looks at one side",
        ),
        (
            "x = np.append(np.asarray(values, dtype=float), least)",
            "x = np.asarray(values, dtype=float)",
            "losses that were not seen are not allowed for",
        ),
        (
            "tail, mean = (1 - level) / 2, math",
            "tail, mean = (1 - level), math",
            "the interval of a mean is one of 90%",
        ),
        (
            "return end(1.0, least), end(-1.0, most)",
            "return end(1.0, least), end(-1.0, most + 1)",
            "the upper end allows for scores that cannot be",
        ),
    ),
    *changes_of(
        "core/workbench/proof/paired_binary.py",
        POWER,
        (
            "if power(n, share, middle, alpha) >= 0.8 else",
            "if power(n, share, middle, alpha) >= 0.5 else",
            "the smallest gain is found in every second case",
        ),
        ("_wins_needed(bound, n) - 1, pairs", "_wins_needed(bound, n) - 2, pairs", "power is that of a weaker test"),
    ),
    *changes_of(
        STATISTICS,
        nodes_of(STATS, "test_power_at_the_smallest_gain_graded"),
        ("+ float(ndtri(0.8)) * deviation", "+ float(ndtri(0.2)) * deviation", "the smallest graded gain is too small"),
    ),
    *changes_of(
        "core/workbench/proof/reuse.py",
        REUSE,
        ("return LEVEL / (k * (k + 1)) if k else LEVEL", "return LEVEL", "each test has the whole level"),
        ("LEVEL / (k * (k + 1)) if", "LEVEL / (k + 1) if", "the levels of later tests grow without end"),
        ("OVERLAP * len(keys)", "1.0 * len(keys)", "one row fewer makes a fresh test"),
        ("before=own, except_of=(", "before=None, except_of=(", "a run counts its own test as a look"),
        ("except_of=(baseline, evaluated_name(task))", "except_of=()", "a test of the baseline is a look"),
        ("keys and tests.find(run_id, candidate, keys) is None:", "False:", "no test is remembered"),
        ("match_rows(rows, seen.read_texts(without=keys))", "{}", "another word makes a fresh test"),
        ("seen.find_selections(same, most, before=run_id, baseline=baseline)", "[]", "rows that were val are fresh"),
    ),
    *changes_of(
        "core/workbench/proof/report.py",
        SEALED,
        ("self.proof.diff < 0 and self.proof.p < 0.05 and self.proof.ci95[1] < 0", "False", "a loss is never shown"),
        (
            "self.proof.diff < 0 and self.proof.p < 0.05 and self.proof.ci95[1] < 0",
            "self.proof.diff < 0",
            "any loss is shown",
        ),
        ("return self.gain_shown or self.saving_shown", "return self.gain_shown", "a saving is no proof"),
        (
            "self.proof.loss_bounded and not self.loss_shown",
            "not self.loss_shown",
            "a saving is shown though the winner may be much worse",
        ),
        (
            "self.proof.loss_bounded and not self.loss_shown",
            "self.proof.loss_bounded",
            "a saving is shown though a small loss is shown",
        ),
    ),
    *changes_of(
        "core/workbench/proof/report.py",
        LEAKAGE,
        (
            "self.proof.shown and self.objection is None",
            "self.proof.shown",
            "who carries the test rows is shown to be better",
        ),
    ),
    *changes_of(
        "core/workbench/proof/findings.py",
        COPIES_TESTS,
        (
            "clusters = [task.cluster_of(a.example) for a, _ in pairs]",
            "clusters = [a.example.id for a, _ in pairs]",
            "rows of one cluster count each",
        ),
    ),
    *changes_of(
        "core/workbench/proof/findings.py",
        REUSE,
        ("highest = level_after(earlier),", "highest = 0.05,", "earlier tests do not lower the level"),
        ("warnings.append(reuse_warning(earlier))", "pass", "earlier tests are not reported"),
    ),
    *changes_of(
        "core/workbench/proof/findings.py", LEAKAGE, ("warnings += map(str, leaks)", "pass", "the guard never warns")
    ),
    *changes_of(
        "core/workbench/proof/leakage.py",
        LEAKAGE,
        ('_leak("test", data.test.open(),', '_leak("test", (),', "the guard leaves out the test rows"),
        ('return self.split != "train"', 'return self.split == "never"', "no leak breaks the proof"),
        (
            "if not hits or (not long and len(hits) < min(SHORT_ROWS, len(rows))):",
            "if not hits:",
            "one short row by chance is a leak",
        ),
        (
            "for row in data.train)]",
            "for row in ())]",
            "what train says too is a leak",
        ),
        ("if match is not None and match[2] in inputs:", "if False:", "a demo with several inputs hides a row"),
    ),
    *changes_of(
        "core/workbench/task/tokens.py",
        COPIES_TESTS,
        (
            'unicodedata.normalize("NFKC", text).casefold()',
            'unicodedata.normalize("NFKC", text)',
            "capitals make another row",
        ),
        (r'r"\w+|[-+*/=<>^%$€£]"', r'r"\w+"', "3 + 4 is 3 - 4"),
        ('_UNSEEN.sub("", unicodedata', "str(unicodedata", "what nobody sees makes another row"),
    ),
    *changes_of(
        "core/workbench/task/copies.py",
        COPIES_TESTS,
        (
            "return [w for w in a if w.isdigit()] == [w for w in b if w.isdigit()] and _within",
            "return _within",
            "rows of one template are copies",
        ),
        ("self._same_label(row, other) and _are_copies(", "_are_copies(", "rows with other labels are near copies"),
        ("for _ in range(edits + 1):", "for _ in range(9 * edits + 9):", "half a row is a copy"),
        ("if len(here) == len(there) else", "if False else", "a long text beside a short one hides it"),
        ("if len({groups[place] for place in places}) >= ALIKE and len(said) == 1:", "if False:", "numbers tell"),
        ("return found if found and telling else []", "return []", "a number beside the text makes another row"),
    ),
    *changes_of(
        "core/workbench/task/clusters.py",
        "tests/task/test_clusters.py",
        ("if named is not None:", "if False:", "`cluster` does nothing"),
        ("groups or [None] * len(rows))", "[None] * len(rows))", "turns of a conversation count each"),
        ("_join(roots, later)", "roots", "a turn that continues another one counts by itself"),
        ("= group_copies(rows, inputs, target),", "= [*range(len(rows))],", "copies in the test count each"),
    ),
    *changes_of(
        "core/workbench/task/known_rows.py",
        "tests/task/test_known_rows.py",
        ("return [max(apart, key=lambda name: lengths[name])]", "return [*inputs]", "a new input makes another row"),
        ("or len(theirs[key]) >= needed", "", "a row is known by its inputs of today alone"),
    ),
    *changes_of(
        "core/workbench/task/repeats.py",
        COPIES_TESTS,
        (
            "return any(found <= self.fair[number]",
            "return False and any(found <= self.fair[number]",
            "what train says too is a repeat",
        ),
        ("if i >= length and (gone", "if False and (gone", "words all over a long text repeat a row"),
        ("COVERED = 0.85", "COVERED = 1.85", "no long row is ever repeated"),
        (
            "any(word == first and list(text[i : i + n]) == list(words)",
            "any(word == first and bool(n)",
            "one word of a short row repeats it",
        ),
    ),
]
