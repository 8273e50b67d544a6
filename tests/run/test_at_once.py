"""A run under a ceiling ends the same whether its calls are sent one by one or at once (M1)."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, demos_of, plant

from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import LMPool, Request, Response, estimate_tokens
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.spec import LMSpec

AT_ONCE = (1, 16, 64)


class Slow(PlantedLM):
    """Answers after some turns of the loop, and bills a token for a label, however many it may take."""

    def __init__(self, spec: LMSpec, pool: Pool):
        super().__init__(lambda request: min(pool.skill[spec.model] + 0.1 * len(demos_of(request)), 0.9))
        self.spec, self.identity, self.concurrency = spec, spec.model, pool.at_once
        self.draw = random.Random(pool.seed)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        assert self.spec.price is not None
        return 1e-6 * (prompt_tokens * self.spec.price.input + completion_tokens * self.spec.price.output)

    async def complete(self, request: Request) -> Response:
        for _ in range(self.draw.randrange(1, 30)):
            await asyncio.sleep(0)
        return Response((await super().complete(request)).text, "stop", estimate_tokens(request.messages), 1)


class Pool(LMPool):
    """skill: of the cheap and the dear model, without demos."""

    def __init__(self, at_once: int, skill: tuple[float, float] = (0.4, 0.3), seed: int = 0):
        super().__init__()
        self.at_once, self.seed = at_once, seed
        self.skill: dict[str, float] = dict(zip(("openai/cheap", "openai/dear"), skill, strict=True))
        self.made = dict[str, Slow]()

    def get(self, spec: LMSpec) -> Any:
        if spec.model not in self.made:
            self.made[spec.model] = Slow(spec, self)
        return self.made[spec.model]


def lm_of(model: str, price: int) -> dict[str, Any]:
    return {"model": model, "price": {"input": price, "output": price}}


def write(folder: Path, at_once: int, max_tokens: int = 512, **spec: Any) -> Path:
    """A workflow file of one call, which takes at most far more than it does."""
    plant(folder, lambda r: 0.3, {"random": {"trials": 1}}, calls=200, given={"optimizers": []})
    node = {"predict": "text -> label: Literal['a', 'b', 'c', 'd']", "decoding": {"max_tokens": max_tokens}}
    written = json.loads((folder / "workflow.yaml").read_text())
    written |= {"lm": lm_of("openai/cheap", 1), "nodes": {"sort": node}, "concurrency": at_once, **spec}
    (folder / "workflow.yaml").write_text(json.dumps(written))
    return folder / "workflow.yaml"


def run(folder: Path, at_once: int, skill: tuple[float, float] = (0.4, 0.3), **spec: Any) -> Report:
    options, pool = Options(out=str(folder / "o.yaml"), allow_unproved=True), Pool(at_once, skill)
    return optimize(write(folder, at_once, **spec), database=folder / "r.db", pool=pool, options=options)


@pytest.mark.parametrize("at_once", AT_ONCE)
def test_M1_an_eval_whose_rows_take_a_tenth_of_the_ceiling_is_not_ended_by_it(at_once: int, tmp_path: Path) -> None:
    file = write(tmp_path, at_once, budget={"usd": 0.01})
    found = evaluate(file, options=EvalOptions(split="val"), database=tmp_path / "e.db", pool=Pool(at_once))
    assert found.status == "finished" and found.spent["calls"] == 24 and found.spent["usd"] < 0.001


def test_M1_an_optimizer_gets_as_far_with_calls_at_once_as_one_by_one(tmp_path: Path) -> None:
    reports = [run(tmp_path / str(n), n, budget={"usd": 0.03}, optimize=["bootstrap"]) for n in AT_ONCE]
    one, *more = [(r.candidates, r.test_rows, r.winner.hash, r.spent["calls"]) for r in reports]
    assert one[0] > 2 and one[1] == 40 and more == [one, one]


@pytest.mark.parametrize("at_once", AT_ONCE)
def test_M1_the_reserve_of_the_proof_holds_its_dearest_call(at_once: int, tmp_path: Path) -> None:
    """The search ends at calls of the cheap model; of the dear one each may take half of what is reserved."""
    search = {"lm": [lm_of("openai/cheap", 1)], "nodes.sort.instructions": [f"Wording {n}." for n in range(60)]}
    given = {"lm": lm_of("openai/dear", 10), "search": search, "optimize": [{"random": {"trials": 200}}]}
    report = run(tmp_path, at_once, max_tokens=2048, budget={"usd": 0.065}, **given)
    assert report.status == "budget" and report.test_rows == 40 and report.spent["usd"] <= 0.065


def test_M1_a_proof_that_is_cut_short_tests_whole_pairs_also_at_once(tmp_path: Path) -> None:
    """64 rows at once would take all that is left for the first of their sides."""
    rows = [run(tmp_path / str(n), n, budget={"tokens": 12000}, optimize=["bootstrap"]).test_rows for n in AT_ONCE]
    assert 0 < rows[0] < 40 and rows[1] >= rows[0] - 1 and rows[2] >= rows[0] - 1


@pytest.mark.parametrize("max_tokens", [10, 90])
def test_M1_no_side_is_paid_for_that_has_no_other(max_tokens: int, tmp_path: Path) -> None:
    """A dear winner is refused first; calls of the cheap baseline would still fit, row by row."""
    search = {"lm": [lm_of("openai/dear", 10)]}
    found = []
    for n in AT_ONCE:
        report = run(
            tmp_path / str(n),
            n,
            (0.1, 0.9),
            max_tokens=max_tokens,
            budget={"usd": 0.016},
            search=search,
            optimize=[{"random": {"trials": 1}}],
        )
        found.append((report.test_rows, report.spent["calls"] - 48 - 2 * report.test_rows, report.spent["usd"]))
    print(found)
    assert all(4 < rows < 40 and alone <= 1 for rows, alone, _ in found), found


def test_M1_a_resumed_run_ends_as_it_did_though_answers_come_in_another_order(tmp_path: Path) -> None:
    first = run(tmp_path, 64, budget={"tokens": 12000}, optimize=["bootstrap"])
    assert first.status == "budget"
    again = resume(first.run, database=tmp_path / "r.db", pool=Pool(64, seed=1), options=Options(allow_unproved=True))
    told, before = again.as_dict(), first.as_dict()
    assert told["status"] == "budget" and again.test_rows >= first.test_rows
    assert {k: told[k] for k in ("baseline", "best", "candidates", "changes")} == {
        k: before[k] for k in ("baseline", "best", "candidates", "changes")
    }
    assert again.spent["prompt_tokens"] + again.spent["completion_tokens"] <= 12000
