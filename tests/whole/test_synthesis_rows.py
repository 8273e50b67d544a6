"""Published ways of making data, as files of `synthesize`: each keeps the right rows, and wrong ones without its
mechanism.

The numbers in the names are those of the documents that list the designs. The scripted model answers from what it is
shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.scripted import Script

from workbench.lm import Request
from workbench_synthesize.synthesize import Found, synthesize

FILES = Path(__file__).parents[2] / "workflows" / "synthesis"
Said = Callable[[Request], str]


def told(request: Request) -> str:
    """The instructions."""
    return str(request.messages[0]["content"])


def shown(request: Request, field: str) -> Any:
    """A field as the last message shows it, read as JSON where it is a list or an object; empty if it is not there."""
    values = re.findall(rf"(?m)^{field}: (.*)$", str(request.messages[-1]["content"]))
    value = values[-1] if values else ""
    return json.loads(value) if value[:1] in ("[", "{") else value


def made(name: str, folder: Path, table: dict[str, Said], **changes: Any) -> tuple[Found, Script]:
    """The rows of a file, changed, with a model that answers by a part of its instructions."""

    def say(request: Request) -> str:
        return next(answer for part, answer in table.items() if part in told(request))(request)

    script = Script(say)
    changes = {"lm.model": "openai/scripted", "budget.calls": 400, **changes}
    database = str(folder / f"{len(list(folder.glob('*.db')))}.db")
    return synthesize(FILES / f"{name}.yaml", database=database, pool=script, changes=changes), script


# Promptagator: of each text one query of the task, one too general, if it is shown what queries are like.


def write_queries(request: Request) -> str:
    text = shown(request, "text")
    own = " ".join(re.findall(r"[A-Za-z]{4,}", text)[:4])
    demos = [m for m in request.messages if m["role"] == "assistant"]
    return json.dumps([own.lower(), "towns of Ostra"] if len(demos) == 8 else [f"Please tell me all: {text}"])


def test_150_promptagator_keeps_queries_that_find_their_document(tmp_path: Path) -> None:
    table = {"Write queries": write_queries}
    found, _ = made("promptagator", tmp_path, table)
    assert len(found.rows) >= 9 and found.rejected["keep: id in found"] >= 1
    assert [row["query"] for row in found.rows].count("towns of Ostra") <= 1, "one page is about the towns"
    assert all(row["source"]["seed"] in row["found"] for row in found.rows)
    lax, _ = made("promptagator", tmp_path, table, keep=[], distinct={})
    assert sum(row["source"]["seed"] not in row["found"] for row in lax.rows) >= 10
    without, _ = made("promptagator", tmp_path, table, **{"nodes.write.demos": []})
    assert all(row["query"].startswith("Please") for row in without.rows), "it does not know what a query is"


# MIMG: a question on a chain of two pages, and one that its first page answers alone.


def ask_one(request: Request) -> str:
    page = shown(request, "page")
    if built := re.search(r"The (\w+) of Lorvik was built in \d+ by ([\w ]+)\.", page):
        return f"asked: Who built the {built[1]} of Lorvik?\nsaid: {built[2]}"
    if born := re.search(r"([\w ]+) was an engineer, born in (\w+)", page):
        return f"asked: Where was {born[1]} born?\nsaid: {born[2]}"
    return "asked: What is it about?\nsaid: places"


def merge(request: Request) -> str:
    pairs = dict(zip(shown(request, "questions"), shown(request, "answers"), strict=True))
    builders = {q: a for q, a in pairs.items() if q.startswith("Who built")}
    births = {q: a for q, a in pairs.items() if q.startswith("Where was")}
    found = [{"question": f"{q} Say only the name.", "answer": a} for q, a in (builders | births).items()]
    for q, name in builders.items():
        thing = q.removeprefix("Who built ").rstrip("?")
        found += [
            {"question": f"Birthplace of the person behind {thing}", "answer": births[b]} for b in births if name in b
        ]
    return json.dumps(found)


def answer_pages(request: Request) -> str:
    text, question = str(shown(request, "pages") or shown(request, "page")), shown(request, "question")
    built, born = re.search(r"built in \d+ by ([\w ]+)\.", text), re.search(r"born in (\w+)", text)
    if question.startswith("Birthplace"):
        return born[1] if built and born else "unknown"
    return built[1] if built and "Who built" in question else born[1] if born and "Where" in question else "unknown"


MIMG = {"Write a question that this": ask_one, "Merge two": merge, "Answer from": answer_pages}


def test_173_mimg_rejects_what_one_document_answers(tmp_path: Path) -> None:
    many = {"synthesize.beside": 11, "nodes.single.max_items": 12, "each.alone.max_items": 12}
    found, _ = made("mimg", tmp_path, MIMG, **many, **{"synthesize.rows": 1})
    assert [(row["question"][:10], row["answer"]) for row in found.rows] == [("Birthplace", "Tessmark")]
    assert found.rejected["keep: answer not in alone"] == 2, "nothing is asked twice"
    keep = ["exact_match(together, target=answer)"]
    lax, _ = made("mimg", tmp_path, MIMG, keep=keep, **many, **{"synthesize.rows": None})
    assert {row["question"].split()[0] for row in lax.rows} == {"Birthplace", "Who", "Where"}
    one = {"nodes.pages.source": "def pages(text, beside): return [text]"}
    apart, _ = made("mimg", tmp_path, MIMG, **one, **{"synthesize.rows": None})
    assert not apart.rows, "documents are drawn together"


# OptMATH: who tells the boats and the mine forgets a constraint; who formalizes has the words alone.


def tell(request: Request) -> str:
    program, setting = shown(request, "program"), shown(request, "setting")
    kept = program["constraints"][: 1 if setting in ("a harbour", "a mine") else None]
    return f"In {setting}: gain {json.dumps(program['maximize'])} under {json.dumps(kept)}"


def formalize(request: Request) -> str:
    gain, constraints = re.findall(r"gain (\{.*?\}) under (.*)", str(request.messages[-1]["content"]))[0]
    return json.dumps({"maximize": json.loads(gain), "constraints": json.loads(constraints)})


OPTMATH = {"Tell this program": tell, "Write the program": formalize}


def test_112_optmath_rejects_words_that_lack_a_constraint(tmp_path: Path) -> None:
    found, script = made("optmath", tmp_path, OPTMATH)
    assert {row["source"]["seed"] for row in found.rows} == {"bakery", "farm"}
    assert {row["source"]["seed"]: row["optimum"] for row in found.rows} == {"bakery": 30.0, "farm": 24.0}
    assert found.rejected == {"keep: optimum == optimum_again": 2}
    assert not [r for r in script.requests if "Write the program" in told(r) and shown(r, "program")]
    lax, _ = made("optmath", tmp_path, OPTMATH, keep=[])
    assert len(lax.rows) == 4, "without the way back all are kept"


# Learn-by-interact: an instruction names what was done first and last.


def write_back(request: Request) -> str:
    part = [step.split(": ", 1)[1] for step in shown(request, "part")]
    return f"{part[0]}, then {part[-1]} ({len(part)} steps)"


def review(request: Request) -> str:
    part, said = [step.split(": ", 1)[1] for step in shown(request, "part")], shown(request, "instruction")
    fits = said == f"{part[0]}, then {part[-1]} ({len(part)} steps)"
    return "yes" if fits and "lose the cart" not in part else "no"


BACK = {"Which task do these": write_back, "Do these steps": review}


def test_145_learn_by_interact_finds_rows_in_a_trajectory_that_failed(tmp_path: Path) -> None:
    found, _ = made("learn_by_interact", tmp_path, BACK, distinct={"instruction": 1.0})
    failed = [row for row in found.rows if row["source"]["seed"].endswith("#0")]
    assert len(failed) == 6 and len(found.rows) == 6 + 3, "all parts of its first four steps, and of the other three"
    assert found.rejected["keep: verdict == 'yes'"] == 4, "those that lose the cart"
    assert all("lamp" not in row["instruction"] or row["part"] for row in failed)
    whole = {"nodes.cut.source": "def cut(steps): return [[s for s in steps if not s.startswith('user')]]"}
    rest = made("learn_by_interact", tmp_path, BACK, **whole)[0].rows
    assert [row["source"]["seed"] for row in rest] == ["trajectories.jsonl#1"]
    given = {"kind": "code", "code": "question -> instruction", "source": "def given(question): return question"}
    forward, _ = made("learn_by_interact", tmp_path, BACK, **{"each.write": given})
    assert not forward.rows, "the task that was given does not fit its parts"


# APIGen-MT: a user who gives up, and a blueprint with the wrong desk.


def draft(request: Request) -> str:
    desk = shown(request, "desk")
    wrong = {"text": f"patient: a mistake about {desk}", "label": "account"}
    return json.dumps(
        [{"text": f"patient: help with {desk}", "label": desk}, {"text": f"shy: lost {desk}", "label": desk}, wrong]
    )


def play_user(request: Request) -> str:
    return shown(request, "text") if "patient" in shown(request, "text") else "Never mind, goodbye."


def play_clerk(request: Request) -> str:
    heard = str(request.messages[-1]["content"])
    desks = re.findall(r"(?:help with|lost|mistake about) (\w+)", heard)
    return "call: " + json.dumps({"tool": "stamp", "arguments": {"desk": desks[0]}}) if desks else "Goodbye."


def committee(request: Request) -> str:
    return "yes" if shown(request, "label") in shown(request, "text") else "no"


APIGEN = {
    "At this desk": draft,
    "Can one person": lambda request: "yes",
    "desk": committee,
    "You want what": play_user,
    "You are a clerk": play_clerk,
}


def test_153_apigen_mt_keeps_talks_after_which_the_world_is_as_planned(tmp_path: Path) -> None:
    changes = {"synthesize.rows": None}
    found, script = made("apigen_mt", tmp_path, APIGEN, **changes)
    assert {row["text"] for row in found.rows} == {
        f"patient: help with {d}" for d in ("billing", "shipping", "returns")
    }
    assert found.rejected == {"code": 3, "keep: score == 1": 3}
    assert not [r for r in script.requests if "a mistake" in str(r.messages) and "You want" in told(r)]
    lax, _ = made("apigen_mt", tmp_path, APIGEN, keep=[], **changes)
    assert sum(row["text"].startswith("shy") for row in lax.rows) == 3, "the state of the world is what rejects them"
    trusting = {"each.approve.source": "def approve(verdict): return True", "keep": []}
    wrong, _ = made("apigen_mt", tmp_path, APIGEN, **trusting, **changes)
    assert sum("mistake" in row["text"] for row in wrong.rows) == 3


# AgentGen: rooms in a row, of which there are five: the second harder task ends in a room that is not there.

DOMAIN = (
    "(define (domain rooms) (:predicates (at ?r) (next ?a ?b)) (:action go :parameters (?a ?b) "
    ":precondition (and (at ?a) (next ?a ?b)) :effect (and (at ?b) (not (at ?a)))))"
)


def rooms(goal: int) -> str:
    doors = " ".join(f"(next r{n} r{n + 1})" for n in range(4))
    objects = " ".join(f"r{n}" for n in range(5))
    return f"(define (problem p) (:objects {objects}) (:init (at r0) {doors}) (:goal (and (at r{goal}))))"


def evolve(step: int) -> Said:
    def say(request: Request) -> str:
        (goal,) = re.findall(r"\(at r(\d)\)\)", str(request.messages[-1]["content"]))
        return rooms(int(goal) + step)

    return say


AGENTGEN = {
    "Write a planning domain": lambda request: f"domain: {DOMAIN}\nstart: {rooms(3)}",
    "fewer steps": evolve(-1),
    "more steps": evolve(1),
}


def test_51_agentgen_evolves_tasks_both_ways_and_keeps_those_with_a_plan(tmp_path: Path) -> None:
    found, _ = made("agentgen", tmp_path, AGENTGEN)
    assert sorted(row["steps"] for row in found.rows) == [1, 2, 3, 4], "easier and harder than 3"
    assert [len(row["plan"]) for row in found.rows] == [row["steps"] for row in found.rows]
    assert "has no plan" in found.examples["tool"]
    blind = {"each": {"count": {"code": "task -> steps: int", "source": "def count(task): return 1"}}}
    lax, _ = made("agentgen", tmp_path, AGENTGEN, **blind, **{"synthesize.fields": ["task"]})
    assert any("(at r5)" in row["task"] for row in lax.rows), "the planner is what rejects it"
    once = {"nodes.easier.rounds": 1, "nodes.harder.rounds": 1}
    near, _ = made("agentgen", tmp_path, AGENTGEN, **once)
    assert sorted(row["steps"] for row in near.rows) == [2, 3, 4]


# Fellowship: the judge by length takes the long answer, the others the right one.


def judge(request: Request) -> str:
    answers = [str(shown(request, name)) for name in ("one", "two", "three")]
    measure = len if shown(request, "view") == "by length" else (lambda text: "right" in text)
    if "sea" in str(shown(request, "prompt")):  # nobody knows: each takes another one
        place = ["by facts", "by what was asked", "by length"].index(shown(request, "view"))
        return f"best: {place + 1}\nworst: {(place + 1) % 3 + 1}"
    ranked = sorted(range(3), key=lambda n: (measure(answers[n]), -n))
    return f"best: {ranked[-1] + 1}\nworst: {ranked[0] + 1}"


FELLOWSHIP = {
    "briefly": lambda request: "right",
    "at length": lambda request: "long " * 20,
    "better than both": lambda request: "wrong too",
    "You judge": judge,
}


def test_90_fellowship_of_a_jury_is_right_where_a_biased_judge_is_wrong(tmp_path: Path) -> None:
    found, script = made("fellowship", tmp_path, FELLOWSHIP)
    assert [row["chosen"] for row in found.rows] == ["right"] * 2 and found.rejected == {"keep: sure": 1}
    assert all(set(row) == {"id", "prompt", "chosen", "rejected", "source"} for row in found.rows)
    assert all(shown(r, "one") == "right" for r in script.requests if "better than both" in told(r))
    alone = {"nodes.views.source": "def views(prompt): return ['by length']"}
    biased, _ = made("fellowship", tmp_path, FELLOWSHIP, **alone)
    assert all(row["chosen"].startswith("long") for row in biased.rows if "sea" not in row["prompt"])
    assert len(biased.rows) == 3, "one judge is always sure"


# EnvGen: an agent makes what lacks one step. Who is told which goals it fails writes worlds that help with them.

GOALS = ["wood", "stone", "plank", "stick", "axe", "door"]
PARTS = {"plank": ["wood"], "stick": ["plank"], "axe": ["stick", "stone"], "door": ["plank", "axe"]}


def write_worlds(request: Request) -> str:
    told = re.findall(r"(\w+) (\d) of", str(shown(request, "told")))
    if not told:
        return json.dumps([*({"goal": goal, "start": []} for goal in GOALS), {"goal": "sword", "start": []}])
    weak = next((goal for goal, reached in told if reached == "0"), "axe")
    helped = [{"goal": weak, "start": PARTS[weak][:n]} for n in range(1, 3)]
    return json.dumps([*helped, {"goal": weak, "start": ["plank", "wood"]}, {"goal": "wood", "start": ["stone"]}])


def craft(request: Request) -> str:
    goal = re.findall(r"Make a (\w+)\.", str(request.messages[-1]["content"]))[0]
    bench = re.findall(r"On the bench: (.*)\.", str(request.messages[-1]["content"]))[-1].split(", ")
    lacks = [part for part in PARTS.get(goal, []) if part not in bench]
    return f"make {next((part for part in lacks if part in ('wood', 'stone')), goal)}"


ENVGEN = {"settings of this workshop": write_worlds, "the next action": craft}


def goals_of(found: Found) -> list[list[str]]:
    return [[row["world"]["goal"] for row in found.rows if row["cycle"] == n] for n in (1, 2, 3)]


def test_039_envgen_writes_worlds_for_what_the_agent_lacks(tmp_path: Path) -> None:
    found, _ = made("envgen", tmp_path, ENVGEN)
    first, second, third = goals_of(found)
    assert sorted(first) == ["plank", "stick", "stone", "wood"], "an axe takes five steps, and there are no swords"
    assert second == ["stick", "stick", "wood"] and third == ["axe"] * 3, "what failed, then what takes it"
    scores = {(row["world"]["goal"], row["cycle"]): row["score"] for row in found.rows}
    assert scores["stick", 1] == 0.0 and scores["stick", 2] == 1.0, "help at the start brings it within reach"
    untold = {"nodes.cycles.nodes.feedback": {"code": "sound: list -> told", "source": "def none(sound): return 'no'"}}
    blind, _ = made("envgen", tmp_path, ENVGEN, **untold)
    assert goals_of(blind)[1:] == [[], []], "nothing new comes without feedback"


# MAG-V: an assistant makes a call too many where a question says "please", or "did bo". Of those that are written back
# one in three asks for more, after right courses and after wrong ones.


def serve(request: Request) -> str:
    question = str(shown(request, "question") or shown(request, "request"))
    (about,) = re.findall(r"\b(anna|bo|cleo|dan|Rome|Oslo|\d+)\b", question)
    if about.isdigit():
        calls = [{"name": "cancel", "arguments": {"order_id": int(about), "reason": question.split()[-1]}}]
    else:
        name, key = ("weather", "city") if about.istitle() else ("find_order", "name")
        calls = [{"name": name, "arguments": {key: about}}]
    astray = "Bonn" if "Please" in question or "did bo" in question else "home" if "and more" in question else None
    return json.dumps([*calls, {"name": "weather", "arguments": {"city": astray}}] if astray else calls)


def write_alternates(request: Request) -> str:
    if asked := shown(request, "question"):
        return json.dumps([asked] * 3)
    told = str(shown(request, "answer"))
    return json.dumps([f"Tell me, {told}", f"I want to know, {told}", f"I want this and more, {told}"])


def answer_customer(request: Request) -> str:
    first = shown(request, "results")[0]
    return f"the order of {first['items'][0]['sku'].lower()}" if isinstance(first, dict) else f"it is {first}"


MAG_V = {
    "You serve customers": serve,
    "Answer from": answer_customer,
    "Write three requests": write_alternates,
}


def test_042_mag_v_verifies_courses_by_questions_that_are_written_back(tmp_path: Path) -> None:
    astray = {"What did bo order?", "Please cancel order 7, it is broken.", "Please cancel order 8, it is late."}
    found, script = made("mag_v", tmp_path, MAG_V)
    assert len(found.rows) == 5 and not astray & {row["question"] for row in found.rows}
    assert found.rejected == {"keep: right >= 0.5": 3}
    assert not [r for r in script.requests if "Write three requests" in told(r) and shown(r, "question")]
    back = {"nodes.back.predict": "question -> alternates: list[str]"}
    assert len(made("mag_v", tmp_path, MAG_V, **back)[0].rows) == 8, "the same question again leads astray again"
    source = "def alike(features): return min(features.values())"
    alike = {"nodes.verify": {"code": "features: dict -> right: float", "source": source}, "keep": ["right == 1"]}
    assert not made("mag_v", tmp_path, MAG_V, **alike)[0].rows, "one course of three differs after right ones, too"
    known = [json.loads(line) for line in (FILES / "courses.jsonl").read_text(encoding="utf-8").splitlines()]
    turned = [json.dumps({**row, "right": not row["right"]}) for row in known]
    (tmp_path / "turned.jsonl").write_text("\n".join(turned), encoding="utf-8")
    labels = {"nodes.verify.constants.path": str(tmp_path / "turned.jsonl")}
    wrong, _ = made("mag_v", tmp_path, MAG_V, **labels)
    assert {row["question"] for row in wrong.rows} == astray, "what is right it learns from labels alone"
