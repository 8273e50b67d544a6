"""`workbench doctor --ping FILE` (friction 47): each model of the file is called once, and what failed is shown."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.lm_faults import ChatServer

from workbench.cli import cli
from workbench.errors import SpecError
from workbench_doctor.ping import ping_models


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(folder: Path, lm: Any, **more: Any) -> Path:
    spec = {
        "name": "pinged",
        "lm": lm,
        "data": {"file": "absent.jsonl"},
        "metric": "exact_match(a)",
        "nodes": {"n": {"predict": "q -> a"}},
        **more,
    }
    path = folder / "w.yaml"
    path.write_text(json.dumps(spec))
    return path


def model(server: ChatServer, name: str = "m", **more: Any) -> dict[str, Any]:
    return {"model": f"openai/{name}", "api_base": server.base, "timeout": 5, **more}


def doctor(path: Path, *flags: str) -> Any:
    return CliRunner().invoke(cli, ["doctor", "--ping", str(path), *flags])


def test_each_model_is_called_once_however_often_it_is_named(tmp_path: Path) -> None:
    with ChatServer("ok") as server:
        same, other = model(server, price={"input": 1.0, "output": 2.0}), model(server, "other")
        nodes = {"n": {"predict": "q -> a", "lm": other}}
        path = write(tmp_path, same, roles={"judge": same, "proposer": other}, nodes=nodes)
        done = ping_models(path)
        assert server.requests == 2
    assert [(p.uses, p.model) for p in done] == [
        (("lm", "roles.judge"), "openai/m"),
        (("roles.proposer", "nodes.n.lm"), "openai/other"),
    ]
    first, second = done
    assert (first.prompt_tokens, first.completion_tokens, first.failure) == (11, 7, None)
    assert first.usd == pytest.approx(25e-6) and first.answer and first.seconds > 0
    assert second.usd == 0.0  # on this machine


def test_what_is_shown_and_nothing_is_recorded(tmp_path: Path) -> None:
    with ChatServer("ok") as server:
        done = doctor(write(tmp_path, model(server, price={"input": 1.0, "output": 2.0})))
    assert done.exit_code == 0, done.output
    assert "openai/m (lm): prompt of 27 characters" in done.stdout
    assert "11 tokens in, 7 out, $0.000025" in done.stdout and "1 calls for $0.000025; in no budget" in done.stdout
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"), [("500", "server"), ("401", "auth"), ("html", "bad_body"), ("blank", "empty")]
)
def test_a_model_that_fails_is_named_with_its_kind_and_the_exit_code_is_1(
    fault: str, kind: str, tmp_path: Path
) -> None:
    with ChatServer(fault) as bad, ChatServer("ok") as good:
        path = write(tmp_path, model(good), roles={"judge": model(bad, "broken")})
        done = doctor(path, "--json")
        assert bad.requests == 1, "no attempt is repeated"
    assert done.exit_code == 1
    found = {one["model"]: one["failure"] for one in json.loads(done.stdout)["models"]}
    assert found == {"openai/m": None, "openai/broken": kind}


def test_a_file_that_runs_python_is_asked_about_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_TRUST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "t.py").write_text("def f(q: str) -> str:\n    return q\n")
    with ChatServer("ok") as server:
        nodes = {"t": {"tool": "python:t.py:f", "output": "a"}}
        done = doctor(write(tmp_path, model(server), nodes=nodes))
        assert isinstance(done.exception, SpecError) and "not trusted yet" in str(done.exception)
        assert server.requests == 0


def test_ping_without_a_file_is_refused() -> None:
    done = CliRunner().invoke(cli, ["doctor", "--ping"])
    assert done.exit_code == 2 and "needs a workflow file" in done.output


def test_doctor_and_the_explanation_agree_that_runs_may_share_a_database_friction_47(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.45.0")
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 45, 0))
    done = json.loads(CliRunner().invoke(cli, ["doctor", "--json"]).stdout)
    said = next(c for c in done["checks"] if c["name"] == "sqlite")
    assert said["status"] == "warn" and "Several runs may share a database" in said["message"]
    page = Path(__file__).parents[3] / "docs/explanation/budget-and-journal.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert "Concurrent runs may share a database." in text and "3.51.3" in text and "3.51.3" in said["message"]
