"""The node `play`, run by the real runtime with a scripted model and planted worlds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.node_runs import run
from tests.helpers.planted_world import __file__ as WORLDS
from tests.helpers.strangers import passed_by

from workbench.errors import NodeError, SpecError
from workbench.lm import Request
from workbench.task import Example
from workbench_worlds.metric import WorldScore
from workbench_worlds.process import WorldKeeper, WorldPlace

LAMPS = ["red", "green", "green", "red"]
NODE = {
    "play": f"python:{WORLDS}:Lamps",
    "task": {"lamps": "lamps"},
    "of": {"predict": "observation, history -> action", "instructions": "Name the colour."},
}


def shown(request: Request, field: str) -> str:
    """What the prompt shows of a field, up to the history or the end."""
    text = str(request.messages[-1]["content"]).partition(f"{field}: ")[2]
    return text if field == "history" else text.partition("\nhistory: ")[0]


def name_lamp(request: Request) -> str:
    return f"action: {shown(request, 'observation').split()[1]}"


def play(
    folder: Path,
    say: Any = name_lamp,
    row: dict[str, Any] | None = None,
    times: int = 1,
    timeout: float = 60,
    **changed: Any,
) -> Any:
    return run({"n": {**NODE, **changed}}, {"lamps": LAMPS, **(row or {})}, folder, say, times, timeout=timeout)


def empty(folder: Path) -> Path:
    """A folder within, with no journal."""
    (folder / "empty").mkdir()
    return folder / "empty"


def test_an_episode_is_played_to_its_end_and_scored_by_the_world(folder: Path) -> None:
    outcome, lm, workflow = play(folder)
    assert outcome.prediction["score"] == 1.0 and outcome.prediction["actions"] == LAMPS, outcome.message
    assert outcome.trace.spans[0].notes == {"steps": 4, "ended": "world"} and len(lm.requests) == 4
    assert workflow.input_fields == ["lamps"] and workflow.max_calls == 20
    wrong = play(empty(folder), lambda request: "action: blue")[0]
    assert wrong.prediction["score"] == 0.0 and wrong.failure is None


def test_the_verdict_of_a_world_takes_the_place_of_the_last_observation(folder: Path) -> None:
    world = folder / "judging.py"
    world.write_text(f"""
import importlib.util
spec = importlib.util.spec_from_file_location("planted", {WORLDS!r})
planted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(planted)

class Judging(planted.Lamps):
    def verdict(self):
        return "all wrong" if self.right == 0 else ""
""")
    right = play(folder, play=f"python:{world}:Judging")[0].prediction
    wrong = play(folder / "..", lambda request: "action: blue", play=f"python:{world}:Judging")[0].prediction
    assert right["observation"].startswith("lamp: none") and wrong["observation"] == "all wrong"


def test_a_command_may_be_shown_in_a_fence(folder: Path) -> None:
    outcome = play(folder, lambda request: f"```bash\n{name_lamp(request).removeprefix('action: ')}\n```")[0]
    assert outcome.prediction["score"] == 1.0, outcome.prediction


def test_the_metric_is_the_score_of_the_world(folder: Path) -> None:
    prediction = play(folder, lambda request: "action: red")[0].prediction
    assert prediction["score"] == 0.5 == WorldScore()(Example("1", {}), prediction, None)
    assert WorldScore("part")(Example("1", {}), {"part": 1, "score": 0}, None) == 1.0


def test_a_resumed_row_reads_its_steps_and_opens_no_world(folder: Path) -> None:
    log = folder / "log"
    outcome, lm, _ = play(folder, row={"log": str(log)}, times=3, task={"lamps": "lamps", "log": "log"})
    assert outcome.prediction["score"] == 1.0 and log.read_text().split() == ["reset", *LAMPS]
    assert {len(span.calls) for span in outcome.trace.spans[1:]} == {1} and len(lm.requests) == 4


def cut_row(folder: Path, at: int, **changed: Any) -> Any:
    """Play until the model fails at a call, then again with one that does not; the second outcome and its model."""
    row, task = {"log": str(folder / "log")}, {"lamps": "lamps", "log": "log"}
    calls = iter(range(100))

    def fail(request: Request) -> str:
        if next(calls) == at:
            raise KeyboardInterrupt  # as a stop in the middle of the row
        return name_lamp(request)

    with pytest.raises(KeyboardInterrupt):
        play(folder, fail, row, task=task, **changed)
    outcome, lm, _ = play(folder, row=row, task=task, **changed)
    return outcome, lm


def test_a_row_that_goes_on_plays_its_actions_again_and_pays_for_the_rest_alone(folder: Path) -> None:
    outcome, lm = cut_row(folder, 2)
    assert outcome.prediction["score"] == 1.0 and len(lm.requests) == 2
    assert (folder / "log").read_text().split() == ["reset", *LAMPS[:2], "reset", *LAMPS]


def test_a_world_that_goes_another_way_when_it_is_resumed_fails_the_row(folder: Path) -> None:
    world = folder / "drifting.py"
    world.write_text(f"""
import importlib.util
spec = importlib.util.spec_from_file_location("planted", {WORLDS!r})
planted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(planted)

class Drifting(planted.Lamps):
    def __init__(self):
        super().__init__(clock=True)
        self.repeats = True
""")
    outcome, _ = cut_row(folder, 2, play="python:drifting.py:Drifting")
    assert outcome.failure == "environment" and "went another way when it was resumed: action 0" in outcome.message


def test_a_world_with_a_clock_may_differ_and_the_trace_tells(folder: Path) -> None:
    outcome, _ = cut_row(folder, 2, settings={"clock": True})
    assert outcome.prediction["score"] == 1.0 and outcome.trace.spans[0].notes["differed"] == [0, 1, 2]


def test_a_world_draws_the_same_for_the_same_task(folder: Path) -> None:
    rooms = [play(place)[0].prediction["observation"] for place in (folder, empty(folder))]
    other = play(folder, row={"lamps": ["red"]})[0].prediction["observation"]
    assert rooms[0] == rooms[1] != other


FAULTS = {
    "fail": "ValueError: the lamp is broken",
    "die": "signal 11",
    "hang": "no answer within 1.5 s",
    "fill": "its folder holds more than 1000000 bytes",
    "speak": "it said more than 4000000 bytes at once",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_world_costs_its_row_and_is_journalled(fault: str, folder: Path) -> None:
    outcome, lm, _ = play(folder, times=2, settings={"fault": fault}, timeout=1.5 if fault == "hang" else 3)
    assert outcome.failure == "environment" and FAULTS[fault] in outcome.message, outcome.message
    assert len(lm.requests) == 2


def test_what_a_world_prints_goes_nowhere(folder: Path) -> None:
    assert play(folder, settings={"fault": "chatter"})[0].prediction["score"] == 1.0


def test_all_that_a_world_began_ends_with_its_row_while_others_live_on(folder: Path) -> None:
    def begin(lamps: list[str], **more: str) -> dict[str, Any]:
        return {"do": "reset", "settings": {}, "task": {"lamps": lamps, **more}}

    async def main() -> None:
        keeper = await WorldKeeper.open(WorldPlace(NODE["play"], folder))
        try:
            row, other = await keeper.begin(), await keeper.begin()
            await row.ask(begin(["red"] * 3, fault="linger", log=str(folder / "log")), 20)
            await other.ask(begin(["red"]), 20)
            await row.ask({"do": "step", "action": "red"}, 20)
            with pytest.raises(NodeError, match="no answer within 1 s"):
                await row.ask({"do": "step", "action": "red"}, 1)
            program = Path(f"/proc/{(folder / 'log').read_text().split()[0]}")
            async with asyncio.timeout(10):
                while program.exists():
                    await asyncio.sleep(0.02)
            assert (await other.ask({"do": "step", "action": "red"}, 20))["done"]
            other.close()
        finally:
            await keeper.aclose()

    asyncio.run(main())


def test_a_player_is_told_its_tools_once_and_when_they_change(folder: Path) -> None:
    (folder / "boxes.py").write_text("""
class Boxes:
    brief = "open it"
    def reset(self, task):
        self.turn, self.tools = 0, [{"name": "open"}]
        return "a box"
    def step(self, action):
        self.turn += 1
        self.tools = [] if self.turn == 2 else [{"name": "open"}]
        return f"a box after {self.turn}"
    def score(self):
        return 0.0
""")
    node = {"predict": "brief, tools, observation -> action"}
    outcome, lm, _ = play(folder, lambda request: "action: wait", play="python:boxes.py:Boxes", of=node, max_steps=4)
    assert [("- open(" in str(request.messages[-1])) for request in lm.requests] == [True, True, False, True]
    told = [effect.result for effect in outcome.trace.spans[0].effects]
    assert [sorted({"brief", "tools"} & one.keys()) for one in told[:4]] == [
        ["brief", "tools"],
        [],
        ["tools"],
        ["tools"],
    ]


PLAYERS = {
    "play": f"python:{WORLDS}:Whispers",
    "task": {"secret": "secret"},
    "players": {
        "asker": {"predict": "goal, tools, observation, history -> action", "instructions": "Ask."},
        "knower": {"predict": "tools, observation -> action", "instructions": "Know."},
    },
}


def talk(request: Request, first: str = "What is it?") -> str:
    """The asker asks and opens with what it is told; the knower looks and tells."""
    tools, observation = shown(request, "tools"), shown(request, "observation")
    if "Know." in str(request.messages[0]["content"]):
        assert "- look(" in tools and "- open(" not in tools and "goal" not in tools
        known = observation.partition("the word is ")[2].split()
        return f"action: It is {known[0]}" if known else 'action: call: {"tool": "look", "arguments": {}}'
    assert "- open(" in tools and "- look(" not in tools
    told = observation.partition("It is ")[2].split()
    return f'action: call: {{"tool": "open", "arguments": {{"word": "{told[0]}"}}}}' if told else f"action: {first}"


def test_players_have_their_own_turns_tools_and_knowledge(folder: Path) -> None:
    row = {"secret": "seven", "goal": "open the box"}
    outcome, lm, workflow = run({"n": PLAYERS}, row, folder, talk)
    assert outcome.prediction["score"] == 1.0, outcome.message
    assert [span.agent for span in outcome.trace.spans[1:]] == ["asker", "knower", "knower", "asker"]
    assert sorted(workflow.input_fields) == ["goal", "secret"]
    assert "seven" not in str(lm.requests[0].messages) and "open the box" not in str(lm.requests[1].messages)


def test_one_node_may_play_all_sides_and_has_the_tools_of_each_in_turn(folder: Path) -> None:
    turns = iter(["What?", 'call: {"tool": "look", "arguments": {}}', "It is it.", 'call: {"tool": "look"}'])
    of = {"predict": "observation -> action"}
    node = {"play": PLAYERS["play"], "task": PLAYERS["task"], "max_steps": 4, "of": of}
    outcome = run({"n": node}, {"secret": "seven"}, folder, lambda request: f"action: {next(turns)}")[0]
    assert outcome.prediction["observation"] == "You have no tool 'look'. You have: open."
    assert [span.agent for span in outcome.trace.spans[1:]] == ["asker", "knower", "knower", "asker"]


def test_a_tool_of_the_other_side_is_not_there(folder: Path) -> None:
    def cheat(request: Request) -> str:
        return talk(request, 'call: {"tool": "look", "arguments": {}}')

    outcome = run({"n": {**PLAYERS, "max_steps": 3}}, {"secret": "seven", "goal": "g"}, folder, cheat)[0]
    assert outcome.prediction["observation"] == "You have no tool 'look'. You have: open."
    assert outcome.prediction["score"] == 0.0 and outcome.trace.spans[0].notes["ended"] == "steps"


def test_a_policy_holds_for_actions_and_for_tools(folder: Path) -> None:
    rules = {"rules": [{"deny": "Lamps", "when": {"verb": "green"}}]}
    outcome = run({"n": NODE}, {"lamps": LAMPS}, folder, name_lamp, policy=rules)[0]
    assert outcome.failure == "policy" and outcome.trace.spans[0].effects[-1].content[3]["action"] == "red"
    rules = {"rules": [{"deny": "open", "when": {"word": "seven"}}]}
    outcome = run({"n": PLAYERS}, {"secret": "seven", "goal": "g"}, folder, talk, policy=rules)[0]
    assert outcome.failure == "policy"


def test_differences_are_shown_where_they_are_shorter(folder: Path) -> None:
    long = {"play": "python:long.py:Long", "observations": "diff", "history": 1}
    (folder / "long.py").write_text("""
class Long:
    def reset(self, task):
        self.at = 0
        return self.seen()
    def step(self, action):
        self.at += 1
        return self.seen()
    def seen(self):
        return "\\n".join(f"line {n}: {'here' if n == self.at else 'wall'}" for n in range(40))
    def score(self):
        return 0.0
""")
    lm = play(folder, lambda request: "action: on", max_steps=3, **long)[1]
    seen = [shown(request, "observation") for request in lm.requests]
    assert "line 39" in seen[0] and "line 39" not in seen[1]
    assert "-line 0: here\n-line 1: wall\n+line 0: wall\n+line 1: here" in seen[1]
    assert shown(lm.requests[2], "history").count("action: on") == 1


def test_notes_pass_from_turn_to_turn(folder: Path) -> None:
    def note(request: Request) -> str:
        return f"{name_lamp(request)}\nnotes: {shown(request, 'notes').splitlines()[0]}!"

    lm = play(folder, note, of={"predict": "notes, observation -> action, notes"})[1]
    assert [shown(request, "notes").splitlines()[0] for request in lm.requests] == ["", "!", "!!", "!!!"]


def test_steps_are_credited_by_the_world_or_by_its_score(folder: Path) -> None:
    outcome = play(folder, lambda request: "action: red")[0]
    calls = [span.calls[0] for span in outcome.trace.spans[1:]]
    assert [call.earned for call in calls] == [1.0, 0.0, 0.0, 1.0] and len({call.state for call in calls}) == 4
    outcome = run({"n": PLAYERS}, {"secret": "seven", "goal": "g"}, folder, talk)[0]
    assert [span.calls[0].earned for span in outcome.trace.spans[1:]] == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"play": "textwurld"}, "there is no world 'textwurld'"),
        ({"play": "python:lost.py:World"}, "there is no file"),
        ({"of": {"predict": "observation -> move"}}, "must write `action`"),
        ({"players": {"a": {"predict": "observation -> action"}}}, "give either `of`, a node, or `players`"),
    ],
)
def test_settings_that_cannot_work_are_told(changed: dict[str, Any], said: str, folder: Path) -> None:
    with pytest.raises(SpecError, match=said):
        play(folder, **changed)


def test_a_world_whose_package_is_missing_ends_the_run_and_says_what_to_write(folder: Path) -> None:
    (folder / "lost.py").write_text("import no_such_package\nclass World: ...\n")
    with pytest.raises(SpecError, match="cannot be imported: ModuleNotFoundError") as told:
        play(folder, play="python:lost.py:World")
    assert "no_such_package" in str(told.value.hint)


@pytest.mark.parametrize(
    ("source", "name", "settings", "said"),
    [
        ("raise OSError('no card')", "World", {}, r"cannot be imported: OSError: no card \(w.py, line 1\)"),
        ("class World: ...", "Word", {}, "cannot be imported: LookupError: it has no class Word; its classes: World"),
        ("class World: ...", "World", {"size": 3}, "cannot be made with these settings: TypeError: .*'size'"),
    ],
)
def test_a_world_that_cannot_be_had_ends_the_run_and_says_where(
    source: str, name: str, settings: dict[str, Any], said: str, folder: Path
) -> None:
    (folder / "w.py").write_text(source)
    with pytest.raises(SpecError, match=said) as told:
        play(folder, play=f"python:w.py:{name}", settings=settings)
    assert "requirements" not in str(told.value.hint)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("tools = [{'nam': 'x'}]", "TypeError: tools must be objects with name"),
        ("tools = 'abc'", "TypeError: tools must be objects with name"),
        ("actions = [1]", "TypeError: actions must be texts"),
        ("def reset(self, task): return task['none']", r"KeyError: 'none' \(w.py, line 3\)"),
    ],
)
def test_a_fault_of_a_world_is_told_as_such_and_where(part: str, said: str, folder: Path) -> None:
    (folder / "w.py").write_text(f"class World:\n    def reset(self, task): return ''\n    {part}\n")
    outcome = play(folder, play="python:w.py:World")[0]
    assert outcome.failure == "environment"
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(outcome.message)


def test_requirements_that_are_not_there_are_told(folder: Path) -> None:
    with pytest.raises(SpecError, match="there is no list of requirements .*lock.txt"):
        play(folder, python="lock.txt")
    with pytest.raises(SpecError, match="there is no program './python9'"):
        play(folder, python="./python9")


@pytest.mark.slow
def test_a_venv_is_made_once_from_a_list_of_requirements(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    package = folder / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text('[project]\nname = "tiny-lamp"\nversion = "1"\n')
    (package / "tiny_lamp.py").write_text("from pathlib import Path\n")
    (folder / "lock.txt").write_text(f"{package}\n")
    (folder / "own.py").write_text(f"import tiny_lamp\nexec(tiny_lamp.Path({WORLDS!r}).read_text())\n")
    for name in ("one", "two"):
        (folder / name).mkdir()
        outcome = play(folder, play="python:own.py:Lamps", python="lock.txt")[0]
        assert outcome.prediction["score"] == 1.0, outcome.message
    assert len(list((folder / "cache/workbench/worlds").glob("*/ready"))) == 1


def test_a_world_is_python_and_its_interpreter_and_variables_are_asked_about(folder: Path) -> None:
    (folder / "lock.txt").write_text("textworld\n")
    node = {**NODE, "python": "lock.txt", "env": {"MODE": "$HOME"}, "settings": {"game": "/games/one.z8"}}
    found = passed_by(folder, nodes={"n": node})
    powers = {(one.kind, one.text) for one in found}
    assert ("runs Python", NODE["play"]) in powers and ("reads outside its folder", "/games/one.z8") in powers
    assert ("starts a program", "pip install -r lock.txt") in powers
    assert ("sends a variable of the environment", "HOME to a program, as MODE") in powers
    assert next(one for one in found if "lock.txt" in one.text).files == (folder / "lock.txt",)
    assert [one.text for one in passed_by(folder, nodes={"n": {**NODE, "play": "textworld"}})] == [
        "the world textworld"
    ]


def test_a_world_sees_its_own_variables_and_no_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "spy.py").write_text("""
import os
class Spy:
    done = True
    def reset(self, task):
        return repr(sorted(os.environ))
    def score(self):
        return 1.0
""")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("CITY", "Ulm")
    seen = play(folder, play="python:spy.py:Spy", env={"TOWN": "$CITY"})[0].prediction["observation"]
    assert "'TOWN'" in seen and "'PATH'" in seen and "OPENAI_API_KEY" not in seen and "CITY" not in seen


def test_a_keeper_that_is_killed_costs_the_rows_that_it_had_and_begins_again(folder: Path) -> None:
    request = {"do": "reset", "settings": {}, "task": {"lamps": LAMPS}}

    async def main() -> dict[str, Any]:
        keeper = await WorldKeeper.open(WorldPlace(NODE["play"], folder))
        try:
            row = await keeper.begin()
            await row.ask(request, 20)
            assert keeper._process is not None
            keeper._process.kill()
            while not row.reader.at_eof():  # the kernel kills the row's process with it
                await asyncio.sleep(0.01)
            with pytest.raises(NodeError, match="the process that keeps the worlds has ended"):
                await row.ask({"do": "step", "action": "red"}, 20)
            again = await keeper.begin()
            told = await again.ask(request, 20)
            again.close()
            return told
        finally:
            await keeper.aclose()

    assert asyncio.run(main())["observation"].startswith("lamp: red")


# Between the world and its players


SHOP = """
class Shop:
    done, right = False, False
    def reset(self, task):
        return "menu: terms\\nA page."
    def step(self, action):
        self.done, self.right = action in ("open door", "open exit"), action == "open door"
        return f"menu: terms\\nafter {action}"
    def actions(self):
        return ["open door", "open exit", "scroll down"]
    def tools(self):
        return [{"name": "buy", "parameters": {"type": "object", "properties": {}}}, {"name": "sell"}]
    def score(self):
        return float(self.right)
"""


def shop(folder: Path, said: list[str], **changed: Any) -> Any:
    """said: the model's answers, in order."""
    (folder / "shop.py").write_text(SHOP)
    of, left = {"predict": "observation, actions, tools -> action"}, iter(said)
    return play(
        folder, lambda request: next(left), play=f"python:{folder}/shop.py:Shop", task={}, of=of, max_steps=3, **changed
    )


def test_actions_are_dropped_and_renamed_for_the_players_alone(folder: Path) -> None:
    outcome, lm, _ = shop(
        folder,
        ["action: open exit", "action: scroll  down", "action: visit door"],
        actions={"drop": ["open EXIT", "scroll *", "sell"], "rename": {"open": "visit", "buy": "purchase"}},
    )
    first, second, third = (str(request.messages[-1]["content"]) for request in lm.requests)
    assert "actions: visit door" in first and "scroll" not in first and "exit" not in first
    assert "purchase" in first and "sell" not in first and "buy" not in first
    assert "'open exit' is not possible here. You can: visit door." in second
    assert "'scroll  down' is not possible here." in third
    assert outcome.prediction["score"] == 1.0, "the world was not asked for what is dropped, and knows its own names"
    assert outcome.prediction["actions"] == ["open exit", "scroll  down", "visit door"]
    plain = shop(empty(folder), ["action: open exit"])[0].prediction
    assert plain["score"] == 0.0 and plain["actions"] == ["open exit"]


def test_a_node_stands_between_the_world_and_its_players(folder: Path) -> None:
    prune = 'def prune(observation): return "\\n".join(observation.split("\\n")[1:])'
    observe = {"code": "observation -> observation", "source": prune.replace("\\\\n", "\\n")}
    outcome, lm, workflow = shop(folder, ["action: look", "action: sing", "action: open door"], observe=observe)
    seen = [str(request.messages[-1]["content"]) for request in lm.requests]
    assert not any("menu" in text for text in seen) and "after look" in seen[1] and "after sing" in seen[2]
    assert outcome.prediction["observation"] == "menu: terms\nafter open door", "the world's own"
    asked = {"predict": "observation, goal -> observation", "instructions": "Shorten it."}
    outcome, lm, workflow = shop(
        empty(folder),
        ["observation: short", "action: open exit"],
        observe=asked,
        row={"goal": "out"},
    )
    assert workflow.max_calls == 6 and "goal" in workflow.input_fields
    assert "out" in str(lm.requests[0].messages[-1]["content"])
    assert "observation: short" in str(lm.requests[1].messages[-1]["content"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"observe": {"code": "observation -> seen", "source": "def f(observation): return observation"}},
            "must write",
        ),
        ({"actions": {"rename": {"open": "go", "walk": "go"}}}, "two actions have one name"),
        ({"actions": {"hide": ["x"]}}, "hide"),
    ],
)
def test_what_cannot_stand_between_is_refused(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        shop(folder, ["action: look"], **settings)
