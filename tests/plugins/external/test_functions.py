"""Functions that the gateway offers beside the tools of an agent, which sees none of it; found by `forge`."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.counting_agent import COUNTER, GOOD, WRONG, call_tools, count, count_and_propose
from tests.helpers.external_agents import CLIENT
from tests.helpers.forking import run_module, start_file
from tests.helpers.scripted import Script
from tests.plugins.external.test_runs import recorded_keys
from tests.plugins.forge.test_forge import write
from tests.plugins.sandbox.test_sandbox import _kernel_features

import workbench
from workbench.evaluation import read_side
from workbench.inference import PredictionError, read_workflow
from workbench.ledger import Ledger
from workbench.lm import Request, Response
from workbench.run import Options, candidate_workflow, optimize, prune_run
from workbench.runtime import Runtime
from workbench.spec import BudgetSpec
from workbench.store import IN_MEMORY, Candidates, Store, add_run
from workbench_external.gateway import Ask, Refused
from workbench_external.served import ServedSession

pytestmark = pytest.mark.skipif(bool(_kernel_features()), reason=_kernel_features() or "-")

ROOT = Path(__file__).parents[3]
VOWELS = {"name": "vowels", "source": "def vowels(text):\n    return sum(c in 'aeiou' for c in text)"}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def node(folder: Path, source: str = COUNTER, **settings: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(source)
    return {"external": "text -> answer", "command": ["python", "agent.py"], "timeout": 60, **settings}


def answer(folder: Path, say: Any, source: str = COUNTER, **settings: Any) -> tuple[str, Script]:
    """The answer of one row, and what was asked. settings: of the node; `policy`: of the file."""
    script, file = Script(say), folder / "workflow.yaml"
    policy = settings.pop("policy", {})
    made = node(folder, source, **{"functions": [{**VOWELS, "parameters": SCHEMA}], **settings})
    file.write_text(json.dumps({"name": "t", "lm": "openai/m", "policy": policy, "nodes": {"solve": made}}))
    with workbench.load(file, pool=script) as wf:
        return wf(text="abe")["answer"], script


def test_the_model_uses_a_function_and_the_agent_sees_its_answer_alone(tmp_path: Path) -> None:
    found, script = answer(tmp_path, count)
    assert found == "2"
    first, second = script.requests
    assert [tool["function"]["name"] for tool in first.tools] == ["vowels"] and second.tools == first.tools
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "tool"]


TWICE = f"""{CLIENT}
said = [{{"role": "user", "content": row["text"]}}]
said += [chat(said), {{"role": "user", "content": "again"}}]
print(chat(said)["content"])
"""


def test_what_was_said_unseen_stands_before_its_answer_when_the_agent_goes_on(tmp_path: Path) -> None:
    found, script = answer(tmp_path, count, TWICE)
    roles = [message["role"] for message in script.requests[2].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert script.requests[2].messages[2]["content"] == "result: 2" and found == "3"


OWN_TOOL = f"""{CLIENT}
tools = [{{"type": "function", "function": {{"name": "look", "parameters": {json.dumps(SCHEMA)}}}}}]
said = [{{"role": "user", "content": row["text"]}}]
said.append(chat(said, tools=tools))
calls = said[-1]["tool_calls"]
said += [{{"role": "tool", "tool_call_id": call["id"], "content": "seen"}} for call in calls]
print([call["function"]["name"] for call in calls], chat(said, tools=tools)["content"])
"""


def test_a_call_of_the_agents_own_tool_reaches_it_after_the_functions(tmp_path: Path) -> None:
    own, ours = ("look", '{"text": "x"}'), ("vowels", '{"text": "abe"}')

    def say(request: Request) -> str | Response:
        match [message["role"] for message in request.messages]:
            case ["user"]:
                return call_tools(own, ours)
            case ["user", "assistant", "tool"]:
                return call_tools(own)
            case roles:
                return " ".join(roles)

    found, script = answer(tmp_path, say, OWN_TOOL)
    assert found == "['look'] user assistant tool assistant tool"
    assert [call["function"]["name"] for call in script.requests[1].messages[1]["tool_calls"]] == ["vowels"]


def test_t9_what_a_provider_signed_goes_back_to_it_with_the_calls_of_functions_and_of_the_agent(tmp_path: Path) -> None:
    def signed(*calls: tuple[str, str]) -> Response:
        made, told = call_tools(*calls), list[dict[str, Any]]()
        for call in made.tool_calls:
            function = {"name": call["name"], "arguments": call["arguments"]}
            told.append({"id": call["id"], "type": "function", "function": function, "sig": call["name"]})
        return replace(made, message={"role": "assistant", "content": None, "tool_calls": told, "thought": "hm"})

    def say(request: Request) -> str | Response:
        match [message["role"] for message in request.messages]:
            case ["user"]:
                return signed(("look", '{"text": "x"}'), ("vowels", '{"text": "abe"}'))
            case ["user", "assistant", "tool"]:
                return signed(("look", '{"text": "x"}'))
            case _:
                turns = [message for message in request.messages if message["role"] == "assistant"]
                return " ".join(f"{turn['thought']} {turn['tool_calls'][0]['sig']}" for turn in turns)

    bare = """turn = chat(said, tools=tools)
said.append({name: turn[name] for name in ("role", "content", "tool_calls")})"""
    found, _ = answer(tmp_path, say, OWN_TOOL.replace("said.append(chat(said, tools=tools))", bare))
    assert found == "['look'] hm vowels hm look", "the agent has sent neither"


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ("", True),
        (', tool_choice="auto"', True),
        (', tool_choice="none"', False),
        (', tool_choice="required"', False),
        (', tool_choice={"type": "function", "function": {"name": "look"}}', False),
        (', response_format={"type": "json_object"}', False),
    ],
)
def test_nothing_is_offered_where_the_agent_wants_a_certain_answer(asked: str, offered: bool, tmp_path: Path) -> None:
    source = OWN_TOOL.split("said.append")[0] + f'print(chat(said, tools=tools{asked})["content"])'
    _, script = answer(tmp_path, lambda request: "x", source)
    names = [tool["function"]["name"] for tool in script.requests[0].tools]
    assert names == ["look", *(["vowels"] if offered else [])]


def test_a_tool_of_the_agent_hides_a_function_of_its_name(tmp_path: Path) -> None:
    functions = [{**VOWELS, "name": "look", "source": "def look(text):\n    return 1"}]
    source = OWN_TOOL.split("said.append")[0] + 'print(chat(said, tools=tools)["content"])'
    _, script = answer(tmp_path, lambda request: "x", source, functions=functions)
    assert len(script.requests[0].tools) == 1


@pytest.mark.parametrize(
    ("arguments", "policy", "told"),
    [
        ('{"text": 5}', {}, "error: vowels: error"),
        ('{"word": "abe"}', {}, "error: vowels takes no argument 'word'"),
        ("[]", {}, "error: the arguments must be a JSON object"),
        ("{", {}, "error: the arguments must be a JSON object"),
        ('{"text": "abe"}', {"rules": [{"deny": "vowels"}]}, "error: vowels is not allowed here"),
    ],
)
def test_a_call_that_fails_is_told_to_the_model(arguments: str, policy: Any, told: str, tmp_path: Path) -> None:
    def say(request: Request) -> str | Response:
        return "x" if request.messages[-1]["role"] == "tool" else call_tools(("vowels", arguments))

    _, script = answer(tmp_path, say, policy=policy)
    assert str(script.requests[1].messages[-1]["content"]).startswith(told)


def test_calls_without_end_end_the_row(tmp_path: Path) -> None:
    def say(request: Request) -> Response:
        return call_tools(("vowels", json.dumps({"text": "a" * len(request.messages)})))

    with pytest.raises(PredictionError) as caught:
        answer(tmp_path, say, calls=3)
    assert caught.value.prediction.failure == "steps"


def test_two_functions_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(workbench.errors.tree.SpecError, match="two functions have the same name"):
        answer(tmp_path, count, functions=[VOWELS, VOWELS])


# Forged


FORGE = {"forge": {"steps": 3, "batch": 6}}
ROWS = (8, 10, 16)


def planted(folder: Path) -> Path:
    """The task of counting vowels, with the agent as its node."""
    nodes = {"solve": {**node(folder), "external": "text -> answer: int"}}
    return write(folder, nodes, FORGE, 2000, 0, ROWS)


def forge(folder: Path, *answers: str) -> tuple[Any, Script]:
    script = Script(count_and_propose(*answers))
    options = Options(out=str(folder / "out.yaml"))
    return optimize(planted(folder), database=folder / "run.db", pool=script, options=options), script


@pytest.mark.slow
def test_forge_writes_a_function_for_an_agent_that_knows_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline of the run is what was observed and scored, not the workflow of the file, which has no slots and no
    rows."""
    monkeypatch.setattr("workbench_forge.optimizer.EDITS", 1)
    report, script = forge(tmp_path, WRONG, GOOD)
    assert [f["name"] for f in report.winner.get("nodes.solve.functions")] == ["vowels"]
    assert report.best["test"]["score"] == 1.0 and report.gain_shown
    assert report.spent["calls"] == len(script.requests), "those that the agent did not see are paid for, too"
    store = Store(tmp_path / "run.db")
    row = store.find_run(report.run)
    prune_run(store, row)
    side = read_side(store, f"{report.run}:baseline@test")
    assert side.score == report.baseline["test"]["score"] == 0.0 and len(side.rows) == ROWS[2]
    baseline = candidate_workflow(store, row["id"], Candidates(store, row["id"]).find_baseline())
    assert baseline is not None
    assert [address for address, _, _ in baseline.diff(report.winner)] == ["nodes.solve.functions"]
    store.close()


@pytest.mark.slow
def test_where_no_function_helps_none_is_kept(tmp_path: Path) -> None:
    report, _ = forge(tmp_path, WRONG)
    assert report.status == "finished" and not report.gain_shown
    assert not report.winner.get("nodes.solve.functions", [])


@pytest.mark.slow
def test_it_beats_random_search_with_as_many_calls(tmp_path: Path) -> None:
    forged, script = forge(tmp_path / "forge", WRONG, GOOD)
    file, drawn = planted(tmp_path / "random"), Script(count)
    spec = json.loads(file.read_text())
    spec |= {"optimize": ["random"], "budget": {"calls": len(script.requests)}}
    file.write_text(json.dumps(spec))
    settings = {"database": tmp_path / "random.db", "pool": drawn, "options": Options(out=str(tmp_path / "o.yaml"))}
    assert forged.best["val"] > optimize(file, **settings).best["val"] + 0.5


@pytest.mark.slow
def test_killed_and_resumed_it_pays_no_call_twice_and_finds_the_same(tmp_path: Path) -> None:
    kill_at = 75

    def run_to(folder: Path, last: int, again: bool = False) -> int:
        return start_file("tests/helpers/counting_agent.py", str(folder), str(last), str(again)).wait(120)

    planted(tmp_path / "whole")
    planted(tmp_path / "cut")
    assert run_to(tmp_path / "whole", 0) == 0
    assert run_to(tmp_path / "cut", kill_at) == -signal.SIGKILL
    before = recorded_keys(tmp_path / "cut/run.db")
    assert run_to(tmp_path / "cut", 0, again=True) == 0
    _, second = sorted((tmp_path / "cut-keys").glob("keys_*.txt"), key=lambda path: path.stat().st_mtime)
    assert not before & {*second.read_text().split()} and len(before) > kill_at / 2
    cut, whole = (yaml.safe_load((tmp_path / name / "out.yaml").read_text()) for name in ("cut", "whole"))
    assert cut == whole and cut["nodes"]["solve"]["functions"]


# Afterwards


def test_the_gateway_runs_functions_in_production(tmp_path: Path) -> None:
    file, script = tmp_path / "out.yaml", Script(count)
    made = node(tmp_path, functions=[{**VOWELS, "parameters": SCHEMA}], calls=2)
    file.write_text(json.dumps({"name": "t", "lm": "openai/m", "nodes": {"solve": made}}))
    spec, _, workflow = read_workflow(file, [])

    async def main(say: Any) -> list[str]:
        script.say = say
        store = Store(IN_MEMORY)
        run_id = add_run(store, run="gateway", name="t", status="running", spec="", options="{}")
        ledger = Ledger(store, run_id, BudgetSpec.model_validate({}), recorded=False)
        runtime = Runtime.of_spec(spec, ledger, pool=script)
        session = ServedSession(workflow.enabled_nodes["solve"], workflow, spec, runtime, lambda text: None)
        try:
            return [r.text for r in await session.complete(Ask("m", ({"role": "user", "content": "abe"},)))]
        finally:
            await runtime.aclose()
            store.close()

    assert asyncio.run(main(count)) == ["2"]
    with pytest.raises(Refused, match="in 2 answers in a row"):
        asyncio.run(main(lambda request: call_tools(("vowels", "{}"))))


@pytest.mark.slow
def test_functions_are_no_text_that_can_be_written_back(tmp_path: Path) -> None:
    made = node(tmp_path, functions=[VOWELS])
    (tmp_path / "out.yaml").write_text(json.dumps({"name": "t", "lm": "openai/m", "nodes": {"solve": made}}))
    done = run_module("workbench", "agent", "apply", "out.yaml", "--to", ".", cwd=tmp_path, timeout=100)
    assert done.returncode == 1 and "nodes.solve.functions is not a text of the agent" in done.stderr
