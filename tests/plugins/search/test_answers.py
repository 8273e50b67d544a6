"""Metrics of open-ended answers, by hand and against an independent implementation."""

from __future__ import annotations

import random
from typing import Any

import pytest

from workbench.task import Example
from workbench.workflow import Span, Trace
from workbench_search.findings import (
    FindingsF1,
    ListFormat,
    count_matches,
    list_items,
    measure_item_diversity,
    score_list,
)
from workbench_search.queries import QueryDiversity, measure_diversity

LONG = [
    "which painters lived in oslo during the nineteenth century",
    "how much rain falls every year on western norwegian coasts",
    "who built stave churches and when were most destroyed",
]


def test_findings_count_once_and_only_above_the_threshold() -> None:
    key = {"findings": ["oslo is the capital", "bergen is rainy", "rome is old"]}
    metric = FindingsF1("findings")

    def f1(text: Any) -> float:
        return metric(Example("r", key), {"findings": text}).value

    assert f1("- Oslo is the capital\n- Bergen is rainy\n- Rome is old") == 1.0
    assert f1("- Oslo is the capital") == pytest.approx(2 * 1 * (1 / 3) / (1 + 1 / 3))
    assert f1("- zebras run\n- Oslo is the capital") == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert f1("") == f1("- zebras run") == 0.0
    assert f1(["oslo is the capital", "oslo is the capital"]) == pytest.approx(2 * 1 / 5), "said twice, found once"
    one = "oslo is the capital, bergen is rainy, rome is old"
    assert FindingsF1("findings", threshold=0.1)(Example("r", key), {"findings": one}).value == 0.5, "stands for one"
    with pytest.raises(ValueError, match="lists no findings"):
        metric(Example("r", {"findings": []}), {"findings": "x"})


def test_matches_are_those_of_an_assignment_among_the_best_pairs(subtests: pytest.Subtests) -> None:
    for seed in range(20):
        with subtests.test(seed=seed):
            import numpy as np
            from scipy.optimize import linear_sum_assignment

            draw = random.Random(seed)
            alike = np.array([[draw.random() for _ in range(draw.randint(5, 5))] for _ in range(6)])
            kept = np.where((alike == alike.max(axis=0)) & (alike >= 0.75), alike, 0.0)
            pairs = zip(*linear_sum_assignment(1 - kept), strict=True)
            assert count_matches(alike.tolist(), 0.75) == sum(kept[i, j] >= 0.75 for i, j in pairs)


def test_the_diversity_of_items_is_that_of_tfidf_vectors_of_another_library() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    import numpy as np

    draw = random.Random(3)
    words = [f"word{i}" for i in range(12)]
    for _ in range(20):
        items = [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(draw.randint(2, 6))]
        vectors = text.TfidfVectorizer().fit_transform(items)
        upper = (vectors @ vectors.T).toarray()[np.triu_indices(len(items), k=1)]
        s = 0.5 * upper.max() + 0.3 * 2 * (upper > 0.6).mean() + 0.2 * upper.mean()
        assert measure_item_diversity(items) == pytest.approx(max(0.0, 1 - s**1.5), abs=1e-9)


def test_the_form_of_a_list_by_hand() -> None:
    ten = "\n".join(f"- {a}{a} {b}{b}" for a, b in zip("abcdefghij", "klmnopqrst", strict=True))
    assert score_list(ten) == pytest.approx(1.0)
    assert score_list("- only one") == pytest.approx((0.5 + 0.03 + 0.5) / 1.3)
    assert score_list("prose\n- one") == pytest.approx((0.25 + 0.03 + 0.5) / 1.3)
    assert score_list("- a b\n- a b") == 0.0, "half of it repeats"
    assert score_list("prose alone") == 0.0
    assert score_list("") == 0.0 and ListFormat("a")(Example("r", {}), {"a": "- only one"}).value < 1
    assert list_items("- a\n\n-\nb") == ["a", "b"]


def test_queries_that_repeat_each_other_earn_less() -> None:
    apart = measure_diversity(LONG)
    assert apart == pytest.approx(0.5, abs=0.06), "three queries, almost without a common word"
    assert measure_diversity([LONG[0]] * 3) == pytest.approx(0.5 * 0.2**2)
    assert measure_diversity([LONG[0], LONG[0], LONG[1]]) < apart
    assert measure_diversity(LONG[:1]) == measure_diversity([]) == 0.0
    assert measure_diversity(["oslo rain", "rome sun"]) == pytest.approx(0.5 * 2 / 8), "short queries"
    many = [" ".join(f"w{i}x{j}" for j in range(8)) for i in range(25)]
    found = [measure_diversity(many[:n]) for n in (5, 10, 15, 16, 20, 25)]
    assert found == pytest.approx([0.5, 0.75, 1.0, 0.88, 0.8, 0.8])


def test_queries_are_read_from_the_trace_of_the_agent() -> None:
    calls = [{"name": "search", "arguments": {"query": q}, "result": ""} for q in LONG]
    other = [{"name": "open", "arguments": {"document": "x"}}, {"name": "search", "arguments": None}]
    trace = Trace("r", [Span("n", "Agent", {}, notes={"tools": [*calls, *other]})])
    assert QueryDiversity()(Example("r", {}), {}, trace).value == measure_diversity(LONG)
    assert QueryDiversity(tool="find")(Example("r", {}), {}, trace).value == 0.0
