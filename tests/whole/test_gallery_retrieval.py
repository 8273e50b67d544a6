"""Published designs made of `search`, `remember` and `recall`: right as they are, and wrong without their mechanism.

The numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_retrieval import QUERIES, not_listed, workload
from tests.helpers.gallery_tried import GALLERY, tried

SWEEP = "nodes.work.nodes.sweep.nodes"


def rewrites() -> Any:
    """workflows/gallery/rewrites.py, whose databases tell queries apart."""
    spec = importlib.util.spec_from_file_location("rewrites", GALLERY / "rewrites.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_183_without_counterexamples_a_rewrite_stays_that_is_wrong_only_for_nulls(tmp_path: Path) -> None:
    databases, counted, rows = rewrites(), QUERIES["counted"], [workload("counted")]
    wrong, right = not_listed(counted), not_listed(counted, " WHERE {} IS NOT NULL")
    assert "(1, NULL, " in databases.find_difference(counted, wrong)
    assert databases.find_difference(counted, wrong, nulls=0.0) == databases.find_difference(counted, right) == "none"

    def found(change: dict[str, Any]) -> tuple[str, float]:
        prediction = tried("gen_rewrite", tmp_path, rows, change).outcomes[0].prediction
        return prediction["rewrites"][0], databases.score(rows[0][0], prediction)[0]

    assert found({}) == (right, 1.0)
    source = "def check(query, rewrite): return 'none'"
    blind = {"kind": "code", "code": "query, rewrite -> fault", "source": source}
    assert found({f"{SWEEP}.mend.nodes.check": blind}) == (wrong, 0.0)


@pytest.mark.slow
def test_183_a_rule_learned_from_one_query_rewrites_another(tmp_path: Path) -> None:
    rows = [workload("grouped", "absent", "counted"), workload("absent", "counted"), workload("counted")]
    assert tried("gen_rewrite", tmp_path, rows).right == [True] * 3
    untold = {f"{SWEEP}.mend.nodes.write.signature": "schema, query, rules, rewrite -> rewrite, rule"}
    assert tried("gen_rewrite", tmp_path, rows, untold).right == [False] * 3, "what is not told cannot be mended"
    # The rule comes from the last query of the first workload, and behind one with a smaller speed-up.
    assert tried("gen_rewrite", tmp_path, rows, {"nodes.work.rounds": 1}).right == [False, False, True]
    assert tried("gen_rewrite", tmp_path, rows, {f"{SWEEP}.keep.into": "elsewhere"}).right == [False, False, True]
    kept = "[{'rule': rule, 'query': query}] if speedup > 1 else []"
    pair = "[query, rewrite] if speedup >= 2 else []"
    source = f"def judge(query, rewrite, rule, speedup): return {{'result': {pair}, 'learned': {kept}}}"
    assert tried("gen_rewrite", tmp_path, rows, {f"{SWEEP}.judge.source": source}).right == [False, True, True]
