"""Reads of stored rows for several pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workbench.run import row_inputs
from workbench.store import Evaluations, Store, kind_of
from workbench_view.server.site import Site


def mean_scores(store: Store, run_id: int, candidate: str | None, split: str) -> dict[str, float | None]:
    """Return the mean score over the repeats of each row; None for one that was never answered."""
    found: dict[str, list[float]] = {}
    for one in Evaluations(store, run_id).list_scores(str(candidate), split):
        found.setdefault(one["example"], []).extend([] if one["score"] is None else [one["score"]])
    return {name: sum(scores) / len(scores) if scores else None for name, scores in found.items()}


def read_inputs(site: Site, store: Store, row: Any) -> dict[str, dict[str, Any]]:
    """Return the inputs of each row of a run that does not store them: from its data file, if it is unchanged."""
    return {} if kind_of(row) == "eval" else site.remember(("inputs", row["run"]), lambda: row_inputs(store, row))


def shorten(fields: Mapping[str, Any]) -> str:
    """Return some fields in a line."""
    said = [v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, default=str) for v in fields.values()]
    text = " · ".join(said)
    return text if len(text) <= 160 else text[:159] + "…"
