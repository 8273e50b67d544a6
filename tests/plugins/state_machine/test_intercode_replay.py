"""The gallery's machine for SQL on InterCode-SQL: all gold queries, and the recorded runs of GPT-3.5 and GPT-4.

The shared data are not part of the repository; without them these tests are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.intercode import FOLDER, NODE, ROOT, ideal, play, read_rows, said_before, scores, sql

from workbench.lm import Request
from workbench.spec import load_spec
from workbench.task import load_task
from workbench.workflow import ExampleRun

SHARED = ROOT.parent / "shared/data"
pytestmark = pytest.mark.skipif(not (SHARED / "intercode_sql").is_dir(), reason="the shared data are not here")


def shared_rows(split: str) -> list[dict[str, Any]]:
    return [
        {
            "question": r["inputs"]["query"],
            "tables": r["inputs"]["db_tables"],
            "db": r["inputs"]["db"],
            "gold_sql": r["labels"]["gold_sql"],
            "id": r["id"],
        }
        for r in read_rows(SHARED / f"intercode_sql/{split}.jsonl")
    ]


@pytest.mark.parametrize("split", ["dev", pytest.param("train", marks=pytest.mark.slow)])
def test_every_gold_query_of_intercode_scores_1_through_the_machine(split: str, tmp_path: Path) -> None:
    rows = shared_rows(split)
    assert len(rows) == {"dev": 120, "train": 586}[split]
    assert scores(rows, play(NODE, rows, ideal, tmp_path)) == [1.0] * len(rows)


def test_the_gallery_file_runs_on_intercode_data_by_its_data_block_alone(tmp_path: Path) -> None:
    text = (FOLDER / "intercode_sql.yaml").read_text(encoding="utf-8")
    rows = [f"{SHARED}/intercode_sql/{split}.jsonl" for split in ("train", "dev", "dev")]
    block = "".join(f"  {k}: {v}\n" for k, v in zip(("train", "val", "test"), rows, strict=True))
    block += "  fields: {question: inputs.query, tables: inputs.db_tables, db: inputs.db, gold_sql: labels.gold_sql}\n"
    changed = re.sub(r"(?m)^data:\n(  .*\n)+", lambda _: f"data:\n{block}", text)
    (tmp_path / "w.yaml").write_text(changed, encoding="utf-8")
    task = load_task(*load_spec(tmp_path / "w.yaml"), FOLDER)
    assert len(task.dataset.train) == 586 and task.inputs == ("question", "tables", "db")


ACT = {
    "signature": "question, tables -> sql",
    "arguments": {"db": "db"},
    "start": "act",
    "max_steps": 12,
    "states": {
        "act": {
            "run": "python:intercode_sql.py:execute",
            "next": [
                {"when": {"outcome": {"statement": "submit"}}, "to": "end"},
                {"when": {"outcome": {"statement": "select"}}, "keep": "sql", "to": "act"},
            ],
        }
    },
}


def recorded(split: str) -> Iterator[tuple[tuple[str, str], dict[str, Any], dict[str, Any]]]:
    """((model, strategy), row, recorded run) of the runs whose actions were kept."""
    rows = {r["id"]: r for r in shared_rows(split)}
    for record in read_rows(SHARED / f"replay_intercode/{split}.jsonl"):
        row = rows.get(record["id"].removeprefix("replay_"))
        for run in record["labels"]["runs"] if row else ():
            if "actions" in run:
                yield (run["model"], run["strategy"]), row, run  # type: ignore[misc]


def statement(action: str) -> str:
    """What an action asks for: ReAct's are written as `execute[...]`."""
    found = re.match(r"execute\[(.*?)\]?\Z", action.strip(), re.DOTALL)
    return found[1] if found else action


#: Successes in the 120 recorded runs of each player on dev.
RECORDED = {
    ("gpt-3.5", "multiturn_10_turns"): 56,
    ("gpt-3.5", "react_10_turns"): 60,
    ("gpt-4", "multiturn_10_turns"): 76,
}


def replay(
    node: dict[str, Any], player: tuple[str, str], folder: Path, unwrap: Callable[[int, str], str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[ExampleRun]]:
    """(rows, recorded runs, outcomes) of the recorded actions, said one after the other, and then `submit`."""
    runs = [(row, run) for who, row, run in recorded("dev") if who == player]
    actions = {row["id"]: run["actions"] for row, run in runs}

    def policy(request: Request, row: dict[str, Any]) -> str:
        turn, said = len(said_before(request)), [*actions[row["id"]], "submit"]
        return unwrap(turn, said[turn])

    rows = [row for row, _ in runs]
    assert len(runs) == 120
    return rows, [run for _, run in runs], play(node, rows, policy, folder)


@pytest.mark.slow
@pytest.mark.parametrize("player", RECORDED, ids=" ".join)
def test_recorded_runs_reach_their_success_rate_again_on_real_databases(
    player: tuple[str, str], tmp_path: Path
) -> None:
    """Each recorded action is run again. Success is a query that scores 1.

    The rates cannot be the same to a row: MySQL scored then and SQLite does now, it has other functions and error
    rules, texts of actions are cut at 300 characters, and where the gold query failed any empty result was right.
    """
    rows, runs, outcomes = replay(ACT, player, tmp_path, lambda turn, action: statement(action))
    replayed = [
        any(sql.score(row, {"sql": s.outputs["action"]})[0] for s in o.trace.spans[1:] if s.outputs)
        for row, o in zip(rows, outcomes, strict=True)
    ]
    expected = [run["max_reward"] == 1 for run in runs]
    assert sum(expected) == RECORDED[player] and abs(sum(replayed) - sum(expected)) <= 4
    assert sum(a == b for a, b in zip(expected, replayed, strict=True)) >= 0.94 * len(runs)


RECORD_TOOL = """
import json
from pathlib import Path

RUNS = json.loads(Path(__file__).with_suffix(".json").read_text())

def step(action: str, run: str) -> dict:
    turn, _, said = action.partition(" ")
    expected, reward, observation = RUNS[run][int(turn)]
    assert said == expected.strip()
    if observation.startswith("Error"):
        raise ValueError(observation)
    return {"reward": reward, "last": reward == 1 or said == "submit"}
"""


@pytest.mark.parametrize(
    "player", [pytest.param(p, marks=pytest.mark.slow if n else ()) for n, p in enumerate(RECORDED)], ids=" ".join
)
def test_recorded_runs_have_their_success_rate_to_the_row_in_the_recorded_environment(
    player: tuple[str, str], tmp_path: Path
) -> None:
    """The environment answers as it was recorded: the machine goes through the same turns and failures."""
    runs = {}
    for who, row, run in recorded("dev"):
        if who == player:  # a run that used up its turns was scored as it stood: submitted for the model
            turns = zip(run["actions"], run["rewards"], map(str, run["observations"]), strict=True)
            runs[row["id"]] = [*turns, ("submit", run["max_reward"], "")]
    (tmp_path / "record.json").write_text(json.dumps(runs), encoding="utf-8")
    (tmp_path / "record.py").write_text(RECORD_TOOL, encoding="utf-8")
    steps = [{"when": "error", "to": "error"}, {"when": {"outcome": {"last": True}}, "keep": "sql", "to": "end"}, "act"]
    state = {"run": f"python:{tmp_path}/record.py:step", "next": steps}
    node = {
        "signature": "question, tables -> sql",
        "arguments": {"run": "id"},
        "start": "act",
        "max_steps": 12,
        "states": {"act": state, "error": state},
    }
    _, found, outcomes = replay(node, player, tmp_path, lambda turn, action: f"{turn} {action}")
    success = [
        json.loads(o.trace.spans[-1].outputs["observation"].removeprefix("result: "))["reward"] == 1 for o in outcomes
    ]
    assert success == [run["max_reward"] == 1 for run in found] and sum(success) == RECORDED[player]
    for run, outcome in zip(found, outcomes, strict=True):
        failed = ["error" if str(o).startswith("Error") else "act" for o in run["observations"]]
        submits = (run["rewards"][-1] != 1 and run["actions"][-1].strip() != "submit") or failed[-1] == "error"
        assert outcome.trace.spans[0].notes["path"] == ["act", *failed][: len(failed) + submits]
