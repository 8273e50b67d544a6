"""One node learns what several did together: chains of their runs, the node that replaces them, and whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.helpers.grpo_runs import learned_rows, needs_torch, run
from tests.helpers.sqlite import connect

from workbench import SpecError, Workflow
from workbench.lm import Response
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace, node_tree
from workbench_training.papers.chain_of_agents import Solo, chain_examples, describe_chain, replace_nodes
from workbench_training.rewards import Rollout
from workbench_training.sft import SFT

pytestmark = pytest.mark.filterwarnings("ignore")

NODES = {"plan": {"predict": "text -> hint"}, "sort": {"predict": "text, hint -> label"}}
TEAM = Workflow({"name": "team", "nodes": {name: node_tree(node) for name, node in NODES.items()}})


def solo(signature: str = "text -> chain, label", **settings: Any) -> Solo:
    return Solo.model_validate({"node": {"predict": signature}, **settings})


def team_run(hint: str, label: str, tools: bool = False) -> Rollout:
    call = CallRecord((), Response("x", "stop", 1, 1), "task", "m", False, 0.0)
    spans = [
        Span("plan", "predict", {}, {"hint": hint}, calls=[call]),
        Span("cut", "code", {}, {"part": "not said by a model"}),
        Span("sort", "predict", {}, {"label": label}, calls=[call], notes={"tools": ["search"]} if tools else {}),
    ]
    row = Example("1", {"text": "my box is late", "label": "shipping"})
    return Rollout(row, Result(row, 1.0, prediction={"label": label}, trace=Trace("1", spans)), 0, 1.0)


def test_a_chain_holds_what_each_node_wrote_between_tags_of_its_name() -> None:
    trace = team_run("a parcel", "shipping").result.trace
    assert trace is not None
    assert describe_chain(trace) == "<plan>\nhint: a parcel\n</plan>\n<sort>\nlabel: shipping\n</sort>"


def test_the_one_node_learns_the_chain_and_then_the_answer() -> None:
    (example,) = chain_examples(TEAM, solo(), [team_run("a parcel", "shipping"), team_run("b", "account", tools=True)])
    *asked, answer = example.messages
    assert "my box is late" in asked[-1]["content"] and "parcel" not in asked[-1]["content"]
    said = answer["content"]
    assert said.index("<plan>") < said.index("a parcel") < said.index("</sort>") < said.rindex("label: shipping")
    assert example.learned == {len(asked)}
    node = TEAM.patched(replace_nodes(TEAM, solo())).enabled_nodes["solo"]
    assert [*node.outputs] == ["chain", "label"]


def test_the_labels_of_rows_are_not_learned() -> None:
    """A run whose last node failed has no answer to learn, though its row has a label."""
    failed = team_run("a parcel", "shipping")
    object.__setattr__(failed.result, "prediction", {})
    assert [*chain_examples(TEAM, solo(), [failed])] == []


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("text -> label", "does not write 'chain'"),
        ("text -> chain", "does not write 'label'"),
        ("text, hint -> chain, label", "reads 'hint', which no row has"),
        ("text -> label, chain", "writes 'chain' after 'label'"),
    ],
)
def test_a_node_that_cannot_take_their_place_is_refused(signature: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        replace_nodes(TEAM, solo(signature))
    assert caught.value.path == ("node", "predict") and caught.value.hint


def test_settings_of_the_replaced_nodes_are_refused() -> None:
    given = {"solo": {"node": {"predict": "text -> chain, label"}}}
    for more, named in (
        ({"splice": True}, "splice"),
        ({"rounds": 2}, "rounds"),
        ({"address": "nodes.a.lm"}, "address"),
    ):
        with pytest.raises(ValidationError, match=f"remove `{named}`"):
            SFT.model_validate({**given, **more})
    with pytest.raises(SpecError, match="has to be a predict"):
        replace_nodes(TEAM, Solo.model_validate({"node": {"agent": "text -> chain, label"}}))


def test_good_runs_of_the_team_are_learned_and_the_one_node_is_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The team is a random model, any run of which is good enough."""
    needs_torch()
    from tests.helpers.tiny_lm import save

    base = save(tmp_path / "base", 0, positions=1024)
    sampled = {"decoding": {"max_tokens": 60, "temperature": 1.0}}
    sft = {
        "solo": {"node": {"predict": "text -> chain, label", "decoding": {"max_tokens": 60}}},
        "rollouts": 3,
        "tasks": 6,
        "device": "cpu",
        "guards": [],
        "threshold": 0.0,
        "epochs": 1,
    }
    seen = learned_rows(monkeypatch)
    report = run(
        tmp_path,
        lm=f"hf:{base}",
        nodes={name: {**node, **sampled} for name, node in NODES.items()},
        optimizers=[{"sft": sft}],
        rows=(6, 4, 4),
        budget={"calls": 2000},
    )
    assert report.status == "finished" and seen
    from transformers import AutoTokenizer

    texts = [AutoTokenizer.from_pretrained(str(base)).decode(row.token_ids) for row in seen]
    assert all("plan" in text and "label:" in text for text in texts), texts[:1]
    with connect(tmp_path / "run.db") as db:
        trees = [json.loads(text) for (text,) in db.execute("select tree from candidates order by seq")]
    assert [*trees[0]["nodes"]] == ["plan", "sort"] and [*trees[-1]["nodes"]] == ["solo"]
    assert trees[-1]["lm"]["model"] != trees[0].get("lm")
