"""`workbench data synthesize` keeps what passes all checks, counts each rejection, and holds budget and journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import LMError, SpecError
from workbench.lm import Request
from workbench_synthesize.distinct import Duplicates
from workbench_synthesize.seeds import Seed, Seeds
from workbench_synthesize.synthesize import Found, synthesize, write_rows

DOCUMENTS = [{"document": f"In town {name} lives {name}a."} for name in ("bo", "cy", "di")]
FILE: dict[str, Any] = {
    "name": "towns",
    "lm": {"model": "openai/scripted", "attempts": 1, "temperature": 1.0},
    "synthesize": {"from": "documents.jsonl", "rows": 6},
    "nodes": {"write": {"predict": "document -> written: list[dict]", "instructions": "Write questions."}},
    "explode": {"written": ["question", "answer"]},
    "each": {"again": {"predict": "document, question -> answer_again", "instructions": "Answer."}},
    "keep": ["answer_again != 'unknown'", "exact_match(answer_again, target=answer)"],
    "distinct": "question",
    "concurrency": 2,
    "budget": {"calls": 100},
}


def write(folder: Path, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DOCUMENTS))
    (folder / "file.yaml").write_text(json.dumps({k: v for k, v in {**FILE, **settings}.items() if v is not None}))
    return folder / "file.yaml"


def shown(request: Request, field: str) -> str:
    lines = str(request.messages[-1]["content"]).splitlines()
    return next((line.removeprefix(f"{field}: ") for line in lines if line.startswith(f"{field}: ")), "")


def say(request: Request) -> str:
    """Of each document a right row, one with a wrong answer, one that the document does not answer, one without an
    answer, and the right one again. What is said depends on the request alone."""
    document, n = shown(request, "document"), request.replica
    who = document.split()[-1].rstrip(".")
    if "Answer." in str(request.messages[0]["content"]):
        return "unknown" if "weather" in shown(request, "question") else who
    right = {"question": f"who lives there {who} x{who}{n} y{who}{n}", "answer": who}
    wrong = {"question": f"name the inhabitant {who}{n} z{who}{n} w{who}{n}", "answer": "nobody"}
    beyond = {"question": f"how is weather {who}{n} v{who}{n} u{who}{n}", "answer": "wet"}
    return json.dumps([right, wrong, beyond, {"question": "lacks"}, right])


def test_only_right_rows_are_kept_and_each_rejection_has_its_reason(tmp_path: Path) -> None:
    found = synthesize(write(tmp_path), database=str(tmp_path / "a.db"), pool=Script(say))
    assert found.status == "finished" and len(found.rows) == 6 == found.requests
    assert all(row["answer"] in row["question"] and row["answer"] in row["document"] for row in found.rows)
    assert {row["source"]["seed"] for row in found.rows} == {"0", "1", "2"}, "each seed has its turn"
    assert found.rejected == {
        "explode": 6,
        "duplicate": 6,
        "keep: answer_again != 'unknown'": 6,
        "keep: exact_match(answer_again, target=answer)": 6,
    }
    assert "nobody" in found.examples["keep: exact_match(answer_again, target=answer)"]
    assert "written" not in found.rows[0] and found.rows[0]["id"].startswith("towns-")
    assert found.spent["calls"] == 6 + 3 * 6, "a duplicate and what lacks a field are not asked about"


def test_without_a_number_of_rows_each_seed_is_asked_once(tmp_path: Path) -> None:
    settings = {"from": "documents.jsonl", "fields": ["question"]}
    found = synthesize(write(tmp_path, synthesize=settings), database=str(tmp_path / "a.db"), pool=Script(say))
    assert found.requests == 3 and [set(row) for row in found.rows] == [{"id", "question", "source"}] * 3


def test_without_explode_a_seed_makes_one_row(tmp_path: Path) -> None:
    nodes = {"write": {"predict": "document -> question, answer"}}
    script = Script(lambda r: f"question: who is in {shown(r, 'document')}\nanswer: {shown(r, 'document')[-5:-1]}")
    path = write(tmp_path, nodes=nodes, explode=None, each=None, keep=None, synthesize="documents.jsonl")
    assert len(synthesize(path, database=str(tmp_path / "a.db"), pool=script).rows) == 3
    both = {"nodes": nodes, "explode": None}
    with pytest.raises(SpecError, match="without explode there is one row"):
        synthesize(write(tmp_path, **both), database=str(tmp_path / "b.db"), pool=script)


def test_lists_of_one_length_become_rows_together(tmp_path: Path) -> None:
    nodes = {"write": {"predict": "document -> asked: list[str], said: list[str]"}}
    lists = ['asked: ["a b", "c d"]\nsaid: ["1", "2"]', 'asked: ["e f"]\nsaid: []', 'asked: ["g h"]\nsaid: ["4"]']
    script = Script(lambda request: lists[len(script.requests) - 1])
    explode = {"asked": "question", "said": "answer"}
    settings = {"nodes": nodes, "explode": explode, "each": None, "keep": None, "concurrency": 1}
    path = write(tmp_path, synthesize="documents.jsonl", **settings)
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=script)
    assert [(row["question"], row["answer"]) for row in found.rows] == [("a b", "1"), ("c d", "2"), ("g h", "4")]
    assert found.rejected == {"explode": 1} and "different lengths: 1, 0" in found.examples["explode"]


@pytest.mark.parametrize("calls", [1, 2, 7])
def test_the_budget_is_a_ceiling_and_what_was_found_is_kept(tmp_path: Path, calls: int) -> None:
    script = Script(say)
    path = write(tmp_path, budget={"calls": calls}, concurrency=1)
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=script)
    assert found.status == "budget" and len(script.requests) == calls == found.spent["calls"]
    assert len(found.rows) == (calls + 2) // 4


def test_a_silent_server_ends_it_and_a_model_that_repeats_itself_too(tmp_path: Path) -> None:
    def silent(request: Request) -> str:
        raise LMError("server", "gone")

    found = synthesize(write(tmp_path), database=str(tmp_path / "a.db"), pool=Script(silent))
    assert found.status == "unanswered" and not found.rows and 8 <= found.rejected["unanswered"] <= 10

    cold = write(tmp_path / "cold", lm={"model": "openai/scripted"}, keep=["answer == 'x'"])
    script = Script(say)
    found = synthesize(cold, database=str(tmp_path / "b.db"), pool=script)
    assert found.status == "exhausted" and found.requests == 6 and len(script.requests) == 3 + 3 * 3


def test_the_policy_of_an_inner_workflow_holds(tmp_path: Path) -> None:
    (tmp_path / "send.py").write_text("def send(to: str) -> str:\n    return 'sent'\n")
    inner = {"nodes": {"a": {"tool": "python:send.py:send", "arguments": {"to": "document"}, "output": "sent"}}}
    inner |= {"policy": {"rules": [{"deny": "send"}]}}
    (tmp_path / "inner.yaml").write_text(json.dumps(inner))
    settings: dict[str, Any] = dict.fromkeys(("explode", "each", "keep", "distinct"))
    path = write(tmp_path, nodes={"w": {"workflow": "inner.yaml"}}, synthesize="documents.jsonl", **settings)
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=Script(say))
    assert not found.rows and found.rejected == {"policy": 3}, found.examples


def test_a_metric_that_raises_refuses_the_row(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def own(example, prediction, trace):\n    raise KeyError('x')\n")
    path = write(tmp_path, keep=["python:own.py:own"], synthesize="documents.jsonl")
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=Script(say))
    assert not found.rows and found.rejected["keep: python:own.py:own"] == 9
    assert found.examples["keep: python:own.py:own"] == "KeyError: 'x'"


def test_a_judge_is_paid_under_its_role(tmp_path: Path) -> None:
    def graded(request: Request) -> str:
        system = str(request.messages[0]["content"])
        if "You grade" not in system:
            return say(request)
        return f"score: {int('nobody' not in str(request.messages))}"

    keep = [{"judge": {"rubric": "The answer is right.", "scale": 1}}]
    path = write(tmp_path, keep=keep, synthesize="documents.jsonl", each=None)
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=Script(graded))
    assert {row["answer"] for row in found.rows} == {"boa", "cya", "dia", "wet"}
    assert found.rejected["keep: judge"] == 3 and found.spent["by_role"]["judge"]["calls"] == 9


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.helpers.scripted import Script
from tests.plugins.synthesize.test_synthesize import say
from workbench_synthesize.synthesize import synthesize
def dies(request):
    if len(script.requests) > {after}:
        os._exit(9)
    return say(request)
script = Script(dies)
synthesize(Path({path!r}), database={db!r}, pool=script)
"""


def test_killed_and_begun_again_it_ends_with_the_same_rows_and_pays_nothing_twice(tmp_path: Path) -> None:
    path, db = write(tmp_path, concurrency=1), str(tmp_path / "killed.db")
    whole = synthesize(path, database=str(tmp_path / "whole.db"), pool=Script(say))
    code = KILLED.format(root=str(Path(__file__).parents[3]), path=str(path), db=db, after=7)
    done = subprocess.run([sys.executable, "-c", code], timeout=200, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 9
    script = Script(say)
    again = synthesize(path, database=db, pool=script)
    assert again.rows == whole.rows and again.rejected == whole.rejected and again.status == "finished"
    assert len(script.requests) == whole.spent["calls"] - 7 and again.spent["unknown"] == 1
    after = synthesize(path, database=db, pool=Script(say))  # it had ended: the same command begins a new one
    assert after.rows == whole.rows and after.spent["calls"] == whole.spent["calls"]


def test_rows_that_cannot_be_written_are_not_paid_for_again(tmp_path: Path) -> None:
    path, db, script = write(tmp_path), str(tmp_path / "a.db"), Script(say)
    with pytest.raises(IsADirectoryError):
        synthesize(path, database=db, pool=script, out=tmp_path)
    paid = len(script.requests)
    found = synthesize(path, database=db, pool=script, out=tmp_path / "rows.jsonl")
    assert len(script.requests) == paid > 0
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == found.rows
    write_rows([{"question": "half a pair: \ud83d"}], tmp_path / "odd.jsonl")
    assert (tmp_path / "odd.jsonl").exists()


def test_seeds_are_dealt_by_their_weights_and_with_others_beside_them() -> None:
    seeds = Seeds([Seed("a", {"x": 1}, 1.0), Seed("b", {"x": 2}, 0.5), Seed("c", {"x": 3}, 1.0)], 1, 0)
    dealt = [seeds.deal() for _ in range(10)]
    assert [sum(seed.id == name for seed, _, _ in dealt) for name in "abc"] == [4, 2, 4]
    assert len({row.id for _, row, _ in dealt}) == 10
    assert all(
        len(row.fields["beside"]) == 1 and row.fields["x"] != row.fields["beside"][0]["x"] for _, row, _ in dealt
    )
    assert len({row.fields["beside"][0]["x"] for seed, row, _ in dealt if seed.id == "a"}) == 2, "drawn anew"
    again = Seeds([Seed("a", {"x": 1}, 1.0), Seed("b", {"x": 2}, 0.5), Seed("c", {"x": 3}, 1.0)], 1, 0)
    assert [row.fields for _, row, _ in dealt] == [again.deal()[1].fields for _ in range(10)]


def test_texts_are_alike_by_their_words_and_values_if_they_are_equal() -> None:
    duplicates = Duplicates({"question": 0.7, "calls": 1.0})
    duplicates.keep({"question": "who built the old tower here", "calls": [{"name": "a"}]})
    assert duplicates.find({"question": "Who built the old tower?"}) == "question"
    assert duplicates.find({"question": "who built it", "calls": [{"name": "a"}]}) == "calls"
    assert duplicates.find({"question": "who built it", "calls": []}) is None
    assert duplicates.find({"question": "who built it", "calls": [{"name": "b"}]}) is None
    exact = Duplicates({"task": 1.0})
    exact.keep({"task": "from a to b"})
    assert exact.find({"task": "from b to a"}) is None and exact.find({"task": "from a to b"}) == "task"
    refused = {"question": "a", "calls": 1}
    assert not duplicates.repeats(refused) and duplicates.repeats(refused) and not duplicates.repeats({"question": "b"})
    assert not any(duplicates.repeats({"part": n}) for n in range(3)), "what `each` is still to write is not compared"


@pytest.mark.parametrize(
    ("settings", "message", "line"),
    [
        ({"synthesize": {"from": "none.jsonl"}}, "there is no file", True),
        ({"synthesize": {"rows": 3}}, "give either from", True),
        ({"synthesize": {"run": "x"}}, "write as: failures, or as: trajectories", True),
        ({"synthesize": {"from": "x.jsonl", "as": "failures"}}, "give run in place of from", True),
        ({"metric": "exact_match(a)"}, "has no 'metric'", True),
        ({"explode": {"asked": "question"}}, "explode names 'asked', which no node writes", True),
        ({"keep": ["question +"]}, "cannot read the condition", True),
        ({"keep": ["exact_mach(question)"]}, "exact_mach", True),
        ({"each": {"a": {"predikt": "x -> y"}}}, "no node kind is named here", True),
        ({"nodes": {"write": {"predict": "letter -> written: list[dict]"}}}, "'letter', which no seed has", True),
        ({"each": {"again": {"predict": "letter -> answer_again"}}}, "'letter', which", True),
        ({"keep": ["verdikt == 'yes'"]}, "keep reads 'verdikt'", True),
        ({"keep": ["exact_match(answer)"]}, "keep compares 'answer' with itself", True),
        ({"keep": ["checklist(answer)"]}, "keep reads 'checks'", True),
        ({"explode": {"written": []}}, "explode", True),
        ({"distinct": {"question": 3}}, "less than or equal to 1", True),
        ({"distinct": "verdikt"}, "distinct names 'verdikt'", True),
        ({"synthesize": {"from": "documents.jsonl", "fields": ["verdikt"]}}, "fields names 'verdikt'", True),
    ],
)
def test_what_is_wrong_with_the_file_is_said_before_a_call(
    tmp_path: Path, settings: Any, message: str, line: bool
) -> None:
    script = Script(say)
    with pytest.raises(SpecError, match=message) as raised:
        synthesize(write(tmp_path, **settings), database=str(tmp_path / "a.db"), pool=script)
    assert not script.requests and ((raised.value.line or 0) > 0) == line


@pytest.mark.parametrize("seeds", ["documents.jsonl", {"from": "jsonl:documents.jsonl"}])
def test_the_seeds_are_never_replaced_by_the_rows(tmp_path: Path, seeds: Any) -> None:
    path, out = write(tmp_path, lm="bundled/nano", synthesize=seeds), tmp_path / "documents.jsonl"
    before, args = out.read_text(), ["--out", str(out), "--overwrite", "--db", str(tmp_path / "a.db")]
    found = CliRunner().invoke(cli, ["data", "synthesize", str(path), *args])
    assert "is read by this command" in str(found.exception) and out.read_text() == before


def test_the_command_writes_rows_of_the_bundled_model_or_ends_with_1(tmp_path: Path) -> None:
    nodes = {"write": {"predict": "document -> question"}}
    lax = {"lm": "bundled/nano", "nodes": nodes, "explode": None, "each": None, "keep": None, "distinct": None}
    path, out = write(tmp_path, **lax), tmp_path / "rows.jsonl"
    args = ["data", "synthesize", str(path), "--out", str(out), "--db", str(tmp_path / "a.db"), "--rows", "2"]
    found = CliRunner().invoke(cli, args)
    assert found.exit_code == 0 and "2 rows in" in found.output and len(out.read_text().splitlines()) == 2
    strict = write(tmp_path, **{**lax, "keep": ["question == 'never said'"]})
    again = CliRunner().invoke(cli, [*args, "--overwrite", "--json"])
    assert strict == path and again.exit_code == 1 and len(out.read_text().splitlines()) == 2
    said = json.loads(again.stdout.splitlines()[-1])
    assert said["rows"] == 0 and said["rejected"]["keep: question == 'never said'"] == 6, "two passes"
    assert isinstance(synthesize(path, database=str(tmp_path / "b.db"), changes={"budget.calls": 1}), Found)
