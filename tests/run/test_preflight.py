"""What a run lacks is said before its first call is paid."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.planted import plant

from workbench import Optimizer, Study, Workflow
from workbench.cli import cli
from workbench.errors import LMError, PluginError, SandboxError, SpecError, WorkbenchError
from workbench.run import Options, find_obstacles, optimize, prepare, resume
from workbench.run.preflight import lms_of
from workbench.store import Store
from workbench.task import workflow_tree
from workbench.workflow import task_lm


class Picky(Optimizer):
    """Lacks whatever it is told to."""

    error: Any = None

    async def ready(self, study: Study) -> None:
        if self.error:
            raise self.error

    async def optimize(self, study: Study) -> Workflow:
        return study.best


def task_file(folder: Path, **spec: Any) -> Path:
    rows = [{"text": f"t{i}", "label": "ab"[i % 2]} for i in range(30)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = {
        "name": "t",
        "data": {"file": "rows.jsonl", "split": {"train": 10, "val": 10, "test": 10}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}},
        "budget": {"calls": 100},
        **spec,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(written))
    return path


def missing(path: Path) -> list[WorkbenchError]:
    _, _, task, optimizers = prepare(path)
    return find_obstacles(task, optimizers)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_an_optimizer_that_is_set_wrongly_costs_nothing(tmp_path: Path) -> None:
    _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    paid = lm.requests
    wrong = [("picky", Picky(error=SpecError(f"no {name}", path=(name,)))) for name in ("field", "row")]
    with pytest.raises(SpecError, match="no field") as caught:
        optimize(tmp_path / "workflow.yaml", database=tmp_path / "two.db", pool=lm, optimizers=wrong)
    assert lm.requests == paid
    assert [e.path for e in (caught.value, *caught.value.more)] == [
        ("optimize", 0, "picky", "field"),
        ("optimize", 1, "picky", "row"),
    ]
    assert caught.value.file is not None and "workflow.yaml" in caught.value.file
    with Store(tmp_path / "two.db") as store:
        row = store.find_run("last")
    assert row["status"] == "failed" and json.loads(row["report"])["spent"]["calls"] == 0


@pytest.mark.parametrize("error", [PluginError("no package"), SandboxError("no sandbox"), LMError("auth", "no key")])
def test_a_run_that_lacked_something_goes_on_once_it_is_there(error: WorkbenchError, tmp_path: Path) -> None:
    """Whatever is missing, the report says how to go on."""
    _, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    missing = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=lm,
        optimizers=[("picky", Picky(error=error)), ("picky", Picky(error=PluginError("nor this")))],
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert (missing.status, missing.error, missing.spent["calls"]) == ("failed", f"{error}\nnor this", 0)
    assert missing.lines()[-1].endswith(f"workbench resume {missing.run} --db {tmp_path / 'two.db'}")
    report = resume("last", database=tmp_path / "two.db", pool=lm, optimizers=[("picky", Picky())])
    assert report.status == "finished"


def test_a_resumed_run_is_not_asked(tmp_path: Path) -> None:
    """All that it needs may be in its journal."""
    report, lm = plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400)
    again = resume(
        "last", database=tmp_path / "run.db", pool=lm, optimizers=[("picky", Picky(error=PluginError("no package")))]
    )
    assert again.status == report.status == "finished"


def test_a_missing_key_is_found_before_the_baseline_of_another_model(tmp_path: Path) -> None:
    path = task_file(tmp_path, roles={"proposer": "openai/gpt-4.1"}, optimize=["rewrite"])
    (error,) = missing(path)
    assert isinstance(error, LMError) and error.kind == "auth" and "OPENAI_API_KEY" in str(error)
    with pytest.raises(LMError, match="OPENAI_API_KEY"):
        optimize(path, database=tmp_path / "run.db", options=Options(out=str(tmp_path / "o.yaml")))
    assert not (tmp_path / "run.db").exists(), "no run is recorded"


def test_a_missing_key_is_no_call(tmp_path: Path) -> None:
    """`eval` has no optimizers to ask, and records no run either."""
    path = task_file(tmp_path, lm="openai/gpt-4.1")
    database = tmp_path / "run.db"
    found = CliRunner().invoke(cli, ["eval", str(path), "--db", str(database)])
    assert found.exit_code == 1 and "OPENAI_API_KEY" in str(found.exception)
    assert not database.exists()


@pytest.mark.parametrize("command", ["validate", "eval", "optimize"])
def test_a_server_of_this_machine_that_is_down_is_found_before_a_run(command: str, tmp_path: Path) -> None:
    path = task_file(tmp_path, lm={"model": "openai/m", "api_base": SERVER})
    more = [] if command == "validate" else ["--db", str(tmp_path / "run.db")]
    found = CliRunner().invoke(cli, [command, str(path), *more])
    assert "no server at 127.0.0.1:9 (Connection refused). Start it" in f"{found.output}{found.exception}"
    assert found.exit_code == (command != "validate") and not (tmp_path / "run.db").exists()


def test_a_server_that_listens_is_asked_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        lm = {"model": "openai/m", "api_base": f"http://127.0.0.1:{server.getsockname()[1]}/v1"}
        assert missing(task_file(tmp_path, lm=lm)) == []
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1) == b"", "it is closed again"


def test_a_ceiling_in_dollars_needs_the_price_of_every_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    path = task_file(tmp_path, roles={"judge": "openai/strange"}, budget={"usd": 1})
    (error,) = missing(path)
    assert isinstance(error, SpecError) and "price of strange" in str(error)


def test_only_models_that_are_asked_are_looked_at(tmp_path: Path) -> None:
    """The file's own model is not asked where each node has another."""
    for own, models in (({"lm": "bundled/nano"}, {"bundled/nano"}), ({}, {"openai/gpt-4.1"})):
        nodes = {"vote": {"ensemble": {"predict": "text -> label", **own}}}
        _, _, task, _ = prepare(task_file(tmp_path, lm="openai/gpt-4.1", nodes=nodes))
        assert {spec.model for spec in lms_of(task)} == models


def test_validate_warns_of_what_is_lacking_here_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    fgo = {"fgo": {"by": "label"}}
    path = task_file(tmp_path, roles={"proposer": "openai/gpt-4.1"}, optimize=[fgo])
    found = CliRunner().invoke(cli, ["validate", str(path)])
    assert found.exit_code == 0 and "Warning: a run would fail here: gpt-4.1 needs an API key" in found.output
    fgo["fgo"]["by"] = "kind"
    path = task_file(tmp_path, optimize=[fgo])
    with pytest.raises(SpecError, match="no training row has the field 'kind'") as caught:
        CliRunner().invoke(cli, ["validate", str(path)], catch_exceptions=False)
    assert caught.value.path == ("optimize", 0, "fgo", "by") and caught.value.line == 1
    assert not (tmp_path / "workbench.db").exists()


# Models under `search:`

SERVER = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("search", "nodes"),
    [
        ({"nodes.sort.lm": ["bundled/nano", "openai/gpt-fake"]}, {}),
        ({"nodes.sort.lm.model": ["openai/gpt-fake"]}, {"lm": {"model": "bundled/nano"}}),
        ({"nodes.sort": {"any_of": {"big": {"predict": "text -> label", "lm": "openai/gpt-fake"}}}}, {}),
        (
            {
                "nodes.sort": {"any_of": {"vote": {"ensemble": {"predict": "text -> label"}}}},
                "nodes.sort.of.lm": ["openai/gpt-fake"],
            },
            {},
        ),
    ],
)
def test_friction_22_a_missing_key_is_found_before_a_model_of_the_search_is_tried(
    search: Any, nodes: Any, tmp_path: Path
) -> None:
    path = task_file(
        tmp_path, search=search, optimize=["random"], nodes={"sort": {"predict": "text -> label", **nodes}}
    )
    (error,) = missing(path)
    assert isinstance(error, LMError) and error.kind == "auth" and "OPENAI_API_KEY" in str(error)
    with pytest.raises(LMError, match="OPENAI_API_KEY"):
        optimize(path, database=tmp_path / "run.db", options=Options(out=str(tmp_path / "o.yaml")))
    assert not (tmp_path / "run.db").exists()


def test_a_model_of_the_search_that_nobody_serves_is_refused_with_its_place(tmp_path: Path) -> None:
    path = task_file(tmp_path, search={"nodes.sort.lm": ["bundled/nano", "opnai/gpt-fake"]})
    with pytest.raises(SpecError, match="there is no LM provider 'opnai'") as caught:
        prepare(path)
    assert caught.value.path == ("search", "nodes.sort.lm") and caught.value.line == 1


def test_the_model_of_the_file_keeps_its_server_when_only_its_name_is_searched(tmp_path: Path) -> None:
    lm = {"model": "openai/one", "api_base": SERVER, "timeout": 7, "price": {"input": 1, "output": 1}}
    _, _, task, _ = prepare(task_file(tmp_path, lm=lm, search={"lm.model": ["openai/one", "openai/two"]}))
    one, two = task.spec.lm, task_lm(task.spec.lm, task.workflow.patched({"lm.model": "openai/two"}))
    assert (two.model, two.api_base, two.timeout, two.price) == ("openai/two", SERVER, 7, None)
    assert task_lm(one, task.workflow.patched({"lm.temperature": 0.5})) == one.model_copy(update={"temperature": 0.5})
    other = task_lm(one, task.workflow.patched({"lm.model": "bundled/nano"}))
    assert (other.model, other.api_base) == ("bundled/nano", None), "another provider has nothing to do with it"
    assert {(lm.model, lm.api_base) for lm in lms_of(task)} == {("openai/one", SERVER), ("openai/two", SERVER)}
    written = workflow_tree(task, task.workflow.patched({"lm.model": "openai/two"}), tmp_path)["lm"]
    assert written == {"model": "openai/two", "api_base": SERVER, "timeout": 7}


def test_a_name_alone_that_leads_to_another_server_is_told(tmp_path: Path) -> None:
    lm = {"model": "openai/one", "api_base": SERVER}
    names = ["openai/one", {"model": "openai/two", "api_base": SERVER}, "bundled/nano"]
    _, _, task, _ = prepare(task_file(tmp_path, lm=lm, search={"nodes.sort.lm": names}))
    (warning,) = (w for w in task.dataset.warnings if "name only" in w)
    assert "openai/one" in warning and f"{{model: openai/one, api_base: {SERVER}}}" in warning


# Ceilings in dollars


@pytest.mark.parametrize("model", ["openai/gpt-4.1", "hosted_vllm/m", "litellm/openai/m"])
def test_a_ceiling_in_dollars_that_holds_nothing_is_refused(model: str, tmp_path: Path) -> None:
    """A server on this machine may be a proxy in front of a paid service."""
    lm = {"model": model, "api_base": SERVER, "attempts": 1}
    (error,) = missing(task_file(tmp_path, lm=lm, budget={"usd": 2}))
    assert isinstance(error, SpecError) and error.path == ("budget", "usd") and error.line == 1
    assert "forward calls to a paid service" in error.message and "price: {input: ..., output: ...}" in str(error.hint)


@pytest.mark.parametrize(
    "spec",
    [
        {"lm": {"model": "openai/m", "api_base": SERVER, "price": {"input": 0, "output": 0}}, "budget": {"usd": 2}},
        {"lm": "bundled/nano", "budget": {"usd": 2, "calls": 100}},
        {"lm": {"model": "openai/m", "api_base": SERVER}, "budget": {"calls": 100}},
    ],
)
def test_a_price_that_is_known_and_a_budget_without_dollars_are_no_error(spec: Any, tmp_path: Path) -> None:
    assert [error for error in missing(task_file(tmp_path, **spec)) if "Connection refused" not in str(error)] == []


@pytest.mark.parametrize("model", ["openai/m", "litellm/openai/m"])
def test_a_server_whose_name_begins_like_this_machine_has_no_known_price(model: str, tmp_path: Path) -> None:
    """Else a budget in dollars would count nothing for it."""
    lm = {"model": model, "api_base": "http://127.0.0.1.nip.io/v1"}
    (error,) = missing(task_file(tmp_path, lm=lm, budget={"usd": 1}))
    assert isinstance(error, SpecError) and "price" in str(error) and "not known" in str(error)


# Optimizers without anything to work on


@pytest.mark.parametrize(
    ("optimizer", "missing"),
    [
        ("fit_value", "a node of the kind `tree_search`"),
        ("team", "a team"),
        ("tool_docs", "an agent with tools"),
        ({"forge": {"kind": "functions"}}, "an agent or external node"),
        ({"forge": {"kind": "heuristic"}}, "a code node"),
        ("forge", "an agent, external or code node"),
        ({"fgo": {"optimizer": "fit_value"}}, "a node of the kind `tree_search`"),
        ({"tune": {"optimizer": "team", "search": {"rows": {"int": [2, 8]}}}}, "a team"),
    ],
    ids=str,
)
def test_an_optimizer_without_its_node_is_refused(optimizer: Any, missing: str, tmp_path: Path) -> None:
    name = optimizer if isinstance(optimizer, str) else next(iter(optimizer))
    path = task_file(tmp_path, optimize=["bootstrap", optimizer])
    with pytest.raises(SpecError, match=f"`{name}` finds nothing to change.*{missing}") as caught:
        prepare(path)
    assert caught.value.path == ("optimize", 1, name) and caught.value.line == 1
    assert CliRunner().invoke(cli, ["validate", str(path)]).exit_code != 0


NODES = {
    "tool_docs": {"agent": "text -> label", "tools": ["python:desk.py:lookup"]},
    "team": {"dylan": {"predict": "text -> label"}, "members": {"a": "A.", "b": "B."}},
}


@pytest.mark.parametrize("name", ["tool_docs", "team"])
def test_an_optimizer_with_its_node_is_not(name: str, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text('def lookup(key: str) -> str:\n    """Looks a key up."""\n    return key\n')
    prepare(task_file(tmp_path, optimize=[name], nodes={"sort": NODES[name]}))
    searched = {"nodes.sort": {"any_of": {"other": NODES[name]}}}
    prepare(task_file(tmp_path, optimize=["optuna", name], search=searched))


def test_adas_says_before_the_first_call_that_a_node_is_missing(tmp_path: Path) -> None:
    (error,) = missing(task_file(tmp_path, optimize=[{"adas": {"node": "srt"}}]))
    assert isinstance(error, SpecError) and error.path == ("optimize", 0, "adas", "node") and "'sort'" in str(error)
