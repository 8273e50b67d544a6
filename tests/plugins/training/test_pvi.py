"""Pointwise V-information: the number by hand, wrong and uninformed rows, and what the file does with it."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import learned_rows, needs_torch, run

from workbench_training.papers.pvi import PVI, drop_inputs, measure_information, select_informative
from workbench_training.rollouts.sft_data import ChatTokenizer, SFTExample
from workbench_training.sft import SFT


def worked(question: str, answer: str, task: str = "t") -> SFTExample:
    chat = [("system", "rules"), ("user", "demo"), ("assistant", "d"), ("user", question), ("assistant", answer)]
    return SFTExample([{"role": role, "content": text} for role, text in chat], frozenset({4}), task)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    needs_torch()
    from tests.helpers.tiny_lm import save

    from workbench_training.model.policy import Policy

    return Policy(str(save(tmp_path_factory.mktemp("model") / "base", 0)), device="cpu", seed=0)


def measure(policy: Any, examples: list[SFTExample], epochs: int = 0) -> list[float]:
    generator = policy.generator
    sft = SFT.model_validate({"source": "labels", "learning": {"rate": 5e-3}, "batch": 4})
    tokens = ChatTokenizer(generator.tokenizer, generator.ends, generator.encode)
    return measure_information(policy, tokens, examples, epochs, sft)


def test_only_what_varies_with_the_row_is_taken_away() -> None:
    before = worked("who?", "me")
    assert [m["content"] for m in drop_inputs(before).messages] == ["rules", "demo", "d", "", "me"]
    assert drop_inputs(before).learned == before.learned


def test_it_is_the_difference_of_two_log_probabilities(policy: Any) -> None:
    """Against logits of the model itself, token by token."""
    import torch

    def bits(question: str, answer: str) -> float:
        ids = policy.generator.encode(worked(question, answer).messages[:-1])
        total = 0.0
        for token in policy.generator.tokenizer(answer + "<end>")["input_ids"]:
            with torch.no_grad():
                logits = policy.inner(input_ids=torch.tensor([ids])).logits[0, -1]
            total += float(logits.double().log_softmax(-1)[token]) / math.log(2)
            ids = [*ids, token]
        return total

    rows = [("ab", "x1"), ("c", "y"), ("defg", "zz2")]
    wanted = [bits(q, a) - bits("", a) for q, a in rows]
    assert measure(policy, [worked(q, a) for q, a in rows]) == pytest.approx(wanted, abs=1e-4)
    assert any(abs(value) > 0.01 for value in wanted)


def test_wrong_labels_and_questions_that_tell_nothing_have_little(policy: Any) -> None:
    """Planted: the answer is the question's letter, worth 3 bits among 8 of them; one label is wrong. The control is a
    question that tells nothing."""
    weights = policy.digest()
    letters = "abcdefgh"
    told = [worked(letter, letter) for letter in letters for _ in range(4)]
    wrong = worked("a", "h")
    *right, of_wrong = measure(policy, [*told, wrong], epochs=20)
    assert sum(right) / len(right) == pytest.approx(3.0, abs=0.5) and of_wrong < 0.0 < min(right)
    mute = measure(policy, [worked("q", letter) for letter in letters for _ in range(4)], epochs=20)
    assert max(map(abs, mute)) < 0.5
    assert policy.digest() == weights  # both models are gone again


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [2, 0, 3, 1]),
        ({"order": "hard_first"}, [1, 3, 0, 2]),
        ({"min_bits": 0.0}, [2, 0, 3]),
        ({"min_bits": 1.0, "order": "hard_first"}, [0, 2]),
    ],
)
def test_selection_by_hand(settings: dict[str, Any], kept: list[int]) -> None:
    assert select_informative(PVI.model_validate(settings), [1.0, -2.0, 3.5, 0.0]) == kept


def test_mixed_rows_do_not_disturb_the_order() -> None:
    def order(ordered: bool) -> list[Any]:
        sft = SFT.model_validate({"source": "labels", "pvi": {}})
        sft._ordered = ordered
        return sft.arrange([[i] for i in range(9)], [["m"], ["n"]], random.Random(0))  # type: ignore[list-item]

    assert [row for row in order(True) if row[0] not in ("m", "n")] == [[i] for i in range(9)] and ["n"] in order(True)
    assert [row for row in order(False) if row[0] not in ("m", "n")] != [[i] for i in range(9)]


def test_the_file_leaves_out_and_orders_rows(tmp_path: Path) -> None:
    """From YAML to the learner: every pass has the same order, by falling PVI, and uninformative rows are gone."""
    needs_torch()
    sft = {"source": "labels", "batch": 1, "epochs": 2, "learning": {"rate": 1e-6}}
    asked: dict[str, list[tuple[int, ...]]] = {}
    mean = 0.0
    for name in ("all", "some", "none"):
        pvi = {"all": {"pvi": {}}, "some": {"pvi": {"min_bits": mean}}, "none": {}}[name]
        heard: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            seen = learned_rows(patch)
            run(tmp_path / name, heard=heard, optimizers=[{"sft": {**sft, **pvi}}])
        asked[name] = [row.prompt_ids for row in seen]
        told = [text for text, _ in heard if "mean PVI is" in text]
        mean = float(told[0].split("PVI is ")[1].split()[0]) if told else mean
    half = len(asked["all"]) // 2
    assert half == 16 and asked["all"][:half] == asked["all"][half:] != asked["none"][:half]
    assert sorted(asked["all"]) == sorted(asked["none"])
    left = len(asked["some"]) // 2
    assert 0 < left < half and asked["some"][:left] == asked["all"][:left]


@pytest.mark.parametrize("settings", [{"source": "own"}, {"source": "labels", "rounds": 2}])
def test_other_sources_and_several_rounds_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="once and before training"):
        SFT.model_validate({"pvi": {}, **settings})
    assert "pvi" not in json.dumps(SFT.model_validate({}).identify())
