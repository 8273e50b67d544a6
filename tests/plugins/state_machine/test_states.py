"""The `states` node with scripted models: what it asks, what its answers do, which state comes next, when it ends."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings, strategies as st
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.cli.file_schema import json_schema
from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.spec import check_spec, load_yaml, load_yaml_file
from workbench.task import load_workflow
from workbench.workflow import learnable_addresses, node_at, setting_at

TOOLS = """
def look(name: str, shelf: str) -> dict:
    "Looks something up."
    with open("calls.txt", "a") as file:
        file.write(name + " ")
    if name == "nothing":
        raise KeyError(name)
    return {"kind": "book" if name.startswith("b") else "other", "text": f"{name} on {shelf}"}

def shout(text: str) -> str:
    return text.upper()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mytools.py").write_text(TOOLS)
    return tmp_path


def machine(**changes: Any) -> dict[str, Any]:
    """Search runs look on every answer; check ends on done; fix is where failures lead."""
    node = {
        "states": {
            "search": {
                "instructions": "SEARCH",
                "run": "python:mytools.py:look",
                "next": [
                    {"when": "error", "to": "fix"},
                    {"when": {"outcome": {"kind": "book"}}, "keep": "found", "to": "check"},
                    "search",
                ],
            },
            "check": {
                "instructions": "CHECK",
                "next": [{"when": {"regex": "(?i)^done", "of": "action"}, "to": "end"}, "search"],
            },
            "fix": {"instructions": "FIX", "next": "search"},
        },
        "signature": "wish -> found",
        "start": "search",
        "arguments": {"shelf": "shelf"},
        "instructions": "ALL",
    }
    return {**node, **changes}


ROW = {"wish": "a book", "shelf": "A1"}


def says(*answers: str) -> Any:
    """A scripted model that gives these answers one after the other, and then the last one again."""
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def path_of(outcome: Any) -> list[str]:
    return outcome.trace.spans[0].notes["path"]


def test_first_transition_that_holds_is_taken_and_the_history_is_shared(folder: Path) -> None:
    outcome, script = run_node(machine(), ROW, folder, says("nothing", "hm", "chair", "found: bible", "done"))
    assert outcome.prediction == {"found": "bible"}, outcome
    assert path_of(outcome) == ["search", "fix", "search", "search", "check"]
    systems = [r.messages[0]["content"] for r in script.requests]
    assert [s.split("\n")[:2] for s in systems] == [["ALL", w] for w in ("SEARCH", "FIX", "SEARCH", "SEARCH", "CHECK")]
    last = [m["content"] for m in script.requests[-1].messages[1:]]
    assert last[0] == "wish: a book" and last[1::2] == ["nothing", "hm", "chair", "found: bible"]
    assert last[2].startswith("error: look: KeyError") and last[4] == "Go on."
    assert json.loads(last[8].removeprefix("result: ")) == {"kind": "book", "text": "bible on A1"}
    assert [s.agent for s in outcome.trace.spans[1:]] == path_of(outcome)
    assert [s.turn for s in outcome.trace.spans[1:]] == [0, 1, 2, 3, 4]


def test_the_limit_is_hard_and_an_answer_that_was_kept_survives_it(folder: Path) -> None:
    lost, script = run_node(machine(max_steps=3), ROW, folder, says("chair"))
    assert lost.failure == "steps" and "search > search > search" in lost.message and len(script.requests) == 3
    late, _ = run_node(machine(max_steps=2), ROW, folder, says("bible", "not sure"))
    assert late.prediction == {"found": "bible"} and "max_steps" in late.trace.spans[0].notes["stopped"]


def test_the_same_action_in_a_later_turn_is_done_again_and_a_replay_does_nothing(folder: Path) -> None:
    workflow = make_workflow({"n": machine()}, folder)
    for _ in range(2):
        script = Script(says("nothing", "hm", "bible", "again", "bible", "done"))
        outcome = run_rows(workflow, [ROW], script, folder / "run.db")[0]
        assert outcome.prediction == {"found": "bible"}
        assert (folder / "calls.txt").read_text() == "nothing bible bible "
    assert script.requests == [], "a replay asked the model again"


def test_tools_are_called_by_name_and_hidden_arguments_are_not_the_models_to_set(folder: Path) -> None:
    node = machine(
        states={
            "go": {
                "tools": ["python:mytools.py:look", "python:mytools.py:shout"],
                "next": [
                    {"when": {"regex": "(?i)LOOK", "of": "action"}, "to": "go"},
                    {"when": {"regex": "^error"}, "to": "go"},
                    "end",
                ],
            }
        },
        start="go",
    )
    call = 'call: {"tool": "%s", "arguments": %s}'
    outcome, script = run_node(
        node,
        ROW,
        folder,
        says(
            call % ("look", '{"name": "bible", "shelf": "B2"}'),
            call % ("lock", "{}"),
            call % ("shout", "[1]"),
            'call: {"tool": ["look"]}',
            "found: it",
        ),
    )
    assert outcome.prediction == {"found": "it"}, outcome
    assert '- look({"name": "string"})' in script.requests[0].messages[0]["content"]
    told = [m["content"] for m in script.requests[-1].messages if m["role"] == "user"][1:]
    assert "bible on A1" in told[0] and "no tool 'lock'; tools: look, shout" in told[1] and "JSON object" in told[2]
    assert "no tool ['look']" in told[3]


def test_the_model_may_decide_a_transition(folder: Path) -> None:
    node = machine(
        states={"draft": {"next": [{"when": {"lm": "Is it good?"}, "keep": "found", "to": "end"}, "draft"]}},
        start="draft",
    )

    def say(request: Request) -> str:
        text = request.messages[-1]["content"]
        if "Is it good?" not in text:
            return f"draft {sum(m['role'] == 'assistant' for m in request.messages)}"
        return {"draft 0": "maybe", "draft 1": "No."}.get(request.messages[-2]["content"], "Yes, it is.")

    outcome, script = run_node(node, ROW, folder, say)
    assert outcome.prediction == {"found": "draft 2"} and len(script.requests) == 6
    assert outcome.trace.spans[1].notes["unreadable"] == "maybe"
    assert (
        make_workflow({"n": node}, folder) and node_at(make_workflow({"n": node}, folder), "nodes.n.x").max_calls == 20
    )


def test_answers_are_read_as_their_types_and_what_cannot_be_read_is_a_failed_action(folder: Path) -> None:
    states = {"go": {"next": [{"when": "error", "to": "help"}, "end"]}, "help": {"instructions": "HELP", "next": "go"}}
    node = {"states": states, "signature": "wish -> n: int, sure: bool", "start": "go"}
    outcome, script = run_node(node, ROW, folder, says("n: seven", "ok", "n: 7\nsure: true"))
    assert outcome.prediction == {"n": 7, "sure": True} and path_of(outcome) == ["go", "help", "go"]
    assert "form:\nn: ...\nsure: ..." in script.requests[0].messages[0]["content"]
    kept = {
        "states": {"go": {"next": [{"keep": "mood", "to": "end"}]}},
        "signature": "wish -> mood: Literal['good', 'bad']",
        "start": "go",
    }
    outcome, script = run_node(kept, ROW, folder, says("none", "Good"))
    assert (
        outcome.prediction == {"mood": "good"} and "mood: one of good, bad" in script.requests[0].messages[0]["content"]
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Response("", "stop", 1, 0, 0.0), None),
        (Response("found: bi", "length", 1, 1, 0.0), None),
        (Response("I will not", "refusal", 1, 1, 0.0), "refused"),
    ],
)
def test_empty_and_cut_answers_are_failed_actions_and_a_refusal_ends_it(
    folder: Path, answer: Response, kind: str | None
) -> None:
    outcome, script = run_node(machine(), ROW, folder, says(answer, "hm", "bible", "done"))  # type: ignore[arg-type]
    assert outcome.failure == kind
    if kind is None:
        assert outcome.prediction == {"found": "bible"} and path_of(outcome)[:2] == ["search", "fix"]
        assert all(m["content"] for request in script.requests for m in request.messages)


def test_a_fenced_answer_is_run_without_its_fence_and_results_are_cut(folder: Path) -> None:
    node = machine(chars=20)
    outcome, script = run_node(node, ROW, folder, says("Here:\n```text\nbible\n```\nGood?", "done"))
    assert outcome.prediction == {"found": "bible"}
    assert len(script.requests[1].messages[-1]["content"]) == 20


def test_instructions_of_every_state_are_learnable_at_their_own_address(folder: Path) -> None:
    workflow = make_workflow({"n": machine()}, folder)
    texts = learnable_addresses(workflow, "text")
    address = "nodes.n.states.search.instructions"
    assert set(texts) == {
        "nodes.n.instructions",
        *(f"nodes.n.states.{s}.instructions" for s in ("search", "check", "fix")),
    }
    assert setting_at(workflow, address) == "SEARCH" and setting_at(workflow, "nodes.n.max_steps") == 10
    changed = workflow.patched({address: "SEEK", "nodes.n.max_steps": 4})
    assert changed.diff(workflow)[1] == (address, "SEEK", "SEARCH")
    assert node_at(changed, address).config.instructions == "SEEK"
    outcome, script = None, Script(says("bible", "done"))
    outcome = run_rows(changed, [ROW], script, folder / "run.db")[0]
    assert outcome.failure is None and "SEEK" in script.requests[0].messages[0]["content"]
    with pytest.raises(SpecError, match="no state 'chek'"):
        workflow.patched({"nodes.n.states.fix.next": "chek"})


FILE = """\
name: t
data: {file: rows.jsonl}
metric: exact_match(found)
nodes:
  n:
    signature: "wish -> found"
    start: search
    states:
      search:
        run: python:mytools.py:shout
        next:
          - {when: error, to: fix}
          - {when: {regex: x}, keep: found, to: end}
      fix:
        next: search
"""


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("to: fix}", "to: fxi}", "12:27", "there is no state 'fxi'\n  Did you mean 'fix'?"),
        ("next: search", "next: serach", "15:9", "no state 'serach'\n  Did you mean 'search'?"),
        ("to: end}", "to: submit}", "13:45", "there is no state 'submit'"),
        ("start: search", "start: searhc", "7:5", "no state 'searhc' to start in\n  Did you mean 'search'?"),
        ("start: search\n", "max_steps: 3\n", "5:3", "'start' is missing"),
        ("to: end}", "to: fix}", "8:5", "no transition leads to the end\n  Add a transition to the end"),
        ("to: fix}", "to: end}", "14:7", "no path leads from 'search' to the state 'fix'\n  Add a transition to it"),
        ("when: error, to: fix", "to: fix", "13:13", "this transition is never taken"),
        ("keep: found", "keep: fund", "13:32", "'fund' is not an output of the signature\n  Did you mean 'found'?"),
        ("when: error,", "when: eror,", "12:14", "'eror' is not a condition. Write error, always, or"),
        ("regex: x", "regx: x", "13:21", "unknown key 'regx'"),
        ("regex: x", "regex: '('", "13:21", "'(' is not a regular expression"),
        ("regex: x", "regex: x, lm: y", "13:14", "exactly one of error, always"),
        ("regex: x", "lm: x, of: action", "13:14", "'of' belongs to regex"),
        ("py:shout", "py:shuot", "10:9", "mytools.py has no function 'shuot'\n  Did you mean 'shout'?"),
        (
            "py:shout",
            "py:look",
            "10:9",
            "the tool of 'run' must need one argument besides none: the answer; look needs name, shelf",
        ),
        (
            "start: search\n",
            "start: search\n    arguments: {shelf: wish}\n",
            "8:17",
            "no tool takes the argument 'shelf'",
        ),
        ("next: search", "next: search\n        tols: []", "16:9", "unknown key 'tols'"),
        ("next: search", "next: []", "15:9", "at least one item"),
        ("next: search", "next: fix", "15:9", "from the state 'fix' no path leads to the end"),
        ("wish -> found", "wish ->", "6:5", "at least one output"),
        ("wish -> found", "wish found", "6:5", "a signature has one '->'"),
        ("      fix:", "      end:", "14:7", "'end' cannot name a state"),
        ("      fix:", "      a.b:", "14:7", "'a.b' cannot name a state"),
    ],
)
def test_faulty_machines_are_refused_with_line_column_and_a_suggestion(
    folder: Path, old: str, new: str, place: str, words: str
) -> None:
    assert FILE.count(old) == 1 or old == "next: search" or old.startswith("start"), old
    text = (
        FILE.replace(old, new) if "next: search" not in old else FILE.replace("        next: search", f"        {new}")
    )
    assert text != FILE
    spec, source = check_spec(load_yaml(text, "w.yaml"))
    with pytest.raises(SpecError) as caught, source.locating():
        load_workflow(spec, folder)
    assert f"w.yaml:{place}: " in str(caught.value) and words in str(caught.value), str(caught.value)


def test_the_file_that_the_faults_are_planted_in_is_sound(folder: Path) -> None:
    spec, _ = check_spec(load_yaml(FILE, "w.yaml"))
    assert load_workflow(spec, folder).nodes["n"]["kind"] == "states"


def test_the_schema_for_editors_knows_the_short_forms_too() -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator(json_schema())
    value = load_yaml(FILE, "w.yaml").value
    gallery = load_yaml_file(Path(__file__).parents[3] / "workflows/intercode_sql.yaml").value
    assert validator.is_valid(value) and validator.is_valid(gallery)
    for wrong in (3, [], [{"when": "eror", "to": "fix"}], [{"when": "error"}]):
        value["nodes"]["n"]["states"]["fix"]["next"] = wrong
        assert not validator.is_valid(value), wrong


NAMES = ["a", "b", "c", "d"]
CONDITIONS = st.sampled_from(
    ["error", {"regex": "x"}, {"regex": "y|z", "of": "action"}, {"lm": "Good?"}, {"outcome": {"kind": "book"}}]
)
DOES = [{"run": "python:mytools.py:look"}, {"tools": ["python:mytools.py:look"]}, {}]


@st.composite
def machines(draw: Any) -> dict[str, Any]:
    """Machines of one to four states; about half of them are sound."""
    names = NAMES[: draw(st.integers(1, 4))]
    states = {}
    for name, after in zip(names, [*names[1:], "end"], strict=True):
        targets = st.sampled_from([*names, after, after, "end"])
        steps = [{"when": draw(CONDITIONS), "to": draw(targets)} for _ in range(draw(st.integers(0, 3)))]
        steps.append({"when": draw(st.one_of(st.just("always"), CONDITIONS)), "to": draw(targets)})
        for step in steps:
            step |= draw(st.sampled_from([{}, {"keep": "found"}]))
        states[name] = {"next": steps, **draw(st.sampled_from(DOES))}
    return {
        "states": states,
        "signature": "wish -> found",
        "start": draw(st.sampled_from([names[0], *names])),
        "arguments": {"shelf": "shelf"},
        "max_steps": draw(st.integers(1, 12)),
    }


ANSWERS = st.lists(
    st.sampled_from(
        [
            "x",
            "y",
            "book",
            "nothing",
            "yes",
            "no",
            "",
            "found: z",
            "```\nbook\n```",
            'call: {"tool": "look", "arguments": {"name": "book"}}',
            "call: {}",
        ]
    ),
    min_size=1,
    max_size=8,
)
PROPERTY = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.slow
@PROPERTY
@given(node=machines(), answers=ANSWERS)
def test_every_machine_that_is_accepted_terminates_within_its_turns(
    folder: Path, node: dict[str, Any], answers: list[str]
) -> None:
    """Also: it never leaves for an unknown state, and asks no more often than it says it will."""
    try:
        workflow = make_workflow({"n": node}, folder)
    except SpecError:
        reject()
    asked = iter(range(10**6))
    script = Script(lambda request: answers[next(asked) % len(answers)])
    outcome = run_rows(workflow, [ROW], script, folder / "run.db")[0]
    (folder / "run.db").unlink()
    path = path_of(outcome)
    assert 1 <= len(path) <= node["max_steps"] and set(path) <= set(node["states"])
    assert len(script.requests) <= node_at(workflow, "nodes.n.start").max_calls
    if outcome.failure is None:
        assert isinstance(outcome.prediction["found"], str) and outcome.prediction["found"]
    else:
        assert outcome.failure == "steps" and len(path) == node["max_steps"], outcome
    for here, there in itertools.pairwise(path):
        assert there == here or any(s["to"] == there for s in node["states"][here]["next"])


@PROPERTY
@given(node=machines())
def test_a_machine_is_accepted_if_and_only_if_every_state_can_be_reached_and_left(
    folder: Path, node: dict[str, Any]
) -> None:
    def reachable(start: str, edges: set[tuple[str, str]]) -> set[str]:
        found, before = {start}, set()
        while found != before:
            before, found = found, found | {b for a, b in edges if a in found}
        return found

    edges = {(name, step["to"]) for name, state in node["states"].items() for step in state["next"]}
    back = {(b, a) for a, b in edges}
    sound = set(node["states"]) <= reachable(node["start"], edges) & reachable("end", back)
    try:
        make_workflow({"n": node}, folder)
        assert sound
    except SpecError as error:
        assert not sound and error.path and error.hint, error
