"""DSPy's optimizers: what they try is recorded. What they find is tested in tests/whole/test_planted_optimizers.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.dspy_35 import obey_35

from workbench.errors import NodeError
from workbench.plugins import plugins
from workbench.run import Options, optimize
from workbench.store import Store
from workbench_dspy.exported.predictor import signature
from workbench_dspy.proposals import ProposalAdapter
from workbench_testing.simulated import HELPFUL, SimulatedLM, SimulatedPool, run_simulated, write_task

SENTENCE = f"Read the text {HELPFUL}: single words mislead."


class Plain(SimulatedLM):
    """A model that cannot write JSON: it proposes a sentence, or two for two, whatever the form that is asked for."""

    def _proposal(self, request: Any, question: str) -> str:
        two = f"proposed_instruction: {SENTENCE}\nproposed_prefix_for_output_field: label:"
        return SENTENCE if "new_instruction" in question else two


def instructions(run: Any) -> set[str]:
    """Those that were tried."""
    return {json.loads(tree)["nodes"]["sort"]["instructions"] for tree in run.trees}


def test_a_proposal_that_fails_on_a_few_rows_was_tried(tmp_path: Path) -> None:
    """GEPA scores a proposal on a minibatch first. Where none passes, the proposer's answers were good nevertheless."""
    gepa = plugins().get("optimizers", "dspy_gepa")(rounds=2)
    run = run_simulated(gepa, tmp_path, lm=SimulatedLM(helps=False), calls=400)
    assert run.report.untried is None and len(run.trees) > 1
    assert "nothing was tried" not in "\n".join(run.report.lines())


@pytest.mark.parametrize("contract", ["3.4", "3.5"])
def test_peers_11_gepa_uses_the_sentence_of_a_model_that_cannot_write_json(
    contract: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if contract == "3.5":
        obey_35(monkeypatch)
    run = run_simulated(plugins().get("optimizers", "dspy_gepa")(rounds=2), tmp_path, lm=Plain(), calls=400)
    assert SENTENCE in instructions(run) and run.report.changes, run.report.lines()


def test_a_proposal_that_cannot_be_read_ends_the_optimizer_and_not_the_run(tmp_path: Path) -> None:
    mipro = plugins().get("optimizers", "dspy_mipro")(trials=2, candidates=2)
    run = run_simulated(mipro, tmp_path, lm=SimulatedLM(), calls=500)
    assert run.report.status == "finished"


DECLARED = signature({"current_instruction": str}, {"new_instruction": str}, "Improve it.")


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE,
        f"Here is a better instruction:\n\n```\n{SENTENCE}\n```\nIt is clearer.",
        f'{{"new_instruction": "{SENTENCE}"}}',
        f'```json\n{{"new_instruction": "{SENTENCE}"}}\n```',
        f"**New instruction:** {SENTENCE}",
        f"<prompt>{SENTENCE}</prompt>",
    ],
    ids=["bare", "fence", "json", "json_in_a_fence", "label", "tags"],
)
def test_a_proposed_instruction_is_read_without_what_stands_around_it(text: str) -> None:
    assert ProposalAdapter().read(DECLARED, text, cut=False) == {"new_instruction": SENTENCE}


@pytest.mark.parametrize(("text", "cut", "kind"), [("half a sen", True, "cut"), ("\n```\n```", False, "unparsed")])
def test_half_a_proposal_is_none(text: str, cut: bool, kind: str) -> None:
    with pytest.raises(NodeError) as raised:
        ProposalAdapter().read(DECLARED, text, cut)
    assert raised.value.kind == kind


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("dspy_mipro", {"trials": 2, "candidates": 2}),
        ("dspy_bootstrap", {"candidates": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_optimizer_asks_the_same_and_tries_the_same_with_dspy_of_3_4_and_3_5(
    name: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for contract in ("3.4", "3.5"):
        if contract == "3.5":
            obey_35(monkeypatch)
        lm = SimulatedLM()
        optimizer = plugins().get("optimizers", name)(**settings)
        run = run_simulated(optimizer, tmp_path / contract, lm=lm, calls=500)
        seen.append((sorted(lm.messages), sorted(run.trees)))
    assert seen[0] == seen[1] and len(seen[0][1]) > 1


@pytest.mark.parametrize("candidates", [0, 1])
def test_a_row_with_a_blank_input_is_no_demo(candidates: int, tmp_path: Path) -> None:
    """As with the other optimizers: the others of its label are."""
    file = write_task(tmp_path, budget={"calls": 500}, rows=(16, 16, 24))
    train = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    blank = [{**row, "text": " "} for row in train[::2]]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*blank[:7], *train]))
    optimizer = plugins().get("optimizers", "dspy_bootstrap")(candidates=candidates, max_labeled_demos=16)
    optimize(
        file,
        database=tmp_path / "run.db",
        optimizers=[("dspy", optimizer)],
        pool=SimulatedPool(SimulatedLM()),
        options=Options(out=str(tmp_path / "out.yaml"), allow_unproved=True),
    )
    with Store(tmp_path / "run.db") as store:
        trees = [json.loads(row["tree"]) for row in store.rows("select tree from candidates")]
    demos = [demo["text"] for tree in trees for demo in tree["nodes"]["sort"].get("demos") or ()]
    assert len({*demos}) > 8 and all(text.strip() for text in demos)
