"""Breaks one line at a time in a copy of this checkout, and runs the tests that should notice.

    python contrib/mutants/run.py [--only TEXT ...] [--jobs N] [--trust]

The checkout itself is never edited: each worker has a copy of it in a temporary folder. Mutants with the same tests are
run one after the other, and these tests first run without any change: what fails then proves nothing. Exit code 1 where
fewer than 97 of 100 mutants die, or where one could not be tried.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]

#: So many of all mutants must die.
SHARE = 0.97

#: Seconds for the tests of one mutant. Who takes longer waits for something that does not come.
LIMIT = 240

#: What is needed to run tests; the rest of the checkout is left where it is.
COPIED = ("core", "plugins", "tests", "contrib", "workflows", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")

#: A mutant that dies of these was written wrongly: it is no change that somebody could have made and not noticed.
MISWRITTEN = re.compile(r"^E\s+(NameError|ImportError|ModuleNotFoundError|IndentationError|SyntaxError)\b.*", re.M)


@dataclass(frozen=True)
class Outcome:
    """verdict: `killed`, `survived`, or `broken` where the mutant could not be tried."""

    mutant: Mutant
    verdict: str
    detail: str
    seconds: float


def copy_checkout(folder: Path) -> None:
    for name in COPIED:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(
                place, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*", "*.db"), symlinks=True
            )
        elif place.exists():
            shutil.copy2(place, folder / name)


def run_tests(folder: Path, tests: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Exit code of pytest, None past the limit, and what it printed."""
    paths = [str(folder / "core"), str(folder / "plugins"), os.environ.get("PYTHONPATH", "")]
    words = ["-n", "0", "-x", "-q", "-m", "", "-p", "no:cacheprovider", "--tb=short"]
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, *tests],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, _ = child.communicate(timeout=limit)
        return child.returncode, printed
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        printed, _ = child.communicate()
        return None, printed


def judge(code: int | None, printed: str) -> tuple[str, str]:
    """Verdict on a mutant, and the line that says why."""
    if code == 0:
        return "survived", ""
    if code is None:
        return "killed", "no end in time"
    if found := MISWRITTEN.search(printed):
        return "broken", found.group()
    if code == 1:
        return "killed", next((line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))), "")[:160]
    return "broken", f"pytest ended with {code}: {printed.strip()[-300:]}"


def try_mutant(folder: Path, mutant: Mutant, number: int) -> tuple[str, str]:
    """Apply a mutant, run its tests, and take it back."""
    file = folder / mutant.file
    before = file.read_text()
    if before.count(mutant.old) != 1:
        return "broken", f"its text occurs {before.count(mutant.old)} times"
    after = before.replace(mutant.old, mutant.new)
    try:
        compile(after, mutant.file, "exec")
    except SyntaxError as error:
        return "broken", f"it does not compile: {error}"
    times = file.stat()
    try:
        file.write_text(after)
        # Another time for each: Python knows compiled files by time and size, and both might be those of another.
        os.utime(file, (times.st_atime, times.st_mtime - 1000 - number))
        return judge(*run_tests(folder, mutant.tests, LIMIT))
    finally:
        file.write_text(before)
        os.utime(file, (times.st_atime, times.st_mtime))


def try_group(folders: queue.Queue[Path], group: Sequence[tuple[int, Mutant]], trust: bool) -> Iterator[Outcome]:
    """Mutants with the same tests. trust: these tests are known to pass."""
    folder = folders.get()
    try:
        if not trust:
            code, printed = run_tests(folder, group[0][1].tests, LIMIT)
            if code != 0 or " passed" not in printed:
                why = f"its tests do not pass without it: {printed.strip()[-300:]}"
                yield from (Outcome(mutant, "broken", why, 0.0) for _, mutant in group)
                return
        for number, mutant in group:
            begun = time.monotonic()
            verdict, detail = try_mutant(folder, mutant, number)
            yield Outcome(mutant, verdict, detail, time.monotonic() - begun)
    finally:
        folders.put(folder)


def run(mutants: Sequence[Mutant], jobs: int = 1, trust: bool = False) -> list[Outcome]:
    """Try mutants, and print what became of each."""
    groups: dict[tuple[str, ...], list[tuple[int, Mutant]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        groups[mutant.tests].append((number, mutant))
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as base:
        folders: queue.Queue[Path] = queue.Queue()
        for job in range(jobs):
            copy_checkout(Path(base) / str(job))
            folders.put(Path(base) / str(job))

        def go(group: Sequence[tuple[int, Mutant]]) -> None:
            for outcome in try_group(folders, group, trust):
                outcomes.append(outcome)
                print(
                    f"{outcome.verdict:8} {outcome.seconds:5.1f} s  {outcome.mutant.name}  {outcome.detail}", flush=True
                )

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(go, groups.values()))
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names (file: why) of mutants")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a change first")
    options = parser.parse_args()
    chosen = [m for m in MUTANTS if not options.only or any(part in m.name for part in options.only)]
    outcomes = run(chosen, options.jobs, options.trust)
    counts = Counter(o.verdict for o in outcomes)
    for outcome in outcomes:
        if outcome.verdict != "killed":
            print(f"\n{outcome.verdict}: {outcome.mutant.name}\n  - {outcome.mutant.old}\n  + {outcome.mutant.new}")
            print(f"  {outcome.detail}" if outcome.detail else "", end="\n" if outcome.detail else "")
    killed, survived, broken = (counts[verdict] for verdict in ("killed", "survived", "broken"))
    print(f"\n{len(outcomes)} mutants: {killed} killed, {survived} survive, {broken} broken")
    return int(not outcomes or killed < SHARE * len(outcomes) or broken > 0)


if __name__ == "__main__":
    sys.exit(main())
