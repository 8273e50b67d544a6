"""`workbench data synthesize` keeps the policy, as at run time: a model wrote the arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script
from tests.plugins.synthesize import test_failures as test_synth_failures

from workbench.cli import main
from workbench.errors import SpecError
from workbench_synthesize.synthesize import Found, synthesize

TOOLS = """
from pathlib import Path

def _did(what):
    with open(Path(__file__).parent / "effects.txt", "a") as file:
        file.write(what + "\\n")

def pay(sum: int) -> dict:
    "Pays a sum."
    _did(f"pay {sum}")
    return {"receipt": f"r{sum}"}

def send(receipt: str) -> str:
    "Sends a receipt."
    _did(f"send {receipt}")
    return "sent"
"""


def written(question: str, *calls: tuple[str, dict[str, Any]]) -> str:
    return json.dumps({"question": question, "calls": [{"name": name, "arguments": given} for name, given in calls]})


SMALL, LARGE = written("pay me 5 now", ("pay", {"sum": 5})), written("give 500 to her please", ("pay", {"sum": 500}))


def spec_in(folder: Path, **settings: Any) -> Path:
    (folder / "tools.py").write_text(TOOLS)
    spec = {
        "tools": ["python:tools.pay", "python:tools.py:send"],
        "rows": 9,
        "concurrency": 1,
        "budget": {"calls": 1},
        **settings,
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return folder / "spec.yaml"


def found_in(folder: Path, *lines: str, settings: dict[str, Any], **given: Any) -> Found:
    path = spec_in(folder, **settings)
    return synthesize(path, database=str(folder / "a.db"), pool=Script(lambda request: "\n".join(lines)), **given)


def effects(folder: Path) -> list[str]:
    file = folder / "effects.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_callables_are_not_run_unless_somebody_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="pay, send would run for real") as caught:
        found_in(tmp_path, SMALL, settings={})
    assert "--run-tools" in str(caught.value.hint) and "policy: {default: deny" in str(caught.value.hint)
    assert caught.value.path == ("tools",) and effects(tmp_path) == []


@pytest.mark.parametrize(("settings", "given"), [({"policy": {"default": "allow"}}, {}), ({}, {"run_tools": True})])
def test_a_policy_or_the_flag_lets_them_run(settings: Any, given: Any, tmp_path: Path) -> None:
    found = found_in(tmp_path, SMALL, settings=settings, **given)
    assert [row["result"] for row in found.rows] == [{"receipt": "r5"}] and effects(tmp_path) == ["pay 5"]


RULES = [{"allow": "pay", "when": {"sum": {"max": 100}}}, {"ask": "send", "why": "it leaves the house"}]


@pytest.mark.parametrize("run_tools", [False, True])
def test_the_policy_decides_over_each_call_and_the_flag_does_not_lift_it(run_tools: bool, tmp_path: Path) -> None:
    send = written("send the receipt r1", ("send", {"receipt": "r1"}))
    found = found_in(
        tmp_path, SMALL, LARGE, send, settings={"policy": {"default": "deny", "rules": RULES}}, run_tools=run_tools
    )
    assert [row["calls"][0]["arguments"] for row in found.rows] == [{"sum": 5}] and effects(tmp_path) == ["pay 5"]
    assert found.rejected["policy"] == 2 and found.as_dict()["rejected"]["policy"] == 2
    assert "pay is not allowed here" in found.examples["policy"]


def test_nobody_is_here_to_be_asked(tmp_path: Path) -> None:
    found = found_in(tmp_path, SMALL, settings={"policy": {"default": "ask"}})
    assert "needs a person's consent, and nobody is here to ask" in found.examples["policy"] and not effects(tmp_path)


def test_settings_given_beside_the_file_leave_its_conditions_as_they_are(tmp_path: Path) -> None:
    """A condition knows by what was written in it what it is about."""
    found = found_in(
        tmp_path, SMALL, LARGE, settings={"policy": {"default": "deny", "rules": RULES}}, changes={"rows": 3}
    )
    assert len(found.rows) == 1 and effects(tmp_path) == ["pay 5"]


def test_of_several_calls_none_is_run_where_one_is_refused(tmp_path: Path) -> None:
    both = written("pay 5 and send r7", ("pay", {"sum": 5}), ("send", {"receipt": "r7"}))
    found = found_in(tmp_path, both, settings={"kinds": ["parallel"], "policy": {"rules": [{"deny": "send"}]}})
    assert not found.rows and found.rejected["policy"] == 1 and effects(tmp_path) == []


def test_a_chain_stops_at_the_call_that_is_refused(tmp_path: Path) -> None:
    chain = written("pay 5 and send the receipt", ("pay", {"sum": 5}), ("send", {"receipt": {"$ref": "1.receipt"}}))
    rule = {"deny": "send", "when": {"receipt": "r5"}}  # known only when the first call has run
    found = found_in(tmp_path, chain, settings={"kinds": ["chain"], "policy": {"rules": [rule]}})
    assert not found.rows and found.rejected["policy"] == 1 and effects(tmp_path) == ["pay 5"]


def test_rows_about_tools_that_are_only_described_obey_it_too(tmp_path: Path) -> None:
    (tmp_path / "apis.json").write_text(
        json.dumps({"pay": {"parameters": {"properties": {"sum": {"type": "integer"}}}}})
    )
    found = found_in(
        tmp_path,
        SMALL,
        LARGE,
        settings={"tools": [], "apis": "apis.json", "policy": {"rules": RULES[:1], "default": "deny"}},
    )
    assert [row["calls"][0]["arguments"] for row in found.rows] == [{"sum": 5}] and found.rejected["policy"] == 1


def test_the_policy_of_the_workflow_whose_failures_are_wanted_holds_too(tmp_path: Path) -> None:
    deny = {"policy": {"rules": [{"deny": "sing", "why": "it is late"}]}}
    file = test_synth_failures.earlier(tmp_path)
    file.write_text(json.dumps({**json.loads(file.read_text()), **deny}))
    report = test_synth_failures.optimize(
        file,
        options=test_synth_failures.Options(out=str(tmp_path / "out.yaml")),
        database=tmp_path / "a.db",
        optimizers=[("looks", test_synth_failures.Looks())],
        pool=Script(test_synth_failures.answer),
    )
    found = synthesize(
        test_synth_failures.write(tmp_path, failures=report.run),
        database=str(tmp_path / "a.db"),
        pool=Script(test_synth_failures.rows),
    )
    names = {call["name"] for row in found.rows for call in row["calls"]}
    assert "sing" not in names and names and "it is late" in found.examples["policy"]


@pytest.mark.slow
def test_the_command_refuses_and_takes_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(spec_in(tmp_path, lm="bundled/nano", rows=1))
    out = ["--out", str(tmp_path / "rows.jsonl"), "--db", str(tmp_path / "a.db")]
    with pytest.raises(SystemExit) as ended:
        main(["data", "synthesize", path, *out])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "spec.yaml:1:" in told and "give --run-tools to run them all" in told
    with pytest.raises(SystemExit) as ended:
        main(["data", "synthesize", path, "--run-tools", *out])
    assert ended.value.code == 1 and "No row passed the checks" in capsys.readouterr().err, "nano writes none"
