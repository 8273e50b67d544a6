"""The surrogate of `mcts`: how it ranks structures that were not evaluated."""

from __future__ import annotations

import random

import pytest
from scipy.stats import spearmanr

from workbench_bench import topology
from workbench_mcts.features import Features
from workbench_mcts.surrogate import GaussianProcess, Label


def labels(seed: int, count: int, rows: int = 40) -> list[Label]:
    """Drawn structures of a planted world with the noise of a mean of `rows` answers."""
    rng = random.Random(f"labels:{seed}")
    found = []
    for structure in rng.sample(topology.list_structures(), count):
        p = topology.score_structure(structure, seed)
        found.append(Label(Features(dict(structure), {}), sum(rng.random() < p for _ in range(rows)) / rows, rows))
    return found


@pytest.mark.slow
def test_thirty_labels_rank_all_256_structures() -> None:
    """Rank correlation with the planted table, over several worlds."""
    found = []
    for seed in range(10):
        model = GaussianProcess()
        model.fit(labels(seed, 30))
        means, spreads = model.predict([Features(s, {}) for s in topology.list_structures()])
        assert (spreads >= 0).all()
        found.append(
            spearmanr(means, [topology.score_structure(s, seed) for s in topology.list_structures()]).statistic
        )
    assert sum(found) / len(found) > 0.65 and min(found) > 0.5, found


def test_a_gaussian_process_is_surer_where_it_has_looked() -> None:
    known = labels(1, 40, rows=1000)
    model = GaussianProcess()
    model.fit(known)
    there = model.predict([label.features for label in known])[1].mean()
    seen = {tuple(label.features.labels.values()) for label in known}
    others = [Features(s, {}) for s in topology.list_structures() if tuple(s.values()) not in seen]
    assert there < 0.5 * model.predict(others)[1].mean()


def test_a_gaussian_process_learns_from_numbers_where_there_are_no_labels() -> None:
    model = GaussianProcess()
    model.fit([Label(Features({}, {"nodes": float(n)}), 0.2 + 0.1 * n, 400) for n in (1, 2, 4, 6)])
    means, _ = model.predict([Features({}, {"nodes": 1.0}), Features({}, {"nodes": 5.0})])
    assert means[1] > means[0] + 0.2
