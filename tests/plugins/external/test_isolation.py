"""Nothing that an agent remembers reaches a later row, or the run says that it may."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.external_agents import SORTER, write_agent
from tests.helpers.sqlite import connect
from tests.plugins.external.test_rows import RecordingLM
from tests.plugins.external.test_runs import improve
from tests.plugins.external.test_services import EchoLM, started, write

import workbench
from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.ledger import Ledger
from workbench.proof import Report
from workbench.runtime import Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import IN_MEMORY, Store, add_run
from workbench_external.hub import Hub
from workbench_kit.acting import MIN_CHANGES, Beside
from workbench_testing.simulated import SimulatedLM, SimulatedPool

#: Notes that it was here, and says whether it was before, or in which of several places.
NOTER = """\
import os, pathlib
known = []
for name in "PLACES".split():
    place = pathlib.Path(os.path.expandvars(os.path.expanduser(name))) / f"notes of {name}"
    known += [name] if place.exists() else []
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("here")
print("remembers" if known == "PLACES".split() else " ".join(known) or "new")
"""
#: Keeps each text that it saw in a file beside itself.
NOTEBOOK = f"""{SORTER}
import pathlib
with pathlib.Path(__file__).with_name("memory.jsonl").open("a") as memory:
    memory.write(row["text"] + "\\n")
"""


def load(place: Path, **settings: Any) -> Any:
    node = {"external": "text -> label", "timeout": 30, "command": ["python", "agent.py"], **settings}
    (place / "workflow.yaml").write_text(yaml.safe_dump({"name": "t", "lm": "openai/m", "nodes": {"agent": node}}))
    return workbench.load(place / "workflow.yaml", pool=SimulatedPool(RecordingLM()))


def answers(place: Path, source: str, **settings: Any) -> list[str]:
    """What an agent answers to two rows, one after the other."""
    (place / "agent.py").write_text(source)
    with load(place, **settings) as wf:
        return [wf(text=text)["label"] for text in ("a", "b")]


def kept_state(place: Path, **settings: Any) -> str | None:
    with load(place, **settings) as wf:
        (found,) = {node.kept_state for node in wf.workflow.walk()}
    return found


def test_what_an_agent_writes_to_its_home_caches_and_folder_goes_with_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ["~", "$TMPDIR", "."]
    places += [f"$XDG_{name}" for name in ("CONFIG_HOME", "CACHE_HOME", "DATA_HOME", "STATE_HOME", "RUNTIME_DIR")]
    (ours := tmp_path / "ours").mkdir()
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "DSPY_CACHEDIR"):
        monkeypatch.setenv(name, str(ours))
    (tmp_path / "app").mkdir()
    assert answers(tmp_path, NOTER.replace("PLACES", " ".join(places)), folder="app") == ["new", "new"]
    assert not [*ours.iterdir()]


def test_an_agent_that_keeps_its_state_has_the_users_home_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ours"))
    assert answers(tmp_path, NOTER.replace("PLACES", "~"), state="kept") == ["new", "remembers"]
    assert kept_state(tmp_path, state="kept") == "the agent keeps its state from row to row"
    assert kept_state(tmp_path) is None and kept_state(tmp_path, state="fresh") is None


def test_a_home_that_the_file_names_wins_and_is_kept_state_unless_it_is_the_rows(tmp_path: Path) -> None:
    shared = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert answers(tmp_path, NOTER.replace("PLACES", "$XDG_CACHE_HOME"), env=shared) == ["new", "remembers"]
    assert kept_state(tmp_path, env=shared) == "all rows of the agent have one XDG_CACHE_HOME, by `env`"
    assert kept_state(tmp_path, env={"HOME": "$HOME"}) is not None
    assert kept_state(tmp_path, env={"DSPY_CACHEDIR": "~/.dspy"}) is not None
    assert kept_state(tmp_path, env={"XDG_DATA_HOME": ".", "NOTE": "/tmp"}) is None
    assert kept_state(tmp_path, env={"HOME": "/work"}, image="python:3") is None  # a container goes with its row


def test_weights_and_packages_that_the_user_has_are_not_fetched_again_by_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("TORCH_HOME", "/weights/torch")
    source = "import os; print(os.environ['HF_HUB_CACHE'], os.environ['TORCH_HOME'], os.environ['PYTHONUSERBASE'])"
    found = answers(tmp_path, source)[0].split()
    assert found == ["/home/someone/.cache/huggingface/hub", "/weights/torch", "/home/someone/.local"]
    found = answers(tmp_path, source, env={"HF_HOME": "/hf", "TORCH_HOME": "/mine"})[0].split()
    assert found[:2] == ["/hf/hub", "/mine"]


@pytest.mark.slow
def test_files_that_an_agent_leaves_beside_its_program_are_noticed_also_when_the_run_is_resumed(tmp_path: Path) -> None:
    path = write_agent(tmp_path, NOTEBOOK, rows=(4, 4, 4), budget=40)
    told = leftovers_told(improve(path, "random", SimulatedLM()))
    assert len(told) == 1 and "Later rows can read them there" in told[0]
    (tmp_path / "memory.jsonl").unlink()
    (tmp_path / "agent.py").write_text("no program any more")  # rows that had ended are not run again
    assert leftovers_told(improve(path, "random", SimulatedLM(), again=True)) == told


@pytest.mark.slow
def test_an_agent_that_runs_from_a_copy_leaves_nothing_beside_its_program(tmp_path: Path) -> None:
    path = write_agent(tmp_path, NOTEBOOK, rows=(4, 4, 4), budget=40, folder=".")
    assert not leftovers_told(improve(path, "random", SimulatedLM()))
    assert not (tmp_path / "memory.jsonl").exists()


def test_security_no_row_finds_the_rows_with_their_answers_in_its_copy_of_the_folder(tmp_path: Path) -> None:
    """Sealed rows lie there, too, where the data is kept beside the agent; a link leads to them as well."""
    seen = """import os, sys
found = sorted(os.path.join(place, name) for place, _, names in os.walk(".") for name in names)
print("a")
sys.exit(found != ["./agent.py", "./data/notes.md", "./workflow.yaml"] and str(found))
"""
    path = write_agent(tmp_path, seen, rows=(4, 4, 4), folder=".", slots={}, output="text")
    (tmp_path / "data").mkdir()
    (tmp_path / "test.jsonl").rename(tmp_path / "data" / "test.jsonl")
    (tmp_path / "data" / "notes.md").write_text("of the agent's own")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "train.jsonl")
    spec = yaml.safe_load(path.read_text())
    spec["data"]["test"] = "data/*.jsonl"
    spec["lm"] = "bundled/nano"  # nothing listens at its own, and the agent asks no model
    spec["nodes"]["agent"]["external"] = "text -> label"
    path.write_text(yaml.safe_dump(spec))
    report = evaluate(path, database=tmp_path / "run.db", options=EvalOptions(split="val"))
    assert report.status == "finished" and not report.failures


def leftovers_told(report: Report) -> list[str]:
    return [line for line in report.warnings if "memory.jsonl" in line]


def test_what_was_seen_to_outlive_rows_can_be_asked_of_the_run(tmp_path: Path) -> None:
    store = Store(IN_MEMORY)
    run = add_run(store, run="r", name="t", status="running", spec="", options="{}")
    runtime = Runtime(Ledger(store, run, BudgetSpec.model_validate({}), recorded=False), lm_spec("openai/m"))

    async def main() -> list[list[str]]:
        hub = await runtime.shared("external", Hub.open)
        found: list[list[str]] = []
        for _ in range(MIN_CHANGES):
            found.append(runtime.kept_state())
            hub.count("agent", {"left_beside": ["memory.jsonl"]})
        found.append(runtime.kept_state())
        await runtime.aclose()
        return found

    *before, after = workbench.base.concurrency.run_in_loop(main())
    assert not any(before) and after == ["'agent' leaves files beside its program or tools from row to row"]
    store.close()


def test_runs_logs_and_compiled_code_are_no_leftovers_and_a_database_of_the_agents_own_is(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "old.txt").write_text("a")
    Store(tmp_path / "run.db").close()
    beside = Beside([tmp_path])
    for name in ("run.db-wal", "run.db-shm", "a.log", "nohup.out", "sub/a.pyc"):
        (tmp_path / name).write_text("more")
    (tmp_path / "result.yaml").write_text("name: t\nnodes:\n  a: {}\n")
    with closing(connect(tmp_path / "run.db")) as store:
        store.execute("create table more (x)")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x").write_text("more")
    assert beside.find_changed() == []
    (tmp_path / "sub" / "notes.yaml").write_text("- seen: a")
    with closing(connect(tmp_path / "own.db")) as own:
        own.execute("create table t (x)")
    (tmp_path / "old.txt").write_text("b")
    os.utime(tmp_path / "old.txt", ns=(1, 1))  # on a disk with a coarse clock
    assert beside.find_changed() == ["old.txt", "own.db", "sub/notes.yaml"]
    assert beside.find_changed() == []
    (tmp_path / "old.txt").unlink()
    assert beside.find_changed() == ["old.txt"]


COUNTING = "SEEN = []\ndef work(row):\n    SEEN.append(row)\n    return str(len(SEEN)) + chat(' ')"


def test_a_service_of_ours_lives_for_many_rows_and_the_run_says_so(tmp_path: Path) -> None:
    with workbench.load(write(tmp_path, COUNTING), pool=SimulatedPool(EchoLM())) as wf:
        assert [wf(text=text)["label"].strip() for text in ("a", "b")] == ["1", "2"]
    assert len(started(tmp_path)) == 1
    hub = workbench.base.concurrency.run_in_loop(Hub.open())
    for _ in range(2):
        assert not hub.warnings()
        hub.count("agent", {}, remembers=True)
    (told,) = hub.warnings()
    assert "many rows in one process" in told and "state: fresh" in told
    workbench.base.concurrency.run_in_loop(hub.aclose())


def test_a_fresh_service_is_started_anew_for_each_row(tmp_path: Path) -> None:
    with workbench.load(write(tmp_path, COUNTING, state="fresh"), pool=SimulatedPool(EchoLM())) as wf:
        assert [wf(text=text)["label"].strip() for text in ("a", "b")] == ["1", "1"]
    assert len(started(tmp_path)) == 2
    with pytest.raises(SpecError, match="runs already cannot be started anew for each row"):
        load(tmp_path, url="http://127.0.0.1:1/ask", command=None, state="fresh")
