"""Rows of val and test are never learned from: checked on the tokens that the learner is given, with real weights.

`workbench_testing` checks this of every optimizer by what is asked; a simulated LM has no weights, so there `grpo`,
`sft` and `dpo` have nothing to train.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import learned_rows, needs_torch, run

from workbench.run import prepare

COURSE = {
    "steps": 2,
    "tasks": 3,
    "rollouts": 3,
    "evaluate_every": 2,
    "dynamic_sampling": 1,
    "replay": 2,
    "curriculum": True,
}
LEARNING = {"rate": 1e-3}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "grpo": {"grpo": {"schedule": COURSE, "learning": LEARNING}},
    "sft": {"sft": {"tasks": 6, "rollouts": 2, "rounds": 2, "epochs": 1, "learning": LEARNING}},
    "sft on labels": {"sft": {"source": "labels", "epochs": 1, "learning": LEARNING}},
    "dpo": {"dpo": {"tasks": 8, "rollouts": 4, "epochs": 1, "learning": LEARNING}},
}


def learned(folder: Path, name: str, patch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The texts of each split that occur in the tokens of rows that the learner is given."""
    from workbench_nano.model import Nano

    rows, tokenizer = learned_rows(patch), Nano.load().tokenizer
    assert run(folder, optimizers=[OPTIMIZERS[name]], rows=(8, 6, 6)).status == "finished"
    seen = [tokenizer.decode([*row.prompt_ids, *row.token_ids], skip_special_tokens=False) for row in rows]
    data = prepare(folder / "workflow.yaml")[2].dataset
    splits = {"train": data.train, "val": data.val, "test": data.test.open()}
    texts = {split: {row["text"] for row in part} for split, part in splits.items()}
    held_out = texts["val"] | texts["test"]
    assert len(held_out) == 12 and not any(text in other for text in held_out for other in texts["train"])
    assert seen, "something was learned"
    return {split: {text for text in some if any(text in row for row in seen)} for split, some in texts.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_row_of_val_or_test_is_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    needs_torch()
    found = learned(tmp_path, name, monkeypatch)
    assert found["train"] and not found["val"] and not found["test"]


def test_a_leak_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: an optimizer that is handed rows of val to learn from."""
    needs_torch()
    from workbench_training.sft import SFT

    real = SFT.optimize

    async def leaky(self: SFT, study: Any) -> Any:
        return await real(self, study.narrow(train=[*study.train, *study.val]))

    monkeypatch.setattr(SFT, "optimize", leaky)
    found = learned(tmp_path, "sft on labels", monkeypatch)
    assert found["train"] and found["val"] and not found["test"]
