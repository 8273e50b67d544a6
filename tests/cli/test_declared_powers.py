"""The contract of `powers`: each thing that a file may name declares, and what does not is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from workbench import NodeKind, Optimizer, hookimpl
from workbench.cli import trust
from workbench.cli.trust.powers import file_powers
from workbench.errors import SpecError
from workbench.plugins import Plugins, plugins
from workbench.plugins.manager import _entries
from workbench.spec import declared_powers
from workbench.workflow import NodeConfig
from workbench_kit.acting import Environment
from workbench_workers import Executor


def test_each_registered_thing_declares_what_it_may_do() -> None:
    """And each names settings that there are."""
    for kind in ("node_kinds", "metrics", "readers", "lms", "optimizers", "environments", "executors"):
        for name in plugins().names(kind):
            powers = declared_powers(kind, name)
            assert powers is not None, (kind, name)
            thing = plugins().get(kind, name)
            settings = getattr(getattr(thing, "Config", thing), "model_fields", None)
            if isinstance(powers, dict) and settings is not None:
                assert {*powers} <= {*settings}, (kind, name)
            for path in getattr(thing, "path_options", ()):
                assert isinstance(powers, dict) and path in powers, (kind, name)


#: Settings that stand for the same in each kind that has them.
SAME = {*"lm embedder tools tool env functions types command image url mcp folder server".split()}


def test_a_setting_that_leads_out_is_declared_by_each_kind_that_has_it() -> None:
    for kind in ("node_kinds", "optimizers", "environments", "executors"):
        for name in plugins().names(kind):
            thing = plugins().get(kind, name)
            powers = declared_powers(kind, name)
            if not isinstance(powers, dict):
                continue
            fields = getattr(thing, "Config", thing).model_fields.items()
            named = {field for field, info in fields if field in SAME and "str" in str(info.annotation)}
            assert named <= {*powers}, (kind, name)
            learnable = {
                setting for setting, what in getattr(thing, "learnable", {}).items() if what in ("lm", "functions")
            }
            assert learnable <= {*powers}, (kind, name)


class Silent(NodeKind):
    """A kind of a third party that says nothing."""

    class Config(NodeConfig):
        """Settings."""

        text: str

    primary = "text"


class Shouting(Silent):
    """One that says that it leads nowhere."""

    powers = {}


class Heir(Shouting):
    """One that adds settings, and does not say what these do."""

    class Config(NodeConfig):
        """Settings."""

        text: str
        program: str = ""


class SilentOptimizer(Optimizer):
    """Says nothing."""


class SilentMetric:
    def __call__(self, example: Any, prediction: Any, trace: Any = None) -> float:
        return 1.0


class SilentEnvironment(Environment):
    """Says nothing."""


class SilentExecutor(Executor):
    """Says nothing."""


def silent(*given: Any) -> Any:
    return []


class Planted:
    """A plugin of a third party."""

    @hookimpl
    def register_node_kinds(self, register: Any) -> None:
        for cls in (Silent, Shouting, Heir):
            register(cls.__name__.lower(), cls)

    @hookimpl
    def register_optimizers(self, register: Any) -> None:
        register("quiet", SilentOptimizer)

    @hookimpl
    def register_metrics(self, register: Any) -> None:
        register("quiet", SilentMetric)

    @hookimpl
    def register_readers(self, register: Any) -> None:
        register("quiet", silent)

    @hookimpl
    def register_lms(self, register: Any) -> None:
        register("quiet", silent)

    @hookimpl
    def register_executors(self, register: Any) -> None:
        register("quiet", SilentExecutor)

    @hookimpl
    def register_environments(self, register: Any) -> None:
        register("quiet", SilentEnvironment)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin is there, and nothing is trusted."""
    known = Plugins(_entries(), extra=[("stranger", Planted())])
    for module in ("spec.powers", "task.found_powers", "task.rows", "workflow.workflow", "lm.pool"):
        monkeypatch.setattr(f"workbench.{module}.plugins", lambda: known)
    monkeypatch.delenv("WORKBENCH_TRUST")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def write(**changes: Any) -> Path:
    nodes = {"sort": {"predict": "text -> label"}}
    plain = {"lm": "bundled/nano", "data": "rows.jsonl", "metric": "exact_match(label)", "nodes": nodes}
    Path("workflow.yaml").write_text(yaml.safe_dump({**plain, **changes}, sort_keys=False))
    return Path("workflow.yaml")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"nodes": {"n": {"silent": "x"}}}, "node kind 'silent'"),
        ({"nodes": {"n": {"kind": "silent", "text": "x"}}}, "node kind 'silent'"),
        ({"nodes": {"n": {"ensemble": {"silent": "x"}}}}, "node kind 'silent'"),
        ({"nodes": {"n": {"heir": "x"}}}, "node kind 'heir'"),
        ({"search": {"nodes.sort": {"any_of": {"o": {"silent": "x"}}}}}, "node kind 'silent'"),
        ({"optimize": [{"quiet": {}}]}, "optimizer 'quiet'"),
        ({"optimize": [{"fgo": {"optimizer": "quiet"}}]}, "optimizer 'quiet'"),
        ({"metric": "quiet"}, "metric 'quiet'"),
        ({"metric": {"quiet": {}}}, "metric 'quiet'"),
        ({"data": "rows.quiet"}, "dataset reader 'quiet'"),
        ({"data": "quiet:rows"}, "dataset reader 'quiet'"),
        ({"lm": "quiet/model"}, "LM provider 'quiet'"),
        ({"roles": {"judge": "quiet:model"}}, "LM provider 'quiet'"),
        ({"nodes": {"n": {"tree_search": "quiet"}}}, "environment 'quiet'"),
        ({"executor": "quiet"}, "executor 'quiet'"),
        ({"executor": {"quiet": {"workers": 2}}}, "executor 'quiet'"),
        (
            {"nodes": {"n": {"tree_search": "grid"}}, "search": {"nodes.n.environment": ["quiet"]}},
            "environment 'quiet'",
        ),
    ],
    ids=str,
)
def test_what_says_nothing_is_told_by_name_and_not_loaded_from_an_untrusted_file(
    planted: None, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(SpecError, match=f"uses what does not say what it does: the {what} of the plugin 'stranger'"):
        trust.require_trust(write(**changes))


def test_an_executor_is_asked_about_what_it_is_given_and_where(planted: None) -> None:
    settings = {"address": "ray://10.0.0.9:10001", "env": ["SHOP_KEY"], "runtime_env": {"pip": ["evil"]}}
    told = file_powers(write(executor={"ray": settings})).lines()
    assert [line for line in told if "10.0.0.9" in line] and [
        line for line in told if "SHOP_KEY to the workers" in line
    ]
    assert [line for line in told if "evil" in line]
    workers = ["starts a program: workers of the executor 'ray'"]
    assert file_powers(write(executor={"ray": {"workers": 8}})).lines() == workers


@pytest.mark.parametrize(
    ("key", "kind", "said"),
    [("executor", "executors", "starts a program: "), ("track", "trackers", "asks an address: ")],
)
def test_what_leaves_the_process_by_its_nature_is_asked_about_without_a_setting(
    planted: None, key: str, kind: str, said: str
) -> None:
    assert plugins().names(kind)
    for name in plugins().names(kind):
        for form in (name, {name: {}}) if key == "executor" else (name, [name]):
            assert [line for line in file_powers(write(**{key: form})).lines() if line.startswith(said)], name
    assert file_powers(write(executor="local", track=[])).lines() == []


def test_what_says_that_it_leads_nowhere_is_loaded(planted: None) -> None:
    assert file_powers(write(nodes={"n": {"shouting": "x"}})).lines() == []
