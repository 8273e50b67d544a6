"""Search: races, picks, the study, the space."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of, nodes_of

RACING = "tests/study/test_racing.py"
STUDY_TESTS = "tests/study/test_study.py"
SPACE = "core/workbench/task/search_space.py"
DRAWN = "tests/task/test_drawn_values.py"
SPACE_TESTS = nodes_of(
    "tests/task/test_search_space.py",
    "test_random_proposals_lie_in_the_space",
    "test_a_log_scale_reaches_all_magnitudes_alike",
    "test_conditions_hold_in_every_order_of_the_file",
    "test_rings_of_conditions_are_refused",
    "test_addresses_and_bounds_are_checked_against_the_nodes",
    "test_demos_are_rows_of_train_and_their_labels_take_turns",
    "test_labels_may_stand_elsewhere_and_rows_without_one_are_no_demos",
)
SEARCH: list[Mutant] = [
    *changes_of(
        "core/workbench/study/racing.py",
        RACING,
        ("math.fsum(reference) - 1e-9", "math.fsum(reference) + 1e-9", "a race stops who can still draw level"),
        ("if len(scores) < least:", "if False:", "a race stops after one row"),
        ("if not any(differences) or sum(differences) > 0:", "if not any(differences):", "a race stops who is ahead"),
        ('alternative="less"', 'alternative="two-sided"', "a race looks at both sides"),
        ('zero_method="zsplit"', 'zero_method="wilcox"', "ties do not count in a race"),
        (
            "return _p_value(tuple(sorted(differences))) < p",
            "return _p_value(tuple(sorted(differences))) > p",
            "a race stops who is not surely worse",
        ),
    ),
    *changes_of(
        "core/workbench/study/study.py",
        STUDY_TESTS,
        ("if evaluation.complete:", "if True:", "a part of val can win"),
        ("if on_val and replica == 0:", "if on_val:", "a replica can win"),
        ("if self._spent(what) + needed > limit:", "if False:", "an inner optimizer passes its share"),
        ("limits=limits if share < 1 else self.limits,", "limits=self.limits,", "a share of the budget is all of it"),
        (
            "self.progress if val is None else",
            "self.progress if True else",
            "an evaluation on a part of val can win",
        ),
        ("rng=random.Random(self.rng.randrange(2**63)),", "rng=random.Random(),", "chance does not come from the seed"),
    ),
    *changes_of(
        "core/workbench/study/standing.py",
        STUDY_TESTS,
        ("max(self.eligible,", "max(reversed(self.eligible),", "a tie takes the later candidate"),
    ),
    *changes_of(
        "core/workbench/study/standing.py",
        "tests/study/test_pareto.py",
        ('if how == "knee" and len(front) > 2:', 'if how == "knee":', "of two points the knee is the cheaper"),
        (
            "good = [e for e in front if e.score >= evaluations[0].score]",
            "good = front",
            "the cheapest may be worse than the baseline",
        ),
        ('return 1.0 if objective == "score" else -1.0', "return 1.0", "more cost is better"),
        (
            "(objective_sign(cost) * e.objectives[cost], e.score)",
            "(e.score, objective_sign(cost) * e.objectives[cost])",
            "cheapest picks the best score",
        ),
    ),
    *changes_of(
        SPACE,
        SPACE_TESTS,
        (
            "!= wanted for a, wanted in domain.when.items()):",
            "== wanted for a, wanted in domain.when.items()):",
            "conditions hold the other way round",
        ),
        ("if len(groups) > len(rows) / 2:", "if True:", "labels of demos do not take turns"),
        (
            "source = targets.get(name, name) if name in node.outputs else name",
            "source = name",
            "labels that stand elsewhere are not found",
        ),
        (
            "all(w in done or w not in self.domains for w in needed[a])",
            "True",
            "conditions are looked at before what they depend on",
        ),
    ),
    *changes_of(
        SPACE,
        DRAWN,
        ("log=domain.log, step=domain.step)", "log=False, step=domain.step)", "a log scale is none"),
        (
            "return float(first + (last - first) // width * width)",
            "return float(last + 0 * first * width)",
            "the last value is not a step of the domain",
        ),
        ("and retrieve not in self.domains", "", "retrieval is set twice"),
        (
            "reset = {retrieve: 0} if nearest and workflow.get(retrieve, 0) else {}",
            "reset = {}",
            "drawn demos are retrieved from",
        ),
        (
            "return {address: rows, retrieve: count} if rows else {}",
            "return {address: rows[:count]} if rows else {}",
            "the nearest rows are the first rows",
        ),
    ),
]
