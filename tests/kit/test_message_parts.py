"""One proposal may change all parts of a message; what is rewritten first takes part in most failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench import Workflow
from workbench.lm import Request, Response
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import learnable_addresses, text_role
from workbench_fgo.rewrite import Rewrite
from workbench_kit.prompting import Proposer, message_at, one_of_each_message, order_texts, rewrite_request
from workbench_template_lm.proposer import Templates
from workbench_textgrad import optimizer as textgrad
from workbench_textgrad.optimizer import TextGrad

PARTS = {"one": "You are the clerk of a shop.", "two": "Desks: billing, shipping.", "three": "Answer in one word."}


@pytest.fixture
def agent(tmp_path: Path) -> Workflow:
    slots = {
        name: {"in": "system", "match": text, "text": text, "part": True, "of": "system"}
        for name, text in PARTS.items()
    }
    slots["file"] = {"in": "file", "name": "CLAUDE.md", "match": "Be brief.", "text": "Be brief."}
    return make_workflow({"agent": {"external": "letter -> desk", "command": ["true"], "slots": slots}}, tmp_path)


def address(name: str) -> str:
    return f"nodes.agent.slots.{name}.text"


def rewrite(
    agent: Workflow, said: str, name: str = "two", finish: str = "stop", made: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """(what a proposer that says this gives for a part, what was logged)."""
    logged = list[str]()

    async def complete(messages: Any, **settings: Any) -> Response:
        return Response(said, finish, 3, 1, 0.0)

    rows = [Example("0", {"letter": "Where is my parcel?", "desk": "shipping"})]
    runtime = SimpleNamespace(evaluator=SimpleNamespace(runtime=SimpleNamespace(roles={})), train=rows)
    study = SimpleNamespace(**vars(runtime), lm=lambda role: complete, log=logged.append, description="")
    found = asyncio.run(Proposer(cast(Any, study)).rewrite(agent, address(name), made=made))
    return {place.split(".")[3]: text for place, text in found.items()}, logged


def test_one_answer_changes_several_parts_and_leaves_out_what_did_not_change(agent: Workflow) -> None:
    said = (
        "Here they are.\n<part 1>\nYou are the clerk of a shop.\n</part 1>\n<part 2>Desks: billing: money.</part>\n"
        "<part 3>\nAnswer with the desk.\n<\\/part 3>\n<part 9>No such part.</part 9>"
    )
    assert rewrite(agent, said) == ({"two": "Desks: billing: money.", "three": "Answer with the desk."}, [])


@pytest.mark.parametrize(
    "said",
    [
        "<prompt>Desks: money.</prompt>",
        "<part 2>Desks: money.",
        "Desks: money.",
        "<prompt>Desks: money.</prompt>\nExample: <prompt>shipping</prompt>",
        "<part_2>Desks: money.</part_2>",
        "<part2>\nDesks: money.\n</part2>",
        "<part 2: the desks>\nDesks: money.\n</part>",
        "<part 1>You are the clerk of a shop.</part 1> <part 2>Desks: money.</part 2>",
        "<part 2>\nDesks: money.\n</part 2>\n\nI left <part 1> as it is.",
        "<part 1>\n(unchanged)\n</part 1>\n<part 2>\nDesks: money.\n</part 2>\n<part 3>\nNo change.\n</part 3>",
        "<part 2>\nDesks: money.\n</part 2>\n<part 3>\n[Same as before]\n</part 3>\n<part 1>\nYou are",
    ],
)
def test_an_answer_in_the_form_of_one_text_is_that_of_the_part(said: str, agent: Workflow) -> None:
    assert rewrite(agent, said) == ({"two": "Desks: money."}, []), "and nothing is told of what was left out"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("<part 2>shipping</part 2>", "it is a row or an answer"),
        ("<part 2>Where is my parcel?</part 2>", "it is a row or an answer"),
        ("<part 2>none</part 2>", "it says that there is none"),
        ("<part 2>Desks: </prompt> money.</part 2>", "it holds a tag"),
        ("<part 2>\nSay <part 1> first.\n</part 2>", "it holds a tag"),
        ("I write e.g. <part 2> and </part 2>.\nDesks: money.", "it holds a tag"),
        ("**Part 1**\nYou are the clerk.\n**Part 2**\nDesks: money.", ""),
        ("<part 2>desks: BILLING, shipping</part 2>", ""),
        ("<part 2>I'm sorry, but I can't help with that.</part 2>", ""),
        ("<part 2></part 2>", ""),
    ],
)
def test_a_part_that_cannot_help_is_refused_for_free(said: str, why: str, agent: Workflow) -> None:
    found, logged = rewrite(agent, said)
    assert not found and len(logged) == bool(why) and why in "".join(logged)


def test_what_belongs_together_is_tried_together_or_not_at_all(agent: Workflow) -> None:
    said = "<part 2>shipping</part 2>\n<part 3>Answer with the desk.</part 3>"
    found, logged = rewrite(agent, said)
    assert not found and "it is a row or an answer" in logged[0]
    said = said.replace(">shipping<", ">Desks: money.<")
    both = {"two": "Desks: money.", "three": "Answer with the desk."}
    assert rewrite(agent, said, made=["Desks: money."])[0] == both, "one of them is new"
    assert rewrite(agent, said, made=[*both.values()])[0] == {}


def test_a_part_is_asked_to_keep_what_varies_in_the_others(tmp_path: Path) -> None:
    slots = {
        "one": {"in": "system", "match": "You are the clerk of a shop.", "part": True, "of": "system"},
        "two": {"in": "system", "match": "Today is {{1}}.", "part": True, "of": "system"},
        "tool": {"in": "tool", "name": "look", "match": "Looks it up.", "part": True, "of": "system"},
    }
    agent = make_workflow({"agent": {"external": "letter -> desk", "command": ["true"], "slots": slots}}, tmp_path)
    assert "{{1}} and the like stand for what varies, and must stay" in text_role(agent, address("one")).what
    assert [*text_role(agent, address("one")).parts] == [address("one"), address("two")], "and no description"
    same = "<part 1>You are the clerk of a shop.</part 1>\n<part 2>Today is {{1}}.</part 2>"
    assert rewrite(agent, same, "one") == ({}, [])


def test_templates_write_the_part_that_is_asked_for(agent: Workflow) -> None:
    kept = 0
    for replica in range(20):
        messages = rewrite_request(agent, address("two"), tried=[(str(replica), 0.5)])
        said = asyncio.run(Templates("instructions").complete(Request(tuple(messages), 0.8, 500))).text
        found, _ = rewrite(agent, said)
        assert [*found] == ["two"], said
        kept += found["two"].startswith(PARTS["two"])
    assert 4 <= kept <= 14, "as of whole texts: some are the old one and a rule, others are new"


def test_parents_are_told_by_their_whole_message(agent: Workflow) -> None:
    before = agent.patched({address("three"): "Answer at length."})
    tried = [(message_at(one, address("two")), 0.4) for one in (before, agent)]
    content = str(rewrite_request(agent, address("two"), tried=tried)[0]["content"])
    assert content.count("- score") == 1 and "Answer at length." in content


def test_what_was_cut_before_any_part_ended_is_not_tried(agent: Workflow) -> None:
    found, logged = rewrite(agent, "<part 2>Desks: bil", finish="length")
    assert not found and "max_tokens" in logged[0]
    said = "<part 3>Answer with the desk.</part 3>\n<part 2>Desks: bil"
    assert rewrite(agent, said, finish="length") == ({"three": "Answer with the desk."}, [])
    assert rewrite(agent, "<prompt>Desks: money.</prompt>\nIt is cl", finish="length")[0] == {"two": "Desks: money."}
    said = "Between <part 2> and </part 2>, as you ask:\n<part 2>Desks: bil"
    assert rewrite(agent, said, finish="length")[0] == {}


def test_the_parts_of_a_message_are_rewritten_once(agent: Workflow) -> None:
    texts = one_of_each_message(agent, learnable_addresses(agent, "text"))
    assert len(texts) == 2 and address("file") in texts


def test_what_takes_part_in_most_failures_comes_first(tmp_path: Path) -> None:
    workflow = make_workflow(
        {
            "sort": {"predict": "text -> desk", "instructions": "Sort it."},
            "route": {
                "branch": "desk",
                "cases": {
                    "a": {"predict": "text -> answer", "instructions": "Answer as desk A."},
                    "b": {"predict": "text -> answer", "instructions": "Answer as desk B."},
                },
            },
        },
        tmp_path,
    )

    def result(desk: str, score: float | None) -> Result:
        script = Script(lambda request: desk if "Sort it." in str(request.messages) else "yes")
        (outcome,) = run_rows(workflow, [{"text": "t"}], script, tmp_path / f"{desk}{score}.db")
        assert outcome.failure is None, outcome.message
        return Result(Example("0", {"text": "t"}), score, trace=outcome.trace)

    found = [result("a", 1.0), result("a", 1.0), result("a", None), result("b", 0.0)]
    assert order_texts(workflow, found)[:2] == ["nodes.sort.instructions", "nodes.route.cases.b.instructions"]
    assert order_texts(workflow, found[:3]) == list(learnable_addresses(workflow, "text"))


def test_rewrite_goes_on_to_the_next_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {name: {"predict": "text -> answer", "instructions": f"Do {name}."} for name in ("one", "two")}
    workflow, asked = make_workflow(nodes, tmp_path), list[str]()

    async def record(self: Proposer, workflow: Workflow, address: str, *_: Any, **__: Any) -> dict[str, str]:
        asked.append(address)
        return {}

    async def evaluate(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(results=[])

    monkeypatch.setattr(Proposer, "rewrite", record)
    study = SimpleNamespace(workflow=workflow, best=workflow, train=[Example("0", {"text": "t"})])
    study.affords, study.evaluate = lambda *_: True, evaluate
    asyncio.run(Rewrite(rounds=3, width=1).optimize(cast(Any, study)))
    assert asked == ["nodes.one.instructions", "nodes.two.instructions", "nodes.one.instructions"]


def test_textgrad_asks_once_for_a_message(agent: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    class Blaming:
        """In place of the backward pass: the agent's node is to do better."""

        def __init__(self, workflow: Workflow, *_: Any, **__: Any):
            prompts = list(learnable_addresses(workflow, "text"))
            self.layers = {"agent": SimpleNamespace(prompts=prompts, functions=[])}

        async def loss(self) -> str:
            return "wrong"

        async def gradients(self, loss: str) -> dict[str, Any]:
            return {"agent": SimpleNamespace(step="do better", removes=False)}

    class Descent(textgrad._Descent):
        def __init__(self) -> None:
            self.settings, self.proposer = TextGrad(), cast(Any, None)
            self.study = cast(Any, SimpleNamespace(targets={}))

        async def rewritten(self, backward: Any, address: str, gradient: Any) -> dict[str, str]:
            asked.append(address)
            return {}

        async def restructured(self, backward: Any, *_: Any) -> Workflow:
            return agent

    monkeypatch.setattr(textgrad, "Backward", Blaming)
    now = cast(Any, SimpleNamespace(results=[Result(Example("0", {"letter": "t"}), 0.0)]))
    assert asyncio.run(Descent().stepped(agent, now, 0)) == agent
    assert len(asked) == 2 and address("file") in asked
