"""What `workbench estimate` and the reserve of a run say of its costs holds when it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, better_with_demos, plant

from workbench.errors import SpecError
from workbench.lm import LMPool, Request, Response, estimate_tokens
from workbench.proof import paired_proof
from workbench.run import Options, estimate, format_usd, optimize, prepare
from workbench.spec import LMSpec

CHEAP, DEAR = (
    {"model": f"openai/{name}", "price": {"input": x, "output": 4 * x}} for name, x in (("a", 100), ("b", 1000))
)


class Priced(PlantedLM):
    """Answers as long as the file allows, and bills what the file says."""

    def __init__(self, spec: LMSpec):
        super().__init__(lambda request: 0.9)
        self.spec, self.identity = spec, spec.model

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        price = self.spec.price
        assert price is not None
        return 1e-6 * (prompt_tokens * price.input + completion_tokens * price.output)

    async def complete(self, request: Request) -> Response:
        text = (await super().complete(request)).text
        tokens = estimate_tokens(request.messages)
        return Response(text, "stop", tokens, request.max_tokens, self.price(tokens, request.max_tokens))


class PricedPool(LMPool):
    def get(self, spec: Any) -> Any:
        return self.made.setdefault(spec.model, Priced(spec))

    made: dict[str, Priced]


SPACES: list[dict[str, Any]] = [
    {"lm": [CHEAP, DEAR]},
    {"nodes.sort.demos": {"demos": 8, "nearest": False}},
    {"nodes.sort.instructions": ["Short.", "Long. " * 200]},
    {"nodes.sort.decoding.max_tokens": {"int": [50, 400]}},
    {"lm": [CHEAP, DEAR], "nodes.sort.demos": {"demos": 4}, "nodes.sort.instructions": ["Short.", "Long. " * 90]},
]


@pytest.mark.parametrize("space", SPACES)
def test_no_search_costs_more_than_its_estimate(space: dict[str, Any], tmp_path: Path) -> None:
    """With the file's own model and prompt alone, all of these would."""
    nodes = {"sort": {"predict": "text -> label", "instructions": "Plain.", "decoding": {"max_tokens": 50}}}
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, nodes=nodes)
    file = tmp_path / "workflow.yaml"
    spec = json.loads(file.read_text())
    file.write_text(json.dumps({**spec, "lm": CHEAP, "search": space, "optimize": [{"random": {"trials": 8}}]}))
    _, _, task, optimizers = prepare(file)
    found = estimate(task, optimizers)
    pool = PricedPool()
    pool.made = {}
    report = optimize(file, database=tmp_path / "two.db", pool=pool, options=Options(out=str(tmp_path / "o.yaml")))
    plain = 1e-4 * found["input_tokens"] + 4e-4 * 50
    total = found["total"]
    assert report.spent["usd"] <= total["max_usd"]
    assert total["min_input_tokens"] <= report.spent["prompt_tokens"] <= total["max_input_tokens"]
    assert report.spent["usd"] > plain * report.spent["calls"], "the space costs more than the file as written"
    assert "at most $" not in " ".join(found["lines"]), "what a node adds to a prompt is not known beforehand"


@pytest.mark.parametrize(("optimizer", "more"), [("random", {}), ("rewrite", {"roles": {"proposer": CHEAP}})])
def test_a_search_that_may_write_has_no_bound_of_tokens(optimizer: str, more: dict[str, Any], tmp_path: Path) -> None:
    """In prompts of candidates; those of the baseline are known."""
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    file = tmp_path / "workflow.yaml"
    spec = {**json.loads(file.read_text()), "search": {"lm": [CHEAP, DEAR]}, "optimize": [optimizer], **more}
    file.write_text(json.dumps(spec))
    _, _, task, optimizers = prepare(file)
    found = estimate(task, optimizers)
    assert (found["proof"]["max_input_tokens"] is None) == bool(more)
    assert found["baseline"]["max_input_tokens"] > 0


def test_no_line_of_an_estimate_names_more_calls_than_the_budget_has(tmp_path: Path) -> None:
    nodes = {"sort": {"agent": "text -> label", "max_steps": 8}}
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=60, rows=(20, 20, 40), nodes=nodes)
    _, _, task, optimizers = prepare(tmp_path / "workflow.yaml", [("budget.calls", 300)])
    found = estimate(task, optimizers)
    assert task.workflow.max_calls * 100 > 300, "the worst case does not fit"
    for part in ("baseline", "proof", "total"):
        assert found[part]["calls"] <= 300, part
    assert found["max_calls"] is None or found["max_calls"] <= 300
    (told,) = (line for line in found["lines"] if line.startswith("In all"))
    assert "included: 300 calls" in told


# The reserve


@pytest.mark.parametrize(
    ("calls", "rows"), [(200, 60), (205, 62), (230, 75), (250, 80), (300, 80), (320, 80), (400, 80)]
)
def test_search_and_proof_share_what_the_baseline_leaves(calls: int, rows: int, tmp_path: Path) -> None:
    """40 val and 80 test rows: the whole proof takes 160 calls, more than half of most of these budgets."""
    report, _ = plant(tmp_path, better_with_demos, {"random": {"trials": 40}}, calls=calls, rows=(40, 40, 80))
    _, _, task, optimizers = prepare(tmp_path / "workflow.yaml")
    assert estimate(task, optimizers)["proof"]["calls"] == 160
    assert report.changes and report.gain_shown, "a smaller test pays for the search"
    assert report.test_rows == rows and report.spent["calls"] <= calls


@pytest.mark.parametrize("calls", [200, 205, 230, 250, 300, 320, 400])
def test_where_costs_decide_the_search_leaves_the_calls_that_estimate_subtracts(calls: int, tmp_path: Path) -> None:
    costs = {"objectives": ["score", "tokens"]}
    report, _ = plant(tmp_path, better_with_demos, {"random": {"trials": 40}}, calls=calls, rows=(40, 40, 80), **costs)
    _, _, task, optimizers = prepare(tmp_path / "workflow.yaml")
    assert estimate(task, optimizers)["proof"]["calls"] == 160
    assert report.test_rows in (0, 80) and (report.test_rows == 80 or not report.changes), "no paid proof is cut"
    assert calls < 250 or report.test_rows == 80 or not report.changes
    assert report.spent["calls"] - 2 * report.test_rows <= calls - 160


def test_a_budget_that_cannot_hold_the_proof_still_leaves_half_for_the_search(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 40}}, calls=190, rows=(40, 40, 80))
    assert report.candidates > 1 and report.spent["calls"] <= 190


# No rows, no proof


def test_a_file_whose_test_rows_are_all_in_other_splits_is_refused(tmp_path: Path) -> None:
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    lm = PlantedLM(lambda r: 0.3)
    sets = [("data.test", "val.jsonl")]
    with pytest.raises(SpecError, match="no row to prove a gain on") as caught:
        optimize(tmp_path / "workflow.yaml", database=tmp_path / "n.db", pool=lm, options=Options(sets))
    assert "--allow-unproved" in (caught.value.hint or "") and lm.requests == 0 and not (tmp_path / "n.db").exists()
    options = Options(sets, out=str(tmp_path / "o.yaml"), allow_unproved=True)
    report = optimize(tmp_path / "workflow.yaml", database=tmp_path / "n.db", pool=lm, options=options)
    assert report.status == "finished" and not report.proved


def test_a_file_with_too_few_test_rows_to_show_any_gain_is_refused(tmp_path: Path) -> None:
    """Five pairs that all turn right have p = 0.0625, six 0.031."""
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, rows=(8, 8, 5))
    lm = PlantedLM(lambda r: 0.3)
    with pytest.raises(SpecError, match="With 5 test rows, the test can show no gain") as caught:
        optimize(tmp_path / "workflow.yaml", database=tmp_path / "n.db", pool=lm, options=Options())
    assert (caught.value.hint or "").startswith("It takes 6 at least.") and lm.requests == 0
    assert not (tmp_path / "n.db").exists() and paired_proof([0.0] * 5, [1.0] * 5).shown is False
    assert paired_proof([0.0] * 6, [1.0] * 6).shown


def test_a_small_amount_is_no_zero() -> None:
    assert [format_usd(one) for one in (0.0, 1e-5, 0.05, 2.5)] == ["$0", "$1e-05", "$0.0500", "$2.50"]
