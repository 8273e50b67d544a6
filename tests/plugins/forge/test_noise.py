"""What `forge` tells its proposer, and what it makes of a noisy task: no lucky batch wins, and a kill changes nothing.

No model is behind it: answers of the scripted agent and of the scripted proposer follow from the request alone.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import candidates, evaluations, lower_bound
from tests.helpers.scripted import Script
from tests.plugins.forge.test_forge import AGENT, GOOD, function, proposing, run, text_of, write
from tests.plugins.sandbox.test_sandbox import needs_kernel

from workbench import Workflow
from workbench.lm import Request, Response
from workbench.run import Options, optimize, resume
from workbench.study import Evaluation
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS
from workbench_forge.prompts import Failure, functions_task, refused
from workbench_testing import Killed

pytestmark = needs_kernel
END = '{"action": "terminate"}'


def proposer_asked(request: Request) -> bool:
    return "You improve the tools of an agent" in text_of(request)


def revised(name: str, body: str, result: int) -> str:
    return json.dumps({**json.loads(function(name, body, result)), "action": "revise"})


# What the proposer is told


@pytest.mark.slow
def test_lists_that_failed_are_shown_with_the_code_that_differs(tmp_path: Path) -> None:
    other = function("other", "return 5", 5)
    answers = [
        GOOD,
        other,
        revised("vowels", "return 7", 7),
        END,
        json.dumps({"action": "remove", "name": "vowels"}),
        END,
    ]
    # The agent takes the newest function, so that a list is worth what its last one is.
    swapped = [other, GOOD, *answers[2:]]
    _, script = run(tmp_path, AGENT, proposing(swapped), {"forge": {"steps": 4, "batch": 8}}, EDITS=2)
    last = text_of([r for r in script.requests if proposer_asked(r)][-1])
    now, tried = last.split("Lists that were tried and not kept, and how they differ from the best one:\n")
    assert now.count("### ") == 2 and "sum(c in 'aeiou' for c in text)" in now
    lines = tried.split("\n\n")[0].splitlines()
    assert "revised vowels: counts" in lines and "    return 7" in lines and "removed vowels" in lines
    assert sum(line.startswith("- 0.") and line.endswith("where the best list had 1.00:") for line in lines) == 2
    assert "return 5" not in tried and "aeiou" not in tried, "what is as in the best list is not shown again"


def big(name: str, size: int = 7000) -> dict[str, Any]:
    return {"name": name, "description": "", "source": f"def {name}(text):\n    return 0\n# {'x' * size}"}


@pytest.mark.slow
@pytest.mark.parametrize("shown", [1000, 6000])
def test_a_prompt_holds_no_more_than_shown(shown: int, tmp_path: Path) -> None:
    """Big functions at the start, big ones that fail, and big answers that cannot be used."""
    nodes = {"solve": {**AGENT["solve"], "functions": [big(f"first{i}") for i in range(4)]}}
    answers = []
    for i in range(6):
        bad = {**json.loads(function(f"bad{i}", "return 99", 99)), "description": "d" * 400}
        answers += [f"nonsense {'n' * 3000}", json.dumps(bad | {"source": bad["source"] + f"\n# {'y' * 6000}"}), END]
    _, script = run(
        tmp_path,
        nodes,
        proposing(answers),
        {"forge": {"steps": 6, "patience": 6, "batch": 8}},
        EDITS=2,
        CHARS=shown,
    )
    asked = [r for r in script.requests if proposer_asked(r)]
    assert len(asked) == 18 and sum(len(r.messages) > 2 for r in asked) == 6
    for request in asked:
        task = str(request.messages[1]["content"])
        assert len(task) <= shown + 300, "the headings have less than 300 characters"
        assert all(f"### first{i}" in task for i in range(4)) and task.count("- score 0.") >= 1
        assert sum(len(str(m["content"])) for m in request.messages[2:]) <= shown
    assert text_of(asked[-1]).count("added bad") == 5, "all failures of five rounds"


def test_short_functions_are_whole_beside_a_long_one() -> None:
    small = {"name": "small", "description": "", "source": "def small(text):\n    return 1"}
    before: Any = Evaluation(Workflow({}), "train", (), True)
    task = functions_task([big("a"), small], [small], before, [Failure([big("b"), small], 0.1, 0.6)], 0, 3, 1000)
    assert small["source"] in task and "### a: \ndef a(text):" in task and task.count("return 1") == 1
    assert "- 0.10, where the best list had 0.60:\nadded b: \ndef b(text):" in task and len(task) < 1300


def test_of_answers_that_could_not_be_used_the_newest_are_kept() -> None:
    said = [(f"answer {i} " + "z" * 400, f"reason {i}") for i in range(5)]
    shown = refused(said, 9, 1000)
    assert [m["role"] for m in shown] == ["assistant", "user"] * 2
    assert "reason 3" in shown[1]["content"] and "reason 4" in shown[3]["content"]
    assert refused([("same", "same")], 9, 1000) != refused([("same", "same")] * 2, 9, 1000)[2:], (
        "or it is not asked anew"
    )
    long = refused([("z" * 9000, "w" * 9000)], 3, 1000)
    assert sum(len(m["content"]) for m in long) <= 1000 and long[1]["content"].endswith("1 of 3 tries are used up.")


# Rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "patience", "rounds"),
    [([], 2, 2), ([END, GOOD, END], 2, 4), ([function("bad", "return 99", 99), END] * 8, 3, 3), ([], 8, 8)],
)
def test_it_ends_after_so_many_rounds_without_success(
    answers: list[str], patience: int, rounds: int, tmp_path: Path
) -> None:
    settings = {"steps": 8, "batch": 8, "patience": patience}
    _, script = run(tmp_path, AGENT, proposing(answers), {"forge": settings}, EDITS=2)
    assert sum("Edit 1 of at most 2" in text_of(r) for r in script.requests) == rounds


# Noise


SKILL, WORSE, BETTER = 0.5, 0.2, 0.95


def noisy(good: float) -> Any:
    """An agent that is right by chance: less often with a bad function, more often with a good one. Of what the
    proposer adds the share `good` is good. All follows from the request."""

    def say(request: Request) -> str:
        draw = random.Random(request.key("noisy"))
        if proposer_asked(request):
            kind = "good" if draw.random() < good else "bad"
            return function(f"{kind}_{draw.randrange(1000)}", "return 0", 0)
        word = str(request.messages[-1]["content"]).split("text: ")[1].split("\n")[0]
        told = str(request.messages[0]["content"])
        skill = WORSE if "- bad_" in told else BETTER if "- good_" in told else SKILL
        return f"answer: {sum(c in 'aeiou' for c in word) + (draw.random() >= skill)}"

    return say


NOISY = {"forge": {"steps": 10, "patience": 10, "batch": 2}}


@pytest.mark.slow
def test_a_lucky_batch_does_not_enthrone_bad_functions(tmp_path: Path) -> None:
    lucky = claimed = 0
    for seed in range(6):
        report, _ = run(tmp_path / str(seed), AGENT, noisy(0.0), NOISY, calls=3000, seed=seed, rows=(40, 80, 60))
        assert not report.winner.get("nodes.solve.functions", []), seed
        lucky += len(evaluations(tmp_path / str(seed))) - 1  # of the start
        claimed += report.gain_shown
    assert lucky >= 3 and claimed == 0, "of such small batches some were won by bad functions"


@pytest.mark.slow
def test_good_functions_are_found_among_bad_ones_in_spite_of_the_noise(tmp_path: Path) -> None:
    """The other side: a gate that lets nothing through would pass the test above."""
    found = 0
    for seed in range(4):
        report, _ = run(tmp_path / str(seed), AGENT, noisy(0.5), NOISY, calls=3000, seed=seed, rows=(40, 80, 60))
        names = [f["name"] for f in report.winner.get("nodes.solve.functions", [])]
        assert not any(n.startswith("bad") for n in names)
        found += bool(names)
    assert found >= 3


# Promises, where there is an agent node


class Killing(Script):
    """Raises Killed at a request; keeps the keys of those that were answered."""

    def __init__(self, say: Any, kill_at: int | None = None):
        super().__init__(say)
        self.kill_at, self.keys = kill_at, list[str]()

    async def complete(self, request: Request) -> Response:
        if self.kill_at is not None and len(self.requests) + 1 >= self.kill_at:
            raise Killed
        self.keys.append(request.key("scripted"))
        return await super().complete(request)


def forged(folder: Path, kill_at: int | None = None, again: bool = False) -> tuple[Any, Killing]:
    script = Killing(noisy(0.5), kill_at)
    settings: dict[str, Any] = {
        "database": folder / "run.db",
        "pool": script,
        "options": Options(out=str(folder / "out.yaml")),
    }
    file = write(folder, AGENT, NOISY, 900, 1, (40, 40, 40))
    return (resume("last", **settings) if again else optimize(file, **settings)), script


@pytest.mark.slow
def test_the_same_seed_gives_the_same_functions(tmp_path: Path) -> None:
    (one, first), (two, second) = forged(tmp_path / "one"), forged(tmp_path / "two")
    assert one.winner == two.winner and one.winner.get("nodes.solve.functions")
    assert candidates(tmp_path / "one") == candidates(tmp_path / "two") and sorted(first.keys) == sorted(second.keys)


@pytest.mark.slow
def test_killed_anywhere_and_resumed_it_ends_with_the_same_functions(tmp_path: Path) -> None:
    whole, script = forged(tmp_path / "whole")
    tried = candidates(tmp_path / "whole")
    assert whole.status == "finished" and len(tried) > 3, "or there is nothing to compare"
    proposals = [i for i, r in enumerate(script.requests, 1) if proposer_asked(r)]
    for kill_at in (1, 2, proposals[0], proposals[0] + 1, proposals[3], proposals[-1] + 1, len(script.requests) - 1):
        folder = tmp_path / str(kill_at)
        with suppress(Killed, BaseExceptionGroup):
            forged(folder, kill_at)
            raise AssertionError("it was not killed")
        report, rest = forged(folder, again=True)
        assert report.winner == whole.winner and candidates(folder) == tried, f"killed at {kill_at}"
        assert len(rest.requests) + kill_at - 1 <= len(script.requests) + script.concurrency


# Simulated worlds: the proposer and the agent are formulas, the functions are real Python


@pytest.mark.long
@pytest.mark.slow
def test_in_a_world_of_functions_it_beats_random_search() -> None:
    """With patience enough to use the calls up. Its defaults end sooner: figures of them in docs/benchmarks.md."""
    rows, forge = {"train": 48, "val": 24, "test": 20}, {"forge": {"steps": 12, "patience": 6}}
    found = [
        [run_world(WORLDS["functions"], o, calls=700, seed=s, rows=rows) for o in (forge, "random")] for s in range(6)
    ]
    assert all(r.error is None and r.calls <= 700 for pair in found for r in pair)
    assert lower_bound([f.accuracy - r.accuracy for f, r in found]) > 0, found


@pytest.mark.slow
def test_where_no_function_helps_no_gain_is_claimed() -> None:
    found = [run_world(WORLDS["null_functions"], "forge", calls=400, seed=s) for s in range(3)]
    assert all(r.error is None and r.proposer["calls"] > 0 for r in found)
    assert not any(r.claimed for r in found) and all(r.accuracy >= 0.5 for r in found), found
