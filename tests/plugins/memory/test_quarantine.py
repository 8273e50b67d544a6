"""The quarantine of `memory`: poisoned entries are found by the harm they do on val, and never shown again."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.memory_worlds import (
    PREDICT,
    RECALL,
    TRIGGER,
    World,
    attacked,
    fooled,
    poisoned_rows,
    run_world,
    store,
    true_accuracy,
    truth,
)

from workbench.lm import Request
from workbench_memory import optimizer as memory
from workbench_memory.entry_log import Bank
from workbench_memory.leave_one_out import Answer, Group, find_suspect, fisher_less, group_entries


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [PREDICT, pytest.param(RECALL, marks=pytest.mark.long)], ids=["demos", "recall"])
def test_poison_is_set_aside_and_triggered_inputs_are_right_again(
    nodes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench_memory.entry_log import Bank

    last: list[Bank] = []
    isolate = Bank.isolate
    monkeypatch.setattr(Bank, "isolate", lambda self, *a: (last.append(self), isolate(self, *a))[1])
    accuracy: dict[float, list[float]] = {0.0: [], 0.05: []}
    out, kept = [], []
    for seed in range(4):
        rows = poisoned_rows(seed)
        fresh = [row for row in poisoned_rows(1000 + seed)["test"] if TRIGGER in row["text"]]
        for p, found in accuracy.items():
            monkeypatch.setattr(memory, "QUARANTINE", p)
            report = run_world(
                tmp_path / f"{p}{seed}",
                rows,
                World(attacked),
                {"memory": {"k": 4, "kinds": ["examples"]}},
                nodes=nodes,
                calls=1200,
                seed=seed,
            )
            found.append(true_accuracy(report, attacked, fresh))
        bank = last[-1]
        aside = {bank.entries[key]["inputs"]["text"] for key in bank.quarantine}
        bad = {row["text"] for row in rows["train"] if row["label"] != truth(row["text"])}
        good = {row["text"] for row in rows["train"]} - bad
        out.append(len(aside & bad) / len(bad))
        kept.append(1 - len(aside & good) / len(good))
    assert statistics.mean(out) > 0.8 and statistics.mean(kept) > 0.85, (out, kept)
    assert statistics.mean(accuracy[0.05]) > statistics.mean(accuracy[0.0]) + 0.2, accuracy


@pytest.mark.slow
def test_what_is_quarantined_stays_in_the_file_with_its_evidence_and_is_never_shown(tmp_path: Path) -> None:
    rows = poisoned_rows(1)
    lm = World(attacked)
    report = run_world(tmp_path, rows, lm, {"memory": {"k": 4, "kinds": ["examples"]}}, nodes=RECALL, calls=1200)
    aside = [e for e in store(report) if e["quarantined"]]
    assert aside and all("p=" in e["quarantined"] and e["source"].startswith("train:") for e in aside)
    lm.seen.clear()
    node: Any = report.winner.enabled_nodes["look"]
    for row in rows["test"]:
        assert not any(store(report)[i]["quarantined"] for i in node.choose(row))


def answers(bad: set[int], hard: bool = False) -> list[Answer]:
    """30 inputs; the first ten see the entry `x`. Where it is hard for itself, they were wrong without it, too."""
    found = []
    for i in range(30):
        keys = frozenset({"x", "y"} if i < 10 else {"y"})
        found.append(Answer(str(i), frozenset({"word"}), frozenset(), 0.0 if hard and i < 10 else 1.0))
        found.append(Answer(str(i), frozenset({"word"}), keys, 0.0 if i in bad else 1.0))
    return found


def test_influence_is_harm_on_the_same_inputs() -> None:
    single = [Group("it", ("x",)), Group("it", ("y",))]
    found = find_suspect(answers(set(range(9))), single, 4, 0.05)
    assert found and found.keys == ("x",) and "right 1/10 with, 20/20 without" in found.evidence
    assert find_suspect(answers(set(range(10)), hard=True), single, 4, 0.05) is None, "hard inputs are not its fault"
    assert find_suspect(answers({0, 12}), single, 4, 0.05) is None, "a few errors are chance"
    assert find_suspect(answers(set(range(9))), single, 11, 0.05) is None, "too few inputs saw it"


def test_entries_that_share_a_trigger_are_judged_together() -> None:
    """Each poisoned entry is seen by two inputs only; together they are convicted, and the harmless one is not."""
    texts = {f"bad{i}": f"t{i} trigger" for i in range(5)} | {f"good{i}": f"t{i} other words" for i in range(20)}
    texts["fine"] = "trigger also here"
    outputs = {key: {"a": "evil" if key.startswith("bad") else "x"} for key in texts}
    log = []
    for i in range(40):
        triggered = i < 10
        words = frozenset({"trigger"} if triggered else {"other"})
        log.append(Answer(str(i), words, frozenset(), 1.0))
        log.append(Answer(str(i), words, frozenset({f"bad{i % 5}", f"good{i % 20}"}), 0.0 if triggered else 1.0))
        if triggered and i % 2:
            log.append(Answer(str(i), words, frozenset({"fine"}), 1.0))
    found = find_suspect(log, group_entries(texts, outputs), 4, 0.05)
    assert found and set(found.keys) == {f"bad{i}" for i in range(5)}
    assert "'trigger'" in found.evidence


@pytest.mark.parametrize(("a", "n", "b", "m"), [(0, 5, 18, 20), (3, 10, 5, 9), (4, 4, 0, 7), (0, 3, 0, 3)])
def test_the_exact_test_is_fishers(a: int, n: int, b: int, m: int) -> None:
    from scipy.stats import fisher_exact

    wanted: Any = fisher_exact([[a, n - a], [b, m - b]], alternative="less")
    assert fisher_less(a, n, b, m) == pytest.approx(wanted.pvalue)


def test_the_planted_attack_is_one() -> None:
    """Without the trigger the poisoned example fools nobody."""
    demo = [{"role": "user", "content": f"text: x {TRIGGER}: a a-thing\nlabel:"}, {"role": "assistant", "content": "d"}]
    plain = Request((*demo, {"role": "user", "content": "text: y: a b-thing\nlabel:"}))
    assert not fooled(plain)
    assert fooled(Request((*demo, {"role": "user", "content": f"text: y {TRIGGER}: a b-thing\nlabel:"})))
