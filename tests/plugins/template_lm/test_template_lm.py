"""The proposer that is no model: what it answers, that it depends on the request alone, and a run with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.workflow import Workflow
from workbench_kit.prompting import read_prompt, rewrite_request, wrap_in_tags
from workbench_template_lm.proposer import RULES, Templates

BASE = Workflow(
    {"name": "w", "nodes": {"a": {"kind": "predict", "signature": "mail, date -> team: Literal['x', 'y']"}}}
)


def ask(text: str, replica: int = 0) -> str:
    request = Request(({"role": "user", "content": text},), replica=replica)
    return asyncio.run(Templates("instructions").complete(request)).text


def rewritten(prompt: str, replica: int = 0) -> str:
    address = "nodes.a.instructions"
    messages = rewrite_request(BASE.patched({address: prompt}), address, evidence="- score 0.00; task: {}")
    found = read_prompt(ask(messages[0]["content"], replica))
    assert found is not None
    return found


def test_the_same_request_gets_the_same_answer_and_replicas_differ() -> None:
    made = [rewritten("Do it.", replica) for replica in range(30)]
    assert made == [rewritten("Do it.", replica) for replica in range(30)] and len(set(made)) > 15


def test_it_names_the_nodes_fields_or_keeps_what_was_there() -> None:
    made = [rewritten("Do it now.", replica) for replica in range(40)]
    anew = [m for m in made if not m.startswith("Do it now.")]
    assert anew and all("the mail, date" in m and "the team" in m and "(one of" not in m for m in anew)
    assert any(m.startswith("Do it now. ") and m.removeprefix("Do it now. ") in RULES for m in made)


def test_several_prompts_are_joined_each_sentence_once() -> None:
    first, second = wrap_in_tags("Be brief. Be kind."), wrap_in_tags("Be kind. Be right.")
    text = f"Merge: {first} {second} Answer between <prompt> and </prompt>."
    assert read_prompt(ask(text)) == "Be brief. Be kind. Be right."


def test_an_advice_is_a_rule() -> None:
    assert ask("What went wrong?") in RULES


def test_another_name_is_refused() -> None:
    with pytest.raises(SpecError, match="no templates 'x'"):
        Templates("x")


def test_a_run_with_it_is_paid_under_the_proposers_role(tmp_path: Path) -> None:
    from tests.helpers.planted import plant

    def skill(request: Any) -> float:
        return 0.9 if RULES[4] in str(request.messages[0]["content"]) else 0.3

    report, _ = plant(
        tmp_path,
        skill,
        {"rewrite": {"rounds": 20, "patience": 20}},
        calls=1200,
        roles={"proposer": "templates/instructions"},
    )
    assert report.spent["by_role"]["proposer"]["calls"] > 3
