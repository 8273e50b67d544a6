"""What every plugin of ours keeps: a README in one form, documented parameters, and a folder that can be deleted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers import conformance_cases
from tests.helpers.conformance import broken
from tests.helpers.source import PACKAGES

from workbench.cli import cli
from workbench.plugins import GROUP, plugins
from workbench.workflow import node_class
from workbench_testing import lm_checks, metric_checks, node_checks, reader_checks

ROOT = Path(__file__).parents[2]
OURS = sorted(
    (entry for entry in entry_points(group=GROUP) if entry.value in PACKAGES),
    key=lambda entry: entry.value,
)
TABLE = re.compile(r"<!-- parameters of (?:node )?(\w+(?: \w+)*) -->\n(.*?)<!-- end of parameters -->", re.DOTALL)
every_plugin = pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.value)


def readme(entry: EntryPoint) -> str:
    return (PACKAGES[entry.value] / "README.md").read_text(encoding="utf-8")


def settings_of(entry: EntryPoint) -> dict[str, list[Any]]:
    """The models of the parameters that a plugin declares, by the name of the optimizer, executor or node kind."""
    found: dict[str, list[Any]] = {}
    for kind in ("optimizers", "executors", "node_kinds"):
        for name in plugins().names(kind):
            if plugins().owner(kind, name) == entry.name:
                model = node_class(name).Config if kind == "node_kinds" else plugins().get(kind, name)
                found.setdefault(name, []).append(model)
    return found


def test_there_is_a_plugin_for_each_folder() -> None:
    shared = {"workbench_kit", "workbench_engine", "workbench_dspy_seam", "workbench_testing", "workbench_workers"}
    assert PACKAGES.keys() - shared == {entry.value for entry in OURS}


@every_plugin
def test_the_readme_says_what_it_costs_when_not_to_use_it_and_where_it_is_from(entry: EntryPoint) -> None:
    text = readme(entry)
    assert text.startswith(f"# {entry.value.removeprefix('workbench_')}\n")
    for heading in (r"Cost", r"When not to use it", r"Sources?(?: and departures)?"):
        section = re.search(rf"^## {heading}\n\n(.+?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        assert section and section[1].strip(), f"no section '{heading}'"
        if heading.startswith("Source"):
            assert "arXiv" in section[1] or "None" in section[1] or len(section[1].split()) > 5


@every_plugin
def test_the_readme_has_an_example_and_names_only_files_that_exist(entry: EntryPoint) -> None:
    """The blocks themselves are validated by tests/docs."""
    text, folder = readme(entry), PACKAGES[entry.value]
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (folder / link).exists()] == []
    named = re.findall(r"(?:workflows|contrib|tests)/[\w/]+\.(?:py|yaml|jsonl)", text)
    assert [path for path in named if not (ROOT / path).exists()] == []
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    own = any("nodes:" in block and "data:" in block for block in blocks)
    assert own or "```bash" in text or any(link.endswith((".yaml", "search-structure.md")) for link in links)


@every_plugin
def test_the_documented_parameters_are_those_declared(entry: EntryPoint) -> None:
    """Names and defaults; what stands in the tables is compared without the generator that writes them."""
    tables: dict[str, list[dict[str, str]]] = {}
    for names, table in TABLE.findall(readme(entry)):
        several = " " in names  # a column says which of them have a parameter
        whose = "(.*?) [|] " if several else "()"
        rows = re.findall(rf"^\| \**`([^`]+)`\** \| {whose}.*? \| (.*?) \| ", table, re.MULTILINE)
        for name in names.split():
            own = {
                field: default for field, of, default in rows if not several or name in of.split(", ") or of == "all"
            }
            tables.setdefault(name, []).append(own)
    declared = settings_of(entry)
    assert tables.keys() == declared.keys()
    for name, models in declared.items():
        found = [{key: value for key, value in table.items() if "." not in key} for table in tables[name]]
        assert sorted(map(sorted, found)) == sorted(
            sorted(f.alias or n for n, f in m.model_fields.items()) for m in models
        )
        for model in models:
            table = next(t for t in found if t.keys() == {f.alias or n for n, f in model.model_fields.items()})
            for field_name, field in model.model_fields.items():
                said, default = table[field.alias or field_name], field.get_default(call_default_factory=True)
                assert (said == "required") == field.is_required(), field_name
                if not field.is_required() and (default is None or isinstance(default, bool | int | float)):
                    assert said == f"`{str(default).lower().replace('none', 'null')}`", field_name


#: By kind, the cases in which each thing that our plugins register passes the suite of its contract. A new one needs a
#: case here.
CASES: dict[str, dict[str, Callable[[Path], Any]]] = {
    "metrics": {name: (lambda folder, case=case: case) for name, case in conformance_cases.METRICS.items()},
    "readers": {name: (lambda folder, case=case: case) for name, case in conformance_cases.READERS.items()},
    "lms": {name: (lambda folder, case=case: case) for name, case in conformance_cases.LMS.items()},
    "node_kinds": conformance_cases.NODES,
}
SUITES = {"metrics": metric_checks, "readers": reader_checks, "lms": lm_checks, "node_kinds": node_checks}


#: Each check of these starts a sandbox or reads weights; their plugins' own tests are in the fast tier.
SLOW = {("node_kinds", "code"), ("lms", "bundled")}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, marks=pytest.mark.slow if (kind, name) in SLOW else ())
        for kind, found in CASES.items()
        for name in found
    ],
)
def test_what_a_plugin_registers_passes_the_suite_of_its_contract(kind: str, name: str, tmp_path: Path) -> None:
    case = CASES[kind][name](tmp_path)
    assert broken(SUITES[kind](), case) == {}


@pytest.mark.parametrize("kind", CASES)
def test_everything_registered_has_a_case_or_a_reason_for_none(kind: str) -> None:
    ours = {name for name in plugins().names(kind) if plugins().owner(kind, name) in {e.name for e in OURS}}
    assert ours == CASES[kind].keys() | conformance_cases.WITHOUT[kind].keys()
    assert not CASES[kind].keys() & conformance_cases.WITHOUT[kind].keys()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[EntryPoint]:
    """The plugin's package cannot be imported, as if its folder were gone, and all plugins are loaded anew."""
    entry: EntryPoint = request.param
    for name in [name for name in sys.modules if name.partition(".")[0] == entry.value]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, entry.value, None)
    monkeypatch.setattr(cli, "placed", None)
    plugins.cache_clear()
    yield entry
    plugins.cache_clear()


@pytest.mark.parametrize(
    "without",
    [  # all plugins are loaded anew for each: one in eight in the fast tier
        pytest.param(entry, id=entry.value, marks=pytest.mark.slow if n % 8 else ()) for n, entry in enumerate(OURS)
    ],
    indirect=True,
)
def test_without_its_folder_the_command_line_works_and_names_what_is_missing(without: EntryPoint) -> None:
    listed = CliRunner().invoke(cli, ["plugin", "list"])
    assert listed.exit_code == 0 and without.name in listed.output, listed.output
    assert list(plugins().set_aside) == [without.name]
    assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
