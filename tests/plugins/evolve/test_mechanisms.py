"""`revise` of `evolve` shows its proposer how the parent did. No model: the proposer can only say what it is shown."""

from __future__ import annotations

import asyncio
import random
import re
from types import SimpleNamespace
from typing import Any

from workbench import Evaluation, Example, Workflow
from workbench.lm import Response
from workbench.study import Result
from workbench.task import Space
from workbench_evolve.operators import Breeder
from workbench_evolve.population import Individual
from workbench_kit.prompting import Proposer

WORDS = ("amber", "birch", "cedar", "delta")
TEXT = "nodes.a.instructions"
BASE = Workflow({"name": "w", "nodes": {"a": {"kind": "predict", "signature": "x -> y", "instructions": "Plain."}}})


class Reader:
    """A proposer that adds the word which the first failure shown to it wants; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked = list[str]()

    async def __call__(self, messages: Any, **settings: Any) -> Response:
        self.asked.append("\n".join(m["content"] for m in messages))
        before = re.findall(r"<prompt>\n(.*?)\n</prompt>", self.asked[-1], re.DOTALL)[0]
        wanted = re.search(r"- score 0\.00; task: .*?wants (\w+)", self.asked[-1])
        said = f"{before} {wanted[1]}" if wanted else f"{before} somehow"
        return Response(f"<prompt>\n{said}\n</prompt>", "stop", 1, 1, 0.0)


def screened(workflow: Workflow) -> Individual:
    """A row for each word: right where the instruction holds it."""
    text = str(workflow.get(TEXT))
    results = tuple(
        Result(
            Example(word, {"x": f"wants {word}"}),
            float(word in text),
            prediction={"y": f"said {word}"},
            feedback=None if word in text else f"{word} is missing",
        )
        for word in WORDS
    )
    found = Evaluation(workflow, "train", results, True)
    return Individual(workflow, found.score, found)


def breeder(reader: Reader) -> Breeder:
    no_roles = SimpleNamespace(runtime=SimpleNamespace(roles={}))
    study: Any = SimpleNamespace(
        description="", workflow=BASE, rng=random.Random(0), lm=lambda role: reader, evaluator=no_roles, train=()
    )
    return Breeder(study, Space({}), Proposer(study))


def test_revising_again_and_again_mends_one_failure_after_the_other() -> None:
    """Only who is shown the failures can know the words."""
    reader, parent = Reader(), screened(BASE)
    for _ in WORDS:
        child = asyncio.run(breeder(reader).revise(parent, [parent], 0))
        assert child is not None and child[1] == "revised"
        parent = screened(parent.workflow.patched(child[0]))
    assert parent.fitness == 1.0 and parent.workflow.get(TEXT) == " ".join(("Plain.", *WORDS))


def test_what_revising_shows_is_each_answer_and_what_was_said_of_it_the_failures_first() -> None:
    reader = Reader()
    parent = screened(BASE.patched({TEXT: "Know amber."}))
    asyncio.run(breeder(reader).revise(parent, [parent], 0))
    shown = re.findall(r"- score (\d\.\d\d); task: .*wants (\w+).*answer: .*said (\w+)", reader.asked[0])
    assert shown == [("0.00", w, w) for w in WORDS[1:]] + [("1.00", "amber", "amber")]
    assert (
        all(f"{word} is missing" in reader.asked[0] for word in WORDS[1:]) and "amber is missing" not in reader.asked[0]
    )
