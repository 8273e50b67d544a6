"""What is inside `loop` and `map` is seen by optimizers, attribution, estimate and bundle as any other node is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.helpers.scripted import Script, make_workflow
from tests.kit.credit.test_steps import run_repaired

from workbench.cli import cli
from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.run import Options, optimize, prepare
from workbench.task import find_defects
from workbench_kit.credit import Repair

COUNT = {"predict": "word, total -> total: int", "instructions": "Add the vowels of the word."}
FOLD: dict[str, Any] = {
    "split": {"code": "text -> words: list[str]", "source": "def split(text): return text.split()"},
    "count": {"loop": COUNT, "over": "words", "as": "word", "rounds": 4, "carry": {"total": 0}},
    "answer": {"code": "total: int -> answer: int", "source": "def answer(total): return total"},
}
#: The same with a program and a map, two levels deep.
DEEP: dict[str, Any] = {
    "split": FOLD["split"],
    "count": {
        "kind": "map",
        "over": "words",
        "as": "word",
        "gather": {"counts": "vowels"},
        "max_items": 4,
        "nodes": {
            "try": {
                "loop": {"code": "word -> vowels: int", "source": "def count(word): return 0"},
                "rounds": 2,
                "until": "vowels >= 0",
            }
        },
    },
    "answer": {"code": "counts: list[int] -> answer: int", "source": "def answer(counts): return sum(counts)"},
}


def vowels(text: str) -> int:
    return sum(c in "aeiou" for c in text)


def write(folder: Path, nodes: dict[str, Any], optimizer: Any) -> Path:
    """Count the vowels of a few words."""
    words = ["ab io", "cde", "oui bad a", "ee x", "iou", "dab cab", "aaa bb e", "b oo", "ace", "u u", "bcd e", "io io"]
    rows = [{"text": text, "answer": vowels(text)} for text in words]
    for name, part in (("train", rows[:4]), ("val", rows[4:8]), ("test", rows[8:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    raw = {
        "name": "planted",
        "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
        "data": {n: f"{n}.jsonl" for n in ("train", "val", "test")},
        "metric": "numeric(answer)",
        "nodes": nodes,
        "optimize": [optimizer],
        "budget": {"calls": 2000},
    }
    (folder / "workflow.yaml").write_text(json.dumps(raw))
    return folder / "workflow.yaml"


def found(folder: Path, nodes: dict[str, Any], optimizer: Any, say: Any) -> Report:
    options = Options(out=str(folder / "out.yaml"), allow_unproved=True)
    return optimize(write(folder, nodes, optimizer), database=folder / "run.db", pool=Script(say), options=options)


def last(request: Request, field: str) -> str:
    lines = str(request.messages[-1]["content"]).splitlines()
    return next((line.removeprefix(f"{field}: ") for line in lines if line.startswith(f"{field}: ")), "")


def test_demos_of_a_round_reach_the_node_inside_a_loop(tmp_path: Path) -> None:
    """Without demos the model counts right only words of two vowels."""

    def say(request: Request) -> str:
        word, taught = last(request, "word"), len(request.messages) > 2
        return str(int(last(request, "total")) + (vowels(word) if taught or vowels(word) == 2 else 0))

    report = found(tmp_path, FOLD, "bootstrap", say)
    demos = report.winner.get("nodes.count.of.demos")
    assert demos and all({"word", "total"} <= demo.keys() for demo in demos)
    assert report.best["val"] == 1.0 > report.baseline["val"]


def test_a_program_inside_a_loop_inside_a_map_is_forged(tmp_path: Path) -> None:
    right = "def count(word):\n    return sum(c in 'aeiou' for c in word)"
    report = found(tmp_path, DEEP, {"forge": {"samples": 2}}, lambda request: f"```python\n{right}\n```")
    address = "nodes.count.nodes.try.of.source"
    assert report.winner.get(address) == right and report.best["val"] == 1.0


def test_a_repair_reaches_one_round_and_one_item(tmp_path: Path) -> None:
    say = Script(lambda request: str(int(last(request, "total")) + 1))

    def second(steps: list[Any]) -> dict[Any, Repair]:
        asked = [step for step in steps if step.node == "count.of"]
        assert [step.text for step in asked] == ["1", "2", "3"] and len({s.address for s in asked}) == 3
        return {asked[1].address: Repair(response=Response("40", "stop", 0, 0))}

    _, again = run_repaired(make_workflow(FOLD, tmp_path), say, tmp_path / "a.db", second, {"text": "a b c"})
    assert again.prediction["answer"] == 41

    def third(steps: list[Any]) -> dict[Any, Repair]:
        inner = [step for step in steps if step.node == "count.nodes.try.of"]
        return {inner[2].address: Repair(outputs={"vowels": 7})}

    _, again = run_repaired(make_workflow(DEEP, tmp_path), say, tmp_path / "b.db", third, {"text": "a b c"})
    assert again.prediction["counts"] == [0, 0, 7]


def test_the_estimate_counts_the_most_rounds_and_a_bundle_holds_what_is_inside(tmp_path: Path) -> None:
    file = write(tmp_path, FOLD, "random")
    asked = CliRunner().invoke(cli, ["estimate", str(file)])
    assert "At most 4 call(s) per example" in asked.output, asked.output
    away = tmp_path / "away"
    made = CliRunner().invoke(cli, ["export", str(file), "--format", "bundle", "--out", str(away)])
    assert made.exit_code == 0, made.output
    (inside,) = [path for path in away.rglob("*.yaml") if "loop" in path.read_text()]
    assert "over: words" in inside.read_text()


def test_a_defect_inside_is_found_with_its_place(tmp_path: Path) -> None:
    nodes = {**FOLD, "count": {**FOLD["count"], "until": "total == 'ten'"}}
    verdict = {"loop": {"predict": "text -> answer: int, ok: bool"}, "until": "ok == 'never'"}
    assert find_defects(prepare(write(tmp_path, nodes, "random"))[2]) == []
    (defect,) = find_defects(prepare(write(tmp_path, {"n": verdict}, "random"))[2])
    assert defect.kind == "no_end" and defect.path == ("nodes", "n", "until")
