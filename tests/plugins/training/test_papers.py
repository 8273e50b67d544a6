"""Papers are extensions: training names none of them, and each can be deleted by itself."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.grpo_runs import needs_torch

ROOT = Path(__file__).parents[3]
PLUGIN = ROOT / "plugins/training/workbench_training"
PAPERS = sorted(path for path in (PLUGIN / "papers").iterdir() if path.stem != "__init__" and path.stem[0] != "_")

#: Imports the plugin as the loader does, resolves every algorithm, and builds each optimizer that is there.
SMOKE = """
import workbench_training
from workbench_training.dpo import DPO
from workbench_training.extension import load, papers
from workbench_training.grpo import GRPO
from workbench_training.objective import critic_kinds, pair_losses
from workbench_training.presets import PRESETS
from workbench_training.sft import SFT

names: dict[str, str] = {}
workbench_training.register_optimizers(names.__setitem__)
for name in PRESETS:
    made = GRPO.model_validate({"algorithm": name})
    made.resolve_objective(), made.resolve_schedule(), made.identify()
for cls in (SFT, DPO, *map(load, workbench_training.paper_optimizers().values())):
    cls().identify()
assert workbench_training.__file__.startswith(FOLDER), workbench_training.__file__
print(*sorted([*papers(), *workbench_training.paper_optimizers()]))
"""


def copy_without(folder: Path, *deleted: Path) -> dict[str, str]:
    """An environment that imports a copy of the plugin, in which these files and folders are not."""
    copy = shutil.copytree(PLUGIN, folder / "workbench_training", ignore=shutil.ignore_patterns("__pycache__"))
    for path in deleted:
        gone = copy / path.relative_to(PLUGIN)
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT / "core", *(ROOT / "plugins").iterdir()))),
    }


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.stem)
def test_without_a_paper_the_rest_works(paper: Path, tmp_path: Path) -> None:
    code = SMOKE.replace("FOLDER", repr(str(tmp_path)))
    done = subprocess.run([sys.executable, "-c", code], env=copy_without(tmp_path, paper), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split() == [path.stem for path in PAPERS if path != paper]


def test_without_any_paper_a_policy_is_trained(tmp_path: Path) -> None:
    needs_torch()
    code = """
from pathlib import Path
from tests.helpers.grpo_worlds import bandit, sevens
made = bandit(Path(FOLDER), sevens, steps=2)
assert len(made.history) == 2 and all("grad_norm" in figures for figures in made.history)
""".replace("FOLDER", repr(str(tmp_path / "run")))
    (tmp_path / "run").mkdir()
    environment = copy_without(tmp_path, *PAPERS)
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_training_names_no_paper() -> None:
    """No module outside of the papers imports one."""
    found = []
    for path in PLUGIN.rglob("*.py"):
        if PLUGIN / "papers" in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            found += [f"{path}: {name}" for name in names if name.startswith("workbench_training.papers.")]
    assert found == []
