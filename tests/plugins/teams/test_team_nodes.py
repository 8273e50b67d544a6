"""What all team nodes promise: bounds on calls, checked settings, addresses that optimizers find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import make_workflow, run_node
from tests.helpers.teams import ROLES, says, spoke, team

from workbench.errors import SpecError


def test_optimizers_find_what_members_were_told(tmp_path: Path) -> None:
    from workbench.study import Result
    from workbench.task import Example
    from workbench_kit.prompting import prompt_in_use

    outcome, _ = run_node(team("dylan", rounds=1), {"question": "q"}, tmp_path, says(dict.fromkeys(ROLES, "x")))
    result = Result(Example("0", {}), 1.0, None, None, None, outcome.prediction, outcome.trace)
    assert prompt_in_use("nodes.n.of.instructions", "Answer.", [result]) == "n.of"
    assert spoke(outcome) == list(ROLES)


@pytest.mark.parametrize("kind", ["dylan", "selforg"])
def test_the_bound_on_calls_holds_and_the_dead_do_not_end_it(kind: str, tmp_path: Path) -> None:
    rest = {"rate": True} if kind == "dylan" else {}
    node = team(kind, **rest)
    said = says({"ann": "", "bob": ["b", "c", "d"], "cid": ["e", "f"], "dan": "g"}, ranker="1 2", rates={"all": "1"})
    outcome, script = run_node(node, {"question": "q"}, tmp_path, said)
    bound = make_workflow({"n": node}, tmp_path).enabled_nodes["n"].max_calls
    assert outcome.failure is None and len(script.requests) <= bound
    silent, _ = run_node(node, {"question": "q2"}, tmp_path, says(dict.fromkeys(ROLES, "")))
    assert silent.failure == "members"


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"dylan": {"predict": "question -> answer"}, "members": {}}, "at least one item"),
        ({"dylan": {"tool": "python:math.sqrt"}, "members": ROLES}, "cannot give roles"),
        ({"dylan": {"predict": "answers_of_others -> answer"}, "members": ROLES}, "answers_of_others"),
    ],
)
def test_settings_that_make_no_sense_are_refused(node: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        make_workflow({"n": node}, tmp_path)
    assert told in str(raised.value)
