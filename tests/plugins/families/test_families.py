"""The optimizer `families` on planted problems whose optimum is known (a formula answers, no model)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, candidates, demos_of, lower_bound, plant, topic, true_skill
from tests.helpers.scripted import make_workflow

from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.run import Options, resume
from workbench_bench.worlds import WORLDS, asks_to_reason, has_dspys_form
from workbench_families.kinds import find_settings
from workbench_kit.prompting import Proposer
from workbench_testing import Killed

#: The same choices under `search:`, for those that read it.
SPACE = {**WORLDS["kinds"].search, "nodes.sort.samples": [1, 3]}
#: Reasoning and examples pay, each by itself, and together most: 0.74. And: reasoning pays alone and harms beside
#: examples, which pay more: 0.8.
joint, rival = WORLDS["kinds"].skill, WORLDS["rivals"].skill


def formed(request: Request) -> float:
    """One of four forms of the prompt pays most, whatever else is there: 0.86."""
    return 0.35 + 0.35 * has_dspys_form(request) + 0.02 * min(len(demos_of(request)), 8)


def relevant(request: Request) -> float:
    """Only examples on the topic of the input pay, and all else harms: 0.76."""
    demos, wanted = demos_of(request), topic(str(request.messages[-1]["content"]))
    shown = 0.02 * min(len(demos), 8) + 0.15 * min(sum(topic(d) == wanted for d in demos), 2)
    return 0.3 + shown - 0.1 * has_dspys_form(request) - 0.1 * asks_to_reason(request)


def many(request: Request) -> float:
    return {0: 0.1, 8: 0.3, 16: 0.5, 32: 0.7}.get(len(demos_of(request)), 0.0)


def plant_heard(folder: Path, skill: Callable[[Request], float], calls: int, **more: Any) -> tuple[Report, str]:
    """The report, and what the optimizer said."""
    said = list[str]()

    def listen(event: str, data: Mapping[str, Any]) -> None:
        if event == "optimizer_told":
            said.append(data["message"])

    settings = {"families": more.pop("settings", {})}
    report, _ = plant(folder, skill, settings, calls=calls, given={"listener": listen}, **more)
    return report, "\n".join(said)


@pytest.mark.slow
@pytest.mark.parametrize("skill", [joint, rival])
def test_it_beats_random_search_of_the_same_choices(skill: Callable[[Request], float], tmp_path: Path) -> None:
    differences = []
    for seed in range(6):
        reached = dict[str, float]()
        for name, more in (("random", {"search": SPACE}), ("families", {})):
            optimizer = {name: {"trials": 200}} if more else name
            report, _ = plant(tmp_path / f"{name}{seed}", skill, optimizer, calls=600, seed=seed, **more)
            reached[name] = true_skill(report, skill, seed)
        differences.append(reached["families"] - reached["random"])
    assert statistics.mean(differences) > 0.05 and lower_bound(differences) > 0, differences


@pytest.mark.parametrize(
    ("skill", "least"),
    [(joint, 0.7), (rival, 0.75), (formed, 0.76), (relevant, 0.72), (many, 0.5)],
    ids=["joint", "rival", "formed", "relevant", "many"],
)
def test_it_finds_what_pays_alone_and_together(skill: Callable[[Request], float], least: float, tmp_path: Path) -> None:
    """Votes pay, too, which the formula does not count."""
    report, _ = plant(tmp_path, skill, {"families": {}}, calls=1600, rows=(40, 60, 60))
    assert report.gain_shown and true_skill(report, skill, 0) >= least - 1e-9


def test_where_nothing_pays_nothing_is_claimed(tmp_path: Path) -> None:
    """At chance, so that a vote does not pay, either."""
    shown = [plant(tmp_path / str(n), lambda r: 0.25, {"families": {}}, calls=500, seed=n)[0] for n in range(6)]
    assert sum(report.gain_shown for report in shown) <= 1  # of twenty one by chance


def test_a_kind_that_is_clearly_worse_is_left_and_its_other_options_are_not_tried(tmp_path: Path) -> None:
    seen: list[str] = []

    def skill(request: Request) -> float:
        system = str(request.messages[0]["content"])
        seen.append("json" if "JSON object" in system else "chat" if has_dspys_form(request) else "plain")
        return 0.9 if seen[-1] == "plain" else 0.1

    _, said = plant_heard(tmp_path, skill, 700)
    assert 8 <= seen.count("chat") <= 16 and "json" not in seen
    assert "adapter chat -0." in said and "adapter json" not in said


def test_examples_that_are_clearly_worse_are_not_shown_again(tmp_path: Path) -> None:
    _, said = plant_heard(tmp_path, lambda r: 0.1 if demos_of(r) or asks_to_reason(r) else 0.8, 700)
    assert said.count("dropped") >= 2 and "examples labelled -0." in said
    assert sum("nodes.sort.demos" in one for one in candidates(tmp_path)) == 2


def test_an_option_that_changes_no_request_is_dropped(tmp_path: Path) -> None:
    """The signature asks for reasoning already, so that the setting does nothing."""
    node = {"predict": "text -> reasoning, label: Literal['a', 'b', 'c', 'd']", "instructions": "Plain."}
    _, said = plant_heard(tmp_path, lambda r: 0.5, 700, nodes={"sort": node})
    assert "reasoning True +0.000, dropped" in said
    assert sum("nodes.sort.reasoning" in one for one in candidates(tmp_path)) == 1


def test_the_screening_keeps_to_its_share(tmp_path: Path) -> None:
    """Of 24 rows on val: with a share of next to nothing one candidate is screened."""
    _, said = plant_heard(tmp_path, joint, 700, settings={"share": 0.01})
    assert "examples nearest" in said and ";" not in said


def test_successes_of_the_changed_workflow_are_shown(tmp_path: Path) -> None:
    """Reasoning pays, and examples that reason pay more; labelled rows have no reasoning."""

    def skill(request: Request) -> float:
        taught = any(str(m["content"]).startswith("I see") for m in request.messages if m["role"] == "assistant")
        return 0.3 + 0.25 * asks_to_reason(request) + 0.3 * (taught and asks_to_reason(request))

    async def complete(self: Any, request: Request) -> Response:
        answer = await answered(self, request)
        said = answer.text
        return Response(f"I see it.\nlabel: {said}" if asks_to_reason(request) else said, "stop", 9, 3, 0.0)

    answered = PlantedLM.complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlantedLM, "complete", complete)
        report, _ = plant(tmp_path, skill, {"families": {}}, calls=900)
    demos = report.winner.get("nodes.sort.demos", [])
    assert report.winner.get("nodes.sort.reasoning") is True
    assert demos and all(demo["reasoning"] == "I see it." for demo in demos)


def test_a_proposer_is_asked_where_the_file_names_one(tmp_path: Path) -> None:
    def skill(request: Request) -> float:
        return 0.9 if str(request.messages[0]["content"]).startswith("Written.") else 0.2

    async def rewrite(*args: Any, **settings: Any) -> dict[str, str]:
        return {"nodes.sort.instructions": "Written."}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Proposer, "rewrite", rewrite)
        report, said = plant_heard(tmp_path, skill, 500, roles={"proposer": "openai/planted"})
    assert "instructions text 1 +0." in said and report.winner.get("nodes.sort.instructions") == "Written."


def test_what_the_screening_knows_is_not_bought_again_where_examples_come_later(tmp_path: Path) -> None:
    """Without labels examples are own successes, which are there after the screening."""
    (tmp_path / "judge.py").write_text(
        "def right(example, prediction, trace=None):\n    return prediction['answer'] == 'a'\n"
    )
    nodes = {"sort": {"predict": "text -> answer", "instructions": "Plain."}}
    plant_heard(tmp_path, joint, 1200, nodes=nodes, metric="python:judge.py:right")
    tried = candidates(tmp_path)
    first = next(one for one in tried if "nodes.sort.demos" in one)
    assert tried[0] == {"nodes.sort.reasoning": True}
    assert first["nodes.sort.retrieve"] == min(8, len(first["nodes.sort.demos"])), "demos that the sampler drew"


@pytest.mark.parametrize("budget", [{"calls": 1000}, {"calls": 500}])
def test_a_killed_run_goes_on_as_it_began_also_with_more_calls(budget: dict[str, int], tmp_path: Path) -> None:
    """The screening's share is that of the budget that it began with."""

    asked = 0

    def killing(request: Request) -> float:
        nonlocal asked
        asked += 1
        if asked == 300:
            raise Killed
        return joint(request)

    plant(tmp_path / "whole", joint, {"families": {}}, calls=500)
    with pytest.raises(BaseException, match="Killed|TaskGroup"):
        plant(tmp_path / "killed", killing, {"families": {}}, calls=500)
    options = Options([("budget.calls", budget["calls"])], out=str(tmp_path / "killed/out.yaml"))
    resume("last", database=tmp_path / "killed/run.db", pool=PlantedLM(joint), options=options)
    whole, killed = candidates(tmp_path / "whole"), candidates(tmp_path / "killed")
    assert killed[: len(whole) - 1] == whole[: len(whole) - 1]


def test_a_limit_of_tokens_is_shared_too(tmp_path: Path) -> None:
    _, said = plant_heard(tmp_path, joint, 700, budget={"tokens": 60_000})
    assert "kinds of change" in said and "samples" not in said


def test_settings_that_a_node_refuses_are_no_options(tmp_path: Path) -> None:
    nodes = {"look": {"predict": "photo: Image, text -> label: Literal['a', 'b']"}}
    assert [kind.name for kind in find_settings(make_workflow(nodes, tmp_path))] == ["reasoning", "samples"]
