"""The layout keeps its promises: data flow one way, plugins are apart, start-up is fast."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "core" / "workbench"

#: What a module may import of ours at its top: only what stands before it. Imports inside functions are free.
ORDER = [
    "_version", "defaults", "hookspecs", "distribution", "failures", "errors", "user_code", "loop", "data", "lm", "http_lm", "trace", "loose_json", "call_parser", "strict", "policy", "tools", "limits", "intents", "spend", "graph", "batching", "generate", "signature", "tfidf", "logistic", "treesearch", "plain", "metric", "yamlsource", "plugins", "sandbox",
    "proof", "copies", "scaffold", "spec", "workflow", "pool", "environment", "behind", "store", "looks", "bill", "ledger", "embed", "nodes", "children", "structure", "edits", "slots", "runtime", "evaluate", "outcomes", "search", "pareto",
    "study", "propose", "overrides", "task", "library", "diagram", "ready", "estimate", "remarks", "guard", "schema", "doctor", "report", "export", "history", "session", "run",
    "single", "progress", "testing", "cli", "__main__",
]  # fmt: skip


def imports(path: Path, top_only: bool) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_only else ast.walk(tree)
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def modules(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*.py")) if "template" not in p.parts]


def unit(path: Path) -> str:
    """cli/look.py and cli/__init__.py are both `cli`."""
    parts = path.relative_to(CORE).parts
    return parts[0] if len(parts) > 1 else path.stem


def test_every_module_has_its_place_in_the_order() -> None:
    assert {unit(p) for p in modules(CORE)} - {"__init__"} == set(ORDER)


@pytest.mark.parametrize("path", modules(CORE), ids=lambda p: str(p.relative_to(CORE)))
def test_core_imports_only_what_comes_before(path: Path) -> None:
    name = unit(path)
    if name == "__init__":
        return
    for imported in imports(path, top_only=True):
        parts = imported.split(".")
        if parts[0] == "workbench" and len(parts) > 1 and parts[1] in ORDER and parts[1] != name:
            assert ORDER.index(parts[1]) < ORDER.index(name), f"{name} imports {parts[1]}, which comes later"


def test_core_imports_no_plugin() -> None:
    for path in modules(CORE):
        for imported in imports(path, top_only=False):
            assert not imported.startswith("workbench_"), f"{path}: {imported}"


def test_no_plugin_imports_another() -> None:
    for folder in (ROOT / "plugins").iterdir():
        for path in modules(folder):
            for imported in imports(path, top_only=False):
                first = imported.split(".")[0]
                assert not first.startswith("workbench_") or first == folder.name, f"{path}: {imported}"


def test_files_fit_in_a_head() -> None:
    """The limit stands in CONTRIBUTING.md, and nowhere else."""
    told = re.search(r"at most (\d+) lines", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert told is not None
    long = {str(p): n for f in ("core", "plugins", "contrib") for p in (ROOT / f).rglob("*.py")
            if (n := len(p.read_text(encoding="utf-8").splitlines())) > int(told[1])}  # fmt: skip
    assert not long


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
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "workbench", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split(",")[0]) == (0, "workbench"), done.stderr


def test_help_is_instant() -> None:
    """The median of ten is at most 0.3 s. Other tests share the machine, so a slow round may be repeated."""
    for _ in range(5):
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", "from workbench.cli import main; main(['--help'])"], check=True,
                           capture_output=True)  # fmt: skip
            times.append(time.perf_counter() - begun)
        if statistics.median(times) <= 0.3:
            return
    raise AssertionError(f"median {statistics.median(times):.2f} s")


def test_random_stays_the_template() -> None:
    lines = (ROOT / "plugins/workbench_random/optimizer.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 80


def test_top_level_is_as_it_was_asked_for() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no git checkout")
    top = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    assert top == {
        "pyproject.toml", "core", "plugins", "workflows", "tests", "contrib", "docs", "README.md", "LICENSE",
        "CHANGELOG.md", "CONTRIBUTING.md", ".ci", ".gitignore", ".pre-commit-config.yaml",
    }  # fmt: skip


def test_lint_format_and_types_are_clean() -> None:
    for command in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["pyright", "--pythonpath", sys.executable],
    ):
        done = subprocess.run([str(Path(sys.executable).with_name(command[0])), *command[1:]], cwd=ROOT,
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-500:]}"
