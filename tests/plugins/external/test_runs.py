"""Whole runs on agents that are not changed: they are observed, improved, resumed and proved as any workflow."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.external_agents import CLIENT, SORTER, SYSTEM, write_agent
from tests.helpers.forking import start_file
from tests.helpers.sqlite import connect

from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.study import make_optimizer
from workbench_testing.simulated import HELPFUL, SimulatedLM, SimulatedPool

ROOT = Path(__file__).parents[3]


def improve(path: Path, optimizer: Any, lm: SimulatedLM, *, again: bool = False) -> Report:
    settings: dict[str, Any] = {
        "database": path.parent / "run.db",
        "optimizers": [("checked", make_optimizer(optimizer))],
        "pool": SimulatedPool(lm),
        "options": Options(out=str(path.parent / "out.yaml"), allow_unproved=True, keep_unproved=True),
    }
    return resume("last", **settings) if again else optimize(path, **settings)


def written(path: Path) -> dict[str, Any]:
    """The settings of the agent in the result."""
    return yaml.safe_load((path.parent / "out.yaml").read_text(encoding="utf-8"))["nodes"]["agent"]


@pytest.mark.slow
def test_the_prompt_of_an_agent_is_found_and_improved_without_a_change_of_the_agent(tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER, rows=(12, 24, 40), budget=600)
    report = improve(path, {"rewrite": {"rounds": 4}}, SimulatedLM())
    slot = written(path)["slots"]["system"]
    assert slot["match"] == SYSTEM.replace("2026-11-23", "{{1}}") and HELPFUL in slot["text"]
    assert report.proved, report.lines()
    assert (tmp_path / "agent.py").read_text(encoding="utf-8") == SORTER


#: Asks for an answer of a form, as clients do for a Pydantic model.
STRUCTURED = f"""{CLIENT}
schema = {{"type": "object", "properties": {{"label": {{"type": "string", "description": "What the text is about."}}}}}}
form = {{"type": "json_schema", "json_schema": {{"name": "Ticket", "schema": schema}}}}
print(chat([{{"role": "user", "content": row["text"] + " label:"}}], temperature=0.5, response_format=form)["content"])
"""


class Reading(SimulatedLM):
    """Does better with a helpful description of the answer's field, and answers in that form."""

    def _answer(self, request: Any, question: str) -> str:
        if request.response_format is None or not question.rstrip().endswith("label:"):
            return super()._answer(request, question)
        told = {"role": "system", "content": str(request.response_format)}
        return json.dumps({"label": super()._answer(replace(request, messages=(told, *request.messages)), question)})


@pytest.mark.slow
def test_the_description_of_an_answers_field_is_found_and_improved(tmp_path: Path) -> None:
    path = write_agent(tmp_path, STRUCTURED, rows=(12, 24, 40), budget=600, output="json")
    report = improve(path, {"rewrite": {"rounds": 4}}, Reading())
    slots = written(path)["slots"]
    assert [*slots] == ["field_label"] and HELPFUL in slots["field_label"]["text"]
    assert report.proved, report.lines()


@pytest.mark.slow
def test_where_prompts_make_no_difference_no_gain_is_shown(tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER, rows=(12, 24, 24), budget=400)
    assert not improve(path, {"rewrite": {"rounds": 4}}, SimulatedLM(helps=False)).proved


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "kills"), [("0.5", (2, 5, 8, 7, 6)), ("0", (7,))])
def test_a_killed_run_pays_for_no_call_twice_and_ends_the_same(
    temperature: str, kills: tuple[int, ...], tmp_path: Path
) -> None:
    source = SORTER.replace("temperature=0.5", f"temperature={temperature}")
    for name in ("whole", "killed"):
        write_agent(tmp_path / name, source, rows=(6, 8, 8))
    assert run_to(tmp_path / "whole", None) == 0
    killed, asked = tmp_path / "killed", set[str]()
    for number, kill_at in enumerate((*kills, None)):
        recorded = recorded_keys(killed / "run.db") if number else set()
        assert run_to(killed, kill_at, again=number > 0) == (-signal.SIGKILL if kill_at else 0)
        now = asked_keys(killed) - asked
        assert not now & recorded, "a recorded call was paid again"
        asked |= now
    assert asked == asked_keys(tmp_path / "whole")
    whole_out, killed_out = ((tmp_path / name / "out.yaml").read_text() for name in ("whole", "killed"))
    assert whole_out.partition("name:")[2] == killed_out.partition("name:")[2]


def asked_keys(folder: Path) -> set[str]:
    """The keys of all requests to the model, by all processes."""
    return {key for log in folder.glob("keys_*.txt") for key in log.read_text().split()}


def recorded_keys(database: Path) -> set[str]:
    with closing(connect(database)) as found:
        return {key for (key,) in found.execute("select key from calls where kind = 'lm'")}


def run_to(folder: Path, kill_at: int | None, *, again: bool = False) -> int:
    """Run or resume in a process that is killed at the end of its `kill_at`-th answer. Returns its exit code."""
    return start_file("tests/helpers/external_run.py", str(folder), str(kill_at or 0), str(again)).wait(120)


#: Its prompt holds a number that differs each time, which no other run of it repeats.
RESTLESS = SORTER.replace("system = ", "import random\nsystem = str(random.random()) + ")


@pytest.mark.slow
def test_a_row_that_has_ended_is_not_run_again_though_its_agent_asks_otherwise_each_time(tmp_path: Path) -> None:
    write_agent(tmp_path, RESTLESS, rows=(4, 8, 8), temperature=0.5)
    assert run_to(tmp_path, 18) == -signal.SIGKILL
    ended, begun = (count_effects(tmp_path / "run.db", kind) for kind in ("external", "asked"))
    before = recorded_keys(tmp_path / "run.db")
    lm = SimulatedLM()
    report = improve(tmp_path / "workflow.yaml", {"rewrite": {"rounds": 1}}, lm, again=True)
    assert ended >= 8 and not before & {*lm.keys}
    said = any("asked otherwise than before" in line for line in report.warnings)
    assert said == (begun > ended), "of rows that the kill found between their request and their end"


def count_effects(database: Path, kind: str) -> int:
    with closing(connect(database)) as found:
        return found.execute("select count(*) from calls where kind = ?", (kind,)).fetchone()[0]


@pytest.mark.slow
def test_a_spent_budget_ends_the_row_and_the_run(tmp_path: Path) -> None:
    path = write_agent(tmp_path, RESTLESS, budget=20, rows=(4, 16, 8))
    lm = SimulatedLM()
    report = improve(path, {"rewrite": {"rounds": 1}}, lm)
    assert report.status == "budget" and 4 < lm.requests <= 20
    assert not any("asked otherwise" in line for line in report.warnings), "it ran but once"


SLOTS = {"system": {"in": "system", "match": SYSTEM, "text": SYSTEM}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        {"textgrad": {}},
        {"prompt_mcts": {}},
        {"bootstrap": {"nearest": False}},
        {"optuna": {"trials": 6}},
    ],
    ids=lambda optimizer: next(iter(optimizer)),
)
def test_optimizers_of_texts_and_demos_change_what_an_agent_sends(optimizer: dict[str, Any], tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER, rows=(8, 10, 4), budget=150, slots=SLOTS, calls=1)
    if "optuna" in optimizer:
        spec = json.loads(path.read_text(encoding="utf-8"))
        spec["search"] = {
            "nodes.agent.slots.system.text": [SYSTEM, f"Label it {HELPFUL}.", "Label it."],
            "nodes.agent.demos": {"demos": 4, "nearest": False},
        }
        path.write_text(json.dumps(spec), encoding="utf-8")
    lm = SimulatedLM()
    report = improve(path, optimizer, lm)
    assert report.status in ("finished", "budget"), report.lines()
    asked = {text.rpartition("\n")[0] for text in lm.messages if text.endswith("label:")}
    assert SYSTEM in asked and len(asked) > 1, "no candidate reached the model"
