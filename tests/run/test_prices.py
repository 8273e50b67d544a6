"""Every model has a price of its own, and one that is missing is named where it counts: in estimates, evaluations,
cells of a matrix and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script

from workbench.errors import SpecError, WorkbenchError
from workbench.evaluation import EvalOptions, evaluate, evaluate_matrix, parse_axis
from workbench.lm import LMPool, Request, Response
from workbench.run import Options, estimate, optimize, prepare
from workbench.spec import LMSpec, apply_overrides, load_yaml

SERVER = "https://models.invalid/v1"
SMALL, BIG = {"input": 100, "output": 200}, {"input": 1000, "output": 2000}


def priced(name: str, price: dict[str, int] | None = None) -> dict[str, Any]:
    return {"model": f"openai/{name}", "api_base": SERVER, **({"price": price} if price else {})}


class OfFile(Script):
    """Answers without asking anybody, at the price that the file gives."""

    def __init__(self, spec: LMSpec):
        super().__init__(lambda request: Response("a", "stop", 100, 10))
        self.spec, self.identity = spec, spec.model

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        own = self.spec.price
        return None if own is None else (prompt_tokens * own.input + completion_tokens * own.output) / 1e6


class Pool(LMPool):
    def get(self, spec: LMSpec) -> Any:
        key = spec.model_dump_json()
        self.made.setdefault(key, OfFile(spec))
        return self.made[key]

    def __init__(self) -> None:
        super().__init__()
        self.made = dict[str, OfFile]()

    @property
    def requests(self) -> list[Request]:
        return [request for lm in self.made.values() for request in lm.requests]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def task_file(folder: Path, **spec: Any) -> Path:
    rows = [{"text": f"t{i} word{i}", "label": "ab"[i % 2]} for i in range(18)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = {
        "name": "t",
        "lm": priced("small", SMALL),
        "data": {"file": "rows.jsonl", "split": {"train": 6, "val": 6, "test": 6}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}},
        "optimize": [{"random": {"trials": 4}}],
        "budget": {"calls": 500},
        **spec,
    }
    (folder / "w.yaml").write_text(json.dumps(written))
    return folder / "w.yaml"


# Estimates


def estimated(path: Path) -> dict[str, Any]:
    _, _, task, optimizers = prepare(path)
    return estimate(task, optimizers)


def test_new_user_3_an_estimate_names_every_model_without_a_price(tmp_path: Path) -> None:
    """Of `search:`, and of the roles that the search pays for."""
    found = estimated(task_file(tmp_path, search={"lm": [priced("big")]}, roles={"proposer": priced("wise")}))
    assert found["proof"]["max_usd"] is None and found["baseline"]["max_usd"] > 0
    assert any("Dollars unknown: there is no price for openai/big, openai/wise;" in line for line in found["lines"])
    found = estimated(task_file(tmp_path, roles={"proposer": priced("wise")}))
    assert found["proof"]["max_usd"] > 0 and found["search"]["max_usd"] is None is found["total"]["max_usd"]
    assert any("there is no price for openai/wise;" in line for line in found["lines"])


def test_new_user_3_the_search_may_take_the_dearest_role(tmp_path: Path) -> None:
    without = estimated(task_file(tmp_path))["search"]["max_usd"]
    cheap = estimated(task_file(tmp_path, roles={"proposer": priced("mini", {"input": 1, "output": 1})}))
    dear = estimated(task_file(tmp_path, roles={"proposer": priced("wise", BIG)}))
    assert cheap["search"]["max_usd"] == without
    assert dear["search"]["max_usd"] == pytest.approx(10 * without, rel=0.05)
    assert dear["proof"] == cheap["proof"]
    thinks = estimated(task_file(tmp_path, roles={"proposer": priced("deepseek-r1", BIG)}))
    assert thinks["search"]["max_usd"] > 5 * dear["search"]["max_usd"], "thoughts are billed"


# Evaluations


@pytest.mark.parametrize(
    "only",
    [
        {"search": {"lm": [priced("big")]}},
        {"search": {"nodes.sort.lm": [priced("big")]}},
        {"roles": {"proposer": priced("wise")}},
        {"roles": {"teacher": priced("wise"), "judge": priced("wise")}},
        {"roles": {"proposer": {**priced("wise", BIG), "api_key_env": "NO_SUCH_KEY"}}},
    ],
)
def test_new_user_18_eval_is_not_stopped_by_what_only_a_search_needs(only: dict[str, Any], tmp_path: Path) -> None:
    file = task_file(tmp_path, budget={"usd": 2}, **only)
    found = evaluate(file, database=tmp_path / "e.db", pool=Pool())
    assert found.complete and found.spent["calls"] == 6
    if "api_key_env" not in str(only):
        with pytest.raises(SpecError, match="price of openai/(big|wise) is not known"):
            optimize(file, database=tmp_path / "o.db", pool=Pool(), options=Options(out=str(tmp_path / "o.yaml")))


@pytest.mark.parametrize(
    "needed",
    [
        {"lm": priced("small")},
        {"nodes": {"sort": {"predict": "text -> label", "lm": priced("big")}}},
        {"metric": {"judge": {"rubric": "Is it right?"}}, "roles": {"judge": priced("wise")}},
    ],
)
def test_new_user_18_eval_is_stopped_by_the_price_of_what_it_asks(needed: dict[str, Any], tmp_path: Path) -> None:
    pool = Pool()
    with pytest.raises(SpecError, match=r"budget\.usd cannot be kept: the price of openai/\w+ is not known"):
        evaluate(task_file(tmp_path, budget={"usd": 2}, **needed), database=tmp_path / "e.db", pool=pool)
    assert not pool.requests


def test_new_user_4_an_evaluation_without_a_price_says_so(tmp_path: Path) -> None:
    """0 dollars would pass for free."""
    found = evaluate(task_file(tmp_path, lm=priced("small")), database=tmp_path / "e.db", pool=Pool())
    assert any("Dollars unknown: there is no price for openai/small" in line for line in found.lines())
    known = evaluate(task_file(tmp_path), database=tmp_path / "e.db", pool=Pool())
    assert not known.warnings and known.cost["usd"] == pytest.approx(0.012)


# A matrix


def cells(folder: Path, axis: str, pool: Pool, **spec: Any) -> list[Any]:
    options = EvalOptions()
    return evaluate_matrix(
        task_file(folder, **spec), [parse_axis(axis)], options=options, database=folder / "m.db", pool=pool
    )


def test_new_user_4_a_cell_is_billed_at_the_price_of_its_model(tmp_path: Path) -> None:
    axis = f"lm=openai/small,{{model: openai/big, price: {json.dumps(BIG)}}}"
    small, big = cells(tmp_path, axis, pool := Pool(), budget={"usd": 5})
    assert (small.cost["usd"], big.cost["usd"]) == (pytest.approx(0.012), pytest.approx(0.12))
    assert {(lm.spec.model, lm.spec.api_base) for lm in pool.made.values()} == {
        ("openai/small", SERVER), ("openai/big", SERVER)
    }  # fmt: skip


@pytest.mark.parametrize("axis", ["lm=openai/small,openai/big", "lm.model=openai/small,openai/big"])
def test_new_user_4_a_model_of_a_matrix_without_a_price_is_named(axis: str, tmp_path: Path) -> None:
    small, big = cells(tmp_path, axis, Pool())
    assert small.cost["usd"] == pytest.approx(0.012) and not small.warnings
    assert big.cost["usd"] == 0 and "there is no price for openai/big" in big.warnings[0]


def test_new_user_4_what_a_later_cell_lacks_is_told_before_the_first_is_paid(tmp_path: Path) -> None:
    for axis, words in (
        ("lm=openai/small,openai/big", "price of openai/big is not known"),
        ("nodes.sort.samples=1,0", "samples"),
        ("metric=exact_match(label),exact_match(nothing)", "nothing"),
    ):
        with pytest.raises(WorkbenchError, match=words):
            cells(tmp_path, axis, pool := Pool(), budget={"usd": 5})
        assert not pool.requests and not (tmp_path / "m.db").exists()


# Settings

WRITTEN = {
    "lm": priced("small", SMALL),
    "roles": {"judge": priced("small", SMALL)},
    "nodes": {"sort": {"predict": "text -> label", "lm": priced("small", SMALL)}},
}


def test_new_user_4_a_price_goes_with_the_model_that_it_is_of(subtests: pytest.Subtests) -> None:
    for place in ["lm", "roles.judge", "nodes.sort.lm"]:
        for sets, price in [
            ([("model", "openai/big")], None),
            ([("model", "openai/small")], SMALL),
            ([("model", "openai/big"), ("price", BIG)], BIG),
            ([("price", BIG), ("model", "openai/big")], BIG),
            # half a price is refused later, not completed
            ([("model", "openai/big"), ("price.input", 7)], {"input": 7}),
            ([("temperature", 0.5)], SMALL),
        ]:
            with subtests.test(place=place, sets=sets):
                source = load_yaml(json.dumps(WRITTEN), "w.yaml")
                found: Any = apply_overrides(source, [(f"{place}.{name}", value) for name, value in sets]).value
                for part in place.split("."):
                    found = found[part]
                assert found.get("price") == price and found["api_base"] == SERVER
                assert source.value == WRITTEN, "the file as it was read stays"
