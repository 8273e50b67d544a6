"""Routing: labels, draws, rewards, predictors, the choice of a candidate, and its baselines."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

PLUGIN, TESTS = "plugins/workbench_route/", "tests/plugins/route/"
ROUTES: list[Mutant] = [
    *changes_of(
        f"{PLUGIN}outcomes.py",
        f"{TESTS}test_outcomes.py",
        ("score >= other - tolerance", "score > other - tolerance", "a tie is no match"),
        (
            "itertools.combinations(range(len(drawn)), n)",
            "itertools.product(range(len(drawn)), repeat=n)",
            "a draw with replacement",
        ),
        ("math.fsum(sample.cost for sample in drawn)", "drawn[0].cost", "several answers cost as one"),
        (
            ".shuffle(order)\n    return [replace(row",
            ".random()\n    return [replace(row",
            "the shuffled control is not shuffled",
        ),
    ),
    *changes_of(
        f"{PLUGIN}reward.py",
        f"{TESTS}test_outcomes.py",
        ("(self.confidence(text, answers, i), -i)", "(0.0, -i)", "a reward decides nothing"),
        (
            "known.get((row.id, i), 0.0), -i)",
            "rows[0].samples[model][0].score, -i)",
            "labels are made without the reward",
        ),
    ),
    *changes_of(
        f"{PLUGIN}fitting.py",
        f"{TESTS}test_predictor.py",
        ("if folds[i] != fold]", "if folds[i] != -1]", "predictions of unseen rows have seen them"),
        ("rate * float(v[0][0])", "float(v[0][0])", "trees are written without their learning rate"),
        (
            "[fold_of[group] for group in groups]",
            "[i % FOLDS for i in range(len(rows))]",
            "a group is in several folds",
        ),
        ("if len(rows) <= FEW_ROWS else [[name]", "if False else [[name]", "heads of few rows are fitted one by one"),
        ("[[*wanted]] if len(rows) <= FEW_ROWS", "[[*wanted]] if True", "heads of many rows are fitted together"),
        (
            'else unseen["constant"] for k, f',
            "else unseen[k] for k, f",
            "a model that ranks wrongly is judged as it is",
        ),
    ),
    *changes_of(
        f"{PLUGIN}fitting.py",
        f"{TESTS}test_router.py",
        (
            "recalibrate(joined, every) if len(wanted) > 1 else joined",
            "joined",
            "a model that is too sure is passed over",
        ),
    ),
    *changes_of(
        f"{PLUGIN}predictor.py",
        f"{TESTS}test_predictor.py",
        ("i < self.left[i] < size", "0 <= self.left[i] < size", "a tree may be its own child"),
        ("<= self.threshold[node]", "< self.threshold[node]", "a tree turns right at its threshold"),
        ("return self.calibration.calibrate(self.raw(features))", "return self.raw(features)", "no calibration"),
    ),
    *changes_of(
        f"{PLUGIN}router.py",
        f"{TESTS}test_router.py",
        ("scores[i] >= threshold]", "scores[i] >= 0]", "a match takes whatever is cheapest"),
        (
            "threshold * costs[i] / mean_cost - scores[i], costs[i], i)",
            "threshold * costs[i] / mean_cost - scores[i], i)",
            "of equals the first, however dear",
        ),
    ),
    *changes_of(
        f"{PLUGIN}router.py",
        f"{TESTS}test_node.py",
        ("self.threshold if threshold is None else threshold", "self.threshold", "the file's threshold is not used"),
    ),
    *changes_of(
        f"{PLUGIN}baselines.py",
        f"{TESTS}test_router.py",
        ("mean >= EVIDENCE * error", "mean >= -1", "neighbours need no evidence"),
        ("        cost += sample.cost\n", "        cost = sample.cost\n", "a cascade pays for its last answer alone"),
    ),
    *changes_of(
        f"{PLUGIN}node.py",
        f"{TESTS}test_node.py",
        (
            "return Candidate(self.config.always), self.config.first_sample",
            "return Candidate(self.config.always), 0",
            "each probe draws the same answer",
        ),
        ("if router.candidates != known or", "if False or", "a router of other candidates is taken"),
        (
            "ctx.note(picked=picked)\n        return self._taken(answers[picked])",
            "ctx.note(picked=picked)\n        return self._taken(answers[0])",
            "the first of several answers is taken",
        ),
    ),
    *changes_of(
        f"{PLUGIN}gather.py",
        f"{TESTS}test_optimizer.py",
        ("if not path.is_relative_to(base.resolve()):", "if False:", "outcomes are read from anywhere"),
        (
            'if setting == "threshold" and isinstance(node, Route)',
            'if "." not in owner[6:] and isinstance(node, Route)',
            "nodes inside are not learned",
        ),
        ("else site.around.get(other.name)", "else None", "a route inside a candidate is probed where it never runs"),
        ("if all(text in runs for runs in others)", "if others is not None", "a text of one candidate alone is a row"),
        ("for span in runs) / len(runs)", "for span in runs)", "the cost of several runs is their sum"),
        ("and span.order[:depth] == run.order", "", "what other nodes spend is part of the cost"),
        ("if key in tree}\n        changes", "if key in ()}\n        changes", "a wrapped node loses its needs"),
    ),
]
