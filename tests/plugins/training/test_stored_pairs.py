"""`dpo` learns from pairs of a file: people's choices, or those that `workbench data make` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.helpers.grpo_runs import needs_torch, run
from tests.helpers.sqlite import connect

from workbench import SpecError
from workbench_training.dpo import DPO

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.training]

SETTINGS = {"pairs": "pairs.jsonl", "epochs": 2, "learning": {"rate": 5e-4}, "device": "cpu", "race": False}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that answers a or b, whatever is asked."""
    needs_torch()
    from tests.helpers.tiny_lm import save_taught

    return save_taught(tmp_path_factory.mktemp("model") / "base", ["a", "b"])


def learn(folder: Path, base: Path, pairs: list[dict[str, Any]], heard: list[Any] | None = None, **more: Any) -> Any:
    folder.mkdir(parents=True)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    nodes = {"sort": {"predict": "text -> label: Literal['a', 'b']", "decoding": {"max_tokens": 4}}}
    return run(folder, lm=f"hf:{base}", nodes=nodes, heard=heard, optimizers=[{"dpo": {**SETTINGS, **more}}])


def preferring(chosen: Any, rejected: Any) -> list[dict[str, Any]]:
    return [{"text": f"Ticket {n}: a parcel", "chosen": chosen, "rejected": rejected} for n in range(16)]


def labels_of_the_last_candidate(folder: Path) -> set[str]:
    with connect(folder / "run.db") as db:
        rows = db.execute(
            "select r.prediction from candidates c join evaluations e on e.run_id = c.run_id and e.candidate = c.hash "
            "join results r on r.evaluation_id = e.id where e.split = 'val' and c.seq ="
            " (select max(seq) from candidates)"
        ).fetchall()
    return {json.loads(text or "{}").get("label", "") for (text,) in rows}


def test_the_preferred_answer_is_given_and_no_rollout_is_drawn(tmp_path: Path, base: Path) -> None:
    """Both ways round, so that it is the file that decides."""
    for better, worse in (("a", "b"), ("b", "a")):
        heard: list[Any] = []
        report = learn(tmp_path / better, base, preferring(better, worse), heard)
        assert labels_of_the_last_candidate(tmp_path / better) == {better}
        assert any(message == "16 of 16 pairs to learn from" for message, _ in heard)
        assert report.spent["calls"] <= 5 * 12 + 2 * 20, "val and the sealed test alone are asked"


def test_outputs_may_be_objects_and_equal_sides_are_no_pair(tmp_path: Path, base: Path) -> None:
    pairs = [*preferring({"label": "a"}, {"label": "b"}), *preferring("a", "a")]
    heard: list[Any] = []
    learn(tmp_path / "run", base, pairs, heard, epochs=1)
    assert any(message == "16 of 32 pairs to learn from" for message, _ in heard)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([{"text": "a", "chosen": "a"}], "the row 1 has no 'rejected'"),
        ([{"chosen": "a", "rejected": "b"}], "the row 1 has no 'text'"),
        ([{"text": "a", "chosen": {"topic": "a"}, "rejected": "b"}], "the row 1 lacks an output"),
    ],
)
def test_rows_that_are_no_pairs_are_refused_before_a_call(tmp_path: Path, base: Path, pairs: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        learn(tmp_path / "run", base, pairs)


@pytest.mark.parametrize("more", [{"rollouts": 4}, {"rounds": 2}, {"listener": {"field": "label"}}])
def test_settings_of_rollouts_are_refused_beside_a_file(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=f"no rollout is drawn: remove `{next(iter(more))}`"):
        DPO.model_validate({"pairs": "pairs.jsonl", **more})
