"""Teams: who speaks to whom, who stays, what each is worth; no model is behind these tests."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.planted import plant
from tests.helpers.scripted import make_workflow, run_node

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.workflow import Span
from workbench_teams.dylan import importance
from workbench_teams.selforg import contributions, edges, middle, shapley, vectors_of

OF = {"predict": "question -> answer", "instructions": "Answer."}
ROLES = {m: f"You are {m}." for m in ("ann", "bob", "cid", "dan")}


def team(kind: str, members: Sequence[str] = tuple(ROLES), **rest: Any) -> dict[str, Any]:
    return {kind: OF, "members": {m: ROLES[m] for m in members}, **rest}


def role_of(request: Request) -> str:
    return next((m for m in ROLES if f"You are {m}." in str(request.messages[0]["content"])), "")


def says(answers: dict[str, str | list[str]], ranker: str = "", rates: dict[str, str] | None = None):
    """A script: each member's answers, one a round, the last one ever after; an empty one is a failure."""
    turns: dict[str, int] = {}

    def say(request: Request) -> str:
        system = str(request.messages[0]["content"])
        if "best ones" in system:
            return ranker
        if "Rate each" in system:
            return (rates or {}).get("all", "")
        member = role_of(request)
        given = answers[member]
        if isinstance(given, str):
            return given
        turns[member] = turns.get(member, -1) + 1
        return given[min(turns[member], len(given) - 1)]

    return say


def notes(outcome: Any) -> dict[str, Any]:
    span: Span = next(s for s in outcome.trace.spans if s.node == "n")
    return span.notes


def spoke(outcome: Any) -> list[str]:
    """Who spoke, in order, also where the journal answered for the model."""
    return [str(span.agent) for span in outcome.trace.spans if span.node == "n.of"]


def test_optimizers_find_what_members_were_told(tmp_path: Path) -> None:
    from workbench.kit.proposer import prompt_in_use
    from workbench.study import Result
    from workbench.task import Example

    outcome, _ = run_node(team("dylan", rounds=1), {"question": "q"}, tmp_path, says(dict.fromkeys(ROLES, "x")))
    result = Result(Example("0", {}), 1.0, None, None, None, outcome.prediction, outcome.trace)
    assert prompt_in_use("nodes.n.of.instructions", "Answer.", [result]) == "n.of"
    assert spoke(outcome) == list(ROLES)


# dylan


def test_consensus_ends_it_at_the_exact_vote(tmp_path: Path) -> None:
    """More than floor(2/3 n) of n: with four members three votes, not two."""
    three = says({"ann": "x", "bob": "x", "cid": "x", "dan": "y"})
    outcome, script = run_node(team("dylan"), {"question": "q"}, tmp_path, three)
    assert outcome.prediction["answer"] == "x" and len(script.requests) == 4 and notes(outcome)["rounds"] == 1
    two = says({"ann": "x", "bob": "x", "cid": "z", "dan": "y"}, ranker="1, 2")
    outcome, script = run_node(team("dylan", rounds=2), {"question": "q"}, tmp_path, two)
    assert notes(outcome)["rounds"] == 2 and len(script.requests) == 8


def test_the_ranker_keeps_members_by_name_and_those_alone_go_on(tmp_path: Path) -> None:
    said = says({"ann": "a", "bob": "b", "cid": "c", "dan": "d"}, ranker="The best are 4 and 2.")
    outcome, script = run_node(team("dylan"), {"question": "q"}, tmp_path, said)
    assert spoke(outcome)[-2:] == ["bob", "dan"] and len(spoke(outcome)) == 4 + 4 + 2
    assert set(notes(outcome)["importance"]) == set(ROLES)
    heard = str(next(r for r in script.requests if "answers_of_others" in str(r.messages)).messages[-1]["content"])
    assert all(f"- {x}" in heard for x in "abcd")


def test_a_ranker_that_cannot_be_read_keeps_those_with_most_votes(tmp_path: Path) -> None:
    said = says({"ann": "a", "bob": "b", "cid": "c", "dan": "b"}, ranker="none of them")
    outcome, _script = run_node(team("dylan"), {"question": "q"}, tmp_path, said)
    assert spoke(outcome)[-2:] == ["bob", "dan"]
    assert notes(outcome)["unreadable"] == "none of them"


def test_importance_adds_up_and_ranks_who_was_right_and_heeded(tmp_path: Path) -> None:
    """ann is right from the start and convinces bob and cid; dan never says anything."""
    said = says({"ann": "7", "bob": ["1", "7"], "cid": ["2", "7"], "dan": ""})
    outcome, _ = run_node(team("dylan", consensus=1.0, rounds=2), {"question": "q"}, tmp_path, said)
    worth = notes(outcome)["importance"]
    assert math.fsum(worth.values()) == pytest.approx(1, abs=1e-5)  # told with six digits
    assert max(worth, key=worth.__getitem__) == "ann" and worth.get("dan", 0.0) == 0.0


def test_importance_by_hand() -> None:
    layers = [{"a": 1, "b": 1}, {"a": 1, "b": 1}]
    owed = [{"a": {"a": 0.75, "b": 0.25}, "b": {"a": 0.5, "b": 0.5}}]
    assert importance(layers, owed, {"a"}) == {"a": (1 + 0.75) / 2, "b": 0.25 / 2}
    assert importance(layers, owed, {"a", "b"}) == {"a": (0.5 + 0.625) / 2, "b": (0.5 + 0.375) / 2}
    assert importance([{"a": 1}], [], {"a"}) == {"a": 1.0}


def test_ratings_that_cannot_be_read_count_alike(tmp_path: Path) -> None:
    members = ("ann", "bob")
    for told, expected in [("5 1", (0.5 + 5 / 6) / 2), ("no idea", 0.5)]:
        said = says({"ann": "x", "bob": "y"}, rates={"all": told})
        outcome, _ = run_node(team("dylan", members, rate=True, rounds=2), {"question": told}, tmp_path, said)
        assert notes(outcome)["importance"]["ann"] == pytest.approx(
            (1 + (5 / 6 if told == "5 1" else 0.5)) / 2, abs=1e-5
        ), expected


@pytest.mark.parametrize("kind", ["dylan", "selforg", "contest"])
def test_the_bound_on_calls_holds_and_the_dead_do_not_end_it(kind: str, tmp_path: Path) -> None:
    rest = {"rate": True} if kind == "dylan" else {}
    node = team(kind, **rest)
    said = says({"ann": "", "bob": ["b", "c", "d"], "cid": ["e", "f"], "dan": "g"}, ranker="1 2", rates={"all": "1"})
    outcome, script = run_node(node, {"question": "q"}, tmp_path, said)
    bound = make_workflow({"n": node}, tmp_path).enabled_nodes["n"].max_calls
    assert outcome.failure is None and len(script.requests) <= bound
    silent, _ = run_node(node, {"question": "q2"}, tmp_path, says(dict.fromkeys(ROLES, "")))
    assert silent.failure == "members"


# selforg

texts = st.lists(st.text(alphabet="abc ", min_size=1, max_size=12), min_size=1, max_size=6)


@given(texts, st.integers(1, 6), st.floats(0, 1))
def test_the_graph_never_has_a_cycle(found: list[str], neighbours: int, threshold: float) -> None:
    vectors = vectors_of(found)
    heard = edges(vectors, contributions(vectors), found, neighbours, threshold)
    graph = networkx.DiGraph([(j, i) for i, js in enumerate(heard) for j in js])
    assert networkx.is_directed_acyclic_graph(graph) and all(len(js) <= neighbours for js in heard)


@given(texts, st.randoms(use_true_random=False))
def test_order_of_members_does_not_matter(found: list[str], shuffler: random.Random) -> None:
    order = list(range(len(found)))
    shuffler.shuffle(order)
    mixed = [found[i] for i in order]
    straight, turned = contributions(vectors_of(found)), contributions(vectors_of(mixed))
    assert [straight[i] for i in order] == pytest.approx(turned)


@settings(max_examples=30)
@given(st.lists(st.text(alphabet="abcd ", min_size=1, max_size=10), min_size=2, max_size=6))
def test_exact_shapley_values_add_up_to_the_worth_of_all(found: list[str]) -> None:
    vectors = vectors_of(found)
    assert math.fsum(shapley(vectors)) == pytest.approx(1)
    assert math.fsum(contributions(vectors)) == pytest.approx(1)
    assert middle(vectors)


def test_the_approximation_ranks_like_exact_shapley() -> None:
    """A planted majority with outliers, many draws: Spearman's correlation of the two is high."""
    from scipy.stats import spearmanr

    found = []
    for seed in range(40):
        draw = random.Random(seed)
        near = [" ".join(["same", "answer", draw.choice("uvw")]) for _ in range(4)]
        far = [" ".join(draw.sample("abcdefgh", 3)) for _ in range(2)]
        vectors = vectors_of([*near, *far])
        rough, exact = contributions(vectors), shapley(vectors)
        found.append(spearmanr(rough, exact).statistic)
        assert min(rough[:4]) > max(rough[4:])
    assert sum(found) / len(found) > 0.8, found


def test_outliers_hear_the_majority_and_join_it(tmp_path: Path) -> None:
    said = says(
        {
            "ann": "the answer is 7",
            "bob": "the answer is 7",
            "cid": ["is it 9", "the answer is 7"],
            "dan": ["is it 1", "the answer is 7"],
        }
    )
    outcome, script = run_node(team("selforg"), {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == "the answer is 7"
    again = [r for r in script.requests if "answers_of_others" in str(r.messages)]
    assert {"cid", "dan"} <= {role_of(r) for r in again}
    assert all("the answer is 7" in str(r.messages[-1]["content"]) for r in again if role_of(r) in ("cid", "dan"))
    agreed, script = run_node(team("selforg"), {"question": "q"}, tmp_path, says(dict.fromkeys(ROLES, "x")))
    assert agreed.prediction["answer"] == "x" and len(script.requests) == 4  # nobody is left to convince


# contest


def test_the_best_by_their_standing_are_asked(tmp_path: Path) -> None:
    said = says({"ann": "a", "bob": "b", "cid": "c", "dan": "b"})
    node = team("contest", standing={"ann": 0.9, "cid": 0.6}, adopt=2)
    outcome, script = run_node(node, {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == "a" and [role_of(r) for r in script.requests] == ["ann", "cid"]
    outcome, _ = run_node(team("contest", standing={"ann": 0.9}), {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == "b"  # two votes of 0.5 outweigh one of 0.9


@pytest.mark.parametrize(("ann", "wins"), [(0.9, "a"), (0.5, "b")])
def test_a_vote_weighs_what_its_members_standing_says(ann: float, wins: str, tmp_path: Path) -> None:
    """One against two: only the weights decide, and those who are asked are the same."""
    said = says({"ann": "a", "bob": "b", "cid": "b", "dan": "c"})
    node = team("contest", standing={"ann": ann, "bob": 0.3, "cid": 0.3, "dan": 0.1})
    outcome, script = run_node(node, {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == wins and len(script.requests) == 4


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (team("contest", standing={"eve": 1.0}), "no member 'eve'"),
        (team("dylan", left_out=["eve"]), "no member 'eve'"),
        (team("selforg", left_out=list(ROLES)), "all members are left out"),
        ({"dylan": {"tool": "python:math.sqrt"}, "members": ROLES}, "cannot give roles"),
        ({"dylan": {"predict": "answers_of_others -> answer"}, "members": ROLES}, "answers_of_others"),
    ],
)
def test_settings_that_make_no_sense_are_refused(node: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        make_workflow({"n": node}, tmp_path)
    assert told in str(raised.value)


# the optimizer

#: The expert comes last: where all disagree, the first one's answer counts.
MEMBERS = {
    "fool": "You are a fool.",
    "clown": "You are a clown.",
    "mule": "You are a mule.",
    "expert": "You are the expert.",
}


def skill(request: Request) -> float:
    """The expert is nearly always right; the others mostly wrong."""
    return 0.95 if "You are the expert." in str(request.messages[0]["content"]) else 0.3


def null(request: Request) -> float:
    return 0.5


def _plant(folder: Path, skill: Any, optimizer: Any, seed: int, kind: str) -> Any:
    node = {kind: {"predict": "text -> label: Literal['a', 'b', 'c', 'd']"}, "members": MEMBERS}
    names = list(MEMBERS)
    outs = [[n for i, n in enumerate(names) if mask >> i & 1] for mask in range(15)]
    report, _ = plant(
        folder,
        skill,
        optimizer,
        calls=900 if kind == "contest" else 1800,
        seed=seed,
        rows=(24, 24, 40),
        nodes={"sort": node},
        search={"nodes.sort.left_out": outs},
    )
    return report


def kept(report: Any) -> float:
    """The winner's true accuracy, roughly: the expert's share among the members left."""
    tree = report.winner.nodes["sort"]
    left = [m for m in MEMBERS if m not in tree.get("left_out", [])]
    standing, adopt = tree.get("standing", {}), tree.get("adopt") or 4
    left = sorted(left, key=lambda m: -standing.get(m, 0.5))[:adopt]
    return 1 / len(left) if "expert" in left else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["contest", "selforg"])
def test_the_team_is_cut_down_to_its_expert(kind: str, tmp_path: Path) -> None:
    """Against random search over all subsets, at the same calls."""
    mine = [kept(_plant(tmp_path / f"t{s}", skill, "team", s, kind)) for s in range(3)]
    drawn = [kept(_plant(tmp_path / f"r{s}", skill, "random", s, kind)) for s in range(3)]
    assert sum(mine) >= sum(drawn) and min(mine) > 0, (mine, drawn)  # more than 0: the expert is never sent home


def test_where_all_are_equal_no_gain_is_claimed(tmp_path: Path) -> None:
    claims = [_plant(tmp_path / f"n{s}", null, "team", s, "contest").gain_shown for s in range(4)]
    assert sum(claims) == 0


# captain

LIBRARY = {
    "py_dev": {"description": "Python: writes and runs code", "instructions": "Write code."},
    "chemist": {"description": "chemistry and molecules: reactions"},
    "checker": {"description": "checks results: finds mistakes"},
}


class Play:
    """Scripts of the captain's parts, told apart by what they are asked; keeps what each part was shown."""

    def __init__(
        self,
        captain: Sequence[Any],
        mapping: Sequence[str] = (),
        talk: str = "done TERMINATE",
        review: str = "result: 42\nerrors: none\ncheck: no",
    ):
        self.captain, self.mapping, self.talk, self.review = list(captain), list(mapping), talk, review
        self.seen: dict[str, list[str]] = {"captain": [], "map": [], "write": [], "talk": [], "review": []}

    def __call__(self, request: Request) -> str:
        system, last = str(request.messages[0]["content"]), str(request.messages[-1]["content"])
        if "teams of experts" in system:
            self.seen["captain"].append(last)
            step = self.captain.pop(0)
            return step if isinstance(step, str) else "call: " + json.dumps({"tool": "seek_experts", "arguments": step})
        if "choose an expert" in system:
            self.seen["map"].append(last)
            return self.mapping.pop(0)
        if "Write an expert" in system:
            self.seen["write"].append(last)
            return '{"name": "poet", "description": "verse: all kinds", "instructions": "Rhyme."}'
        if "Sum up" in system:
            self.seen["review"].append(last)
            return self.review
        self.seen["talk"].append(system)
        return self.talk


CAPTAIN = {"captain": "question -> answer", "library": LIBRARY}


def test_a_team_is_found_talks_and_reports(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["Python developer", "checker of results"], "task": "compute 6 * 7"}
    play = Play([step, "answer: 42"], ['{"Python developer": "py_dev", "checker of results": "checker"}'])
    outcome, script = run_node(CAPTAIN, {"question": "6 * 7?"}, tmp_path, play)
    assert outcome.prediction["answer"] == "42"
    assert notes(outcome)["groups"] == {"g": ["py_dev", "checker"]} and not play.seen["write"]
    assert "(Python: writes and runs code)" in play.seen["map"][0]  # a colon hides nobody
    assert "report of g (py_dev, checker)" in play.seen["captain"][1]
    assert notes(outcome)["importance"] == {"py_dev": 1.0, "chemist": 0.0, "checker": 1.0}
    assert len(script.requests) <= make_workflow({"n": CAPTAIN}, tmp_path).enabled_nodes["n"].max_calls


def test_an_expert_is_written_where_none_fits_and_only_then(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["checker of results", "verse writer"], "task": "t"}
    play = Play([step, "answer: a"], ['{"checker of results": "checker", "verse writer": null}'])
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert notes(outcome)["groups"] == {"g": ["checker", "poet"]} and len(play.seen["write"]) == 1


def test_written_experts_of_one_name_are_all_in_the_team(tmp_path: Path) -> None:
    """Each of them was paid for, and each is told what was written for its own role."""
    written = iter(["Solve.", "Check.", "Doubt."])

    class OneName(Play):
        def __call__(self, request: Request) -> str:
            said = super().__call__(request)
            return (
                said.replace("poet", "py_dev").replace("Rhyme.", next(written))
                if "Write an expert" in str(request.messages[0]["content"])
                else said
            )

    step = {"group": "g", "roles": ["solver", "checker", "doubter"], "task": "t"}
    play = OneName([step, "answer: a"], ['{"solver": null, "checker": null, "doubter": null}'])
    play.talk = "so it is"
    outcome, _ = run_node({**CAPTAIN, "talk": 3}, {"question": "q"}, tmp_path, play)
    assert notes(outcome)["groups"] == {"g": ["py_dev_2", "py_dev_3", "py_dev_4"]}, "the library has a py_dev"
    assert len(play.seen["write"]) == 3
    for system, (name, told) in zip(
        play.seen["talk"], [("py_dev_2", "Solve."), ("py_dev_3", "Check."), ("py_dev_4", "Doubt.")], strict=True
    ):
        assert system.startswith(f"You are {name}, ") and told in system


def test_an_unreadable_mapping_is_asked_for_twice_at_most(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["Python developer", "Python code runner"], "task": "t"}
    play = Play([step, "answer: a"], ["what?", "no."])
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert len(play.seen["map"]) == 2 and notes(outcome)["groups"] == {"g": ["py_dev"]}  # the nearest, and once


def test_a_doubted_result_is_checked_once_by_the_same_group(tmp_path: Path) -> None:
    step = {"group": "g", "roles": ["checker"], "task": "t"}
    again = {"group": "g", "task": "check it"}
    play = Play([step, again, again, "answer: a"], ['{"checker": "checker"}'], review="result: 1\ncheck: yes")
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert "check this once more" in play.seen["captain"][1] and len(play.seen["map"]) == 1
    assert (
        "check this once more" not in play.seen["captain"][2]
        and "checked its result already" in play.seen["captain"][3]
    )
    assert len(play.seen["review"]) == 2 and outcome.prediction["answer"] == "a"


def test_every_loop_ends(tmp_path: Path) -> None:
    """A captain that only ever seeks experts, a team that never ends."""
    step = [{"group": f"g{i}", "roles": ["a", "b", "c", "d", "e"], "task": f"t{i}"} for i in range(9)]
    play = Play(step, ["{}"] * 99, talk="and so on")
    node = {**CAPTAIN, "turns": 4, "talk": 5, "size": 2}
    outcome, script = run_node(node, {"question": "q"}, tmp_path, play)
    assert outcome.failure == "steps"
    assert len(script.requests) <= make_workflow({"n": node}, tmp_path).enabled_nodes["n"].max_calls
    assert len(play.seen["talk"]) == 3 * 5  # the last report would not be read


def test_wrong_calls_are_told(tmp_path: Path) -> None:
    wrong = ['call: {"tool": "other", "arguments": {}}', {"group": "g", "roles": ["r"]}, {"group": "g", "task": "t"}]
    play = Play([*wrong, "answer: a"])
    outcome, _ = run_node(CAPTAIN, {"question": "q"}, tmp_path, play)
    assert outcome.prediction["answer"] == "a"
    assert "seek_experts" in play.seen["captain"][1] and "arguments are" in play.seen["captain"][2]
    assert "needs roles" in play.seen["captain"][3]


def test_tools_go_to_the_expert_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "roots.py").write_text("def sqrt(x: float) -> float:\n    return x**0.5\n")
    library = {
        "solver": {"description": "arithmetic", "tools": ["sqrt"]},
        "talker": {"description": "words", "tools": []},
    }
    node = {"captain": "question -> answer", "library": library, "tools": ["python:roots.py:sqrt"], "talk": 2}
    step = {"group": "g", "roles": ["arithmetic", "words"], "task": "root of 49"}
    play = Play(
        [step, "answer: 7"],
        ['{"arithmetic": "solver", "words": "talker"}'],
        talk='call: {"tool": "sqrt", "arguments": {"x": 49}}',
    )
    run_node(node, {"question": "q"}, tmp_path, play)
    assert "sqrt" in play.seen["talk"][0] and "sqrt" not in play.seen["talk"][1]
    assert "result: 7.0" in play.seen["review"][0] and "no tool 'sqrt'" in play.seen["review"][0]
