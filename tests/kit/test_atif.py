"""Trajectories in ATIF, of Harbor and Terminal-Bench: read by `import traces` and `attribute`, written of our rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st
from tests.helpers.atif import Trajectory
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request, Response
from workbench_kit.logs import Log, LogStep, load_logs, read_trajectory
from workbench_traces.read_files import read_turns

CALL = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "ls"}}
RUN: dict[str, Any] = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s1",
    "agent": {"name": "terminus", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be brief."},
        {"step_id": 2, "source": "user", "message": "List files.", "timestamp": "2026-01-02T03:04:05Z"},
        {
            "step_id": 3,
            "source": "agent",
            "message": "",
            "tool_calls": [CALL],
            "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}]},
            "metrics": {"prompt_tokens": 3, "completion_tokens": 4},
        },
        {"step_id": 4, "source": "agent", "message": "There is a.txt."},
    ],
    "extra": {"reward": 1.0, "user_id": "u7"},
}
SUB = {
    "schema_version": "ATIF-v1.7",
    "trajectory_id": "sub",
    "agent": {"name": "searcher", "version": "1"},
    "steps": [{"step_id": 1, "source": "agent", "message": "I looked."}],
}


def write(folder: Path, *values: Any, name: str = "t.jsonl") -> Path:
    (folder / name).write_text("".join(json.dumps(value) + "\n" for value in values))
    return folder / name


def changed(step: int, **changes: Any) -> dict[str, Any]:
    steps = [{**one, **(changes if number == step else {})} for number, one in enumerate(RUN["steps"], 1)]
    return {**RUN, "steps": steps}


@pytest.mark.parametrize("form", [None, "atif"])
def test_u33_a_trajectory_is_a_log(form: str | None, tmp_path: Path) -> None:
    (log,) = load_logs(write(tmp_path, RUN), form)
    assert log == Log(
        "t.jsonl",
        (
            LogStep("system", "Be brief.", "system"),
            LogStep("user", "List files.", "user"),
            LogStep("terminus", 'calls bash({"cmd": "ls"})'),
            LogStep("terminus", "a.txt", "tool bash"),
            LogStep("terminus", "There is a.txt."),
        ),
        "List files.",
        outcome="There is a.txt.",
        score=1.0,
    )


@pytest.mark.parametrize("form", [None, "atif"])
def test_u33_a_trajectory_is_a_turn(form: str | None, tmp_path: Path) -> None:
    (turn,) = read_turns([write(tmp_path, RUN)], form)
    assert (turn.input, turn.output, turn.conversation, turn.user) == ("List files.", "There is a.txt.", "s1", "u7")
    assert [role for role, _ in turn.messages] == ["system", "user", "assistant", "tool"]
    assert turn.scores["reward"] == 1.0 and turn.time is not None
    assert turn.source == {"file": "t.jsonl", "format": "atif", "id": "s1"}


@pytest.mark.parametrize("version", [f"ATIF-v1.{n}" for n in range(9)] + ["ATIF-v1", "ATIF-v1.12"])
def test_every_minor_version_is_read(version: str, tmp_path: Path) -> None:
    path = write(tmp_path, {**RUN, "schema_version": version, "later": 1})
    assert len(load_logs(path)[0].steps) == 5 and read_turns([path])[0].output == "There is a.txt."


def test_parts_name_what_is_no_text() -> None:
    parts = [{"type": "text", "text": "See"}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]
    assert read_trajectory(changed(2, message=parts), "x").steps[1].text == "See\n[image]"


@pytest.mark.parametrize("key", ["trajectory_id", "session_id"])
def test_a_subagent_stands_where_it_was_asked_once(key: str, tmp_path: Path) -> None:
    ref = {"content": "done", "subagent_trajectory_ref": [{key: "sub"}, {"trajectory_path": "far.json"}]}
    value = changed(3, observation={"results": [ref, ref]}) | {"subagent_trajectories": [SUB]}
    (log,) = load_logs(write(tmp_path, value))
    assert [step.agent for step in log.steps] == ["system", "user", "terminus", "searcher", *["terminus"] * 3]
    assert log.steps[4].content == "done\n[trajectory far.json]"


def test_copied_context_is_no_step_of_the_log_but_stands_in_the_turn(tmp_path: Path) -> None:
    path = write(tmp_path, changed(2, is_copied_context=True))
    assert [step.agent for step in load_logs(path)[0].steps].count("user") == 0
    assert read_turns([path])[0].input == "List files."


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({**RUN, "schema_version": "ATIF-v2.0"}, "schema_version"),
        ({**RUN, "agent": {}}, "agent has no name"),
        ({**RUN, "steps": []}, "no steps"),
        (changed(2, source="human"), "step 2 has no source"),
        (changed(2, message=None), "step 2 has no message"),
        ({**RUN, "subagent_trajectories": [{**SUB, "steps": 5}]}, "a subagent: it has no steps"),
    ],
)
def test_what_is_no_trajectory_is_told_with_its_place(value: Any, said: str, tmp_path: Path) -> None:
    path = write(tmp_path, RUN, value)
    for read in (lambda: load_logs(path), lambda: read_turns([path])):
        with pytest.raises(SpecError, match=said) as caught:
            read()
        assert "2" in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*RUN, *RUN["steps"][2], "results"]), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["agent", "steps", "extra", "subagent_trajectories"]), JSON), JSON)
def test_no_value_breaks_the_reader(changes: Any, observation: Any) -> None:
    for value in ({**RUN, **changes}, changed(3, observation=observation, tool_calls=observation)):
        try:
            read_trajectory(value, "x")
        except SpecError:
            continue


# Our rows


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An evaluation of an agent with native calls, and of a node behind it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text("def look(key: str) -> str:\n    return 'shelf ' + key\n")
    write(tmp_path, *({"text": f"b{n}", "label": f"shelf b{n}"} for n in range(4)), name="rows.jsonl")
    nodes = {
        "find": {"agent": "text -> place", "tools": ["python:tools.py:look"], "native": True},
        "say": {"predict": "place -> label", "instructions": "Repeat.", "demos": [{"place": "x", "label": "x"}]},
    }
    spec = {"name": "shelves", "lm": "openai/m", "data": {"val": "rows.jsonl"}, "metric": "exact_match(label)"}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({**spec, "nodes": nodes}))

    def say(request: Request) -> Response:
        last = request.messages[-1]
        if not request.tools:
            return Response(str(last["content"]).split("place: ")[-1].split("\n")[0], "stop", 9, 2, 0.0, thoughts="Hm.")
        if last["role"] == "tool":
            return Response(str(last["content"]).removeprefix("result: "), "stop", 7, 3, 0.0)
        key = str(last["content"]).split("text: ")[-1].split("\n")[0]
        call = {"id": "c1", "name": "look", "arguments": json.dumps({"key": key})}
        return Response("", "tool_calls", 5, 1, 0.0, tool_calls=(call,))

    report = evaluate("w.yaml", options=EvalOptions(repeats=2), database="run.db", pool=Script(say))
    assert report.score == 1.0
    return tmp_path / "run.db"


def call(*words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--db", "run.db"])


def test_u33_rows_are_exported_as_the_specification_has_them(database: Path) -> None:
    assert call("export", "--format", "atif", "--out", "rows.jsonl.atif.jsonl").exit_code == 0
    lines = [json.loads(line) for line in Path("rows.jsonl.atif.jsonl").read_text().splitlines()]
    assert len({Trajectory.model_validate(line).trajectory_id for line in lines}) == len(lines) == 8
    steps = lines[0]["steps"]
    asked, answered, said = (step for step in steps if "metrics" in step)
    assert asked["tool_calls"] == [{"tool_call_id": "c1", "function_name": "look", "arguments": {"key": "b0"}}]
    assert asked["observation"] == {"results": [{"source_call_id": "c1", "content": "result: shelf b0"}]}
    assert (answered["message"], answered["extra"], said["reasoning_content"]) == ("shelf b0", {"node": "find"}, "Hm.")
    assert lines[0]["final_metrics"]["total_prompt_tokens"] == 5 + 7 + 9 and lines[0]["extra"]["score"] == 1.0
    assert [s["message"] for s in steps if s.get("is_copied_context")] == ["x"], "a demo is context"
    assert "label" not in json.dumps({**lines[0], "steps": [], "extra": {}})


def test_u33_what_is_exported_is_read_again(database: Path) -> None:
    assert call("export", "--format", "atif", "--out", "atif").exit_code == 0
    logs = load_logs(Path("atif"))
    assert len(logs) == 8 and logs[0].outcome == "shelf b0"
    done = CliRunner().invoke(cli, ["data", "traces", *map(str, sorted(Path("atif").iterdir())), "--out", "in/r.jsonl"])
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(cli, ["validate", "in/workflow.yaml"]).exit_code == 0


def test_nu4_thoughts_in_an_answer_are_exported_as_such_and_the_score_is_the_one_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, *({"text": f"b{n}", "label": "b"} for n in range(4)), name="rows.jsonl")
    spec = {"name": "t", "lm": "openai/m", "data": {"val": "rows.jsonl"}, "metric": "exact_match(label)"}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({**spec, "nodes": {"say": {"predict": "text -> label"}}}))
    said = Response("<think>\na?\n</think>\n\nb", "stop", 1, 2, 0.0, thoughts="Hm.")
    evaluate("w.yaml", options=EvalOptions(), database="run.db", pool=Script(lambda request: said))
    assert call("export", "--format", "atif", "--out", "atif").exit_code == 0
    step = json.loads(Path("atif/1.json").read_text())["steps"][-1]
    assert (step["message"], step["reasoning_content"]) == ("b", "Hm.\n\na?")
    done = CliRunner().invoke(cli, ["data", "traces", "atif", "--out", "in/r.jsonl"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in Path("in/r.jsonl").read_text().splitlines()]
    assert {(row["output"], row["answer"], row["score"]) for row in rows} == {("b", "b", 1.0)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--split", "test"], "stores no steps of the test rows"),
        (["--candidate", "nobody"], "no candidate 'nobody'"),
        (["--out", "one.json"], "there are 8 rows"),
        (["--out", "w.yaml"], "is neither a .jsonl or .json file"),
        (["--out", "rows.jsonl"], "exists"),
        (["--out", "."], "nor a new or empty folder"),
    ],
)
def test_an_export_that_cannot_be_is_told(words: list[str], said: str, database: Path) -> None:
    done = call("export", "--format", "atif", *words)
    assert said in str(done.exception)


@pytest.mark.parametrize("odd", [5, True, "sub", {"trajectory_id": "sub"}, [5], None])
def test_references_of_another_form_lead_nowhere(odd: Any) -> None:
    result = {"content": "done", "subagent_trajectory_ref": odd}
    step = {"step_id": 1, "source": "agent", "message": "hm", "observation": {"results": [result]}}
    value = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": [step]}
    assert read_trajectory(value, "here").steps[0].results[0].text == "done"
