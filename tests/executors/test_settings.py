"""`executor:` in a file, `--executor` and `--address` beside it, and what the estimate says of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from workbench.cli.options import read_executor
from workbench.errors import SpecError
from workbench.run import estimate, prepare
from workbench.runtime import make_executor
from workbench.spec import apply_overrides, load_yaml
from workbench_workers.needs import plugins_of

QUICKSTART = Path(__file__).parents[2] / "workflows" / "quickstart.yaml"


@pytest.mark.parametrize(
    ("written", "flags", "expected"),
    [
        ("", ("ray", None), {"ray": {}}),
        ("executor: local", ("ray", "auto"), {"ray": {"address": "auto"}}),
        ("executor: {ray: {workers: 8}}", ("ray", None), {"ray": {"workers": 8}}),
        ("executor: {ray: {workers: 8}}", ("ray", "auto"), {"ray": {"workers": 8, "address": "auto"}}),
        ("executor: {ray: {workers: 8}}", ("slurm", None), {"slurm": {}}),
        ("executor: {ray: {workers: 8}}", ("local", None), {"local": {}}),
    ],
)
def test_flags_take_the_place_of_another_executor_and_keep_the_settings_of_their_own(
    written: str, flags: tuple[str, str | None], expected: dict[str, Any]
) -> None:
    source = load_yaml(f"name: x\n{written}\n", "workflow.yaml")
    assert apply_overrides(source, read_executor(*flags)).value["executor"] == expected


def test_workers_need_the_plugins_that_decide_a_policy_and_perturb_rows(tmp_path: Path) -> None:
    text = QUICKSTART.read_text().replace("data/", f"{QUICKSTART.parent}/data/")
    path = tmp_path / "w.yaml"
    path.write_text(text)
    policy = {"rules": [{"formula": "H(a -> O(b))"}]}
    needed = [{*plugins_of(prepare(path, sets)[2], [])} for sets in ([], [("policy", policy)])]
    assert needed[1] - needed[0] == {"policy"} and "predict" in needed[0]
    poisoned = prepare(QUICKSTART.parent / "gallery" / "agent_poison.yaml", [("constraints", {"attack": 0.2})])[2]
    assert "redteam" in plugins_of(poisoned, [])


def test_an_address_says_nothing_without_an_executor() -> None:
    with pytest.raises(click.UsageError, match="--address needs --executor"):
        read_executor(None, "auto")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("rai", "there is no executor 'rai'\n  Did you mean 'ray'"),
        ({"ray": {"workers": 0}}, "workers"),
        ({"ray": {"worker": 2}}, "unknown key 'worker'"),
        ({"ray": {}, "slurm": {}}, "name one executor"),
        ({}, "name one executor"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told(written: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_executor(written)


def test_the_estimate_counts_workers_their_rows_and_hours() -> None:
    def lines(**settings: Any) -> list[str]:
        _, _, task, optimizers = prepare(QUICKSTART, list(settings.items()))
        return [line for line in estimate(task, optimizers, seconds_per_call=60.0)["lines"] if "worker" in line]

    assert lines() == []
    few = lines(executor={"ray": {"workers": 8}}, concurrency=16)
    assert few[0].startswith("8 workers by ray with 2 of 16 rows at once each, about ") and len(few) == 1
    many = lines(executor={"slurm": {"workers": 32}}, concurrency=16)
    assert many[1] == "Warning: 16 workers have no row: raise concurrency, or lower executor.slurm.workers."
