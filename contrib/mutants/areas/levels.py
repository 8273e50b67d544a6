"""Service levels: the pick by targets, what the sealed rows show of them, and what `serve` makes of load."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

TARGETS = "tests/study/test_targets.py"
SHOWN = "tests/proof/test_service_levels.py"
RUN = "tests/run/test_targets.py"
LOAD = "tests/plugins/serve/test_under_load.py"
LEVELS: list[Mutant] = [
    *changes_of(
        "core/workbench/study/targets.py",
        TARGETS,
        ("aims.shortfalls(e, room=1.0)", "aims.shortfalls(e)", "a standard error of room"),
        ("or result.failure == FailureKind.TIMEOUT", "", "what timed out is slow"),
        (
            "        if self.margin is not None:\n            lost",
            "        if False:\n            lost",
            "the margin binds",
        ),
        ("return (evaluation.objectives[cost], -evaluation.score)", "return (-evaluation.score, 0)", "cheapest"),
        ("sum(aims.shortfalls(e).values()), *cheapness(e)", "*cheapness(e),", "of none that meets, the nearest"),
        ("and not aims.shortfalls(e)\n", "\n", "under load targets hold, too"),
        (
            'e.objectives["latency"] < chosen.objectives["latency"] and',
            "",
            "only faster ones are for times of load",
        ),
    ),
    *changes_of(
        "core/workbench/proof/service_levels.py",
        SHOWN,
        (
            'return "met" if low >= self.limit else',
            'return "met" if self.value >= self.limit else',
            "the whole interval",
        ),
        ('return "met" if high <= self.limit else', 'return "met" if self.value <= self.limit else', "of costs, too"),
        ("not self.needs_margin or self.loss.loss_bounded", "True", "a loss is ruled out"),
        ("max(ceilings[name].most, *means)", "max(means)", "no row is dearer than those seen"),
        ("math.inf if is_slow(r, math.inf) else r.seconds", "r.seconds", "rows without an answer in time"),
        ("ranked[high - 1] if high <= n else math.inf", "ranked[min(high, n) - 1]", "few rows bound nothing"),
        ("sorted(max(of) for of in", "sorted(min(of) for of in", "a cluster is as slow as its slowest row"),
    ),
    *changes_of(
        "core/workbench/run/session.py",
        RUN,
        ("[baseline, winner, self._best()]", "[baseline, winner, baseline]", "the best is tested"),
    ),
    *changes_of(
        "core/workbench/run/result_files.py",
        RUN,
        ("if changed and not taken and (", "if False and (", "the pick is offered"),
    ),
    *changes_of(
        "plugins/workbench_serve/under_load.py",
        LOAD,
        ("max(waited, waiting * mean / self.slots)", "waited", "those behind count"),
        ("max(waited, waiting * mean / self.slots)", "waiting * mean / self.slots", "what was waited counts"),
        ("if len(recent) < FEW:", "if True:", "times of now"),
        ("figures.latency * slower, figures.p95_latency * slower", "figures.latency, figures.p95_latency", "slowdown"),
        ("if at >= since]", "]", "old times are forgotten"),
    ),
]
