"""Draw mutants at random, and list those that no test notices.

    pip install --no-deps --require-hashes -r contrib/mutants/requirements.lock
    python contrib/mutants/draw.py [--count 100] [--seed 1] [--jobs 2] [--area proof ...]

cosmic-ray makes the mutants: of each place that one of its operators can change, one change is drawn. The checkout is
never edited: each worker has a copy of it in a temporary folder. A mutant dies if the tests of its area fail, or else
the tests of `WHOLE`. Exit code 1 if fewer than 85 of 100 die.
"""

from __future__ import annotations

import argparse
import ast
import json
import queue
import random
import shlex
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome

ROOT = Path(__file__).resolve().parents[2]

#: Of the mutants drawn, this share must die.
SHARE = 0.85

#: Seconds for the tests of one mutant. One that takes longer waits for something that does not come, and is dead.
LIMIT = 900

TRAINING = "plugins/training/workbench_training"
GATEWAY = "plugins/agents/workbench_external/gateway"

#: What is drawn from, and the tests that should notice, each in the fast tier.
AREAS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "ledger": (["core/workbench/ledger"], ["tests/ledger"]),
    "proof": (["core/workbench/proof"], ["tests/proof"]),
    "store": (["core/workbench/store"], ["tests/store"]),
    "study": (["core/workbench/study"], ["tests/study"]),
    "run": (["core/workbench/run"], ["tests/run"]),
    "policies": (
        ["core/workbench/spec/policy.py", "plugins/agents/workbench_policy"],
        ["tests/spec", "tests/plugins/policy"],
    ),
    "gateway": ([GATEWAY], ["tests/plugins/external/gateway"]),
    "route": (["plugins/research/workbench_route"], ["tests/plugins/route"]),
    "losses": (
        [f"{TRAINING}/loss.py", f"{TRAINING}/advantages.py"],
        ["tests/plugins/training/test_losses.py", "tests/plugins/training/test_advantages.py"],
    ),
    "masks": ([f"{TRAINING}/rollouts/token_rows.py"], ["tests/plugins/training/test_steps.py"]),
}

#: What a mutant must pass besides, if the tests of its area do not notice it.
WHOLE = ("tests/run", "tests/whole", "tests/cli", "tests/evaluation", "tests/api", "tests/plugins/test_contract.py")

#: Files that tests need; the rest of the checkout is left where it is.
COPIED = (
    "core",
    "plugins",
    "tests",
    "contrib",
    "workflows",
    "docs",
    *(f"{name}.txt" for name in ("requirements", "requirements-test")),
    "pyproject.toml",
    "README.md",
    "CONTRIBUTING.md",
)

#: Operators whose mutants say nothing: bits of types (`int | None` is an annotation), names made up.
LEFT_OUT = ("BitOr", "Variable", "NoOp", "_Is_Lt", "_Is_Gt", "_IsNot_Lt", "_IsNot_Gt")


@dataclass(frozen=True)
class Mutant:
    area: str
    file: str
    line: int
    operator: str
    occurrence: int


def places(area: str, file: Path) -> Iterator[list[Mutant]]:
    """The mutants of each place in a file: of one expression all that may be put there."""
    tree = get_ast(file.read_text(encoding="utf-8"))
    found: dict[tuple[int, int], list[Mutant]] = defaultdict(list)
    for name in operator_names():
        if any(part in name for part in LEFT_OUT) or get_operator(name).arguments():
            continue
        operator = get_operator(name)()
        positions = (start for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node))
        for number, start in enumerate(positions):
            found[start].append(Mutant(area, str(file.relative_to(ROOT)), start[0], name, number))
    yield from found.values()


def draw(areas: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, equally many of each area, of places that differ."""
    rng, drawn = random.Random(seed), []
    for number, area in enumerate(areas):
        paths = [ROOT / name for name in AREAS[area][0]]
        files = [f for path in paths for f in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
        found = [place for file in files for place in places(area, file)]
        share = count // len(areas) + (number < count % len(areas))
        drawn += [rng.choice(place) for place in rng.sample(found, min(share, len(found)))]
    return drawn


def copy_checkout(folder: Path) -> None:
    for name in COPIED:
        place = ROOT / name
        if place.is_dir():
            left = shutil.ignore_patterns("__pycache__", ".*", "*.db")
            shutil.copytree(place, folder / name, ignore=left, symlinks=True)
        else:
            shutil.copy2(place, folder / name)


def command(folder: Path, tests: Sequence[str], marked: str) -> str:
    paths = ":".join(map(str, (folder / "core", *sorted((folder / "plugins").iterdir()), folder)))
    words = ["env", f"PYTHONPATH={paths}", sys.executable, "-m", "pytest", f"--rootdir={folder}", "-n0", "-x", "-q"]
    words += ["-m", marked, "-p", "no:cacheprovider", *(str(folder / test) for test in tests)]
    return shlex.join(words)


def _differs(before: str, after: str) -> bool:
    """False for what is no Python, such as another operator in the place of a bare `*`."""
    try:
        return ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))
    except SyntaxError:
        return False


def try_mutant(folder: Path, mutant: Mutant) -> tuple[str, str]:
    """(how it ended, its line before and after)."""
    file = folder / mutant.file
    before = file.read_text(encoding="utf-8")
    try:
        after = mutate_code(before, get_operator(mutant.operator)(), mutant.occurrence)
    except AttributeError:  # of cosmic-ray's, at an exception whose name has a dot
        after = None
    if after is None or not _differs(before, after):
        return "nothing changed", ""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    change = next((f"{a.strip()}  ->  {b.strip()}" for a, b in pairs if a != b), "")
    tests = AREAS[mutant.area][1]
    marked = "not slow and not wasm" if "training" in mutant.file else "not slow and not training and not wasm"
    try:
        file.write_text(after, encoding="utf-8")
        for stage in (tests, WHOLE):
            outcome, _ = run_tests(command(folder, stage, marked), LIMIT)
            if outcome == TestOutcome.KILLED:
                return "killed", change
    finally:
        file.write_text(before, encoding="utf-8")
    return "survived", change


def run(mutants: Sequence[Mutant], jobs: int) -> list[tuple[Mutant, str, str]]:
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        folders: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            copy_checkout(Path(name) / str(number))
            folders.put(Path(name) / str(number))

        def one(mutant: Mutant) -> tuple[Mutant, str, str]:
            folder = folders.get()
            try:
                verdict, change = try_mutant(folder, mutant)
            finally:
                folders.put(folder)
            print(f"{verdict}: {mutant.file}:{mutant.line}: {change}", flush=True)
            return mutant, verdict, change

        return list(pool.map(one, mutants))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the draw")
    parser.add_argument("--jobs", type=int, default=2, help="number of workers")
    parser.add_argument("--area", nargs="*", choices=[*AREAS], default=[*AREAS], help="only these areas")
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    arguments = parser.parse_args()
    done = run(draw(arguments.area, arguments.count, arguments.seed), arguments.jobs)
    if arguments.json:
        arguments.json.write_text(json.dumps([{**asdict(m), "verdict": v, "change": c} for m, v, c in done], indent=1))
    tried = [verdict for _, verdict, _ in done if verdict in ("killed", "survived")]
    died = tried.count("killed")
    print(f"{died} of {len(tried)} died; seed {arguments.seed}")
    return int(died < SHARE * len(tried))


if __name__ == "__main__":
    sys.exit(main())
