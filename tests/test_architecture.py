"""The layout keeps its promises: rooms stand on each other, plugins are apart, start-up is fast
(docs/explanation/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cache
from pathlib import Path

import networkx
import pytest
from packaging.requirements import Requirement

from tests.helpers.source import (
    CORE,
    KIT,
    PACKAGES,
    ROOT,
    files,
    imported,
    imports,
    module_of,
    modules,
    parsed,
    texts,
)
from workbench.base.distribution import BUNDLED
from workbench.plugins import plugins

#: From the ground up: a room imports only what stands above it in this list.
ROOMS = {
    "errors": "what may go wrong, as a tree",
    "base": "small modules that know nothing of workbench",
    "plugins": "found, loaded, kept apart; the hooks",
    "spec": "text to typed values",
    "lm": "one attempt a call",
    "workflow": "values: nodes, graph, patches",
    "task": "a file made into things",
    "store": "one SQLite file",
    "ledger": "every paid call",
    "runtime": "one example, all effects",
    "inference": "a finished workflow, called",
    "study": "what an optimizer is handed",
    "proof": "statistics, leakage, report",
    "run": "the course of a run",
    "evaluation": "rows scored, kept, compared",
    # What plugins share, in drawers. No room above imports it.
    "kit/files": "settings that name a file",
    "kit/wire": "the words of servers: forms, dialects, usage, prices",
    "kit/answers": "what a model says, as values",
    "kit/searching": "trees, edits, rankings",
    "kit/prompting": "prompts, demos, proposals",
    "kit/acting": "tools, servers, environments",
    "kit/lms": "what providers share",
    "kit/logs": "logs of agents, as one form",
    "kit/credit": "which step decided a failure",
    "kit/labels": "people's scores of answers, and a judge beside them",
    "api": "all of it from Python",
    "cli": "click, terminal, exit codes",
}


FLOORS = [*ROOMS]


SHELVES = ("cli",)  # no room imports these


BY_FILE = ("base", "kit/lms", *SHELVES)  # without a face: each of their modules is one


MAX_ARROWS = 196


#: Names of plugins that are words of their own.
WORDS = {"judge", "optuna", "python", "random"}


@cache
def room(module: str) -> str:
    """The room of a module of core, or the drawer of one of kit; "" for the package itself, which exports lazily."""
    package, *parts = module.split(".")
    if not parts or parts[0] in ("__main__", "_version"):
        return ""
    name = f"kit/{parts[0]}" if package == KIT.name else parts[0]
    return name if name in ROOMS else f"unknown: {name}"


@cache
def known() -> frozenset[str]:
    """The modules of core and of kit."""
    return frozenset(module_of(p) for p in (*modules(CORE), *modules(KIT)))


def is_ours(name: str) -> bool:
    """Return True for a name of core or of kit."""
    return name.startswith(("workbench.", f"{KIT.name}."))


def target(name: str, among: Collection[str]) -> str:
    """The module that an imported name comes from."""
    return name if name in among else name.rpartition(".")[0]


def test_a_room_imports_only_what_stands_below_it() -> None:
    wrong = []
    for path in (*modules(CORE), *modules(KIT)):
        here = room(module_of(path))
        for name in imported(path):
            there = room(target(name, known())) if is_ours(name) else ""
            if not here or not there or there == here:
                continue
            if there not in ROOMS:
                wrong.append(f"{path}: {there} has no room")
            elif FLOORS.index(there) >= FLOORS.index(here):
                wrong.append(f"{path}: {here} imports {name}, which stands above it")
            elif there in SHELVES or (there.startswith("kit/") and not here.startswith("kit/")):
                wrong.append(f"{path}: {here} imports {name}: {there} is for plugins and authors")
    assert not wrong, "\n".join(wrong)


def test_rooms_lean_on_few_others() -> None:
    arrows = {
        (here, there)
        for path in (*modules(CORE), *modules(KIT))
        if (here := room(module_of(path)))
        for name in imported(path)
        if is_ours(name) and (there := room(target(name, known()))) and there != here
    }
    assert len(arrows) <= MAX_ARROWS, f"{len(arrows)} arrows: MAX_ARROWS only falls"


#: Lines of each room of core. Their sum only falls: what a room does not need stands in kit or in a plugin.
LINES = {
    "base": 1304,
    "cli": 3143,
    "errors": 487,
    "evaluation": 1633,
    "inference": 1064,
    "ledger": 1283,
    "lm": 1230,
    "plugins": 559,
    "proof": 2393,
    "run": 3096,
    "runtime": 1367,
    "spec": 2515,
    "store": 2006,
    "study": 1329,
    "task": 4094,
    "workflow": 1786,
}
#: Names that plugins import from core, which only fall.
MAX_NAMES = 389


def test_rooms_of_core_do_not_grow() -> None:
    found = Counter[str]()
    for path in modules(CORE):
        if here := room(module_of(path)):
            found[here] += len(path.read_text(encoding="utf-8").splitlines())
    del found["api"]
    assert found.keys() == LINES.keys()
    assert {name: count for name, count in found.items() if count > LINES[name]} == {}


def test_plugins_need_few_names_of_core() -> None:
    names = {
        name
        for folder in PACKAGES.values()
        for path in modules(folder)
        for name in imported(path)
        if name.startswith("workbench.") and room(target(name, known()))
    }
    assert len(names) <= MAX_NAMES, f"plugins import {len(names)} names"


@cache
def origin(face: str, name: str) -> str:
    """The module that a face has a name from."""
    path = (KIT if face.startswith(KIT.name) else CORE).parent / face.replace(".", "/") / "__init__.py"
    found = [target(i, known()) for i in imported(path) if i.rpartition(".")[2] == name] if path.exists() else []
    return found[0] if found else face


def test_what_one_plugin_needs_stands_in_that_plugin() -> None:
    """Code moves down, too: a file of kit has two plugins, or another file of kit, that need it; a room has two plugins
    or another room."""
    users: dict[str, set[str]] = defaultdict(set)
    for path in files("core", "plugins"):
        inside = bool({CORE, KIT} & {*path.parents})
        here = module_of(path) if inside else module_of(path).split(".")[0]
        for whole in imported(path) if path.name != "__init__.py" or not inside else ():
            if not is_ours(whole):
                continue
            thing = origin(target(whole, known()), whole.rpartition(".")[2])
            users[thing].add(here)
            if room(thing) != room(here):
                users[room(thing)].add(room(here) or here)
    wanted = [r for r in ROOMS if r not in (*SHELVES, "api")]
    wanted += [m for m in known() if m.startswith(f"{KIT.name}.") and m.count(".") > 1]
    wrong = [
        f"{thing}: only {', '.join(users[thing])}"
        for thing in wanted
        if len(users[thing]) < 2 and not any(user in ROOMS or user in known() for user in users[thing])
    ]
    assert not wrong, "\n".join(wrong)


def types_alone(path: Path) -> set[str]:
    """The names that a file imports for its types alone."""
    return {
        name
        for node in parsed(path).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for name in imports(node)
    }


def test_there_are_no_circles() -> None:
    """Between files, wherever an import stands; but a file may name a class of its own room for its types."""
    for folder in (CORE, *PACKAGES.values()):
        own = {module_of(p): p for p in modules(folder)}
        graph = networkx.DiGraph()
        for name, path in own.items():
            mine = {i for i in types_alone(path) if folder != CORE or room(target(i, own)) == room(name)}
            found = {target(i, own) for i in {*imported(path)} - mine} & own.keys() - {name, folder.name}
            graph.add_edges_from((name, other) for other in found)
        assert not [c for c in networkx.strongly_connected_components(graph) if len(c) > 1]


def test_nothing_of_ours_is_imported_inside_a_function() -> None:
    wrong = [
        f"{path}: {node.name}"
        for path in modules(CORE)
        if CORE / "cli" not in path.parents
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__getattr__"
        if any(name.startswith("workbench") for name in imports(node))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_room_is_entered_by_its_face() -> None:
    """Only its own files and its own tests go further in. A test may take what is private, or a whole module to plant a
    fault; a plugin may take a whole file of a drawer, as `plain_adapter`."""
    wrong = []
    for path in files("core", "plugins", "tests", "contrib", "docs"):
        place = f"/{path.relative_to(ROOT)}"
        parts = place.split("/")[1:]
        for whole in imported(path):
            if not is_ours(whole):
                continue
            door, name = target(whole, known()), whole.rpartition(".")[2]
            there = room(door)
            inside = door.count(".") > 1
            home = f"/workbench_{there}/" if there.startswith("kit/") else f"/{there}/"
            if not there or not inside or there in BY_FILE or home in place or f"/{there}/" in place:
                continue
            tested = parts[0] in ("tests", "contrib", "docs") and (whole == door or name[0] == "_")
            if not tested and name != "defaults" and not (whole == door and there.startswith("kit/")):
                wrong.append(f"{path}: from {door} import {name}")
    assert not wrong, "\n".join(wrong)


#: Packages that others import: they register nothing.
SHARED = {"workbench_kit", "workbench_engine", "workbench_dspy_seam", "workbench_workers"}


def test_core_imports_no_plugin_and_no_plugin_another() -> None:
    for path in files("core", "plugins"):
        for name in imported(path):
            first = name.split(".")[0]
            assert not first.startswith("workbench_") or first in {*path.parts, *SHARED}, f"{path}: {name}"
    assert not [name for path in modules(CORE) for name in imported(path) if name.split(".")[0] in SHARED]


def test_a_distribution_needs_those_whose_packages_it_imports() -> None:
    """As its pyproject.toml says, under an extra for what is imported where it is needed."""
    homes = {name: f"workbench-{path.parent.name}" for name, path in PACKAGES.items()}
    for name, folder in BUNDLED.items():
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["name"] == name
        lines = [
            *project["dependencies"],
            *(line for more in project.get("optional-dependencies", {}).values() for line in more),
        ]
        needs = {Requirement(line).name for line in lines}
        for path in files(folder):
            for first in {whole.split(".")[0] for whole in imported(path)} & homes.keys():
                assert homes[first] in {name, *needs}, f"{path} imports {first}"


def test_core_names_plugins_in_one_place() -> None:
    names = {*plugins().names("optimizers"), *plugins().names("metrics"), "bundled"} - WORDS
    for path in modules(CORE):
        if path != CORE / "spec" / "defaults.py":
            assert not [t for t in texts(path) if re.split(r"[/:(]", t)[0] in names], path


@pytest.mark.parametrize("what", ["import workbench", "from workbench.cli import main; main(['--help'])"])
def test_start_up_imports_nothing_heavy(what: str) -> None:
    code = f"""
import sys
try:
    {what}
except SystemExit:
    pass
heavy = [m for m in ("dspy", "litellm", "torch", "optuna", "pandas", "numpy", "scipy", "transformers") if m in sys.modules]
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "workbench", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(",")[0]) == (0, "workbench"), done.stderr


#: What an interpreter loads for `import click, pluggy`, and what `workbench --help` does besides it, plugins left out.
_COUNT = """
import sys
import click, pluggy
before = set(sys.modules)
from workbench.cli import main
try:
    main(["--help"])
except SystemExit:
    print(*(m for m in sys.modules if m not in before), file=sys.stderr)
"""


def test_help_loads_few_modules() -> None:
    """Modules are counted, not seconds: what they take depends on the machine. Each plugin may add its face and its
    commands."""
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert not {"asyncio", "pydantic", "sqlite3", "yaml", "ssl", "subprocess"} & set(loaded)
    ours = [m for m in loaded if m.startswith("workbench_")]
    assert {m.split(".", 1)[1] for m in ours if "." in m} <= {"commands", "sizes"}
    assert len(loaded) - len(ours) <= 107, loaded


def test_random_stays_the_template() -> None:
    lines = (ROOT / "plugins/standard/workbench_random/optimizer.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 80


def test_top_level_is_as_it_was_asked_for() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git checkout")
    top = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    assert top == {
        "pyproject.toml",
        "requirements.txt",
        "requirements-test.txt",
        "core",
        "plugins",
        "workflows",
        "tests",
        "contrib",
        "docs",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
        "justfile",
    }


@pytest.mark.parametrize(
    ("expression", "left_out"),
    [("not slow and not training", True), ("training", False), ("", False), ("slow or not training", False)],
)
def test_only_a_tier_that_is_excluded_is_left_out_of_collection(
    expression: str, left_out: bool, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytestconfig.option, "markexpr", expression)
    for place, skipped in (("plugins/training", left_out), ("plugins/sandbox", False), ("", False)):
        path = ROOT / "tests" / place
        assert bool(pytestconfig.hook.pytest_ignore_collect(collection_path=path, config=pytestconfig)) == skipped
