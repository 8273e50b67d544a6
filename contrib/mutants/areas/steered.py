"""Steering: orders to a run that goes on."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

FOLDER = "core/workbench/steering/"
TESTS = ("tests/steering/test_steering.py",)
BRANCHES = ("tests/steering/test_branch.py",)

STEERED: list[Mutant] = [
    *changes_of(
        f"{FOLDER}steered.py",
        TESTS,
        ('self.orders.take(order["id"], evaluated)', "pass", "orders are never taken up"),
        ("self.ledger.started += time.monotonic() - self._paused_at", "pass", "a pause takes minutes of the budget"),
        ("self.running.clear()", "pass", "a pause holds nothing back"),
        ("_check_writable(parent, address)", "pass", "models are changed by hand"),
        ("self.ledger.stopping = SearchStopped()", "pass", "a search cannot be stopped"),
        ("            self.ledger.stopping = None\n", "            pass\n", "a stopped search is not proved"),
        ("and new > old[what]", "", "the budget is lowered"),
    ),
    *changes_of(
        f"{FOLDER}orders.py",
        TESTS,
        ('if kind == "drop" and made', "if False and made", "the baseline is dropped"),
        ('if row["status"] != "running" or not', "if False and not", "runs that ended take orders"),
    ),
    *changes_of(
        "core/workbench/study/standing.py",
        TESTS,
        ("return [self.pinned] if self.pinned in left else left", "return left", "a pin holds nothing"),
        ("if one not in self.dropped]", "]", "what is dropped wins"),
    ),
    *changes_of(
        "core/workbench/run/session.py",
        TESTS,
        (
            "            self.steering.take(evaluation.workflow.hash)\n        self.scored",
            "            pass\n        self.scored",
            "orders wait for the end of the search",
        ),
    ),
    *changes_of(
        "core/workbench/run/history.py",
        BRANCHES,
        (
            "_write_text(row, found, baseline)\n        source",
            "_write_text(row, baseline, baseline)\n        source",
            "a branch begins at the file",
        ),
        ('"run": name}, outcome="done")', '"run": name})', "a run takes up the order that branched it"),
        ('"sets": [list(one) for one in sets]', '"sets": []', "settings of a branch are dropped"),
    ),
    *changes_of(
        "core/workbench/run/start.py",
        BRANCHES,
        (
            'begins = row["status"] == "ready"',
            "begins = False",
            "a branch begins on a budget that cannot pay for its proof",
        ),
        ("if begins or options.sets:", "if options.sets:", "what a branch refers to may change after it began"),
    ),
]
