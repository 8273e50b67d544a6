"""Rules that a plugin decides, where it is not installed or fails: a file is refused, and no rule is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.policies import policy
from tests.helpers.scripted import Script, make_workflow, run_rows

import workbench
from workbench.errors import PluginError, SpecError
from workbench.plugins import Plugins
from workbench.plugins.manager import _entries
from workbench.spec import MadeCall, PolicySpec, Rule, check_spec, load_yaml

READ_BY_PLUGIN: list[dict[str, Any]] = [
    {"deny": "send", "before": "verify"},
    {"allow": "send", "after": "verify"},
    {"formula": "H(send -> O(verify))"},
    {"deny": "send", "when": {"to": "mallory"}},
    {"ask": "send", "when": {"to": {"matches": "m.*"}}},
]
FILE = """\
data: {file: rows.jsonl}
metric: exact_match(label)
nodes: {answer: {predict: "text -> label"}}
policy:
  rules:
    - {allow: look}
    - %s
"""


@pytest.fixture(params=["absent", "broken"])
def without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Leave the plugin out, or give its place to one that cannot be loaded."""

    class Broken:
        @workbench.hookimpl
        def register_policies(self, register: Any) -> None:
            register("policy", "workbench_policy.rules:MISSING")

    extra = [("policy", Broken())] if request.param == "broken" else []
    known = Plugins([entry for entry in _entries() if entry.name != "policy"], extra=extra)
    monkeypatch.setattr("workbench.spec.policy.plugins", lambda: known)
    return request.param


@pytest.mark.parametrize("rule", READ_BY_PLUGIN, ids=str)
def test_a_file_with_such_a_rule_is_refused_at_its_place(rule: dict[str, Any], without: str) -> None:
    with pytest.raises(SpecError) as caught:
        check_spec(load_yaml(FILE % rule, "w.yaml"))
    error = caught.value
    assert error.path == ("policy", "rules", 1) and error.line == 7
    key = next(key for key in ("formula", "before", "after", "when") if key in rule)
    assert f"nothing here decides a rule with `{key}`" in error.message
    assert ("workbench-agents: pip install -e './plugins/agents'" in error.message) is (without == "absent")
    assert ("MISSING" in error.message) is (without == "broken")


@pytest.mark.parametrize("rule", READ_BY_PLUGIN, ids=str)
def test_a_rule_that_was_not_checked_lets_no_call_pass(rule: dict[str, Any], without: str) -> None:
    """As in a worker where the plugin is missing: the policy comes to it checked."""
    known = Rule.model_validate({"deny": "send"}).model_copy(update={"deny": None, **policy_parts(rule)})
    given = PolicySpec().model_copy(update={"rules": [known]})
    with pytest.raises(PluginError):
        given.verdict("send", {"to": "ann"}, [MadeCall("verify", True)])
    with pytest.raises(PluginError):
        given.permits("send", [])


def policy_parts(rule: dict[str, Any]) -> dict[str, Any]:
    """The fields of a rule as they are after a check."""
    when = Rule.model_validate({"allow": "x", "when": rule.get("when", {})}).when
    return {**rule, "when": when}


def test_a_reader_with_a_bug_refuses_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> list[str]:
        raise AttributeError("by hand")

    monkeypatch.setattr("workbench_policy.rules.READER.named", fail, raising=False)
    with pytest.raises(SpecError, match="nothing here decides a rule with `formula`: by hand"):
        check_spec(load_yaml(FILE % READ_BY_PLUGIN[2], "w.yaml"))


def test_plain_rules_decide_without_the_plugin(without: str) -> None:
    assert Rule.model_validate({"allow": "send", "when": {"to": "ann"}}).impossible() == []
    rules = policy(
        {
            "default": "deny",
            "rules": [
                {"deny": "send_all", "why": "one at a time"},
                {"ask": "send_b*"},
                {"allow": "send_*", "when": {"to": {"matches": "[a-z]+"}, "opts.amount": {"max": 100}}},
            ],
        }
    )
    calm = {"to": "ann", "opts": {"amount": 100}}
    assert rules.verdict("send_all", {}) == ("deny", "one at a time")
    assert rules.verdict("send_bulk", {})[0] == "ask"
    assert rules.verdict("send_one", calm)[0] == "allow"
    for doubtful in ({**calm, "to": "ANN"}, {**calm, "opts": '{"amount": 1}'}, {**calm, "opts": {"amount": "1"}}, {}):
        assert rules.verdict("send_one", doubtful)[0] == "deny"


def test_no_call_is_made_where_the_reader_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "desk.py").write_text("from pathlib import Path\ndef send(): Path(__file__ + '.sent').touch()\n")
    workflow = make_workflow({"n": {"tool": "python:desk.py:send", "output": "done"}}, tmp_path)
    rules = policy({"rules": [{"deny": "send", "before": "verify"}]})

    def fail(*given: Any, **named: Any) -> bool:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr("workbench_policy.rules.was_called", fail)
    (outcome,) = run_rows(workflow, [{"text": "x"}], Script(lambda request: ""), tmp_path / "run.db", policy=rules)
    assert outcome.failure is not None and "by hand" in str(outcome.message)
    assert not (tmp_path / "desk.py.sent").exists()
