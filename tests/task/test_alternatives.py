"""Design spaces: nodes with alternatives and nodes that may be left out, drawn by anything that suggests values."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import make_workflow

from workbench.errors import SpecError
from workbench.spec import apply_overrides, check_spec, load_yaml
from workbench.study import RandomTrial
from workbench.task import Example, Space
from workbench.task.search_space import check_space
from workbench.workflow import Workflow
from workbench_optuna.sampler import Searcher

NODES = {
    "facts": {"predict": "text -> facts"},
    "plan": {"predict": "text -> plan", "instructions": "Plan."},
    "answer": {"predict": "text, facts, plan -> label: Literal['a', 'b']"},
}
TRAIN = [Example(str(i), {"text": f"t{i}", "topic": "x", "label": "ab"[i % 2]}) for i in range(8)]
SEARCH = """
nodes.facts: optional
nodes.plan:
  any_of:
    outline: {predict: "text, topic -> plan", instructions: Outline.}
    twice: {ensemble: {predict: "text -> plan"}, samples: 2}
  optional: true
nodes.answer.samples: [1, 3]
nodes.plan.samples: {int: [2, 4]}
nodes.plan.instructions: {choice: [Plan well., Plan ill.], when: {nodes.plan: as_written}}
"""


def workflow() -> Workflow:
    return make_workflow(NODES, Path("."))


def checked(search: str, start: Workflow | None = None) -> Space:
    indented = "\n".join(f"  {line}" for line in search.strip().splitlines())
    source = load_yaml(
        f"data: {{file: x.csv}}\nmetric: exact_match(label)\nnodes: {{n: {{}}}}\nsearch:\n{indented}\n", "f.yaml"
    )
    spec, source = check_spec(apply_overrides(source, []))
    with source.locating():
        check_space(spec.search, start or workflow(), given=("text", "topic", "label"))
    return Space(spec.search, TRAIN)


def drawn(space: Space, count: int = 200) -> list[tuple[dict[str, Any], Workflow]]:
    found = []
    for seed in range(count):
        values = space.suggest(RandomTrial(random.Random(seed)), workflow())
        found.append((values, workflow().patched(values)))
    return found


def test_every_combination_is_drawn_and_works() -> None:
    kinds = set()
    for values, made in drawn(checked(SEARCH)):
        plan = made.nodes["plan"]
        kind = "absent" if not plan.get("enabled", True) else plan.get("instructions") or plan["kind"]
        kinds.add((kind, "facts" in made.enabled_nodes))
        reads = made.enabled_nodes["answer"].inputs
        assert ("plan" in reads, "facts" in reads) == (kind != "absent", "facts" in made.enabled_nodes)
        assert set(made.input_fields) <= {"text", "topic"}
        # A setting is drawn only where the node that stands there has it.
        assert ("nodes.plan.samples" in values) == (kind != "absent"), kind
        assert (values.get("nodes.plan.instructions") is not None) == (kind in ("Plan well.", "Plan ill.")), kind
    assert kinds == {
        (k, f) for k in ("Plan well.", "Plan ill.", "Outline.", "ensemble", "absent") for f in (True, False)
    }


def test_given_names_of_contents_are_taken() -> None:
    space = checked(SEARCH)
    picks = {"nodes.facts": "absent", "nodes.plan": "outline", "nodes.answer.samples": 3, "nodes.plan.samples": 4}
    values = space.suggest(RandomTrial(random.Random(0), picks), workflow())
    made = workflow().patched(values)
    assert made.get("nodes.plan") == {
        "kind": "predict",
        "signature": "text, topic -> plan",
        "instructions": "Outline.",
        "samples": 4,
    }
    assert list(made.enabled_nodes) == ["plan", "answer"] and made.get("nodes.answer.samples") == 3


def test_optuna_searches_them_and_starts_from_what_is_written() -> None:
    searcher = Searcher(checked(SEARCH), workflow(), seed=1, starts=True, startup=4)
    first = searcher.ask()
    assert first.workflow.nodes["plan"]["kind"] == "predict" and list(first.workflow.enabled_nodes) == list(NODES)
    searcher.tell(first, 0.1)
    for _ in range(30):  # pays only where the plan is an outline and there are no facts
        asked = searcher.ask()
        nodes = asked.workflow.enabled_nodes
        searcher.tell(
            asked,
            0.4 * ("facts" not in nodes) + 0.5 * (asked.workflow.get("nodes.plan.instructions", "") == "Outline."),
        )
    assert searcher.study.best_value == 0.9


def test_a_place_in_the_graph_is_kept() -> None:
    start = make_workflow({**NODES, "answer": {**NODES["answer"], "needs": ["facts"]}}, Path("."))
    space = checked('nodes.answer: {any_of: {vote: {ensemble: {predict: "text, plan -> label"}}}}', start)
    values = space.suggest(RandomTrial(random.Random(0), {"nodes.answer": "vote"}), start)
    assert start.patched(values).get("nodes.answer.needs") == ["facts"]


def test_a_space_without_slots_draws_as_ever() -> None:
    """The order of draws is part of what a seed means."""
    space = checked(
        "nodes.plan.samples: {int: [1, 9]}\nnodes.answer.samples: {int: [1, 9]}\nnodes.answer.demos: {demos: 4}"
    )
    rng = random.Random(5)
    expected = [rng.randrange(1, 10), rng.randrange(1, 10)]
    values = space.suggest(RandomTrial(random.Random(5)), workflow())
    assert [values["nodes.plan.samples"], values["nodes.answer.samples"]] == expected


@pytest.mark.parametrize(
    ("search", "place", "message"),
    [
        ("nodes.answer: optional", "5:3", "without 'nodes.answer': no node gives 'label' any more"),
        ("nodes.nobody: optional", "5:3", "is not a node of the graph"),
        ("lm: optional", "5:3", "is not a node of the graph"),
        ("nodes.plan: perhaps", "5:3", "must be a mapping"),
        ("nodes.plan: {optional: true, int: [1, 2]}", "5:3", "optional is for nodes"),
        ("nodes.plan: {any_of: {absent: {predict: 'text -> plan'}}}", "5:3", "'absent' names what is there anyway"),
        ("nodes.plan:\n  any_of:\n    bad: {predikt: 'text -> plan'}", "7:13", "no node kind is named"),
        ("nodes.plan:\n  any_of:\n    bad: {predict: 'text -> outline'}", "7:7", "reads 'plan', which no node before"),
        ("nodes.plan:\n  any_of:\n    bad: {predict: 'notes -> plan'}", "7:7", "reads 'notes', which no node before"),
        ("nodes.plan:\n  any_of:\n    bad: {predict: 'text -> plan', samples: many}", "7:7", "samples"),
        (
            "nodes.plan: optional\nnodes.answer.samples: {int: [1, 2], when: {nodes.plan: gone}}",
            "6:",
            "is never 'gone'",
        ),
        ("nodes.plan: optional\nnodes.plan.colour: [red]", "6:3", "colour"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(search: str, place: str, message: str) -> None:
    with pytest.raises(SpecError) as found:
        checked(search)
    assert message in str(found.value) and f"f.yaml:{place}" in str(found.value), str(found.value)


def test_two_contents_that_do_not_go_together_are_told() -> None:
    """A tool cannot lose an input as a signature can."""
    search = """
    nodes.plan: optional
    nodes.facts: {any_of: {computed: {tool: "python:operator.neg", arguments: {a: plan}, output: facts}}}
    """
    with pytest.raises(
        SpecError, match="nodes.plan: absent and nodes.facts: computed do not go together: 'facts' cannot"
    ):
        checked("\n".join(line.strip() for line in search.strip().splitlines()))


def test_the_schema_knows_them() -> None:
    from workbench.cli.file_schema import json_schema

    schema = json_schema()
    assert {"const": "optional"} in schema["properties"]["search"]["additionalProperties"]["anyOf"]
    text = str(schema["$defs"]["DomainSpec"]["properties"]["any_of"])
    assert "node_predict" in text and "node_ensemble" in text
