"""Attribution: replays, spectra, and what guided optimizers make of them."""

from __future__ import annotations

from areas.mutant import Mutant, changes_of

ROOM = "core/workbench/attribution/"
REPLAY_TESTS = "tests/attribution/test_replay.py"
STORED_TESTS = "tests/plugins/attribute/test_replays.py"

ATTRIBUTION: list[Mutant] = [
    *changes_of(
        f"{ROOM}replay.py",
        REPLAY_TESTS,
        ("step = steps[low]", "step = steps[low - 1]", "the step before is named"),
        ("passes(steps[:middle])", "passes(steps[middle:])", "the end of a run is repaired, and not its beginning"),
        ("alone = await replays.passes([step])", "alone = True", "a step alone is taken to repair without a re-run"),
        ("ranked = [*named, *(step for", "ranked = [*reversed(named), *(step for", "the order of suspects is reversed"),
        ("sure = earlier >= set(range(step.index))", "sure = True", "a step that was met first is taken for earliest"),
    ),
    *changes_of(
        f"{ROOM}repairs.py",
        STORED_TESTS,
        (" and workflow.graph.out_degree(name)", "", "the answer itself is put in as a label"),
        ("(s.response is None) == (step.response is None)", "False", "what a sibling said is not put in"),
    ),
    *changes_of(
        "core/workbench/runtime/program.py",
        "tests/attribution/test_effects.py",
        ("        where += self.trace.repaired", "        where += []", "tools give what they gave before the repair"),
    ),
    *changes_of(
        f"{ROOM}steps.py",
        REPLAY_TESTS,
        ("found.sort(key=lambda pair: pair[0])", "found.sort(key=lambda pair: pair[1].node)", "steps are in no order"),
    ),
    *changes_of(
        f"{ROOM}spectrum.py",
        "tests/attribution/test_spectrum.py",
        ("c.failed_with / math.sqrt(below)", "c.failed_with / below", "Ochiai without its root"),
        ("in_failed / (in_failed + in_passed)", "in_failed - in_passed", "Tarantula is a difference"),
        ("c.failed_with**2 / below", "c.failed_with / below", "DStar without its star"),
        (" and (counts.failed_without or counts.passed_without)", "", "what all runs have counts"),
        ("place.get(s.node, len(place)), s.node", "s.node", "of equals the first by name comes first"),
    ),
    *changes_of(
        "core/workbench/runtime/draw.py",
        "tests/attribution/test_steps.py",
        ("            self.repairs,\n", "", "steps of inner nodes are not repaired"),
    ),
    *changes_of(
        "core/workbench/runtime/repair.py",
        REPLAY_TESTS,
        (
            'changed = {**settings, "temperature": self.temperature}',
            "changed = dict(settings)",
            "nothing is drawn anew at 0",
        ),
    ),
    *changes_of(
        "core/workbench/store/earlier_calls.py",
        STORED_TESTS,
        (
            "and (? is null or run_id = ?) order by",
            "and (? is null or run_id != ?) order by",
            "another run is repeated",
        ),
    ),
    *changes_of(
        "core/workbench/ledger/ledger.py",
        "tests/attribution/test_ledger_source.py",
        (" or self._earlier.find_effect(key)", "", "a tool before the repaired step is called again"),
    ),
    *changes_of(
        "plugins/workbench_attribute/replays.py",
        STORED_TESTS,
        (', source=row["id"])', ")", "what comes before a repair is paid again"),
        ("if not info.cached:", "if True:", "what the journal answers counts as paid"),
        ('task.data_hash != row["data_hash"]', "False", "other data are repeated"),
    ),
    *changes_of(
        "core/workbench/attribution/replay_report.py",
        STORED_TESTS,
        (
            "for key, cost in calls.items() if key not in seen]",
            "for cost in calls.values()]",
            "a shared call counts twice",
        ),
    ),
    *changes_of(
        "core/workbench/attribution/diagnoses.py",
        STORED_TESTS,
        ("return sum(known) / len(known) if known else None", "return 1.0", "the repair rate is not computed"),
    ),
    *changes_of(
        "core/workbench/evaluation/rows.py",
        "tests/plugins/attribute/test_repeated.py",
        ('or run not in report["examined"]', "", "a diagnosis of another run is shown"),
        ('(one["row"], one["candidate"], one["replica"]) == key', "True", "each row has the diagnoses of all"),
    ),
    *changes_of(
        "core/workbench/store/content.py",
        "tests/plugins/attribute/test_repeated.py",
        (
            "            _check(finding, _FINDING, place, [*_FINDING])",
            "            pass",
            "a damaged diagnosis is shown",
        ),
    ),
    *changes_of(
        "plugins/workbench_attribute/attribute.py",
        "tests/plugins/attribute/test_command.py",
        ("[*_examined(run), *", "[*", "a judged run forgets the first run that it is of"),
    ),
    *changes_of(
        "core/workbench/study/blame.py",
        "tests/study/test_blame.py",
        ("counts[found.step.top] += 1", "counts[next(iter(workflow.nodes))] += 1", "the first node is blamed"),
        (
            "(1 - ANY) * self.decisive.get(node, 0.0) / total + ANY / len(nodes)",
            "1 / len(nodes)",
            "blame has no weight",
        ),
        ("rng.random() >= ANY", "rng.random() >= 1", "no edit is left out"),
    ),
]
