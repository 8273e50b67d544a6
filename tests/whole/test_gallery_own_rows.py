"""Each file of the gallery on its own sealed rows: right as it is, and wrong without what its paper is about.

What is taken out of each file stands in `tests/helpers/gallery_ablations.py`, what its scripted model says in
`tests/helpers/gallery_scripts.py`. The model answers from what it is shown, so that a part that is not there makes the
answer wrong.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_ablations import WITHOUT
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_tried import GALLERY, LEARNED, Scored, inside, members, searched, tried
from tests.helpers.scripted import Script, run_rows
from tests.helpers.sqlite import connect

from workbench.lm import Request
from workbench.run import prepare
from workbench.spec import DomainSpec
from workbench_kit.logs import tool_uses
from workbench_tree_search.node import TreeSearch
from workbench_worlds.play import Play

NAMES = sorted(path.stem for path in GALLERY.glob("*.yaml"))
#: Files that do not satisfy it yet, and why. A file that does must leave the list, so that it can only shrink.
OPEN: dict[str, str] = {
    "agent_poison": "it shows under attack, in test_gallery_attacks; the rows are tickets without a trigger",
    "backdoors": "it shows under attack, in test_gallery_attacks; no row is about files",
}
SLOW = {
    *("agent_issues", "agentgym", "amber", "automl_agent", "blade", "boxing_gym", "cave_agent", "forge", "gen_rewrite"),
    *("graph_team", "internet_of_agents", "llm_heuristics", "master", "ml_experiments", "mobile_agent", "poact"),
    *("research_code_agent", "rl_of_thoughts", "stateflow_intercode", "webpilot"),
}
CONFINED = {"agent_issues", "ml_experiments", "one_day", "stateflow_intercode"}
#: Optimizers that write what stands nowhere in the file: texts, programs, stores, teams, routes.
WRITERS = {"forge", "memory", "navigate", "rewrite", "route", "team"}


def points(domain: DomainSpec) -> float:
    """The number of values that a search may give an address."""
    if domain.float_ is not None:
        return math.inf
    if domain.int_ is not None:
        return 1 + (domain.int_[1] - domain.int_[0]) // (domain.step or 1)
    listed = len(domain.choice or domain.any_of or ()) + (domain.demos or 0)
    return listed + (domain.any_of is not None) + domain.optional


def lacks(name: str, folder: Path) -> list[str]:
    """What a file still has to show."""
    found, whole = list[str](), Scored(name, folder)
    spec = whole.task.spec
    writes = {kind for step in spec.optimize for kind in step} & WRITERS
    written = all(domain.choice is not None for domain in spec.search.values())
    if not writes and (written or math.prod(map(points, spec.search.values())) <= 2):
        found.append("every point of its search stands in the file")
    if whole.right < 0.75:
        found.append(f"right on {whole.right:.2f} of its rows")
    if whole.speaker.unknown:
        found.append(f"a question that the script does not answer: {whole.speaker.unknown[0]}")
    found += unseen(name, whole) if name not in LEARNED else []  # it may have left parts out
    parts = WITHOUT.get(name, {})
    if not parts:
        found.append("nothing is taken out")
    for number, (part, change) in enumerate(parts.items()):
        right = Scored(name, folder, change).right
        if right > (0.75 if number else 0.5):
            found.append(f"right on {right:.2f} without: {part}")
    return found


def unseen(name: str, whole: Scored) -> list[str]:
    """The nodes, tools and members of a file that its rows do not need, and the nodes that fail."""
    spans, parts = whole.spans, dict(inside(whole.workflow))
    ran, failed = {span.node for span in spans}, {span.node for span in spans if span.error}
    traces = [result.trace for result in whole.evaluation.results if result.trace is not None]
    called = tools_called(whole.database) | {use.tool for trace in traces for use in tool_uses(trace)}
    users = [node for node in parts.values() if not isinstance(node, Play | TreeSearch)]  # these name their worlds
    heard = {(span.node, str(span.agent)) for span in spans}
    return [
        *(f"never run: {path}" for path in parts if path not in ran),
        *(f"fails: {path}" for path in sorted(failed ^ {*CASES[f"{name}.yaml"].wrong})),
        *(f"never called: {tool}" for node in users for tool in node.tool_names() if tool not in called),
        *(f"never heard: {m}" for path, n in parts.items() for m in members(n) if (f"{path}.of", m) not in heard),
    ]


def tools_called(database: Path) -> set[str]:
    """Names of the tools whose calls are journalled; that of the interpreter is `python`."""
    with connect(database) as connection:
        rows = connection.execute("select kind, request from calls where kind in ('tool', 'code')").fetchall()
    sources = [json.loads(request)[0][0] for kind, request in rows if kind == "tool"]
    ran = ["python"] if any("workbench_cell(" in request for kind, request in rows if kind == "code") else []
    return {re.split("[:#]", source)[-1] for source in [*sources, *ran]}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in NAMES])
def test_a_file_is_right_on_its_own_rows_and_wrong_without_its_mechanism(name: str, tmp_path: Path) -> None:
    if name in CONFINED and shutil.which("bwrap") is None:
        pytest.skip("commands of models need bubblewrap")
    found = lacks(name, tmp_path)
    assert bool(found) == (name in OPEN), found or f"{name} lacks nothing: take it off the list"


def test_each_file_has_a_script_and_the_list_names_files() -> None:
    assert set(CASES) == {f"{name}.yaml" for name in NAMES}
    assert {*OPEN, *WITHOUT} <= {*NAMES} and all(OPEN.values())


def test_each_file_seals_rows_enough_to_show_a_gain(subtests: pytest.Subtests) -> None:
    """Near copies count once: with fewer than twelve hardly any gain can be shown, with fewer than six none."""
    for name in NAMES:
        with subtests.test(name):
            task = prepare(GALLERY / f"{name}.yaml")[2]
            assert len({task.cluster_of(row) for row in task.dataset.test.open()}) >= 12


#: Who must not be shown what: words of a system message, and a pattern.
HIDDEN = [
    ("glee", "You sell", r"(?m)^worth: "),
    ("glee", "You buy", r"(?m)^cost: "),
    ("entity_deduction", "Find out the word", r"(?m)^secret: "),
    ("boxing_gym", "Predict by the theory", r"\d cm;"),
    ("graph_team", "```python", r"(?m)^graph: \w-\w"),
    ("iagents", "Say what your person knows", r"(?s)_knows: .*_knows: "),
    ("cave_agent", "Choose the orders", r"(?s).{2000}"),
    ("internet_of_agents", "It is your turn", r"(?s)speaker: grocer.*profile: [^\n]*\nGood with numbers"),
    ("agent_issues", "Find the fault", "unittest"),
]


@pytest.mark.parametrize(("name", "words", "hidden"), HIDDEN)
def test_what_the_design_keeps_from_a_model_is_in_no_prompt(name: str, words: str, hidden: str, tmp_path: Path) -> None:
    told = Scored(name, tmp_path).told(words)
    assert told and not any(re.search(hidden, prompt) for prompt in told)


def test_142_reaper_plans_in_one_call_what_an_agent_asks_step_by_step(tmp_path: Path) -> None:
    whole = Scored("reaper", tmp_path)
    assert len(whole.script.requests) == 2 * len(whole.evaluation.results), "whatever the number of look-ups"


def test_every_loop_of_captain_ends(tmp_path: Path) -> None:
    """A captain that always has a next step, a team that is never done, and a reviewer who always doubts."""

    def say(request: Request) -> str:
        system = str(request.messages[0]["content"])
        if "first step" in system:
            return "task: t\nroles: [a, b, c, d]"
        if "answer so far" in system:
            return "answer: 7\ntask: t\nroles: [a, b, c, d]"
        if "What did the team find" in system:
            return "result: r\nerrors: e\ncheck: yes"
        return "message: m\ndone: no" if "Do your part" in system else "none"

    workflow, script = prepare(GALLERY / "captain.yaml")[2].workflow, Script(say)
    (outcome,) = run_rows(workflow, [{"question": "5 + 8 + 3"}], script, tmp_path / "run.db")
    assert outcome.prediction["answer"] == "7", outcome.message
    talks = [span.node for span in outcome.trace.spans].count("lead.nodes.work.nodes.talk.of.default")
    assert talks == 2 * 2 * 8, "steps, looks, and four members who speak twice"
    assert len(script.requests) <= sum(node.max_calls for node in workflow.enabled_nodes.values())


def test_052_what_the_server_calls_an_error_is_no_zero(tmp_path: Path) -> None:
    """A world that fails says nothing of the player: its row is left out."""
    rows = [({"question": "Craft it.", "data_idx": 1}, {"score": "1.0"})]
    (outcome,) = tried("agentgym", tmp_path, rows, {"nodes.craft.settings.key": "env_idx"}).outcomes
    assert outcome.failure == "environment" and "The id None is not valid" in str(outcome.message)


def in_search(name: str) -> str | None:
    """The first address of the file's search whose ablation is a value of it."""
    _, _, search = (GALLERY / f"{name}.yaml").read_text(encoding="utf-8").partition("\nsearch:")
    alone = [*(address for change in WITHOUT.get(name, {}).values() for address in change if len(change) == 1)]
    return next((address for address in alone if f"{address}:" in search), None)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "address"), [(n, a) for n in NAMES if n not in OPEN and (a := in_search(n))])
def test_the_search_of_a_file_finds_what_its_ablation_takes_out(name: str, address: str, tmp_path: Path) -> None:
    poor: Any = next(change[address] for change in WITHOUT[name].values() if [*change] == [address])
    report = searched(name, {address: poor}, tmp_path)
    assert report.baseline["val"] < report.best["val"] and report.winner.get(address) != poor
